"""The one autotune space, why a schedule of it cannot run, and which one is taken when nobody says.

A rung names its knobs (`BlackwellMatmulV1.knobs`) and gets their part of `SPACE`. A schedule tells by its knobs what
the kernel needs: with `e_block_n` tiles move by TMA and C leaves in strips; with `stages` shared memory is a ring; with
`consumers` warps specialise; with `group_m` a CTA computes many tiles. What multiplies is the rung's (`Schedule.mma`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Protocol

from blackwell_matmul.errors import InputError
from blackwell_matmul.gpus import GPUS, Gpu
from blackwell_matmul.kernels import LADDERS
from blackwell_matmul.problem import INT32_MAX, Problem, Schedule, as_pins
from blackwell_matmul.wording import integer, plain_text, shown

SPACE: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "block_m": (128,),
        "block_n": (64, 128, 256),
        "block_k": (16, 32, 64),
        "e_block_n": (16, 32, 64),
        "stages": (2, 3, 4, 6),
        "consumers": (2,),
        "group_m": (1, 4, 8, 16),
    }
)
"""Every knob with its values, once for all rungs. Not every combination fits into every GPU: ask `why_not`."""


class HasKnobs(Protocol):
    """What a rung's class offers here."""

    __name__: str
    knobs: Sequence[str]


def projection(rung: type[HasKnobs] | Sequence[str]) -> tuple[Schedule, ...]:
    """The part of `SPACE` that a rung (or a sequence of knob names) can choose from, each schedule once, in order."""
    knobs = _knobs(rung)
    rows = itertools.product(*(SPACE[name] for name in knobs))
    mma = getattr(rung, "mma", "tcgen05")
    return tuple(dict.fromkeys(Schedule(**dict(zip(knobs, row)), mma=mma) for row in rows))


def _knobs(rung: type[HasKnobs] | Sequence[str]) -> tuple[str, ...]:
    names = getattr(rung, "knobs", None) if isinstance(rung, type) else rung
    if not isinstance(names, (tuple, list)):
        raise InputError(f"rung is {shown(rung)}; it must be a class with knobs of the space, or their names.")
    for name in names:
        if plain_text(name) not in SPACE:
            raise InputError(f"knob {shown(name)} is not in the space; its knobs are {', '.join(SPACE)}.")
    return tuple(map(str.__str__, names))


# --- what a schedule needs

ALIGNMENT_BYTES = 128
"""Shared memory is handed out in multiples of this, at least."""

MBARRIER_BYTES = 8
ALLOC_WORKSPACE_BYTES = 4
"""tcgen05.alloc leaves the address of the tensor memory in shared memory."""


@dataclass(frozen=True)
class Case:
    """A complete schedule on a problem and a GPU, with the sizes that follow."""

    block_m: int
    block_n: int
    block_k: int
    e_block_n: int | None
    stages: int
    consumers: int | None
    group_m: int | None
    mma: str
    problem: Problem
    gpu: Gpu
    ring: bool

    @property
    def uses_tma(self) -> bool:
        return self.e_block_n is not None

    @property
    def row_bytes(self) -> int:
        """A row of a tile of A or B in shared memory."""
        return self.block_k * self.problem.element_bytes

    @property
    def strip_row_bytes(self) -> int:
        """A row of a strip of C in shared memory; 0 where C leaves straight from registers."""
        return (self.e_block_n or 0) * self.problem.element_bytes

    @property
    def barriers(self) -> int:
        """One for TMA or one for each stage, and as many for the way back if warps specialise; tcgen05.mma has one."""
        of_tma = self.stages * (2 if self.consumers else 1) if self.uses_tma else 0
        return of_tma + (1 if self.mma == "tcgen05" else 0)

    @property
    def strip_buffers(self) -> int:
        """Strips of C that are in shared memory at once, in each group of rows: two if a CTA has tiles to come."""
        return min(2, self.block_n // self.e_block_n) if self.e_block_n and self.group_m else 1

    @property
    def registers(self) -> int:
        """What a thread holds of the tile of C and, for mma.sync, of A and B; 0 where tensor memory does."""
        if self.mma == "tcgen05":
            return 0
        if self.mma == "wgmma":
            return self.block_m * self.block_n // (WARPGROUP * (self.consumers or 1))
        operands = (self.block_m // 4 + self.block_n // 2) * self.row_bytes // (4 * 32)
        return self.block_m * self.block_n // MMA_SYNC_THREADS + operands

    @property
    def ctas(self) -> int:
        return _ceil_div(self.problem.m, self.block_m) * _ceil_div(self.problem.n, self.block_n)

    @property
    def k_tiles(self) -> int:
        return _ceil_div(self.problem.k, self.block_k)


def dynamic_shared_bytes(schedule: Schedule, problem: Problem, gpu: Gpu) -> int:
    """What the launch asks for: A, B, the strip of C, the barriers, and the word that tcgen05.alloc writes."""
    return _dynamic_shared_bytes(_case(schedule, problem, gpu))


def _dynamic_shared_bytes(case: Case) -> int:
    end = 0
    for rows, row_bytes in (
        (case.stages * case.block_m, case.row_bytes),
        (case.stages * case.block_n, case.row_bytes),
        (case.strip_buffers * case.block_m, case.strip_row_bytes),
    ):
        alignment = _alignment_bytes(row_bytes)
        end = _round_up(_round_up(end, alignment) + rows * row_bytes, alignment)
    end = _round_up(end, ALIGNMENT_BYTES) + _round_up(case.barriers * MBARRIER_BYTES, ALIGNMENT_BYTES)
    return end + (ALLOC_WORKSPACE_BYTES if case.mma == "tcgen05" else 0)


SWIZZLE_BYTES = (128, 64, 32, 16)
"""How long a row can be for TMA to spread it over the banks; 16 is no swizzle (PTX ISA, "Swizzling Modes")."""


def _alignment_bytes(row_bytes: int) -> int:
    """A swizzle repeats after eight rows of its length, and a tile starts where the pattern starts."""
    swizzle = next((size for size in SWIZZLE_BYTES if row_bytes % size == 0), 0)
    return max(ALIGNMENT_BYTES, 8 * swizzle)


def tensor_memory_columns(block_n: int) -> int:
    """What tcgen05.alloc takes for an accumulator of fp32: a power of two, 32 at least (PTX ISA, "tcgen05.alloc")."""
    return max(32, 1 << (block_n - 1).bit_length())


# --- why not: one function for each reason

MMA_M = 128
MMA_N_STEP = 16
MMA_K = 16
"""One tcgen05.mma of kind::f16 with cta_group::1, as tilus 0.2.0 emits it (PTX ISA, "tcgen05 Matrix Shapes")."""

MMA_ARCHS = ("sm_100a",)
"""Where tilus 0.2.0 generates tcgen05.mma. B300 has the instruction; its sm_103a is not served yet."""

WARPGROUP = 128
WGMMA_M = 64
WGMMA_N_STEP = 8
"""Threads, and one wgmma of 16-bit types (PTX ISA, "Asynchronous wgmma" shapes: m64, n a multiple of 8, k16)."""

MMA_SYNC_N = 8
MMA_SYNC_ROWS = 64
MMA_SYNC_THREADS = 256
"""One mma.sync of 16-bit types is m16n8k16 (PTX ISA, "Matrix Fragments for mma.m16n8k16"); of eight warps four share
the rows of a tile and two its columns."""

SPARE_REGISTERS = 60
"""What a thread needs besides its part of the accumulator: addresses, the loop, a strip on its way out. Kernels that
were compiled for sm_90a took 26 to 60 (`Bundle.resources`)."""

TMA_BOX_EXTENT = 256
TMA_BYTES = 16
"""A dimension of a box, and what rows and addresses are multiples of (CUDA driver API, cuTensorMapEncodeTiled)."""

GRID_Y = 65535


def _rungs_for(arch: str) -> str:
    return f", and the rungs for {arch} are {', '.join(sorted(LADDERS[arch]))}" if arch in LADDERS else ""


def _mma_needs_its_gpu(case: Case) -> str | None:
    return _why_no_mma(case.mma, case.gpu)


def _why_no_mma(mma: str, gpu: Gpu) -> str | None:
    if mma == "mma.sync":
        return None if "tma" in gpu.features else f"{gpu} has no TMA; GPUs from sm_90 on have it."
    if mma not in gpu.features:
        has = {"tcgen05": "B200 and GB200 have them", "wgmma": "H100 and H200 have them"}[mma]
        what = {"tcgen05": "tcgen05 instructions and no tensor memory", "wgmma": "wgmma instructions"}[mma]
        return f"{gpu} has no {what}; {has}{_rungs_for(gpu.arch)}."
    if mma == "tcgen05" and gpu.arch not in MMA_ARCHS:
        return f"tilus 0.2.0 generates no tcgen05.mma for {gpu}; it does for {', '.join(MMA_ARCHS)}."
    return None


def targets(mma: str) -> tuple[str, ...]:
    """The architectures, of the GPUs that are known, for which a kernel that multiplies so can be compiled."""
    return tuple(dict.fromkeys(gpu.arch for gpu in GPUS.values() if _why_no_mma(mma, gpu) is None))


def _block_m_is_one_mma(case: Case) -> str | None:
    if case.mma != "tcgen05" or case.block_m == MMA_M:
        return None
    return f"block_m = {case.block_m}: tcgen05.mma computes {MMA_M} rows, one in each lane that the four warps read."


def _block_m_is_whole_wgmmas(case: Case) -> str | None:
    rows = WGMMA_M * (case.consumers or 1)
    if case.mma == "mma.sync" and case.block_m % MMA_SYNC_ROWS:
        return f"block_m = {case.block_m}: mma.sync of four warps computes 64 rows; {_round_up(case.block_m, 64)} fit."
    if case.mma != "wgmma" or (case.block_m == rows if case.consumers else case.block_m % rows == 0):
        return None
    if case.consumers:
        return f"block_m = {case.block_m}: {case.consumers} warpgroups compute {WGMMA_M} rows each, {rows} in all."
    return f"block_m = {case.block_m}: wgmma computes {WGMMA_M} rows at a time; {_round_up(case.block_m, rows)} fit."


def _block_n_is_whole_mmas(case: Case) -> str | None:
    step = MMA_N_STEP if case.mma == "tcgen05" else MMA_SYNC_N if case.mma == "mma.sync" else WGMMA_N_STEP
    if case.block_n % step == 0:
        return None
    fit = _round_up(case.block_n, step)
    which = f"tcgen05.mma with M = {MMA_M}" if case.mma == "tcgen05" else case.mma
    return f"block_n = {case.block_n}: {which} needs N a multiple of {step}; {fit} is one."


def _block_k_is_whole_mmas(case: Case) -> str | None:
    if case.block_k % MMA_K == 0:
        return None
    fit, name = _round_up(case.block_k, MMA_K), "tcgen05.mma" if case.mma == "tcgen05" else case.mma
    return f"block_k = {case.block_k}: {name} takes {MMA_K} 16-bit elements along k at a time; {fit} is a multiple."


def _registers_fit(case: Case) -> str | None:
    need, have = case.registers, case.gpu.max_registers_per_thread
    if not need or need + SPARE_REGISTERS <= have:
        return None
    return (
        f"block_m = {case.block_m}, block_n = {case.block_n}: what a thread holds of the tile takes {need} registers "
        f"and it has {have} for everything; make block_n smaller."
    )


def _accumulator_fits(case: Case) -> str | None:
    need, have = tensor_memory_columns(case.block_n), case.gpu.tensor_memory_columns
    if need <= have or not have or case.mma != "tcgen05":
        return None
    return (
        f"block_n = {case.block_n}: the fp32 accumulator takes {need} columns of tensor memory and an SM of "
        f"{case.gpu} has {have}; make block_n smaller."
    )


def _shared_memory_fits(case: Case) -> str | None:
    need, have = _dynamic_shared_bytes(case), case.gpu.shared_memory_per_block_bytes
    if need <= have:
        return None
    ring = f"{case.stages} stages of " if case.ring else ""
    return (
        f"Shared memory: {ring}A {case.block_m}x{case.block_k} and B {case.block_n}x{case.block_k} and the rest take "
        f"{need} bytes and a CTA on {case.gpu} can have {have}; lower "
        f"{'stages, ' if case.ring else ''}block_n or block_k."
    )


def _box_rows_fit(case: Case) -> str | None:
    extent = max(case.block_m, case.block_n)
    if not case.uses_tma or extent <= TMA_BOX_EXTENT:
        return None
    name = "block_m" if case.block_m == extent else "block_n"
    return f"{name} = {extent}: a TMA box has at most {TMA_BOX_EXTENT} rows; make {name} smaller."


def _tile_row_is_one_swizzle(case: Case) -> str | None:
    if not case.uses_tma or case.row_bytes in SWIZZLE_BYTES:
        return None
    return _swizzle_reason("block_k", case.block_k, case.row_bytes, case.problem.element_bytes)


def _strip_row_is_one_swizzle(case: Case) -> str | None:
    if case.e_block_n is None or case.strip_row_bytes in SWIZZLE_BYTES:
        return None
    return _swizzle_reason("e_block_n", case.e_block_n, case.strip_row_bytes, case.problem.element_bytes)


def _swizzle_reason(name: str, value: int, row_bytes: int, element_bytes: int) -> str:
    fit = ", ".join(str(size // element_bytes) for size in reversed(SWIZZLE_BYTES))
    return (
        f"{name} = {value}: a row of the tile is {row_bytes} bytes, and TMA swizzles rows of 32, 64 or 128 bytes "
        f"and leaves those of 16 as they are; {name} can be {fit}."
    )


def _strips_fill_the_tile(case: Case) -> str | None:
    if case.e_block_n is None or case.block_n % case.e_block_n == 0:
        return None
    return f"e_block_n = {case.e_block_n}: strips must fill block_n = {case.block_n}, so it must be a divisor of it."


def _tma_reads_rows_of_a_and_b(case: Case) -> str | None:
    return _tma_row_reason("K", case.problem.k, "A and of B", case.problem) if case.uses_tma else None


def _tma_writes_rows_of_c(case: Case) -> str | None:
    return _tma_row_reason("N", case.problem.n, "C", case.problem) if case.uses_tma else None


def _tma_row_reason(name: str, extent: int, whose: str, problem: Problem) -> str | None:
    row_bytes = extent * problem.element_bytes
    if row_bytes % TMA_BYTES == 0:
        return None
    fit = _round_up(row_bytes, TMA_BYTES) // problem.element_bytes
    return (
        f"{name} = {extent}: a row of {whose} is {row_bytes} bytes, TMA needs a multiple of {TMA_BYTES}; "
        f"pad {name} to {fit}."
    )


def _cp_async_copies_four_bytes(case: Case) -> str | None:
    k, row_bytes = case.problem.k, case.problem.k * case.problem.element_bytes
    if case.uses_tma or row_bytes % 4 == 0:
        return None
    return (
        f"K = {k}: a row of A and of B is {row_bytes} bytes, cp.async copies 4, 8 or 16 bytes at a multiple of that; "
        f"pad K to {k + 1}."
    )


def _offsets_fit_int32(case: Case) -> str | None:
    if case.uses_tma:  # coordinates, not offsets
        return None
    m, n, k = case.problem.m, case.problem.n, case.problem.k
    name, size = max((("A", m * k), ("B", n * k), ("C", m * n)), key=lambda pair: pair[1])
    if size <= INT32_MAX:
        return None
    return f"{name} has {size} elements; without TMA, offsets into it are 32-bit integers and reach {INT32_MAX}."


def _grid_fits(case: Case) -> str | None:
    tiles = _ceil_div(case.problem.n, case.block_n)
    if tiles <= GRID_Y:
        return None
    return f"N = {case.problem.n}: {tiles} tiles along n, and a grid has at most {GRID_Y} CTAs in y; widen block_n."


Rule = Callable[[Case], str | None]

RULES: tuple[Rule, ...] = (
    _mma_needs_its_gpu,
    _block_m_is_one_mma,
    _block_m_is_whole_wgmmas,
    _accumulator_fits,
    _shared_memory_fits,
    _tile_row_is_one_swizzle,
    _cp_async_copies_four_bytes,
)
"""What tilus's code generation refuses as well."""

STRICTER_RULES: tuple[Rule, ...] = (
    _block_n_is_whole_mmas,
    _block_k_is_whole_mmas,
    _registers_fit,
    _strips_fill_the_tile,
    _strip_row_is_one_swizzle,
    _box_rows_fit,
    _tma_reads_rows_of_a_and_b,
    _tma_writes_rows_of_c,
    _offsets_fit_int32,
    _grid_fits,
)
"""What code generation lets pass, all or in part, and the driver, PTX or the result does not."""


def why_not(schedule: Schedule, problem: Problem, gpu: Gpu) -> list[str]:
    """Each reason why `schedule` cannot run `problem` on `gpu`, one sentence with the numbers; empty if it can."""
    _require(schedule=(schedule, Schedule), problem=(problem, Problem), gpu=(gpu, Gpu))
    missing = _missing(schedule)
    if missing:
        return [missing]
    return reasons(RULES + STRICTER_RULES, schedule, problem, gpu)


def _require(**arguments: tuple[object, type]) -> None:
    for name, (value, wanted) in arguments.items():
        if not isinstance(value, wanted):
            raise InputError(f"{name} is {shown(value)}; it must be a {wanted.__name__}.")


def reasons(rules: Sequence[Rule], schedule: Schedule, problem: Problem, gpu: Gpu) -> list[str]:
    """The sentences of those of `rules` that a complete schedule breaks."""
    case = _case(schedule, problem, gpu)
    return [reason for rule in rules if (reason := rule(case)) is not None]


def _missing(schedule: Schedule) -> str | None:
    for name in ("block_m", "block_n", "block_k"):
        if getattr(schedule, name) is None:
            return f"{name} is not set; every schedule has block_m, block_n and block_k."
    for later, earlier in (("stages", "e_block_n"), ("consumers", "stages"), ("group_m", "consumers")):
        if getattr(schedule, later) is not None and getattr(schedule, earlier) is None:
            return f"{earlier} is not set; a schedule with {later} has it."
    return None


def _case(schedule: Schedule, problem: Problem, gpu: Gpu) -> Case:
    block_m, block_n, block_k = schedule.block_m, schedule.block_n, schedule.block_k
    if block_m is None or block_n is None or block_k is None:
        raise InputError(f"schedule {schedule} is incomplete; it needs block_m, block_n and block_k.")
    return Case(
        block_m=block_m,
        block_n=block_n,
        block_k=block_k,
        e_block_n=schedule.e_block_n,
        stages=1 if schedule.stages is None else schedule.stages,
        consumers=schedule.consumers,
        group_m=schedule.group_m,
        mma=schedule.mma,
        problem=problem,
        gpu=gpu,
        ring=schedule.stages is not None,
    )


# --- the choice


def choose(
    rung: type[HasKnobs] | Sequence[str], problem: Problem, gpu: Gpu, pins: Mapping[str, object] | None = None
) -> Schedule:
    """The schedule to use when nobody pins it, or the best of those that match `pins`.

    Of the schedules that can run and are no larger than the problem needs, those that give every SM a tile of C
    are preferred, if there are any. Among them the widest block_n wins, then the deepest block_k, then the most
    stages that the k-tiles can fill, then the widest strip: few large tiles move the fewest bytes.

    Pins that leave nothing raise InputError.
    """
    _require(problem=(problem, Problem), gpu=(gpu, Gpu))
    matching = _matching(rung, as_pins(pins))
    cases = {schedule: _case(schedule, problem, gpu) for schedule in matching if not why_not(schedule, problem, gpu)}
    if not cases:
        raise InputError(_nothing_runs(rung, matching, problem, gpu))
    candidates = _no_larger_than_needed(cases)
    filling = [case for case in candidates if case.ctas >= gpu.sm_count]
    best = max(filling or candidates, key=_preference)
    return next(schedule for schedule, case in cases.items() if case is best)


def _no_larger_than_needed(cases: Mapping[Schedule, Case]) -> list[Case]:
    """Without the tiles that reach past the whole of N or K where a smaller one already covers it."""
    kept = list(cases.values())
    widest = _covering((case.block_n for case in kept), kept[0].problem.n)
    kept = [case for case in kept if case.block_n <= widest]
    deepest = _covering((case.block_k for case in kept), kept[0].problem.k)
    return [case for case in kept if case.block_k <= deepest]


def _covering(sizes: Iterable[int], extent: int) -> int:
    """The smallest size that covers `extent`, or the largest."""
    ordered = sorted(sizes)
    return next((size for size in ordered if size >= extent), ordered[-1])


def _preference(case: Case) -> tuple[int, ...]:
    filled_stages = min(case.stages, case.k_tiles)
    tile = (case.block_m, case.block_n, case.block_k)
    return (*tile, filled_stages, -case.stages, case.e_block_n or 0, case.group_m or 0)


def _matching(rung: type[HasKnobs] | Sequence[str], pins: Mapping[str, object]) -> list[Schedule]:
    """The schedules with the pinned values; a knob or a value that does not exist is refused by name."""
    knobs = _knobs(rung)
    for name, value in pins.items():
        if name not in knobs:
            raise InputError(f"{_label(rung)} has no knob {shown(name)}; its knobs are {', '.join(knobs)}.")
        if integer(value, 1, INT32_MAX) not in SPACE[name]:
            offered = ", ".join(map(str, SPACE[name]))
            raise InputError(f"{name} = {shown(value)} is outside of the space; {name} can be {offered}.")
    return [schedule for schedule in projection(rung) if schedule.matches(pins)]


def _nothing_runs(rung: type[HasKnobs] | Sequence[str], matching: list[Schedule], problem: Problem, gpu: Gpu) -> str:
    """What stops all of them; or, if each has its own trouble, what stops the one that asks for least."""
    listed = [why_not(schedule, problem, gpu) for schedule in matching]
    common = [reason for reason in listed[0] if all(reason in other for other in listed)]
    fewest = min(range(len(listed)), key=lambda i: len(listed[i]))
    why = "; ".join(reason.rstrip(".") for reason in common or listed[fewest]) + "."
    if len(matching) == 1:
        return f"{_label(rung)} with {matching[0]} cannot run {problem} on {gpu}: {why}"
    return f"None of {len(matching)} schedules of {_label(rung)} can run {problem} on {gpu}: {why}"


def _label(rung: type[HasKnobs] | Sequence[str]) -> str:
    return rung.__name__ if isinstance(rung, type) else "this kernel"


def _ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def _round_up(value: int, step: int) -> int:
    return _ceil_div(value, step) * step
