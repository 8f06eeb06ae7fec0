"""Event loop: warps run until they wait, asynchronous operations complete by a policy, and listeners get all events.

adversarial (the default): an operation completes only when its signal is needed, and both its reads and its writes
happen then. eager: at issue. random: at times drawn from the seed. Under each policy, an operation counts as in flight
until a warp has waited for it, so that a missing wait is found. A deadlock is an empty queue with a waiting warp, and
is found at once.
"""

from __future__ import annotations

import itertools
import random
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, TypeAlias

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.description import Instruction
from blackwell_matmul.simulator.findings import Finding, Stop
from blackwell_matmul.simulator.listener import Broadcast, Listener
from blackwell_matmul.simulator.machine.barrier import Mbarrier
from blackwell_matmul.simulator.machine.cta import Cta, Rendezvous, Warp
from blackwell_matmul.simulator.machine.memory import Region
from blackwell_matmul.simulator.machine.operation import AsyncOperation

RANDOM_COMPLETION = 0.4  # policy "random": probability, at each issue, that another operation completes


@dataclass(eq=False, repr=False, slots=True)
class Blocked:
    """A warp's wait. ready: tested when `source`, an mbarrier or a meeting of warps, has changed; without a source,
    after any change. why: explains a deadlock. semaphore: its address, for a wait on one."""

    ready: Callable[[], bool]
    why: Callable[[], str]
    location: Location | None
    barrier: Mbarrier | None = None
    meeting: Rendezvous | None = None
    semaphore: int | None = None

    @property
    def source(self) -> Mbarrier | Rendezvous | None:
        return self.barrier or self.meeting


class Agent:
    """A warp's progress through the program; `wait` is its current wait, if any."""

    __slots__ = ("steps", "wait", "warp")

    def __init__(self, warp: Warp, steps: Iterator[Blocked]) -> None:
        self.warp, self.steps = warp, steps
        self.wait: Blocked | None = None


Waiting: TypeAlias = "dict[Cta, list[Agent]]"


class Engine:
    """Runs the warps of some CTAs to their end."""

    def __init__(self, policy: str, seed: int, listeners: Iterable[Listener] = ()) -> None:
        self.policy = policy
        self.random = random.Random(seed)
        self.shuffle = seed != 0
        self.tell: Listener = Broadcast(listeners)
        self.queue: dict[AsyncOperation, None] = {}  # not complete, in order of issue
        self.flights: dict[Cta, dict[AsyncOperation, None]] = {}  # not waited for; complete or not
        self.telling: dict[Mbarrier, list[AsyncOperation]] = {}  # operations that signalled it in this phase
        self.told: dict[Mbarrier, list[AsyncOperation]] = {}  # and in phases that are over, until somebody waits
        self.changed: dict[Cta, list[Any]] = {}  # mbarriers and meetings for which its warps may wait
        self.polling = False  # a warp waits for neither mbarrier nor meeting, and is tested at any time

    def close(self) -> None:
        """Break the reference cycles through operations after the run."""
        self.queue.clear()
        self.flights.clear()
        self.telling.clear()
        self.told.clear()
        self.changed.clear()

    # asynchronous operations

    def issue(self, op: AsyncOperation, warp: Warp, instruction: Instruction, regions: Mapping[str, Region]) -> None:
        """Issue an operation, which is then in flight."""
        self.tell.issued(op, warp, instruction, regions)
        self.start(op)

    def start(self, op: AsyncOperation) -> None:
        """Start an operation; it completes now (eager) or later."""
        self.in_flight(op.cta)[op] = None
        if self.policy == "eager":
            self._complete(op)
            return
        self.queue[op] = None
        while self.policy == "random" and self.queue and self.random.random() < RANDOM_COMPLETION:
            self.finish(self.random.choice(list(self.queue)))

    def in_flight(self, cta: Cta) -> dict[AsyncOperation, None]:
        """Return the CTA's operations that no warp has waited for, complete or not."""
        found = self.flights.get(cta)
        if found is None:
            found = self.flights[cta] = {}
        return found

    def finish(self, op: AsyncOperation) -> None:
        """Complete `op`; earlier operations of the same pipe complete first."""
        if op.done:
            return
        if op.pipe is not None:
            for earlier in [o for o in self.in_flight(op.cta) if o.pipe == op.pipe and not o.done]:
                if earlier is op:
                    break
                self._complete(earlier)
        self._complete(op)

    def _complete(self, op: AsyncOperation) -> None:
        """Perform the rest of an operation, and signal its barrier."""
        self.queue.pop(op, None)
        if op.done:
            return
        op.done = True
        if op.read_phase is not None:
            self.take(op)
        if op.barrier is not None:
            self.telling.setdefault(op.barrier, []).append(op)
        self.tell.completed(op, bool(op.complete()))
        if op.signal is not None:
            op.signal()
            op.signal = None

    def take(self, op: AsyncOperation) -> None:
        """Perform the reads of a bulk store, unless they were performed before."""
        if op.read_phase is not None:
            op.read_phase()
            self.tell.source_read(op)
            op.read_phase = None

    def wait_for(self, op: AsyncOperation, warp: Warp, instruction: Instruction, reads: bool = False) -> None:
        """Record that the warp has waited for an operation. reads: it waited only for the operation's reads."""
        if not reads:
            self.finish(op)
        self.tell.waited(op, warp, instruction, reads)
        if not reads:
            op.waiters -= 1
            if op.waiters == 0:
                self.settle(op)
        elif not op.source_free:
            self.take(op)
            op.source_free = True

    def settle(self, op: AsyncOperation) -> None:
        """Remove an operation from those in flight, after a warp has waited for it."""
        for each in (*op.covers, op) if op.covers else (op,):
            if self.in_flight(each.cta).pop(each, self) is None:
                self.tell.settled(each)
        op.covers = ()

    # mbarriers

    def arrive(self, barrier: Mbarrier, count: int, location: Location | None) -> None:
        for phase in barrier.arrive(count, location):
            self._ended(barrier, phase)
        self.tell.counted(barrier)

    def expect_tx(self, barrier: Mbarrier, count_bytes: int, location: Location | None) -> None:
        barrier.expect_tx(count_bytes, location)
        self.tell.announced(barrier, count_bytes, location)
        self.tell.counted(barrier)

    def complete_tx(self, barrier: Mbarrier, count_bytes: int, location: Location | None) -> None:
        self.tell.delivered(barrier, count_bytes)
        for phase in barrier.complete_tx(count_bytes, location):
            self._ended(barrier, phase)
        self.tell.counted(barrier)

    def _ended(self, barrier: Mbarrier, phase: int) -> None:
        self.tell.phase_ended(barrier, phase)
        self.changed.setdefault(barrier.cta, []).append(barrier)
        if barrier in self.telling:
            self.told.setdefault(barrier, []).extend(self.telling.pop(barrier))

    def passed(self, barrier: Mbarrier, parity: int) -> bool:
        """Return True if a phase has ended. A warp that sees its end is ordered after all operations that signalled
        completed phases."""
        if not barrier.passed(parity):
            return False
        for op in self.told.pop(barrier, ()):
            self.settle(op)
        return True

    # threads

    def meet(
        self, warp: Warp, instruction: Instruction, key: Any, needed: frozenset[int], brought: Any = None
    ) -> Rendezvous:
        """Arrive at the thread group's barrier; the last warp to arrive opens it for all."""
        cta = warp.cta
        meeting = cta.meetings.get(key)
        if meeting is None:
            meeting = cta.meetings[key] = Rendezvous(needed)
        meeting.brought[warp.index] = brought
        if len(meeting.brought) >= len(needed) and needed <= meeting.brought.keys():
            self.open(cta, key)
            self.tell.met([cta.warps[i] for i in sorted(needed)], warp, instruction)
        return meeting

    def open(self, cta: Cta, key: Any) -> None:
        """Release the warps that wait: all have arrived."""
        self._open(cta.meetings.pop(key), (cta,))

    def _open(self, meeting: Rendezvous, ctas: Iterable[Cta]) -> None:
        """End a meeting, for which warps of these CTAs may wait."""
        meeting.over = True
        for cta in ctas:
            self.changed.setdefault(cta, []).append(meeting)

    def meet_pair(self, warp: Warp, key: Any, needed: Iterable[int]) -> Rendezvous:
        """Arrive at a meeting of warps of both CTAs of a pair. It orders no accesses."""
        pair = sorted((warp.cta, warp.cta.peer or warp.cta), key=lambda cta: cta.rank)
        meetings = pair[0].meetings
        if key not in meetings:
            meetings[key] = Rendezvous(frozenset(cta.warps[i] for cta in pair for i in needed))
        meeting = meetings[key]
        meeting.brought[warp] = None
        if len(meeting.brought) == len(meeting.needed):
            self._open(meetings.pop(key), pair)
        return meeting

    def meet_cluster(self, warp: Warp, instruction: Instruction) -> Rendezvous:
        """Arrive at the cluster's barrier; the last warp to arrive opens it for all."""
        cluster = warp.cta.cluster
        if cluster.meeting is None:
            cluster.meeting = Rendezvous(frozenset(each for cta in cluster.ctas for each in cta.warps))
        meeting = cluster.meeting
        meeting.brought[warp] = None
        self._open_cluster(warp, instruction)
        return meeting

    def _open_cluster(self, warp: Warp, instruction: Instruction | None) -> None:
        """Open the barrier when every warp has come, or returned (PTX ISA, barrier.cluster: all non-exited threads)."""
        cluster = warp.cta.cluster
        meeting = cluster.meeting
        if meeting is None or not all(each.returned or each in meeting.brought for each in meeting.needed):
            return
        cluster.meeting = None
        self._open(meeting, cluster.ctas)
        here = [each for cta in cluster.ctas for each in cta.warps if each in meeting.brought]
        self.tell.met(here, warp, instruction)

    # warps

    def run(self, warps: Iterable[Warp], main: Callable[[Warp], Iterator[Blocked]]) -> list[Agent]:
        """Run until all warps have returned, or none can continue. Return the agents that wait forever."""
        ready = deque(Agent(warp, main(warp)) for warp in warps)
        waiting: Waiting = {}
        while ready or self._deliver(waiting, ready):
            if self.shuffle:
                ready.rotate(-self.random.randrange(len(ready)))
            agent = ready.popleft()
            cta = agent.warp.cta
            if cta.stopped:
                waiting.pop(cta, None)
                continue
            if self._step(agent):
                assert agent.wait is not None
                self.polling |= agent.wait.source is None
                waiting.setdefault(cta, []).append(agent)
            for each in cta.cluster.ctas:
                if each in self.changed:
                    self._wake(each, waiting, ready)
        self.tell.finished()
        return [agent for cta, agents in waiting.items() for agent in agents if not cta.stopped]

    def _step(self, agent: Agent) -> bool:
        """Run a warp to its next wait; return False if the warp has returned or its CTA cannot continue."""
        try:
            agent.wait = next(agent.steps, None)
        except Stop as stop:
            self.fail(agent.warp.cta, stop.finding)
            return False
        if agent.wait is None:
            agent.warp.returned = True
            self.tell.returned(agent.warp)
            self._open_cluster(agent.warp, None)
        return agent.wait is not None

    def fail(self, cta: Cta, finding: Finding) -> None:
        """Stop a CTA and its cluster after a fatal finding; other clusters continue."""
        cta.grid.findings.add(finding)
        for each in cta.cluster.ctas:
            each.stopped = True
            self.abandon(each)

    def abandon(self, cta: Cta) -> None:
        """Drop the CTA's operations, which will never complete."""
        for op in self.flights.pop(cta, ()):
            self.queue.pop(op, None)

    def _deliver(self, waiting: Waiting, ready: deque[Agent]) -> bool:
        """Complete operations that waiting warps need until one of them wakes; return False if there are no such
        operations."""
        while not ready:
            some = False
            for cta in tuple(waiting):
                some |= self._deliver_to(cta, waiting, ready)
            if not some:
                return False
        return True

    def _deliver_to(self, cta: Cta, waiting: Waiting, ready: deque[Agent]) -> bool:
        """Complete one operation for one CTA, unless its warps were already woken by another CTA."""
        if (cta in self.changed or self.polling) and self._wake(cta, waiting, ready):
            return True
        op = self._needed(cta, waiting.get(cta, []))
        if op is None:
            return False
        self.finish(op)
        if cta in self.changed:
            self._wake(cta, waiting, ready)
        return True

    def _needed(self, cta: Cta, waiting: list[Agent]) -> AsyncOperation | None:
        """Return an operation that signals a barrier in wait: the oldest, or one drawn from the seed."""
        awaited = {agent.wait.barrier for agent in waiting if agent.wait is not None}
        candidates = []
        for op in itertools.chain.from_iterable(self.in_flight(each) for each in cta.cluster.ctas):
            if not op.done and op.barrier is not None and op.barrier in awaited:
                if not self.shuffle:
                    return op
                candidates.append(op)
        return self.random.choice(candidates) if candidates else None

    def _wake(self, cta: Cta, waiting: Waiting, ready: deque[Agent]) -> bool:
        """Move the warps of a CTA whose wait is over to `ready`; other warps keep waiting."""
        changed = self.changed.pop(cta, ())
        agents = waiting.pop(cta, [])
        still = []
        for agent in agents:
            wait = agent.wait
            assert wait is not None
            if (wait.source is None or wait.source in changed) and wait.ready():
                ready.append(agent)
            else:
                still.append(agent)
        if still and not cta.stopped:
            waiting[cta] = still
        return len(still) < len(agents)
