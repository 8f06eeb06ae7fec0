"""`TileConfig`: the sizes of a complete schedule on a problem and a GPU, and its needs of an SM.

`MmaSpec` is an MMA instruction's part of them; `mma.py` has one for each instruction.
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
"""Bytes of a row along k that one MMA instruction multiplies."""

SHARED_ALIGNMENT_BYTES = 128
"""Smallest alignment of a shared-memory allocation, in bytes."""

MBARRIER_BYTES = 8

SWIZZLE_BYTES = (128, 64, 32, 16)
"""Bytes of a row that TMA can swizzle; 16 is no swizzle (PTX ISA, "Swizzling Modes")."""

LAST_ROWS = 8
"""Rows of C in a step: the last tiles begin whole steps further up, and leave in steps (`kernels.parts.output_tile`). A
swizzle repeats after as many rows."""

SPACE_COLUMNS = range(64, 257, 32)
"""Values of block_n in the space."""

SPACE_ROW_ELEMENTS = 64
"""Most elements of block_k in the space: TMA swizzles 128 bytes of a row, twice as many elements of 8 bits."""

SPACE_LEAST_ROWS, SPACE_ROWS = 64, 128
"""Minimum and maximum rows of a CTA in the search space."""

ANSWER_BYTES = 16
"""Bytes of a CLC response (PTX ISA, "clusterlaunchcontrol.try_cancel")."""


SCALE_ROW_BYTES = 16
"""Bytes of a row of a scale atom in shared memory. An atom has 32 such rows, without a swizzle."""


class MmaSpec(ABC):
    """An MMA instruction's tiles, needs and cost, as far as schedules depend on them."""

    name: ClassVar[str]
    """Name in rungs and schedules (`problem.MMAS`)."""

    instruction: ClassVar[str]
    """Name in sentences."""

    shape: ClassVar[str]
    """Name of the instruction in sentences about N."""

    step_n: ClassVar[int]
    """Step of a tile's N."""

    dtypes: ClassVar[tuple[str, ...]] = SIXTEEN_BITS
    """Types of A and B in the ladder."""

    gpu_feature: ClassVar[str]
    """Feature that a GPU must have (`gpus.FEATURES`)."""

    workspace_bytes: ClassVar[int] = 0
    """Bytes of shared memory after all other parts."""

    one_swizzle: ClassVar[bool] = False
    """True if tilus needs the same swizzle for A and B."""

    accumulates: ClassVar[str] = "the fp32 accumulator takes"
    fewer_columns: ClassVar[str] = "make block_n smaller"
    """Clause in the sentence about too many columns of tensor memory."""

    plain_strips: ClassVar[bool] = False
    """True if a tile of C can be stored as one strip of plain rows, without a swizzle."""

    least_rows: ClassVar[int] = 1
    """Rows that the instruction multiplies for a CTA even if the tile has fewer."""

    fma_per_cycle: ClassVar[int]
    """Products of 16-bit numbers that an SM accumulates in a cycle; 8-bit products: twice as many."""

    interval: ClassVar[str] = ""
    """Name of the figure in `gpu_figures.TimeFigures` with the cycles of an instruction, if it depends on the GPU."""

    @abstractmethod
    def wrong_rows(self, tile: TileConfig) -> str | None:
        """Return why the instruction cannot compute block_m rows, or None."""

    def wrong_columns(self, tile: TileConfig) -> str | None:
        """Return why the instruction cannot compute block_n columns, or None."""
        if tile.block_n % self.step_n == 0:
            return None
        fit = round_up(tile.block_n, self.step_n)
        return f"block_n = {tile.block_n}: {self.shape} needs N a multiple of {self.step_n}; {fit} is one."

    def in_space(self, row: Mapping[str, int], features: Sequence[str]) -> bool:
        """Return True if the space has a tile with these values, complete or not, for a kernel with these features."""
        small = (
            SPACE_LEAST_ROWS <= row.get("block_m", SPACE_ROWS) <= SPACE_ROWS
            and row.get("block_k", 0) <= SPACE_ROW_ELEMENTS
        )
        return row.get("block_n", SPACE_COLUMNS[0]) in SPACE_COLUMNS and small

    @abstractmethod
    def registers(self, tile: TileConfig) -> int:
        """Return the registers in which a thread holds C, A and B of the tile."""

    def threads(self, tile: TileConfig) -> int:
        return WARPGROUP * tile.consumers + (WARP if "specialised" in tile.features else 0)

    def registers_per_thread(self, tile: TileConfig) -> int:
        """Return the registers that a thread which holds a part of C can have."""
        return tile.gpu.registers_per_thread(tile.threads)

    def tensor_memory_columns(self, tile: TileConfig) -> int:
        return 0

    def barriers(self, tile: TileConfig) -> int:
        """Return the number of mbarriers for the MMA and the consumers of its result."""
        return 0

    def multiplied_columns(self, tile: TileConfig) -> float:
        """Return the columns for which the tensor core works."""
        return tile.block_n

    def rows_read(self, tile: TileConfig) -> int:
        """Return rows of a k-tile that MMAs read from shared memory; 0 if these reads cost no time."""
        return 0

    def column_bytes(self, tile: TileConfig) -> int:
        """Return the shared-memory bytes of the epilogue's column vectors."""
        return 0

    def scale_rows(self, tile: TileConfig) -> int:
        """Return the rows of `SCALE_ROW_BYTES` with the scales of a k-tile in shared memory."""
        return 0

    def adds_sums(self, tile: TileConfig) -> bool:
        """Return True if sums of a few k-tiles are added up in fp32, without scales of blocks."""
        return False

    def has_scales_of_column_blocks(self, tile: TileConfig) -> bool:
        """Return True if 128 columns of the sums share a scale."""
        return False

    def stored_before(self, tile: TileConfig) -> float:
        """Return the fraction of a tile that is stored before the next tile can be multiplied, with CLC."""
        return 0

    def products_in_flight(self, tile: TileConfig) -> int:
        """Return the number of k-tiles whose MMAs a warp leaves in flight when it continues."""
        return 0


@dataclass(frozen=True)
class TileConfig:
    """A complete schedule on a problem and a GPU, with the sizes that follow. Knobs that the schedule lacks are 1, and
    e_block_n is block_n.

    problem: the computed product; with `swap_ab` it is C transposed.
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
        """Return the caller's problem, before `swap_ab`."""
        return self.problem.swapped if self.swap_ab else self.problem

    @property
    def row_bytes(self) -> int:
        """Return the bytes of a row of a tile of A or B in shared memory."""
        return self.block_k * self.problem.element_bits // 8

    @property
    def strip_row_bytes(self) -> int:
        """Return the bytes of a row of a strip of C in shared memory; 0 if C is stored straight from registers."""
        as_it_is = self.e_block_n // self.problem.form.epilogue.columns_of_c
        columns = self.warpgroup_m if self.swap_ab else as_it_is
        by_tma = "tma" in self.features and "gathered" not in self.features
        return columns * self.problem.c_bytes if by_tma else 0

    @property
    def strip_rows(self) -> int:
        """Return the rows of C in a strip of all warpgroups."""
        return self.consumers * self.e_block_n if self.swap_ab else self.mma_m

    @property
    def barriers(self) -> int:
        """Return the number of mbarriers: one or two for each stage, one for each warpgroup of a split tile, and the
        MMA's."""
        of_tma = self.stages * (2 if "specialised" in self.features else 1) if "tma" in self.features else 0
        of_parts = self.consumers if self.split_k > 1 else 0
        return of_tma + of_parts + self.mma.barriers(self)

    @property
    def strips(self) -> int:
        """Return the number of strips of a tile of C."""
        return self.block_n // self.e_block_n

    @property
    def strip_values(self) -> int:
        """Return the values of a strip of C in one thread."""
        return self.mma_m * self.e_block_n // (WARPGROUP * self.consumers)

    @property
    def strip_buffers(self) -> int:
        """Return the strips of C in shared memory at once, in each group of rows: two if a CTA computes more tiles."""
        return min(2, self.strips) if "persistent" in self.features else 1

    @property
    def registers(self) -> int:
        """Return the registers in which a thread holds C, A and B of the tile; 0 for C in tensor memory."""
        return self.mma.registers(self)

    @property
    def threads(self) -> int:
        return self.mma.threads(self)

    @property
    def registers_per_thread(self) -> int:
        """Return the registers that a thread which holds a part of C can have."""
        return self.mma.registers_per_thread(self)

    @property
    def tensor_memory_columns(self) -> int:
        """Return the tensor-memory columns of the accumulator; 0 if registers hold it."""
        return self.mma.tensor_memory_columns(self)

    @cached_property
    def ctas(self) -> int:
        """Count CTAs of the launch, in whole clusters; for a persistent kernel, as if each tile had one."""
        tiles_m = round_up(ceil_div(self.problem.m, self.block_m), self.cluster_m)
        tiles_n = round_up(ceil_div(self.problem.n, self.block_n), self.cluster_n)
        return self.problem.batches * tiles_m * tiles_n * self.split_k * self.pair

    @property
    def k_tiles(self) -> int:
        """Return the k-tiles of one CTA; the most, if parts differ."""
        return ceil_div(ceil_div(self.problem.k, self.block_k), self.split_k * self.problem.parts_of_k)

    @property
    def pair(self) -> int:
        """Return the number of CTAs that compute a tile together; each CTA loads its own rows of A and of B."""
        return 2 if "pairs" in self.features else 1

    @property
    def cta_m(self) -> int:
        """Return the rows of C and A in one CTA's part of the tile."""
        return self.block_m // self.pair

    @property
    def mma_m(self) -> int:
        """Return the rows that the MMA computes for one CTA; shared memory and registers hold as many."""
        return max(self.cta_m, self.mma.least_rows)

    @property
    def warpgroup_m(self) -> int:
        """Return the number of rows that a warpgroup multiplies."""
        return self.mma_m // self.consumers

    @property
    def cta_n(self) -> int:
        """Return the number of rows of B in the shared memory of one CTA."""
        return self.block_n // self.pair

    @property
    def in_order(self) -> bool:
        """Return True if CTAs start all together without clusters, so that consecutive CTAs share a GPC."""
        return self.neighbours == 1 and "neighbours" in self.features

    @property
    def is_largest(self) -> bool:
        """Return True for the widest tile of two warpgroups of wgmma."""
        return self.mma.name == "wgmma" and self.consumers > 1 and self.block_n == SPACE_COLUMNS[-1]

    @property
    def cluster_ctas(self) -> int:
        return self.cluster_tiles * self.split_k * self.pair

    @property
    def cluster_tiles(self) -> int:
        """Return the number of tiles that a cluster computes at the same time."""
        return self.cluster_m * self.cluster_n

    @property
    def shared_bytes(self) -> int:
        """Return the shared-memory bytes of the launch: A, B, scales, strips of C, barriers, the epilogue's and the
        MMA's."""
        end = 0
        for rows, row_bytes in (
            (self.stages * self.mma_m, self.row_bytes),
            (self.stages * self.cta_n, self.row_bytes),
            (self.stages * self.mma.scale_rows(self), SCALE_ROW_BYTES),
            (self.strip_buffers * self.strip_rows, self.strip_row_bytes),
            ("clc" in self.features, ANSWER_BYTES),
        ):
            alignment = _alignment_bytes(row_bytes)
            end = round_up(round_up(end, alignment) + rows * row_bytes, alignment)
        end = round_up(end, SHARED_ALIGNMENT_BYTES) + round_up(self.barriers * MBARRIER_BYTES, SHARED_ALIGNMENT_BYTES)
        return end + self.mma.column_bytes(self) + self.mma.workspace_bytes


@cache
def _alignment_bytes(row_bytes: int) -> int:
    """Return the alignment of a tile with such rows, which starts with the swizzle pattern of eight rows."""
    swizzle = next((size for size in SWIZZLE_BYTES if row_bytes % size == 0), 0)
    return max(SHARED_ALIGNMENT_BYTES, 8 * swizzle)


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def round_up(value: int, step: int) -> int:
    return -(-value // step) * step
