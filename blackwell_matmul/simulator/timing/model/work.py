"""Work of an instruction on an SM, computed from its operands before it runs."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.frontend.faults.reductions import reduced_lane_bits
from blackwell_matmul.hardware.gpu_figures import MMA_SYNC_PRODUCTS, ROW_BYTES, TIME_FIGURES, TimeFigures
from blackwell_matmul.hardware.gpus import SHARED_BYTES_PER_CYCLE
from blackwell_matmul.simulator.description import Access, Instruction, Unit, When
from blackwell_matmul.simulator.expressions import function_name
from blackwell_matmul.simulator.machine.registers import WARP
from blackwell_matmul.simulator.timing.model.banks import turns_of
from blackwell_matmul.simulator.timing.model.sm import Sm

UNROLLED = 4
"""Iterations of a loop that the compiler unrolls, with all loads first (NVRTC 13 on an H100; h100_moving.json)."""

MOST_MOVED = 128
"""Maximum registers of a thread that such loads fill."""

THERE_AND_BACK_BYTES = 8
"""Bytes that a spilled register moves: stored and loaded."""

MMA_ROW_BYTES = 32
"""Bytes of a row along k that one tcgen05.mma or wgmma multiplies."""


@dataclass(frozen=True)
class Work:
    """An instruction that occupies its warp for `cycles`, and nothing else. gives_back: it frees tensor memory, or the
    right to it. free: it is assumed to cost nothing. multiplies: it issues MMAs to the tensor core. sooner: number of
    consecutive ones that a compiler may issue with the first."""

    instruction: Instruction
    cycles: float = 0.0
    gives_back: bool = field(default=False, kw_only=True)
    free: bool = field(default=False, kw_only=True)
    multiplies: ClassVar[bool] = False

    @property
    def sooner(self) -> int:
        return 0

    @property
    def in_registers(self) -> bool:
        """Return True if loads may be issued before it."""
        return self.instruction.description.in_registers

    def keeps(self, sm: Sm, now: float, time: float) -> float:
        """Return until when the instruction occupies a warp that reaches it at `time`, ahead of the common cycle
        `now`."""
        return time + self.cycles


@dataclass(frozen=True)
class Service(Work):
    """An asynchronous operation. skips: the time does not depend on its values. at_once: its end is known at issue, as
    its warp waits for it; otherwise an mbarrier is signalled."""

    skips: bool = True
    at_once: bool = False

    def serve(self, sm: Sm, time: float) -> tuple[float, float]:
        """Return when the source is free, and when the operation is complete."""
        raise NotImplementedError

    def arrive(self, sm: Sm, time: float, end: float) -> float:
        """Return when a multicast copy is over in another SM; end: in the SM that requested it."""
        return end


@dataclass(frozen=True)
class Multiply(Service):
    """A chain of tcgen05.mma. interval: cycles between two instructions. columns: cycles added to the latency for the
    columns."""

    interval: float = 0.0
    steps: int = 1
    columns: float = 0.0
    pair: bool = False
    multiplies: ClassVar[bool] = True

    def serve(self, sm: Sm, time: float) -> tuple[float, float]:
        end = sm.multiply(time, self.interval, self.steps, self.columns, self.pair)
        return end, end


@dataclass(frozen=True)
class Served(Service):
    """An operation served by at most one part of the SM. end: returns when it is complete."""

    end: Callable[[Sm, float], float] = lambda sm, time: time

    def serve(self, sm: Sm, time: float) -> tuple[float, float]:
        end = self.end(sm, time)
        return end, end


@dataclass(frozen=True)
class Commit(Service):
    """A tcgen05.commit, which ends with the operations that it covers."""


@dataclass(frozen=True)
class WarpgroupMultiply(Service):
    """A chain of wgmma. spilled_bytes: of accumulators that move to local memory and back."""

    interval: float = 0.0
    steps: int = 1
    spilled_bytes: int = 0
    multiplies: ClassVar[bool] = True

    def serve(self, sm: Sm, time: float) -> tuple[float, float]:
        end = sm.multiply_registers(sm.spill(time, self.spilled_bytes), self.interval, self.steps)
        return end, end

    def spilling(self, registers: int) -> WarpgroupMultiply:
        """Return the work with spilled accumulators: each wgmma of the chain moves all of a thread's `registers`."""
        return replace(self, spilled_bytes=self.steps * THERE_AND_BACK_BYTES * 4 * WARP * registers)


@dataclass(frozen=True)
class Load(Service):
    """A TMA load. pitch_bytes: distance of two rows in memory; None: the tensor's own."""

    rows: int = 0
    count_bytes: int = 0
    pitch_bytes: int | None = None

    def serve(self, sm: Sm, time: float) -> tuple[float, float]:
        end = sm.load(time, self.rows, self.count_bytes, self.pitch_bytes or ROW_BYTES)
        return end, end

    def arrive(self, sm: Sm, time: float, end: float) -> float:
        return max(end, sm.arrive(time, self.count_bytes))

    def whole(self) -> Load:
        """Return the load with rows that begin with an L2 line."""
        return replace(self, pitch_bytes=ROW_BYTES)


@dataclass(frozen=True)
class Store(Service):
    """A TMA store."""

    count_bytes: int = 0

    def serve(self, sm: Sm, time: float) -> tuple[float, float]:
        return sm.store(time, self.count_bytes)


@dataclass(frozen=True)
class MoveLines(Work):
    """Loads from global memory, or stores to it, by threads. returns: it waits for its loads. own: the launch itself
    has stored the data. way_cycles: cycles out of the SM, or into it. count_bytes: bytes between the SM and the L2.
    part_cycles: cycles of a sector that is stored in part. registers: registers of a thread that it fills."""

    way_cycles: float = 0.0
    count_bytes: float = 0.0
    returns: bool = False
    own: bool = False
    part_cycles: float = 1.0
    registers: int = MOST_MOVED

    @property
    def sooner(self) -> int:
        return min(UNROLLED, MOST_MOVED // self.registers) if self.returns else 0

    def keeps(self, sm: Sm, now: float, time: float) -> float:
        if self.returns:
            return sm.load_lines(now, time + self.cycles, self.way_cycles, self.count_bytes, self.own)
        return sm.store_lines(now, time + self.cycles, self.way_cycles, self.count_bytes)


@dataclass(frozen=True)
class Kept(Work):
    """An instruction that also waits for a part of the SM. until: returns when that part lets the warp go on."""

    until: Callable[[Sm, float, float], float] = lambda sm, now, time: time

    def keeps(self, sm: Sm, now: float, time: float) -> float:
        return max(time + self.cycles, self.until(sm, now, time))


@dataclass(frozen=True)
class Shuffles(Kept):
    """Values that all lanes of a warp shuffle. meets: the warps also meet at a barrier."""

    meets: bool = False

    @property
    def in_registers(self) -> bool:
        return not self.meets


@dataclass(frozen=True)
class UseBanks(Work):
    """Loads from shared memory, or stores to it, by the threads of a warp. turns: bank cycles; least: without
    conflicts. returns: it waits for its loads."""

    turns: float = 0.0
    least: float = 0.0
    returns: bool = False

    def keeps(self, sm: Sm, now: float, time: float) -> float:
        begin = time + self.cycles if self.returns else time
        warps = len(self.instruction.group.warps) * (sm.shared.ctas if self.returns else 1)
        return max(time + self.cycles, sm.shared.through(now, begin, self.turns, self.instruction, warps))

    @property
    def sooner(self) -> int:
        return UNROLLED if self.returns else 0

    def apart(self) -> UseBanks:
        """Return the same work without bank conflicts."""
        return replace(self, turns=self.least)


@dataclass(frozen=True)
class MultiplySync(Work):
    """An mma.sync: occupies the tensor cores for tensor_cycles, and its warp until its last result. spilled_bytes: of
    accumulators that move to local memory and back."""

    tensor_cycles: float = 0.0
    spilled_bytes: int = 0
    multiplies: ClassVar[bool] = True

    def keeps(self, sm: Sm, now: float, time: float) -> float:
        return sm.multiply_sync(sm.spill(time + self.cycles, self.spilled_bytes), self.tensor_cycles)

    def spilling(self, registers: int) -> MultiplySync:
        """Return the work with a thread's spilled `registers`, once for all k of the tile."""
        return replace(self, spilled_bytes=THERE_AND_BACK_BYTES * WARP * registers)


@dataclass(frozen=True)
class Allocate(Work):
    """A tcgen05.alloc."""

    columns: int = 0


@dataclass(frozen=True)
class Free(Work):
    """A tcgen05.dealloc."""

    columns: int = 0


def freed(work: Work) -> Work:
    """Return the instruction with zero cost; MMAs and tensor-memory instructions keep theirs."""
    if work.multiplies or work.gives_back or isinstance(work, (Allocate, Commit)):
        return work
    if isinstance(work, Service):
        return Served(work.instruction, skips=work.skips, at_once=work.at_once, free=True)
    return Work(work.instruction, free=True)


def work_of(inst: Any, instruction: Instruction, figures: TimeFigures) -> Work:
    """Return the work of a tilus instruction at its place in a program, from the time of its description.

    Raises UnsupportedError for an instruction whose time is unknown, or is unknown on this GPU.
    """
    return MAKERS[instruction.description.time.unit](inst, instruction, figures)


def _unknown(instruction: Instruction) -> UnsupportedError:
    what = f"The time of {instruction.name} at {instruction.location} is not known to the model of this GPU"
    elsewhere = ", ".join(name for name, figures in TIME_FIGURES.items() if figures.mma_sync_interval is not None)
    return UnsupportedError(
        f"{what}; it knows that of tcgen05.mma, of wgmma, and of mma.sync with 16 bits on {elsewhere}."
    )


def _bytes(tensor: Any) -> int:
    return int(math.prod(tensor.shape)) * int(tensor.dtype.nbits) // 8


def _columns(tensor: Any) -> int:
    """Return the 32-bit columns of a tensor in tensor memory."""
    return math.ceil(math.prod(tensor.shape) // tensor.shape[-2] * tensor.dtype.nbits / 32)


def allocated_columns(tensor: Any) -> int:
    """Return the columns to allocate: a power of two from 32 (PTX ISA, tcgen05.alloc)."""
    return max(32, 1 << (_columns(tensor) - 1).bit_length())


def interval_of(rows: int, columns: int, pair: bool) -> tuple[float, float]:
    """Return the cycles from one tcgen05.mma of a chain to the next, and those without the reads of shared memory.
    rows: of one CTA."""
    ideal = columns / (4 if pair and rows == 64 else 2)
    read = MMA_ROW_BYTES * (rows + columns // (2 if pair else 1))
    return max(ideal, read / SHARED_BYTES_PER_CYCLE), ideal


def _multiply(inst: Any, instruction: Instruction, figures: TimeFigures) -> Work:
    """Return the work of tcgen05.mma, or of tcgen05.commit, which ends a chain of MMAs."""
    if instruction.description.signals:
        return Commit(instruction)
    a, _, d, *_ = inst.inputs
    pair = inst.cta_group == 2
    interval, ideal = interval_of(int(d.shape[-2]), int(d.shape[-1]), pair)
    steps = int(a.shape[-1]) * int(a.dtype.nbits) // 8 // MMA_ROW_BYTES
    issue = _issue(instruction, figures)
    return Multiply(instruction, issue, interval=interval, steps=steps, columns=ideal, pair=pair)


WGMMA_ROWS = 64


def _copy_scales(inst: Any, instruction: Instruction, figures: TimeFigures) -> Work:
    """Return the work of tcgen05.cp. Its rate is not published; the model takes the products' rate of reading shared
    memory."""
    nbytes = _bytes(inst.inputs[1])
    end = lambda sm, time: sm.copy_to_tensor_memory(time, nbytes)  # noqa: E731
    return Served(instruction, _issue(instruction, figures), end=end)


def wgmma_interval_of(columns: int, figures: TimeFigures) -> float:
    """Return the cycles from one wgmma of 64 rows to the next: its MMA, or its reads of shared memory. TMA's writes
    cost it nothing (bench/calibrate/tables/h200_micro.csv)."""
    assert figures.wgmma_interval is not None
    read = MMA_ROW_BYTES * (WGMMA_ROWS + columns)
    return max(figures.wgmma_interval * columns, read / SHARED_BYTES_PER_CYCLE)


def _warpgroup_multiply(inst: Any, instruction: Instruction, figures: TimeFigures) -> Work:
    a, _, d = inst.inputs
    interval = wgmma_interval_of(int(d.shape[1]), figures) * int(d.shape[0]) / WGMMA_ROWS
    steps = int(a.shape[-1]) * int(a.dtype.nbits) // 8 // MMA_ROW_BYTES
    return WarpgroupMultiply(instruction, _issue(instruction, figures), at_once=True, interval=interval, steps=steps)


def _multiply_sync(inst: Any, instruction: Instruction, figures: TimeFigures) -> Work:
    """Return the work of a warp's part of an mma.sync of 16-bit types, or of one with block scales."""
    a, d, scaled = inst.inputs[0], inst.output, type(inst).__name__ == "DotScaledInst"
    interval = figures.mma_sync_scaled_interval if scaled else figures.mma_sync_interval
    if interval is None or figures.mma_sync_latency_cycles is None or not (scaled or int(a.dtype.nbits) == 16):
        raise _unknown(instruction)
    products = math.prod(d.shape) * int(a.shape[-1]) * int(a.dtype.nbits) / 16  # as of numbers of 16 bits
    count = products / MMA_SYNC_PRODUCTS / len(instruction.group.warps)
    return MultiplySync(instruction, _issue(instruction, figures), count * interval)


def _load(inst: Any, instruction: Instruction, figures: TimeFigures) -> Work:
    tensor, count_bytes = inst.inputs[0], _bytes(inst.inputs[0])
    row = int(tensor.shape[-1]) * int(tensor.dtype.nbits) // 8
    rows = count_bytes // row * math.ceil(row / ROW_BYTES)
    pitch_bytes = None if figures.rows_by_16_cycles else ROW_BYTES  # where it makes no difference, nobody looks
    return Load(instruction, _issue(instruction, figures), rows=rows, count_bytes=count_bytes, pitch_bytes=pitch_bytes)


def _copy(inst: Any, instruction: Instruction, figures: TimeFigures) -> Work:
    nbytes = _bytes(inst.inputs[0]) // len(instruction.group.warps)
    return Served(instruction, at_once=True, end=lambda sm, time: sm.copy(time, nbytes))


def _store(inst: Any, instruction: Instruction, figures: TimeFigures) -> Work:
    issue, count_bytes = _issue(instruction, figures), _bytes(inst.inputs[1])
    return Store(instruction, issue, at_once=True, count_bytes=count_bytes)


def _tensor_memory(inst: Any, instruction: Instruction, figures: TimeFigures) -> Work:
    """Return the work of tcgen05.ld, or of tcgen05.st, whose time is hardly published."""
    columns = _columns(inst.output if inst.output is not None else inst.inputs[0])
    return Served(instruction, at_once=True, end=lambda sm, time: sm.read_tensor_memory(time, columns))


def _values(tensor: Any, instruction: Instruction) -> float:
    """Return the values of each thread."""
    return float(math.prod(tensor.shape)) / (WARP * len(instruction.group.warps))


SCALED_FUNCTIONS = frozenset({"exp", "log", "sin", "cos"})
"""Functions with one more multiplication: the units compute powers and logarithms of 2, and sines of turns."""

SPECIAL = SCALED_FUNCTIONS | {"exp2", "log2", "sqrt", "rsqrt", "tanh"}


def _arithmetic(inst: Any, instruction: Instruction, figures: TimeFigures) -> Work:
    """Return the work of a cast, or of functions of 32-bit floats; a division takes a reciprocal."""
    from tilus.hidet.ir.expr import Call, Div, Var
    from tilus.hidet.ir.tools import collect

    values = _values(inst.output, instruction)
    compute = getattr(inst, "f_compute", None)
    if compute is None:
        return Work(instruction, _issue(instruction, figures) + figures.cast_value_cycles * values)
    body = compute(*(Var("x", type=each.dtype) for each in inst.inputs))
    names = [function_name(call.func_var.name) for call in collect(body, Call)]
    special = sum(name in SPECIAL for name in names) + len(collect(body, Div)) * inst.output.dtype.is_float()
    operations = values * (1 + sum(name in SCALED_FUNCTIONS for name in names))
    cycles = _issue(instruction, figures) + figures.cast_value_cycles * operations
    results = special * values * WARP
    until = lambda sm, now, time: sm.special_functions(now, time, results)  # noqa: E731
    return Kept(instruction, cycles, until) if special else Work(instruction, cycles)


def _reduce(inst: Any, instruction: Instruction, figures: TimeFigures) -> Work:
    """Return the work of a reduction: in each thread, by shuffles between lanes, and back if warps exchange nothing."""
    from tilus.backends.emitters.reduce import ReduceInstEmitter

    of_warps = ReduceInstEmitter.requires_inter_warp_reduction(inst)
    shuffles = len(reduced_lane_bits(inst)) * (1 if of_warps else 2)
    results = inst.output.layout.local_size
    values = inst.inputs[0].layout.local_size + shuffles * results
    cycles = _issue(instruction, figures) + figures.cast_value_cycles * values + figures.shuffle_cycles * shuffles
    cycles += _in_turns(inst, instruction, figures) if of_warps else 0.0
    until = lambda sm, now, time: sm.shuffle(now, time, shuffles * results * WARP)  # noqa: E731
    return Shuffles(instruction, cycles, until, meets=of_warps)


def _in_turns(inst: Any, instruction: Instruction, figures: TimeFigures) -> float:
    """Return the cycles in which warps add to a sum in shared memory, one after another, and read the sum. The last
    sync is not included."""
    from tilus.backends.emitters.reduce import ReduceInstEmitter

    shape, kinds, *_ = ReduceInstEmitter.analyze_modes(inst)
    turns = math.prod(size for size, kind in zip(shape, kinds, strict=True) if kind == "reduced")
    meeting = figures.sync_cycles + figures.sync_warp_cycles * len(instruction.group.warps)
    values = inst.output.layout.local_size
    exchange = figures.stage_cycles + figures.stage_value_cycles * values + figures.unstage_cycles
    return turns * (exchange + meeting)


def _banks(inst: Any, instruction: Instruction, figures: TimeFigures) -> Work:
    """Return the work of st.shared, with cycles for each value, or of ld.shared, whose warp waits."""
    loads, cycles = inst.output is not None, _issue(instruction, figures)
    if not loads:
        cycles += figures.stage_value_cycles * _values(inst.inputs[1], instruction)
    return UseBanks(instruction, cycles, *turns_of(inst, instruction), returns=loads)


def _lines(inst: Any, instruction: Instruction, figures: TimeFigures) -> Work:
    """Return the work of coalesced loads or stores; the true places are known once it runs."""
    moved = inst.inputs[-1] if inst.output is None else inst.output
    count_bytes = _bytes(moved) / len(instruction.group.warps)
    took = count_bytes / figures.line_bytes
    registers = max(1, moved.layout.local_size * int(moved.dtype.nbits) // 32)
    return MoveLines(
        instruction, way_cycles=took, count_bytes=count_bytes, returns=inst.output is not None,
        part_cycles=float(figures.part_sector_cycles or 1), registers=registers,
    )  # fmt: skip


def _arrive_there(inst: Any, instruction: Instruction, figures: TimeFigures) -> Work:
    """Return the work of an arrival, which may release stores of threads to other CTAs."""
    issue = _issue(instruction, figures)
    if inst.scope == "cluster" and inst.sem != "relaxed" and figures.release_cycles is not None:
        cycles = issue + figures.release_cycles
        return Kept(instruction, cycles, lambda sm, now, time: sm.written + cycles)
    return Work(instruction, issue)


def _lock(inst: Any, instruction: Instruction, figures: TimeFigures) -> Work:
    """Return the work of an instruction on tensor-memory allocation: tcgen05.alloc, dealloc or
    relinquish_alloc_permit."""
    accesses = {effect.access for effect in instruction.description.effects}
    if Access.ALLOCATE in accesses:
        return Allocate(instruction, columns=allocated_columns(inst.output))
    if Access.WRITE in accesses:
        issue, columns = _issue(instruction, figures), allocated_columns(inst.inputs[0])
        return Free(instruction, issue, columns=columns, gives_back=True)
    return Work(instruction, gives_back=True)


def _issue(instruction: Instruction, figures: TimeFigures) -> float:
    """Return the cycles that the issue occupies the warp."""
    name = instruction.description.time.cycles
    return 1.0 * getattr(figures, name) if name else 0.0


def _later(inst: Any, instruction: Instruction, figures: TimeFigures) -> Work:
    told, cycles = bool(instruction.description.signalling(When.COMPLETION)), _issue(instruction, figures)
    return Served(instruction, at_once=not told, end=lambda sm, time: time + cycles)


def _cancel(inst: Any, instruction: Instruction, figures: TimeFigures) -> Work:
    end = lambda sm, time: time + sm.conditions.cycles(sm.figures.cancel_ns)  # noqa: E731
    return Served(instruction, _issue(instruction, figures), skips=False, end=end)


def _refuse(inst: Any, instruction: Instruction, figures: TimeFigures) -> Work:
    raise _unknown(instruction)


MAKERS: Mapping[Unit, Callable[[Any, Instruction, TimeFigures], Work]] = {
    Unit.NONE: lambda inst, instruction, figures: Work(instruction),
    Unit.UNKNOWN: _refuse,
    Unit.WARP: lambda inst, instruction, figures: Work(instruction, _issue(instruction, figures)),
    Unit.LATER: _later,
    Unit.WARPS: lambda inst, instruction, figures: Work(instruction),  # their meeting takes the time
    Unit.PEER: _arrive_there,
    Unit.TCGEN05: _multiply,
    Unit.WGMMA: _warpgroup_multiply,
    Unit.MMA_SYNC: _multiply_sync,
    Unit.TENSOR_MEMORY: _tensor_memory,
    Unit.TENSOR_COPY: _copy_scales,
    Unit.TENSOR_MEMORY_LOCK: _lock,
    Unit.TMA_LOAD: _load,
    Unit.TMA_STORE: _store,
    Unit.CP_ASYNC: _copy,
    Unit.CLC: _cancel,
    Unit.LINES: _lines,
    Unit.BANKS: _banks,
    Unit.ARITHMETIC: _arithmetic,
    Unit.SHUFFLES: _reduce,
}
"""Functions that return the work for each part of an SM: (tilus instruction, its place in a program, figures) ->
Work."""
