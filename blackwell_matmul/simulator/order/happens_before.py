"""The happens-before order of a run, updated with each event.

The listener hears of accesses, issues, completions, arrivals, waits, fences and barriers. It knows no instruction by
name: space, proxy and time of an access come from the instruction's description.
"""

from __future__ import annotations

import functools
import math
import operator
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import Any

import numpy as np

from blackwell_matmul.simulator.description import Access, Effect, ExecutedBy, Instruction, Space
from blackwell_matmul.simulator.findings import Severity
from blackwell_matmul.simulator.listener import Listener
from blackwell_matmul.simulator.machine.barrier import Mbarrier, barriers_of
from blackwell_matmul.simulator.machine.cta import Cta, Warp
from blackwell_matmul.simulator.machine.global_memory import Semaphore
from blackwell_matmul.simulator.machine.memory import Region, Storage
from blackwell_matmul.simulator.machine.operation import AsyncOperation
from blackwell_matmul.simulator.machine.registers import WARP, ThreadGroup
from blackwell_matmul.simulator.order.diagnosis import Diagnosis, EarlyRead
from blackwell_matmul.simulator.order.drains import Drains
from blackwell_matmul.simulator.order.frontier import Events, Frontier, Lanes, union
from blackwell_matmul.simulator.order.initialised import Initialised
from blackwell_matmul.simulator.order.knowledge import (
    Carried,
    LastWait,
    NotTheirs,
    Operation,
    SemaphoreRelease,
    SemaphoreWait,
    Weak,
    left_by,
)
from blackwell_matmul.simulator.order.lines import ProgramLines
from blackwell_matmul.simulator.order.missing.within_warps import WithinWarps
from blackwell_matmul.simulator.order.register_use import RegisterUse
from blackwell_matmul.simulator.order.shadow import PastAccess, Shadow, covers
from blackwell_matmul.simulator.order.warpgroups import Warpgroups

SWEEP_AT = 512
"""Number of existing events at which unused ones are freed for reuse."""

TURNS = 16
"""Number of releases of one semaphore that a diagnosis searches, as several CTAs may have released it in turn."""

ALL, ELECTED = "", "the elected lane"
EVERY = -1
"""A mask of all events."""


class HappensBefore(Listener):
    """The happens-before order of one run of some CTAs."""

    def __init__(self, lines: ProgramLines) -> None:
        self.events = Events()
        self.sweep_at = SWEEP_AT
        self.shadows: dict[Storage, Shadow] = {}
        self.initialised: dict[Storage, Initialised] = {}
        self.lanes: dict[Warp, dict[Any, Lanes]] = {}
        self.actors: dict[tuple[Warp, Instruction], Lanes] = {}  # who executes what, once asked
        self.carried: dict[Mbarrier, Carried] = {}
        self.operations: dict[AsyncOperation, Operation] = {}  # in flight
        self.semaphores: dict[int, Frontier] = {}
        self.releases: dict[int, deque[SemaphoreRelease]] = {}  # the last ones of each semaphore
        self.released_by: set[tuple[Cta, int]] = set()  # with the semaphore's address
        self.locks: deque[SemaphoreWait] = deque(maxlen=4 * TURNS)  # the last ones that are over
        self.early: dict[tuple[Instruction, Storage], EarlyRead] = {}
        self.beginnings: dict[Cta, int] = {}  # of a cluster of several: its mbarriers are initialised
        self.allocations: dict[Cta, int] = {}  # those of tensor memory for a pair, by each CTA
        self.reaching: dict[tuple[Instruction, Lanes, Cta], int] = {}  # what the CTA is to know of before it exits
        self.threads = 0  # events of what threads access: another CTA knows of it only if somebody makes sure of it
        self.turn = 0  # counts issues, waits and arrivals
        self.rounds: Counter[tuple[Warp, Instruction]] = Counter()  # how often each has issued each
        self.committed_at: dict[Warp, int] = {}  # the turn of its last commit of a group
        self.waited_at: dict[Warp, Instruction] = {}  # its last wait for operations of its own
        self.warpgroups = Warpgroups()
        self.registers = RegisterUse(self.warpgroups)
        self.drains = Drains()
        self.within_warps = WithinWarps()
        self.diagnosis = Diagnosis(self, lines)

    # who acts

    def started(self, cta: Cta) -> None:
        for warp in cta.warps:
            self.lanes[warp] = {ALL: Lanes(warp, ALL), ELECTED: Lanes(warp, ELECTED)}
        if math.prod(cta.cluster.shape) > 1:
            self.beginnings[cta] = self._new_event()
            for lanes in self._lanes_of(cta):
                lanes.learn(self.beginnings[cta])

    def _lanes_of(self, cta: Cta) -> Iterator[Lanes]:
        return (lanes for warp in cta.warps for lanes in self.lanes[warp].values())

    def acting(self, warp: Warp, instruction: Instruction) -> Lanes:
        """Return the lanes that execute the instruction."""
        lanes = self.actors.get((warp, instruction))
        if lanes is None:
            lanes = self.actors[warp, instruction] = self._acting(warp, instruction)
        return lanes

    def _acting(self, warp: Warp, instruction: Instruction) -> Lanes:
        group = instruction.group
        if instruction.description.lanes is ExecutedBy.ELECTED:
            group = group.first_of(warp.index)
        name = _lanes_name(group, warp.index)
        return self.lanes[warp].get(name) or self._part(warp, name)

    def _part(self, warp: Warp, name: str) -> Lanes:
        """Return lanes that have not acted separately before. Their frontier has the events that the whole warp has
        observed."""
        part = Lanes(warp, name)
        part.join(self.lanes[warp][ALL])
        part.keep(self.lanes[warp][ELECTED])
        self.lanes[warp][name] = part
        return part

    def _each(self, warp: Warp, lanes: Lanes) -> Iterable[Lanes]:
        """Return these lanes, and the parts of them that also act separately."""
        return self.lanes[warp].values() if lanes.name == ALL else (lanes,)

    # accesses

    def accessed(self, warp: Warp, instruction: Instruction, effect: Effect, region: Region) -> None:
        if region.storage.constant:
            return
        lanes = self.acting(warp, instruction)
        write = effect.access is Access.WRITE
        event = self._own(lanes)
        known = getattr(lanes, effect.path) | event
        _, racing = self._record(region, write, event, known, (instruction, lanes))
        for other in racing:
            if self.diagnosis.report(warp, instruction, lanes, effect, region, other) is Severity.UNGUARANTEED:
                self._assume(warp, lanes, effect.path, other)
        self.within_warps.accessed(lanes, instruction, region, write)
        if not write:
            self._look_for_unwritten(warp, instruction, effect, region, {})
        elif not instruction.description.conflict:
            self._initialised(region.storage).mark(region)

    def _assume(self, warp: Warp, acting: Lanes, path: str, other: PastAccess) -> None:
        """Assume an order that today's hardware keeps, although PTX does not promise it."""
        for lanes in self._each(warp, acting):
            if isinstance(other.who, Operation) and not other.who.instruction.description.generic:
                lanes.learn(other.event)
            else:
                setattr(lanes, path, getattr(lanes, path) | other.event)

    def _own(self, lanes: Lanes) -> int:
        """Return the event of the lanes' own accesses."""
        if not lanes.own:
            event = lanes.own = self._new_event()
            lanes.generic |= event
            lanes.tensor |= event
            self._by_threads(event)
        return lanes.own

    def _by_threads(self, event: int) -> None:
        if self.beginnings:
            self.threads |= event

    def _record(self, region: Region, write: bool, event: int, known: int, who: Any) -> tuple[int, list[PastAccess]]:
        """Return the events that the access is ordered after, and the accesses that race with it."""
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

    def freed(self, region: Region) -> None:
        """Drop all accesses to freed memory: they cannot race with accesses of the next owner."""
        shadow = self.shadows.get(region.storage)
        if shadow is not None:
            shadow.drop(lambda access: covers(region.box, access.box))

    def allocated(self, region: Region) -> None:
        self.freed(region)
        self._initialised(region.storage).forget(region.box)

    # what nothing has written

    def _initialised(self, storage: Storage) -> Initialised:
        found = self.initialised.get(storage)
        if found is None:
            found = self.initialised[storage] = Initialised(storage)
        return found

    def _look_for_unwritten(
        self,
        warp: Warp,
        instruction: Instruction,
        effect: Effect,
        region: Region,
        regions: Mapping[str, Region],
    ) -> None:
        """Report a read of unwritten memory. regions: those of the instruction's operation. An operation that writes
        the region as well adds to an accumulator."""
        if self._initialised(region.storage).lacks(region):
            written = (each.operand for each in instruction.description.effects if each.access is Access.WRITE)
            adds = any(regions.get(operand) is region for operand in written)
            self.diagnosis.uninitialised(warp, instruction, region, adds)
            self._read_too_early(warp, instruction, effect, region, adds)

    def _read_too_early(self, warp: Warp, instruction: Instruction, effect: Effect, region: Region, adds: bool) -> None:
        """Record a read of unwritten memory. A later writer was meant to come first."""
        if (instruction, region.storage) not in self.early:
            carried = [self.of(barrier) for barrier in barriers_of(warp.cta)]
            waits = [(each.barrier.name, each.waits[warp.index]) for each in carried if warp.index in each.waits]
            wait = max(waits, key=lambda wait: wait[1].turn, default=None)
            read = EarlyRead(warp, instruction, self.acting(warp, instruction), effect, region, wait, adds)
            self.early[instruction, region.storage] = read

    def _meets_early(self, operation: Operation, region: Region, racing: list[PastAccess]) -> None:
        """Record the writer of an early read. A writer that is ordered after a sum was not meant to come first."""
        unordered = [each.instruction for each in racing]
        for key, read in self.early.items():
            itself = operation.lanes is read.lanes and operation.op.location == read.instruction.location
            after = itself or (read.adds and read.instruction not in unordered)
            if read.writer is None and not after and key[1] is region.storage and read.region.meets(region):
                self.early[key] = read._replace(writer=operation)

    def finished(self) -> None:
        """Report the early reads. At the end of the run the signal of each operation is known."""
        for read in self.early.values():
            self.diagnosis.too_early(read)
        self.early.clear()
        self.diagnosis.too_narrow(self.drains)
        self.within_warps.report()

    # asynchronous operations

    def issued(self, op: AsyncOperation, warp: Warp, instruction: Instruction, regions: Mapping[str, Region]) -> None:
        """Start an operation. It happens after everything its issuer has observed. Nothing happens after it until a
        wait."""
        lanes = self.acting(warp, instruction)
        self.turn += 1
        covers = tuple([self.operations[each] for each in op.covers]) if op.covers else ()
        operation = self.operations[op] = Operation(op, instruction, lanes, self.turn, covers)
        operation.round = self.rounds[warp, instruction]
        self.rounds[warp, instruction] += 1
        if op.registers:
            self.registers.issued(operation, warp, instruction)
            self.warpgroups.issued(operation, warp)
        if regions:
            self._look_before(operation, warp, instruction, regions)
            operation.event = self._new_event()
            operation.source = self._new_event() if op.read_phase is not None else operation.event
            self._touches(operation, warp, instruction, lanes, regions)
            self._uses_memory(operation, lanes, instruction)
            if op.pipe is not None:
                lanes.issued |= operation.event | operation.after
                if op.peer is not None:
                    self.drains.issuers.add(warp.cta)
        else:  # a commit: it ends when all that its thread issued before has, other commits among them
            operation.after = lanes.issued
            operation.steps |= lanes.issued
        if op.barrier is not None and op.barrier.cta is not warp.cta:
            self._signals_a_peer(operation, op.barrier, warp, instruction)

    def joined(self, op: AsyncOperation, warp: Warp, instruction: Instruction, regions: Mapping[str, Region]) -> None:
        """Order the operation after everything the other warp has observed, too."""
        lanes, operation = self.acting(warp, instruction), self.operations[op]
        operation.steps |= lanes.steps
        self.registers.issued(operation, warp, instruction)
        self.warpgroups.issued(operation, warp)
        self._look_before(operation, warp, instruction, regions)
        self._touches(operation, warp, instruction, lanes, regions)

    def _look_before(
        self, operation: Operation, warp: Warp, instruction: Instruction, regions: Mapping[str, Region]
    ) -> None:
        for effect in instruction.description.reads_later:
            region = regions.get(effect.operand)
            if region is not None:
                self._look_for_unwritten(warp, instruction, effect, region, regions)

    def _touches(
        self,
        operation: Operation,
        warp: Warp,
        instruction: Instruction,
        lanes: Lanes,
        regions: Mapping[str, Region],
    ) -> None:
        for effect in instruction.description.effects:
            region = regions.get(effect.operand)
            if region is not None and not region.storage.constant:
                self._touch(operation, warp, instruction, lanes, effect, region)

    def _touch(
        self,
        operation: Operation,
        warp: Warp,
        instruction: Instruction,
        lanes: Lanes,
        effect: Effect,
        region: Region,
    ) -> None:
        write, mine = effect.access is Access.WRITE, operation.source | operation.event
        self.within_warps.accessed(lanes, instruction, region, write, operation)
        known = getattr(lanes, effect.path) | mine
        if operation.op.pipe is not None and effect.space is Space.TENSOR and not instruction.description.unpromised:
            known |= self._in_order(lanes, region, write)
        event = operation.event if write else operation.source
        seen, racing = self._record(region, write, event, known, operation)
        operation.after |= seen & ~mine
        of_tensor = effect.space is Space.TENSOR and operation.op.pipe is None
        if of_tensor or instruction.description.generic:
            self._by_threads(event)
        if of_tensor:
            self.drains.touches(lanes, instruction, effect, event)
        if write:
            if self.early:
                self._meets_early(operation, region, racing)
            self._initialised(region.storage).mark(region)
        for other in racing:
            if _copied_before(instruction, lanes, other):
                operation.after |= other.event  # the product in between, which read the copy, is reported
            elif self.diagnosis.report(warp, instruction, lanes, effect, region, other) is Severity.UNGUARANTEED:
                operation.after |= other.event  # it holds on today's hardware: report it once, and not all that follows

    def _in_order(self, lanes: Lanes, region: Region, write: bool) -> int:
        """Return the operations of the lanes that precede a product without a wait. Of the products that share columns
        with it, PTX promises only the order of those on the same accumulator in the same shape (PTX ISA, "tcgen05
        Memory Consistency Model, Pipelined Instructions")."""
        known, shadow = lanes.issued, self.shadows.get(region.storage)
        for access in shadow.near(region.box) if shadow is not None else ():
            if (write or access.write) and access.box != region.box and _multiplies(access.instruction):
                known &= ~access.event
        return known

    def completed(self, op: AsyncOperation, put_off: bool) -> None:
        if op.barrier is not None:
            self.of(op.barrier).signalled_by(self.operations[op])

    def committed(self, warp: Warp, instruction: Instruction, family: str) -> None:
        self.warpgroups.committed(warp, family)
        self.committed_at[warp] = self.turn

    def left_in_flight(
        self, warp: Warp, instruction: Instruction, groups: Sequence[Sequence[AsyncOperation]], n: int, reads: bool
    ) -> None:
        for op, passed in left_by(instruction, groups, n, reads, self.committed_at.get(warp, 0), self.turn):
            self.operations[op].passed = passed

    def passed_over(self, warp: Warp, instruction: Instruction, ops: Sequence[AsyncOperation]) -> None:
        who = str(self.acting(warp, instruction))
        for op in ops:
            operation = self.operations[op]
            operation.passed = NotTheirs(instruction.spoken, instruction.location, who, str(operation.lanes))

    def waited(self, op: AsyncOperation, warp: Warp, instruction: Instruction, reads: bool) -> None:
        operation = self.operations.get(op)
        if operation is None:  # settled with another one
            return
        self.turn += 1
        operation.waited, operation.wait = operation.waited or self.turn, instruction.location
        self.waited_at[warp] = instruction
        if op.registers:
            self.registers.waited(operation, warp)
        ended = operation.source | operation.event
        if reads:  # an operation whose reads have no event of their own has not ended by that
            ended = operation.source & ~operation.event
        events = operation.after | ended
        who = operation.lanes if operation.lanes.warp is warp else self.acting(warp, instruction)
        for lanes in self._each(warp, who):
            lanes.steps |= operation.steps
            if operation.instruction.description.generic:  # cp.async writes as its thread would
                lanes.generic |= events
            else:
                lanes.learn(events)

    def used(self, warp: Warp, instruction: Instruction, registers: np.ndarray, name: str, write: bool) -> None:
        self.registers.used(warp, instruction, registers, name, write)

    def settled(self, op: AsyncOperation) -> None:
        self.operations.pop(op, None)

    # other CTAs of the cluster

    def _signals_a_peer(self, operation: Operation, barrier: Mbarrier, warp: Warp, instruction: Instruction) -> None:
        operation.event = operation.event or self._new_event()  # a commit has no accesses
        operation.steps |= operation.event
        if operation.op.pipe is not None:
            operation.lanes.issued |= operation.event
        self.reaches(warp, instruction, barrier.cta, operation.event)

    def _uses_memory(self, operation: Operation, lanes: Lanes, instruction: Instruction) -> None:
        """Record the CTA whose memory the operation accesses. This CTA must observe the end of the operation before it
        exits."""
        op = operation.op
        afar = op.barrier is not None and op.barrier.cta is not op.cta
        for cta in (op.cta, op.peer) if op.peer is not None else (op.cta,) if afar else ():
            assert cta is not None
            operation.steps |= operation.event
            self._must_know(instruction, lanes, cta, operation.event)

    def pairs(self, warp: Warp, instruction: Instruction, cta: Cta, frees: bool) -> None:
        lanes = self.acting(warp, instruction)
        if frees:
            if self.allocations.get(cta, 0) & ~lanes.generic:
                self.diagnosis.peer_not_allocated(warp, instruction, cta)
            return
        if not lanes.generic & self.beginnings[cta]:
            self.diagnosis.peer_not_started(warp, instruction, cta)
        event = self._new_event()
        self.allocations[warp.cta] = self.allocations.get(warp.cta, 0) | event
        lanes.learn(event)

    def _must_know(self, instruction: Instruction, lanes: Lanes, cta: Cta, event: int) -> None:
        key = instruction, lanes, cta
        self.reaching[key] = self.reaching.get(key, 0) | event

    def reaches(self, warp: Warp, instruction: Instruction, cta: Cta, event: int) -> None:
        """Record an access of the lanes to another CTA. event: the end of the access."""
        lanes = self.acting(warp, instruction)
        if not lanes.generic & self.beginnings[cta]:
            self.diagnosis.not_started(warp, instruction, lanes, cta)
        self._must_know(instruction, lanes, cta, event)

    def exits(self, cta: Cta) -> None:
        """Report accesses to the CTA that have no edge to its exit (CUDA Programming Guide, "Distributed Shared
        Memory": a CTA must not exit while others access its shared memory)."""
        self._forget_reached()
        flying = [each for each in self.operations.values() if each.op.cta is cta]
        in_flight = functools.reduce(operator.or_, (each.event for each in flying), 0)  # these are left in flight
        for (instruction, lanes, reached), events in self.reaching.items():
            if reached is cta and events & (~in_flight if lanes.cta is cta else EVERY):
                self.diagnosis.exits_before(instruction, lanes, cta)
        for left in cta.columns.allocated.values():
            cta.report("tensor-memory-leak", f"{left.name} is still allocated when the CTA exits", left.location)
        for operation in flying:
            self.diagnosis.left_at_exit(operation)

    def exited(self, cta: Cta) -> None:
        for barrier in barriers_of(cta):
            if barrier.tx_bytes:
                self.diagnosis.bytes_at_exit(barrier)

    def closed(self) -> None:
        """Break reference cycles through this object, so that its memory is freed immediately."""
        self.beginnings.clear()
        self.allocations.clear()
        self.reaching.clear()
        self.lanes.clear()
        self.actors.clear()
        self.shadows.clear()
        self.initialised.clear()
        self.carried.clear()
        self.operations.clear()
        self.early.clear()
        self.released_by.clear()
        del self.warpgroups, self.registers, self.drains, self.within_warps, self.diagnosis

    def _forget_reached(self) -> None:
        """Forget accesses to a CTA that the CTA has observed: they are complete when it exits."""
        known = {cta: self.known_steps(cta) for _, _, cta in self.reaching}
        self.reaching = {key: events & ~known[key[2]] for key, events in self.reaching.items()}

    def known_steps(self, cta: Cta) -> int:
        """Return the waits, and the steps of other CTAs, that some warp of the CTA has observed."""
        return union(self._lanes_of(cta)).steps

    # synchronisation

    def of(self, barrier: Mbarrier) -> Carried:
        found = self.carried.get(barrier)
        if found is None:
            found = self.carried[barrier] = Carried(barrier)
        return found

    def arrived(self, barrier: Mbarrier, warp: Warp, instruction: Instruction, scope: str, count_bytes: int) -> None:
        """Release what each arriving lane has observed (PTX ISA, mbarrier.arrive: .release).

        A relaxed arrival releases tensor memory alone (PTX ISA, "tcgen05 Memory Consistency Model": together with
        tcgen05.fence::before_thread_sync). For another CTA the arrival needs cluster scope.
        """
        lanes, afar, carried = self.acting(warp, instruction), barrier.cta is not warp.cta, self.of(barrier)
        self.turn += 1
        carried.arrivals[warp] += 1
        self.warpgroups.arrived(barrier, warp, instruction.location, self.turn, count_bytes > 0)
        if afar:
            self._arrives_in_time(carried, lanes, instruction)
            event = self._new_event()
            lanes.steps |= event
            self.reaches(warp, instruction, barrier.cta, event)
        reaches, coming = not afar or instruction.scope == "cluster", carried.coming_afar if afar else carried.coming
        for each in self._each(warp, lanes):
            carried.coming.steps |= each.steps
            if self.within_warps.recent.get(each):
                event = self._new_event()
                self.within_warps.released(each, event)
                carried.coming.steps |= event
            coming.tensor |= each.tensor if reaches else 0
            if afar:
                self.drains.arrives(barrier, lanes, instruction, each.tensor)
                self._release(carried.coming, each, ~self.threads if scope else 0, ~self.threads)
            if not (scope and reaches):
                self._release(carried.loose, each, self.threads if scope else EVERY, 0 if reaches else self.threads)
        if scope and reaches:
            self._publish(coming, self._each(warp, lanes))
        else:
            carried.loosened = Weak(instruction.location, scope)
        carried.last = instruction.location
        if lanes.name and not count_bytes:
            carried.alone[warp.cta, warp] = instruction.location

    def _arrives_in_time(self, carried: Carried, lanes: Lanes, instruction: Instruction) -> None:
        """Report an arrival on another CTA's mbarrier that is not ordered after the end of the preceding phase. It may
        be one too many for that phase."""
        ended, brought = carried.ended
        if ended & ~lanes.steps and brought & ~lanes.generic:
            self.diagnosis.arrives_early(carried.barrier, lanes, instruction)

    @staticmethod
    def _release(frontier: Frontier, lanes: Lanes, events: int, of_tensor: int) -> None:
        """Release these events to the frontier, if the lanes have observed them. of_tensor: events of tensor memory.

        A scope that leaves out one of two CTAs orders nothing between them (PTX ISA, "Morally strong operations"). An
        asynchronous operation is complete after its wait in any scope (CUTLASS frees a stage so after a wgmma).
        Accesses of threads themselves may still be in flight.
        """
        frontier.generic |= lanes.generic & events
        frontier.shared |= lanes.shared & events
        frontier.global_ |= lanes.global_ & events
        frontier.tensor |= lanes.tensor & of_tensor
        lanes.own = 0

    def passed(self, barrier: Mbarrier, warp: Warp, instruction: Instruction, scope: str) -> None:
        """Acquire what the arrivals of the ended phases released.

        A relaxed wait acquires tensor memory alone (PTX ISA, "tcgen05 Memory Consistency Model": together with
        tcgen05.fence::after_thread_sync, which the compiler adds). Another CTA's accesses need cluster scope.
        """
        event, acting, carried = self._new_event(), self.acting(warp, instruction), self.of(barrier)
        past, past_afar = carried.past, carried.past_afar
        for lanes in self._each(warp, acting):
            if scope:
                lanes.join(past)
                if scope == "cluster":
                    lanes.join(past_afar)
            else:
                lanes.tensor |= past.tensor
                lanes.steps |= past.steps
            if instruction.scope == "cluster":
                lanes.tensor |= past_afar.tensor
            lanes.steps |= event
            self.within_warps.observed(lanes)
        self.drains.passes(barrier, acting, instruction)
        if scope != "cluster":
            left = (past.generic | past_afar.generic) & ~acting.generic | past_afar.tensor & ~acting.tensor
            carried.relaxed[warp.index] = Weak(instruction.location, scope, left)
        self.turn += 1
        before, phase = carried.waits.get(warp.index), barrier.phase - 1
        again = 0 if before is None or before.phase < phase else before.again or self.turn
        carried.waits[warp.index] = LastWait(
            instruction.location, phase, self.turn, event, carried.turn, carried.commit, again,
            before.started if before is not None else instruction.location if phase < 0 else None,
        )  # fmt: skip

    def phase_ended(self, barrier: Mbarrier, phase: int) -> None:
        """Report a warp that waited for the phase before, without an edge from that wait to the end of this phase. The
        parity of its wait may come back before the warp looks (PTX ISA, mbarrier.try_wait.parity: the current or the
        preceding phase)."""
        carried = self.of(barrier)
        for index, wait in carried.waits.items():
            if wait.phase == phase - 1 and not carried.coming.steps & wait.event:
                self.diagnosis.overrun(carried, phase, index, wait)
        carried.end_phase(self._new_event() if carried.brought else 0, self.turn)

    def met(self, warps: Sequence[Warp], last: Warp, instruction: Instruction | None) -> None:
        """Join the frontiers of all warps that met at a barrier. Lanes of a part of a warp meet only each other."""
        if instruction is not None and len(warps) == 1 and instruction.group.count < WARP:
            self.within_warps.forget(self.acting(last, instruction))
            return
        everybody = [lanes for warp in warps for lanes in self.lanes[warp].values()]
        for lanes in everybody:
            self.within_warps.forget(lanes)
        whole = union(everybody)
        if self.drains.unsignalled and any(warp.cta is not last.cta for warp in warps):
            self.drains.signalled(whole.tensor)
        for lanes in everybody:
            lanes.generic, lanes.shared = whole.generic, whole.shared
            lanes.global_, lanes.tensor, lanes.steps = whole.global_, whole.tensor, whole.steps
            lanes.own = 0

    def fenced(self, warp: Warp, instruction: Instruction, space: str) -> None:
        """Order for the async proxy, from now on, all accesses that are ordered for the generic one."""
        if space == "registers":
            self.registers.fenced(warp)
        if space not in ("shared", "global", ""):
            return
        for lanes in self._each(warp, self.acting(warp, instruction)):
            if space != "global":
                lanes.shared |= lanes.generic
            if space != "shared":
                lanes.global_ |= lanes.generic
            lanes.own = 0  # what follows is not covered

    def comes_to_semaphore(self, warp: Warp, instruction: Instruction, address: int, held: int) -> None:
        """Report a wait for a semaphore in an uncleaned workspace that no store happens before: the wait may read old
        bits."""
        warp.cta.grid.memory.semaphores.setdefault(address, Semaphore(held))
        region = warp.cta.grid.memory.uncleaned(address)
        if region is None:
            return
        lanes, lacks = self.acting(warp, instruction), self._initialised(region.storage).lacks(region)
        if "acquire" in instruction.description.awaited:
            shadow = self.shadows.get(region.storage)
            if lacks or (shadow and shadow.elsewhere(region, False, lanes.generic)[1]):
                self.diagnosis.uninitialised(warp, instruction, region)
        elif lacks:
            lanes = self.lanes[warp][ELECTED]
            event = self._own(lanes)
            self._record(region, True, event, lanes.generic | event, (instruction, lanes))
            self._initialised(region.storage).mark(region)

    def released(self, warp: Warp, instruction: Instruction, address: int, value: int) -> None:
        lanes, semaphore = self.lanes[warp][ELECTED], Frontier()
        self.semaphores[address] = semaphore  # a plain store carries on no other release (PTX ISA, "Observation Order")
        self._publish(semaphore, (lanes,))
        release = SemaphoreRelease(lanes, self._new_event(), instruction.location, value)
        self.releases.setdefault(address, deque(maxlen=TURNS)).append(release)
        self.released_by.add((warp.cta, address))
        warp.cta.grid.memory.semaphores[address].stored = instruction.location
        semaphore.generic |= release.event

    def acquired(self, warp: Warp, instruction: Instruction, address: int, value: int) -> None:
        """Acquire the events that releases of a semaphore published, for the lanes that wait for it."""
        releases, known = self.releases.get(address, ()), self.acting(warp, instruction).generic
        semaphore = warp.cta.grid.memory.semaphores[address]
        if (warp.cta, address) not in self.released_by and not any(each.event & known for each in releases):
            semaphore.waits.setdefault(value, instruction.location)
        if semaphore.found != value:
            storing = [each for each in releases if each.value == value]
            self.diagnosis.waits_for_later(warp, instruction, address, storing)
        stored = next(reversed(releases), None)
        lock = SemaphoreWait(warp, self._new_event(), instruction.location, address, value, stored)
        self.locks.append(lock)
        for lanes in self.lanes[warp].values():
            self.within_warps.forget(lanes)
            lanes.join(self.semaphores.get(address, Frontier()))
            lanes.generic |= lock.event

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
        """Free events that no access, agent or operation refers to."""
        everybody = [lanes for warp in self.lanes.values() for lanes in warp.values()]
        common = -1
        for lanes in everybody:
            common &= lanes.generic & lanes.shared & lanes.global_ & lanes.tensor
        self._forget_reached()
        kept = self.drains.events | self.within_warps.events
        for event in (*self.beginnings.values(), *self.allocations.values(), *self.reaching.values()):
            kept |= event
        for lanes in everybody:
            kept |= lanes.own
        for carried in self.carried.values():
            kept |= carried.ended[0]
            for wait in carried.waits.values():
                kept |= wait.event
        for release in chain.from_iterable(self.releases.values()):
            kept |= release.event
        for lock in self.locks:
            kept |= lock.event
        operations = [each for o in self.operations.values() for each in (*o.covers, o)]
        for operation in operations:
            kept |= operation.event | operation.source
        common &= ~kept
        for shadow in self.shadows.values():
            shadow.drop(lambda access: bool(access.event & common))
            kept |= shadow.events()
        for frontier in (*everybody, *self.semaphores.values()):
            frontier.forget(kept)
        for shadow in self.shadows.values():
            shadow.forget(kept)
        for carried in self.carried.values():
            carried.forget(kept)
        self.threads &= kept
        for operation in operations:
            operation.after &= kept
            operation.steps &= kept
        self.events.sweep(kept)
        self.sweep_at = max(SWEEP_AT, 2 * self.events.live)


def _lanes_name(group: ThreadGroup, warp: int) -> str:
    lane, count = group.lanes(warp)
    if count == WARP:
        return ALL
    if count == 1 and (group.elected or lane == 0):
        return ELECTED
    return f"lane {lane}" if count == 1 else f"lanes {lane}..{lane + count - 1}"


def _multiplies(instruction: Instruction) -> bool:
    effects = instruction.description.effects
    return any(effect.space is Space.TENSOR and effect.access is Access.READ for effect in effects)


def _copied_before(instruction: Instruction, lanes: Lanes, other: PastAccess) -> bool:
    """Return True if one thread issued both, and both are copies to tensor memory."""
    copies = isinstance(other.who, Operation) and other.who.instruction.description.unpromised
    return copies and instruction.description.unpromised and bool(other.event & lanes.issued)
