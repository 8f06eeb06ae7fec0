"""What is said of loads that keep a launch: they come too late, or too many bytes do."""

from __future__ import annotations

import math

from blackwell_matmul.simulator.timing import what_if
from blackwell_matmul.simulator.timing.one_sm import SmTime
from blackwell_matmul.simulator.timing.stages import StageWatch
from blackwell_matmul.simulator.timing.what_if import PredictedRun

TURNED_CYCLES = 300
"""From the end of a product to the next load of its stage: about what it takes where nobody is late."""

FAR = 0.9
"""Of the L2's rate; with less, the memory behind it is what keeps it."""

LATE = 0.2
"""Of a lap of a stage, from which on it is."""


def told_of_loads(run: PredictedRun, gain: float) -> str:
    """Too late, or too many bytes: if their way takes longer than all else, and is what takes the time, not how long it
    is."""
    way, share = _busiest(run)
    if share > 1 - gain and 2 * run.gain(what_if.loads_sooner(run.conditions)) < gain:
        return _too_much(run, way, share, gain)
    watch = StageWatch()
    took = run.watch(watch)
    if not watch.laps:
        what = (
            "until a CTA's first loads are there, nothing is multiplied" if watch.names else "few loads run at a time"
        )
        return f"{what}; if they were there at once, {gain:.0%} fewer cycles."
    return _too_late(run, watch, took, gain)


def _busiest(run: PredictedRun) -> tuple[str, float]:
    """The way of loads that is busy for the longest, and for which part of the time."""
    busy = {name: run.took.busy_cycles[name] for name in ("L2", "TMA loads", "cp.async")}
    name = max(busy, key=lambda each: busy[each])
    return name, busy[name] / run.took.cycles


def _too_much(run: PredictedRun, name: str, share: float, gain: float) -> str:
    all_of_them = run.conditions.bytes_per_ns * run.side * math.prod(run.lowered.cluster)
    far = all_of_them < FAR * run.conditions.figures.l2_bytes_per_ns
    way = "memory" if name == "L2" and far else name
    return (
        f"what is loaded comes at the rate of {WAYS[way][0]}, which is busy for {share:.0%} of the time; if all came at"
        f" once, {gain:.0%} fewer cycles: {WAYS[way][1]}."
    )


WAYS = {
    "L2": ("the L2", "larger tiles, or clusters that load each tile once, ask it for less"),
    "memory": ("memory", "larger tiles, or an order in which CTAs that run together share them, ask it for less"),
    "TMA loads": ("TMA", "it moves up to 128 bytes of a row at a time, and shorter rows cost as much"),
    "cp.async": ("cp.async", "TMA keeps no warp, and brings more at a time"),
}
"""For each way of a load what it is called, and the remedy."""


def _too_late(run: PredictedRun, watch: StageWatch, took: SmTime, gain: float) -> str:
    arriving, held, idle = watch.lap
    lap, each = arriving + held + idle, took.busy_cycles["tensor core"] / max(1, watch.phases)
    at_once = took.working or min(run.resident, run.turns)
    needed = math.ceil(lap / max(1.0, each * max(1, at_once)))
    stages = f"{watch.stages} stage{'s' * (watch.stages > 1)}"
    told = (
        f"a load is there after {arriving:,.0f} cycles, its products are over {held:,.0f} later, and the next load"
        f" follows after {idle:,.0f}; {stages} cannot hide that: if loads were there at once, {gain:.0%} fewer cycles"
    )
    if idle > TURNED_CYCLES and idle > LATE * lap:
        return f"{told}. A stage is given back late: for {idle / lap:.0%} of each lap it is neither loaded nor read."
    return f"{told}; {_stages(run, watch, needed)}."


def _stages(run: PredictedRun, watch: StageWatch, needed: int) -> str:
    left = run.gpu.shared_memory_per_block_bytes - run.lowered.program.dynamic_shared_bytes
    room = watch.stages + int(left // max(1.0, watch.stage_bytes))
    if needed <= watch.stages:
        return "more stages may hide it"
    if room >= needed:
        return f"{needed} stages would, and there is room for {room}"
    has = f"has room for {room}" if room > watch.stages else "has no room"
    return f"{needed} stages would, but shared memory {has}"
