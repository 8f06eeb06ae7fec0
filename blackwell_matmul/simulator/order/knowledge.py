"""What the checks of the order know of operations and mbarriers: state of `HappensBefore`, and of nobody else."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.description import Instruction
from blackwell_matmul.simulator.machine.barrier import Mbarrier
from blackwell_matmul.simulator.machine.cta import Cta, Warp
from blackwell_matmul.simulator.machine.operation import AsyncOperation
from blackwell_matmul.simulator.order.frontier import Frontier, Lanes, union


class Operation:
    """An asynchronous operation's place in the order of things.

    lanes: who issued it, at `turn`. event: its end. source: the end of its reads, where that is told apart (bulk
    stores). after: what it was ordered after where it reads and writes; whoever learns of its end learns of that too.
    steps: what its issuer knew of waits and other CTAs. covers: what is complete when it is (a commit's mma and cp).
    tells, phase: the barrier that its end will be known by, and the phase of it; during: the phase at issue.
    passed: the last wait that passed and left it in flight, or commit that left it out.
    """

    __slots__ = (
        "after", "covers", "during", "event", "instruction", "lanes", "op", "passed", "phase", "source", "steps",
        "tells", "turn",
    )  # fmt: skip

    def __init__(
        self, op: AsyncOperation, instruction: Instruction, lanes: Lanes, turn: int, covers: tuple[Operation, ...]
    ) -> None:
        self.op, self.instruction, self.lanes, self.turn, self.covers = op, instruction, lanes, turn, covers
        self.event = self.source = self.after = 0
        self.steps = lanes.steps
        self.tells = op.barrier
        self.phase: int | None = None
        self.during = 0 if op.barrier is None else op.barrier.phase
        self.passed: TooNew | NotTheirs | None = None
        for each in covers:
            if each.tells is None:
                each.tells, each.during = op.barrier, self.during

    @property
    def remedy(self) -> str:
        """The wait that ends it."""
        return self.op.remedy if self.tells is None else self.tells.remedy


class TooNew(NamedTuple):
    """A wait for groups that has passed and left one in flight: the wait's name, line and n, how many groups there
    were, and which one this is, counted from the newest. reads: it waits for reads alone, and for those of this one."""

    wait: str
    location: Location | None
    n: int
    groups: int
    newest: int
    reads: bool = False

    edge = "wait"

    @property
    def advice(self) -> str:
        if self.reads:
            return f"{self.wait}({self.n}, read=True) at {self.location} waits for its reads alone: without read"
        needed = "newest" if self.newest == 1 else f"{_ordinal(self.newest)} newest"
        left = f"the newest {self.n} of {self.groups} groups in flight, and the one needed is the {needed}"
        if self.n >= self.groups:
            left = "its only group in flight" if self.groups == 1 else f"all {self.groups} groups in flight"
        enough = f"wait_group({self.newest - 1}) does not"
        return f"{self.wait}({self.n}) at {self.location} leaves {left}: {enough}"


class NotTheirs(NamedTuple):
    """A wait or a commit, by `who`, that does nothing for an operation which is the `owner`'s."""

    name: str
    location: Location | None
    who: str
    owner: str

    @property
    def edge(self) -> str:
        return "commit" if "commit" in self.name else "wait"

    @property
    def advice(self) -> str:
        missing = f"the missing {self.edge}: {self.name} by {self.owner}, which issued it"
        return f"{missing}; that at {self.location} is by {self.who}, and groups are a thread's own"


def _ordinal(number: int) -> str:
    return f"{number}{({2: 'nd', 3: 'rd'}).get(number, 'th')}"


def left_by(
    instruction: Instruction, groups: Sequence[Sequence[AsyncOperation]], n: int, reads: bool
) -> Iterator[tuple[AsyncOperation, TooNew]]:
    """The operations that a wait is about to leave in flight, with the newest n of these groups; reads: of the others
    it waits for their reads alone."""
    name, location = instruction.spoken, instruction.location
    flying = groups
    if "group.read" in instruction.description.awaited:
        flying = [group for group in groups if not group or not all(op.source_free for op in group)]
    for newest, group in enumerate(itertools.islice(reversed(flying), n), 1):
        yield from ((op, TooNew(name, location, n, len(flying), newest)) for op in group)
    for group in itertools.islice(reversed(flying), n, None) if reads else ():
        yield from ((op, TooNew(name, location, n, 0, 0, reads=True)) for op in group)


class Weak(NamedTuple):
    """An arrival or a wait that orders less than it could. scope: of its order, "" if it is relaxed. left: the events
    that a wait leaves out."""

    location: Location | None
    scope: str
    left: int = 0


@dataclass(frozen=True)
class LastWait:
    """A wait that passed: where, on which phase (-1: before the first), and when; event: that it has."""

    location: Location | None
    phase: int
    turn: int
    event: int


class Carried:
    """What an mbarrier carries from who arrives to who waits.

    coming, past: what this phase's arrivals and the phases before made known; coming_afar, past_afar: those of other
    CTAs, to who acquires from the cluster. waits: each warp's last wait on it; relaxed: its last one that was too weak.
    alone: where a part of a warp last arrived without the rest. loose: what arrivals that were too weak would have made
    known. last: the line of the last arrival; loosened: the last one that was too weak. brought: the operations that
    told this phase; ended: the event of the end of the last phase that operations told, and those operations'.
    """

    __slots__ = (
        "alone", "barrier", "brought", "coming", "coming_afar", "ended", "last", "loose", "loosened", "past",
        "past_afar", "relaxed", "waits",
    )  # fmt: skip

    def __init__(self, barrier: Mbarrier) -> None:
        self.barrier = barrier
        self.coming, self.past, self.loose = Frontier(), Frontier(), Frontier()
        self.coming_afar, self.past_afar = Frontier(), Frontier()
        self.last: Location | None = None
        self.loosened: Weak | None = None
        self.waits: dict[int, LastWait] = {}
        self.relaxed: dict[int, Weak] = {}
        self.alone: dict[tuple[Cta, Warp], Location | None] = {}
        self.brought = 0
        self.ended = (0, 0)

    @property
    def frontiers(self) -> tuple[Frontier, ...]:
        return self.coming, self.past, self.coming_afar, self.past_afar, self.loose

    @property
    def known(self) -> int:
        """Events that it makes known, or will."""
        return union(self.frontiers[:4]).generic | self.past_afar.tensor | self.coming_afar.tensor

    def tell(self, operation: Operation) -> None:
        """An operation completed. The phase carries its own accesses, and what they were ordered after, and nothing
        else of its issuer's (PTX ISA, "mbarrier / complete-tx"; "tcgen05.commit": of the operations it tracks).

        That is a release for the cluster (PTX ISA, cp.async.bulk.tensor). By the letter a wait in another CTA than that
        of the data has to acquire from the cluster, too; one for the CTA counts as enough, because it is how kernels
        for pairs wait (CUTLASS), and no cache lies between the async proxy's shared memory and the tensor core."""
        self.last = operation.op.location
        self.coming.steps |= operation.steps
        self.brought |= operation.event
        for each in (*operation.covers, operation):
            each.phase = self.barrier.phase if each.phase is None else each.phase
            self.coming.learn(each.event | each.source | each.after)

    def end_phase(self, event: int) -> None:
        """event: what its end is known by."""
        self.coming.steps |= event
        self.ended, self.brought = (event, self.brought), 0
        self.past.join(self.coming)
        self.coming.clear()
        if self.coming_afar.generic or self.coming_afar.tensor:
            self.past_afar.join(self.coming_afar)
            self.coming_afar.clear()

    def forget(self, kept: int) -> None:
        for frontier in self.frontiers:
            frontier.forget(kept)
        self.brought &= kept
        self.ended = (self.ended[0] & kept, self.ended[1] & kept)
        self.relaxed = {warp: weak._replace(left=weak.left & kept) for warp, weak in self.relaxed.items()}
