"""`TileConfig`: a complete schedule on a problem and a GPU, and what it needs of an SM.

`MmaSpec` is what an instruction that multiplies says of that; `mma.py` has one for each.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import ClassVar

from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.problem.problem import SIXTEEN_BITS, Problem

WARP = 32
WARPGROUP = 128

MMA_K_BYTES = 32
"""What every one of them takes of a row along k at a time."""

ALIGNMENT_BYTES = 128
"""Shared memory is handed out in multiples of this, at least."""

MBARRIER_BYTES = 8

SWIZZLE_BYTES = (128, 64, 32, 16)
"""How long a row can be for TMA to spread it over the banks; 16 is no swizzle (PTX ISA, "Swizzling Modes")."""

LAST_ROWS = 8
"""Of C, in steps of which the last tiles begin further up, and that leave at a time (`kernels.tiles_of_c`); a swizzle
begins anew after as many."""

SPACE_COLUMNS = range(64, 257, 32)
"""block_n, in the space."""

SPACE_ROW_ELEMENTS = 64
"""The most of block_k, in the space: TMA swizzles 128 bytes of a row, which are twice as many elements of 8 bits."""

SPACE_LEAST_ROWS, SPACE_ROWS = 64, 128
"""What one CTA computes, in the space."""

NEIGHBOURS = 2
"""SMs that have one way to the L2. What both want at about the same time comes once: into the SMs of a B200 go 12.5
TB/s of what two of them share, without multicast, and 13.7 with it (SemiAnalysis, microbench-blackwell); HopperMatmulV5
takes 1.05 GB out of an H200's L2 for the 1.61 that it loads at 4096, and 1.18 with pairs (h200_counters.json)."""

ANSWER_BYTES = 16
"""What cluster launch control answers (PTX ISA, "clusterlaunchcontrol.try_cancel")."""


class MmaSpec(ABC):
    """An instruction that multiplies, as far as a schedule can tell: its tiles, its needs and its cost."""

    name: ClassVar[str]
    """As rungs and schedules name it (`problem.MMAS`)."""

    instruction: ClassVar[str]
    """As sentences name it."""

    shape: ClassVar[str]
    """As sentences about its N name it."""

    step_n: ClassVar[int]
    """What N of a tile is a multiple of."""

    dtypes: ClassVar[tuple[str, ...]] = SIXTEEN_BITS
    """What A and B can be, in the ladder."""

    gpu_feature: ClassVar[str]
    """What a GPU must have (`gpus.FEATURES`)."""

    workspace_bytes: ClassVar[int] = 0
    """Of shared memory, behind everything else."""

    one_swizzle: ClassVar[bool] = False
    """Whether tilus has code for A and B of one swizzle alone."""

    plain_strips: ClassVar[bool] = False
    """Whether a tile of C can leave in one strip, whose rows follow each other in shared memory without a swizzle."""

    least_rows: ClassVar[int] = 1
    """What it multiplies for a CTA even where the tile has fewer."""

    fma_per_cycle: ClassVar[int]
    """Products of 16-bit numbers that an SM adds in a cycle; of 8 bits twice as many."""

    @abstractmethod
    def wrong_rows(self, tile: TileConfig) -> str | None:
        """Why it cannot compute block_m rows."""

    def in_space(self, row: Mapping[str, int], features: Sequence[str]) -> bool:
        """Whether the space has a tile of this schedule, complete or not, for a kernel with these features."""
        small = (
            SPACE_LEAST_ROWS <= row.get("block_m", SPACE_ROWS) <= SPACE_ROWS
            and row.get("block_k", 0) <= SPACE_ROW_ELEMENTS
        )
        return row.get("block_n", SPACE_COLUMNS[0]) in SPACE_COLUMNS and small

    @abstractmethod
    def registers(self, tile: TileConfig) -> int:
        """What a thread holds of the tile of C, and of A and B."""

    def threads(self, tile: TileConfig) -> int:
        return WARPGROUP * tile.consumers + (WARP if "specialised" in tile.features else 0)

    def tensor_memory_columns(self, tile: TileConfig) -> int:
        return 0

    def barriers(self, tile: TileConfig) -> int:
        """Mbarriers that track it, and what follows it."""
        return 0

    def multiplied_columns(self, tile: TileConfig) -> float:
        """For how many columns the tensor core works."""
        return tile.block_n

    def rows_read(self, tile: TileConfig) -> int:
        """Rows of a k-tile of A and B that the products read out of shared memory, where that counts besides."""
        return 0

    def column_bytes(self, tile: TileConfig) -> int:
        """Of shared memory, for what the epilogue has one of for each column."""
        return 0

    def products_in_flight(self, tile: TileConfig) -> int:
        """K-tiles whose products a warp leaves unfinished when it goes on."""
        return 0


@dataclass(frozen=True)
class TileConfig:
    """A complete schedule on a problem and a GPU, with the sizes that follow. A knob that the schedule does not have is
    1 here, and the strip of C then is the tile. problem: what is computed, which is C transposed with `swap_ab`.
    """

    block_m: int
    block_n: int
    block_k: int
    e_block_n: int
    stages: int
    consumers: int
    group_m: int
    cluster_m: int
    cluster_n: int
    split_k: int
    neighbours: int
    swap_ab: bool
    features: frozenset[str]
    mma: MmaSpec
    problem: Problem
    gpu: Gpu

    @property
    def asked(self) -> Problem:
        """What is asked for."""
        return self.problem.swapped if self.swap_ab else self.problem

    @property
    def row_bytes(self) -> int:
        """A row of a tile of A or B in shared memory."""
        return self.block_k * self.problem.element_bytes

    @property
    def strip_row_bytes(self) -> int:
        """A row of a strip of C in shared memory; 0 where C leaves straight from registers."""
        as_it_is = self.e_block_n // self.problem.form.epilogue.columns_of_c
        columns = self.warpgroup_m if self.swap_ab else as_it_is
        by_tma = "tma" in self.features and "gathered" not in self.features
        return columns * self.problem.c_bytes if by_tma else 0

    @property
    def strip_rows(self) -> int:
        """Of C, in a strip of each warpgroup or of all."""
        return self.consumers * self.e_block_n if self.swap_ab else self.mma_m

    @property
    def barriers(self) -> int:
        """One for TMA or one for each stage, and as many for the way back if warps specialise; those of the MMA."""
        of_tma = self.stages * (2 if "specialised" in self.features else 1) if "tma" in self.features else 0
        of_parts = self.consumers if self.split_k > 1 else 0
        return of_tma + of_parts + self.mma.barriers(self)

    @property
    def strips(self) -> int:
        """Of a tile of C."""
        return self.block_n // self.e_block_n

    @property
    def strip_values(self) -> int:
        """Of a strip of C, by one thread."""
        return self.mma_m * self.e_block_n // (WARPGROUP * self.consumers)

    @property
    def strip_buffers(self) -> int:
        """Strips of C that are in shared memory at once, in each group of rows: two if a CTA has tiles to come."""
        return min(2, self.strips) if "persistent" in self.features else 1

    @property
    def registers(self) -> int:
        """What a thread holds of the tile of C, and of A and B; 0 where tensor memory does."""
        return self.mma.registers(self)

    @property
    def threads(self) -> int:
        return self.mma.threads(self)

    @property
    def registers_per_thread(self) -> int:
        """What a thread can have, with so many."""
        return self.gpu.registers_per_thread(self.threads)

    @property
    def tensor_memory_columns(self) -> int:
        """What the accumulator takes; 0 where registers hold it."""
        return self.mma.tensor_memory_columns(self)

    @cached_property
    def ctas(self) -> int:
        """Tiles of C and their parts, or, where a CTA computes many, what would be a CTA each; in whole clusters."""
        tiles_m = round_up(ceil_div(self.problem.m, self.block_m), self.cluster_m)
        tiles_n = round_up(ceil_div(self.problem.n, self.block_n), self.cluster_n)
        return self.problem.batches * tiles_m * tiles_n * self.split_k * self.pair

    @property
    def k_tiles(self) -> int:
        """Those of one CTA, or of the one that has most."""
        return ceil_div(ceil_div(self.problem.k, self.block_k), self.split_k)

    @property
    def pair(self) -> int:
        """CTAs that compute a tile together, each its rows, and load it, each its rows of A and of B."""
        return 2 if "pairs" in self.features else 1

    @property
    def cta_m(self) -> int:
        """Rows of the tile, and of A, of one CTA."""
        return self.block_m // self.pair

    @property
    def mma_m(self) -> int:
        """Rows that are multiplied for one CTA, and that shared memory and registers hold."""
        return max(self.cta_m, self.mma.least_rows)

    @property
    def warpgroup_m(self) -> int:
        """Rows that each of the warpgroups multiplies."""
        return self.mma_m // self.consumers

    @property
    def cta_n(self) -> int:
        """Rows of B that one CTA holds."""
        return self.block_n // self.pair

    @property
    def in_order(self) -> bool:
        """Whether CTAs come without clusters, and all at once, so that those that follow each other share a GPC."""
        return self.neighbours == 1 and "neighbours" in self.features

    @property
    def is_largest(self) -> bool:
        """Whether two warpgroups hold all the columns of C that wgmma has."""
        return self.mma.name == "wgmma" and self.consumers > 1 and self.block_n == SPACE_COLUMNS[-1]

    @property
    def cluster_ctas(self) -> int:
        return self.cluster_tiles * self.split_k * self.pair

    @property
    def cluster_tiles(self) -> int:
        """That a cluster computes at once."""
        return self.cluster_m * self.cluster_n

    @property
    def shared_bytes(self) -> int:
        """What the launch asks for: A, B, the strips of C, the barriers, and what epilogue and MMA need besides."""
        end = 0
        for rows, row_bytes in (
            (self.stages * self.mma_m, self.row_bytes),
            (self.stages * self.cta_n, self.row_bytes),
            (self.strip_buffers * self.strip_rows, self.strip_row_bytes),
            ("clc" in self.features, ANSWER_BYTES),
        ):
            alignment = _alignment_bytes(row_bytes)
            end = round_up(round_up(end, alignment) + rows * row_bytes, alignment)
        end = round_up(end, ALIGNMENT_BYTES) + round_up(self.barriers * MBARRIER_BYTES, ALIGNMENT_BYTES)
        return end + self.mma.column_bytes(self) + self.mma.workspace_bytes


@cache
def _alignment_bytes(row_bytes: int) -> int:
    """A swizzle repeats after eight rows of its length, and a tile starts where the pattern starts."""
    swizzle = next((size for size in SWIZZLE_BYTES if row_bytes % size == 0), 0)
    return max(ALIGNMENT_BYTES, 8 * swizzle)


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def round_up(value: int, step: int) -> int:
    return -(-value // step) * step
