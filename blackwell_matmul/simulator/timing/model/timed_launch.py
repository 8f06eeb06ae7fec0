"""One launch on one GPU: its time, and the clock and memory load that follow from the time.

One SM's share of the work is simulated with times (`one_sm.py`), some four rounds until clock and load agree with it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import NamedTuple

from blackwell_matmul.hardware.gpu_figures import TimeFigures
from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.simulator.cluster_schedule import clusters
from blackwell_matmul.simulator.machine.grid import Position
from blackwell_matmul.simulator.simulation import Simulation
from blackwell_matmul.simulator.timing.model.loads import ClusterLoad, known_loads
from blackwell_matmul.simulator.timing.model.occupancy import resident
from blackwell_matmul.simulator.timing.model.one_sm import AS_IT_IS, Change, OneSm, SmTime
from blackwell_matmul.simulator.timing.model.sm import Conditions, MemoryShare
from blackwell_matmul.simulator.timing.model.spread import Spread
from blackwell_matmul.simulator.timing.model.traffic import Traffic, traffic
from blackwell_matmul.simulator.timing.model.turns import require_no_turns

ROUNDS = 8
"""Most rounds until clock and memory agree with the time."""

AGREE = 0.001

FEW_TURNS = 3
"""Number of waves in the shorter of two runs. The longer run's additional time is used for all waves left out."""

MOST_PREDICTED_EVENTS = 60_000
"""Most events of all waves; with more, some waves are left out. It takes about a second."""


class Strain(NamedTuple):
    """Load of the whole GPU. tensor, memory: busy fractions of the time. moved, asked, stored: bytes into all SMs,
    requested and stored by them. Defaults are a first guess."""

    tensor: float = 0.8
    memory: float = 0.3
    moved: float = 1e15
    asked: float = 1e15
    stored: float = 1e15


class TimedLaunch:
    """One launch on one GPU, at conditions that follow from its time."""

    def __init__(self, simulation: Simulation, gpu: Gpu, figures: TimeFigures) -> None:
        self.simulation, self.gpu, self.figures = simulation, gpu, figures
        self.clusters = clusters(simulation.grid)
        self.size = math.prod(simulation.lowered.cluster)
        self.places = figures.clusters_at_once(gpu.sm_count, self.size)
        self.side = min(self.places, len(self.clusters))
        self.resident = resident(simulation.lowered.program, gpu)
        self.turns = math.ceil(len(self.clusters) / self.side)
        require_no_turns(simulation.lowered, simulation.grid, self.clusters)
        self.loads = known_loads(simulation.lowered, simulation.grid, self.clusters)
        shares = [ClusterLoad(1, 1)] * len(self.clusters) if self.loads is None else self.loads.shares
        self.spread = Spread.over(self.side, shares)
        self.events = 0  # of a few turns; 0: not known
        self._traffic: dict[int, Traffic] = {}

    def traffic(self, working: int) -> Traffic:
        if working not in self._traffic:
            lowered, grid = self.simulation.lowered, self.simulation.grid
            side, near = self.side * working, self.figures.near_l2_bytes
            joins = (self.figures.l2_joins or 0.0) * (working == 1)  # CTAs that share an SM are in no step with others
            self._traffic[working] = traffic(lowered, grid, self.clusters, side, near, joins, self.loads)
        return self._traffic[working]

    def at(self, conditions: Conditions, change: Change = AS_IT_IS) -> SmTime:
        """Return the time of one SM. Of many waves some are run in full, and the others extrapolated from two runs."""
        some = FEW_TURNS * self.resident
        if self.turns <= 2 * some or (self.events and self.events * self.turns / some < MOST_PREDICTED_EVENTS):
            return self.run(conditions, self.turns, change)
        short, long = self.run(conditions, some, change), self.run(conditions, 2 * some, change)
        self.events = short.events
        return long.extended(short, (self.turns - 2 * some) / some)

    def shown(self) -> int:
        """Return the number of waves that a timeline shows."""
        some = FEW_TURNS * self.resident
        return self.turns if self.turns <= 2 * some else some

    def run(self, conditions: Conditions, turns: int, change: Change = AS_IT_IS) -> SmTime:
        place = self.spread.most_at if change.place is None else change.place
        mine: list[list[Position]] = self.clusters[place :: self.side][:turns]
        return OneSm(self.simulation, conditions, mine, self.resident, self.gpu.tensor_memory_columns, change).run()

    def conditions(self, ghz: float, load: Strain, moving: Traffic) -> Conditions:
        """Return the conditions of an SM: latency and bandwidth of the L2, where misses take the memory's rate."""
        figures, active = self.figures, self.side * self.size
        hits_ns = moving.hits(load.asked) / figures.l2_bytes_per_ns
        needed_ns = moving.from_memory / figures.memory_bytes_per_ns + hits_ns
        latency = figures.memory_ns + figures.queue_ns * min(load.memory, 1) if moving.from_memory else figures.l2_ns
        rate = load.moved / needed_ns if needed_ns else figures.l2_bytes_per_ns
        memory, few_sms = self._memory(load, moving), active <= self.gpu.sm_count / 2
        return Conditions(figures, ghz, latency, rate / active, self._later(load.moved), memory, few_sms)

    def _later(self, moved: float) -> tuple[tuple[float, float], ...]:
        """Return `Conditions.later` for `moved` bytes of all SMs."""
        every = self.spread.full * self.side * self.size
        return tuple((part * moved / every, times) for part, times in self.spread.fewer)

    def _memory(self, load: Strain, moving: Traffic) -> MemoryShare:
        """Return an SM's share of the memory, for L2 misses and stores: no launch is faster than its bytes."""
        rate = self.figures.memory_bytes_per_ns / (self.side * self.size)
        cost = self.figures.memory_store_cost * 1.0
        loaded, stored = moving.from_memory / max(1.0, load.moved), cost * moving.written / max(1.0, load.stored)
        return MemoryShare(rate, loaded, stored, self._later(moving.as_reads(cost)))

    def load(self, took: SmTime, moving: Traffic, ghz: float) -> Strain:
        """Return the load of the GPU that a time causes."""
        every = self.spread.full * self.side * self.size
        tensor = took.busy_cycles["tensor core"] / took.cycles * every / self.gpu.sm_count
        passed = moving.as_reads(self.figures.memory_store_cost * 1.0)
        memory = passed / (took.cycles / ghz * self.figures.memory_bytes_per_ns)
        moved = took.moved_bytes, took.asked_bytes, took.stored_bytes
        return Strain(tensor, memory, *(each * every for each in moved))


@dataclass(frozen=True)
class Settled:
    """A launch, its time, and the clock, load, traffic and conditions that agree with the time."""

    launch: TimedLaunch
    took: SmTime
    ghz: float
    load: Strain
    moving: Traffic
    conditions: Conditions

    @property
    def from_memory(self) -> bool:
        """Return True if memory takes more of the loads' time than the L2 does."""
        figures, hits = self.launch.figures, self.moving.hits(self.load.asked)
        return self.moving.from_memory / figures.memory_bytes_per_ns > hits / figures.l2_bytes_per_ns


def settled(launch: TimedLaunch, pinned_ghz: float | None) -> Settled:
    """Run until the clock and the memory load agree with the resulting time."""
    figures, load, working, before = launch.figures, Strain(), 1, 0.0
    for _ in range(ROUNDS):
        ghz = pinned_ghz or figures.clock_ghz - figures.clock_fall_ghz * load.tensor
        moving = launch.traffic(working).within(load.asked, load.stored)
        conditions = launch.conditions(ghz, load, moving)
        took = launch.at(conditions)
        working = took.at_once(launch.resident, launch.turns)
        load = launch.load(took, moving, ghz)
        if abs(took.cycles - before) < AGREE * took.cycles:
            break
        before = took.cycles
    return Settled(launch, took, ghz, load, moving, conditions)
