"""What a colleague would say of a predicted time, in a few sentences; each can be tried.

Each names lines and what would be gained, which is what the model says of the same launch without that part
(`what_if.py`), at the same clock.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.gpus import Gpu
from blackwell_matmul.simulator.listener import Listener
from blackwell_matmul.simulator.lowering.lower import Lowered
from blackwell_matmul.simulator.timing import what_if
from blackwell_matmul.simulator.timing.occupancy import limits
from blackwell_matmul.simulator.timing.one_sm import Change, SmTime
from blackwell_matmul.simulator.timing.sm import Conditions
from blackwell_matmul.simulator.timing.stages import StageWatch
from blackwell_matmul.simulator.timing.timed_engine import Stand
from blackwell_matmul.simulator.timing.what_if import Part, Supposed
from blackwell_matmul.simulator.timing.work import Multiply, WarpgroupMultiply, work_of

BUSY = 0.8
"""Of the time, from which on a part is what holds the others."""

SHARE = 0.05
"""Of the time, from which on a wait, or a gain, is worth a sentence."""

MOST_PARTS = 4
"""That are taken away, one by one, the longest of them; each costs a run."""

MOST_GAINS = 4
"""That are told."""

TURNED_CYCLES = 300
"""From the end of a product to the next load of its stage: about what it takes where nobody is late."""

RELINQUISH = "tcgen05.relinquish_alloc_permit"


@dataclass(frozen=True)
class Run:
    """A launch that was run. again: runs it with a change; watch: runs some of it, telling a listener. resident: CTAs
    that an SM holds at once; full: of the turns of all SMs; side: clusters that run side by side, of so many in all."""

    lowered: Lowered
    gpu: Gpu
    took: SmTime
    conditions: Conditions
    again: Callable[[Conditions, Change], SmTime]
    watch: Callable[[Listener], SmTime]
    resident: int
    turns: int
    side: int
    clusters: int

    @property
    def used(self) -> float:
        """Of the time, for how much the tensor core multiplies."""
        return self.took.busy_cycles["tensor core"] / self.took.cycles

    def gain(self, supposed: Supposed) -> float:
        """Of the cycles, what would be saved."""
        return 1 - self.again(*supposed).cycles / self.took.cycles


def explain(run: Run) -> tuple[str, ...]:
    """What holds it; then what would be gained, the most first."""
    gains = sorted((*_gains(run), *_permit(run)), key=lambda each: -each[0])[:MOST_GAINS]
    return (*_waits(run), *(sentence for _, sentence in gains))


def _waits(run: Run) -> Iterator[str]:
    """Where the warps that issue the products stand longest, if the tensor core has time left."""
    used, stood = run.used, run.took.stood
    if used >= BUSY:
        yield f"the tensor core multiplies for {used:.0%} of the time."
    elif stood:
        stand, share = max(stood.items(), key=lambda each: each[1])
        if share > SHARE:
            yield (
                f"the tensor core multiplies for {used:.0%} of the time; the warp that tells it to stands for"
                f" {share:.0%} of its own at {_place(stand)}."
            )


def _place(stand: Stand) -> str:
    line = stand.location
    where = "a wait" if line is None else _line(line)
    if not stand.barrier:
        return f"{where}, where it waits for its {stand.teller}" if stand.teller else where
    told = f", which {stand.teller} tells" if stand.teller else ""
    return f"{where}, where it waits for {stand.barrier}{told}"


def _line(location: Location) -> str:
    return f"{os.path.basename(location.file)}:{location.line}"


Gain = tuple[float, str]


def _gains(run: Run) -> Iterator[Gain]:
    """What would be saved, of all cycles, and by what."""
    lines = [each.location for _, each in run.lowered.calls.values() if each.name in PRODUCTS and each.location]
    found = [each for each in what_if.parts(run.took, lines) if each.group in TAKEN_AWAY]
    for part in [each for each in found if each.cycles > SHARE * run.took.cycles][:MOST_PARTS]:
        gain = run.gain(what_if.without(part, run.conditions))
        if gain > SHARE:
            yield gain, _told(run, part, gain)
    yield from _rate(run)
    yield from _turns(run)
    yield from _room(run)


PRODUCTS = ("tcgen05.mma", "wgmma.mma_async", "dot")


def _told(run: Run, part: Part, gain: float) -> str:
    if part.group == what_if.LOADS:
        return _loads(run, gain)
    remedy = REMEDIES[part.group]
    return f"{_named(part)}: {remedy.format(gain=f'{gain:.0%} fewer cycles')}."


REMEDIES = {
    what_if.THREADS: "if this were done while the tensor core multiplies, by other warps, or took no time: {gain}",
    what_if.RESULTS: "each end of a product is waited for; seen at once, or with the next one issued before: {gain}",
    what_if.FENCES: "needed where threads have written shared memory, and not where TMA has; without: {gain}",
    what_if.MEETINGS: "the warps wait for each other; without: {gain}",
    what_if.ISSUES: "one warp issues and waits for so much; with fewer and larger operations, at best: {gain}",
    what_if.STARTS: "launches of CTAs and what each begins with; with CTAs that stay, at best: {gain}",
}


TAKEN_AWAY = (what_if.LOADS, *REMEDIES)


def _named(part: Part) -> str:
    """Its longest lines, in the order of the text."""
    most = [at for at, cycles in part.lines().items() if cycles >= 0.1 * part.cycles][:4]
    names: dict[str, list[str]] = {}
    for name, location in sorted(most, key=lambda each: (each[1].file, each[1].line)):
        names.setdefault(name, []).append(_line(location))
    return ", ".join(f"{name} ({', '.join(lines)})" for name, lines in names.items()) or part.group


# --- loads


def _loads(run: Run, gain: float) -> str:
    """Too late, or too many bytes."""
    sooner = run.gain(what_if.loads_sooner(run.conditions))
    if 2 * sooner < gain:
        return _too_much(run, gain)
    watch = StageWatch()
    took = run.watch(watch)
    if not watch.laps:
        return f"if what is loaded were there at once, it would take {gain:.0%} fewer cycles: more loads at a time."
    return _too_late(run, watch, took, gain)


def _too_much(run: Run, gain: float) -> str:
    busy = {name: run.took.busy_cycles[name] for name in ("L2", "TMA loads", "cp.async")}
    name = max(busy, key=lambda each: busy[each])
    share = busy[name] / run.took.cycles
    far = run.conditions.bytes_per_ns * run.side * math.prod(run.lowered.cluster) < 0.9 * run.conditions.figures.l2_bytes_per_ns
    way = "memory" if name == "L2" and far else name
    remedy = {
        "L2": "larger tiles, or a cluster that loads each tile once, ask for less",
        "memory": "an order in which CTAs that run together share tiles, or larger tiles, ask it for less",
        "TMA loads": "it moves 128 bytes of a row at a time, so that rows of fewer cost as much",
        "cp.async": "TMA keeps no warp, and brings more at a time",
    }[way]
    return f"what is loaded comes at the rate of {way}, which is busy for {share:.0%} of the time; at any rate it would take {gain:.0%} fewer cycles: {remedy}."


def _too_late(run: Run, watch: StageWatch, took: SmTime, gain: float) -> str:
    arriving, held, idle = watch.lap
    lap, each = arriving + held + idle, took.busy_cycles["tensor core"] / max(1, watch.phases)
    needed = math.ceil(lap / max(1.0, each * max(1, took.working or run.resident)))
    stages = f"{watch.stages} stage{'s' * (watch.stages > 1)}"
    told = (
        f"a load is there after {arriving:,.0f} cycles, its products are over {held:,.0f} later, and the next load"
        f" follows after {idle:,.0f}; {stages} cannot hide that: if loads were there at once, {gain:.0%} fewer cycles"
    )
    if idle > TURNED_CYCLES and idle > 0.2 * lap:
        return f"{told}. A stage is given back late: {idle / lap:.0%} of each lap it is neither loaded nor read."
    return f"{told}; {_stages(run, watch, needed)}."


def _stages(run: Run, watch: StageWatch, needed: int) -> str:
    left = run.gpu.shared_memory_per_block_bytes - run.lowered.program.dynamic_shared_bytes
    room = watch.stages + int(left // max(1.0, watch.stage_bytes))
    if needed <= watch.stages:
        return "more stages may hide it"
    if room > watch.stages:
        return f"{needed} stages would, and there is room for {room}"
    return f"{needed} stages would, for which shared memory has no room: smaller ones, or smaller tiles"


# --- the tensor core's rate, turns, and room on an SM


def _rate(run: Run) -> Iterator[Gain]:
    """Instructions that take longer than their products."""
    for inst, instruction in run.lowered.calls.values():
        if instruction.name not in PRODUCTS:
            continue
        work = work_of(inst, instruction, run.conditions.figures)
        best = _best_interval(inst, work)
        if best is not None and run.used * (1 - best[0] / best[1]) > SHARE:
            rows, columns = (int(each) for each in inst.inputs[2].shape[-2:])
            yield run.used * (1 - best[0] / best[1]), (
                f"each {instruction.name} of {rows} x {columns} ({_line(instruction.location)}) takes {best[1] / best[0]:.1f}"
                " times as long as its products do at the full rate: larger tiles have it."
            )
            return


def _best_interval(inst: object, work: object) -> tuple[float, float] | None:
    """At the full rate, and as it is, from one instruction to the next."""
    if isinstance(work, Multiply):
        shape = inst.inputs[2].shape  # type: ignore[attr-defined]
        return int(shape[-2]) * int(shape[-1]) / 256, work.interval
    if isinstance(work, WarpgroupMultiply):
        shape = inst.inputs[2].shape  # type: ignore[attr-defined]
        return int(shape[0]) / 64 * int(shape[1]) / 2, work.interval
    return None


def _turns(run: Run) -> Iterator[Gain]:
    """SMs without work in the last turn, or in the only one."""
    lost, last = 1 - run.clusters / (run.side * run.turns), run.clusters - run.side * (run.turns - 1)
    if lost <= 2 * SHARE:
        return
    who = "clusters" if math.prod(run.lowered.cluster) > 1 else "CTAs"
    if run.turns == 1:
        yield lost, f"{run.clusters} {who} run where {run.side} could: smaller tiles, or a part of k for each, fill more SMs."
    else:
        yield lost, (
            f"{run.clusters} {who} take {run.turns} turns of {run.side}, the last of which has {last}: tiles that come out even"
            f" would take up to {lost:.0%} fewer cycles."
        )


def _room(run: Run) -> Iterator[Gain]:
    """One more CTA on the SM."""
    if run.turns <= run.resident or run.used >= BUSY or run.took.working and run.took.working < run.resident:
        return
    gain = run.gain(Supposed(run.conditions, Change(slots=1)))
    if gain > SHARE:
        what = min(limits(run.lowered.program, run.gpu).items(), key=lambda each: each[1])[0]
        yield gain, (
            f"an SM holds {run.resident} CTA{'s' * (run.resident > 1)} at once, by its {what}; one more would fill gaps of the"
            f" others: {gain:.0%} fewer cycles."
        )


# --- tensor memory


def _permit(run: Run) -> Iterator[Gain]:
    """PTX ISA, "tcgen05.relinquish_alloc_permit"."""
    names: Iterable[str] = {instruction.name for _, instruction in run.lowered.calls.values()}
    if run.took.waited and run.took.working == 1 < run.resident and RELINQUISH not in names:
        gain = run.gain(Supposed(run.conditions, Change(passed_on=True)))
        yield gain, (
            f"an SM has room for {run.resident} CTAs and one works at a time: it keeps the right to allocate tensor memory,"
            f" and {run.took.waited} others waited for it; {RELINQUISH} after the allocation lets them work side by side:"
            f" {gain:.0%} fewer cycles."
        )
