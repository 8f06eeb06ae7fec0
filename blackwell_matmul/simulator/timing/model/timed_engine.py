"""The event loop with a clock: everything happens at its cycle.

It is another policy with the rules of `engine.py`: warps run the same program. Each warp has its own cycle. An
instruction adds its cycles to it, and the warp's signals are postponed to that cycle. An operation is served by its SM
and completes when the service ends. A warp that reaches a wait tests it when its own cycle has come.

So events, and the work of each server, are in the order of time. Exceptions are operations that only their own warp
waits for (cp.async, tcgen05.ld, TMA stores, wgmma): they are served when issued. Values are not computed: operations
that only move values complete without moving them.
"""

from __future__ import annotations

import heapq
import itertools
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, NamedTuple

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.description import Instruction
from blackwell_matmul.simulator.engine import Agent, Blocked, Engine
from blackwell_matmul.simulator.listener import Listener
from blackwell_matmul.simulator.machine.barrier import Mbarrier
from blackwell_matmul.simulator.machine.cta import Cluster, Cta, Rendezvous, Warp
from blackwell_matmul.simulator.machine.operation import AsyncOperation
from blackwell_matmul.simulator.timing.model.path import EXECUTES, LAUNCH, TRIP, WAKES, PathStep, cause_of
from blackwell_matmul.simulator.timing.model.sectors import RowsOf, SectorsOf
from blackwell_matmul.simulator.timing.model.sm import Sm
from blackwell_matmul.simulator.timing.model.work import (
    Allocate,
    Commit,
    Free,
    Load,
    MoveLines,
    MultiplySync,
    Service,
    Work,
)


class Stand(NamedTuple):
    """A wait: its line, its mbarrier if any, and the operation that signals the mbarrier if any."""

    location: Location | None
    barrier: str
    teller: str


class TimedAgent(Agent):
    """A warp with its own cycle. work: of its instruction. since: when it reached its wait. multiplies: it issues MMAs.
    step: its last step on the path. loaded: issue of the first of consecutive loads, and how many more may be issued
    then."""

    __slots__ = ("began", "loaded", "multiplies", "since", "step", "time", "work")

    def __init__(self, warp: Warp, steps: Iterator[Blocked], time: float, before: PathStep | None) -> None:
        super().__init__(warp, steps)
        self.time = self.since = self.began = time
        self.step = PathStep(LAUNCH, time, before)
        self.loaded = time, 0
        self.work: Work | None = None
        self.multiplies = False

    def issues(self, work: Work) -> float:
        """Return when the warp issues its next instruction."""
        first, more = self.loaded
        if work.sooner:
            self.loaded = (first, more - 1) if more else (self.time, work.sooner - 1)
            return self.loaded[0]
        if not work.in_registers:
            self.loaded = first, 0
        return self.time


class TimedEngine(Engine):
    """Runs clusters on the SMs, the CTA of rank i on the i-th. now: the cycle. left: called with a cluster when all of
    its warps have returned. lived: total cycles of warps that issue MMAs, from their first one on."""

    def __init__(self, sms: Sequence[Sm], listeners: Iterable[Listener], left: Callable[[Cluster], None]) -> None:
        super().__init__("timed", 0, listeners)
        self.sms, self.left, self.figures = sms, left, sms[0].figures
        self.now, self.events = 0.0, 0
        self.agents: dict[Warp, TimedAgent] = {}
        self.ends: dict[AsyncOperation, tuple[float, float]] = {}
        self.works: dict[AsyncOperation, Service] = {}
        self.standing: dict[Any, list[TimedAgent]] = {}  # by source of the wait; None: tested at each event
        self._stood: dict[tuple[Instruction, Mbarrier | str], float] = defaultdict(float)
        self.lived = 0.0
        self.tellers: dict[Mbarrier, str] = {}  # the operation that signals them
        self.current: TimedAgent | None = None  # the running warp
        self.until_read = False  # waits for stores end with their reads
        self.waking = 0.0  # from the end of a phase until a warp continues
        self.serving: AsyncOperation | Instruction | None = None
        self.step: PathStep | None = None  # that led to this event
        self.service: PathStep | None = None  # last step of the operation in service
        self.steps: dict[AsyncOperation, PathStep] = {}  # last step of each
        self.last: dict[tuple[str, int], PathStep] = {}  # last step of each part
        self.told_until: dict[tuple[str, int], float] = {}  # end of the last interval told to listeners, by part
        for number, sm in enumerate(sms):
            for part, pipe in sm.pipes.items():
                pipe.tell = partial(self._works, part, number)
            for part, server in sm.ways.items():
                server.tell = partial(self._passes, part, number)
        self._served: tuple[float, Warp, Work, float, PathStep | None] | None = None  # the last operation
        self._events: list[tuple[float, int, Callable[[], None], PathStep | None]] = []
        self._numbers = itertools.count()

    # the clock

    def at(self, time: float, do: Callable[[], None], step: PathStep | None = None) -> None:
        """Schedule a call. step: the path step that led to it; default: the current step."""
        step = step or (self.step if self.current is None else self.current.step)
        heapq.heappush(self._events, (time if time > self.now else self.now, next(self._numbers), do, step))

    def begin(self, cluster: Cluster, main: Callable[[Warp], Iterator[Blocked]], time: float) -> None:
        """Start the warps of a cluster at this cycle."""
        for cta in cluster.ctas:
            for warp in cta.warps:
                agent = self.agents[warp] = TimedAgent(warp, main(warp), time, self.step)
                self.at(time, partial(self._resume, agent), agent.step)

    def go_on(self, most: int) -> None:
        """Handle events in order, until there are none, or `most` have been handled in all."""
        events, standing = self._events, self.standing
        while events and self.events < most:
            self.now, _, do, self.step = heapq.heappop(events)
            self.events += 1
            do()
            if None in standing:
                self._ask_again(None)

    @property
    def time(self) -> float:
        """Return the cycle of events that listeners get."""
        return self.now if self.current is None else self.current.time

    def ended(self, op: AsyncOperation) -> float:
        """Return the cycle at which an operation that listeners get ends; it may be later than the present cycle."""
        return max(self.time, self.ends.get(op, (0.0, 0.0))[1])

    # warps

    def executes(self, warp: Warp, work: Work) -> None:
        """Advance the running warp by this instruction."""
        agent = self.current
        assert agent is not None
        agent.work = work
        if work.multiplies and not agent.multiplies:
            agent.multiplies, agent.began = True, agent.time
        if isinstance(work, Service):
            agent.issues(work)
            return  # it starts now, and its warp goes on later
        since, self.serving, self.service = agent.time, work.instruction, agent.step
        agent.time = max(since, work.keeps(self._sm(warp.cta), self.now, agent.issues(work)))
        self._goes_on(agent, work, since, self.service)
        if work.gives_back and warp.index == work.instruction.group.warps.start:
            self.at(agent.time, partial(self._gives_back, warp.cta, work))
        self.tell.took(warp, work.instruction, since, agent.time)

    def executed(self, warp: Warp, work: Service) -> None:
        """Advance the running warp after it has issued an operation."""
        agent = self.current
        assert agent is not None
        since, agent.time = agent.time, agent.time + work.cycles
        self._goes_on(agent, work, since, agent.step)
        self.tell.took(warp, work.instruction, since, agent.time)

    def _goes_on(self, agent: TimedAgent, work: Work, since: float, before: PathStep | None) -> None:
        if agent.time > since:
            agent.step = PathStep(cause_of(EXECUTES, work.instruction), agent.time, before)

    def _works(self, part: str, number: int, start: float, end: float, waited: bool) -> None:
        """Record service by a part of an SM, as disjoint intervals for listeners even if warps were ahead."""
        assert self.serving is not None
        told = self.told_until.get((part, number), 0.0)
        if end > told:
            self.tell.served(part, number, self.serving, max(start, told), end)
            self.told_until[part, number] = end
        if not waited and self.service is not None and start > self.service.end:
            self.service = PathStep(cause_of(TRIP, self.serving), start, self.service)
        self.service = self._after(part, number, end, waited)

    def _passes(self, part: str, number: int, start: float, end: float, waited: bool) -> None:
        """Record the service by a path of data. The path delays only operations that arrive while it is full."""
        step = self._after(part, number, end, waited)
        if self.service is not None and (part == "L2" or waited) and end > self.service.end:
            self.service = step

    def _after(self, part: str, number: int, end: float, waited: bool) -> PathStep:
        assert self.serving is not None
        before = self.last.get((part, number)) if waited else None
        step = self.last[part, number] = PathStep(cause_of(part, self.serving), end, before or self.service)
        return step

    def _gives_back(self, cta: Cta, work: Work) -> None:
        lock = self._sm(cta).lock
        if isinstance(work, Free):
            lock.free(cta, work.columns)
        else:
            lock.relinquish(cta)

    def _sm(self, cta: Cta) -> Sm:
        return self.sms[cta.rank]

    def _resume(self, agent: TimedAgent) -> None:
        agent.time, self.current = max(agent.time, self.now), agent
        blocked = self._step(agent)
        self.current = None
        if agent.warp.cta.stopped:
            return
        agent.since = agent.time
        self.at(agent.time, partial(self._asks if blocked else self._returns, agent), agent.step)

    def _returns(self, agent: TimedAgent) -> None:
        cluster = agent.warp.cta.cluster
        self.agents.pop(agent.warp)
        self.lived += (agent.time - agent.began) * agent.multiplies
        cta = agent.warp.cta
        if not any(warp in self.agents for warp in cta.warps):
            self._sm(cta).lock.leave(cta)
        if not any(warp in self.agents for each in cluster.ctas for warp in each.warps):
            self.left(cluster)

    def _asks(self, agent: TimedAgent) -> None:
        """Test a warp's wait; if the wait is not over, the warp keeps waiting."""
        wait = agent.wait
        assert wait is not None
        if wait.ready():
            self.tell.stood(agent.warp, wait.location, _awaited(agent), agent.since, agent.time)
            if agent.multiplies and agent.work is not None:
                self._stood[agent.work.instruction, wait.barrier or ""] += agent.time - agent.since
            if self.step is not agent.step and agent.time > agent.since and self.step is not None:
                agent.step = PathStep(WAKES, agent.time, self.step)
            self.at(agent.time, partial(self._resume, agent), agent.step)
        else:
            self.standing.setdefault(wait.source, []).append(agent)

    @property
    def stood(self) -> dict[Stand, float]:
        """Cycles that warps with MMAs waited, together, by wait."""
        found: dict[Stand, float] = defaultdict(float)
        for (instruction, what), cycles in self._stood.items():
            barrier = "" if isinstance(what, str) else base_name(what)
            teller = what if isinstance(what, str) else self.tellers.get(what, "")
            found[Stand(instruction.location, barrier, teller)] += cycles
        return found

    def _ask_again(self, source: Any) -> None:
        """Test the waits for this source again."""
        for agent in self.standing.pop(source, ()):
            agent.time = max(agent.time, self.now + self.waking)
            self._asks(agent)

    # operations

    def start(self, op: AsyncOperation) -> None:
        agent = self.current
        assert agent is not None and isinstance(agent.work, Service)
        self.in_flight(op.cta)[op] = None
        work = agent.work
        if work.skips:
            op.complete, op.read_phase = lambda: True, None
        if work.at_once:
            self.serving, self.service = op, agent.step
            self.ends[op] = work.serve(self._sm(op.cta), self._latest(op, agent.time))
            self.steps[op] = self._trip(op, self.ends[op][1])
        else:
            self.queue[op] = None
            self.at(agent.time, partial(self._serve, op, work))

    def _latest(self, op: AsyncOperation, time: float) -> float:
        """Return the cycle by which all warps that issue the operation together have done so."""
        meeting: Rendezvous | None = getattr(op, "meeting", None)
        if meeting is None:
            return time
        return max(time, *(self.agents[op.cta.warps[index]].time for index in meeting.brought))

    def _serve(self, op: AsyncOperation, work: Service) -> None:
        sm, self.serving, self.service = self._sm(op.cta), op, self.step
        if isinstance(work, Commit):
            sm.end_chain()
            step = self._covered(op)
            end = self.now if step is None else max(self.now, step.end)
        else:
            end = self._served_once(op, work, sm)
            step = self._trip(op, end)
        self.ends[op], self.works[op] = (self.now, end), work
        if step is not None:
            self.steps[op] = step
        self.at(end, partial(self._complete, op), step)

    def _covered(self, op: AsyncOperation) -> PathStep | None:
        """Return the last step of a commit's operations, if it is not over."""
        steps = [self.steps[each] for each in op.covers if each in self.steps]
        return max((step for step in steps if step.end > self.now), key=lambda step: step.end, default=self.step)

    def _trip(self, op: AsyncOperation, end: float) -> PathStep:
        """Return the step of an operation's latency after all parts have served it."""
        return PathStep(cause_of(TRIP, op), end, self.service)

    def _served_once(self, op: AsyncOperation, work: Service, sm: Sm) -> float:
        """Return an operation's end. The requesting SM serves a multicast once, and each copy arrives."""
        copy = self.now, op.warp, work
        if self._served is None or self._served[:3] != copy:
            self._served = *copy, work.serve(self._sm(op.warp.cta), self._comes(op, work))[1], self.service
        end, self.service = self._served[3:]
        return end if op.cta is op.warp.cta else work.arrive(sm, self._comes(op, work), end)

    def _comes(self, op: AsyncOperation, work: Service) -> float:
        """Return the time at which the operation reaches its server."""
        return self.now

    def _complete(self, op: AsyncOperation) -> None:
        work = self.works.pop(op, None)
        self.waking = 0.0 if isinstance(work, Commit) else self.figures.wake_cycles
        if op.barrier is not None:
            self.tellers[op.barrier] = op.name
        super()._complete(op)
        self.waking = 0.0

    def wait_for(self, op: AsyncOperation, warp: Warp, instruction: Instruction, reads: bool = False) -> None:
        agent = self.agents[warp]
        free, end = self.ends.get(op, (0.0, 0.0))
        sooner = reads or (self.until_read and "store" in op.name)
        over = max(agent.time, free if sooner else end)
        if agent.multiplies:
            self._stood[instruction, op.name] += over - agent.time
        self.tell.stood(warp, instruction.location, op.name, agent.time, over)
        if over > agent.time:
            agent.step = PathStep(cause_of(TRIP, op), over, agent.step) if sooner else self.steps[op]
        agent.time = agent.since = over
        super().wait_for(op, warp, instruction, reads)

    def settle(self, op: AsyncOperation) -> None:
        for each in (*op.covers, op):
            self.ends.pop(each, None)
            self.steps.pop(each, None)
        super().settle(op)

    # mbarriers

    def arrive(self, barrier: Mbarrier, count: int, location: Location | None) -> None:
        self._tell(barrier, partial(super().arrive, barrier, count, location))

    def expect_tx(self, barrier: Mbarrier, count_bytes: int, location: Location | None) -> None:
        self._tell(barrier, partial(super().expect_tx, barrier, count_bytes, location))

    def _tell(self, barrier: Mbarrier, tell: Callable[[], None]) -> None:
        """Signal an mbarrier at the cycle of the running warp; to another CTA it takes longer."""
        agent = self.current
        if agent is None:
            tell()
            return
        away = self.figures.remote_cycles if barrier.cta is not agent.warp.cta else 0.0
        self.at(agent.time + away, partial(self._told, tell))

    def _told(self, tell: Callable[[], None]) -> None:
        self.waking = self.figures.wake_cycles
        tell()
        self.waking = 0.0

    def _ended(self, barrier: Mbarrier, phase: int) -> None:
        super()._ended(barrier, phase)
        self.changed.clear()
        self._ask_again(barrier)

    def passed(self, barrier: Mbarrier, parity: int) -> bool:
        """Return True if a phase has ended; False while a warp is ahead of the clock."""
        return self.current is None and super().passed(barrier, parity)

    # threads

    def _open(self, meeting: Rendezvous, ctas: Iterable[Cta]) -> None:
        agent, every = self.current, tuple(ctas)
        if agent is None:  # a warp has returned
            self._opens(meeting)
            return
        warps = [each if isinstance(each, Warp) else every[0].warps[each] for each in meeting.brought]
        last = max((self.agents[warp] for warp in warps if warp in self.agents), key=lambda each: each.time)
        latest = last.time
        if isinstance(agent.work, Allocate) and not isinstance(next(iter(meeting.brought)), Warp):
            self.at(latest, partial(self._allocates, every[0], agent.work, meeting), last.step)
        else:
            over = latest + self._meeting_cycles(agent.work, len(warps), len(every))
            self.at(over, partial(self._opens, meeting), self._met(last, agent.work, over))

    def _met(self, last: TimedAgent, work: Work | None, over: float) -> PathStep:
        """Return the step of the warp that came last to a meeting."""
        if work is None or over <= last.time:
            return last.step
        return PathStep(cause_of(EXECUTES, work.instruction), over, last.step)

    def _meeting_cycles(self, work: Work | None, warps: int, ctas: int) -> float:
        if work is not None and work.free:
            return 0.0
        if work is not None and work.instruction.name == "cluster.sync":
            return self.figures.cluster_sync_cycles if ctas > 1 else self._sync_cycles(warps)
        if isinstance(work, Service):  # a warpgroup's warps start it together
            return 0.0
        return self.figures.remote_cycles if ctas > 1 else self._sync_cycles(warps)

    def _sync_cycles(self, warps: int) -> float:
        return self.figures.sync_cycles + self.figures.sync_warp_cycles * warps

    def _allocates(self, cta: Cta, work: Allocate, meeting: Rendezvous) -> None:
        def granted(again: bool) -> None:
            took = self.figures.alloc_again_cycles if again else self.figures.alloc_cycles
            over = self.now + took
            self.at(
                over, partial(self._opens, meeting), PathStep(cause_of(EXECUTES, work.instruction), over, self.step)
            )

        self._sm(cta).lock.request(cta, work.columns, granted)

    def _opens(self, meeting: Rendezvous) -> None:
        meeting.over = True
        self._ask_again(meeting)


def base_name(barrier: Mbarrier) -> str:
    """Return the barrier's name without its index."""
    return barrier.name.rpartition("[")[0] or barrier.name


def _awaited(agent: TimedAgent) -> str:
    barrier = None if agent.wait is None else agent.wait.barrier
    if barrier is None:
        return "other warps"
    return barrier.name if barrier.cta is agent.warp.cta else str(barrier)


def timed(call: Callable[..., Any], work: Work, inst: Any, given: frozenset[str] | None) -> Callable[..., Any]:
    """Return an instruction, wrapped so that it reports its warps to the engine. given: tensors that are only read;
    None: assume coalesced lanes."""
    if isinstance(work, Service):
        rows = RowsOf(work) if isinstance(work, Load) and work.pitch_bytes is None else None

        def issue(warp: Warp, *operands: Any) -> Any:
            asked = work if rows is None else rows.at(operands)
            warp.cta.engine.executes(warp, asked)
            result = call(warp, *operands)
            warp.cta.engine.executed(warp, asked)
            return result

        return issue
    if isinstance(work, MoveLines) and given is not None:
        return _moves_lines(call, SectorsOf(inst, work, given))
    moves, multiplies = work.instruction.name in MOVES, isinstance(work, MultiplySync)

    def run(warp: Warp, *operands: Any) -> Any:
        warp.cta.engine.executes(warp, work)
        if multiplies:
            return operands[2]  # the accumulator stands for the sum
        return None if moves else call(warp, *operands)

    return run


def _moves_lines(call: Callable[..., Any], lines: SectorsOf) -> Callable[..., Any]:
    stores = not lines.work.returns

    def run(warp: Warp, *operands: Any) -> Any:
        warp.cta.engine.executes(warp, lines.at(warp, operands))
        return None if stores else call(warp, *operands)

    return run


MOVES = frozenset({"store_shared", "store_global"})
"""Instructions that only move values, and have no result."""
