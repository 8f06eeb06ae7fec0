"""The one autotune space, why a schedule of it cannot run, and which one is taken when nobody says.

A rung names its knobs (`BlackwellMatmulV1.knobs`) and gets their part of `SPACE`. A schedule tells by its knobs what
the kernel needs: with `e_block_n` tiles move by TMA and C leaves in strips; with `stages` shared memory is a ring; with
`consumers` warps specialise; with `group_m` a CTA computes many tiles. What multiplies is the rung's (`Schedule.mma`).
"""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from types import MappingProxyType
from typing import Any, Protocol

from blackwell_matmul.errors import InputError
from blackwell_matmul.gpus import GPUS, Gpu
from blackwell_matmul.kernels import LADDERS
from blackwell_matmul.kernels.case import (
    SPARE_REGISTERS,
    SWIZZLE_BYTES,
    Case,
    case_of,
    ceil_div,
    round_up,
    shared_bytes,
    tensor_memory_columns,
)
from blackwell_matmul.kernels.cycles import predicted_cycles
from blackwell_matmul.problem import INT32_MAX, Problem, Schedule, as_pins
from blackwell_matmul.validation import integer, plain_text, shown

SPACE: Mapping[str, tuple[int, ...]] = MappingProxyType(
    {
        "block_m": (64, 128),
        "block_n": (64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256),
        "block_k": (16, 32, 64),
        "e_block_n": (16, 32, 64),
        "stages": (2, 3, 4, 6, 8, 12),
        "consumers": (1, 2),
        "group_m": (1, 4, 8, 16),
        "cluster_m": (1, 2),
        "split_k": (1, 2, 4, 8),
    }
)
"""Every knob with its values, once for all rungs. Not every combination fits into every GPU: ask `why_not`."""


class HasKnobs(Protocol):
    """What a rung's class offers here."""

    __name__: str
    knobs: Sequence[str]


def projection(rung: type[HasKnobs] | Sequence[str]) -> tuple[Schedule, ...]:
    """The part of `SPACE` that a rung (or a sequence of knob names) can choose from, each schedule once, in order.

    Without what no problem and no GPU could make run: tiles that the rung's mma does not compute, and strips that do
    not fill one. And a split tile is one of few: their order makes no difference, so they have one.
    """
    return _projection(_knobs(rung), getattr(rung, "mma", "tcgen05"))


@cache
def _projection(knobs: tuple[str, ...], mma: str) -> tuple[Schedule, ...]:
    rows = (dict(zip(knobs, values)) for values in itertools.product(*(SPACE[name] for name in knobs)))
    return tuple(dict.fromkeys(Schedule(**row, mma=mma) for row in rows if _is_one(row, mma)))


def _is_one(row: Mapping[str, int], mma: str) -> bool:
    rows, columns = row.get("block_m", MMA_M), row.get("block_n", 0)
    if mma == "tcgen05" and rows != MMA_M:
        return False
    strips, rest = divmod(columns, row.get("e_block_n", 1))
    split_k, cluster_m = row.get("split_k", 1), row.get("cluster_m", 1)
    if rest or strips < split_k or split_k * cluster_m > MAX_CLUSTER_CTAS:
        return False
    if (columns % COLUMNS_STEP and not (mma == "wgmma" and "consumers" in row)) or (
        split_k > 1 and row.get("group_m", 0) < SPACE["group_m"][-1]
    ):
        return False
    return rows == WGMMA_M * row.get("consumers", rows // WGMMA_M)


COLUMNS_STEP = 32
"""Of block_n, in the space, except where wgmma works alone: 3584 columns are 32 tiles of 112, which fill an H200 with
four rows of them."""


def _knobs(rung: type[HasKnobs] | Sequence[str]) -> tuple[str, ...]:
    names = getattr(rung, "knobs", None) if isinstance(rung, type) else rung
    if not isinstance(names, (tuple, list)):
        raise InputError(f"rung is {shown(rung)}; it must be a class with knobs of the space, or their names.")
    for name in names:
        if plain_text(name) not in SPACE:
            raise InputError(f"knob {shown(name)} is not in the space; its knobs are {', '.join(SPACE)}.")
    return tuple(map(str.__str__, names))


# --- why not: one function for each reason

MMA_M = 128
MMA_N_STEP = 16
MMA_K = 16
"""One tcgen05.mma of kind::f16 with cta_group::1, as tilus 0.2.0 emits it (PTX ISA, "tcgen05 Matrix Shapes")."""

MMA_ARCHS = ("sm_100a",)
"""Where tilus 0.2.0 generates tcgen05.mma. B300 has the instruction; its sm_103a is not served yet."""

WGMMA_M = 64
WGMMA_N_STEP = 8
"""One wgmma of 16-bit types (PTX ISA, "Asynchronous wgmma" shapes: m64, n a multiple of 8, k16)."""

MMA_SYNC_N = 8
MMA_SYNC_ROWS = 64
"""One mma.sync of 16-bit types is m16n8k16 (PTX ISA, "Matrix Fragments for mma.m16n8k16"); four warps share rows."""

TMA_BOX_EXTENT = 256
TMA_BYTES = 16
"""A dimension of a box, and what rows and addresses are multiples of (CUDA driver API, cuTensorMapEncodeTiled)."""

SHARE_ROWS = 8
"""After so many rows a swizzle begins anew: a part of a tile that TMA writes starts there."""

MAX_CLUSTER_CTAS = 8
"""The largest portable size (CUDA Programming Guide, "Thread Block Clusters")."""

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
        return f"block_m = {case.block_m}: mma.sync of four warps computes 64 rows; {round_up(case.block_m, 64)} fit."
    if case.mma != "wgmma" or (case.block_m == rows if case.consumers else case.block_m % rows == 0):
        return None
    if case.consumers:
        return f"block_m = {case.block_m}: consumers = {case.consumers} compute {WGMMA_M} rows each, {rows} in all."
    return f"block_m = {case.block_m}: wgmma computes {WGMMA_M} rows at a time; {round_up(case.block_m, rows)} fit."


def _block_n_is_whole_mmas(case: Case) -> str | None:
    step = MMA_N_STEP if case.mma == "tcgen05" else MMA_SYNC_N if case.mma == "mma.sync" else WGMMA_N_STEP
    if case.block_n % step == 0:
        return None
    fit = round_up(case.block_n, step)
    which = f"tcgen05.mma with M = {MMA_M}" if case.mma == "tcgen05" else case.mma
    return f"block_n = {case.block_n}: {which} needs N a multiple of {step}; {fit} is one."


def _block_k_is_whole_mmas(case: Case) -> str | None:
    if case.block_k % MMA_K == 0:
        return None
    fit, name = round_up(case.block_k, MMA_K), "tcgen05.mma" if case.mma == "tcgen05" else case.mma
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
    need, have = shared_bytes(case), case.gpu.shared_memory_per_block_bytes
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


def _shares_fill_the_tile_of_b(case: Case) -> str | None:
    if case.block_n % (SHARE_ROWS * case.cluster_m) == 0:
        return None
    return (
        f"cluster_m = {case.cluster_m}: each CTA loads its share of block_n = {case.block_n} rows of B, in groups of "
        f"{SHARE_ROWS}; block_n must be a multiple of {SHARE_ROWS * case.cluster_m}."
    )


def _strips_for_every_cta(case: Case) -> str | None:
    if case.e_block_n is None or case.strips >= case.split_k:
        return None
    return (
        f"split_k = {case.split_k}: each CTA finishes strips of a tile, and block_n = {case.block_n} with e_block_n = "
        f"{case.e_block_n} has {case.strips}; make e_block_n smaller."
    )


def _cluster_fits(case: Case) -> str | None:
    if case.cluster_ctas <= MAX_CLUSTER_CTAS:
        return None
    return (
        f"cluster_m = {case.cluster_m}, split_k = {case.split_k}: a cluster would have {case.cluster_ctas} CTAs, and "
        f"it can have {MAX_CLUSTER_CTAS} on every GPU; lower one of them."
    )


def _tma_reads_rows_of_a_and_b(case: Case) -> str | None:
    return _tma_row_reason("K", case.problem.k, "A and of B", case.problem) if case.uses_tma else None


def _tma_writes_rows_of_c(case: Case) -> str | None:
    return _tma_row_reason("N", case.problem.n, "C", case.problem) if case.uses_tma else None


def _tma_row_reason(name: str, extent: int, whose: str, problem: Problem) -> str | None:
    row_bytes = extent * problem.element_bytes
    if row_bytes % TMA_BYTES == 0:
        return None
    fit = round_up(row_bytes, TMA_BYTES) // problem.element_bytes
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
    tiles = ceil_div(case.problem.n, case.block_n)
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
    _shares_fill_the_tile_of_b,
    _strips_for_every_cta,
    _cluster_fits,
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
    case = case_of(schedule, problem, gpu)
    return [reason for rule in rules if (reason := rule(case)) is not None]


def _missing(schedule: Schedule) -> str | None:
    for name in ("block_m", "block_n", "block_k"):
        if getattr(schedule, name) is None:
            return f"{name} is not set; every schedule has block_m, block_n and block_k."
    for later, earlier in (
        ("stages", "e_block_n"),
        ("consumers", "stages"),
        ("group_m", "consumers"),
        ("cluster_m", "group_m"),
        ("split_k", "cluster_m"),
    ):
        if getattr(schedule, later) is not None and getattr(schedule, earlier) is None:
            return f"{earlier} is not set; a schedule with {later} has it."
    return None


# --- the choice


def choose(
    rung: type[HasKnobs] | Sequence[str], problem: Problem, gpu: Gpu, pins: Mapping[str, object] | None = None
) -> Schedule:
    """The schedule to use when nobody pins it, or the best of those that match `pins`: of those that can run, the one
    with the fewest predicted cycles (`cycles.predicted_cycles`), and of those the largest tile.

    Pins that leave nothing raise InputError.
    """
    _require(problem=(problem, Problem), gpu=(gpu, Gpu))
    matching = _matching(rung, as_pins(pins))
    for schedule in sorted(matching, key=lambda schedule: preference(schedule, problem, gpu)):
        if not why_not(schedule, problem, gpu):
            return schedule
    raise InputError(_nothing_runs(rung, matching, problem, gpu))


RESOLUTION = 0.01
"""What is nearer than this, of the whole, counts as equal: predictions are not that good."""


def preference(schedule: Schedule, problem: Problem, gpu: Gpu) -> tuple[int, ...]:
    """What to sort schedules by, best first; of equals few large tiles come first, then wide strips and
    stages that k-tiles can fill, and last small clusters."""
    case = case_of(schedule, problem, gpu)
    filled = min(case.stages, case.k_tiles)
    tile = case.block_m, case.block_n, case.block_k
    largest = (*tile, case.e_block_n or 0, filled, -case.stages, case.group_m or 0, -case.cluster_m, -case.split_k)
    return (round(math.log(predicted_cycles(case)) / RESOLUTION), *(-size for size in largest))


def _matching(rung: type[HasKnobs] | Sequence[str], pins: Mapping[str, object]) -> list[Schedule]:
    """The schedules with the pinned values; a knob or a value that does not exist is refused by name."""
    knobs = _knobs(rung)
    for name, value in pins.items():
        if name not in knobs:
            raise InputError(f"{_label(rung)} has no knob {shown(name)}; its knobs are {', '.join(knobs)}.")
        offered = sorted({getattr(schedule, name) for schedule in projection(rung)})
        if integer(value, 1, INT32_MAX) not in offered:
            can = ", ".join(map(str, offered))
            raise InputError(f"{name} = {shown(value)} is outside of the space; {name} can be {can}.")
    found = [schedule for schedule in projection(rung) if schedule.matches(pins)]
    return found or _in_another_order(rung, pins) or [_pinned(rung, pins)]


def _in_another_order(rung: type[HasKnobs] | Sequence[str], pins: Mapping[str, Any]) -> list[Schedule]:
    """Those that match but for group_m: a split tile is listed with one order of the tiles, and can have any."""
    others = {name: value for name, value in pins.items() if name != "group_m"}
    matching = [schedule for schedule in projection(rung) if schedule.matches(others)] if "group_m" in pins else []
    return [dataclasses.replace(schedule, group_m=pins["group_m"]) for schedule in matching]


def _pinned(rung: type[HasKnobs] | Sequence[str], pins: Mapping[str, object]) -> Schedule:
    """One that has the pins, where no tile of the projection does: why_not says why."""
    values: dict[str, Any] = {name: pins.get(name, SPACE[name][0]) for name in _knobs(rung)}
    return Schedule(**values, mma=getattr(rung, "mma", "tcgen05"))


def _nothing_runs(rung: type[HasKnobs] | Sequence[str], matching: list[Schedule], problem: Problem, gpu: Gpu) -> str:
    """What stops all of them; or, if each has its own trouble, what stops the one that asks for least."""
    listed = [why_not(schedule, problem, gpu) for schedule in matching]
    common = [reason for reason in listed[0] if all(reason in other for other in listed)]
    fewest = min(range(len(listed)), key=lambda i: len(listed[i]))
    why = "; ".join(reason.rstrip(".") for reason in common or listed[fewest]) + "."
    if _why_no_mma(matching[0].mma, gpu):
        return f"{_label(rung)} cannot run: {why}"
    if len(matching) == 1:
        return f"{_label(rung)} with {matching[0]} cannot run {problem} on {gpu}: {why}"
    return f"None of {len(matching)} schedules of {_label(rung)} can run {problem} on {gpu}: {why}"


def _label(rung: type[HasKnobs] | Sequence[str]) -> str:
    return rung.__name__ if isinstance(rung, type) else "this kernel"
