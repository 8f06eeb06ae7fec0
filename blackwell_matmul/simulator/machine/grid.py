"""One launch: memory, arguments and extents that its CTAs share, with its findings and prints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from blackwell_matmul.simulator.findings import Findings
from blackwell_matmul.simulator.machine.global_memory import GlobalMemory

Position = tuple[int, int, int]
"""A block index."""


@dataclass(eq=False)
class Grid:
    """A launch. arguments: by parameter, an address or a number. cluster: its extents, in CTAs. follow_unwritten:
    registers that nothing has written are followed until something depends on them (unwritten.py)."""

    memory: GlobalMemory
    arguments: Mapping[str, Any]
    dimensions: tuple[int, int, int]
    cluster: tuple[int, int, int]
    num_warps: int
    follow_unwritten: bool = True
    findings: Findings = field(default_factory=Findings)
    printed: list[str] = field(default_factory=list)

    def number_of(self, position: Position) -> int:
        """Return the number of the CTA at this block index, x fastest."""
        x, y, z = position
        return x + self.dimensions[0] * (y + self.dimensions[1] * z)
