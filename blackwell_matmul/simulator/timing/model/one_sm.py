"""One SM, or the SMs of one cluster, from the launch to the last store.

All SMs do the same at about the same time. The one with the most work, with its share of the L2, stands for all. It
gets every n-th cluster in launch order, where n clusters run side by side.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from blackwell_matmul.base.errors import SimulationError, UnsupportedError
from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.engine import Engine
from blackwell_matmul.simulator.lowering.lower import Lowered, Main
from blackwell_matmul.simulator.machine.cta import Cluster
from blackwell_matmul.simulator.machine.grants import Grants, Response
from blackwell_matmul.simulator.machine.grid import Position
from blackwell_matmul.simulator.simulation import Simulation
from blackwell_matmul.simulator.timing.model.deeper import DeeperRings
from blackwell_matmul.simulator.timing.model.occupancy import spilled_sums
from blackwell_matmul.simulator.timing.model.path import DRAIN, LAUNCH, Cause, PathStep, along
from blackwell_matmul.simulator.timing.model.sectors import given
from blackwell_matmul.simulator.timing.model.sm import Conditions, Sm
from blackwell_matmul.simulator.timing.model.timed_engine import Stand, TimedEngine, timed
from blackwell_matmul.simulator.timing.model.turns import across_sms
from blackwell_matmul.simulator.timing.model.work import (
    Load,
    MultiplySync,
    UseBanks,
    WarpgroupMultiply,
    Work,
    freed,
    work_of,
)

MOST_OF_ONE_SM = 2_000_000
"""Most events of one run, some ten seconds; a persistent kernel at 16384x16384x16384 has 0.8 million."""


@dataclass(frozen=True)
class SmTime:
    """Result of one run. cycles: from the launch of the kernel to the last store. busy_cycles: of each part of the
    first SM. moved_bytes: into that SM; asked_bytes: requested by it; stored_bytes: stored by it.

    waited: its CTAs that had to wait for tensor memory, or for the right to allocate it; working: most that held some
    at once. stood: fraction of their time that warps with MMAs wait, by wait. path: cycles of each cause on the
    critical path. events: number of simulated events.
    """

    cycles: float
    busy_cycles: Mapping[str, float]
    moved_bytes: float
    asked_bytes: float
    stored_bytes: float
    waited: int
    working: int
    stood: Mapping[Stand, float]
    path: Mapping[Cause, float]
    events: int

    def busiest(self, memory: float) -> tuple[str, float]:
        """Return the busiest part, memory included, and its busy fraction of the time. memory: memory's fraction."""
        shares = {name: cycles / self.cycles for name, cycles in self.busy_cycles.items()} | {"memory": memory}
        name = max(shares, key=lambda each: shares[each])
        return name, shares[name]

    def at_once(self, resident: int, turns: int) -> int:
        """Return the number of CTAs that work on an SM at the same time; without tensor memory, all that it holds."""
        return self.working or min(resident, turns)

    def extended(self, shorter: SmTime, times: float) -> SmTime:
        """Extrapolate: add `times` times the difference between this run and a shorter one."""

        def longer(mine: float, other: float) -> float:
            return mine + (mine - other) * times

        busy = {name: longer(mine, shorter.busy_cycles[name]) for name, mine in self.busy_cycles.items()}
        waited = round(longer(self.waited, shorter.waited))
        moved, asked = longer(self.moved_bytes, shorter.moved_bytes), longer(self.asked_bytes, shorter.asked_bytes)
        stored = longer(self.stored_bytes, shorter.stored_bytes)
        cycles = longer(self.cycles, shorter.cycles)
        path = {cause: longer(mine, shorter.path.get(cause, 0.0)) for cause, mine in self.path.items()}
        return SmTime(cycles, busy, moved, asked, stored, waited, self.working, self.stood, path, self.events)


class Change(NamedTuple):
    """A supposed change. free: instructions on these lines cost nothing. slots: additional CTAs on an SM. passed_on:
    each CTA gives up the right to allocate tensor memory. columns: additional tensor memory of an SM.

    stages: additional stages of each ring of loads. first: the first load of each stage is there at once. place: the SM
    has the work of this one. until_read: waits for stores end when their source is read. apart: no bank conflicts.
    side_by_side: coalesced loads and stores. whole: rows that TMA loads begin with an L2 line.
    """

    free: frozenset[tuple[Location | None, str]] = frozenset()
    slots: int = 0
    passed_on: bool = False
    columns: int = 0
    stages: int = 0
    first: bool = False
    place: int | None = None
    until_read: bool = False
    apart: bool = False
    side_by_side: bool = False
    whole: bool = False


AS_IT_IS = Change()


def timed_main(lowered: Lowered, conditions: Conditions, change: Change = AS_IT_IS) -> Main:
    """Return the program, wrapped so that it reports each instruction to the engine."""
    calls, mine = lowered.calls, lowered.main.__globals__
    works = {name: work_of(*called, conditions.figures) for name, called in calls.items()}
    works |= _spilling(lowered, works)
    free = {name for name, (_, inst) in calls.items() if (inst.location, inst.name) in change.free}
    works |= {name: freed(works[name]) for name in free}
    if change.apart:
        works |= {name: work.apart() for name, work in works.items() if isinstance(work, UseBanks)}
    if change.whole:
        works |= {name: work.whole() for name, work in works.items() if isinstance(work, Load)}
    reads = None if change.side_by_side else given(lowered)
    return lowered.main_of({name: timed(mine[name], work, calls[name][0], reads) for name, work in works.items()})


def _spilling(lowered: Lowered, works: Mapping[str, Work]) -> dict[str, Work]:
    """Return the works of MMAs whose accumulators do not fit into registers."""
    found = {name: work for name, work in works.items() if isinstance(work, (WarpgroupMultiply, MultiplySync))}
    sums = {name: spilled_sums(lowered.program, lowered.calls[name][0]) for name in found}
    return {name: work.spilling(sums[name]) for name, work in found.items() if sums[name]}


class Takes(Grants):
    """Grants each request the next cluster that has not started."""

    def __init__(self, coming: list[list[Position]]) -> None:
        self.coming, self.granted = coming, list[Position]()
        super().__init__(self.granted)

    def response(self, number: int) -> Response:
        if number == len(self.granted) and self.coming:
            self.granted.append(self.coming.pop()[0])
        return super().response(number)


class OneSm:
    """Simulation of one SM. clusters: its clusters, in launch order. slots: number that fits at the same time."""

    def __init__(
        self,
        simulation: Simulation,
        conditions: Conditions,
        clusters: list[list[Position]],
        slots: int,
        columns: int,
        change: Change = AS_IT_IS,
    ) -> None:
        lowered = simulation.lowered
        size = math.prod(lowered.cluster)
        self.simulation, self.conditions, self.main = simulation, conditions, timed_main(lowered, conditions, change)
        self.sms = [Sm(conditions, columns + change.columns, change.passed_on) for _ in range(size)]
        of_engine = self.sms, simulation.listeners, self._left
        self.engine = TimedEngine(*of_engine)
        if change.stages or change.first:
            self.engine = DeeperRings(*of_engine, extra=change.stages, first=change.first)
        self.engine.until_read = change.until_read
        self.coming = clusters[::-1]
        self.ended, self.last_step = 0.0, PathStep(LAUNCH, 0.0, None)
        side_by_side = min(slots + change.slots, len(clusters))
        if any(type(inst).__name__ in ("DotInst", "DotScaledInst") for inst, _ in lowered.calls.values()):
            for sm in self.sms:
                sm.shared.ctas = side_by_side
        for _ in range(side_by_side):
            self._launch(conditions.cycles(conditions.figures.ramp_ns))

    def _launch(self, time: float) -> None:
        """Launch the next cluster. A cluster that cancels others takes over the SM's next clusters until none is
        left."""
        positions = self.coming.pop()
        grants = Takes(self.coming) if self.simulation.lowered.cancels else Grants()
        engine: Engine = self.engine
        (cluster,) = self.simulation.clusters(positions, engine, grants)
        self.engine.begin(cluster, self.main, time + self.conditions.figures.start_cycles)

    def _left(self, cluster: Cluster) -> None:
        engine, conditions = self.engine, self.conditions
        self.ended, self.last_step = engine.now, engine.step or self.last_step
        for cta in list(cluster.ctas):
            engine.abandon(cta)
            cta.close()
        if self.coming:
            self._launch(engine.now + conditions.cycles(conditions.figures.launch_ns))

    def run(self) -> SmTime:
        self.engine.go_on(MOST_OF_ONE_SM)
        self._require_end()
        first = self.sms[0]
        end = max(self.ended, *(sm.over for sm in self.sms))
        busy = {"tensor core": first.tensor.busy, "TMA loads": first.tma.busy, "cp.async": first.fill.busy}
        busy |= {"L2": first.incoming.busy, "TMA stores": first.drain.busy, "loads and stores": first.lines.busy}
        busy |= {"shared memory": first.shared.busy} if first.shared.busy else {}
        busy |= {"special functions": first.special.busy} if first.special.busy else {}
        busy |= {"shuffles": first.shuffles.busy} if first.shuffles.busy else {}
        self.engine.close()
        path = along(self.last_step if end <= self.ended else PathStep(DRAIN, end, self.last_step))
        stood = {stand: cycles / self.engine.lived for stand, cycles in self.engine.stood.items()}
        moved, lock = (first.incoming.moved, first.asked_bytes, first.stored_bytes), first.lock
        return SmTime(end, busy, *moved, lock.waited, lock.most, stood, path, self.engine.events)

    def _require_end(self) -> None:
        """Raise SimulationError for a kernel that waits for ever or stops, UnsupportedError for one that one SM cannot
        time."""
        lowered, grid = self.simulation.lowered, self.simulation.grid
        program, findings = lowered.program, list(grid.findings)
        several = lowered.interacts and math.prod(grid.dimensions) > 1
        if self.engine.events >= MOST_OF_ONE_SM:
            raise UnsupportedError(
                f"{program.name} has no predicted time: one SM's share of this launch is more than {MOST_OF_ONE_SM:,} "
                "events; choose a smaller size, above all a smaller k."
            )
        if several and findings and findings[0].code == "livelock":
            raise across_sms(lowered, findings[0].location)
        if findings:
            text = str(findings[0]).removeprefix(f"{findings[0].severity.value} ")
            raise SimulationError(f"{program.name} has no time: {text}; check says more.")
        waits = [agent.wait for agent in self.engine.agents.values()]
        if several and any(wait is not None and wait.semaphore is not None for wait in waits):
            raise across_sms(lowered)
        if self.engine.agents:
            warp = next(iter(self.engine.agents))
            raise SimulationError(f"{program.name} has no time: {warp} waits for ever; check says for what.")
