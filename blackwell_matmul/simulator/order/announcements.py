"""The counts of each mbarrier, for reports on deadlocks: what its phases were told, by whom, and who has waited."""

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
    """The counts. arrivals, all_arrivals: how often each warp has arrived, by itself or by a commit, in the present
    phase and in all. told: by mbarrier and warp, the same in all, where a commit counts from its issue; passes: how
    often the warp has waited; seen: the last phase that it waited for, -1 being the one before the first. again: the
    line of its last wait that passed on a phase that it had waited for before. late: it came to a wait when the phase
    that it waited for and the one after it were over. releases: by address, the last release of each semaphore."""

    def __init__(self) -> None:
        self.arrivals: defaultdict[Mbarrier, Counter[Warp]] = defaultdict(Counter)
        self.all_arrivals: defaultdict[Mbarrier, Counter[Warp]] = defaultdict(Counter)
        self.seen: dict[tuple[Mbarrier, Warp], int] = {}
        self.again: dict[tuple[Mbarrier, Warp], Location | None] = {}
        self.told: Counter[tuple[Mbarrier, Warp]] = Counter()
        self.passes: Counter[tuple[Mbarrier, Warp]] = Counter()
        self.late: set[tuple[Mbarrier, Warp]] = set()
        self.releases: dict[int, tuple[Warp, Instruction]] = {}

    def released(self, warp: Warp, instruction: Instruction, address: int) -> None:
        self.releases[address] = warp, instruction

    def arrived(self, barrier: Mbarrier, warp: Warp, instruction: Instruction, scope: str, count_bytes: int) -> None:
        self.arrivals[barrier][warp] += 1
        self.all_arrivals[barrier][warp] += 1
        self.told[barrier, warp] += 1

    def issued(self, op: AsyncOperation, warp: Warp, instruction: Instruction, regions: Mapping[str, Region]) -> None:
        if op.name == COMMIT and op.barrier is not None:
            self.told[op.barrier, warp] += 1

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
