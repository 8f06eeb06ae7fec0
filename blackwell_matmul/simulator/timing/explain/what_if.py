"""Gains of a supposed launch in which something costs nothing: the same run again, with that one change.

The critical path (`path.py`) divides the time into parts. Removing a part gains less than its length, because another
part then bounds the launch. So each part that is long enough to matter is removed, and the launch run again.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.hardware.gpu_figures import GpuFigure, TimeFigures
from blackwell_matmul.simulator.listener import Listener
from blackwell_matmul.simulator.lowering.lower import Lowered
from blackwell_matmul.simulator.timing.explain.beside import Beside, Others
from blackwell_matmul.simulator.timing.model.one_sm import AS_IT_IS, Change, SmTime
from blackwell_matmul.simulator.timing.model.path import EXECUTES, LAUNCH, TRIP, WAKES, Cause
from blackwell_matmul.simulator.timing.model.sm import Conditions
from blackwell_matmul.simulator.timing.model.timed_launch import Settled

BUSY = 0.8
"""Fraction of the time from which on a busy part bounds the launch."""

ALL_BUSY = 0.85
"""Fraction of all tensor cores' time from which on no other schedule is tried."""

UNSHARED_L2_FRACTION = 0.99
"""Fraction of the SMs' loads that the L2 delivers if neighbours share nothing, at least."""

MANY_STAGES = 8
"""Number of stages beyond any ring's; loads are then limited by bandwidth alone."""

SHARE = 0.05
"""Fraction of the time from which on a wait, or a gain, is reported."""

LOADS, PRODUCTS, RESULTS = "loads", "products", "results of products"
THREADS, FENCES, MEETINGS, ISSUES, STARTS = "threads", "fences", "meetings", "issues", "starts"
COPIED_SCALES = "scales"
WAKING = "waking"  # what every wait costs, and goes with it

COPY_OF_SCALES = "tcgen05.cp of scales"
MULTIPLY_SYNC = ("dot", "dot_scaled")
MULTIPLY = ("tcgen05.mma", "wgmma.mma_async", *MULTIPLY_SYNC)
LOAD_PARTS = frozenset({"L2", "port", "TMA loads", "cp.async"})
ISSUED = (
    "mbarrier.", "cp.async", "tcgen05.cp", "tcgen05.mma", "tcgen05.commit", "tcgen05.wait", "wgmma",
    "clusterlaunchcontrol",
)  # fmt: skip
START_INSTRUCTIONS = ("tcgen05.alloc", "tcgen05.dealloc", "tcgen05.relinquish", "mbarrier.init")


def group_of(cause: Cause) -> str:
    """Return the group of a kernel's work to which a cause belongs."""
    kind, name = cause.kind, cause.name
    if kind in LOAD_PARTS or (kind == "memory" and "store" not in name):
        return LOADS
    if kind == "tensor core":
        return PRODUCTS
    if cause == LAUNCH:
        return STARTS
    if kind == TRIP:
        return _of_trip(name)
    if cause == WAKES:
        return WAKING
    return _of_executed(name) if kind == EXECUTES else THREADS


def _of_trip(name: str) -> str:
    if name == COPY_OF_SCALES:
        return COPIED_SCALES
    if name in MULTIPLY:
        return RESULTS
    if name.startswith("clusterlaunchcontrol"):
        return ISSUES
    return LOADS if name.startswith("cp.async") and "store" not in name else THREADS


def _of_executed(name: str) -> str:
    if name.startswith("fence"):
        return FENCES
    if name in ("sync", "cluster.sync"):
        return MEETINGS
    if name.startswith(START_INSTRUCTIONS):
        return STARTS
    if name in MULTIPLY_SYNC:
        return RESULTS
    return ISSUES if name.startswith(ISSUED) and "store" not in name else THREADS


class PathPart(NamedTuple):
    """A part of the critical path: a group of causes, or one line. cycles: its length. causes: its causes, longest
    first."""

    group: str
    cycles: float
    causes: Mapping[Cause, float]

    def lines(self) -> dict[tuple[str, Location], float]:
        """Return instructions with their lines, the longest first."""
        found: dict[tuple[str, Location], float] = {}
        for cause, cycles in self.causes.items():
            if cause.location is not None:
                at = cause.name, cause.location
                found[at] = found.get(at, 0.0) + cycles
        return dict(sorted(found.items(), key=lambda each: -each[1]))


def parts(took: SmTime, products: Sequence[Location], needed: frozenset[Location] = frozenset()) -> list[PathPart]:
    """Return the parts, the longest first. products: lines with MMAs; needed: lines of fences of threads' work."""
    groups: dict[str, dict[Cause, float]] = {}
    for cause, cycles in took.path.items():
        group = THREADS if cause.location in needed and group_of(cause) == FENCES else group_of(cause)
        groups.setdefault(group, {})[cause] = cycles
    _gather(groups, products)
    found = [PathPart(group, sum(causes.values()), causes) for group, causes in groups.items()]
    return sorted(found, key=lambda each: -each.cycles)


def _gather(groups: dict[str, dict[Cause, float]], products: Sequence[Location]) -> None:
    """Move fences, meetings and stores between lines of threads to these, unless MMAs are there, too."""
    threads = groups.get(THREADS, {})
    lines = [each.location for each in threads if each.location is not None]
    for file in {each.file for each in lines}:
        first, last = (choose(each.line for each in lines if each.file == file) for choose in (min, max))
        if any(each.file == file and first <= each.line <= last for each in products):
            continue
        for group in (FENCES, MEETINGS, ISSUES):
            for cause in [each for each in groups.get(group, ()) if _between(each.location, file, first, last)]:
                threads[cause] = threads.get(cause, 0.0) + groups[group].pop(cause)


def _between(location: Location | None, file: str, first: int, last: int) -> bool:
    return location is not None and location.file == file and first <= location.line <= last


@dataclass(frozen=True)
class PredictedRun(Settled):
    """A launch to explain. as_it_is: figures to compare with other schedules. neighbours: runs it with some of
    `others`, for each change.
    """

    as_it_is: Beside
    neighbours: Callable[[], Iterator[Iterator[Beside]]]
    others: Others | None

    @property
    def lowered(self) -> Lowered:
        return self.launch.simulation.lowered

    @property
    def distinct(self) -> float:
        """Fraction of the SMs' loads that the L2 delivers; the rest are the same data."""
        return self.moving.distinct * self.load.asked / max(1.0, self.load.moved) or 1.0

    @property
    def held_by(self) -> tuple[str, float]:
        """The busiest part and its fraction of the time; memory instead of the L2 if misses bound it."""
        name, share = self.took.busiest(self.load.memory)
        return "memory" if name == "L2" and self.load.memory > BUSY and self.from_memory else name, share

    def watch(self, *listeners: Listener) -> SmTime:
        """Run the waves that a timeline shows, with listeners."""
        self.launch.simulation.listeners = listeners
        took = self.launch.run(self.conditions, self.launch.shown())
        self.launch.simulation.listeners = ()
        return took

    @property
    def of_all_schedules(self) -> bool:
        """Return True if no other schedules are worth a try."""
        return self.others is not None and self.others.every

    @property
    def tries_all(self) -> bool:
        """Return True if all worthwhile schedules are tried, and the tensor cores have time left."""
        return self.of_all_schedules and self.load.tensor < ALL_BUSY

    @cached_property
    def quicker(self) -> list[Beside]:
        """Return the first schedule of each change that takes less time."""
        changes = self.neighbours() if self.load.tensor < ALL_BUSY else ()
        first = (next((each for each in some if each.saves(self.as_it_is) > SHARE), None) for some in changes)
        return [each for each in first if each is not None]

    @property
    def who(self) -> str:
        """Noun for the launch's units: "clusters" or "CTAs"."""
        return "clusters" if math.prod(self.lowered.cluster) > 1 else "CTAs"

    @cached_property
    def deep_cycles(self) -> float:
        """Cycles with more stages than any ring needs."""
        return self.launch.at(self.conditions, Change(stages=MANY_STAGES)).cycles

    @property
    def used(self) -> float:
        """Fraction of the time for which the tensor core multiplies."""
        return self.took.busy_cycles["tensor core"] / self.took.cycles

    @cached_property
    def multiplies(self) -> bool:
        """Return True if the launch has MMAs."""
        return any(instruction.name in MULTIPLY for _, instruction in self.lowered.calls.values())

    @cached_property
    def begins(self) -> float:
        """Fraction of the time for the launch and the start of each CTA, which more CTAs do not shorten."""
        return sum(cycles for cause, cycles in self.took.path.items() if group_of(cause) == STARTS) / self.took.cycles

    @cached_property
    def most(self) -> float:
        """Largest fraction that can be saved: without MMAs the busiest part still moves the same bytes."""
        return 1.0 if self.multiplies else max(0.0, 1 - self.took.busiest(self.load.memory)[1])

    def gain(self, conditions: Conditions, change: Change = AS_IT_IS) -> float:
        """Return the fraction of the cycles that would be saved."""
        return min(self.most, 1 - self.launch.at(conditions, change).cycles / self.took.cycles)


FREED_FIGURES = {
    RESULTS: (
        "mma_latency_cycles", "pair_latency_cycles", "chain_cycles", "commit_gap_cycles", "wgmma_latency_cycles",
        "mma_sync_latency_cycles",
    ),
    ISSUES: ("wait_cycles", "arrive_cycles", "expect_cycles", "issue_cycles", "tma_issue_cycles", "query_cycles"),
    STARTS: ("launch_ns", "start_cycles", "ramp_ns", "alloc_cycles", "alloc_again_cycles"),
}  # fmt: skip
"""Figures that are zero without a group."""


def without(part: PathPart, conditions: Conditions) -> tuple[Conditions, Change]:
    """Suppose that this part costs nothing."""
    if part.group == LOADS:
        return _loads_at_once(conditions), AS_IT_IS
    if part.group in FREED_FIGURES:
        return _figures(conditions, **_zero(conditions.figures, FREED_FIGURES[part.group])), AS_IT_IS
    return conditions, Change(free=frozenset((each.location, each.name) for each in part.causes))


def loads_sooner(conditions: Conditions) -> Conditions:
    """Suppose loads without latency, but with their bandwidth."""
    changed = _zero(conditions.figures, ("tma_cycles",))
    return dataclasses.replace(_figures(conditions, **changed), latency_ns=0.0)


UNLIMITED_RATE = GpuFigure(1e12, "assumed", "what if")


def _zero(figures: TimeFigures, names: tuple[str, ...]) -> dict[str, GpuFigure]:
    nothing = GpuFigure(0, "assumed", "what if")
    return {name: nothing for name in names if getattr(figures, name) is not None}


def _figures(conditions: Conditions, **changed: GpuFigure) -> Conditions:
    return dataclasses.replace(conditions, figures=dataclasses.replace(conditions.figures, **changed))


def _loads_at_once(conditions: Conditions) -> Conditions:
    changed = _zero(conditions.figures, ("tma_cycles", "tma_row_cycles"))
    fast = _figures(conditions, **changed, port_bytes_per_cycle=UNLIMITED_RATE, fill_bytes_per_cycle=UNLIMITED_RATE)
    memory = dataclasses.replace(conditions.memory, loaded=0.0)
    return dataclasses.replace(fast, latency_ns=0.0, bytes_per_ns=float(UNLIMITED_RATE), memory=memory)
