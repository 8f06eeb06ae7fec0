"""Counts of arrivals and waits on each mbarrier, for reports on deadlocks."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.description import Instruction
from blackwell_matmul.simulator.listener import Listener
from blackwell_matmul.simulator.machine.barrier import Mbarrier
from blackwell_matmul.simulator.machine.cta import Warp
from blackwell_matmul.simulator.machine.memory import Region
from blackwell_matmul.simulator.machine.operation import AsyncOperation
from blackwell_matmul.simulator.order.signallers import COMMIT


class Announcements(Listener):
    """Counts by mbarrier and warp. arrivals, all_arrivals: completed arrivals of a warp, its commits included, in this
    phase and in all phases. issued_arrivals: the same in all phases, but a commit counts from its issue. passes:
    completed waits.

    seen: the last phase that the warp waited for; -1 is the phase before the first. again: the line of the last wait
    that passed on a phase for which the warp had waited before. late: the warp began its wait after the next phase had
    ended. releases: the last release of each semaphore, by address.
    """

    def __init__(self) -> None:
        self.arrivals: defaultdict[Mbarrier, Counter[Warp]] = defaultdict(Counter)
        self.all_arrivals: defaultdict[Mbarrier, Counter[Warp]] = defaultdict(Counter)
        self.seen: dict[tuple[Mbarrier, Warp], int] = {}
        self.again: dict[tuple[Mbarrier, Warp], Location | None] = {}
        self.issued_arrivals: Counter[tuple[Mbarrier, Warp]] = Counter()
        self.passes: Counter[tuple[Mbarrier, Warp]] = Counter()
        self.late: set[tuple[Mbarrier, Warp]] = set()
        self.releases: dict[int, tuple[Warp, Instruction]] = {}

    def released(self, warp: Warp, instruction: Instruction, address: int, value: int) -> None:
        self.releases[address] = warp, instruction

    def arrived(self, barrier: Mbarrier, warp: Warp, instruction: Instruction, scope: str, count_bytes: int) -> None:
        self.arrivals[barrier][warp] += 1
        self.all_arrivals[barrier][warp] += 1
        self.issued_arrivals[barrier, warp] += 1

    def issued(self, op: AsyncOperation, warp: Warp, instruction: Instruction, regions: Mapping[str, Region]) -> None:
        if op.name == COMMIT and op.barrier is not None:
            self.issued_arrivals[op.barrier, warp] += 1

    def completed(self, op: AsyncOperation, put_off: bool) -> None:
        if op.name == COMMIT and op.barrier is not None:
            self.arrivals[op.barrier][op.warp] += 1
            self.all_arrivals[op.barrier][op.warp] += 1

    def passed(self, barrier: Mbarrier, warp: Warp, instruction: Instruction, scope: str) -> None:
        key, phase = (barrier, warp), barrier.phase - 1
        self.passes[key] += 1
        if phase <= self.seen.get(key, -2):
            self.again[key] = instruction.location
        if phase > self.seen.get(key, -1) + 2:
            self.late.add(key)
        self.seen[key] = phase

    def phase_ended(self, barrier: Mbarrier, phase: int) -> None:
        self.arrivals.pop(barrier, None)
