"""What barriers carry from those that arrive to those that wait: mbarriers by phases, barriers of threads by rounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from blackwell_matmul.emulator.order.clocks import Known, added


@dataclass(slots=True)
class MbarrierOrder:
    """An mbarrier. agent: of the operations whose bytes it counts, at clock `base` + phase + 1.

    init: agent and clock of mbarrier.init. fenced: true behind fence.mbarrier_init. phases: what the arrivals of a
    phase release. uses: last clock of each agent that used it, with the instruction.
    """

    barrier: Any
    cta: Any
    offset: int
    agent: int
    base: int
    init: tuple[int, int]
    init_site: int
    fenced: bool = False
    phases: dict[int, Known] = field(default_factory=dict)
    uses: dict[int, tuple[int, int]] = field(default_factory=dict)

    def add(self, phase: int, known: Known, strong: bool = True) -> None:
        """Add what an arrival releases."""
        if phase not in self.phases:
            self.phases.pop(phase - 3, None)
        self.phases[phase] = added(self.phases.get(phase), known, strong)


@dataclass(slots=True)
class Round:
    """A round of a barrier of threads. known: what arrivals released. waiters: warps and lanes that wait."""

    cluster: Any
    barrier: Any
    known: Known | None = None
    waiters: list[tuple[Any, int]] = field(default_factory=list)
    over: bool = False

    def add(self, known: Known, strong: bool = True) -> None:
        self.known = added(self.known, known, strong)


@dataclass(slots=True)
class Flag:
    """A location that strong accesses synchronise by. known: released for the CTA, the cluster, the GPU."""

    known: list[Known | None]
    cta: Any
    cluster: Any
