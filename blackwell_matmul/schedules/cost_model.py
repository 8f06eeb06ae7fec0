"""`predicted_cycles`: about how long a schedule takes, in closed form. It ranks schedules, no more.

The rules are those of the model of time (`simulator/timing/`) where all CTAs do the same at once, and every number is
one of its figures (`gpu_figures.py`). A CTA takes k-tile after k-tile: each costs the tensor core its products and the
way into the SM its bytes, which CTAs that share an SM share; and a stage is used again once it was loaded and
multiplied. Before and after its k-tiles a CTA starts and stores. The SM with the most tiles ends last.

How well it ranks, beside that model and beside what was measured: docs/time.md, by bench/choice.py.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from types import MappingProxyType
from typing import NamedTuple

from blackwell_matmul.hardware.gpu_figures import (
    MMA_SYNC_PRODUCTS,
    ROW_BYTES,
    TIME_FIGURES,
    GpuFigure,
    TimeFigures,
    figures_of,
)
from blackwell_matmul.hardware.gpus import GPUS, REGISTERS_PER_SM, Gpu
from blackwell_matmul.problem.problem import C_BYTES
from blackwell_matmul.schedules.tile_config import (
    LAST_ROWS,
    MMA_K_BYTES,
    NEIGHBOURS,
    SWIZZLE_BYTES,
    WARP,
    TileConfig,
    ceil_div,
)

USUAL_LOAD = 1.0
"""Of the tensor cores where they are what a kernel waits for; at the clock that it leaves them they multiply. Whatever
else bounds a kernel leaves power: its cycles are those of the full clock."""

OUT_OF_STEP = 0.3
"""Of what neighbours share without a cluster, what comes twice all the same: tiles of 64x128 of 128x8192x8192 took 47.8
us, and in clusters 39.1. Kernels that split tiles come in clusters of two always, and it is 38.6 and 39.3
(h200_tiles_h7.json)."""

PART_OF_A, FEW, PART_OF_MANY = 0.55, 4, 0.75
"""Of a tile of A, what the L2 notices where all CTAs come in clusters, up to so many rows of tiles and beyond: it is
wanted for as many columns of tiles as there are, at about the same time. Tiles of 128x64 of 512x2112x7168 take some 425
cycles a k-tile, which is 20480 bytes with all of A, of which an SM gets 34 a cycle (h200_tiles_h7.json); clusters are
dealt out one to a GPC in turn, so that with more rows one GPC has more of them (h100_in_order.json)."""

GPC_SMS = 16
"""That share a GPC, as nearly all of an H100 do. What they load at the same time comes once: of 130 CTAs that load one
k-tile after another, each its tile of 10 by 13, 128x80 take 375 cycles for each if those of a square share a GPC, and
609 in clusters of two, which are dealt out one to a GPC in turn (bench/calibrate/tables/h100_micro.csv, "squares")."""

IN_ORDER, IN_ORDER_DRIFT = 1.6, 1.5
"""Of what could come once, how often it does where CTAs come in order; and how fast that ends, beside `DRIFT_BYTES`,
as CTAs with tiles to come are in no step any more. By 326 problems on an H100 (h100_in_order.json)."""

LATE_NS = 700
"""That a grid takes longer which does not start while the one before it ends (`EARLY_PRODUCTS`)."""

EARLY_WEIGHTS = 2**26
EARLY_PRODUCTS = 2**33
"""The most elements of B, and products, with which a grid starts early: some 30 to 40 µs on an H200.

A grid that starts early takes the SMs in the order in which they get free. Started all at once, CTAs with neighbouring
tiles are on neighbouring SMs, whose requests to the L2 are joined: at full power an H200 then takes 1 % less for
problems of 0.1 to 2 ms (the mean of nine; 2.2 % at most), and 1.2 % more for one of 44 µs
(bench/results/h200_early_start.json)."""

DRIFT_BYTES = 4000 * 128
"""Of a row, in all k-tiles of a CTA together: after so many CTAs are in no step any more, and nothing of A is spared.
128x128 in 7 and 72 tiles of an SM takes 15 and 40 % longer for each k-tile than in two, on an H100, and 128x256, which
has time, no longer (h100_tune.json)."""

NEIGHBOURS_PART = 1 / 58
"""Of what the memory gives, the most that goes this way: 81 of an H200's 4700 bytes/ns. With 64x2112x7168, 76 CTAs
take 14.1 us, as some are neighbours, and 60 take 12.4, as none are (h200_tiles_h7.json)."""

KIB = 1024
NORM = 4
"""Of the bounds of a k-tile, or of a rate: it takes longer than the longest of them, where two are equal 19 %. With 3
to 8 the choice on an H200 loses 0.8 to 1.1 % (h200_tiles_h7.json)."""

PLAIN = 4
"""How many times longer a strip takes into shared memory that is not swizzled: two rows in eight meet in the same
banks, all of the tile at once, while TMA writes the next k-tiles there."""

NARROW, NARROW_BYTES = 2, 32
"""How many times longer TMA stores rows of up to so many bytes, a sector each. With both the choice among what was
measured of 311 problems on an H100 loses 0.9 %, and 1.1 without (h100_strips.json, h100_last_groups.json,
h100_any_m.json); on a B200 nobody has measured them."""

SUM_BYTES = 4
"""Of fp32."""

RELEASE_CYCLES = 1000
"""That an arrival takes which releases what was written to the other CTAs of a cluster, and their wait for it: on an
H200 some 1100 to 1600 for 2 to 8 KiB (bench/calibrate/tables/h200_micro.csv, "exchange: heard"), and the choice is best
a little below (h200_tiles_h7.json)."""

OUTSIDE_PART = 0.5
"""Of a row that is there, what the L2 notices of one that TMA fills with zeros: 64x144 with 56 of them in 12 of 132
tiles takes 18.4 us, and 12.6 with none; 128x128, which has time, 1 us longer (h100_tails.json)."""

MANY_OUTSIDE = 12
"""CTAs that load them at once; fewer hold each other up less. 64x112 with 80 of them in 2 of 126 tiles takes no longer
than with none, and 64x64 with 56 in 64 of 128 tiles took 1.5 times as long (h100_strips.json)."""

ZERO_ROW_CYCLES = 1.5
"""Where the memory bounds a k-tile; elsewhere up to 5: on an H200, with M = 1 and 5120x2880, a tile of 64x80 takes 14.3
us and one of 16x80 9.4, with 48 such rows fewer for each of 45 k-tiles (h200_tiles_h7.json)."""

TURN_CYCLES = 20
"""That a k-tile takes besides, where warps go round a ring: both wait, arrive and go on once for each. Of 64x64, 16x32
and 128x256 a k-tile of 128 columns takes as long as two of 64 less 5 to 40 (h200_tiles_wide.json)."""

HELD_UP = 1.05
"""Of what the products take: up to there shared memory makes them wait, and they keep the clock low. At full power an
H200 takes 1.5 % longer for 128x224, beside 128x256, than its products do, and 4 % for 128x176 (h200_chosen.json,
h200_tiles_wide.json); but tiles that wait longer yet do not take longer than those of one warpgroup, which would be
chosen for them (h100_tiles_wide.json)."""

OF_THREE = 1.015
"""Of a k-tile that three warpgroups multiply: where these were chosen without it, of 114 problems whose rows are whole
lines, they took 0.5 % longer than what was chosen of two (h100_rectangles.json)."""

OF_LARGE_CLUSTERS: Mapping[str, float] = MappingProxyType({"H200": 1.04})
"""Of a k-tile of CTAs in clusters of four and more that share A or B, where rows are whole lines, by GPU. On an H200,
whose memory is faster, they took 8 % longer in the ten of 492 problems that come without them so, to which this is
fitted (h200_clusters.json); where rows begin within lines see `CUT_ROWS_TRAITS`."""

CUT_ROWS_TRAITS: Mapping[str, float] = MappingProxyType(
    {
        "cluster 2x1": 1.018,
        "cluster 1x2": 0.98,
        "cluster 4x1": 0.969,
        "cluster 1x4": 0.965,
        "cluster 2x2": 1.02,
        "cluster 2x4": 1.036,
        "cluster 4x2": 1.053,
        "split 2": 0.918,
        "split 4": 0.951,
        "split 8": 1.081,
        "boxes 2": 0.948,
        "warpgroups 1": 1.057,
    }
)
"""Of what is predicted otherwise, by `traits`, where rows begin within lines of the L2: fitted to 828 problems on an
H200 and an H100, which then lose 1.8 and 2.4 %, and 3.3 and 2.7 without (bench/choice_traits.py). Fitted to half of
an H200's, for 260 others it chose what takes 1.1 % less in the mean (h200_cut_rows.json)."""

SHARED_BYTES = 128
"""That shared memory takes or gives in a cycle: 32 banks of 4 bytes (CUDA C++ Programming Guide, "Shared Memory")."""

RESERVED_BYTES = 1024
"""Of an SM's shared memory, with each CTA (CUDA C++ Programming Guide, compute capability 8.x and later)."""

USUAL_REGISTERS = 40
"""What a thread takes besides its part of the accumulator; `rules.SPARE_REGISTERS` is the most."""


class Supply(NamedTuple):
    """What an SM gets, in its cycles. products: how much longer they take, at the clock that they leave. latency: of a
    load. incoming: bytes a cycle, its share of the L2; from_memory: the same bytes at the rate of the memory behind."""

    figures: TimeFigures
    ghz: float
    products: float
    latency: float
    incoming: float
    from_memory: float


def predicted_cycles(tile: TileConfig) -> int:
    """SM cycles, at its full clock, from the launch to the last store, on the SM that has the most tiles."""
    return round(modelled_cycles(tile) * _of_traits(tile))


def traits(tile: TileConfig) -> tuple[str, ...]:
    """By which `CUT_ROWS_TRAITS` tells schedules apart."""
    boxes = ceil_div(tile.row_bytes, ROW_BYTES)
    found = f"cluster {tile.cluster_m}x{tile.cluster_n}", f"split {tile.split_k}", f"boxes {boxes}"
    return *found, f"warpgroups {tile.consumers}"


def _of_traits(tile: TileConfig) -> float:
    return math.prod(CUT_ROWS_TRAITS.get(each, 1.0) for each in traits(tile)) if _cut_rows(tile) else 1.0


def modelled_cycles(tile: TileConfig) -> float:
    """As `predicted_cycles`, by the rules alone, without what was measured of kinds of schedules."""
    supply = _supply(tile)
    figures, count = supply.figures, _tiles_of_one_sm(tile, supply.figures)
    start = _start(tile, supply)
    together = min(count, resident_ctas(tile))
    if "clc" in tile.features:
        loop, end = tile.k_tiles * _k_tile(tile, supply, together), _epilogue(tile, supply, together)
        return start + _first(tile, supply) + loop + (ceil_div(count, together) - 1) * max(loop, end) + end
    if "persistent" in tile.features:
        loop, drain = tile.k_tiles * _k_tile(tile, supply, 1), _drain(tile, figures)
        each = _with_each_other(loop + _turnover(tile, supply), drain)
        last = tile.k_tiles * _k_tile(tile, supply, 1, _rows_outside(tile))
        return start + _first(tile, supply) + (count - 1) * each + last + _epilogue(tile, supply, 1)
    full, rest = divmod(count, together)
    return start + full * _round(tile, supply, together) + bool(rest) * _round(tile, supply, rest)


def least_cycles(tile: TileConfig) -> int:
    """No more than `predicted_cycles`, and found sooner: as if loads were never in each other's way. So all tiles of an
    SM take their products, TMA and shared memory alone, and one of them all else that a CTA takes by itself."""
    supply, products = _unlimited(tile.gpu), _products(tile)
    figures = supply.figures
    own = max(products * supply.products, _shared(tile), _into_shared_memory(tile, figures))
    k_tile = max(_tiles_of_one_sm(tile, figures) * own, _chain(tile, supply, products)) + _besides(tile, figures)
    cycles = _start(tile, supply) + _first(tile, supply) + tile.k_tiles * k_tile + _epilogue(tile, supply, 1)
    return int(cycles * _of_traits(tile))


@cache
def _unlimited(gpu: Gpu) -> Supply:
    """More than any tile gets."""
    figures = nearest_figures(gpu)
    ghz = figures.clock_ghz * 1.0
    return Supply(
        figures, ghz, ghz / _loaded_ghz(figures), min(figures.l2_ns, figures.memory_ns) * ghz, math.inf, math.inf
    )


def _start(tile: TileConfig, supply: Supply) -> float:
    weights = tile.asked.n * tile.asked.k
    late = tile.in_order and weights <= EARLY_WEIGHTS and tile.asked.m * weights <= EARLY_PRODUCTS
    return (supply.figures.ramp_ns + late * LATE_NS) * supply.ghz + supply.figures.start_cycles


def _round(tile: TileConfig, supply: Supply, together: int) -> float:
    """Of so many CTAs that share an SM, from their start to the next ones'."""
    turnover = supply.figures.launch_ns * supply.ghz + supply.figures.start_cycles
    ends = turnover + _first(tile, supply) + _epilogue(tile, supply, together)
    return tile.k_tiles * _k_tile(tile, supply, together) + ends


def _tiles_of_one_sm(tile: TileConfig, figures: TimeFigures) -> int:
    """On the SM that has the most. A kernel that stays on its SMs launches as many clusters as they could hold, and of
    large ones they hold fewer."""
    size = tile.cluster_ctas
    count, at_once = ceil_div(tile.ctas, size), figures.clusters_at_once(tile.gpu.sm_count, size)
    if "persistent" not in tile.features:
        return ceil_div(count, at_once)
    rounds = ceil_div(count, max(1, tile.gpu.sm_count // size))
    return rounds * ceil_div(ceil_div(count, rounds), at_once)


# --- what all SMs share


@cache
def nearest_figures(gpu: Gpu) -> TimeFigures:
    """Those of the first GPU of its architecture; or else an RTX 5090's, with the memory of this one.
    Good enough to rank schedules, and for no prediction of time. What is fitted here goes with an H200's figures: with
    its own the choice on an H100 is no better, 2.0 % behind the best of 177 problems (h100_tiles_wide.json)."""
    known = next((name for name in TIME_FIGURES if GPUS[name].arch == gpu.arch), None)
    if known is not None:
        return TIME_FIGURES[known]
    other, theirs = figures_of("RTX 5090"), GPUS["RTX 5090"].memory_gb_per_s
    reached = other.stream_bytes_per_ns * (gpu.memory_gb_per_s or theirs or 1) / (theirs or 1)
    return replace(other, stream_bytes_per_ns=GpuFigure(reached, "assumed", "as a part of what the data sheet says"))


def _supply(tile: TileConfig) -> Supply:
    """With the L2 alone, and with what its misses take besides."""
    figures = nearest_figures(tile.gpu)
    ghz, loaded_ghz = figures.clock_ghz * 1.0, _loaded_ghz(figures)
    ctas = tile.ctas
    at_work = min(tile.gpu.sm_count, ctas)
    needed_ns = _from_memory(tile, figures) / _memory_rate(tile, figures) + _again(tile) / figures.l2_bytes_per_ns
    products_ns = tile.k_tiles * _products(tile) * ctas / tile.gpu.sm_count / loaded_ghz
    weight = (tile.problem.m + tile.problem.n) * tile.problem.k * tile.problem.element_bytes
    latency = figures.l2_ns * 1.0
    if weight > figures.near_l2_bytes:
        latency = figures.memory_ns + figures.queue_ns * min(1, needed_ns / products_ns)
    incoming, from_memory = (rate / at_work / ghz for rate in (figures.l2_bytes_per_ns, _from_l2(tile) / needed_ns))
    incoming = min(incoming, figures.port_bytes_per_cycle)
    return Supply(figures, ghz, ghz / loaded_ghz, latency * ghz, incoming, from_memory)


def _loaded_ghz(figures: TimeFigures) -> float:
    """The clock that the products leave."""
    return figures.clock_ghz - figures.clock_fall_ghz * USUAL_LOAD


def _memory_rate(tile: TileConfig, figures: TimeFigures) -> float:
    """Bytes/ns: all that the memory gives, or as much as the CTAs can take. The last ones are done when those are that
    have a neighbour, and with few CTAs none has, in a cluster or not. Near both bounds it is less, as measured where
    tiles can be split."""
    ctas = tile.ctas
    sharing = NEIGHBOURS if ctas * NEIGHBOURS > tile.gpu.sm_count else 1
    bounds = 1, sharing / (ctas * NEIGHBOURS_PART)
    return figures.stream_bytes_per_ns / (_with_each_other(*bounds) if "split_k" in tile.features else max(bounds))


def _again(tile: TileConfig) -> float:
    """Bytes of B that the L2 gets once more, each time from its other half or from memory, as rows of tiles are in no
    step: those of split tiles, whose clusters lie anywhere; neighbours without a cluster now and then, and where tiles
    can be split all have one."""
    rows = ceil_div(tile.problem.m, tile.block_m)
    out_of_step = 0 if "neighbours" in tile.features else OUT_OF_STEP
    more = rows / tile.cluster_m - 1 if tile.split_k > 1 else out_of_step * (min(rows, NEIGHBOURS) / tile.cluster_m - 1)
    return max(0, more) * tile.problem.n * tile.problem.k * tile.problem.element_bytes


def _from_l2(tile: TileConfig) -> float:
    """Bytes of A and B that all SMs load; multicast spares some."""
    return tile.ctas * tile.k_tiles * _loaded_rows(tile) * tile.row_bytes


def _loaded_rows(tile: TileConfig) -> float:
    """Of A and B, by one CTA for each k-tile, as far as the L2 notices: once for two neighbours what they share, and
    part of an A that many want. Those of one cluster share B, by multicast; CTAs that follow each other share it, too,
    unless they are parts of a tile, or share A, where there is one row of tiles."""
    rows = ceil_div(tile.problem.m, tile.block_m)
    if tile.in_order:
        return _rows_in_order(tile, rows)
    rows_of_a = tile.cta_m * _part_of_a(tile)
    if tile.split_k > 1 or tile.cluster_tiles > 1:
        return rows_of_a / tile.cluster_n + tile.cta_n / min(tile.cluster_m, rows)
    if tile.pair > 1:
        return tile.cta_m + tile.cta_n
    return rows_of_a + tile.cta_n / NEIGHBOURS if rows > 1 else tile.cta_m / NEIGHBOURS + tile.cta_n


def _rows_in_order(tile: TileConfig, rows: int) -> float:
    """Those that follow each other go down the rows of a group, then to the next column, and share a GPC."""
    high = rows / max(1, ceil_div(rows - tile.group_m // 2, tile.group_m))  # `kernels.tiles_of_any_size`
    wide = min(ceil_div(tile.problem.n, tile.block_n), max(1, GPC_SMS / high))
    once = (min(high, GPC_SMS) * tile.cta_m + wide * tile.cta_n) / GPC_SMS
    later = tile.k_tiles * (_tiles_of_one_sm(tile, nearest_figures(tile.gpu)) - 1)
    return IN_ORDER * once + IN_ORDER_DRIFT * later * tile.row_bytes / DRIFT_BYTES * (tile.cta_m + tile.cta_n)


def _part_of_a(tile: TileConfig) -> float:
    """That the L2 notices; less than all where CTAs come in clusters and are in step."""
    if "neighbours" not in tile.features:
        return 1
    part = PART_OF_A if ceil_div(tile.problem.m, tile.block_m) <= FEW else PART_OF_MANY
    k_tiles = tile.k_tiles * _tiles_of_one_sm(tile, nearest_figures(tile.gpu))
    return min(1, part + k_tiles * tile.row_bytes / DRIFT_BYTES)


def _from_memory(tile: TileConfig, figures: TimeFigures) -> float:
    """Bytes of A and B, which nothing has used of late. What the L2 has no room for comes once for each wave of CTAs,
    or, where it has room for those of a wave, once for each group of rows."""
    problem, bytes_of_row = tile.problem, tile.problem.k * tile.problem.element_bytes
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
    """Cycles of the tensor core for a k-tile. mma.sync has a rate of its own on each GPU."""
    interval = nearest_figures(tile.gpu).mma_sync_interval if tile.mma.name == "mma.sync" else None
    rate = MMA_SYNC_PRODUCTS / interval if interval else tile.mma.fma_per_cycle
    return tile.mma_m * tile.mma.multiplied_columns(tile) * tile.row_bytes / (2 * rate)


def _k_tile(tile: TileConfig, supply: Supply, together: int, outside: float = 0) -> float:
    """Of each of the CTAs that share an SM. outside: rows of A and B that are not there."""
    figures, rows, products = supply.figures, _loaded_rows(tile) + OUTSIDE_PART * outside, _products(tile)
    shared, at_once = _shared(tile), products * supply.products
    own = max(at_once, _held_up(products, shared, supply), shared, _into_shared_memory(tile, figures))
    from_l2 = rows * (max(tile.row_bytes, ROW_BYTES) if "tma" in tile.features else tile.row_bytes) / supply.incoming
    from_memory = rows * tile.row_bytes / supply.from_memory
    chained = max(together * own, _chain(tile, supply, products))
    cut_rows = _cut_rows(tile)
    k_tile = _with_each_other(chained, together * from_l2, together * from_memory, together * cut_rows)
    large = OF_LARGE_CLUSTERS.get(tile.gpu.name, 1.0) if tile.cluster_tiles >= 4 and not cut_rows else 1.0
    return k_tile * large * (OF_THREE if tile.consumers > 2 else 1) + _besides(tile, figures)


def _besides(tile: TileConfig, figures: TimeFigures) -> float:
    """What a k-tile takes whatever bounds it. The products of the largest take longer than the way to another CTA."""
    one_way = figures.remote_cycles / 2 if tile.cluster_tiles > 1 and not tile.is_largest else 0
    turn = TURN_CYCLES if "boxes" in tile.features else 0
    return one_way / tile.stages + turn + _zeros(tile)


def _held_up(products: float, shared: float, supply: Supply) -> float:
    """Of products that wait for shared memory now and then, at the clock that tensor cores leave which are busy for
    that part of the time; 0 where that does not tell."""
    if not products < shared < HELD_UP * products:
        return 0
    return shared * supply.ghz / (supply.ghz - supply.figures.clock_fall_ghz * products / shared)


def _rows_outside(tile: TileConfig) -> float:
    """Of A and B, in the last tiles of several, as far as there are CTAs that load them at once."""
    problem, (step_m, step_n) = tile.problem, _last_steps(tile)
    tiles_m, tiles_n = ceil_div(problem.m, tile.block_m), ceil_div(problem.n, tile.block_n)
    rows = -problem.m % step_m if tiles_m > 1 else 0
    columns = -problem.n % step_n if tiles_n > 1 else 0
    return rows * min(1, tiles_n / MANY_OUTSIDE) + columns * min(1, tiles_m / MANY_OUTSIDE)


def _last_steps(tile: TileConfig) -> tuple[int, int]:
    """In what steps of rows and columns the last tiles begin further up and to the left, where kernels have a knob
    `split_k` (`kernels.tiles_of_c`)."""
    if "split_k" not in tile.features or "gathered" in tile.features:
        return tile.block_m, tile.block_n
    return (tile.warpgroup_m, LAST_ROWS) if tile.swap_ab else (LAST_ROWS, tile.e_block_n)


def _zeros(tile: TileConfig) -> float:
    """What the rows of A beyond M, which TMA fills with zeros, hold up loads for; where there is one row of tiles, as
    they are few in others."""
    return ZERO_ROW_CYCLES * max(0, tile.block_m - tile.problem.m) if "tma" in tile.features else 0


def _with_each_other(*bounds: float) -> float:
    """The longest, and more where others are nearly as long: what is late for one keeps the next waiting."""
    most = max(bounds)
    return most * sum([(bound / most) ** NORM for bound in bounds]) ** (1 / NORM)


def _shared(tile: TileConfig) -> float:
    """For how long what TMA writes and the products read keeps shared memory. On an H200 small tiles are bound by it:
    what cuBLAS takes for a k-tile of 64x64, 225 to 250 cycles, is the 256 rows that one of 128 bytes a cycle takes."""
    read = tile.mma.rows_read(tile)
    return (read + tile.cta_m + tile.cta_n) * tile.row_bytes / SHARED_BYTES if read else 0


def _into_shared_memory(tile: TileConfig, figures: TimeFigures) -> float:
    """For how long a k-tile keeps TMA, or what cp.async fills."""
    rows = tile.cta_m + tile.cta_n
    if "tma" in tile.features:
        return rows * ceil_div(tile.row_bytes, ROW_BYTES) * figures.tma_row_cycles
    return rows * tile.row_bytes / figures.fill_bytes_per_cycle


def _cut_rows(tile: TileConfig) -> float:
    """For how long the rows that a CTA asks for keep TMA if they begin within lines of the L2; those that come by
    multicast another CTA asks for."""
    if "tma" not in tile.features:
        return 0
    figures, problem, few_sms = nearest_figures(tile.gpu), tile.problem, tile.ctas <= tile.gpu.sm_count / 2
    a, b = (figures.cut_row_cycles(each * problem.element_bytes, few_sms) for each in (problem.a_line, problem.b_line))
    return (tile.cta_m / tile.cluster_n * a + tile.cta_n / tile.cluster_m * b) * ceil_div(tile.row_bytes, ROW_BYTES)


def _chain(tile: TileConfig, supply: Supply, products: float) -> float:
    """What follows one upon another, however few CTAs there are: where warps specialise, the products of a warpgroup,
    which issues the next ones while they are in flight; where they do not, these are waited for; and without a ring the
    loads, too."""
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
        own = seen + figures.arrive_cycles + (-_latency(tile, figures) if in_flight else issues)
    return max(whole / max(1, tile.stages - in_flight), own, products + figures.commit_gap_cycles)


def _round_trip(tile: TileConfig, supply: Supply) -> float:
    """From the issue of a k-tile's loads till a warp goes on with it."""
    figures = supply.figures
    tma = figures.tma_cycles + figures.wait_cycles if "tma" in tile.features else 0
    return supply.latency + tma + _into_shared_memory(tile, figures)


def _latency(tile: TileConfig, figures: TimeFigures) -> float:
    """From the end of a k-tile's products till a warp sees it."""
    if tile.mma.name != "tcgen05":
        return figures.wgmma_latency_cycles or figures.mma_sync_latency_cycles or 0
    return ((figures.pair_latency_cycles if tile.pair > 1 else figures.mma_latency_cycles) or 0) + figures.chain_cycles


def _sync(tile: TileConfig, figures: TimeFigures) -> float:
    return figures.sync_cycles + figures.sync_warp_cycles * tile.threads / WARP


# --- before and after


def _first(tile: TileConfig, supply: Supply) -> float:
    """Until the first k-tile is there."""
    figures = supply.figures
    together = figures.alloc_cycles if tile.tensor_memory_columns else 0.0
    together += figures.cluster_sync_cycles if tile.cluster_ctas > 1 else 0
    return together + _round_trip(tile, supply) + _latency(tile, figures)


def _epilogue(tile: TileConfig, supply: Supply, together: int) -> float:
    """From the last product to the last store."""
    figures = supply.figures
    if not tile.strip_row_bytes:
        stored = tile.cta_m * _finished_columns(tile) * C_BYTES
        return _cast(tile, figures) + together * stored / figures.line_bytes + _exchange(tile, supply)
    strips = _strips_of(tile) * _strip(tile, figures)
    return max(strips, together * _drain(tile, figures)) + _exchange(tile, supply)


def _turnover(tile: TileConfig, supply: Supply) -> float:
    """From the last product to the next tile's first: once the last strips have a place to leave from, they leave while
    that is multiplied. Of 16 products of 1024x1024x1024 on an H100, 128x128, of two strips for two places, takes 59 us,
    and 128x256, of four, 63 (h100_tune.json)."""
    figures, strips = supply.figures, _strips_of(tile)
    waited_for = max(0, strips - tile.strip_buffers) / strips
    return max(strips * _strip(tile, figures), waited_for * _drain(tile, figures)) + _exchange(tile, supply)


def _drain(tile: TileConfig, figures: TimeFigures) -> float:
    """For how long TMA stores what a CTA finishes of a tile."""
    slower = NARROW if tile.strip_row_bytes <= NARROW_BYTES else 1
    return slower * tile.cta_m * _finished_columns(tile) * C_BYTES / KIB * figures.drain_kib_cycles


def _strips_of(tile: TileConfig) -> float:
    """At least one, though a schedule that nobody has checked has a wider strip than its tile."""
    return max(1, _finished_columns(tile) / tile.e_block_n)


def _strip(tile: TileConfig, figures: TimeFigures) -> float:
    """From the sums to the issue of the store."""
    slower = 1 if tile.strip_row_bytes in SWIZZLE_BYTES else PLAIN
    strip = _cast(tile, figures) + figures.stage_cycles + figures.stage_value_cycles * tile.strip_values * slower
    strip += figures.fence_cycles + 2 * _sync(tile, figures) + figures.issue_cycles
    if tile.strip_buffers == 1 and tile.strips > 1:
        strip += figures.store_cycles + figures.store_kib_cycles * tile.cta_m * tile.e_block_n * C_BYTES / KIB
    return strip


def _cast(tile: TileConfig, figures: TimeFigures) -> float:
    """Of a strip, in registers once it is there."""
    cycles = figures.cast_cycles + figures.cast_value_cycles * tile.strip_values
    if tile.tensor_memory_columns:
        columns = tile.e_block_n
        cycles += figures.strip_load_cycles if columns <= 64 else figures.half_load_cycles * columns / 128
    return cycles


def _finished_columns(tile: TileConfig) -> int:
    """Of a tile, by the CTA of those that share it that has most: whole strips."""
    if "gathered" in tile.features:
        return tile.block_n
    return ceil_div(tile.strips, tile.split_k) * tile.e_block_n


def _exchange(tile: TileConfig, supply: Supply) -> float:
    """What the CTAs of a split tile write for each other, and read: there and back through the L2, and once all have
    told each other so."""
    if tile.split_k == 1:
        return 0
    figures, columns = supply.figures, _finished_columns(tile)
    moved = tile.mma_m * (tile.block_n - tile.block_n / tile.split_k + (tile.split_k - 1) * columns) * SUM_BYTES
    return moved / figures.line_bytes + 2 * figures.l2_ns * supply.ghz + figures.remote_cycles + RELEASE_CYCLES


def resident_ctas(tile: TileConfig) -> int:
    """How many CTAs an SM holds at once: by shared memory, tensor memory, registers and threads; at least one. Of a
    kernel that stays on its SMs there is one for each."""
    if "persistent" in tile.features:
        return 1
    registers = max(tile.registers, tile.strip_values) + USUAL_REGISTERS
    limits = [
        tile.gpu.shared_memory_per_sm_bytes // (tile.shared_bytes + RESERVED_BYTES),
        tile.gpu.max_threads_per_sm // tile.threads,
        REGISTERS_PER_SM // (tile.threads * min(registers, tile.gpu.max_registers_per_thread)),
    ]
    if tile.tensor_memory_columns and tile.gpu.tensor_memory_columns:
        limits.append(tile.gpu.tensor_memory_columns // tile.tensor_memory_columns)
    return max(1, min(limits))
