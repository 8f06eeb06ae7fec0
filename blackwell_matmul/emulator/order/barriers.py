"""Clocks that barriers pass from arrivals to waits: mbarriers by phases, barriers of threads by rounds."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from blackwell_matmul.emulator.order.clocks import VectorClock, added, either
from blackwell_matmul.emulator.order.judging import MemoryAccess


@dataclass(slots=True)
class MbarrierOrder:
    """An mbarrier. agent: of the operations whose bytes it counts, at clock `base` + phase + 1. init: agent and clock
    of mbarrier.init. fenced: True after fence.mbarrier_init. phases: clock that each phase's arrivals release. far:
    clock that threads of other CTAs release, for waits of cluster scope. uses: last use by each agent, as clock and
    instruction. seen: for each phase, clock and instruction of the warps that waited for it. judged: number of phases
    whose waits were compared with the end of the next phase. spoiled: last data write to its bytes."""

    barrier: Any
    cta: Any
    offset: int
    agent: int
    base: int
    init: tuple[int, int]
    init_site: int
    fenced: bool = False
    phases: dict[int, VectorClock] = field(default_factory=dict)
    far: dict[int, VectorClock] = field(default_factory=dict)
    seen: dict[int, dict[int, tuple[int, int]]] = field(default_factory=dict)
    judged: int = 0
    spoiled: MemoryAccess | None = None
    uses: dict[int, tuple[int, int]] = field(default_factory=dict)

    @property
    def place(self) -> str:
        return f"the mbarrier at {self.offset:,} of shared memory"

    def add(self, phase: int, known: VectorClock, strong: bool = True, is_far: bool = False) -> None:
        """Add the clock that an arrival releases. strong: False for a relaxed arrival, or for a scope that is too
        narrow. is_far: True for an arrival by another CTA."""
        if phase not in self.phases:
            for table in (self.phases, self.far):
                table.pop(phase - 3, None)
        self.phases[phase] = added(self.phases.get(phase), known, strong and not is_far)
        if is_far and strong:
            self.far[phase] = added(self.far.get(phase), known, strong)

    def told(self, phase: int, scope: str) -> VectorClock | None:
        """Return the clock that a wait of this scope acquires from a phase."""
        return self.phases.get(phase) if scope == "cta" else either(self.phases.get(phase), self.far.get(phase))


@dataclass(slots=True)
class Round:
    """A round of a barrier of threads. known: clock that its arrivals released. waiters: waiting warps and lanes."""

    cluster: Any
    barrier: Any
    known: VectorClock | None = None
    waiters: list[tuple[Any, int]] = field(default_factory=list)
    over: bool = False

    def add(self, known: VectorClock, strong: bool = True) -> None:
        self.known = added(self.known, known, strong)


@dataclass(slots=True)
class Flag:
    """A memory location by which strong accesses synchronise. known: clock released for the CTA, the cluster and the
    GPU."""

    known: list[VectorClock | None]
    cta: Any
    cluster: Any
