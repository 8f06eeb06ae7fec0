"""State of the machine: warps with registers, in rows; CTAs with shared memory, tensor memory and barriers; clusters.

A row is one warp, or several warps that execute together. A row consists of strands: groups of lanes at one
instruction. Strands split at a branch and merge at the same instruction. The strand with the lowest instruction index
runs first; PTX ISA, "Independent Thread Scheduling", leaves the order open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from blackwell_matmul.emulator.emulation_listener import EmulationListener
from blackwell_matmul.emulator.lanes import ALL, LANES, Array, by_warps, indices, lanes, words_of
from blackwell_matmul.emulator.spaces import ABSENT_RANK, LOCAL, OFFSET, RANK, Memory, SharedBank, Undefined

TENSOR_LANES, TENSOR_COLUMNS = 128, 512

MOST_LOCAL_BYTES = 512 << 10
"""Maximum local memory of a thread (CUDA programming guide, "Technical Specifications per Compute Capability")."""

COUNT_LIMIT = (1 << 20) - 1
"""Maximum of an mbarrier's arrivals, and of its bytes (PTX ISA, "Contents of the mbarrier object")."""


class Waiting(NamedTuple):
    """Result of an instruction at which a warp waits. ready: returns True if the warp may continue. again: True if the
    instruction then executes again. what: returns a clause for the report of a deadlock.

    may_fail: True for try_wait, which may return False after some time. meets: True if the warp waits for its other
    lanes to reach the same instruction.
    """

    ready: Callable[[], bool]
    again: bool
    what: Callable[[], str]
    may_fail: bool = False
    meets: bool = False


Waits = list[tuple["WarpState", int, Waiting]]
"""Warps that wait at an instruction, with the executing lanes."""


@dataclass(slots=True)
class Strand:
    """Lanes at one instruction. blocked: the warps that wait, each with lanes and Waiting; the other warps wait with
    them.

    turns: turns used so far; the strand with the fewest turns runs first. steps: instructions executed without the
    row's other lanes. timed_out: True while try_wait fails.
    """

    pc: int
    mask: int
    blocked: Waits | None = None
    timed_out: bool = False
    turns: int = 0
    steps: int = 0

    def ready(self) -> bool:
        if self.blocked is None or self.timed_out:
            return True
        last = None  # several warps of a CTA may have the same Waiting
        for _, _, wait in self.blocked:
            if wait is not last and not wait.ready():
                return False
            last = wait
        return True

    @property
    def meets(self) -> bool:
        """Return True if the strand waits for the other lanes of its warps, so that all execute the instruction
        together."""
        return bool(self.blocked) and self.blocked[0][2].meets  # type: ignore[index]


@dataclass(slots=True)
class PhaseBarrier:
    """An mbarrier (PTX ISA, "mbarrier"). count: arrivals per phase. pending, tx_bytes: missing arrivals and bytes of
    the current phase. phase: number of complete phases."""

    count: int
    pending: int
    tx_bytes: int = 0
    phase: int = 0

    def arrive(self, count: int = 1) -> None:
        if count > self.pending:
            raise Undefined(f"{count} arrive at an mbarrier that awaits {self.pending} of its {self.count} arrivals")
        self.pending -= count
        self._settle()

    def expect(self, nbytes: int) -> None:
        self.tx_bytes += nbytes
        if self.tx_bytes > COUNT_LIMIT:
            raise Undefined(f"an mbarrier counts up to {COUNT_LIMIT:,} bytes and not {self.tx_bytes:,}")

    def complete(self, nbytes: int) -> None:
        self.tx_bytes -= nbytes
        self._settle()

    def drop(self, count: int = 1) -> None:
        self.count -= count
        self.arrive(count)

    def _settle(self) -> None:
        if self.pending == 0 and self.tx_bytes == 0:
            self.phase += 1
            self.pending = self.count

    def has_passed(self, parity: int) -> bool:
        """Return True if the phase with this parity is complete; the current phase has the other parity
        (test_wait.parity)."""
        return self.phase % 2 != parity

    def __str__(self) -> str:
        return f"phase {self.phase}, {self.pending} of {self.count} arrivals and {self.tx_bytes:,} bytes missing"


@dataclass(slots=True)
class NamedBarrier:
    """A barrier of `bar.sync`. arrived: threads that have arrived in this round. rounds: number of complete rounds.

    asked, yes: for `bar.red`, numbers of votes and of true votes. told: functions that get both numbers.
    """

    arrived: int = 0
    rounds: int = 0
    asked: int = 0
    yes: int = 0
    told: list[Callable[[int, int], None]] = field(default_factory=list)

    def vote(self, yes: int, asked: int, tell: Callable[[int, int], None]) -> None:
        """Add votes of lanes. yes, asked: masks. tell: called at the end of the round with the numbers of true votes
        and of threads."""
        self.yes, self.asked = self.yes + yes.bit_count(), self.asked + asked.bit_count()
        self.told.append(tell)

    def end(self) -> None:
        """End the round: report the votes, and reset all counts."""
        for tell in self.told:
            tell(self.yes, self.asked)
        self.rounds, self.arrived, self.asked, self.yes, self.told = self.rounds + 1, 0, 0, 0, []


class TensorMemory:
    """Tensor memory, 128 lanes by 512 columns of 32 bits (PTX ISA, "Tensor Memory"), and its allocations.

    permit: True while this CTA may allocate. listener: gets accesses.
    """

    def __init__(self, listener: EmulationListener | None = None) -> None:
        self.listener = listener
        self.words = np.zeros((TENSOR_LANES, TENSOR_COLUMNS), np.uint32)
        self.written = np.zeros((TENSOR_LANES, TENSOR_COLUMNS), bool)
        self.allocated: dict[int, int] = {}
        self.permit = True

    def free(self, columns: int) -> int | None:
        """Return the first column of a free range, aligned to its size; None if no range is free."""
        for start in range(0, TENSOR_COLUMNS, columns):
            if all(start + columns <= low or low + size <= start for low, size in self.allocated.items()):
                return start
        return None

    def allocate(self, columns: int) -> int | None:
        """Allocate a free range, mark it as unwritten, and return its first column; None if no range is free."""
        start = self.free(columns)
        if start is not None:
            self.allocated[start] = columns
            self.written[:, start : start + columns] = False
        return start

    def check(self, column: int, columns: int, what: str, lane: int = 0) -> None:
        """Raise Undefined unless the columns are allocated and `lane`, the last lane, exists."""
        if lane >= TENSOR_LANES:
            raise Undefined(f"{what} lane {lane} of tensor memory, which has {TENSOR_LANES}")
        if not any(low <= column and column + columns <= low + size for low, size in self.allocated.items()):
            raise Undefined(f"{what} columns {column} to {column + columns - 1} of tensor memory, not all allocated")

    def read(self, rows: Any, columns: Any, what: str = "reads") -> Array:
        """Return words; raise Undefined if a word was never written. rows, columns: arrays that broadcast, or slices if
        there is no listener."""
        if not self.written[rows, columns].all():
            missing = ~self.written[rows, columns]
            if isinstance(rows, slice):
                rows, columns = np.arange(TENSOR_LANES)[rows, None], np.arange(TENSOR_COLUMNS)[columns]
            lane, column = (int(np.broadcast_to(each, missing.shape)[missing][0]) for each in (rows, columns))
            text = f"{what} tensor memory that nothing has written, at lane {lane}, column {column}"
            if self.listener is None:
                raise Undefined(text)
            self.listener.unwritten(text)
        if self.listener is not None and what != "reads":
            self.listener.touched(self, rows, columns, False)
        return self.words[rows, columns]

    def write(self, rows: Any, columns: Any, values: Array) -> None:
        if self.listener is not None:
            self.listener.touched(self, rows, columns, True)
        self.words[rows, columns] = values
        self.written[rows, columns] = True


def together(warp: WarpState, mask: int, members: int = ALL) -> Waiting | None:
    """Return None if all lanes of `members` execute the instruction together; else a wait for the missing lanes."""
    if mask & members == warp.alive & members:
        return None
    if isinstance(warp, Row):
        if members & ALL != ALL:
            raise Undefined("lanes of a row are missing")
        warp.verify_whole(mask)
        return None
    return Waiting(
        lambda: mask & members == warp.alive & members, True,
        lambda: f"with {mask.bit_count()} lanes, for the others of its warp", meets=True,
    )  # fmt: skip


def collective(act: Callable[[WarpState, int], Any]) -> Callable[[WarpState, int], Any]:
    """Mark an instruction as collective: all lanes of a warp execute it together, and early lanes wait."""

    def once_together(warp: Any, mask: int) -> Any:
        wait = None if mask == warp.alive else together(warp, mask)
        return act(warp, mask) if wait is None else wait

    return once_together


class LaneState:
    """Registers of some lanes. registers: by slot, an array of raw words, one per lane; a predicate is a mask.

    count: number of lanes. all: mask of all lanes. alive: mask of lanes that have not exited. warps: warps of the
    lanes. kept: cache of values that instructions computed from registers.
    """

    registers: Any
    grid: Any
    warps: list[WarpState]
    kept: dict[Any, Any]
    alive: int

    def parts(self, mask: int) -> Iterable[tuple[WarpState, int]]:
        """Return each warp that has lanes in the mask, with its part of the mask."""
        raise NotImplementedError

    def each_lane(
        self, mask: int, readers: Sequence[Callable[[Any], Array]]
    ) -> list[tuple[WarpState, int, tuple[Any, ...]]]:
        """Return, for each lane of the mask, its warp, its index in the warp, and the values of the readers."""
        found = [(warp, lane) for warp, part in self.parts(mask) for lane in indices(part)]
        places = [lane + warp.start * (self.count > LANES) for warp, lane in found]
        numbers = zip(*(read(self)[places].tolist() for read in readers))
        return [(*each, own) for each, own in zip(found, numbers)]

    count = LANES
    all = ALL

    def set(self, register: int, value: Any, mask: int) -> None:
        """Write a register in the lanes of a mask."""
        if mask != self.all:
            value = np.where(lanes(mask, self.count), value, self.registers[register])
        self.registers[register] = value

    def set_predicate(self, register: int, value: int, mask: int) -> None:
        value &= mask
        if mask != self.all:
            value |= self.registers[register] & ~mask
        self.registers[register] = value


class WarpState(LaneState):
    """State of a warp. groups: asynchronous operations by kind, for lanes with equal history. local: local memory of
    the 32 threads, of the kernel, then of calls. frames: each lane's current call, None in the kernel. pools: frames of
    each device function. start: index of the warp's first lane in its row."""

    row: Row
    start = 0

    def __init__(self, cta: CtaState, index: int, threads: int, local_bytes: int) -> None:
        self.cta, self.index, self.grid, self.warps = cta, index, cta.cluster.grid, [self]
        self.alive = ALL if threads >= LANES else (1 << threads) - 1
        self.kept = {}
        self.groups: dict[str, list[Any]] = {}
        self.meetings: dict[int, tuple[int, int]] = {}
        self.local_bytes = local_bytes  # bytes in use by each thread
        self.local = Memory("local memory", LOCAL, np.full(LANES * local_bytes, 0x5A, np.uint8))
        self.frames: list[Any] = [None] * LANES
        self.pools: dict[Any, Any] = {}
        self.timed_out = False
        self.carry = 0  # a mask of lanes
        self.stack: Any = None  # each lane's next address for alloca; its first and its end below
        self.stack_start: Any = None
        self.stack_end: Any = None
        self.pipe: Any = None
        self.product_groups = 0  # number of committed wgmma groups
        self.given: dict[int, Any] = {}  # last tensor core operation of each lane

    def parts(self, mask: int) -> Iterable[tuple[WarpState, int]]:
        return [(self, mask)]

    def more_local(self, nbytes: int) -> int:
        """Return the offset of new local memory. nbytes: for each thread."""
        start, self.local_bytes = self.local_bytes, self.local_bytes + nbytes
        if self.local_bytes > MOST_LOCAL_BYTES:
            raise Undefined(f"calls need more than the {MOST_LOCAL_BYTES:,} bytes of local memory that a thread has")
        missing = LANES * self.local_bytes - self.local.nbytes
        if missing > 0:
            more = np.full(max(missing, self.local.nbytes), 0x5A, np.uint8)
            self.local = Memory("local memory", LOCAL, np.concatenate([self.local.data, more]))
        return LANES * start


class Row(LaneState):
    """Warps that execute together: one warp, or several warps of one or more CTAs.

    strands: groups that cover all lanes that have not exited. steps: number of executed instructions. bank: shared
    memory of the CTAs.
    """

    def __init__(self, warps: list[WarpState], registers: list[Any], strands: list[Strand], bank: SharedBank) -> None:
        self.bank, self.grid, self.steps = bank, warps[0].grid, 0
        self._hold(warps, registers, strands)

    def _hold(self, warps: list[WarpState], registers: list[Any], strands: list[Strand]) -> None:
        self.warps, self.registers, self.strands = warps, registers, strands
        self.count, self.all = LANES * len(warps), (1 << LANES * len(warps)) - 1
        self.lanes: LaneState = self if len(warps) > 1 else warps[0]
        self._by_cta: dict[int, list[list[WarpState]]] = {}
        self.kept, self.alive = {}, self.all  # stays the mask of all lanes, even if some have exited
        self.written: dict[int, Array] = {}  # arrays in `registers` that no other reference shares
        for place, warp in enumerate(warps):
            warp.start = LANES * place
            warp.row, warp.registers = self, WarpRegisters(self, warp.start) if len(warps) > 1 else registers
        if len(warps) > 1:
            owners = [warp.cta for warp in warps]
            self.ranks = np.repeat(np.array([cta.rank << RANK for cta in owners], np.uint64), LANES)
            self.places = np.repeat(np.array([cta.place for cta in owners], np.uint64), LANES)

    def runnable(self) -> bool:
        return any(strand.ready() for strand in self.strands)

    def parts(self, mask: int) -> Iterable[tuple[WarpState, int]]:
        if len(self.warps) == 1:
            return [(self.warps[0], mask)]
        return [(self.warps[place], part) for place, part in by_warps(mask, len(self.warps))]

    def by_cta(self, mask: int) -> list[list[WarpState]]:
        """Return the warps that have lanes in the mask, in a list for each CTA."""
        if mask not in self._by_cta:
            found: dict[CtaState, list[WarpState]] = {}
            for warp, _ in self.parts(mask):
                found.setdefault(warp.cta, []).append(warp)
            self._by_cta[mask] = [*found.values()]
        return self._by_cta[mask]

    def verify_whole(self, mask: int) -> None:
        """Raise Undefined unless each warp has all or none of its lanes in the mask."""
        if any(part != ALL for _, part in by_warps(mask, len(self.warps))):
            raise Undefined("lanes of a row are missing")

    def verify_all(self, mask: int) -> None:
        if mask != self.all:
            raise Undefined("lanes of a row are missing")

    def shared(self, addresses: Array, mask: int) -> tuple[Memory, Array]:
        """Return the bank's memory and each lane's address in it. Raise Undefined for an address of another CTA, or at
        the end of shared memory."""
        ranks, places = self.ranks, self.places
        if mask != self.all:
            some = lanes(mask, self.count)
            ranks, places = ranks[some], places[some]
        offsets = addresses - ranks
        self.bank.verify(offsets)
        return self.bank.memory, offsets + places

    def part(self, warps: list[WarpState]) -> Row:
        """Move warps out of this row into a new row, and return the new row."""
        leaving = {*warps}
        kept = [warp for warp in self.warps if warp not in leaving]
        mine, others = self._contents(kept), self._contents(warps)
        self._hold(kept, *mine)
        other = Row(warps, *others, self.bank)
        other.steps = self.steps
        return other

    def changed(self, slot: int, dtype: Any) -> Array:
        """Return a register's array, which the caller may change until the next instruction."""
        old = self.registers[slot]
        if self.written.get(slot) is not old:
            same = isinstance(old, np.ndarray) and old.dtype == dtype  # False for the slot for unused results
            self.registers[slot] = self.written[slot] = old = old.copy() if same else np.zeros(self.count, dtype)
        return np.asarray(old)

    def _contents(self, warps: list[WarpState]) -> tuple[list[Any], list[Strand]]:
        """Return registers and strands of some warps of the row."""
        places = np.array([warp.start // LANES for warp in warps], np.int64)

        def taken(content: Any) -> Any:
            if isinstance(content, int):
                words = words_of(content & self.all, self.count)[places]
                return int.from_bytes(words.tobytes(), "little")
            return content.reshape(-1, LANES)[places].reshape(-1)

        found = {id(each): taken(each) for each in self.registers}  # several registers may share one array
        parts = [_part_of(each, taken(each.mask), {*warps}) for each in self.strands]
        return [found[id(each)] for each in self.registers], [each for each in parts if each.mask]


def _part_of(strand: Strand, mask: int, warps: set[WarpState]) -> Strand:
    blocked = strand.blocked
    if blocked is not None:
        blocked = [each for each in blocked if each[0] in warps]
    return Strand(strand.pc, mask, blocked, strand.timed_out, strand.turns)


class WarpRegisters:
    """Registers of one warp of a row. An array read from here never changes."""

    __slots__ = ("row", "start")

    def __init__(self, row: Row, start: int) -> None:
        self.row, self.start = row, start

    def __getitem__(self, slot: int) -> Any:
        content = self.row.registers[slot]
        if isinstance(content, int):
            return content >> self.start & ALL
        return content[self.start : self.start + LANES].copy()

    def __setitem__(self, slot: int, value: Any) -> None:
        row = self.row
        if isinstance(value, int):
            row.registers[slot] = row.registers[slot] & ~(ALL << self.start) | (value & ALL) << self.start
        else:
            row.changed(slot, value.dtype)[self.start : self.start + LANES] = value


class SomeWarps(LaneState):
    """Some warps of a row. `registers` reads and writes a register in all their lanes at once."""

    def __init__(self, row: Row, warps: list[WarpState]) -> None:
        self.row, self.warps, self.registers, self.kept = row, warps, self, {}
        self.places = (np.array([warp.start for warp in warps])[:, None] + np.arange(LANES)).reshape(-1)

    def __getitem__(self, slot: int) -> Array:
        return np.asarray(self.row.registers[slot][self.places])

    def __setitem__(self, slot: int, value: Array) -> None:
        self.row.changed(slot, value.dtype)[self.places] = value


class CtaState:
    """State of a CTA. rank: in its cluster. place: offset of its shared memory in the bank. barriers: mbarriers by
    offset in shared memory."""

    def __init__(
        self, cluster: ClusterState, rank: int, index: tuple[int, int, int], bank: SharedBank, number: int
    ) -> None:
        self.cluster, self.rank, self.index = cluster, rank, index
        self.bank, self.place = bank, number * bank.step
        self.shared = bank.of(number, f"shared memory of CTA {index}", rank << RANK)
        self.shared.tell, self.shared.listener = cluster.grid.unwritten, cluster.grid.listener
        self.barriers: dict[int, PhaseBarrier] = {}
        self.invalidated: dict[int, str] = {}  # lines of mbarrier.inval, by offset
        self.named: dict[int, NamedBarrier] = {}
        self.tensor = TensorMemory(cluster.grid.listener)
        self.warps: list[WarpState] = []
        self.pipe: Any = None  # the last tensor core operation of the CTA
        self.exited = 0

    def barrier(self, address: int) -> PhaseBarrier:
        """Return the mbarrier at an address of the cluster's shared memory; raise Undefined if there is none."""
        owner = self.cluster.owner(address)
        found = owner.barriers.get(address & OFFSET)
        return owner.missing_barrier(address & OFFSET) if found is None else found

    def missing_barrier(self, offset: int) -> PhaseBarrier:
        """Return an unused barrier if an operation completes after `mbarrier.inval`; else raise Undefined."""
        if offset not in self.invalidated:
            raise Undefined(f"no mbarrier was initialised at {offset:,} of {self.shared.name}")
        text = f"the mbarrier at {offset:,} of {self.shared.name} was invalidated at {self.invalidated[offset]}"
        if self.cluster.grid.completing is None:
            raise Undefined(text)
        self.cluster.grid.note(f"arrives when {text}")
        return PhaseBarrier(1, 1)


@dataclass(slots=True, eq=False)
class ClusterState:
    """State of a cluster. index: in the grid. pending: its asynchronous operations, the oldest first. arrived, rounds:
    of barrier.cluster, arrived lanes of each warp and complete rounds. awaits: lanes of each warp that have arrived but
    not waited, and their round."""

    index: tuple[int, int, int]
    grid: Any
    ctas: list[CtaState] = field(default_factory=list)
    pending: dict[Any, None] = field(default_factory=dict)
    arrived: dict[WarpState, int] = field(default_factory=dict)
    rounds: int = 0
    awaits: dict[WarpState, tuple[int, int]] = field(default_factory=dict)

    def owner(self, address: int) -> CtaState:
        rank = address >> RANK
        if rank >= len(self.ctas):
            text = f"{rank}{' or higher' * (rank == ABSENT_RANK)}"
            raise Undefined(f"address {address:#x} is of CTA {text} in a cluster of {len(self.ctas)}")
        return self.ctas[rank]

    def missing(self) -> int:
        """Return the number of threads that have neither exited nor arrived at barrier.cluster."""
        warps = [warp for cta in self.ctas for warp in cta.warps]
        return sum((warp.alive & ~self.arrived.get(warp, 0)).bit_count() for warp in warps)

    @property
    def is_done(self) -> bool:
        return not any(warp.alive for cta in self.ctas for warp in cta.warps)
