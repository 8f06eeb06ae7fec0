"""Two unordered accesses: the input of all candidates, with shared queries."""

from __future__ import annotations

import functools
from collections import Counter, deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Protocol

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.description import Access, Effect, Instruction, When
from blackwell_matmul.simulator.findings import Code, Severity
from blackwell_matmul.simulator.machine.barrier import Mbarrier, barriers_of
from blackwell_matmul.simulator.machine.cta import Warp
from blackwell_matmul.simulator.machine.memory import Region
from blackwell_matmul.simulator.machine.operation import AsyncOperation
from blackwell_matmul.simulator.order.culprits import KEPT
from blackwell_matmul.simulator.order.frontier import Lanes
from blackwell_matmul.simulator.order.knowledge import (
    Carried,
    EndSignal,
    LastWait,
    Operation,
    SemaphoreRelease,
    SemaphoreWait,
)
from blackwell_matmul.simulator.order.lines import ProgramLines, ring_of
from blackwell_matmul.simulator.order.missing.handoff_chains import Handoffs
from blackwell_matmul.simulator.order.shadow import PastAccess
from blackwell_matmul.simulator.order.warpgroups import Warpgroups

PHASE: Final = "wrong-phase"
PARITY = "the parity that it waits for is wrong"


class OrderState(Protocol):
    """The interface of `HappensBefore` that the candidates read."""

    lanes: dict[Warp, dict[Any, Lanes]]
    carried: dict[Mbarrier, Carried]
    operations: dict[AsyncOperation, Operation]
    releases: dict[int, deque[SemaphoreRelease]]
    locks: deque[SemaphoreWait]
    rounds: Counter[tuple[Warp, Instruction]]
    waited_at: dict[Warp, Instruction]
    warpgroups: Warpgroups
    threads: int

    def of(self, barrier: Mbarrier) -> Carried: ...


@dataclass(frozen=True)
class Missing:
    """The missing edge between the two accesses. edge, at_fault, lacks: as in `Finding`."""

    edge: str
    advice: str
    code: Code | None = None
    severity: Severity = Severity.ERROR
    at_fault: Location | None = None
    lacks: frozenset[tuple[str, str]] = frozenset()


@dataclass(frozen=True)
class Conflict:
    """An access (of `lanes`, by `instruction`) and an earlier one (`other`) without an order between them."""

    order: OrderState
    lines: ProgramLines
    warp: Warp
    instruction: Instruction
    lanes: Lanes
    effect: Effect
    region: Region
    other: PastAccess
    early: bool = False  # the "earlier" one came later, but was meant to come first

    @property
    def write(self) -> bool:
        return self.effect.access is Access.WRITE

    @property
    def operation(self) -> Operation | None:
        """Return the earlier access's asynchronous operation; None for an access of threads."""
        return self.other.who if isinstance(self.other.who, Operation) else None

    @property
    def culprit(self) -> Lanes:
        """Return the lanes that made the earlier access, or issued its operation."""
        who = self.other.who
        lanes: Lanes = who.lanes if isinstance(who, Operation) else who[1]
        return lanes

    @property
    def other_instruction(self) -> Instruction:
        return self.other.instruction

    @property
    def other_location(self) -> Location | None:
        return self.other_instruction.location

    @property
    def other_name(self) -> str:
        return self.other_instruction.name

    @functools.cached_property
    def handoffs(self) -> Handoffs:
        """Return the handoffs among the warps of the cluster."""
        return Handoffs(self.lines, self.warp.cta.cluster)

    def known_to(self, lanes: Lanes) -> bool:
        """Return True if these lanes have observed the earlier access: a barrier with them would order the two."""
        return bool(getattr(lanes, self.effect.path) & self.other.event)

    def barriers(self) -> Iterator[Carried]:
        yield from map(self.order.of, barriers_of(self.warp.cta))

    @property
    def end_signal(self) -> EndSignal | None:
        """Return the signal of the operation's end that the warp most likely has to wait for."""
        end_signals = [] if self.operation is None else self.operation.end_signals
        return min(end_signals, key=lambda each: self.lines.roles.rank(each.barrier, self.warp), default=None)

    def waits(self, of: Warp | None = None) -> list[tuple[Carried, LastWait]]:
        """Return the last wait on each mbarrier by the warp, or by `of`, newest first."""
        warp = of or self.warp
        carried = map(self.order.of, barriers_of(warp.cta))
        mine = [(each, each.waits[warp.index]) for each in carried if warp.index in each.waits]
        return sorted(mine, key=lambda each: each[1].turn, reverse=True)

    @property
    def here(self) -> str:
        """Return the line of the access, with "of the next round" if it follows the other one only through a loop."""
        location = self.instruction.location
        return f"{location}{' of the next round' if self.lines.by_loop(self.other_location, location) else ''}"


def waits_of(barrier: Mbarrier, warps: Iterable[Warp]) -> frozenset[tuple[str, str]]:
    """Return missing waits for the mbarrier, as in `Finding.lacks`."""
    return frozenset((ring_of(barrier), f"warp {warp.index}") for warp in warps)


def brings_bytes(copy: Instruction) -> bool:
    """Return True if the copy signals its bytes on an mbarrier."""
    return "complete_tx" in copy.description.signalling(When.COMPLETION)


def phase_name(phase: int) -> str:
    """Return the phase's name in findings. phase: -1 before the first."""
    return f"phase {phase}" if phase >= 0 else "the phase before the first"


def stands_before(first: Location | None, then: Location | None) -> bool:
    """Return True if the first line is above the other one, or if a line is unknown."""
    return first is None or then is None or first.line < then.line


def stale_phase(wait: LastWait, what: str) -> Missing:
    """Return the phase that the wait lacks. what: the start of the sentence."""
    kept = f" ({KEPT})" if wait.again else ""
    return Missing("phase", f"{what}: {PARITY}{kept}", PHASE, at_fault=wait.location)


def passed_before(barrier: Mbarrier, wait: LastWait) -> Missing:
    """Return the phase that the wait lacks: the wait passed on an older one."""
    again = ", which it had waited for before" if wait.again else ""
    return stale_phase(wait, f"the wait on {barrier.name} at {wait.location} passed on {phase_name(wait.phase)}{again}")
