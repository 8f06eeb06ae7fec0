"""The machine that a kernel runs on: grid, CTA, warp, shared memory, tensor memory, mbarriers."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.machine.deferred import TensorStorage
from blackwell_matmul.simulator.engine import explain_deadlock, likely_cause
from blackwell_matmul.simulator.findings import Code, Event, Finding, Severity, Stop
from blackwell_matmul.simulator.machine.memory import Region, Storage
from blackwell_matmul.simulator.order.deadlock import deadlock_notes
from blackwell_matmul.simulator.order.frontier import Frontier
from blackwell_matmul.simulator.types import element_by_name

if TYPE_CHECKING:
    from blackwell_matmul.simulator.engine import Agent, AsyncOperation, Blocked, Engine
    from blackwell_matmul.simulator.machine.global_memory import GlobalMemory
    from blackwell_matmul.simulator.lowering.lower import Lowered
    from blackwell_matmul.simulator.order.happens_before import HappensBefore
    from blackwell_matmul.simulator.semantics.wgmma import Queue
    from blackwell_matmul.simulator.replay.log import Stage, Tape

TENSOR_MEMORY_LANES, TENSOR_MEMORY_COLUMNS = 128, 512  # PTX ISA, "Tensor Memory": 128 lanes x 512 columns of 32 bits
BARRIER_BYTES = 8  # PTX ISA, "Size and alignment of mbarrier object"
MAX_TX_COUNT = 2**20 - 1  # PTX ISA, "mbarrier / Tx-Count": -(2^20 - 1) to 2^20 - 1


class Mbarrier:
    """An mbarrier object with its full phase number (PTX ISA, "Parallel Synchronization: mbarrier").

    expected: arrivals a phase needs. pending: arrivals it still lacks. tx_bytes: signed tx-count.
    A phase completes when both are zero; the next one then starts with `expected` pending arrivals.
    told: the operations that told it something in this phase. over: those of completed phases, until someone waits.
    remedy: the wait that these operations need. coming, past: what this phase's arrivals and the phases before made
    known; coming_afar, past_afar: those of other CTAs, to who acquires from the cluster. waits: each warp's last wait
    on it; relaxed: its last one that was too weak. alone: where a part of a warp last arrived without the rest. loose:
    what arrivals that were too weak would have made known. last: the line of the last arrival; loosened: the last one
    that was too weak. initialise: makes it, and its neighbours, in another CTA.
    """

    __slots__ = (
        "address", "alone", "coming", "coming_afar", "cta", "expected", "initialise", "last", "location", "loose",
        "loosened", "name", "over", "past", "past_afar", "pending", "phase", "relaxed", "remedy", "told", "tx_bytes",
        "waits",
    )  # fmt: skip

    def __init__(
        self,
        cta: Cta,
        name: str,
        address: int,
        expected: int,
        location: Location | None,
        initialise: Callable[[Cta], None],
    ) -> None:
        self.cta, self.name, self.address, self.location = cta, name, address, location
        self.initialise = initialise
        self.remedy = f"mbarrier.wait on {name}"
        self.expected = self.pending = expected
        self.phase = 0
        self.tx_bytes = 0
        self.told: list[AsyncOperation] = []
        self.over: list[AsyncOperation] = []
        self.coming, self.past, self.loose = Frontier(), Frontier(), Frontier()
        self.coming_afar, self.past_afar = Frontier(), Frontier()
        self.last: Location | None = None
        self.loosened: Weak | None = None
        self.waits: dict[int, LastWait] = {}
        self.relaxed: dict[int, Weak] = {}
        self.alone: dict[tuple[Cta, int], Location | None] = {}
        if cta.order is not None:
            cta.order.others += (self.coming, self.past, self.loose, self.coming_afar, self.past_afar)

    def __str__(self) -> str:
        return f"{self.name}{self.cta.among_others}"

    def in_cta(self, cta: Cta) -> Mbarrier:
        """The mbarrier at the same place of another CTA, which initialises it at its entry."""
        if self.address not in cta.barriers:
            self.initialise(cta)
        return cta.barriers[self.address]

    def tell(self, op: AsyncOperation) -> None:
        """An operation completed. The phase carries its own accesses, and what they were ordered after, and nothing
        else of its issuer's (PTX ISA, "mbarrier / complete-tx"; "tcgen05.commit": of the operations it tracks)."""
        self.told.append(op)
        self.last = op.location
        self.coming.steps |= op.steps
        for each in (*op.covers, op):
            each.phase = self.phase if each.phase is None else each.phase
            self.coming.learn(each.event | each.source | each.after)

    def waited(self, warp: int, location: Location | None, turn: int, event: int) -> None:
        """A wait of this warp passed: on the last completed phase."""
        self.waits[warp] = LastWait(location, self.phase - 1, turn, event)

    def arrive(self, count: int, location: Location | None) -> None:
        """arrive: `count` fewer arrivals are pending. More than are pending belong to the phases after this one, as
        when 32 lanes arrive one after the other where one was expected."""
        if count > self.pending:
            self._report_over_arrival(count, location)
        while count > 0 and self.pending > 0:
            taken = min(count, self.pending)
            self.pending -= taken
            count -= taken
            self._maybe_complete()

    def _report_over_arrival(self, count: int, location: Location | None) -> None:
        message = (
            f"{self.name} gets {count} arrival(s) where phase {self.phase} lacked {self.pending}; it was initialised"
            f" with a count of {self.expected}"
        )
        alone = self.location if count > self.expected else None  # else it came too early, and that has a cause
        self.cta.grid.report(
            Finding(
                "mbarrier-over-arrival", Severity.ERROR, message, self.cta.position, location, self.location,
                at_fault=alone,
            )
        )  # fmt: skip

    def expect_tx(self, count_bytes: int, location: Location | None) -> None:
        """expect-tx: the phase also waits for that many bytes."""
        self._add_tx(count_bytes, location)

    def complete_tx(self, count_bytes: int, location: Location | None) -> None:
        """complete-tx: a bulk copy delivered that many bytes."""
        self._add_tx(-count_bytes, location)
        self._maybe_complete()

    def _add_tx(self, count_bytes: int, location: Location | None) -> None:
        self.tx_bytes += count_bytes
        if abs(self.tx_bytes) > MAX_TX_COUNT:
            message = f"the tx-count of {self.name} becomes {self.tx_bytes} bytes; it holds {MAX_TX_COUNT} at most"
            self.cta.report("tx-count-overflow", message, location, self.location)

    def _maybe_complete(self) -> None:
        if self.pending == 0 and self.tx_bytes == 0:
            if self.cta.order is not None:
                self.cta.order.completes(self)
            self.phase += 1
            self.pending = self.expected
            self.cta.changed.append(self)
            self.over += self.told
            self.told.clear()
            self.past.join(self.coming)
            self.coming.clear()
            if self.coming_afar.generic:
                self.past_afar.join(self.coming_afar)
                self.coming_afar.clear()

    def passed(self, parity: int) -> bool:
        """mbarrier.try_wait.parity: true when the phase of that parity, and not the current one, is over. Whoever sees
        that knows of everything that told the barrier in its completed phases."""
        if (self.phase ^ parity) & 1 == 0:
            return False
        if self.over:
            for op in self.over:
                op.settle()
            self.over.clear()
        return True

    def missing(self) -> str:
        parts = []
        if self.pending:
            parts.append(f"{self.pending} of {self.expected} arrival(s)")
        if self.tx_bytes:
            parts.append(f"{self.tx_bytes} bytes" if self.tx_bytes > 0 else f"an expect_tx of {-self.tx_bytes} bytes")
        return " and ".join(parts) or "nothing"


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


@dataclass
class Allocation:
    """Columns of tensor memory between tcgen05.alloc and tcgen05.dealloc; `freed` is the line of the latter."""

    name: str
    begin: int
    columns: int
    location: Location | None
    freed: Location | None = None
    alive: bool = True


@dataclass(eq=False)
class Rendezvous:
    """One meeting of the warps of a thread group: bar.sync, with what each warp brought along, and what came of it.
    over: all of them have come. Warps go by their number; at the barrier of a cluster, by themselves."""

    needed: frozenset[Any]
    brought: dict[Any, Any] = field(default_factory=dict)
    result: Any = None
    over: bool = False

    def complete(self) -> bool:
        return self.over


class Warp:
    """Thirty-two threads that execute as one agent.

    cp_async: copies issued and not yet committed to a group; cp_groups: committed groups, oldest first.
    bulk, bulk_groups: the same for bulk stores, which belong to the elected lane.
    tmem_loads, tmem_stores: tcgen05.ld and st that tcgen05.wait has not ended; unready: the registers of such loads.
    tensor_core: the pipe of the mma and cp that its elected lane issues. wgmma: its warpgroup's mma, once it has some.
    returned: it has come to the end of the program.
    """

    __slots__ = (
        "bulk", "bulk_groups", "cp_async", "cp_groups", "cta", "index", "returned", "tensor_core", "tmem_loads",
        "tmem_stores", "unready", "wgmma",
    )  # fmt: skip

    def __init__(self, cta: Cta, index: int) -> None:
        self.cta, self.index = cta, index
        self.returned = False
        self.tensor_core = ("tensor core", index, id(cta))
        self.cp_async: list[AsyncOperation] = []
        self.cp_groups: deque[list[AsyncOperation]] = deque()
        self.bulk: list[AsyncOperation] = []
        self.bulk_groups: deque[list[AsyncOperation]] = deque()
        self.tmem_loads: list[AsyncOperation] = []
        self.tmem_stores: list[AsyncOperation] = []
        self.unready: dict[int, tuple[np.ndarray, AsyncOperation]] = {}
        self.wgmma: Queue | None = None

    def __str__(self) -> str:
        return f"warp {self.index} of CTA {self.cta.position}"

    def start(self) -> Iterator[Blocked]:
        lowered = self.cta.grid.lowered
        return lowered.main(self) if self.cta.tape is None else lowered.taped(self)

    def clear(self) -> None:
        """Forget its operations."""
        for operations in (self.cp_async, self.bulk, self.tmem_loads, self.tmem_stores):
            operations.clear()
        for groups in (self.cp_groups, self.bulk_groups):
            groups.clear()
        self.unready.clear()
        self.wgmma = None

    def finish(self) -> None:
        self.returned = True
        self.event("exit", "returned", None)
        self.cta.cluster.open()

    def event(self, kind: str, what: str, location: Location | None) -> None:
        if self.cta.tracing:
            self.cta.event(f"warp {self.index}", kind, what, location)


@dataclass(eq=False)
class Cluster:
    """CTAs that run together and reach each other's shared memory; a CTA of a grid without clusters is one by itself.

    shape: its extents, in CTAs. ctas: by rank. meeting: the barrier.cluster that some warps stand at.
    """

    shape: tuple[int, int, int]
    ctas: list[Cta] = field(default_factory=list)
    meeting: Rendezvous | None = None

    def meet(self, warp: Warp) -> Rendezvous:
        """Arrive at the cluster's barrier; the last warp to arrive opens it for all."""
        meeting = self.meeting
        if meeting is None:
            meeting = self.meeting = Rendezvous(frozenset(each for cta in self.ctas for each in cta.warps))
        meeting.brought[warp] = None
        self.open()
        return meeting

    def open(self) -> None:
        """Open the barrier when every warp has come, or returned (PTX ISA, barrier.cluster: all non-exited threads)."""
        meeting = self.meeting
        if meeting is None or not all(warp.returned or warp in meeting.brought for warp in meeting.needed):
            return
        meeting.over, self.meeting = True, None
        for cta in self.ctas:
            cta.changed.append(meeting)
        order = self.ctas[0].order
        if order is not None:
            order.meet(warp for cta in self.ctas for warp in cta.warps if warp in meeting.brought)


class Cta:
    """One thread block: its warps, its shared memory, tensor memory and barriers. rank: its number in its cluster."""

    def __init__(self, grid: Grid, position: tuple[int, int, int], cluster: Cluster, tape: Tape | None = None) -> None:
        self.grid, self.tape = grid, tape
        self.stage: Stage | None = None
        self.cluster, self.rank = cluster, len(cluster.ctas)
        cluster.ctas.append(self)
        self.move(position)
        self.engine: Engine = grid.engine
        self.order: HappensBefore | None = grid.order
        self.warps = [Warp(self, i) for i in range(grid.lowered.num_warps)]
        self.shared: dict[int, Storage] = {}
        self.shared_bytes: np.ndarray | None = None
        self.barriers: dict[int, Mbarrier] = {}
        self.meetings: dict[Any, Rendezvous] = {}
        self.tensor_memory = _tensor_memory(tape)
        self.free_columns = [(0, TENSOR_MEMORY_COLUMNS)]
        self.allocated: dict[int, Allocation] = {}
        self.allocations: list[Allocation] = []
        self.relinquished: Location | None = None
        self.in_flight: dict[AsyncOperation, None] = {}  # nobody has waited for them; complete or not
        self.stopped = False
        self.changed: list[Any] = []  # the mbarriers and meetings for which warps of this CTA may have waited
        self.tracing = grid.tracing and position == grid.traced
        self.detailed = self.tracing and grid.detailed
        if self.order is not None:
            self.order.enter(self)

    def move(self, position: tuple[int, int, int]) -> None:
        x, y, z = self.position = position
        self.number = x + self.grid.dimensions[0] * (y + self.grid.dimensions[1] * z)

    @property
    def among_others(self) -> str:
        """What comes after the name of one of its parts, where the same part of another CTA could be meant."""
        return f" of CTA {self.position}" if len(self.cluster.ctas) > 1 else ""

    def report(
        self,
        code: Code,
        message: str,
        location: Location | None = None,
        other: Location | None = None,
        severity: Severity = Severity.ERROR,
    ) -> None:
        """A finding; the run goes on."""
        self.grid.report(Finding(code, severity, message, self.position, location, other))

    def stop(self, code: Code, message: str, location: Location | None, other: Location | None = None) -> Stop:
        """A finding after which this CTA cannot go on; to be raised."""
        return Stop(Finding(code, Severity.ERROR, message, self.position, location, other, fatal=True))

    def event(self, agent: str, kind: str, what: str, location: Location | None) -> None:
        if self.tracing:
            self.grid.trace(Event(len(self.grid.events), self.position, agent, kind, what, location))

    def meet(self, key: Any, needed: frozenset[int], warp: int, brought: Any = None) -> Rendezvous:
        """Arrive at the thread group's barrier; the last warp to arrive opens it for all."""
        meeting = self.meetings.get(key)
        if meeting is None:
            meeting = self.meetings[key] = Rendezvous(needed)
        meeting.brought[warp] = brought
        if len(meeting.brought) >= len(needed) and needed <= meeting.brought.keys():
            meeting.over = True
            del self.meetings[key]
            self.changed.append(meeting)
            if self.order is not None:
                self.order.meet(self.warps[i] for i in sorted(needed))
        return meeting

    def barrier_at(self, address: int, location: Location | None) -> Mbarrier:
        barrier = self.barriers.get(address)
        if barrier is None:
            raise self.stop(
                "mbarrier-not-initialised",
                f"shared address {address} holds no mbarrier; the kernel has {len(self.barriers)} of them",
                location,
            )
        return barrier

    # tensor memory

    def allocate_columns(self, columns: int, name: str, location: Location | None) -> Allocation:
        """First fit (PTX ISA, tcgen05.alloc; it would block for ever when no other CTA frees columns)."""
        if self.relinquished is not None:
            message = f"{name} is allocated after the CTA has given up the right to allocate"
            self.report("tensor-memory-permit", message, location, self.relinquished)
        for i, (begin, end) in enumerate(self.free_columns):
            if end - begin >= columns:
                self.free_columns[i] = (begin + columns, end)
                self.allocated[begin] = Allocation(name, begin, columns, location)
                self.allocations.append(self.allocated[begin])
                self._forget(begin, begin + columns)
                if self.order is not None:
                    self.order.freed(Region(self.tensor_memory, ((0, TENSOR_MEMORY_LANES), (begin, begin + columns))))
                return self.allocated[begin]
        left = sum(end - begin for begin, end in self.free_columns)
        raise self.stop(
            "tensor-memory-exhausted",
            f"{name} asks for {columns} tensor-memory columns and {left} of {TENSOR_MEMORY_COLUMNS} are free",
            location,
        )

    def _forget(self, begin: int, end: int) -> None:
        """What new columns hold is not known."""
        memory, box = self.tensor_memory, ((0, TENSOR_MEMORY_LANES), (begin, end))
        if memory.complete or memory.written is True:
            memory.flush(box)
            memory.unmark(box)
            memory.data[:, begin:end] = np.nan
            if self.tape is not None:
                self.tape.give_up()

    def free(self, allocation: Allocation, location: Location | None) -> None:
        if not allocation.alive:
            message = f"{allocation.name} is freed twice"
            self.report("tensor-memory-not-allocated", message, location, allocation.freed)
            return
        allocation.alive, allocation.freed = False, location
        del self.allocated[allocation.begin]
        self.free_columns = _join(
            sorted([*self.free_columns, (allocation.begin, allocation.begin + allocation.columns)])
        )

    # the end

    def fail(self, finding: Finding) -> None:
        """A fault that the CTA cannot survive, and its cluster not either; the others go on."""
        self.grid.report(finding)
        for cta in self.cluster.ctas:
            cta.stopped = True
            cta.abandon()

    def abandon(self) -> None:
        """Its operations will never complete."""
        for op in self.in_flight:
            self.engine.drop(op)
        self.in_flight.clear()

    def check_exit(self) -> None:
        """What must not be left behind when a CTA returns. Its shared memory ends with it, and what is still to be
        read from there is lost."""
        if self.order is not None:
            self.order.exits(self)
        for left in self.allocated.values():
            self.report("tensor-memory-leak", f"{left.name} is still allocated when the CTA exits", left.location)
        for op in list(self.in_flight):
            self._report_in_flight(op)
            if not op.done and not op.source_free:
                _lose([r for r in op.reads if r.storage.space == "shared"])
            self.engine.finish(op)
            op.settle()
        for barrier in self.barriers.values():
            if barrier.tx_bytes:
                message = f"{barrier.name} still lacks {barrier.missing()} when the CTA exits, and no copy brings them"
                self.report("tx-pending-at-exit", message, barrier.location, severity=Severity.UNGUARANTEED)

    def leave(self, stage: Stage) -> None:
        """It has run, and its memory becomes that of others like it."""
        self.stage, self.order, self.tracing, self.detailed = stage, None, False, False
        self._drop_tape()
        for allocation in self.allocations:
            allocation.alive = True

    def _drop_tape(self) -> None:
        self.tape = None
        for storage in (self.tensor_memory, *self.shared.values()):
            storage.tape = None

    def clear(self, position: tuple[int, int, int]) -> None:
        """As memory was before it ran; it goes on at another position."""
        self.move(position)
        self.tensor_memory.clear()
        if self.shared_bytes is not None:
            self.shared_bytes.fill(0xFF)
        for storage in self.shared.values():
            storage.clear()
        for warp in self.warps:
            warp.clear()

    def close(self) -> None:
        """Break the cycles through this CTA, so that its memory is free now and not when the garbage collector runs."""
        self._drop_tape()
        for storage in self.shared.values():
            storage.close()
        for warp in self.warps:
            warp.clear()
        for parts in (self.warps, self.shared, self.barriers, self.meetings, self.in_flight, self.cluster.ctas):
            parts.clear()
        self.order = None

    def _report_in_flight(self, op: AsyncOperation) -> None:
        if op.source_free:
            return  # its writes may outlive the CTA (PTX ISA, cp.async.bulk.wait_group)
        lost = any(region.storage.space == "shared" for region in op.reads)
        wait = op.too_new.advice if op.too_new else op.remedy
        self.report(
            "in-flight-at-exit",
            f"{op.name} was not waited for: {wait}, and the CTA exits while it is in flight",
            op.location,
            severity=Severity.ERROR if lost else Severity.UNGUARANTEED,
        )


def _lose(regions: list[Region]) -> None:
    """Fill with poison what the regions' storages hold."""
    for region in regions:
        storage = region.storage
        storage.forget(tuple([(0, extent) for extent in storage.shape]))
        storage.write(storage.data, storage.item.poison)


def _tensor_memory(tape: Tape | None) -> TensorStorage:
    cells = np.full((TENSOR_MEMORY_LANES, TENSOR_MEMORY_COLUMNS), np.nan, np.float32)
    return TensorStorage(element_by_name("float32", 32), cells, tape)


def _join(spans: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined = [spans[0]]
    for begin, end in spans[1:]:
        if begin == joined[-1][1]:
            joined[-1] = (joined[-1][0], end)
        else:
            joined.append((begin, end))
    return joined


def _unannounced(op: AsyncOperation) -> str:
    """Where a copy will bring bytes that no expect_tx announced."""
    if op.agent != "TMA" or op.barrier is None or op.barrier.tx_bytes > 0:
        return ""
    return f", which tells {op.barrier.name}, where nobody has announced bytes"


MAX_EVENTS = 20_000

Position = tuple[int, int, int]


class Grid:
    """One launch: its memory, its findings, and the engine that runs its CTAs."""

    def __init__(
        self,
        lowered: Lowered,
        memory: GlobalMemory,
        arguments: Mapping[str, Any],
        dimensions: tuple[int, int, int],
        new_engine: Callable[[], Engine],
        tracing: bool,
        new_order: Callable[[], HappensBefore | None],
    ) -> None:
        self.lowered, self.memory, self.arguments, self.dimensions = lowered, memory, arguments, dimensions
        self.new_engine = new_engine
        self.engine = new_engine()
        self.new_order = new_order
        self.order: HappensBefore | None = None
        self.tracing, self.traced = tracing, (0, 0, 0)
        self.detailed = False  # trace loads, stores and findings too
        self.findings: dict[Any, Finding] = {}
        self.events: list[Event] = []
        self.printed: list[str] = []
        self.reports = 0
        self.steps = 0

    def report(self, finding: Finding) -> None:
        """Repeats (same code and lines) are counted, and the first message is kept."""
        self.reports += 1
        known = self.findings.get(finding.key)
        total = finding.count + (known.count if known else 0)
        self.findings[finding.key] = replace(known or finding, count=total)
        if self.detailed and finding.cta == self.traced:
            agent = finding.agents[0] if finding.agents else ""
            self.trace(Event(len(self.events), self.traced, agent, "finding", finding.code, finding.location))

    def trace(self, event: Event) -> None:
        if len(self.events) < MAX_EVENTS:
            self.events.append(event)

    def run(self, positions: list[tuple[int, int, int]], tape: Tape | None = None) -> list[Cta]:
        """Run these CTAs together until all have returned or cannot go on. tape: what they compute is written to it,
        and they are left open."""
        self.engine = self.new_engine()
        self.order = self.new_order()
        clusters = self._clusters(positions, tape)
        waiting = self.engine.run([warp for cluster in clusters for cta in cluster.ctas for warp in cta.warps])
        if self.order is not None:
            self.order.finish()
        ctas = [cta for cluster in clusters for cta in cluster.ctas]
        for cluster in clusters:
            self._end(cluster, [agent for agent in waiting if agent.warp.cta.cluster is cluster])
        if tape is None:
            for cta in ctas:
                cta.close()
        if self.order is not None:
            self.order.close()
            self.order = None
        self.steps += self.engine.steps
        return ctas

    def _clusters(self, positions: list[Position], tape: Tape | None) -> list[Cluster]:
        """The CTAs at these positions, whole clusters in launch order (PTX ISA, %cluster_ctarank: x fastest)."""
        found: dict[Position, Cluster] = {}
        for position in positions:
            x, y, z = (at // extent for at, extent in zip(position, self.lowered.cluster, strict=True))
            cluster = found.get((x, y, z))
            if cluster is None:
                cluster = found[x, y, z] = Cluster(self.lowered.cluster)
            Cta(self, position, cluster, tape)
        return list(found.values())

    def _end(self, cluster: Cluster, stuck: list[Agent]) -> None:
        """Its warps have returned, or these wait for ever."""
        if stuck:
            self._report_deadlock(cluster, sorted(stuck, key=likely_cause))
            return
        for cta in cluster.ctas:
            if not cta.stopped:
                cta.check_exit()

    def _report_deadlock(self, cluster: Cluster, stuck: list[Agent]) -> None:
        first, cta = stuck[0].wait, stuck[0].warp.cta
        assert first is not None
        made = first.barrier.location if first.barrier is not None else None
        left = [op for each in cluster.ctas for op in each.in_flight if not op.done]
        text = explain_deadlock(stuck, [f"{op.name} ({op.location}){_unannounced(op)}" for op in left])
        for each in [barrier for cta in cluster.ctas for barrier in cta.barriers.values()]:
            if each.tx_bytes < 0 and each is not first.barrier:
                text += f"; {each} has got {-each.tx_bytes} bytes that nobody announced"
        notes = deadlock_notes(self.lowered.program, stuck)
        finding = Finding("deadlock", Severity.ERROR, text, cta.position, first.location, made, fatal=True, notes=notes)
        self.report(finding)
        for each_cta in cluster.ctas:
            each_cta.abandon()
