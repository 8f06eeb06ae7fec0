"""What happens in a run, for who wants to hear it.

A listener is a subclass of `Listener` that overrides what it wants to hear. The engine calls it as the run goes on, in
the order in which things happen; nothing else in the machine knows of it. The checks of the order (`order/`), the
events of a trace (`trace/`) and the log of a CTA that is repeated (`replay/`) are listeners; so may be yours:

    class Bytes(Listener):
        \"\"\"How many bytes copies brought to each mbarrier.\"\"\"

        def __init__(self):
            self.total = collections.Counter()

        def delivered(self, barrier, count_bytes):
            self.total[barrier.name] += count_bytes

    listener = Bytes()
    simulate(kernel, *args, listeners=[listener])

An object of the machine is the same one in all calls: keep what you know of it in a dict of your own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.description import Effect, Instruction
from blackwell_matmul.simulator.findings import Finding
from blackwell_matmul.simulator.machine.barrier import Mbarrier
from blackwell_matmul.simulator.machine.cta import Cta, Warp
from blackwell_matmul.simulator.machine.deferred import Held, Parted, Product, Sum, Term
from blackwell_matmul.simulator.machine.memory import Region
from blackwell_matmul.simulator.machine.operation import AsyncOperation


class Listener:
    """Hears nothing. `warp` is who does it, `instruction` what it executes."""

    # CTAs and warps

    def started(self, cta: Cta) -> None:
        """A CTA starts; those of its cluster that come after it do not exist yet."""

    def returned(self, warp: Warp) -> None:
        """A warp has come to the end of the program."""

    def finished(self) -> None:
        """Every warp of the clusters that run together has returned, or waits for ever."""

    def exits(self, cta: Cta) -> None:
        """All warps of a CTA have returned. Operations that nobody waited for are still in flight."""

    def exited(self, cta: Cta) -> None:
        """They are over, too."""

    def closed(self) -> None:
        """The run of these clusters is over: let go of what is theirs."""

    # memory and registers

    def accessed(self, warp: Warp, instruction: Instruction, effect: Effect, region: Region) -> None:
        """An access that is over when its instruction is."""

    def used(self, warp: Warp, instruction: Instruction, registers: np.ndarray, name: str, write: bool) -> None:
        """An instruction uses registers that an asynchronous operation of the warp may be using."""

    def allocated(self, region: Region) -> None:
        """Columns of tensor memory have an owner; what they hold is not known."""

    def freed(self, region: Region) -> None:
        """They have none any more."""

    # asynchronous operations

    def issued(self, op: AsyncOperation, warp: Warp, instruction: Instruction, regions: Mapping[str, Region]) -> None:
        """An operation starts. regions: what it touches, by operand; none for a commit."""

    def joined(self, op: AsyncOperation, warp: Warp, instruction: Instruction, regions: Mapping[str, Region]) -> None:
        """Another warp takes part in an operation of its warpgroup."""

    def source_read(self, op: AsyncOperation) -> None:
        """A bulk store has read its source."""

    def completed(self, op: AsyncOperation, put_off: bool) -> None:
        """An operation has read and written, and is about to tell its mbarrier. put_off: it moved nothing yet
        (deferred.py)."""

    def committed(self, warp: Warp, instruction: Instruction, family: str) -> None:
        """What a warp has issued of a family is a group from now on."""

    def left_in_flight(
        self, warp: Warp, instruction: Instruction, groups: Sequence[Sequence[AsyncOperation]], n: int, reads: bool
    ) -> None:
        """A wait for all of these groups but the newest n; reads: for their reads alone."""

    def passed_over(self, warp: Warp, instruction: Instruction, ops: Sequence[AsyncOperation]) -> None:
        """A commit or a wait of lanes that have issued none of these operations of their warp: no group of theirs."""

    def waited(self, op: AsyncOperation, warp: Warp, instruction: Instruction, reads: bool) -> None:
        """A warp has waited for an operation of its own; reads: for its reads alone."""

    def settled(self, op: AsyncOperation) -> None:
        """Nothing of an operation is in flight any more."""

    # mbarriers

    def arrived(self, barrier: Mbarrier, warp: Warp, instruction: Instruction, scope: str, count_bytes: int) -> None:
        """Lanes are about to arrive. scope: of the release, "" if it is relaxed. count_bytes: announced with it."""

    def announced(self, barrier: Mbarrier, count_bytes: int, location: Location | None) -> None:
        """expect-tx, on this line."""

    def delivered(self, barrier: Mbarrier, count_bytes: int) -> None:
        """complete-tx."""

    def phase_ended(self, barrier: Mbarrier, phase: int) -> None:
        """The barrier is in the next phase."""

    def counted(self, barrier: Mbarrier) -> None:
        """Its pending arrivals, its tx-count or its phase are others now."""

    def comes(self, barrier: Mbarrier, warp: Warp, instruction: Instruction, parity: int) -> None:
        """A warp comes to a wait for the phase of this parity, which may be over already."""

    def passed(self, barrier: Mbarrier, warp: Warp, instruction: Instruction, scope: str) -> None:
        """A wait saw that a phase is over. scope: of the acquire, "" if it is relaxed."""

    # threads

    def waits(self, warp: Warp, instruction: Instruction, what: str) -> None:
        """A warp comes to a wait for others, or for groups of its own, which may be over already."""

    def met(self, warps: Sequence[Warp], last: Warp, instruction: Instruction | None) -> None:
        """All lanes of these warps have come to a barrier of threads, or returned; last: who opened it, by what."""

    def pairs(self, warp: Warp, instruction: Instruction, cta: Cta) -> None:
        """A warp comes to what both CTAs of a pair do together; cta: the other one, which must have started."""

    def fenced(self, warp: Warp, instruction: Instruction, space: str) -> None:
        """fence.proxy.async for "shared", "global" or, "", both; "registers": wgmma.fence."""

    def comes_to_semaphore(self, warp: Warp, instruction: Instruction, address: int) -> None:
        """A warp is about to wait for a semaphore in global memory, or to store to it."""

    def released(self, warp: Warp, address: int) -> None:
        """One thread stores to a semaphore in global memory, with a release."""

    def acquired(self, warp: Warp, address: int) -> None:
        """A semaphore has the awaited value."""

    # cycles, where the run has a clock (timing/)

    def took(self, warp: Warp, instruction: Instruction, start: float, end: float) -> None:
        """An instruction keeps its warp from one cycle to another."""

    def stood(self, warp: Warp, location: Location | None, what: str, start: float, end: float) -> None:
        """A warp has waited; what: for which mbarrier, threads or operation."""

    def served(self, part: str, sm: int, what: AsyncOperation | Instruction, start: float, end: float) -> None:
        """A part of an SM works on this, alone; sm: its number in the cluster."""

    # besides

    def found(self, finding: Finding) -> None:
        """A finding, also of the listeners before this one."""

    def performed(self, work: Held | Parted | Product | Term | Sum) -> None:
        """Work that was put off is done, or joins what is (deferred.py)."""


EVENTS = tuple(name for name, value in vars(Listener).items() if callable(value))


class Broadcast(Listener):
    """Tells several listeners, each what it wants to hear."""

    def __init__(self, listeners: Iterable[Listener]) -> None:
        every = tuple(listeners)
        for name in EVENTS:
            wanted = [getattr(each, name) for each in every if getattr(type(each), name) is not getattr(Listener, name)]
            setattr(self, name, wanted[0] if len(wanted) == 1 else _all(tuple(wanted)) if wanted else _nobody)


def _nobody(*_: Any) -> None:
    pass


def _all(wanted: tuple[Callable[..., None], ...]) -> Callable[..., None]:
    def tell(*what: Any) -> None:
        for each in wanted:
            each(*what)

    return tell
