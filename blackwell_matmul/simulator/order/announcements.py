"""What the present phase of each mbarrier has been told to wait for: a report on a deadlock has it line by line."""

from __future__ import annotations

from collections import Counter, defaultdict

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.listener import Listener
from blackwell_matmul.simulator.machine.barrier import Mbarrier


class Announcements(Listener):
    """bytes_by_line: of each mbarrier, those that its phase awaits, by the line that announced them."""

    def __init__(self) -> None:
        self.bytes_by_line: defaultdict[Mbarrier, Counter[Location | None]] = defaultdict(Counter)

    def announced(self, barrier: Mbarrier, count_bytes: int, location: Location | None) -> None:
        self.bytes_by_line[barrier][location] += count_bytes

    def phase_ended(self, barrier: Mbarrier, phase: int) -> None:
        self.bytes_by_line.pop(barrier, None)

    def balance(self, barrier: Mbarrier) -> str:
        """The bytes that its phase was told to await, line by line, and those that came."""
        lines = self.bytes_by_line[barrier]
        announced = ", ".join(f"{count_bytes} bytes are announced at {line}" for line, count_bytes in lines.items())
        came = lines.total() - barrier.tx_bytes
        return f"{announced or 'no bytes are announced'}, and {came} have come"
