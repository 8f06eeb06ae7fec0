"""The event loop: warps run until they wait; asynchronous operations complete when a policy says so.

adversarial (the default): an operation completes only when its signal is needed, and both its reads and its writes
happen then. eager: at issue. random: at times drawn from the seed. Whatever the policy, an operation counts as in
flight until somebody has waited for it, so that a missing wait is found under each of them. A deadlock is an empty
queue with somebody waiting; it is found at once and explained.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.findings import Stop
from blackwell_matmul.simulator.machine.memory import Region

if TYPE_CHECKING:
    from blackwell_matmul.simulator.machine.cta import Cta, Mbarrier, Rendezvous, Warp

RANDOM_COMPLETION = 0.4  # policy "random": the chance, at each issue, that one more operation completes


class TooNew(NamedTuple):
    """A wait for groups that has passed and left one in flight: the wait's name, line and n, how many groups there
    were, and which one this is, counted from the newest. reads: it waits for reads alone, and for those of this one."""

    wait: str
    location: Location | None
    n: int
    groups: int
    newest: int
    reads: bool = False

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


def _ordinal(number: int) -> str:
    return f"{number}{({2: 'nd', 3: 'rd'}).get(number, 'th')}"


def pass_over(groups: Sequence[Sequence[AsyncOperation]], wait: str, location: Location | None, n: int) -> None:
    """A wait is about to leave the newest n of these groups in flight."""
    for newest, group in enumerate(itertools.islice(reversed(groups), n), 1):
        for op in group:
            op.too_new = TooNew(wait, location, n, len(groups), newest)


class AsyncOperation:
    """One asynchronous operation; an agent of its own, with a fresh identity.

    reads: the regions that it reads. barrier: the mbarrier it will tell (or None). complete: performs its reads and
    writes; True when there are none, or all were put off (deferred.py). signal: then tells the barrier. read_phase: for
    bulk stores, performs the reads only. pipe: operations of one pipe complete in order. covers: what is complete when
    this one is (a commit's mma and cp). done: it has completed; but nobody may know it yet.
    event, source, after, steps, lanes, turn, generic: its place in the order of things (`HappensBefore.issue`).
    tells, phase: the barrier that its end will be known by, and the phase of it; during: the phase at issue.
    too_new: the last wait that passed, and that its group was too new for.
    """

    __slots__ = (
        "after", "agent", "barrier", "complete", "covers", "cta", "done", "during", "event", "generic", "lanes",
        "location", "name", "phase", "pipe", "read_phase", "reads", "remedy", "signal", "source", "source_free",
        "steps", "tells", "too_new", "turn", "warp",
    )  # fmt: skip

    def __init__(
        self,
        cta: Cta,
        warp: int,
        name: str,
        agent: str,
        location: Location | None,
        complete: Callable[[], bool | None],
        *,
        signal: Callable[[], None] | None = None,
        reads: tuple[Region, ...] = (),
        barrier: Mbarrier | None = None,
        pipe: Any = None,
        read_phase: Callable[[], None] | None = None,
        remedy: str = "",
        covers: tuple[AsyncOperation, ...] = (),
    ) -> None:
        self.cta, self.warp, self.name, self.agent, self.location = cta, warp, name, agent, location
        self.complete, self.signal, self.read_phase = complete, signal, read_phase
        self.reads, self.barrier, self.pipe, self.remedy, self.covers = reads, barrier, pipe, remedy, covers
        self.done = False
        self.source_free = False
        self.event = self.source = self.after = self.steps = self.turn = 0
        self.generic = False
        self.lanes: Any = None
        self.tells: Mbarrier | None = barrier
        self.phase: int | None = None
        self.too_new: TooNew | None = None
        self.during = 0 if barrier is None else barrier.phase

    def take(self) -> None:
        """Perform the reads of a bulk store, if they were not yet."""
        if self.read_phase is not None:
            self.read_phase()
            if self.cta.tape is not None:
                self.cta.tape.taken(self)
            self.read_phase = None

    def finish(self) -> None:
        """Perform what is left of it, and tell its barrier."""
        if self.done:
            return
        self.done = True
        if self.read_phase is not None:
            self.take()
        if self.barrier is not None:
            self.barrier.tell(self)
        put_off = self.complete()
        if self.cta.tape is not None and not put_off:
            self.cta.tape.completed(self)
        if self.signal is not None:
            self.signal()
        if self.cta.tracing:
            self.cta.event(self.agent, "complete", self.name, self.location)

    def advice(self, warp: Warp, location: Location | None) -> str:
        """The wait that lets `warp` go on at `location`."""
        return self.remedy

    def passed_over(self, warp: Warp) -> TooNew | None:
        """The wait that should have covered it, before `warp` went on."""
        return self.too_new

    def let_go_early(self, warp: Warp) -> bool:
        """Its issuer told `warp` to go on before it had waited for it."""
        return False

    def settle_reads(self) -> None:
        """Somebody waited for the reads: the source may be overwritten, while the rest is still to be written."""
        self.take()
        self.source_free = True

    def settle(self) -> None:
        """Somebody waited for it: nothing of it is in flight any more."""
        for op in self.covers:
            op.cta.in_flight.pop(op, None)
        self.covers = ()
        self.cta.in_flight.pop(self, None)


class Blocked:
    """What a warp waits for. `ready` is asked again when its `source` changed, an mbarrier or a meeting of warps, or,
    when it has none, whenever something did; `why` explains a deadlock."""

    __slots__ = ("barrier", "location", "meeting", "ready", "source", "why")

    def __init__(
        self,
        ready: Callable[[], bool],
        why: Callable[[], str],
        location: Location | None,
        *,
        barrier: Mbarrier | None = None,
        meeting: Rendezvous | None = None,
    ) -> None:
        self.ready, self.why, self.location, self.barrier, self.meeting = ready, why, location, barrier, meeting
        self.source = barrier or meeting


class Agent:
    """A warp on its way through the program; `wait` is what it stands at, if it does."""

    __slots__ = ("steps", "wait", "warp")

    def __init__(self, warp: Warp) -> None:
        self.warp = warp
        self.steps = warp.start()
        self.wait: Blocked | None = None

    def step(self) -> bool:
        """Run to the next wait; False when the warp has returned, or its CTA cannot go on."""
        try:
            self.wait = next(self.steps, None)
        except Stop as stop:
            self.warp.cta.fail(stop.finding)
            return False
        if self.wait is None:
            self.warp.finish()
        return self.wait is not None


Waiting: TypeAlias = "dict[Cta, list[Agent]]"


class Engine:
    """Runs the warps of some CTAs to their end."""

    def __init__(self, policy: str, seed: int) -> None:
        self.policy = policy
        self.random = random.Random(seed)
        self.shuffle = seed != 0
        self.queue: dict[AsyncOperation, None] = {}  # not complete, in order of issue
        self.steps = 0
        self.polling = False  # somebody waited for what is neither mbarrier nor meeting, and is to be asked at any time

    # asynchronous operations

    def start(self, op: AsyncOperation) -> None:
        """An operation was issued: it completes now (eager) or later."""
        op.cta.in_flight[op] = None
        if self.policy == "eager":
            op.finish()
            return
        self.queue[op] = None
        while self.policy == "random" and self.queue and self.random.random() < RANDOM_COMPLETION:
            self.finish(self.random.choice(list(self.queue)))

    def finish(self, op: AsyncOperation) -> None:
        """Complete `op`; operations before it in the same pipe complete first."""
        if op.done:
            return
        if op.pipe is not None:
            for earlier in [o for o in op.cta.in_flight if o.pipe == op.pipe and not o.done]:
                if earlier is op:
                    break
                self._complete(earlier)
        self._complete(op)

    def _complete(self, op: AsyncOperation) -> None:
        self.queue.pop(op, None)
        op.finish()

    def drop(self, op: AsyncOperation) -> None:
        """It never completes: its CTA came to a stop."""
        self.queue.pop(op, None)

    # warps

    def run(self, warps: list[Warp]) -> list[Agent]:
        """Run until every warp has returned, or none can go on: those that wait for ever."""
        ready = deque(Agent(warp) for warp in warps)
        waiting: Waiting = {}
        while ready or self._deliver(waiting, ready):
            if self.shuffle:
                ready.rotate(-self.random.randrange(len(ready)))
            agent = ready.popleft()
            cta = agent.warp.cta
            if cta.stopped:
                waiting.pop(cta, None)
                continue
            self.steps += 1
            if agent.step():
                assert agent.wait is not None
                self.polling |= agent.wait.source is None
                waiting.setdefault(cta, []).append(agent)
            for each in cta.cluster.ctas:
                if each.changed:
                    _wake(each, waiting, ready)
        return [agent for cta, agents in waiting.items() for agent in agents if not cta.stopped]

    def _deliver(self, waiting: Waiting, ready: deque[Agent]) -> bool:
        """Everybody waits: complete operations that waiters need until one of them wakes. False: there are none."""
        while not ready:
            some = False
            for cta in tuple(waiting):
                some |= self._deliver_to(cta, waiting, ready)
            if not some:
                return False
        return True

    def _deliver_to(self, cta: Cta, waiting: Waiting, ready: deque[Agent]) -> bool:
        """The same for one CTA, one operation; another CTA may also have given it what it waits for."""
        if (cta.changed or self.polling) and _wake(cta, waiting, ready):
            return True
        op = self._needed(cta, waiting.get(cta, []))
        if op is None:
            return False
        self.finish(op)
        if cta.changed:
            _wake(cta, waiting, ready)
        return True

    def _needed(self, cta: Cta, waiting: list[Agent]) -> AsyncOperation | None:
        """An operation that tells a barrier somebody waits for; the oldest, or one drawn from the seed."""
        awaited = {agent.wait.barrier for agent in waiting if agent.wait is not None}
        candidates = []
        for op in itertools.chain.from_iterable(each.in_flight for each in cta.cluster.ctas):
            if not op.done and op.barrier is not None and op.barrier in awaited:
                if not self.shuffle:
                    return op
                candidates.append(op)
        return self.random.choice(candidates) if candidates else None


def _wake(cta: Cta, waiting: Waiting, ready: deque[Agent]) -> bool:
    """Move the warps of a CTA whose wait is over; the others stay."""
    changed, cta.changed = cta.changed, []
    agents = waiting.pop(cta, [])
    still = []
    for agent in agents:
        source = agent.wait.source  # type: ignore[union-attr]  # those that wait have one
        if (source is None or source in changed) and agent.wait.ready():  # type: ignore[union-attr]
            ready.append(agent)
        else:
            still.append(agent)
    if still and not cta.stopped:
        waiting[cta] = still
    return len(still) < len(agents)


def likely_cause(agent: Agent) -> tuple[int, int, int]:
    """Where to look first: a barrier that lacks bytes, then other barriers, then threads that wait for threads."""
    barrier = agent.wait.barrier if agent.wait is not None else None
    return 2 if barrier is None else int(barrier.tx_bytes == 0), agent.warp.cta.rank, agent.warp.index


def explain_deadlock(waiting: list[Agent], others: list[str]) -> str:
    """Who waits, where, for what, and what is missing; `others` are the cluster's operations still in flight."""
    lines: dict[tuple[str, str], list[int]] = {}
    for agent in waiting:
        assert agent.wait is not None
        where = f"at {agent.wait.location} " if agent.wait.location else ""
        key = agent.warp.cta.among_others, f"{where}for {agent.wait.why()}"
        lines.setdefault(key, []).append(agent.warp.index)
    waits = "; ".join(f"{_warps(who, cta)} {why}" for (cta, why), who in lines.items())
    rest = f"; in flight, but telling none of these barriers: {', '.join(others[:3])}" if others else ""
    return f"{waits}; nobody is left who could deliver it{rest}"


def _warps(indices: list[int], cta: str) -> str:
    indices = sorted(indices)
    if len(indices) == 1:
        return f"warp {indices[0]}{cta} waits"
    return f"warps {', '.join(map(str, indices))}{cta} wait"
