"""Happens-before: what orders what, kept up as the kernel runs.

The semantics of instructions tell this object of accesses, issues, completions, arrivals, waits, fences and barriers;
it knows no instruction by name. What an access is (space, proxy, when) comes from the instruction's description.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.findings import Severity
from blackwell_matmul.simulator.machine.cta import Weak
from blackwell_matmul.simulator.machine.memory import Region, Storage
from blackwell_matmul.simulator.machine.registers import WARP, ThreadGroup
from blackwell_matmul.simulator.order.diagnosis import Diagnosis
from blackwell_matmul.simulator.order.frontier import Events, Frontier, Lanes, union
from blackwell_matmul.simulator.order.shadow import Access, Shadow, covers
from blackwell_matmul.simulator.semantics.description import Access as Kind
from blackwell_matmul.simulator.semantics.description import Description, Effect, Space
from blackwell_matmul.simulator.semantics.description import Lanes as Who

if TYPE_CHECKING:
    from blackwell_matmul.simulator.engine import AsyncOperation
    from blackwell_matmul.simulator.machine.cta import Cta, LastWait, Mbarrier, Warp


class Place(Protocol):
    """Where an instruction stands in the program: a `Site`, or what is like one."""

    @property
    def description(self) -> Description: ...

    @property
    def group(self) -> ThreadGroup: ...

    @property
    def location(self) -> Location | None: ...


class EarlyRead(NamedTuple):
    """A read of on-chip memory that nothing had written. writer: the operation that came to write it later. wait: the
    last one of the warp, on a barrier of this name."""

    warp: Warp
    site: Place
    lanes: Lanes
    effect: Effect
    region: Region
    wait: tuple[str, LastWait] | None
    writer: AsyncOperation | None = None


SWEEP_AT = 512
"""Events that exist at once before those that nothing refers to are given out again."""

ALL, ELECTED = "", "the elected lane"
EVERY = -1
"""A mask of all events."""


class HappensBefore:
    """The order of one run of some CTAs."""

    def __init__(self) -> None:
        self.events = Events()
        self.sweep_at = SWEEP_AT
        self.shadows: dict[Storage, Shadow] = {}
        self.lanes: dict[Warp, dict[Any, Lanes]] = {}
        self.actors: dict[tuple[Warp, Place], Lanes] = {}  # who executes what, once asked
        self.others: list[Frontier] = []  # of barriers and semaphores
        self.semaphores: dict[int, Frontier] = {}
        self.ctas: list[Cta] = []
        self.early: dict[tuple[Place, Storage], EarlyRead] = {}
        self.started: dict[Cta, int] = {}  # of a cluster of several: its mbarriers are initialised
        self.reaching: dict[tuple[Place, Lanes, Cta], int] = {}  # events that the CTA is to know of before it exits
        self.stored = 0  # events with stores of threads, which another CTA sees only if somebody makes sure of it
        self.turn = 0  # counts issues and waits
        self.diagnosis = Diagnosis(self)

    # who acts

    def enter(self, cta: Cta) -> None:
        self.ctas.append(cta)
        for warp in cta.warps:
            self.lanes[warp] = {ALL: Lanes(cta, warp.index, ALL), ELECTED: Lanes(cta, warp.index, ELECTED)}
        if math.prod(cta.cluster.shape) > 1:
            self.started[cta] = self._new_event()
            for lanes in self._lanes_of(cta):
                lanes.learn(self.started[cta])

    def _lanes_of(self, cta: Cta) -> Iterator[Lanes]:
        return (lanes for warp in cta.warps for lanes in self.lanes[warp].values())

    def acting(self, warp: Warp, site: Place) -> Lanes:
        """The lanes that execute the instruction at `site`."""
        lanes = self.actors.get((warp, site))
        if lanes is None:
            lanes = self.actors[warp, site] = self._acting(warp, site)
        return lanes

    def _acting(self, warp: Warp, site: Place) -> Lanes:
        if site.description.lanes is Who.ELECTED:
            return self.lanes[warp][ELECTED]
        name = _lanes_name(site.group, warp.index)
        return self.lanes[warp].get(name) or self._part(warp, name)

    def _part(self, warp: Warp, name: str) -> Lanes:
        """A part of a warp that has not acted before knows what each lane was told, and not what other lanes did."""
        part = Lanes(warp.cta, warp.index, name)
        part.join(self.lanes[warp][ALL])
        part.keep(self.lanes[warp][ELECTED])
        self.lanes[warp][name] = part
        return part

    def _each(self, warp: Warp, lanes: Lanes) -> Iterable[Lanes]:
        """These lanes, and those among them that also act apart."""
        return self.lanes[warp].values() if lanes.name == ALL else (lanes,)

    # accesses

    def access(self, warp: Warp, site: Place, effect: Effect, region: Region) -> None:
        """An access that is over when its instruction is."""
        lanes = self.acting(warp, site)
        write = effect.access is Kind.WRITE
        event = self._own(lanes, write)
        known = getattr(lanes, effect.path) | event
        _, racing = self._record(region, write, event, known, (site, lanes))
        for other in racing:
            if self.diagnosis.report(warp, site, lanes, effect, region, other) is Severity.UNGUARANTEED:
                _assume(lanes, effect.path, other.event)

    def _own(self, lanes: Lanes, write: bool) -> int:
        """The event of their accesses. In a cluster stores have one of their own: `stored` is about those alone."""
        if self.started and bool(lanes.own & self.stored) is not write:
            lanes.own = 0
        event = lanes.own or self._begin(lanes)
        if write and self.started:
            self.stored |= event
        return event

    def _begin(self, lanes: Lanes) -> int:
        event = lanes.own = self._new_event()
        lanes.generic |= event
        lanes.tensor |= event
        return event

    def _record(self, region: Region, write: bool, event: int, known: int, who: Any) -> tuple[int, list[Access]]:
        """The events that the access was ordered after, and the accesses that it races with."""
        storage = region.storage
        shadow = self.shadows.get(storage)
        if shadow is None:
            shadow = self.shadows[storage] = Shadow()
        seen, racing = shadow.record(region, write, event, known, who)
        for relative in storage.family:
            if relative is not storage and relative in self.shadows:
                more, found = self.shadows[relative].elsewhere(region, write, known)
                seen, racing = seen | more, racing + found
        return seen, racing

    def read_too_early(self, warp: Warp, site: Place, effect: Effect, region: Region) -> None:
        """Nothing had written it: whoever does so later was meant to come first."""
        if (site, region.storage) not in self.early:
            waits = [(b.name, b.waits[warp.index]) for b in warp.cta.barriers.values() if warp.index in b.waits]
            wait = max(waits, key=lambda wait: wait[1].turn, default=None)
            read = EarlyRead(warp, site, self.acting(warp, site), effect, region, wait)
            self.early[site, region.storage] = read

    def _meets_early(self, op: AsyncOperation, region: Region) -> None:
        for key, read in self.early.items():
            itself = op.lanes is read.lanes and op.location == read.site.location
            if read.writer is None and not itself and key[1] is region.storage and read.region.meets(region):
                self.early[key] = read._replace(writer=op)

    def finish(self) -> None:
        """Every warp has returned or waits for ever: now it is known what would have told of each operation."""
        for read in self.early.values():
            self.diagnosis.too_early(read)
        self.early.clear()

    def close(self) -> None:
        """Break the cycles through this object, so that what it knows of is free now."""
        self.ctas.clear()
        self.started.clear()
        self.reaching.clear()
        self.lanes.clear()
        self.actors.clear()
        self.shadows.clear()

    def freed(self, region: Region) -> None:
        """The memory is nobody's any more; what was done to it cannot race with what its next owner does."""
        shadow = self.shadows.get(region.storage)
        if shadow is not None:
            shadow.drop(lambda access: covers(region.box, access.box))

    # asynchronous operations

    def issue(self, op: AsyncOperation, warp: Warp, site: Place, regions: Mapping[str, Region]) -> None:
        """An operation starts: it happens after what its issuer knows now, and before nothing until it is waited for.

        op.event: its end. op.source: the end of its reads, where that is told apart (bulk stores). op.after: what it
        was ordered after where it reads and writes; whoever learns of its end learns of that too.
        """
        lanes = op.lanes = self.acting(warp, site)
        op.generic = site.description.generic
        op.steps = lanes.steps
        self.turn += 1
        op.turn = self.turn
        if not regions:  # a commit: it ends when all that its thread issued before has
            op.after = lanes.issued
            return
        op.event = self._new_event()
        op.source = self._new_event() if op.read_phase is not None else op.event
        self._touches(op, warp, site, lanes, regions)
        if op.pipe is not None:
            lanes.issued |= op.event | op.after

    def join(self, op: AsyncOperation, warp: Warp, site: Place, regions: Mapping[str, Region]) -> None:
        """Another warp takes part in an operation of its warpgroup, which must be ordered after what it knows too."""
        lanes = self.acting(warp, site)
        op.steps |= lanes.steps
        self._touches(op, warp, site, lanes, regions)

    def _touches(
        self, op: AsyncOperation, warp: Warp, site: Place, lanes: Lanes, regions: Mapping[str, Region]
    ) -> None:
        for effect in site.description.effects:
            region = regions.get(effect.operand)
            if region is not None and not region.storage.constant:
                self._touch(op, warp, site, lanes, effect, region)

    def _touch(self, op: AsyncOperation, warp: Warp, site: Place, lanes: Lanes, effect: Effect, region: Region) -> None:
        write, known = effect.access is Kind.WRITE, getattr(lanes, effect.path) | op.source | op.event
        if op.pipe is not None and effect.space is Space.TENSOR:
            known |= lanes.issued
        seen, racing = self._record(region, write, op.event if write else op.source, known, op)
        op.after |= seen & ~(op.source | op.event)
        if write and self.early:
            self._meets_early(op, region)
        for other in racing:
            if self.diagnosis.report(warp, site, lanes, effect, region, other) is Severity.UNGUARANTEED:
                op.after |= other.event  # it holds on today's hardware: report it once, and not all that follows

    def waited(self, warp: Warp, site: Place, op: AsyncOperation, source: bool = False) -> None:
        """The lanes waited for an operation of their own; `source`: for its reads alone."""
        events = op.after | op.source | (0 if source else op.event)
        for lanes in self._each(warp, self.acting(warp, site)):
            lanes.steps |= op.steps
            if op.generic:  # cp.async writes as its thread would
                lanes.generic |= events
            else:
                lanes.learn(events)

    # other CTAs of the cluster

    def tells(self, op: AsyncOperation, barrier: Mbarrier, warp: Warp, site: Place) -> None:
        """An operation of this warp will tell an mbarrier of another CTA."""
        op.event = op.event or self._new_event()  # a commit has no accesses
        op.steps |= op.event
        self._reach(warp, site, barrier.cta, op.event)

    def signals(self, barrier: Mbarrier, warp: Warp, site: Place) -> None:
        """The lanes are about to arrive on an mbarrier of another CTA."""
        event = self._new_event()
        self.acting(warp, site).steps |= event
        self._reach(warp, site, barrier.cta, event)

    def _reach(self, warp: Warp, site: Place, cta: Cta, event: int) -> None:
        lanes = self.acting(warp, site)
        if not lanes.generic & self.started[cta]:
            self.diagnosis.not_started(warp, site, lanes, cta)
        self.reaching[site, lanes, cta] = self.reaching.get((site, lanes, cta), 0) | event

    def exits(self, cta: Cta) -> None:
        """The CTA has exited: what reaches into it must be over, and some warp of it must know (CUDA Programming Guide,
        "Distributed Shared Memory": a CTA must not exit while others access its shared memory)."""
        self._forget_reached()
        for (site, lanes, reached), events in self.reaching.items():
            if events and reached is cta:
                self.diagnosis.exits_before(site, lanes, cta)

    def _forget_reached(self) -> None:
        """What a CTA knows of will be over when it exits."""
        known = {cta: union(self._lanes_of(cta)).steps for _, _, cta in self.reaching}
        self.reaching = {key: events & ~known[key[2]] for key, events in self.reaching.items()}

    # synchronisation

    def arrive(self, barrier: Mbarrier, warp: Warp, site: Place, release: str) -> None:
        """The arriving lanes publish what they know, each lane its own (PTX ISA, mbarrier.arrive: .release), to the CTA
        or the cluster: `release` is the scope, "" if relaxed.

        A relaxed arrival publishes tensor memory alone (PTX ISA, "tcgen05 Memory Consistency Model": together with
        tcgen05.fence::before_thread_sync).
        """
        lanes, afar = self.acting(warp, site), barrier.cta is not warp.cta
        wide = release == "cluster" or (release != "" and not afar)
        for each in self._each(warp, lanes):
            barrier.coming.tensor |= each.tensor
            barrier.coming.steps |= each.steps
            if release and afar:
                self._tell(barrier.coming, each, ~self.stored)
            if not wide:
                self._tell(barrier.loose, each, self.stored if release else EVERY)
        if wide:
            self._publish(barrier.coming_afar if afar else barrier.coming, self._each(warp, lanes))
        else:
            barrier.loosened = Weak(site.location, release)
        barrier.last = site.location
        if lanes.name:
            barrier.alone[warp.cta, warp.index] = site.location

    @staticmethod
    def _tell(frontier: Frontier, lanes: Lanes, events: int) -> None:
        """Publish these events, of those that the lanes know.

        A scope that leaves out one of two CTAs orders nothing between them (PTX ISA, "Morally strong operations"). What
        is over is over on today's hardware all the same, except for stores, which may be on their way.
        """
        frontier.generic |= lanes.generic & events
        frontier.shared |= lanes.shared & events
        frontier.global_ |= lanes.global_ & events
        lanes.own = 0

    def passed(self, barrier: Mbarrier, warp: Warp, site: Place, acquire: str) -> None:
        """The lanes saw that a phase is over. acquire: from the CTA or from the cluster; "" if the wait is relaxed.

        A relaxed wait orders tensor memory alone (PTX ISA, "tcgen05 Memory Consistency Model": together with
        tcgen05.fence::after_thread_sync, which the compiler adds).
        """
        event, acting = self._new_event(), self.acting(warp, site)
        for lanes in self._each(warp, acting):
            if acquire:
                lanes.join(barrier.past)
                if acquire == "cluster":
                    lanes.join(barrier.past_afar)
            else:
                lanes.tensor |= barrier.past.tensor
                lanes.steps |= barrier.past.steps
            lanes.steps |= event
        if acquire != "cluster":
            left = (barrier.past.generic | barrier.past_afar.generic) & ~acting.generic
            barrier.relaxed[warp.index] = Weak(site.location, acquire, left)
        self.turn += 1
        barrier.waited(warp.index, site.location, self.turn, event)

    def completes(self, barrier: Mbarrier) -> None:
        """A phase ends. Whoever waited for the one before must be known to have done so: else the parity that it waits
        for may come back before it looks (PTX ISA, mbarrier.try_wait.parity: the current or the preceding phase)."""
        for warp, wait in barrier.waits.items():
            if wait.phase == barrier.phase - 1 and not barrier.coming.steps & wait.event:
                self.diagnosis.overrun(barrier, warp, wait)

    def meet(self, warps: Iterable[Warp]) -> None:
        """A barrier of all lanes of these warps (bar.sync, bar.warp.sync): each learns what any of them knows."""
        everybody = [lanes for warp in warps for lanes in self.lanes[warp].values()]
        whole = union(everybody)
        for lanes in everybody:
            lanes.generic, lanes.shared = whole.generic, whole.shared
            lanes.global_, lanes.tensor, lanes.steps = whole.global_, whole.tensor, whole.steps
            lanes.own = 0

    def fence_proxy(self, warp: Warp, site: Place, shared: bool, global_: bool) -> None:
        """fence.proxy.async: what is ordered for the generic proxy is from now on ordered for the async proxy too."""
        for lanes in self._each(warp, self.acting(warp, site)):
            if shared:
                lanes.shared |= lanes.generic
            if global_:
                lanes.global_ |= lanes.generic
            lanes.own = 0  # what follows is not covered

    def release(self, address: int, warp: Warp) -> None:
        """st.release by one thread to a semaphore in global memory."""
        if address not in self.semaphores:
            self.semaphores[address] = Frontier()
            self.others.append(self.semaphores[address])
        self._publish(self.semaphores[address], (self.lanes[warp][ELECTED],))

    def acquire(self, address: int, warp: Warp) -> None:
        """ld.acquire of a semaphore that has the awaited value, by the lanes that spin on it."""
        if address in self.semaphores:
            for lanes in self.lanes[warp].values():
                lanes.join(self.semaphores[address])

    @staticmethod
    def _publish(frontier: Frontier, lanes: Iterable[Lanes]) -> None:
        for each in lanes:
            frontier.join(each)
            each.own = 0  # what follows is not published

    # bounded memory

    def _new_event(self) -> int:
        if self.events.live >= self.sweep_at:
            self._sweep()
        return self.events.new()

    def _sweep(self) -> None:
        """Give events out again to which no access, no agent and no operation refers."""
        everybody = [lanes for warp in self.lanes.values() for lanes in warp.values()]
        common = -1
        for lanes in everybody:
            common &= lanes.generic & lanes.shared & lanes.global_ & lanes.tensor
        self._forget_reached()
        kept = 0
        for event in (*self.started.values(), *self.reaching.values()):
            kept |= event
        for lanes in everybody:
            kept |= lanes.own
        barriers = [barrier for cta in self.ctas for barrier in cta.barriers.values()]
        for barrier in barriers:
            for wait in barrier.waits.values():
                kept |= wait.event
        operations = [each for cta in self.ctas for op in cta.in_flight for each in (*op.covers, op)]
        for op in operations:
            kept |= op.event | op.source
        common &= ~kept
        for shadow in self.shadows.values():
            shadow.drop(lambda access: bool(access.event & common))
            kept |= shadow.events()
        for frontier in (*everybody, *self.others):
            frontier.forget(kept)
        for barrier in barriers:
            barrier.relaxed = {warp: weak._replace(left=weak.left & kept) for warp, weak in barrier.relaxed.items()}
        self.stored &= kept
        for op in operations:
            op.after &= kept
            op.steps &= kept
        self.events.sweep(kept)
        self.sweep_at = max(SWEEP_AT, 2 * self.events.live)


def _assume(lanes: Lanes, path: str, events: int) -> None:
    """An order that holds on today's hardware, though nothing guarantees it."""
    setattr(lanes, path, getattr(lanes, path) | events)


def _lanes_name(group: ThreadGroup, warp: int) -> str:
    lane, count = group.lanes(warp)
    if count == WARP:
        return ALL
    if count == 1 and (group.elected or lane == 0):
        return ELECTED
    return f"lane {lane}" if count == 1 else f"lanes {lane}..{lane + count - 1}"
