"""Explanations of other schedules that would take less time.

Each was run (`PredictedRun.beside`), so its time is predicted at its own clock: a schedule that leaves the tensor cores
busier also has a lower clock.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.timing.explain import what_if
from blackwell_matmul.simulator.timing.explain.beside import Beside
from blackwell_matmul.simulator.timing.explain.explain_idle import room, work
from blackwell_matmul.simulator.timing.explain.explain_launch import Gain, line_of
from blackwell_matmul.simulator.timing.explain.what_if import PredictedRun, group_of

MOST_LINES = 3
"""Most lines that are named."""

LESS = 0.9
"""Largest ratio of loaded bytes for the sentence that another schedule loads fewer."""

WORK, ROOM, LOADED, FROM_MEMORY = "work", "room for CTAs", "what is loaded", "what comes from memory"
BESIDES = (what_if.THREADS, what_if.FENCES, what_if.MEETINGS, what_if.ISSUES)
"""Groups of the critical path that are reported as one: anything but loads and MMAs."""


def of_schedules(run: PredictedRun) -> Iterator[Gain]:
    """Yield sentences on missing work or room for a CTA on SMs, and on the gains of tried schedules: by reason, the
    fastest first."""
    lacks = {WORK: sorted(work(run), reverse=True), ROOM: list(room(run))}
    mends: defaultdict[str, list[Beside]] = defaultdict(list)
    for other in sorted(run.quicker, key=lambda each: each.ns):
        mends[_reason(run.as_it_is, other, run.launch.turns > run.launch.resident)].append(other)
    for reason, others in mends.items():
        gain, told = 1 - others[0].cycles / run.as_it_is.cycles, _listed(run.as_it_is, others)
        lack = next(iter(lacks.get(reason, ())), None)
        yield gain, f"{lack.told}: {told}." if lack else f"{told}: {_why(run.as_it_is, others[0], reason)}."
    for lack in (each for reason, found in lacks.items() if reason not in mends for each in found):
        if run.tries_all and lack in lacks[WORK]:
            yield 0.0, f"{lack.told}; no schedule beside this one fills more of them in less time."
        else:
            yield lack.gain, f"{lack.told}{lack.remedy}"


def _listed(mine: Beside, others: Sequence[Beside]) -> str:
    shares = [(_changed(mine, each), f"{each.saves(mine):.0%}") for each in others]
    (words, saved), *rest = shares
    return "; ".join([f"with {words}, {saved} less time", *(f"with {words}, {saved}" for words, saved in rest)])


def _changed(mine: Beside, other: Beside) -> str:
    *most, last = (f"{name}={value}" for name, value in other.changed(mine).items())
    return f"{', '.join(most)} and {last}" if most else last


def _reason(mine: Beside, other: Beside, some_wait: bool) -> str:
    """Return the main reason for the saving: work for more SMs, more CTAs on an SM, a shorter part of the path, or
    fewer bytes."""
    saved = {WORK: 1 - mine.working / other.working}
    before, after = _groups(mine), _groups(other)
    saved |= {group: (cycles - after.get(group, 0.0)) / mine.cycles for group, cycles in before.items()}
    most = max(saved, key=lambda each: saved[each])
    if most != WORK and some_wait and other.resident > mine.resident:
        return ROOM
    if saved[most] <= 0:
        return what_if.PRODUCTS
    if most != what_if.LOADS:
        return most
    if other.loaded_gb < LESS * mine.loaded_gb:
        return LOADED
    return FROM_MEMORY if other.memory_gb < LESS * mine.memory_gb else most


def _groups(launch: Beside) -> dict[str, float]:
    """Return the cycles of the critical path by group, without MMAs, whose number is the same."""
    found: defaultdict[str, float] = defaultdict(float)
    for cause, cycles in launch.path.items():
        group = group_of(cause)
        if group != what_if.PRODUCTS:
            found[what_if.THREADS if group in BESIDES else group] += cycles
    return found


def _why(mine: Beside, other: Beside, reason: str) -> str:
    if reason == WORK:
        return f"SMs have work for {other.working:.0%} of the time and not {mine.working:.0%}"
    if reason == ROOM:
        return f"an SM holds {other.resident} CTAs and not {mine.resident}"
    if reason == what_if.PRODUCTS:
        return f"tensor cores multiply for {other.multiplying:.0%} of the time and not {mine.multiplying:.0%}"
    if reason == LOADED:
        return f"SMs load {_gb(other.loaded_gb)} and not {_gb(mine.loaded_gb)}"
    if reason == FROM_MEMORY:
        return f"{_gb(other.memory_gb)} come from memory and not {_gb(mine.memory_gb)}"
    before, after = (_groups(each).get(reason, 0.0) for each in (mine, other))
    return f"{_named(mine, reason)} takes {after:,.0f} cycles that nothing hides and not {before:,.0f}"


def _gb(value: float) -> str:
    return f"{value:.1f} GB" if value >= 1 else f"{value * 1e3:,.0f} MB"


REASON_PHRASES = {
    what_if.LOADS: "waiting for loads",
    what_if.RESULTS: "waiting for the end of products",
    what_if.STARTS: "starting",
    what_if.WAKING: "waking",
}


def _named(mine: Beside, reason: str) -> str:
    return REASON_PHRASES.get(reason) or f"what is done besides loads and products ({', '.join(_lines(mine))})"


def _lines(mine: Beside) -> list[str]:
    """Return the longest lines, in the order of the text."""
    lengths: defaultdict[Location, float] = defaultdict(float)
    for cause, cycles in mine.path.items():
        if cause.location is not None and group_of(cause) in BESIDES:
            lengths[cause.location] += cycles
    longest = sorted(lengths, key=lambda each: -lengths[each])[:MOST_LINES]
    return [line_of(each) for each in sorted(longest, key=lambda each: (each.file, each.line))]
