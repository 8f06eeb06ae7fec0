"""`predicted_cycles`: a closed-form estimate of a schedule's time, for ranking schedules only.

The rules are those of the time model (`simulator/timing/`), for CTAs that all do the same at once. Figures of the GPU
come from `gpus.py` and `gpu_figures.py`; the constants in `FIT` are fitted (`fit.py`). Each k-tile costs MMA time and
loading time, which CTAs of one SM share. A stage is reused once it was loaded and multiplied. A CTA starts before its
k-tiles and stores after them. The SM with the most tiles ends last.

docs/time.md compares its ranking with that model and with measurements (bench/choice.py).
"""

from __future__ import annotations

import math
from dataclasses import replace
from functools import cache
from typing import NamedTuple

from blackwell_matmul.hardware.gpu_figures import (
    MMA_SYNC_PRODUCTS,
    ROW_BYTES,
    TIME_FIGURES,
    GpuFigure,
    TimeFigures,
    figures_of,
)
from blackwell_matmul.hardware.gpus import (
    GPC_SMS,
    GPUS,
    NEIGHBOURS,
    REGISTERS_PER_SM,
    RESERVED_BYTES,
    SHARED_BYTES_PER_CYCLE,
    Gpu,
)
from blackwell_matmul.problem.form import BLOCK_SCALES
from blackwell_matmul.problem.problem import C_BYTES
from blackwell_matmul.scheduling.fit import closed_form, cut_rows_traits
from blackwell_matmul.scheduling.tile_config import (
    LAST_ROWS,
    MMA_K_BYTES,
    SWIZZLE_BYTES,
    WARP,
    WARPGROUP,
    TileConfig,
    ceil_div,
)

USUAL_LOAD = 1.0
"""Load of the tensor cores, a fraction, in a kernel that they bound: it runs at the clock of that load. A kernel that
anything else bounds runs at the full clock."""

FIT = closed_form()
"""Fitted constants, which fits/closed_form.toml explains."""

EARLY_WEIGHTS, EARLY_PRODUCTS = FIT.early_weights, FIT.early_products
"""Most elements of B, and most products, of a grid that starts early."""

CUT_ROWS_TRAITS = cut_rows_traits()
"""Factors on the predicted cycles, by `traits`, for rows that begin within L2 lines (fits/unaligned_rows.toml)."""

SUM_BYTES = 4
"""Bytes of an fp32 sum."""

KIB = 1024
"""Bytes of a KiB."""

SHALLOW_STAGES, MANY_K_TILES = 8, 64
"""Most stages of a ring whose first loads delay no CTA that shares them, and the k-tiles from which on a deeper ring
costs no time, as it also bridges more of the memory's delays (h200_stages.json)."""


class Supply(NamedTuple):
    """Rates of one SM, in its cycles.

    beside: CTAs of a cluster that share the SM (`ctas_beside`). products: factor on MMA cycles, for the clock under
    load. latency: cycles of a load. incoming: bytes a cycle from the L2. from_memory: the same bytes at the rate of the
    memory.
    """

    figures: TimeFigures
    beside: int
    ghz: float
    products: float
    latency: float
    incoming: float
    from_memory: float


def predicted_cycles(tile: TileConfig) -> int:
    """Predict the SM cycles, at full clock, from the launch to the last store of the SM with the most tiles."""
    return round(modelled_cycles(tile) * _of_traits(tile))


def traits(tile: TileConfig) -> tuple[str, ...]:
    """Return the traits of a schedule that are keys of `CUT_ROWS_TRAITS`. Clusters on up to half of the SMs have traits
    of their own, as other parts of a CTA bound it there."""
    boxes, few = ceil_div(tile.row_bytes, ROW_BYTES), ", few SMs" * (2 * tile.ctas <= tile.gpu.sm_count)
    found = f"cluster {tile.cluster_m}x{tile.cluster_n}{few}", f"split {tile.split_k}", f"boxes {boxes}"
    return *found, f"warpgroups {tile.consumers}"


def _of_traits(tile: TileConfig) -> float:
    return math.prod(CUT_ROWS_TRAITS.get(each, 1.0) for each in traits(tile)) if _cut_rows(tile) else 1.0


def modelled_cycles(tile: TileConfig) -> float:
    """Predict cycles as `predicted_cycles` does, without the factors of `CUT_ROWS_TRAITS`."""
    supply = _supply(tile)
    figures, count = supply.figures, _tiles_of_one_sm(tile, supply.figures)
    start = _start(tile, supply)
    together = min(count, resident_ctas(tile))
    if "clc" in tile.features:
        loop, end = tile.k_tiles * _k_tile(tile, supply, together), _epilogue(tile, supply, together)
        each = max(loop + tile.mma.stored_before(tile) * end, end)
        return start + _first(tile, supply) + loop + (ceil_div(count, together) - 1) * each + end
    if "persistent" in tile.features:
        loop, drain = tile.k_tiles * _k_tile(tile, supply, supply.beside), _drain(tile, figures)
        each = _with_each_other(loop + _turnover(tile, supply), drain)
        last = tile.k_tiles * _k_tile(tile, supply, supply.beside, _rows_outside(tile))
        begin = start + _first(tile, supply) + _deep_ring(tile)
        return begin + (count - 1) * each + last + _epilogue(tile, supply, 1)
    full, rest = divmod(count, together)
    return start + full * _round(tile, supply, together) + bool(rest) * _round(tile, supply, rest)


def least_cycles(tile: TileConfig) -> int:
    """Return a lower bound of `predicted_cycles` that is cheaper to compute: loads never contend. All tiles of an SM
    count for MMAs, TMA and shared memory; one tile counts for the rest."""
    supply, products = _unlimited(tile.gpu), _products(tile)
    figures = supply.figures
    own = max(products * supply.products, _shared(tile), _into_shared_memory(tile, figures))
    k_tile = max(_tiles_of_one_sm(tile, figures) * own, _chain(tile, supply, products)) + _besides(tile, figures)
    cycles = _start(tile, supply) + _first(tile, supply) + tile.k_tiles * k_tile + _epilogue(tile, supply, 1)
    return int(cycles * _of_traits(tile))


@cache
def _unlimited(gpu: Gpu) -> Supply:
    """Return rates that no tile exceeds."""
    figures = nearest_figures(gpu)
    ghz = figures.clock_ghz * 1.0
    return Supply(
        figures, 1, ghz, ghz / _loaded_ghz(figures), min(figures.l2_ns, figures.memory_ns) * ghz, math.inf, math.inf
    )


def _start(tile: TileConfig, supply: Supply) -> float:
    weights = tile.asked.n * tile.asked.k
    late = tile.in_order and weights <= FIT.early_weights and tile.asked.m * weights <= FIT.early_products
    return (supply.figures.ramp_ns + late * FIT.late_ns) * supply.ghz + supply.figures.start_cycles


def _round(tile: TileConfig, supply: Supply, together: int) -> float:
    """Return the cycles of CTAs that share an SM, from their start to the start of the next CTAs."""
    turnover = supply.figures.launch_ns * supply.ghz + supply.figures.start_cycles
    ends = turnover + _first(tile, supply) + _epilogue(tile, supply, together)
    return tile.k_tiles * _k_tile(tile, supply, together) + ends


def _tiles_of_one_sm(tile: TileConfig, figures: TimeFigures) -> int:
    """Return the tiles of the busiest SM. Fewer of a persistent kernel's large clusters run at once than are
    launched."""
    size = tile.cluster_ctas
    count, at_once = ceil_div(tile.ctas, size), figures.clusters_at_once(tile.gpu.sm_count, size)
    if "persistent" not in tile.features:
        return ceil_div(count, at_once)
    rounds = ceil_div(count, max(1, tile.gpu.sm_count // size))
    return rounds * ceil_div(ceil_div(count, rounds), at_once)


# --- what all SMs share


@cache
def nearest_figures(gpu: Gpu) -> TimeFigures:
    """Return the figures of the first GPU with this architecture, or an RTX 5090's with this GPU's memory bandwidth.

    They are for ranking schedules, not for predicting time. `FIT` is fitted with an H200's figures, so an H100 uses
    these too (h100_tiles_wide.json).
    """
    known = next((name for name in TIME_FIGURES if GPUS[name].arch == gpu.arch), None)
    if known is not None:
        return TIME_FIGURES[known]
    other, theirs = figures_of("RTX 5090"), GPUS["RTX 5090"].memory_gb_per_s
    reached = other.stream_bytes_per_ns * (gpu.memory_gb_per_s or theirs or 1) / (theirs or 1)
    return replace(other, stream_bytes_per_ns=GpuFigure(reached, "assumed", "as a part of what the data sheet says"))


def _supply(tile: TileConfig) -> Supply:
    """Return the rates of an SM: from the L2 alone, and with the misses of the L2."""
    figures = nearest_figures(tile.gpu)
    ghz, loaded_ghz = figures.clock_ghz * 1.0, _loaded_ghz(figures)
    ctas = tile.ctas
    beside = ctas_beside(tile)
    at_work = min(tile.gpu.sm_count, ceil_div(ctas, beside))
    needed_ns = _from_memory(tile, figures) / _memory_rate(tile, figures) + _again(tile) / figures.l2_bytes_per_ns
    products_ns = tile.k_tiles * _products(tile) * ctas / tile.gpu.sm_count / loaded_ghz
    weight = (tile.problem.m + tile.problem.n) * tile.problem.k_bytes
    latency = figures.l2_ns * 1.0
    if weight > figures.near_l2_bytes:
        latency = figures.memory_ns + figures.queue_ns * min(1, needed_ns / products_ns)
    incoming, from_memory = (rate / at_work / ghz for rate in (figures.l2_bytes_per_ns, _from_l2(tile) / needed_ns))
    incoming = min(incoming, figures.port_bytes_per_cycle)
    return Supply(figures, beside, ghz, ghz / loaded_ghz, latency * ghz, incoming, from_memory)


def _loaded_ghz(figures: TimeFigures) -> float:
    """Return the clock in GHz with busy tensor cores."""
    return figures.clock_ghz - figures.clock_fall_ghz * USUAL_LOAD


def _memory_rate(tile: TileConfig, figures: TimeFigures) -> float:
    """Return the memory rate in bytes/ns, limited by the CTAs' paths to the L2. CTAs that share a path end last; few
    CTAs share none. Kernels with `split_k` combine both bounds."""
    ctas = tile.ctas
    sharing = NEIGHBOURS if ctas * NEIGHBOURS > tile.gpu.sm_count else 1
    bounds = 1, sharing / (ctas * FIT.neighbours_part)
    return figures.stream_bytes_per_ns / (_with_each_other(*bounds) if "split_k" in tile.features else max(bounds))


def _again(tile: TileConfig) -> float:
    """Return the bytes of B that the L2 fetches again because rows of tiles are out of step. Clusters of split tiles
    may be anywhere; neighbours get out of step unless they are a cluster."""
    rows = ceil_div(tile.problem.m, tile.block_m)
    out_of_step = 0 if "neighbours" in tile.features else FIT.out_of_step
    more = rows / tile.cluster_m - 1 if tile.split_k > 1 else out_of_step * (min(rows, NEIGHBOURS) / tile.cluster_m - 1)
    return max(0, more) * tile.problem.n * tile.problem.k_bytes


def _from_l2(tile: TileConfig) -> float:
    """Return the bytes of A and B that all SMs load from the L2."""
    return tile.ctas * tile.k_tiles * _loaded_rows(tile) * tile.row_bytes


def _loaded_rows(tile: TileConfig) -> float:
    """Return the rows of A and B that a CTA costs the L2 for each k-tile. A cluster shares them by multicast, and
    consecutive CTAs share B, or A where they go along a row of tiles."""
    rows, columns = ceil_div(tile.problem.m, tile.block_m), ceil_div(tile.problem.n, tile.block_n)
    if tile.in_order:
        return _rows_in_order(tile, rows)
    rows_of_a = tile.cta_m * _part_of_a(tile)
    if tile.split_k > 1 or tile.cluster_tiles > 1:
        return rows_of_a / tile.cluster_n + tile.cta_n / min(tile.cluster_m, rows)
    if tile.pair > 1:
        return tile.cta_m + tile.cta_n
    if "neighbours" in tile.features and tile.group_m == 1 and rows > 1 and 1 < columns <= FIT.few_columns:
        return tile.cta_m * ceil_div(columns, NEIGHBOURS) / columns + tile.cta_n * FIT.part_of_many
    return rows_of_a + tile.cta_n / NEIGHBOURS if rows > 1 else tile.cta_m / NEIGHBOURS + tile.cta_n


def _rows_in_order(tile: TileConfig, rows: int) -> float:
    """Return `_loaded_rows` for CTAs in order: a GPC's go down the rows of a group, column by column."""
    high = rows / max(1, ceil_div(rows - tile.group_m // 2, tile.group_m))  # `kernels.parts.raster`
    wide = min(ceil_div(tile.problem.n, tile.block_n), max(1, GPC_SMS / high))
    once = (min(high, GPC_SMS) * tile.cta_m + wide * tile.cta_n) / GPC_SMS
    later = tile.k_tiles * (_tiles_of_one_sm(tile, nearest_figures(tile.gpu)) - 1)
    drift = FIT.in_order_drift * later * tile.row_bytes / FIT.drift_bytes * (tile.cta_m + tile.cta_n)
    return FIT.in_order * once + drift


def _part_of_a(tile: TileConfig) -> float:
    """Return the fraction of A that costs L2 bandwidth: less than 1 if CTAs come in clusters and are in step, and more
    than a few columns of tiles share A."""
    if "neighbours" not in tile.features or ceil_div(tile.problem.n, tile.block_n) <= FIT.few_columns:
        return 1
    part = FIT.part_of_a if ceil_div(tile.problem.m, tile.block_m) <= FIT.few_rows else FIT.part_of_many
    k_tiles = tile.k_tiles * _tiles_of_one_sm(tile, nearest_figures(tile.gpu))
    return min(1, part + k_tiles * tile.row_bytes / FIT.drift_bytes)


def _from_memory(tile: TileConfig, figures: TimeFigures) -> float:
    """Return the bytes of A and B that come from global memory.

    If the CTAs of a wave need more than the L2 holds, A and B come once for each wave, otherwise once for each group
    of rows.
    """
    problem, bytes_of_row = tile.problem, tile.problem.k_bytes
    once = (problem.m + problem.n) * bytes_of_row
    tiles_m, tiles_n = ceil_div(problem.m, tile.block_m), ceil_div(problem.n, tile.block_n)
    group = min(tile.group_m, tiles_m) if "grouped" in tile.features else tiles_m
    at_once = min(tiles_m * tiles_n, max(1, tile.gpu.sm_count * resident_ctas(tile) // (tile.pair * tile.split_k)))
    columns = min(tiles_n, ceil_div(at_once, group))
    rows = min(tiles_m, max(min(group, at_once), ceil_div(at_once, columns)))
    wave = (rows * tile.block_m + columns * tile.block_n) * bytes_of_row
    if wave <= figures.near_l2_bytes:
        return (problem.m + ceil_div(tiles_m, max(group, rows)) * problem.n) * bytes_of_row
    return max(once, wave * tiles_m * tiles_n / at_once)


# --- a k-tile


def _products(tile: TileConfig) -> float:
    """Return the tensor core's cycles for a k-tile. mma.sync has a rate of its own on each GPU."""
    interval = getattr(nearest_figures(tile.gpu), tile.mma.interval) if tile.mma.interval else None
    rate = MMA_SYNC_PRODUCTS / interval if interval else tile.mma.fma_per_cycle
    return tile.mma_m * tile.mma.multiplied_columns(tile) * tile.row_bytes / (2 * rate)


def _k_tile(tile: TileConfig, supply: Supply, together: int, outside: float = 0) -> float:
    """Return the cycles of a k-tile for each CTA of an SM. outside: rows of A and B beyond the matrices."""
    figures, rows, products = supply.figures, _loaded_rows(tile) + FIT.outside_part * outside, _products(tile)
    shared, at_once = _shared(tile), products * supply.products
    own = max(at_once, _held_up(products, shared, supply), shared, _into_shared_memory(tile, figures))
    from_l2 = rows * (max(tile.row_bytes, ROW_BYTES) if "tma" in tile.features else tile.row_bytes) / supply.incoming
    from_memory = rows * tile.row_bytes / supply.from_memory
    chained = max(together * own, _chain(tile, supply, products))
    cut_rows = _cut_rows(tile)
    k_tile = _with_each_other(chained, together * from_l2, together * from_memory, together * cut_rows)
    large = FIT.large_clusters.get(tile.gpu.name, 1.0) if tile.cluster_tiles >= 4 and not cut_rows else 1.0
    return k_tile * large * (FIT.three_warpgroups if tile.consumers > 2 else 1) + _besides(tile, figures)


def _besides(tile: TileConfig, figures: TimeFigures) -> float:
    """Return the cycles of a k-tile that no other work hides. The MMAs of the largest tile hide the latency to another
    CTA."""
    one_way = figures.remote_cycles / 2 if tile.cluster_tiles > 1 and not tile.is_largest else 0
    turn = FIT.turn_cycles if "boxes" in tile.features else 0
    return one_way / tile.stages + turn + _zeros(tile)


def _held_up(products: float, shared: float, supply: Supply) -> float:
    """Return the cycles of MMAs that shared memory stalls, at the clock of partly busy tensor cores; or 0."""
    if not products < shared < FIT.held_up * products:
        return 0
    return shared * supply.ghz / (supply.ghz - supply.figures.clock_fall_ghz * products / shared)


def _rows_outside(tile: TileConfig) -> float:
    """Return the rows of A and B beyond the matrices in the last tiles, weighted by the number of CTAs that load them
    at the same time."""
    problem, (step_m, step_n) = tile.problem, _last_steps(tile)
    tiles_m, tiles_n = ceil_div(problem.m, tile.block_m), ceil_div(problem.n, tile.block_n)
    rows = -problem.m % step_m if tiles_m > 1 else 0
    columns = -problem.n % step_n if tiles_n > 1 else 0
    return rows * min(1, tiles_n / FIT.many_outside) + columns * min(1, tiles_m / FIT.many_outside)


def _last_steps(tile: TileConfig) -> tuple[int, int]:
    """Return the step in rows and in columns by which the last tiles move up and to the left
    (`kernels.parts.output_tile`); whole tiles for a kernel that does not move them."""
    if "any_size" not in tile.features:
        return tile.block_m, tile.block_n
    return (tile.warpgroup_m, LAST_ROWS) if tile.swap_ab else (LAST_ROWS, tile.e_block_n)


def _zeros(tile: TileConfig) -> float:
    """Return the cycles by which rows beyond A and B, filled with zeros, delay the loads of a k-tile.

    Only a tile larger than its matrix loads such rows in each k-tile. A cluster shares them by multicast.
    `_rows_outside` counts the rows of the last tiles.
    """
    problem, boxes = tile.problem, ceil_div(tile.row_bytes, ROW_BYTES)
    rows = max(0, tile.block_m - problem.m) / tile.cluster_n + max(0, tile.block_n - problem.n) / tile.cluster_m
    return FIT.zero_row_cycles * boxes * rows if "tma" in tile.features else 0


def _with_each_other(*bounds: float) -> float:
    """Return a combination of bounds: the longest, and more if others are nearly as long, because one's delays make
    the next wait."""
    most = max(bounds)
    return most * sum([(bound / most) ** FIT.norm for bound in bounds]) ** (1 / FIT.norm)


def _shared(tile: TileConfig) -> float:
    """Return the cycles of shared memory for a k-tile: TMA's writes and the MMAs' reads."""
    read = tile.mma.rows_read(tile)
    return (read + tile.cta_m + tile.cta_n) * tile.row_bytes / SHARED_BYTES_PER_CYCLE if read else 0


def _into_shared_memory(tile: TileConfig, figures: TimeFigures) -> float:
    """Return the cycles of TMA, or of cp.async, to fill shared memory with a k-tile."""
    rows = tile.cta_m + tile.cta_n
    if "tma" in tile.features:
        return rows * ceil_div(tile.row_bytes, ROW_BYTES) * figures.tma_row_cycles
    return rows * tile.row_bytes / figures.fill_bytes_per_cycle


def _cut_rows(tile: TileConfig) -> float:
    """Return TMA's cycles for rows that begin inside of L2 lines. Rows that come by multicast are requested by another
    CTA and cost nothing."""
    if "tma" not in tile.features:
        return 0
    figures, problem = nearest_figures(tile.gpu), tile.problem
    few_sms = _has_own_paths(tile, figures)
    a, b = (
        figures.cut_row_cycles(each * problem.element_bits // 8, few_sms) for each in (problem.a_line, problem.b_line)
    )
    return (tile.cta_m / tile.cluster_n * a + tile.cta_n / tile.cluster_m * b) * ceil_div(tile.row_bytes, ROW_BYTES)


def _has_own_paths(tile: TileConfig, figures: TimeFigures) -> bool:
    """Return True if no two CTAs share a path to the L2: they take at most half of the SMs that clusters of their size
    can use."""
    size = tile.cluster_ctas
    return 2 * tile.ctas <= size * figures.clusters_at_once(tile.gpu.sm_count, size)


def _chain(tile: TileConfig, supply: Supply, products: float) -> float:
    """Return the cycles of a k-tile's dependent steps, however few CTAs there are. Specialised warps issue the next
    MMAs while some are in flight. Other kernels wait for them, and without a ring for the loads, too."""
    figures = supply.figures
    issue = figures.wait_cycles + figures.expect_cycles + 2 * figures.tma_issue_cycles
    issues = 0 if tile.mma.name == "tcgen05" else tile.row_bytes / MMA_K_BYTES * figures.issue_cycles
    seen = products + _latency(tile, figures) + figures.wait_cycles
    if "tma" not in tile.features:
        return _round_trip(tile, supply) + figures.fence_cycles + _sync(tile, figures) + figures.issue_cycles + seen
    whole = issue + _round_trip(tile, supply) + seen
    if "ring" not in tile.features:
        return whole + _sync(tile, figures)
    if "specialised" not in tile.features:
        return max(whole / tile.stages, issues + seen + issue + _sync(tile, figures))
    own, in_flight = issue, tile.mma.products_in_flight(tile)
    if tile.mma.name != "tcgen05":
        scaled = tile.problem.form.epilogue.scale in BLOCK_SCALES
        in_flight = 0 if scaled else in_flight  # the next products overwrite the sums
        own = seen + figures.arrive_cycles + (-_latency(tile, figures) if in_flight else issues)
        own += scaled * tile.mma_m * tile.block_n / (WARPGROUP * tile.consumers)  # an FMA for each sum of a thread
        if tile.mma.adds_sums(tile) and tile.consumers == 1:
            own = max(own, FIT.lone_sums_cycles * tile.row_bytes / ROW_BYTES)
        if tile.mma.has_scales_of_column_blocks(tile):
            own = max(own, FIT.block_scales_cycles * (tile.consumers - 1))
    return max(whole / max(1, tile.stages - in_flight), own, products + figures.commit_gap_cycles)


def _round_trip(tile: TileConfig, supply: Supply) -> float:
    """Return the cycles from the issue of a k-tile's loads until a warp continues with the data."""
    figures = supply.figures
    tma = figures.tma_cycles + figures.wait_cycles if "tma" in tile.features else 0
    return supply.latency + tma + _into_shared_memory(tile, figures)


def _latency(tile: TileConfig, figures: TimeFigures) -> float:
    """Return the cycles from the end of a k-tile's MMAs until a warp sees it."""
    if tile.mma.name != "tcgen05":
        return figures.wgmma_latency_cycles or figures.mma_sync_latency_cycles or 0
    return ((figures.pair_latency_cycles if tile.pair > 1 else figures.mma_latency_cycles) or 0) + figures.chain_cycles


def _sync(tile: TileConfig, figures: TimeFigures) -> float:
    return figures.sync_cycles + figures.sync_warp_cycles * tile.threads / WARP


# --- before and after


def _first(tile: TileConfig, supply: Supply) -> float:
    """Return the cycles until the first k-tile is multiplied."""
    figures = supply.figures
    together = figures.alloc_cycles if tile.tensor_memory_columns else 0.0
    together += figures.cluster_sync_cycles if tile.cluster_ctas > 1 else 0
    return together + _round_trip(tile, supply) + _latency(tile, figures)


def _deep_ring(tile: TileConfig) -> float:
    """Return the cycles by which a deep ring's burst of loads delays the first k-tiles of CTAs that share loads; 0 for
    rows that begin within L2 lines, where nobody has measured it."""
    deeper = min(tile.stages, tile.k_tiles) - SHALLOW_STAGES
    if deeper <= 0 or tile.cluster_tiles == 1 or tile.mma.name != "wgmma":
        return 0
    if tile.k_tiles >= MANY_K_TILES or _cut_rows(tile):
        return 0
    return FIT.deep_ring_cycles * deeper


def _epilogue(tile: TileConfig, supply: Supply, together: int) -> float:
    """Return the cycles from the last MMA to the last store."""
    figures = supply.figures
    if not tile.strip_row_bytes:
        stored = tile.cta_m * _finished_columns(tile) * C_BYTES
        return _cast(tile, figures) + together * stored / figures.line_bytes + _exchange(tile, supply)
    strips = _strips_of(tile) * _strip(tile, figures)
    return max(strips, together * _drain(tile, figures)) + _exchange(tile, supply)


def _turnover(tile: TileConfig, supply: Supply) -> float:
    """Return the cycles from the last MMA of a tile to the first one of the next. Once each remaining strip has a
    buffer, strips leave during the next tile (h100_tune.json)."""
    figures, strips = supply.figures, _strips_of(tile)
    waited_for = max(0, strips - tile.strip_buffers) / strips
    return max(strips * _strip(tile, figures), waited_for * _drain(tile, figures)) + _exchange(tile, supply)


def _drain(tile: TileConfig, figures: TimeFigures) -> float:
    """Return TMA's cycles to store a CTA's part of a tile."""
    slower = FIT.narrow_rows if tile.strip_row_bytes <= FIT.narrow_row_bytes else 1
    return slower * tile.cta_m * _finished_columns(tile) * C_BYTES / KIB * figures.drain_kib_cycles


def _strips_of(tile: TileConfig) -> float:
    """Return the strips that a CTA finishes; at least one, even if a schedule is not checked."""
    return max(1, _finished_columns(tile) / tile.e_block_n)


def _strip(tile: TileConfig, figures: TimeFigures) -> float:
    """Return the cycles from the accumulator to the issue of a strip's store."""
    slower = 1 if tile.strip_row_bytes in SWIZZLE_BYTES else FIT.plain_strips
    strip = _cast(tile, figures) + figures.stage_cycles + figures.stage_value_cycles * tile.strip_values * slower
    strip += figures.fence_cycles + 2 * _sync(tile, figures) + figures.issue_cycles
    if tile.strip_buffers == 1 and tile.strips > 1:
        strip += figures.store_cycles + figures.store_kib_cycles * tile.cta_m * tile.e_block_n * C_BYTES / KIB
    return strip


def _cast(tile: TileConfig, figures: TimeFigures) -> float:
    """Return the cycles to convert a strip, and to load it from tensor memory."""
    cycles = figures.cast_cycles + figures.cast_value_cycles * tile.strip_values
    if tile.tensor_memory_columns:
        columns = tile.e_block_n
        cycles += figures.strip_load_cycles if columns <= 64 else figures.half_load_cycles * columns / 128
    return cycles


def _finished_columns(tile: TileConfig) -> int:
    """Return the columns of a tile that one CTA finishes, in whole strips; the maximum if CTAs share the tile."""
    if "gathered" in tile.features:
        return tile.block_n
    return ceil_div(tile.strips, tile.split_k) * tile.e_block_n


def _exchange(tile: TileConfig, supply: Supply) -> float:
    """Return the cycles in which the CTAs of a split tile write and read each other's sums through the L2."""
    if tile.split_k == 1:
        return 0
    figures, columns = supply.figures, _finished_columns(tile)
    moved = tile.mma_m * (tile.block_n - tile.block_n / tile.split_k + (tile.split_k - 1) * columns) * SUM_BYTES
    return moved / figures.line_bytes + 2 * figures.l2_ns * supply.ghz + figures.remote_cycles + FIT.release_cycles


def ctas_beside(tile: TileConfig) -> int:
    """Return the CTAs of a persistent grid's cluster that run on one SM, while other SMs are idle: all that its shared
    memory holds. A grid without clusters has a CTA on each SM (h200_stages.json). For rows that begin within L2 lines
    the factors of `CUT_ROWS_TRAITS` have this cost."""
    size = max(tile.neighbours, tile.cluster_ctas) if "neighbours" in tile.features else 1
    held = min(size, _held_by_shared_memory(tile)) if size > 1 else 1
    return held if held > 1 and not _cut_rows(tile) else 1


def _held_by_shared_memory(tile: TileConfig) -> int:
    """Return the CTAs whose shared memory an SM has."""
    return tile.gpu.shared_memory_per_sm_bytes // (tile.shared_bytes + RESERVED_BYTES)


def resident_ctas(tile: TileConfig) -> int:
    """Return the CTAs that an SM holds, by shared memory, tensor memory, registers and threads; one if persistent."""
    if "persistent" in tile.features:
        return 1
    registers = max(tile.registers, tile.strip_values) + FIT.usual_registers
    limits = [
        _held_by_shared_memory(tile),
        tile.gpu.max_threads_per_sm // tile.threads,
        REGISTERS_PER_SM // (tile.threads * min(registers, tile.gpu.max_registers_per_thread)),
    ]
    if tile.tensor_memory_columns and tile.gpu.tensor_memory_columns:
        limits.append(tile.gpu.tensor_memory_columns // tile.tensor_memory_columns)
    return max(1, min(limits))
