"""State of the machine: warps with registers; CTAs with shared memory, tensor memory and barriers; clusters.

A warp runs as strands, groups of lanes at one instruction. Strands part at a branch and join where they meet. The
strand furthest behind runs first; PTX ISA, "Independent Thread Scheduling" leaves the order open.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from blackwell_matmul.emulator.lanes import ALL, LANES, Array, lanes
from blackwell_matmul.emulator.listener import Listener
from blackwell_matmul.emulator.spaces import ABSENT_RANK, LOCAL, OFFSET, RANK, RESERVED_BYTES, Memory, Undefined

TENSOR_LANES, TENSOR_COLUMNS = 128, 512

MOST_LOCAL_BYTES = 512 << 10
"""Maximum local memory of a thread (CUDA programming guide, "Technical Specifications per Compute Capability")."""

UNWRITTEN_BYTE = 0xFF
"""Byte of shared memory that nothing has written; as floats it is NaN."""

COUNT_LIMIT = (1 << 20) - 1
"""Limit of an mbarrier's arrivals and bytes (PTX ISA, "Contents of the mbarrier object")."""


class Waiting(NamedTuple):
    """A strand that waits. ready: tells if it may go on; the instruction then runs again if `again`. what: for the
    report.

    may_fail: a try_wait, which may return without success after a while. meets: waits for the warp's other strands at
    the same instruction.
    """

    ready: Callable[[], bool]
    again: bool
    what: Callable[[], str]
    may_fail: bool = False
    meets: bool = False


@dataclass(slots=True)
class Strand:
    """Lanes at one instruction. turns: used so far; the strand with fewest runs first, so that none starves."""

    pc: int
    mask: int
    blocked: Waiting | None = None
    timed_out: bool = False
    turns: int = 0


@dataclass(slots=True)
class PhaseBarrier:
    """An mbarrier (PTX ISA, "mbarrier"): pending arrivals and bytes of this phase. phase: number of complete phases."""

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
        """Return true if the phase of this parity is complete; the current one has the other (test_wait.parity)."""
        return self.phase % 2 != parity

    def __str__(self) -> str:
        return f"phase {self.phase}, {self.pending} of {self.count} arrivals and {self.tx_bytes:,} bytes missing"


@dataclass(slots=True)
class NamedBarrier:
    """A barrier of `bar.sync`: the threads that arrived in this round, and the number of complete rounds.

    asked, yes: for `bar.red`, threads with a predicate, and with a true one. told: callbacks that get both.
    """

    arrived: int = 0
    rounds: int = 0
    asked: int = 0
    yes: int = 0
    told: list[Callable[[int, int], None]] = field(default_factory=list)

    def vote(self, yes: int, asked: int, tell: Callable[[int, int], None]) -> None:
        """Add masks of lanes. tell: called with the numbers of threads, those with a true predicate first."""
        self.yes, self.asked = self.yes + yes.bit_count(), self.asked + asked.bit_count()
        self.told.append(tell)

    def end(self) -> None:
        """End the round."""
        for tell in self.told:
            tell(self.yes, self.asked)
        self.rounds, self.arrived, self.asked, self.yes, self.told = self.rounds + 1, 0, 0, 0, []


class TensorMemory:
    """Tensor memory, 128 lanes by 512 columns of 32 bits (PTX ISA, "Tensor Memory"), and its allocations.

    permit: true while this CTA may allocate. listener: hears of accesses.
    """

    def __init__(self, listener: Listener | None = None) -> None:
        self.listener = listener
        self.words = np.zeros((TENSOR_LANES, TENSOR_COLUMNS), np.uint32)
        self.written = np.zeros((TENSOR_LANES, TENSOR_COLUMNS), bool)
        self.allocated: dict[int, int] = {}
        self.permit = True

    def free(self, columns: int) -> int | None:
        """Return the first column of a free range that is aligned to its size; None if there is none."""
        for start in range(0, TENSOR_COLUMNS, columns):
            if all(start + columns <= low or low + size <= start for low, size in self.allocated.items()):
                return start
        return None

    def allocate(self, columns: int) -> int | None:
        """Allocate a free range, without contents, and return its first column; None if there is none."""
        start = self.free(columns)
        if start is not None:
            self.allocated[start] = columns
            self.written[:, start : start + columns] = False
        return start

    def check(self, column: int, columns: int, what: str, lane: int = 0) -> None:
        """Check that columns are allocated, and that `lane`, the last one, exists."""
        if lane >= TENSOR_LANES:
            raise Undefined(f"{what} lane {lane} of tensor memory, which has {TENSOR_LANES}")
        if not any(low <= column and column + columns <= low + size for low, size in self.allocated.items()):
            raise Undefined(f"{what} columns {column} to {column + columns - 1} of tensor memory, not all allocated")

    def read(self, rows: Any, columns: Any, what: str = "reads") -> Array:
        if not self.written[rows, columns].all():
            missing = ~self.written[rows, columns]
            lane, column = (int(np.broadcast_to(each, missing.shape)[missing][0]) for each in (rows, columns))
            told = f"{what} tensor memory that nothing has written, at lane {lane}, column {column}"
            if self.listener is None:
                raise Undefined(told)
            self.listener.unwritten(told)
        if self.listener is not None and what != "reads":
            self.listener.touched(self, rows, columns, False)
        return self.words[rows, columns]

    def write(self, rows: Any, columns: Any, values: Array) -> None:
        if self.listener is not None:
            self.listener.touched(self, rows, columns, True)
        self.words[rows, columns] = values
        self.written[rows, columns] = True


def together(warp: WarpState, mask: int, members: int = ALL) -> Waiting | None:
    """Return None if all required lanes execute an instruction together; else a wait for the others."""
    if mask & members == warp.alive & members:
        return None
    return Waiting(
        lambda: mask & members == warp.alive & members, True,
        lambda: f"with {mask.bit_count()} lanes, for the others of its warp", meets=True,
    )  # fmt: skip


def collective(act: Callable[[WarpState, int], Any]) -> Callable[[WarpState, int], Any]:
    """Make an instruction collective: all lanes of a warp execute it at once, and the first ones wait."""

    def once_together(warp: WarpState, mask: int) -> Any:
        return act(warp, mask) if mask == warp.alive else together(warp, mask)

    return once_together


class WarpState:
    """State of a warp. registers: raw words of 32 lanes; a predicate is a mask. groups: asynchronous operations by
    kind, for lanes with equal history. local: local memory of the 32 threads, in order; of the kernel, then of calls.
    frames: the call that each lane is in, None in the kernel. pools: frames of each device function.
    """

    def __init__(
        self, cta: CtaState, index: int, registers: list[Any], threads: int, local_bytes: int, start: int = 0
    ) -> None:
        self.cta, self.index, self.registers = cta, index, registers
        self.alive = ALL if threads >= LANES else (1 << threads) - 1
        self.strands = [Strand(start, self.alive)]
        self.steps = 0
        self.groups: dict[str, list[Any]] = {}
        self.meetings: dict[int, tuple[int, int]] = {}
        self.local_bytes = local_bytes  # of a thread, in use
        self.local = Memory("local memory", LOCAL, np.full(LANES * local_bytes, 0x5A, np.uint8))
        self.frames: list[Any] = [None] * LANES
        self.pools: dict[Any, Any] = {}
        self.timed_out = False
        self.carry = 0  # a mask of lanes
        self.stack: Any = None  # the next byte of each lane's alloca, the first one, and the end
        self.stack_start: Any = None
        self.stack_end: Any = None
        self.pipe: Any = None
        self.given: dict[int, Any] = {}  # last tensor core operation of each lane

    def more_local(self, nbytes: int) -> int:
        """Return the first byte of new local memory, of this many bytes for each thread."""
        start, self.local_bytes = self.local_bytes, self.local_bytes + nbytes
        if self.local_bytes > MOST_LOCAL_BYTES:
            raise Undefined(f"calls need more than the {MOST_LOCAL_BYTES:,} bytes of local memory that a thread has")
        missing = LANES * self.local_bytes - self.local.nbytes
        if missing > 0:
            more = np.full(max(missing, self.local.nbytes), 0x5A, np.uint8)
            self.local = Memory("local memory", LOCAL, np.concatenate([self.local.data, more]))
        return LANES * start

    def runnable(self) -> bool:
        return any(strand.blocked is None or strand.blocked.ready() for strand in self.strands)

    def set(self, register: int, value: Any, mask: int) -> None:
        """Write a register in the lanes of the mask."""
        if mask != ALL:
            value = np.where(lanes(mask), value, self.registers[register])
        self.registers[register] = value

    def set_predicate(self, register: int, value: int, mask: int) -> None:
        if mask != ALL:
            value = value & mask | self.registers[register] & ~mask
        self.registers[register] = value


class CtaState:
    """State of a CTA. rank: in its cluster. barriers: mbarriers by their offset in shared memory."""

    def __init__(self, cluster: ClusterState, rank: int, index: tuple[int, int, int], shared_bytes: int) -> None:
        self.cluster, self.rank, self.index = cluster, rank, index
        data = np.full(RESERVED_BYTES + shared_bytes, UNWRITTEN_BYTE, np.uint8)
        self.shared = Memory(f"shared memory of CTA {index}", rank << RANK, data, tracked=True)
        self.shared.tell, self.shared.listener = cluster.grid.unwritten, cluster.grid.listener
        self.barriers: dict[int, PhaseBarrier] = {}
        self.invalidated: dict[int, str] = {}  # lines of mbarrier.inval, by offset
        self.named: dict[int, NamedBarrier] = {}
        self.tensor = TensorMemory(cluster.grid.listener)
        self.warps: list[WarpState] = []
        self.pipe: Any = None  # the last tensor core operation of the CTA
        self.exited = 0

    def barrier(self, address: int) -> PhaseBarrier:
        """Return the mbarrier at an address of the cluster's shared memory."""
        owner = self.cluster.owner(address)
        found = owner.barriers.get(address & (OFFSET))
        return owner.missing_barrier(address & OFFSET) if found is None else found

    def missing_barrier(self, offset: int) -> PhaseBarrier:
        """Return a barrier that nobody waits for, if an operation completes after `mbarrier.inval`; else Undefined."""
        if offset not in self.invalidated:
            raise Undefined(f"no mbarrier was initialised at {offset:,} of {self.shared.name}")
        told = f"the mbarrier at {offset:,} of {self.shared.name} was invalidated at {self.invalidated[offset]}"
        if self.cluster.grid.completing is None:
            raise Undefined(told)
        self.cluster.grid.note(f"arrives when {told}")
        return PhaseBarrier(1, 1)


@dataclass(slots=True)
class ClusterState:
    """State of a cluster. index: in the grid. arrived, rounds: of barrier.cluster, the lanes of each warp. awaits: the
    lanes that arrived but have not waited, with their round.
    """

    index: tuple[int, int, int]
    grid: Any
    ctas: list[CtaState] = field(default_factory=list)
    arrived: dict[WarpState, int] = field(default_factory=dict)
    rounds: int = 0
    awaits: dict[WarpState, tuple[int, int]] = field(default_factory=dict)

    def owner(self, address: int) -> CtaState:
        rank = address >> RANK
        if rank >= len(self.ctas):
            told = f"{rank}{' or higher' * (rank == ABSENT_RANK)}"
            raise Undefined(f"address {address:#x} is of CTA {told} in a cluster of {len(self.ctas)}")
        return self.ctas[rank]

    def missing(self) -> int:
        """Return the number of threads that have neither exited nor arrived at barrier.cluster."""
        warps = [warp for cta in self.ctas for warp in cta.warps]
        return sum((warp.alive & ~self.arrived.get(warp, 0)).bit_count() for warp in warps)

    @property
    def is_done(self) -> bool:
        return not any(warp.strands for cta in self.ctas for warp in cta.warps)
