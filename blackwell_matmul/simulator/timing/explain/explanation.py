"""Explanations of a predicted time, in a few sentences that a user can try.

Each sentence names lines and a gain: the model's prediction for the same launch without that part (`what_if.py`), at
the same clock.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.timing.explain import what_if
from blackwell_matmul.simulator.timing.explain.explain_beside import of_schedules
from blackwell_matmul.simulator.timing.explain.explain_launch import Gain, line_of, spills, whole
from blackwell_matmul.simulator.timing.explain.explain_loads import told_of_loads
from blackwell_matmul.simulator.timing.explain.explain_threads import in_the_way, stores, told_of_threads
from blackwell_matmul.simulator.timing.explain.thread_watches import FenceWatch
from blackwell_matmul.simulator.timing.explain.what_if import (
    BUSY,
    MANY_STAGES,
    MULTIPLY,
    SHARE,
    PathPart,
    PredictedRun,
)
from blackwell_matmul.simulator.timing.model.one_sm import Change
from blackwell_matmul.simulator.timing.model.timed_engine import Stand

MOST_PARTS = 4
"""Maximum number of parts of the critical path that are removed, one at a time, longest first; each costs a run."""

MOST_GAINS = 5
"""Maximum number of reported gains."""


def explain(run: PredictedRun, gains: bool) -> tuple[str, ...]:
    """Return sentences on the bottleneck of the launch; then, with `gains`, on possible gains, the largest first."""
    most = sorted(_gains(run), key=lambda each: -each[0])[:MOST_GAINS] if gains else ()
    return (*spills(run), *_waits(run), *(sentence for _, sentence in most))


def _waits(run: PredictedRun) -> Iterator[str]:
    """Yield the longest wait of warps with MMAs, or the busiest part if there are none, and a saturated memory."""
    used, stood = run.used, run.took.stood
    name, busy = run.held_by
    if not run.multiplies and busy >= BUSY:
        name = {"L2": "the L2", "loads and stores": "loads and stores of threads"}.get(name, name)
        yield f"it is held by {name}, busy for {min(1, busy):.0%} of the time."
    elif run.load.memory > BUSY:
        yield f"memory is busy for {run.load.memory:.0%} of the time: only fewer bytes from it and to it take less."
    if used >= BUSY:
        yield f"the tensor core multiplies for {used:.0%} of the time."
    elif stood:
        stand, share = max(stood.items(), key=lambda each: each[1])
        if share > SHARE:
            yield (
                f"the tensor core multiplies for {used:.0%} of the time; the warp that issues its MMAs spends"
                f" {share:.0%} of its time at {_place(stand)}."
            )


def _place(stand: Stand) -> str:
    line = stand.location
    where = "a wait" if line is None else line_of(line)
    if not stand.barrier:
        return f"{where}, where it waits for its {stand.teller}" if stand.teller else where
    text = f", which {stand.teller} signals" if stand.teller else ""
    return f"{where}, where it waits for {stand.barrier}{text}"


def _gains(run: PredictedRun) -> Iterator[Gain]:
    """Yield gains, as fractions of all cycles, with a sentence for each."""
    found = _parts(run)[:MOST_PARTS]
    gains = {part.group: run.gain(*what_if.without(part, run.conditions)) for part in found}
    worth = {part.group: part for part in found if gains[part.group] > SHARE and not _of_a_ring(run, part)}
    for group, part in worth.items():
        gain = _serial(run, part, found, gains[group]) if group == what_if.RESULTS else gains[group]
        told = _told(run, part, gain, worth.get(what_if.THREADS))
        yield from [told] if told[0] > SHARE else []
    yield from stores(run)
    yield from in_the_way(run)
    yield from whole(run)
    yield from of_schedules(run)


def _parts(run: PredictedRun) -> list[PathPart]:
    """Return the parts that are long enough to matter. A needed fence belongs to the writes before it."""
    lines = [each.location for _, each in run.lowered.calls.values() if each.name in MULTIPLY and each.location]
    found = _long_enough(run, what_if.parts(run.took, lines))
    if all(each.group != what_if.FENCES for each in found):
        return found
    watch = FenceWatch()
    run.watch(watch)
    return _long_enough(run, what_if.parts(run.took, lines, frozenset(watch.needed)))


def _long_enough(run: PredictedRun, parts: list[PathPart]) -> list[PathPart]:
    return [each for each in parts if each.group in TAKEN_AWAY and each.cycles > SHARE * run.took.cycles]


def _of_a_ring(run: PredictedRun, part: PathPart) -> bool:
    """Return True if more stages hide the part: only the loader of a stage waits for the end of its MMAs."""
    if part.group != what_if.RESULTS:
        return False
    conditions, _ = what_if.without(part, run.conditions)
    return 1 - run.launch.at(conditions, Change(stages=MANY_STAGES)).cycles / run.deep_cycles <= SHARE


def _serial(run: PredictedRun, results: PathPart, found: list[PathPart], gain: float) -> float:
    """Return the gain without the waits for MMA results; if the waiting warps also issue loads, without these issues
    too."""
    issues = next((each for each in found if each.group == what_if.ISSUES), None)
    if issues is None or not all(_warps(run, results.lines()) <= _warps(run, [line]) for line in _longest(issues)):
        return gain
    conditions, _ = what_if.without(results, run.conditions)
    both = run.gain(*what_if.without(issues, conditions))
    return both if run.gain(*what_if.without(issues, run.conditions)) > SHARE else gain


def _warps(run: PredictedRun, lines: Iterable[tuple[str, Location]]) -> set[int]:
    """Return the warps that execute one of these lines."""
    among = frozenset(lines)
    calls = [each for _, each in run.lowered.calls.values() if (each.name, each.location) in among]
    return {warp for each in calls for warp in each.group.warps}


def _told(run: PredictedRun, part: PathPart, gain: float, threads: PathPart | None) -> Gain:
    if part.group == what_if.LOADS:
        return told_of_loads(run, gain, threads)
    if part.group == what_if.THREADS:
        return told_of_threads(run, part, _named(part), gain)
    remedy = REMEDIES[part.group]
    return gain, f"{_named(part)}: {remedy.format(gain=f'{gain:.0%} fewer cycles')}."


REMEDIES = {
    what_if.RESULTS: "the end of each product is waited for; if the next one were issued before: {gain}",
    what_if.FENCES: "needed where threads have written shared memory, not where TMA has; without: {gain}",
    what_if.MEETINGS: "warps wait for each other; without: {gain}",
    what_if.ISSUES: "what one warp has to issue; in warps of their own, or fewer and larger, at best: {gain}",
    what_if.STARTS: "the launch, and what each CTA begins with; with none of it: {gain}",
}


TAKEN_AWAY = (what_if.LOADS, what_if.THREADS, *REMEDIES)


def _named(part: PathPart) -> str:
    """Name the part by its longest lines, in the order of the text."""
    names: dict[str, list[str]] = {}
    for name, location in sorted(_longest(part), key=lambda each: (each[1].file, each[1].line)):
        names.setdefault(name, []).append(line_of(location))
    return ", ".join(f"{name} ({', '.join(lines)})" for name, lines in names.items()) or part.group


def _longest(part: PathPart) -> list[tuple[str, Location]]:
    return [at for at, cycles in part.lines().items() if cycles >= 0.1 * part.cycles][:4]
