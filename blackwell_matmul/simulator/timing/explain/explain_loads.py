"""Explanations of launches that loads bound: by latency, or by bandwidth."""

from __future__ import annotations

import dataclasses
import math
from typing import NamedTuple

from blackwell_matmul.base.validation import counted
from blackwell_matmul.simulator.timing.explain import what_if
from blackwell_matmul.simulator.timing.explain.explain_launch import Gain, line_of
from blackwell_matmul.simulator.timing.explain.explain_threads import beside
from blackwell_matmul.simulator.timing.explain.stages import StageWatch, TwiceWatch
from blackwell_matmul.simulator.timing.explain.what_if import (
    BUSY,
    SHARE,
    UNSHARED_L2_FRACTION,
    PathPart,
    PredictedRun,
)
from blackwell_matmul.simulator.timing.model.occupancy import resident, shared_bytes_of
from blackwell_matmul.simulator.timing.model.one_sm import Change, SmTime
from blackwell_matmul.simulator.timing.model.sm import Conditions

TURNED_CYCLES = 300
"""Cycles from the end of an MMA to the next load of its stage in a prompt pipeline, about."""

LATE = 0.2
"""Fraction of a stage's lap from which on that gap counts as late."""

A_THIRD = 1 / 3
"""Fraction of the loads' cost that more stages must save; the model underestimates the gain for two stages."""


def told_of_loads(run: PredictedRun, gain: float, besides: PathPart | None) -> Gain:
    """Decide whether loads are latency-bound or bandwidth-bound, and return the gain with its sentence.

    gain: if loads took no time. besides: the threads' part of the critical path, if a sentence reports it as well.
    """
    watch, twice = StageWatch(), TwiceWatch()
    took = run.watch(watch, twice)
    deep = min(run.most, 1 - run.deep_cycles / run.took.cycles)
    if deep > A_THIRD * gain and not _is_late(watch):
        return _too_few(run, watch, twice, took, gain)
    way, share = _busiest(run)
    if _queues(run, watch, share, gain):
        return _too_much(run, twice, way, share, gain)
    if not watch.laps:
        return gain, _first(run, gain) if watch.names else FEW_LOADS.format(gain=gain)
    if _is_late(watch):
        return _late(run, watch, gain, besides)
    first = run.gain(run.conditions, Change(first=True))
    return (first, _first(run, first)) if first > deep else _too_few(run, watch, twice, took, gain)


def _queues(run: PredictedRun, watch: StageWatch, share: float, gain: float) -> bool:
    """Return True if loads arrive at the rate of their path, for any number of stages."""
    slow = 2 * run.gain(what_if.loads_sooner(run.conditions)) < gain
    if not watch.laps or _is_late(watch):
        return slow and share > 1 - gain
    return slow or share > BUSY


def _is_late(watch: StageWatch) -> bool:
    return watch.lap[-1] > max(TURNED_CYCLES, LATE * sum(watch.lap))


def _first(run: PredictedRun, gain: float) -> str:
    nothing = f"nothing is {'multiplied' if run.multiplies else 'done'}"
    return f"until a CTA's first loads are there, {nothing}; if they were there at once, {gain:.0%} fewer cycles."


FEW_LOADS = "few loads run at a time; if they were there at once, {gain:.0%} fewer cycles."


def _busiest(run: PredictedRun) -> tuple[str, float]:
    """Return the busiest path of the loads, and the fraction of the time for which it is busy."""
    busy = {name: run.took.busy_cycles[name] for name in ("L2", "TMA loads", "cp.async")}
    name = max(busy, key=lambda each: busy[each])
    return name, busy[name] / run.took.cycles


def _too_much(run: PredictedRun, twice: TwiceWatch, name: str, share: float, gain: float) -> Gain:
    busy = f"busy for {share:.0%} of the time"
    if name == "L2" and run.from_memory:
        name, busy = "memory", f"busy for {run.load.memory:.0%} of the time, with the L2 before it {share:.0%}"
    text = f"what is loaded comes at the rate of {WAYS[name][0]}, which is {busy}"
    if twice.share > SHARE:
        gain = run.gain(_once(run, twice))
        return gain, f"{text}; {_again(twice, 'it')}: without that, {gain:.0%} fewer cycles."
    if name == "memory" and run.moving.once and run.load.memory >= BUSY and not run.tries_all:
        return gain, f"{text}: each byte comes from there once, and nothing asks it for less."
    advice = f": {_advice(run, name)}" if run.multiplies or name in ("TMA loads", "cp.async") else ""
    return gain, f"{text}; if all came at once, {gain:.0%} fewer cycles{advice}."


def _advice(run: PredictedRun, name: str) -> str:
    if run.tries_all and not run.quicker:
        return "no schedule beside this one takes less time"
    if name == "L2" and run.distinct > UNSHARED_L2_FRACTION:
        return "larger tiles, or clusters that load each tile once, ask it for less"
    if name == "memory" and run.moving.once:
        return "each byte comes from there once; larger tiles ask the L2 for less"
    return WAYS[name][1]


def _once(run: PredictedRun, twice: TwiceWatch) -> Conditions:
    """Return the conditions with the bandwidth that loads would have if no stage received the same data twice."""
    return dataclasses.replace(run.conditions, bytes_per_ns=run.conditions.bytes_per_ns / (1 - twice.share))


def _again(twice: TwiceWatch, what: str) -> str:
    lines = ", ".join(sorted({line_of(each) for each in twice.lines}))
    return f"{twice.share:.0%} of {what} comes into the same stage a second time ({lines})"


WAYS = {
    "L2": ("the L2", "larger tiles ask it for less"),
    "memory": ("memory", "larger tiles, or an order in which CTAs that run together share them, ask it for less"),
    "TMA loads": ("TMA", "it moves up to 128 bytes of a row at a time, and shorter rows cost as much"),
    "cp.async": ("cp.async", "TMA keeps no warp, and brings more at a time"),
}
"""Name and remedy of each path of a load."""


def _lap(watch: StageWatch) -> str:
    arriving, held, idle = watch.lap
    over = "its products are over" if watch.multiplied else "what reads it is over"
    return (
        f"a load is there after {arriving:,.0f} cycles, {over} {held:,.0f} later, and the next load"
        f" follows after {idle:,.0f}; {counted(watch.stages, 'stage')} cannot hide that"
    )


def _late(run: PredictedRun, watch: StageWatch, gain: float, besides: PathPart | None) -> Gain:
    """Return the gain for a late stage: its cause is the warp that releases it, or the load that fills it. No sentence
    if another gain reports it."""
    if watch.waiting <= watch.idle / 2 and besides is not None and beside(run, besides).loads_wait(besides):
        return 0.0, ""
    idle = watch.lap[-1]
    share = idle / sum(watch.lap)
    late, remedy = GIVEN_BACK if watch.waiting > watch.idle / 2 else FILLED
    gain = min(gain, share)
    return gain, (
        f"{_lap(watch)}. A stage is {late} late: for {share:.0%} of each lap it is neither loaded nor read; {remedy},"
        f" {gain:.0%} fewer cycles."
    )


GIVEN_BACK = "given back", "if it were given back as soon as it is read"
FILLED = "filled", "if it were loaded as soon as it is given back"
"""Clause on a late part, and its remedy."""


class StagedRing(NamedTuple):
    """A ring of stages. stage_bytes: of each stage. freed_bytes: of all stages, if no data were loaded twice."""

    stages: int
    stage_bytes: float
    conditions: Conditions
    freed_bytes: float = 0.0


class Deeper(NamedTuple):
    """A ring with this many stages, the CTAs that an SM then holds, and the gain as a fraction of the cycles."""

    stages: int
    resident: int
    gain: float


def _too_few(run: PredictedRun, watch: StageWatch, twice: TwiceWatch, took: SmTime, gain: float) -> Gain:
    at_once = took.at_once(run.launch.resident, run.launch.turns)
    busy = took.busy_cycles["tensor core"] if run.multiplies else took.busiest(run.load.memory)[1] * took.cycles
    each = busy / max(1, watch.phases) * at_once
    needed = max(watch.stages + 1, math.ceil(sum(watch.lap) / max(1.0, each)))
    ctas, ring = (at_once, 1), StagedRing(watch.stages, watch.stage_bytes, run.conditions)
    if twice.share > SHARE:
        once = max(_tried(run, _halved(run, ring, twice), needed, ctas), key=lambda each: each.gain)
        if once.gain > SHARE:
            more = _more(once.stages, ring.stages, _room(run, ring, 1))
            return once.gain, f"{_again(twice, 'what is loaded')}: without that,{more} {once.gain:.0%} fewer cycles."
    tried = _tried(run, ring, needed, ctas)
    best = max(tried, key=lambda each: each.gain)
    if best.gain > SHARE:
        return best.gain, f"{_lap(watch)}: with {best.stages}, {best.gain:.0%} fewer cycles{_but(run, best, needed)}."
    costs = f"if loads were there at once, {gain:.0%} fewer cycles"
    most = max(tried, key=lambda each: each.stages)
    return gain, f"{_lap(watch)}: {costs}; {_in_vain(run, watch, most, needed)}."


def _more(stages: int, before: int, room: int) -> str:
    if stages == before:
        return ""
    return f" and with {counted(stages, 'stage')},{' which then find room,' if stages > room else ''}"


def _in_vain(run: PredictedRun, watch: StageWatch, most: Deeper, needed: int) -> str:
    """Return why the needed stages do not help."""
    wanted = counted(needed, "stage")
    if most.stages == watch.stages:
        return f"{wanted} would, but shared memory has no room for another of {watch.stage_bytes / 1024:.0f} KiB"
    if most.stages == needed and most.gain >= 0:
        return f"{wanted} would be enough, and take {most.gain:.0%} off, as what then holds it is something else"
    if most.gain >= 0:
        return f"{wanted} would, but shared memory has room for {most.stages}: {most.gain:.0%} fewer"
    room = f"with {most.stages} an SM has room for {counted(most.resident, 'CTA')}"
    return f"but {room} and not {run.launch.resident}, and takes {-most.gain:.0%} more cycles"


def _but(run: PredictedRun, best: Deeper, needed: int) -> str:
    less = f", though an SM then holds {best.resident} of {run.launch.resident} CTAs"
    text = less if best.resident < min(run.launch.resident, run.launch.turns) else ""
    return text if best.stages == needed else f"{text}; {needed} would do, but shared memory has room for {best.stages}"


def _halved(run: PredictedRun, ring: StagedRing, twice: TwiceWatch) -> StagedRing:
    """Return the ring without data that it loads twice."""
    copies = ring.stage_bytes * twice.apart / twice.elements
    return StagedRing(ring.stages, ring.stage_bytes - copies, _once(run, twice), ring.stages * copies)


def _tried(run: PredictedRun, ring: StagedRing, needed: int, ctas: tuple[int, ...]) -> list[Deeper]:
    """Return rings with the needed stages, or with as many stages as fit if `ctas` CTAs share an SM."""
    return [_deeper(run, ring, min(needed, _room(run, ring, each))) for each in dict.fromkeys(ctas)]


def _room(run: PredictedRun, ring: StagedRing, ctas: int) -> int:
    """Return the stages that fit if `ctas` CTAs share an SM."""
    left = shared_bytes_of(ctas, run.launch.gpu) - run.lowered.program.dynamic_shared_bytes + ring.freed_bytes
    return ring.stages + max(0, int(left // max(1.0, ring.stage_bytes)))


def _deeper(run: PredictedRun, ring: StagedRing, stages: int) -> Deeper:
    """Run the launch again with this many stages."""
    more = stages - ring.stages
    ctas = resident(run.lowered.program, run.launch.gpu, math.ceil(more * ring.stage_bytes - ring.freed_bytes))
    change = Change(slots=ctas - run.launch.resident, stages=more)
    changed = more or ring.conditions is not run.conditions
    return Deeper(stages, ctas, run.gain(ring.conditions, change) if changed else 0.0)
