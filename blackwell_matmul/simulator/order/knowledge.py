"""Records of operations and mbarriers, the state of `HappensBefore`."""

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


class EndSignal:
    """A signal on an mbarrier at the end of operations, by a copy itself or by a commit. The lanes issued it at `turn`;
    a commit tracks `tracked` operations. during: the mbarrier's phase at the issue. phase: the phase that got the
    signal."""

    __slots__ = ("barrier", "during", "lanes", "location", "phase", "tracked", "turn")

    def __init__(self, op: AsyncOperation, lanes: Lanes, turn: int, tracked: int) -> None:
        assert op.barrier is not None
        self.barrier, self.during, self.location = op.barrier, op.barrier.phase, op.location
        self.lanes, self.turn, self.tracked = lanes, turn, tracked
        self.phase: int | None = None


class Operation:
    """An asynchronous operation in the happens-before order.

    lanes: its issuer, at `turn`. waited: the turn at which its own warp had waited for it, at the line `wait`. event:
    its end. source: the end of its reads, a separate event for bulk stores. after: the events that its accesses are
    ordered after; an agent that observes its end observes those, too. steps: waits and steps of other CTAs that the
    issuer had observed. covers: operations that complete with it (the mma and cp of a commit).

    end_signals: signals of its end; several commits may track one mma. passed: the last wait that left it in flight, or
    the commit that does not track it. round: how often its warp had executed its instruction before.
    """

    __slots__ = (
        "after", "covers", "end_signals", "event", "instruction", "lanes", "op", "passed", "round", "source", "steps",
        "turn", "wait", "waited",
    )  # fmt: skip

    def __init__(
        self, op: AsyncOperation, instruction: Instruction, lanes: Lanes, turn: int, covers: tuple[Operation, ...]
    ) -> None:
        self.op, self.instruction, self.lanes, self.turn, self.covers = op, instruction, lanes, turn, covers
        self.event = self.source = self.after = 0
        self.steps = lanes.steps
        self.end_signals = [] if op.barrier is None else [EndSignal(op, lanes, turn, len(covers))]
        self.waited: int | None = None
        self.wait: Location | None = None
        self.passed: TooNew | NotTheirs | None = None
        self.round = 0
        for each in covers:
            each.end_signals += self.end_signals

    @property
    def mbarrier(self) -> Mbarrier | None:
        """Return the first mbarrier that the operation's end signals; None if there is none."""
        return self.end_signals[0].barrier if self.end_signals else None

    @property
    def remedy(self) -> str:
        """Return the wait that ends the operation."""
        return self.op.remedy if self.mbarrier is None else self.mbarrier.remedy


class TooNew(NamedTuple):
    """A wait for groups that left one group in flight. wait, location, n: the wait. groups: number of groups. newest:
    number of this group, counted from the newest. reads: the wait is for this group's reads alone. last: the line of
    the group's last operation. since, turn: the turns of the last commit before, and of the wait."""

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
        """Return advice for a wait that would be right with one more group."""
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
    """A wait or a commit by `who` for an operation that belongs to `owner`. Groups belong to a thread, so it does
    nothing."""

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
    """Yield the operations that a wait leaves in flight: those of the newest n groups. reads: the wait covers only the
    reads of older groups."""
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
    """An arrival or wait that orders too little. scope: "" if relaxed. left: events that the wait leaves out."""

    location: Location | None
    scope: str
    left: int = 0


class SemaphoreRelease(NamedTuple):
    """A release of a semaphore: its lanes, event, line and value."""

    lanes: Lanes
    event: int
    location: Location | None
    value: int


class SemaphoreWait(NamedTuple):
    """A wait for a value of a semaphore that is over: its warp, event, line, address and value. stored: the release
    that stored the value; None if no CTA had stored one."""

    warp: Warp
    event: int
    location: Location | None
    address: int
    value: int
    stored: SemaphoreRelease | None


@dataclass(frozen=True)
class LastWait:
    """A wait that passed: its line, phase (-1: before the first) and turn. event: the event of the wait. ended: the
    turn at which that phase ended. commit: the commit that ended the phase. again: the turn of the warp's first wait
    for a phase that it had waited for before; 0 if none. started: the line of the warp's first wait, if that
    passed on the phase before the first."""

    location: Location | None
    phase: int
    turn: int
    event: int
    ended: int = 0
    commit: EndSignal | None = None
    again: int = 0
    started: Location | None = None


class Carried:
    """Events that an mbarrier carries from arrivals to waits.

    coming, past: events released in this phase, and in earlier ones. coming_afar, past_afar: those of other CTAs, for
    waits of cluster scope. loose: events that arrivals were too weak to release. waits: each warp's last wait. relaxed:
    each warp's last wait that was too weak. alone: the last arrival of a part of a warp that
    announces no bytes.

    last: the line of the last arrival. loosened: the last arrival that was too weak. brought: operations that signalled
    in this phase. ended: the event of the end of the last phase with operations, and these operations. arrivals: number
    of each warp's arrivals and commits. commit: the last commit. turn: the turn of the end of the last phase.
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
        self.commit: EndSignal | None = None
        self.turn = 0

    @property
    def frontiers(self) -> tuple[Frontier, ...]:
        return self.coming, self.past, self.coming_afar, self.past_afar, self.loose

    @property
    def known(self) -> int:
        """Return the events that the mbarrier releases in this phase or released before."""
        return union(self.frontiers[:4]).generic | self.past_afar.tensor | self.coming_afar.tensor

    def signalled_by(self, operation: Operation) -> None:
        """Record the signal of a complete operation. The phase releases the operation's own accesses, and the events
        that these are ordered after, and nothing else of its issuer's (PTX ISA, "mbarrier / complete-tx";
        "tcgen05.commit": of the operations it tracks).

        The signal is a release at cluster scope (PTX ISA, cp.async.bulk.tensor). By the letter a wait in another CTA
        than that of the data needs cluster scope, too. A wait of CTA scope counts as enough here: CUTLASS's kernels for
        pairs wait so, and no cache lies between shared memory and the tensor core.
        """
        self.last = operation.op.location
        self.coming.steps |= operation.steps
        self.brought |= operation.event
        signal = operation.end_signals[0]
        signal.phase = self.barrier.phase
        if operation.instruction.description.arrives_later:
            self.arrivals[operation.lanes.warp] += 1
            self.commit = signal
        for each in (*operation.covers, operation):
            self.coming.learn(each.event | each.source | each.after)

    def end_phase(self, event: int, turn: int) -> None:
        """End a phase. event: the event of its end."""
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
