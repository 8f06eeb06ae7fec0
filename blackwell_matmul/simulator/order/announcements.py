"""The counts of each mbarrier, for reports on deadlocks: what its phases were told, by whom, and who has waited."""

from __future__ import annotations

from collections import Counter, defaultdict

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.description import Instruction
from blackwell_matmul.simulator.listener import Listener
from blackwell_matmul.simulator.machine.barrier import Mbarrier
from blackwell_matmul.simulator.machine.cta import Warp
from blackwell_matmul.simulator.machine.operation import AsyncOperation
from blackwell_matmul.simulator.order.signallers import COMMIT


class Announcements(Listener):
    """The counts. bytes_by_line: of the present phase of each mbarrier, the bytes that it awaits, by the line that
    announced them. arrivals, all_arrivals: how often each warp has arrived, by itself or by a commit, in the present
    phase and in all. seen: by mbarrier and warp, the last phase that the warp waited for, -1 being the one before the
    first. again: the line of its last wait that passed on a phase that it had waited for before. late: it came to a
    wait when the phase that it waited for and the one after it were over."""

    def __init__(self) -> None:
        self.bytes_by_line: defaultdict[Mbarrier, Counter[Location | None]] = defaultdict(Counter)
        self.arrivals: defaultdict[Mbarrier, Counter[Warp]] = defaultdict(Counter)
        self.all_arrivals: defaultdict[Mbarrier, Counter[Warp]] = defaultdict(Counter)
        self.seen: dict[tuple[Mbarrier, Warp], int] = {}
        self.again: dict[tuple[Mbarrier, Warp], Location | None] = {}
        self.late: set[tuple[Mbarrier, Warp]] = set()

    def announced(self, barrier: Mbarrier, count_bytes: int, location: Location | None) -> None:
        self.bytes_by_line[barrier][location] += count_bytes

    def arrived(self, barrier: Mbarrier, warp: Warp, instruction: Instruction, scope: str, count_bytes: int) -> None:
        self.arrivals[barrier][warp] += 1
        self.all_arrivals[barrier][warp] += 1

    def completed(self, op: AsyncOperation, put_off: bool) -> None:
        if op.name == COMMIT and op.barrier is not None:
            self.arrivals[op.barrier][op.warp] += 1
            self.all_arrivals[op.barrier][op.warp] += 1

    def passed(self, barrier: Mbarrier, warp: Warp, instruction: Instruction, scope: str) -> None:
        key, phase = (barrier, warp), barrier.phase - 1
        if phase <= self.seen.get(key, -2):
            self.again[key] = instruction.location
        if phase > self.seen.get(key, -1) + 2:
            self.late.add(key)
        self.seen[key] = phase

    def phase_ended(self, barrier: Mbarrier, phase: int) -> None:
        self.bytes_by_line.pop(barrier, None)
        self.arrivals.pop(barrier, None)

    def balance(self, barrier: Mbarrier) -> str:
        """Return the bytes that the present phase was told to await, line by line, and those that came."""
        lines = self.bytes_by_line[barrier]
        announced = ", ".join(f"{count_bytes} bytes are announced at {line}" for line, count_bytes in lines.items())
        came = lines.total() - barrier.tx_bytes
        return f"{announced or 'no bytes are announced'}, and {came} have come"
