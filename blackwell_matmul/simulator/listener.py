"""Events of a run, and the listeners that receive them.

A listener is a subclass of `Listener` that overrides the methods of the events it needs. The engine calls them during
the run, in the order of the events; nothing else in the machine imports listeners. The checks of the order (`order/`),
the events of a trace (`trace/`) and the log of a replayed CTA (`replay/`) are listeners. Write your own like this:

    class Bytes(Listener):
        \"\"\"How many bytes copies brought to each mbarrier.\"\"\"

        def __init__(self):
            self.total = collections.Counter()

        def delivered(self, barrier, count_bytes):
            self.total[barrier.name] += count_bytes

    listener = Bytes()
    simulate(kernel, *args, listeners=[listener])

An object of the machine is the same one in all calls: use it as a key of your own dict.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.description import Effect, Instruction
from blackwell_matmul.simulator.findings import Finding, nobody
from blackwell_matmul.simulator.machine.barrier import Mbarrier
from blackwell_matmul.simulator.machine.cta import Cta, Warp
from blackwell_matmul.simulator.machine.deferred import Held, Parted, Product, Sum, Term
from blackwell_matmul.simulator.machine.memory import Region
from blackwell_matmul.simulator.machine.operation import AsyncOperation


class Listener:
    """A listener that ignores every event. `warp` acts, and executes `instruction`."""

    # CTAs and warps

    def started(self, cta: Cta) -> None:
        """Called when a CTA starts; later CTAs of its cluster do not exist yet."""

    def returned(self, warp: Warp) -> None:
        """Called when a warp has returned."""

    def finished(self) -> None:
        """Called when every warp of the clusters that run together has returned, or waits for ever."""

    def exits(self, cta: Cta) -> None:
        """Called when all warps of a CTA have returned. Operations without a wait are still in flight."""

    def exited(self, cta: Cta) -> None:
        """Called when these operations are over, too."""

    def closed(self) -> None:
        """Called when the run of these clusters is over. Release their objects here."""

    # memory and registers

    def accessed(self, warp: Warp, instruction: Instruction, effect: Effect, region: Region) -> None:
        """Called for an access that completes with its instruction."""

    def used(self, warp: Warp, instruction: Instruction, registers: np.ndarray, name: str, write: bool) -> None:
        """Called when an instruction uses registers that an asynchronous operation of the warp may be using."""

    def allocated(self, region: Region) -> None:
        """Called when columns of tensor memory get an owner; their contents are unknown."""

    def freed(self, region: Region) -> None:
        """Called when columns of tensor memory lose their owner."""

    # asynchronous operations

    def issued(self, op: AsyncOperation, warp: Warp, instruction: Instruction, regions: Mapping[str, Region]) -> None:
        """Called when an operation starts. regions: its accesses, by operand; empty for a commit."""

    def joined(self, op: AsyncOperation, warp: Warp, instruction: Instruction, regions: Mapping[str, Region]) -> None:
        """Called when another warp joins an operation of its warpgroup."""

    def source_read(self, op: AsyncOperation) -> None:
        """Called when a bulk store has read its source."""

    def completed(self, op: AsyncOperation, put_off: bool) -> None:
        """Called when an operation has read and written, before its signal. put_off: it was deferred (deferred.py)."""

    def committed(self, warp: Warp, instruction: Instruction, family: str) -> None:
        """Called when a warp's operations of a family become a group."""

    def left_in_flight(
        self, warp: Warp, instruction: Instruction, groups: Sequence[Sequence[AsyncOperation]], n: int, reads: bool
    ) -> None:
        """Called for a wait for all of these groups but the newest n; reads: for their reads alone."""

    def passed_over(self, warp: Warp, instruction: Instruction, ops: Sequence[AsyncOperation]) -> None:
        """Called for a commit or a wait of lanes that issued none of these operations."""

    def waited(self, op: AsyncOperation, warp: Warp, instruction: Instruction, reads: bool) -> None:
        """Called when a warp has waited for its own operation. reads: it waited only for the operation's reads."""

    def settled(self, op: AsyncOperation) -> None:
        """Called when nothing of an operation is in flight any more."""

    # mbarriers

    def arrived(self, barrier: Mbarrier, warp: Warp, instruction: Instruction, scope: str, count_bytes: int) -> None:
        """Called before lanes arrive. scope: of the release, "" if it is relaxed. count_bytes: announced with it."""

    def announced(self, barrier: Mbarrier, count_bytes: int, location: Location | None) -> None:
        """Called for an expect-tx on this line."""

    def delivered(self, barrier: Mbarrier, count_bytes: int) -> None:
        """Called for a complete-tx."""

    def phase_ended(self, barrier: Mbarrier, phase: int) -> None:
        """Called when the barrier enters its next phase."""

    def counted(self, barrier: Mbarrier) -> None:
        """Called when the barrier's pending arrivals, tx-count or phase have changed."""

    def comes(self, barrier: Mbarrier, warp: Warp, instruction: Instruction, parity: int) -> None:
        """Called when a warp reaches a wait for the phase of this parity, which may be over already."""

    def passed(self, barrier: Mbarrier, warp: Warp, instruction: Instruction, scope: str) -> None:
        """Called when a wait saw that a phase is over. scope: of the acquire, "" if it is relaxed."""

    # threads

    def waits(self, warp: Warp, instruction: Instruction, what: str) -> None:
        """Called when a warp reaches a wait for others, or for its own groups, which may be complete already."""

    def met(self, warps: Sequence[Warp], last: Warp, instruction: Instruction | None) -> None:
        """Called when all lanes of these warps are at a barrier of threads, or have returned. last: the warp that
        completed the barrier. instruction: the barrier instruction, None for a return."""

    def pairs(self, warp: Warp, instruction: Instruction, cta: Cta, frees: bool) -> None:
        """Called when a warp allocates tensor memory of a CTA pair, or frees it. cta: the other CTA, which must have
        started, or have allocated."""

    def fenced(self, warp: Warp, instruction: Instruction, space: str) -> None:
        """Called for fence.proxy.async for "shared", "global" or, "", both; "registers": wgmma.fence."""

    def comes_to_semaphore(self, warp: Warp, instruction: Instruction, address: int, held: int) -> None:
        """Called before a warp waits for a semaphore in global memory, which holds `held`, or stores to it."""

    def released(self, warp: Warp, instruction: Instruction, address: int, value: int) -> None:
        """Called when one thread stores the value to a semaphore in global memory, with a release."""

    def acquired(self, warp: Warp, instruction: Instruction, address: int, value: int) -> None:
        """Called when a warp's wait for a semaphore ends, because the semaphore holds the awaited value."""

    # cycles of a run with a clock (timing/)

    def took(self, warp: Warp, instruction: Instruction, start: float, end: float) -> None:
        """Called for an instruction that occupies its warp from cycle `start` to cycle `end`."""

    def stood(self, warp: Warp, location: Location | None, what: str, start: float, end: float) -> None:
        """Called when a warp has waited. what: the mbarrier, threads or operation. start, end: in cycles."""

    def served(self, part: str, sm: int, what: AsyncOperation | Instruction, start: float, end: float) -> None:
        """Called when a part of an SM has served this alone; sm: its number in the cluster."""

    # other events

    def found(self, finding: Finding) -> None:
        """Called for each finding, including those of earlier listeners in the list."""

    def performed(self, work: Held | Parted | Product | Term | Sum) -> None:
        """Called when deferred work is done, or joins other work (deferred.py)."""


EVENTS = tuple(name for name, value in vars(Listener).items() if callable(value))


class Broadcast(Listener):
    """Calls several listeners, each for the events that it overrides."""

    def __init__(self, listeners: Iterable[Listener]) -> None:
        every = tuple(listeners)
        for name in EVENTS:
            wanted = [getattr(each, name) for each in every if getattr(type(each), name) is not getattr(Listener, name)]
            setattr(self, name, wanted[0] if len(wanted) == 1 else _all(tuple(wanted)) if wanted else nobody)


def _all(wanted: tuple[Callable[..., None], ...]) -> Callable[..., None]:
    def tell(*what: Any) -> None:
        for each in wanted:
            each(*what)

    return tell
