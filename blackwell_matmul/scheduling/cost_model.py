"""`predicted_cycles`: about how long a schedule takes, from a handful of figures. It ranks schedules, no more.

A CTA takes k-tile after k-tile. Each costs the tensor core its products and the way from the L2 to the SM its bytes,
and CTAs that share an SM share both. A stage is used again once it has been loaded and multiplied, and where the same
warps do both, some time passes between two k-tiles in which neither happens. What the matrices weigh comes from memory
at least once. CTAs that split a tile exchange sums at its end. The SM with the most tiles ends last.

On an H200 the schedule of H7 that it puts first takes 1.1 % longer than the fastest of up to 15 tiles, in the geometric
mean over 24 problems with M from 128 to 8192, at full power (bench/tiles.py; bench/results/h200_tiles_h6.json).
"""

from __future__ import annotations

from blackwell_matmul.scheduling.tile_config import TileConfig, ceil_div

L2_BYTES_PER_CYCLE = 60
"""Into one SM while all of them load. 58 with tiles that several CTAs read (SemiAnalysis, microbench-blackwell, B200);
58 to 62 fit what an H200 does."""

LATENCY_CYCLES = 1000
"""From a TMA load to its data, on a busy chip, besides the transfer (round trips in loaded loops on B200 take 740 to
1090 ns with 32 to 48 KB, of which the transfer is about half)."""

TURN_CYCLES = 430
"""Between two k-tiles, where the warps that load also multiply: wait, issue, and start again. It makes HopperMatmulV2
as slow beside HopperMatmulV5 as it was measured, alone on its SM with tiles of 128x128 and of 128x192."""

STEP_CYCLES = 30
"""For the barriers and the issue of each k-tile: HopperMatmulV5 was 2 to 3 % slower with block_k = 32 than with 64."""

HIDDEN_COST = 1 / 3
"""What the shorter of products and loads costs, though the longer one hides it: both take power, and an H200 lowers
its clock for it. A tile that arrives by multicast takes the L2 less."""

IN_STEP_ROWS = 4
"""With so many rows of tiles multicast spares nothing: neighbours that read the same B share a GPC, where requests for
the same data at about the same time become one (HopperMatmulV5 takes 1.05 GB out of an H200's L2 for the 1.61 that it
loads at 4096: h200_counters.json). From M = 512 up pairs of CTAs took 2 % longer than CTAs without clusters, in the
mean (h200_tiles_h6.json); with two rows, up to 20 % less (h200_tiles_h6_short.json)."""

EPILOGUE_ELEMENTS_PER_CYCLE = 16
"""From the accumulator to shared memory, by the warps that multiply."""

LARGE_CLUSTERS_SHARE = 10 / 11
"""Of the SMs, what clusters of four or eight CTAs can fill: an H200 with 132 SMs holds 30 of the one or 15 of the other
at once (cuOccupancyMaxActiveClusters), because a cluster lies in one GPC."""

MEMORY_SHARE = 0.85
"""Of what the data sheet says of the memory, what kernels reach: 4.0 to 4.5 of 4.8 TB/s on an H200."""

CLOCK_GHZ = 1.7
"""Of an SM under load, where bytes per second become bytes per cycle."""

MEMORY_POWER = 3
"""How the time on the chip and the time of the memory become one: the longer of both, and more where they are alike."""

EXCHANGE_CYCLES = 700
"""Until all CTAs of a tile have given their sums, and again for each strip that is added up from them."""

EXCHANGE_BYTES_PER_CYCLE = 15
"""Of an SM, where each thread writes and reads eight bytes at a time."""

SUM_BYTES = 4
"""Of fp32."""

RESERVED_BYTES = 1024
"""Of an SM's shared memory, with each CTA (CUDA C++ Programming Guide, compute capability 8.x and later)."""

USUAL_REGISTERS = 40
"""What a thread takes besides its part of the accumulator; `rules.SPARE_REGISTERS` is the most."""

REGISTERS = 65536
"""Of an SM, 32 bits each."""


def predicted_cycles(tile: TileConfig) -> int:
    """SM clock cycles from the first load to the last store, on the SM that has the most tiles."""
    resident = resident_ctas(tile)
    full, rest = divmod(_ctas_of_one_sm(tile), resident)
    on_chip = tile.k_tiles * (full * _k_tile(tile, resident) + (_k_tile(tile, rest) if rest else 0))
    loop: float = (on_chip**MEMORY_POWER + _memory_cycles(tile) ** MEMORY_POWER) ** (1 / MEMORY_POWER)
    exposed = 1 if "clc" in tile.features else full + bool(rest)  # a second accumulator hides the others
    return round(loop + exposed * _ends(tile))


def _ctas_of_one_sm(tile: TileConfig) -> int:
    """On the SM that has the most; clusters of this size cannot fill every SM."""
    size = tile.cluster_ctas
    share = LARGE_CLUSTERS_SHARE if size > 2 else 1
    return ceil_div(tile.ctas, max(1, int(tile.gpu.sm_count * share) // size) * size)


def _memory_cycles(tile: TileConfig) -> float:
    """What has to come from memory and go there at least once."""
    if not tile.gpu.memory_gb_per_s:
        return 0
    problem = tile.problem
    return problem.bytes / (MEMORY_SHARE * tile.gpu.memory_gb_per_s / CLOCK_GHZ)


def _ends(tile: TileConfig) -> float:
    """Of the CTAs that are together on an SM, before their k-tiles and after. The epilogue of one runs beside the
    products of another."""
    epilogue = tile.cta_m * _finished_columns(tile) / EPILOGUE_ELEMENTS_PER_CYCLE
    return LATENCY_CYCLES + epilogue + _exchange(tile)


def _exchange(tile: TileConfig) -> float:
    """What the CTAs of a split tile write for each other, and read."""
    if tile.split_k == 1:
        return 0
    strips, columns = ceil_div(tile.strips, tile.split_k), _finished_columns(tile)
    moved = tile.block_n - tile.block_n / tile.split_k + (tile.split_k - 1) * columns
    return (1 + strips) * EXCHANGE_CYCLES + tile.block_m * moved * SUM_BYTES / EXCHANGE_BYTES_PER_CYCLE


def _finished_columns(tile: TileConfig) -> int:
    """Of a tile, by the CTA of those that share it that has most: whole strips."""
    return ceil_div(tile.strips, tile.split_k) * tile.e_block_n


def _k_tile(tile: TileConfig, together: int) -> float:
    """One k-tile of each of the CTAs that share an SM, when all comes from the L2."""
    products = tile.cta_m * tile.mma.multiplied_columns(tile) * tile.row_bytes / (2 * tile.mma.fma_per_cycle)
    load = (tile.cta_m + tile.cta_n) * tile.row_bytes / L2_BYTES_PER_CYCLE
    from_l2 = (tile.block_m + tile.block_n / _spared_by_multicast(tile)) / (tile.block_m + tile.block_n)
    busy = max(products, load) + HIDDEN_COST * from_l2 * min(products, load)
    turn = 0 if "specialised" in tile.features else TURN_CYCLES
    ring = (LATENCY_CYCLES + load + products) / tile.stages
    return max(together * (busy + STEP_CYCLES), products + turn, ring)


def _spared_by_multicast(tile: TileConfig) -> int:
    """By what the L2 has to serve fewer requests for B than it would have to without clusters."""
    return 1 if ceil_div(tile.problem.m, tile.block_m) >= IN_STEP_ROWS else tile.cluster_m


def resident_ctas(tile: TileConfig) -> int:
    """How many CTAs an SM holds at once: by shared memory, tensor memory, registers and threads; at least one. A CTA
    that computes tile after tile has its SM for itself."""
    if "persistent" in tile.features:
        return 1
    limits = [
        tile.gpu.shared_memory_per_sm_bytes // (tile.shared_bytes + RESERVED_BYTES),
        tile.gpu.max_threads_per_sm // tile.threads,
        REGISTERS // (tile.threads * (tile.registers + USUAL_REGISTERS)),
    ]
    if tile.tensor_memory_columns and tile.gpu.tensor_memory_columns:
        limits.append(tile.gpu.tensor_memory_columns // tile.tensor_memory_columns)
    return max(1, min(limits))
