"""Reasons why a schedule cannot run a problem on a GPU: one predicate each, a sentence with the numbers."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import shown
from blackwell_matmul.hardware.gpus import GPUS, Gpu, lacking, with_gpus
from blackwell_matmul.problem.block_scaled import ATOM_BLOCKS
from blackwell_matmul.problem.form import BLOCK_SCALES, PLAIN, SCALED_K
from blackwell_matmul.problem.problem import C_BYTES, EIGHT_BITS, INT32_MAX, Problem, Schedule
from blackwell_matmul.scheduling.ladders import KERNELS_BY_FEATURE
from blackwell_matmul.scheduling.mma import EVERY_SPEC, SCALES_OF_A_LINE, Wgmma, spec_of, tile_config
from blackwell_matmul.scheduling.tile_config import (
    LAST_ROWS,
    MMA_K_BYTES,
    SWIZZLE_BYTES,
    MmaSpec,
    TileConfig,
    ceil_div,
    round_up,
)

SPARE_REGISTERS = 60
"""Registers of a thread in addition to its part of the accumulator: addresses, the loop, a strip of C. Kernels compiled
for sm_90a took 26 to 60 (`Bundle.resources`)."""

FEW_REGISTERS = 32
"""As `SPARE_REGISTERS`, for a thread that has fewer than the hardware's maximum; ptxas then uses fewer for the rest."""

TMA_BOX_EXTENT = 256
TMA_BYTES = 16
"""Maximum elements in a dimension of a box, and alignment in bytes (CUDA driver API, cuTensorMapEncodeTiled)."""

SAME_BANKS_BYTES = 64
"""Bytes: unswizzled rows of a multiple begin in the same banks, four or all of eight; other rows in pairs."""

SPAN_BYTES = 128
"""Bytes of one piece of an MN-major operand in shared memory (`frontend.operand_majors`)."""

SHARE_ROWS = 8
"""Rows after which a swizzle repeats: parts of a tile that TMA writes begin at a multiple of it."""

MAX_CLUSTER_CTAS = 8
"""CTAs of the largest portable cluster (CUDA Programming Guide, "Thread Block Clusters")."""

GRID_Y = 65535


def _kernels_for(gpu: Gpu) -> str:
    able = [name for feature, names in KERNELS_BY_FEATURE.items() if feature in gpu.features for name in names]
    return f", and the kernels for {gpu.arch} are {', '.join(able)}" if able else ""


def why_no_mma(mma: MmaSpec, gpu: Gpu) -> str | None:
    """Return one sentence: why this GPU cannot run a kernel with this MMA; None if it can."""
    if mma.gpu_feature not in gpu.features:
        return f"{lacking(gpu.arch, mma.gpu_feature)}{_kernels_for(gpu)}."
    return None


def targets(mma: str, features: Collection[str] | None = None) -> tuple[str, ...]:
    """Return the architectures of known GPUs for which a kernel with this MMA and these features can be compiled."""
    spec = spec_of(mma, features)
    return tuple(dict.fromkeys(gpu.arch for gpu in GPUS.values() if why_no_mma(spec, gpu) is None))


def _mma_needs_its_gpu(tile: TileConfig) -> str | None:
    return why_no_mma(tile.mma, tile.gpu)


def _types_are_the_mmas(tile: TileConfig) -> str | None:
    dtypes = tile.mma.dtypes + (EIGHT_BITS if "forms" in tile.features else ())
    if tile.problem.dtype in dtypes:
        return None
    able = ", ".join(each.instruction for each in EVERY_SPEC if tile.problem.dtype in each.dtypes)
    own = f"the rungs on {tile.mma.instruction} take {' and '.join(tile.mma.dtypes)}"
    return f"dtype = {tile.problem.dtype}: {own}; those on {able} take it."


def _block_k_is_whole_mmas(tile: TileConfig) -> str | None:
    bits, name = tile.problem.element_bits, tile.mma.instruction
    step = 8 * MMA_K_BYTES // bits
    if tile.block_k % step == 0:
        return None
    fit = round_up(tile.block_k, step)
    return f"block_k = {tile.block_k}: {name} takes {step} {bits}-bit elements along k at a time; {fit} is a multiple."


def _k_tile_is_whole_atoms(tile: TileConfig) -> str | None:
    form = tile.problem.format
    if form is None or "scaled" not in tile.features or tile.block_k % form.atom_k == 0:
        return None
    fit = round_up(tile.block_k, form.atom_k)
    return (
        f"block_k = {tile.block_k}: scales of {tile.problem.dtype} come in atoms of {ATOM_BLOCKS} blocks of "
        f"{form.block} elements along k; {fit} is a multiple."
    )


def _accumulator_fits(tile: TileConfig) -> str | None:
    need, have = tile.tensor_memory_columns, tile.gpu.tensor_memory_columns
    if need <= have or not have:
        return None
    return (
        f"block_n = {tile.block_n}: {tile.mma.accumulates} {need} columns of tensor memory and an SM of "
        f"{with_gpus(tile.gpu.arch)} has {have}; {tile.mma.fewer_columns}."
    )


def _registers_fit(tile: TileConfig) -> str | None:
    need, have = tile.registers, tile.registers_per_thread
    spare = SPARE_REGISTERS if have == tile.gpu.max_registers_per_thread else FEW_REGISTERS
    if tile.consumers > 2 and str(tile.problem.form.epilogue):
        # An epilogue has a strip beside the sums: 192x176 in one strip spilled 624 bytes.
        need = max(need, tile.strip_values * (tile.strips + 1))
    if not need or need + spare <= have:
        return None
    return (
        f"block_m = {tile.block_m}, block_n = {tile.block_n}: what a thread holds of the tile takes {need} registers "
        f"and it has {have} for everything; make block_n smaller."
    )


def fits(tile: TileConfig) -> bool:
    """Return True if the tile fits the shared memory of a CTA."""
    return tile.shared_bytes <= tile.gpu.shared_memory_per_block_bytes


def _shared_memory_fits(tile: TileConfig) -> str | None:
    if fits(tile):
        return None
    need, have = tile.shared_bytes, tile.gpu.shared_memory_per_block_bytes
    ring = "ring" in tile.features
    stages = f"{tile.stages} stages of " if ring else ""
    return (
        f"Shared memory: {stages}A {tile.cta_m}x{tile.block_k} and B {tile.cta_n}x{tile.block_k} and the rest take "
        f"{need} bytes and a CTA on {with_gpus(tile.gpu.arch)} can have {have}; lower "
        f"{'stages, ' if ring else ''}block_n or block_k."
    )


def _box_rows_fit(tile: TileConfig) -> str | None:
    extent = max(tile.cta_m, tile.cta_n)
    if "tma" not in tile.features or extent <= TMA_BOX_EXTENT:
        return None
    name = "block_m" if tile.cta_m == extent else "block_n"
    return f"{name} = {extent}: a TMA box has at most {TMA_BOX_EXTENT} rows; make {name} smaller."


def _tile_row_is_one_swizzle(tile: TileConfig) -> str | None:
    in_boxes = "boxes" in tile.features and tile.row_bytes % SWIZZLE_BYTES[0] == 0
    if "tma" not in tile.features or tile.row_bytes in SWIZZLE_BYTES or in_boxes:
        return None
    return _swizzle_reason("block_k", tile.block_k, tile.row_bytes, tile.problem.element_bits)


def _strip_row_is_one_swizzle(tile: TileConfig) -> str | None:
    row_bytes, plain = tile.strip_row_bytes, has_plain_strips(tile.mma, tile.features)
    one = plain and tile.strips == 1 and row_bytes % TMA_BYTES == 0 and row_bytes % SAME_BANKS_BYTES != 0
    if not row_bytes or row_bytes in SWIZZLE_BYTES or one:
        return None
    bits = 8 * row_bytes // tile.e_block_n or 8
    multiple = 8 * TMA_BYTES // bits, 8 * SAME_BANKS_BYTES // bits
    besides = ", or block_n, if that is a multiple of {} and not of {}".format(*multiple) if plain else ""
    return _swizzle_reason("e_block_n", tile.e_block_n, row_bytes, bits, besides)


def has_plain_strips(mma: MmaSpec, features: Collection[str]) -> bool:
    """Return True if a kernel can store a tile of C as one strip of any width."""
    return mma.plain_strips and "any_size" in features


def _swizzle_reason(name: str, value: int, row_bytes: int, bits: int, besides: str = "") -> str:
    fit = ", ".join(str(8 * size // bits) for size in reversed(SWIZZLE_BYTES))
    return (
        f"{name} = {value}: a row of the tile is {row_bytes} bytes, and TMA swizzles rows of 32, 64 or 128 bytes "
        f"and leaves those of 16 as they are; {name} can be {fit}{besides}."
    )


def _strips_fill_the_tile(tile: TileConfig) -> str | None:
    if tile.block_n % tile.e_block_n == 0:
        return None
    return f"e_block_n = {tile.e_block_n}: strips must fill block_n = {tile.block_n}, so it must be a divisor of it."


def _transposed_strips_are_whole_matrices(tile: TileConfig) -> str | None:
    if not tile.swap_ab or tile.e_block_n % LAST_ROWS == 0:
        return None
    return f"e_block_n = {tile.e_block_n}: with swap_ab = 1 strips have rows of C, a multiple of {LAST_ROWS}."


def _share_reason(name: str, ctas: int, block: str, rows: int, whose: str) -> str | None:
    if rows % (SHARE_ROWS * ctas) == 0:
        return None
    return (
        f"{name} = {ctas}: each CTA loads its share of {block} = {rows} rows of {whose}, in groups of {SHARE_ROWS}; "
        f"{block} must be a multiple of {SHARE_ROWS * ctas}."
    )


def _strips_for_every_cta(tile: TileConfig) -> str | None:
    if tile.strips >= tile.split_k or "gathered" in tile.features:
        return None
    return (
        f"split_k = {tile.split_k}: each CTA finishes strips of a tile, and block_n = {tile.block_n} with e_block_n = "
        f"{tile.e_block_n} has {tile.strips}; make e_block_n smaller."
    )


def _parts_have_a_k_tile(tile: TileConfig) -> str | None:
    """Require a k-tile in each part. The first k-tile of a part overwrites the old contents of tensor memory."""
    k_tiles = ceil_div(tile.problem.k, tile.block_k)
    if tile.split_k <= k_tiles or not tile.tensor_memory_columns:
        return None
    return (
        f"split_k = {tile.split_k}: K = {tile.problem.k} has {k_tiles} k-tiles of {tile.block_k}; each part needs one."
    )


def _cluster_fits(tile: TileConfig) -> str | None:
    if tile.cluster_ctas <= MAX_CLUSTER_CTAS:
        return None
    beside = f"cluster_n = {tile.cluster_n}, " if "rectangles" in tile.features else ""
    return (
        f"cluster_m = {tile.cluster_m}, {beside}split_k = {tile.split_k}: a cluster would have {tile.cluster_ctas} "
        f"CTAs, and it can have {MAX_CLUSTER_CTAS} on every GPU; lower one of them."
    )


def _neighbours_are_whole_teams(tile: TileConfig) -> str | None:
    together = tile.cluster_tiles * tile.split_k
    if "neighbours" not in tile.features or tile.neighbours <= together:
        return None
    if tile.neighbours % together == 0 and tile.neighbours <= MAX_CLUSTER_CTAS:
        return None
    return (
        f"neighbours = {tile.neighbours}: it holds the {together} CTAs that compute together, once or more often, "
        f"and has {MAX_CLUSTER_CTAS} at most; {together} fits."
    )


def _tma_reads_rows_of_a_and_b(tile: TileConfig) -> str | None:
    if "tma" not in tile.features:
        return None
    problem, form = tile.asked, tile.asked.form
    if form.a_major == form.b_major == "k" and not form.a_stride and not form.b_stride:
        return _tma_row_reason("K", problem.k, "A and of B", problem.element_bits)
    named = ("A", form.a_major, problem.a_line), ("B", form.b_major, problem.b_line)
    reasons = (_tma_row_reason(major.upper(), line, whose, problem.element_bits) for whose, major, line in named)
    return next((reason for reason in reasons if reason), None)


def _tma_writes_rows_of_c(tile: TileConfig) -> str | None:
    if "tma" not in tile.features or "forms" in tile.features:  # the latter store other rows element by element
        return None
    return _tma_row_reason("N", tile.asked.n, "C", 8 * tile.asked.c_bytes)


def _swapped_is_plain(tile: TileConfig) -> str | None:
    """Require 16-bit C for stmatrix.trans, without an epilogue that reads rows or columns of C."""
    form = tile.problem.form
    of_places = form.epilogue.bias or form.epilogue.residual or form.epilogue.scale == "rowwise"
    if not tile.swap_ab or (
        form.a_major == form.b_major == "k"
        and not of_places
        and form.epilogue.columns_of_c == 1
        and tile.problem.c_bytes == C_BYTES
    ):
        return None
    return (
        "swap_ab = 1: computes C transposed of K-major A and B, into 16 bits, without bias, residual, row-wise scales "
        "and swiglu; swap_ab = 0 computes all of them."
    )


def _block_scales_fit_the_tile(tile: TileConfig) -> str | None:
    """Require one k-tile for each scale, at most two blocks of columns in a tile, and lines of scales that TMA can
    address."""
    scale = tile.problem.form.epilogue.scale
    if scale not in BLOCK_SCALES:
        return None
    of_each = BLOCK_SCALES[scale][0 if tile.swap_ab else 1] == 1
    if tile.block_k == SCALED_K and tile.block_n <= SCALED_K and not (of_each and tile.block_n % SCALES_OF_A_LINE):
        return None
    multiple = f", a multiple of {SCALES_OF_A_LINE}" if of_each else ""
    return (
        f"block_n = {tile.block_n}, block_k = {tile.block_k}: with scales of blocks, {scale}, block_n is at most "
        f"{SCALED_K}{multiple}, and block_k is {SCALED_K}."
    )


def _block_scales_are_of_bytes(tile: TileConfig) -> str | None:
    scale = tile.problem.form.epilogue.scale
    if scale not in BLOCK_SCALES or (tile.mma.name == Wgmma.name and tile.problem.element_bytes == 1):
        return None
    return (
        f"scale = {scale} on {tile.mma.instruction} with {tile.problem.dtype}: fp32 scales of blocks are of "
        f"{' or '.join(EIGHT_BITS)}, for {Wgmma.instruction}."
    )


def _form_is_the_rungs(tile: TileConfig) -> str | None:
    if tile.asked.is_plain or "forms" in tile.features or ("scaled" in tile.features and tile.asked.is_plain_but_for_c):
        return None
    what = str(tile.asked.form) or f"{tile.asked.batches} batches"
    return f"This rung computes one product of K-major matrices, without {what}; blackwell and hopper do."


def _parts_of_k_are_hoppers(tile: TileConfig) -> str | None:
    form, one = tile.problem.form, tile.problem.batches == 1
    if not form.divides_k or (
        tile.mma.name == Wgmma.name
        and tile.split_k == 1
        and form.epilogue == PLAIN.epilogue
        and (one or not (form.a_batched or form.b_batched))
    ):
        return None
    return "divides_k: hopper alone has sums over parts of K, of one A and one B, with split_k = 1 and no epilogue."


def _spans_fill_the_tiles(tile: TileConfig) -> str | None:
    """Require that a tile has whole spans of 128 bytes of an MN-major operand."""
    form = tile.problem.form
    if form.a_major == form.b_major == "k":
        return None
    width = 8 * SPAN_BYTES // tile.problem.element_bits
    if tile.problem.element_bytes != C_BYTES:
        return (
            f"dtype = {tile.problem.dtype}: {tile.mma.instruction} reads such operands K-major alone; transpose them."
        )
    shares = (
        ("A", form.a_major, "m", tile.block_m, tile.mma_m // tile.cluster_n),
        ("B", form.b_major, "n", tile.block_n, tile.cta_n // tile.cluster_m),
    )
    for whose, major, rows, block, share in shares:
        if major == rows and share % width:
            return (
                f"block_{rows} = {block}: {whose} is contiguous along {rows}, in spans of {width}, and a CTA loads "
                f"{share} rows; it must load a multiple of {width}."
            )
    if tile.mma.one_swizzle and "k" in (form.a_major, form.b_major) and tile.row_bytes != SPAN_BYTES:
        fit = SPAN_BYTES // tile.problem.element_bytes
        return (
            f"block_k = {tile.block_k}: {tile.mma.instruction} reads A and B in one swizzle, of 128 bytes; {fit} fits."
        )
    return None


def _few_rows_follow_each_other(tile: TileConfig) -> str | None:
    if tile.block_m >= tile.mma.least_rows or tile.problem.form.a_major == "k":
        return None
    least = tile.mma.least_rows
    return (
        f"block_m = {tile.block_m}: of an A that is contiguous along m a tile has {least} rows or more; {least} fits."
    )


def _few_rows_are_rows_of_c(tile: TileConfig) -> str | None:
    if tile.block_m >= tile.mma.least_rows or not tile.swap_ab:
        return None
    least = tile.mma.least_rows
    return f"block_m = {tile.block_m}: of C transposed a tile has {least} rows or more; {least} fits."


def _columns_come_in_pairs(tile: TileConfig) -> str | None:
    if tile.problem.n % tile.problem.form.epilogue.columns_of_c == 0:
        return None
    return f"N = {tile.problem.n}: swiglu makes one column of C of two; N must be even."


def _tma_row_reason(name: str, extent: int, whose: str, bits: int) -> str | None:
    row_bytes: float = extent * bits // 8 if extent * bits % 8 == 0 else extent * bits / 8
    if row_bytes % TMA_BYTES == 0:
        return None
    fit = 8 * TMA_BYTES // bits * ceil_div(extent * bits, 8 * TMA_BYTES)
    return (
        f"{name} = {extent}: a row of {whose} is {row_bytes} bytes, TMA needs a multiple of {TMA_BYTES}; "
        f"pad {name} to {fit}."
    )


def _cp_async_copies_four_bytes(tile: TileConfig) -> str | None:
    k, row_bytes = tile.problem.k, tile.problem.k_bytes
    if "tma" in tile.features or row_bytes % 4 == 0:
        return None
    return (
        f"K = {k}: a row of A and of B is {row_bytes} bytes, cp.async copies 4, 8 or 16 bytes at a multiple of that; "
        f"pad K to {8 * round_up(row_bytes, 4) // tile.problem.element_bits}."
    )


def _offsets_fit_int32(tile: TileConfig) -> str | None:
    if "tma" in tile.features:  # coordinates, not offsets
        return None
    m, n, k = tile.problem.m, tile.problem.n, tile.problem.k
    name, size = max((("A", m * k), ("B", n * k), ("C", m * n)), key=lambda pair: pair[1])
    if size <= INT32_MAX:
        return None
    return f"{name} has {size} elements; without TMA, offsets into it are 32-bit integers and reach {INT32_MAX}."


def _grid_fits(tile: TileConfig) -> str | None:
    tiles = ceil_div(tile.problem.n, tile.block_n)
    if tiles <= GRID_Y:
        return None
    return f"N = {tile.problem.n}: {tiles} tiles along n, and a grid has at most {GRID_Y} CTAs in y; widen block_n."


Rule = Callable[[TileConfig], str | None]

RULES: tuple[Rule, ...] = (
    _mma_needs_its_gpu,
    _types_are_the_mmas,
    lambda tile: tile.mma.wrong_rows(tile),
    _accumulator_fits,
    _shared_memory_fits,
    _cp_async_copies_four_bytes,
)
"""Rules that tilus's code generation enforces as well."""

STRICTER_RULES: tuple[Rule, ...] = (
    lambda tile: tile.mma.wrong_columns(tile),
    _block_k_is_whole_mmas,
    _k_tile_is_whole_atoms,
    _registers_fit,
    _strips_fill_the_tile,
    _transposed_strips_are_whole_matrices,
    _strip_row_is_one_swizzle,
    _form_is_the_rungs,
    _parts_of_k_are_hoppers,
    _block_scales_are_of_bytes,
    _block_scales_fit_the_tile,
    _swapped_is_plain,
    _spans_fill_the_tiles,
    _few_rows_follow_each_other,
    _few_rows_are_rows_of_c,
    _columns_come_in_pairs,
    lambda tile: _share_reason("cluster_m", tile.cluster_m, "block_n", tile.block_n, "B"),
    lambda tile: _share_reason("cluster_n", tile.cluster_n, "block_m", tile.block_m, "A"),
    _strips_for_every_cta,
    _parts_have_a_k_tile,
    _cluster_fits,
    _neighbours_are_whole_teams,
    _box_rows_fit,
    _tile_row_is_one_swizzle,
    _tma_reads_rows_of_a_and_b,
    _tma_writes_rows_of_c,
    _offsets_fit_int32,
    _grid_fits,
)
"""Rules that code generation does not enforce, or in part, and that the driver, PTX or a correct result need."""


PROBLEM_RULES: tuple[Rule, ...] = (
    _mma_needs_its_gpu,
    _types_are_the_mmas,
    _form_is_the_rungs,
    _block_scales_are_of_bytes,
    _tma_reads_rows_of_a_and_b,
    _tma_writes_rows_of_c,
    _cp_async_copies_four_bytes,
    _offsets_fit_int32,
)
"""Rules of both tuples that give the same answer for all schedules of a kernel."""


def why_not(schedule: Schedule, problem: Problem, gpu: Gpu) -> list[str]:
    """Return each reason why `schedule` cannot run `problem` on `gpu`, a sentence with numbers; empty if it can."""
    require(schedule=(schedule, Schedule), problem=(problem, Problem), gpu=(gpu, Gpu))
    missing = _missing(schedule)
    return [missing] if missing else broken(RULES + STRICTER_RULES, schedule, problem, gpu)


def can_run(schedule: Schedule, problem: Problem, gpu: Gpu) -> bool:
    """Return True if `why_not` has no reason; stops at the first reason."""
    if _missing(schedule):
        return False
    tile = tile_config(schedule, problem, gpu)
    return all(rule(tile) is None for rule in RULES + STRICTER_RULES)


def require(**arguments: tuple[object, type]) -> None:
    """Raise InputError for an argument that is not of its type."""
    for name, (value, wanted) in arguments.items():
        if not isinstance(value, wanted):
            raise InputError(f"{name} is {shown(value)}; it must be a {wanted.__name__}.")


def broken(rules: Sequence[Rule], schedule: Schedule, problem: Problem, gpu: Gpu) -> list[str]:
    """Return the sentences of the `rules` that a complete schedule breaks."""
    tile = tile_config(schedule, problem, gpu)
    return [reason for rule in rules if (reason := rule(tile)) is not None]


def _missing(schedule: Schedule) -> str | None:
    for name in ("block_m", "block_n", "block_k"):
        if getattr(schedule, name) is None:
            return f"{name} is not set; every schedule has block_m, block_n and block_k."
    if schedule.features is not None or schedule.gap is None:
        return None
    name, earlier = schedule.gap
    return f"{earlier} is not set; a schedule with {name} has it."
