"""The knowledge of operations and mbarriers that the checks of the order keep: state of `HappensBefore` alone."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.description import Instruction
from blackwell_matmul.simulator.machine.barrier import Mbarrier
from blackwell_matmul.simulator.machine.cta import Cta, Warp
from blackwell_matmul.simulator.machine.operation import AsyncOperation
from blackwell_matmul.simulator.order.frontier import Frontier, Lanes, union


class Telling:
    """A promise that an mbarrier will be told of the end of operations: by a copy itself, or by a commit, which was
    issued at `turn` by these lanes and tracks so many operations. during: the phase of the barrier then; phase: the one
    that was told."""

    __slots__ = ("barrier", "during", "lanes", "location", "phase", "tracked", "turn")

    def __init__(self, op: AsyncOperation, lanes: Lanes, turn: int, tracked: int) -> None:
        assert op.barrier is not None
        self.barrier, self.during, self.location = op.barrier, op.barrier.phase, op.location
        self.lanes, self.turn, self.tracked = lanes, turn, tracked
        self.phase: int | None = None


class Operation:
    """An asynchronous operation's place in the order of things.

    lanes: who issued it, at `turn`; waited: the turn at which its own warp had waited for it, at the line `wait`.
    event: its end. source: the end of its reads, where that is told apart (bulk stores). after: what it was ordered
    after where it reads and writes; whoever learns of its end learns of that too. steps: what its issuer knew of waits
    and other CTAs. covers: what is complete when it is (a commit's mma and cp). tellings: how its end will be known;
    several commits may track one mma. passed: the last wait that passed and left it in flight, or commit that left it
    out. round: how often its warp had executed its instruction before.
    """

    __slots__ = (
        "after", "covers", "event", "instruction", "lanes", "op", "passed", "round", "source", "steps", "tellings",
        "turn", "wait", "waited",
    )  # fmt: skip

    def __init__(
        self, op: AsyncOperation, instruction: Instruction, lanes: Lanes, turn: int, covers: tuple[Operation, ...]
    ) -> None:
        self.op, self.instruction, self.lanes, self.turn, self.covers = op, instruction, lanes, turn, covers
        self.event = self.source = self.after = 0
        self.steps = lanes.steps
        self.tellings = [] if op.barrier is None else [Telling(op, lanes, turn, len(covers))]
        self.waited: int | None = None
        self.wait: Location | None = None
        self.passed: TooNew | NotTheirs | None = None
        self.round = 0
        for each in covers:
            each.tellings += self.tellings

    @property
    def tells(self) -> Mbarrier | None:
        """Return the first mbarrier that is told."""
        return self.tellings[0].barrier if self.tellings else None

    @property
    def remedy(self) -> str:
        """Return the wait that ends it."""
        return self.op.remedy if self.tells is None else self.tells.remedy


class TooNew(NamedTuple):
    """A wait for groups that has passed and left one in flight: the wait's name, line and n, how many groups there
    were, and which one this is, counted from the newest. reads: it waits for reads alone, and for those of this one.
    last: the line of the last operation in the group; since, turn: the turns of the last commit before, and of the
    wait."""

    wait: str
    location: Location | None
    n: int
    groups: int
    newest: int
    reads: bool = False
    last: Location | None = None
    since: int = 0
    turn: int = 0

    @property
    def edge(self) -> str:
        return "wait"

    def lacks_commit(self, between: str) -> str:
        """Return the advice where one more group would have made n the right number."""
        commit = self.wait.replace("wait", "commit")
        wait = f"{self.wait}({self.n}) at {self.location}"
        return f"{wait} counts a group too few: the missing commit: {commit} {between}"

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
    instruction: Instruction, groups: Sequence[Sequence[AsyncOperation]], n: int, reads: bool, since: int, turn: int
) -> Iterator[tuple[AsyncOperation, TooNew]]:
    """Return the operations that a wait is about to leave in flight, with the newest n of these groups; reads: of the
    others it waits for their reads alone."""
    name, location = instruction.spoken, instruction.location
    flying = groups
    if "group.read" in instruction.description.awaited:
        flying = [group for group in groups if not group or not all(op.source_free for op in group)]
    for newest, group in enumerate(itertools.islice(reversed(flying), n), 1):
        for op in group:
            yield op, TooNew(name, location, n, len(flying), newest, False, group[-1].location, since, turn)
    for group in itertools.islice(reversed(flying), n, None) if reads else ():
        yield from ((op, TooNew(name, location, n, 0, 0, reads=True)) for op in group)


class Weak(NamedTuple):
    """An arrival or a wait that orders less than it could. scope: of its order, "" if it is relaxed. left: the events
    that a wait leaves out."""

    location: Location | None
    scope: str
    left: int = 0


class SemaphoreRelease(NamedTuple):
    """A semaphore was released: by whom, the event that it was, and its line."""

    lanes: Lanes
    event: int
    location: Location | None


@dataclass(frozen=True)
class LastWait:
    """A wait that passed: where, on which phase (-1: before the first), and when; event: that it has. ended: the turn
    at which that phase had ended; commit: the one that told it. again: the turn of the first
    wait of the warp for a phase that it had waited for before; 0: none has repeated this one."""

    location: Location | None
    phase: int
    turn: int
    event: int
    ended: int = 0
    commit: Telling | None = None
    again: int = 0


class Carried:
    """The knowledge that an mbarrier carries from who arrives to who waits.

    coming, past: what this phase's arrivals and the phases before made known; coming_afar, past_afar: those of other
    CTAs, to who acquires from the cluster. waits: each warp's last wait on it; relaxed: its last one that was too weak.
    alone: where a part of a warp last arrived without the rest. loose: what arrivals that were too weak would have made
    known. last: the line of the last arrival; loosened: the last one that was too weak. brought: the operations that
    told this phase; ended: the event of the end of the last phase that operations told, and those operations'.
    arrivals: how often each warp has arrived, or a commit of its; commit: the last such. turn: when the last phase
    ended.
    """

    __slots__ = (
        "alone", "arrivals", "barrier", "brought", "coming", "coming_afar", "commit", "ended", "last", "loose",
        "loosened", "past", "past_afar", "relaxed", "turn", "waits",
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
        self.arrivals: Counter[Warp] = Counter()
        self.commit: Telling | None = None
        self.turn = 0

    @property
    def frontiers(self) -> tuple[Frontier, ...]:
        return self.coming, self.past, self.coming_afar, self.past_afar, self.loose

    @property
    def known(self) -> int:
        """Return the events that it makes known, or will."""
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
        telling = operation.tellings[0]
        telling.phase = self.barrier.phase
        if operation.instruction.description.arrives_later:
            self.arrivals[operation.lanes.warp] += 1
            self.commit = telling
        for each in (*operation.covers, operation):
            self.coming.learn(each.event | each.source | each.after)

    def end_phase(self, event: int, turn: int) -> None:
        """End a phase. event: what its end is known by."""
        self.turn = turn
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
