"""The instructions that multiply, one spec for each; `tile_config` puts a schedule, its spec, a problem and a GPU
together.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.problem.form import Form
from blackwell_matmul.problem.problem import DTYPES, Problem, Schedule
from blackwell_matmul.schedules.tile_config import (
    ALIGNMENT_BYTES,
    NEIGHBOURS,
    SPACE_COLUMNS,
    SPACE_ROW_ELEMENTS,
    WARP,
    WARPGROUP,
    MmaSpec,
    TileConfig,
    round_up,
)


class Tcgen05(MmaSpec):
    """tcgen05.mma of kind::f16 and kind::f8f6f4, as tilus 0.2.0 emits it (PTX ISA, "tcgen05 Matrix Shapes"), into
    tensor memory: 128 rows of a CTA, with cta_group::2 of each of two.

    fma_per_cycle: from the dense peak and the clock of the data sheet of a B200. workspace_bytes: tcgen05.alloc leaves
    the address of the tensor memory in shared memory.
    """

    name, instruction, gpu_feature = "tcgen05", "tcgen05.mma", "tcgen05"
    rows = 128
    shape = f"tcgen05.mma with M = {rows} or {2 * rows}"
    step_n = 16
    dtypes = tuple(DTYPES)
    one_swizzle = True
    workspace_bytes = 4
    fma_per_cycle = 4096
    few_columns = (16, 32, 64)
    """block_n, in the space, of a kernel that has few rows of A in the columns of tensor memory."""

    def wrong_rows(self, tile: TileConfig) -> str | None:
        rows = self.rows * tile.pair
        if tile.block_m == rows:
            return None
        whose = " of each CTA" if tile.pair > 1 else ""
        why = f"tcgen05.mma computes {rows} rows, one in each lane{whose} that the four warps read"
        return f"block_m = {tile.block_m}: {why}."

    def in_space(self, row: Mapping[str, int], features: Sequence[str]) -> bool:
        rows = self.rows * (2 if "pairs" in features else 1)
        most = SPACE_ROW_ELEMENTS * (2 if "tma" in features else 1)
        fits = row.get("block_m", rows) == rows and row.get("block_k", 0) <= most
        if "gathered" in features:
            return row["swap_ab"] == 1 and row["block_n"] in self.few_columns and row["block_k"] == SPACE_ROW_ELEMENTS
        return row.get("block_n", SPACE_COLUMNS[0]) in SPACE_COLUMNS and fits

    def registers(self, tile: TileConfig) -> int:
        return 0

    def threads(self, tile: TileConfig) -> int:
        """Four warps read tensor memory. Where a CTA computes tile after tile, three more load, multiply and ask."""
        return WARPGROUP + 3 * WARP if "clc" in tile.features else WARPGROUP

    def tensor_memory_columns(self, tile: TileConfig) -> int:
        return tensor_memory_columns(tile.block_n * (2 if "clc" in tile.features else 1))

    def barriers(self, tile: TileConfig) -> int:
        """One that the accumulator is complete; or two for each of two accumulators, and two for the answers."""
        return 6 if "clc" in tile.features else 1

    def multiplied_columns(self, tile: TileConfig) -> float:
        """Narrow tiles are bound by shared memory, 128 bytes a cycle (SemiAnalysis, microbench-blackwell, B200: for 16
        of K, N / 2 cycles or a cycle for 128 bytes of A and B, whichever is more)."""
        return tile.block_n * max(1.0, (self.rows + tile.cta_n) / (2 * tile.block_n))


def tensor_memory_columns(block_n: int) -> int:
    """What tcgen05.alloc takes for an accumulator of fp32: a power of two, 32 at least (PTX ISA, "tcgen05.alloc")."""
    return max(32, 1 << (block_n - 1).bit_length())


SUM_K, SUM_K_FP32 = 512, 128
"""Products of 8-bit numbers that wgmma adds up at a time, for a C of 16 bits and one of fp32: the error is up to 1.18
times that of torch._scaled_mm then, and the same (h100_fast_accum.json, h200_drawn.json)."""

NARROW = 80
"""Columns of a tile of C up to which a k-tile of two boxes pays (`space.preference`)."""


class Wgmma(MmaSpec):
    """wgmma of 16-bit types (PTX ISA, "Asynchronous wgmma" shapes: m64, n a multiple of 8, k16), into registers.

    fma_per_cycle: from the dense peak and the clock of the data sheet of an H200.
    """

    name = instruction = shape = gpu_feature = "wgmma"
    rows = 64
    step_n = 8
    fma_per_cycle = 2048
    plain_strips = True
    least_rows = rows
    few_rows = (16, 32)
    """What a tile can have instead where the kernel multiplies zeros besides."""
    columns = (16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256)
    """block_n, in the space, where C is computed as it is; of C transposed any multiple of 8 from 64 on."""

    columns_of_three = 192
    """The most of block_n, in the space, where three warpgroups multiply (`rules.FEW_REGISTERS`)."""

    @staticmethod
    def in_flight(block_n: int, consumers: int) -> int:
        """K-tiles whose products a warpgroup leaves to the tensor cores while it goes on: 0 or 1.

        Of two warpgroups one multiplies while the other waits, and what both leave would delay both. But not where a
        product is too short for that, or of a width that takes a pause: there, on an H200, a call takes 1 to 21 % less
        with one in flight, and with the others up to 7 % more; with 176 columns 2.7 % less on an H100 (ten problems),
        and with 136 2 % (three).
        """
        return int(consumers == 1 or block_n < 128 or block_n in (136, 144, 176))

    @staticmethod
    def sum_tiles(element_bytes: int, block_k: int, form: Form) -> int:
        """K-tiles whose products wgmma adds up, before they are added to the others in fp32; 0: all.

        Of 16 bits its sums are fp32's. Of 8 bits it keeps some 13 bits of each addend, beside the largest: with all
        2048 to 18944 products in one sum the error was 1.8 to 4.1 times that of torch._scaled_mm
        (h100_fast_accum.json).
        """
        if element_bytes > 1 or form.fast_accum:
            return 0
        return max(1, (SUM_K_FP32 if form.out == "fp32" else SUM_K) // block_k)

    def wrong_rows(self, tile: TileConfig) -> str | None:
        rows = self.rows * tile.consumers
        if tile.block_m in self.few_rows and tile.consumers == 1 and "split_k" in tile.features:
            return None
        if "specialised" in tile.features and tile.block_m != rows:
            return (
                f"block_m = {tile.block_m}: consumers = {tile.consumers} compute {self.rows} rows each, {rows} in all."
            )
        if tile.block_m % rows:
            fit = round_up(tile.block_m, rows)
            return f"block_m = {tile.block_m}: wgmma computes {self.rows} rows at a time; {fit} fit."
        return None

    def in_space(self, row: Mapping[str, int], features: Sequence[str]) -> bool:
        """With warps that only multiply any width is worth a try: 3584 columns are 32 tiles of 112, which fill an H200
        with four rows of them. Few rows, and few columns, are for CTAs that are alone."""
        if "consumers" not in row:
            return super().in_space(row, features)
        rows, most = self.rows * row["consumers"], SPACE_ROW_ELEMENTS * (2 if "boxes" in features else 1)
        whole = row.get("block_m", rows) == rows
        if row["consumers"] > 2 and ("rectangles" not in features or not self._is_for_three(row)):
            return False
        if row.get("swap_ab"):
            most = most if row["block_n"] <= NARROW and row["consumers"] == 1 else SPACE_ROW_ELEMENTS
            return whole and row["block_n"] >= SPACE_COLUMNS[0] and SPACE_ROW_ELEMENTS <= row["block_k"] <= most
        if row.get("block_n", SPACE_COLUMNS[0]) not in self.columns:
            return False
        if whole and row.get("block_n", SPACE_COLUMNS[0]) >= SPACE_COLUMNS[0]:
            return row.get("block_k", 0) <= most
        alone = row["consumers"] == row.get("cluster_m", 1) == 1 and "split_k" in features
        few = whole or row.get("block_m") in self.few_rows
        return alone and few and SPACE_ROW_ELEMENTS <= row.get("block_k", 0) <= most

    def _is_for_three(self, row: Mapping[str, int]) -> bool:
        """Whether three warpgroups multiply it: they have registers for so many columns."""
        whole = row["block_k"] == SPACE_ROW_ELEMENTS
        return whole and SPACE_COLUMNS[0] <= row.get("block_n", 0) <= self.columns_of_three

    def registers(self, tile: TileConfig) -> int:
        """Of the sums; of 8 bits there are those of a few k-tiles besides."""
        sums = 2 if self.sum_tiles(tile.problem.element_bytes, tile.block_k, tile.problem.form) else 1
        return sums * tile.mma_m * tile.block_n // (WARPGROUP * tile.consumers)

    def rows_read(self, tile: TileConfig) -> int:
        """Each warpgroup reads its rows of A and all of B, once for each k-tile."""
        return tile.mma_m + tile.consumers * tile.block_n

    def column_bytes(self, tile: TileConfig) -> int:
        """Of each warpgroup a bias and a scale."""
        epilogue = tile.problem.form.epilogue
        elements = epilogue.bias * tile.problem.c_bytes, 4 * (epilogue.scale == "rowwise")
        return tile.consumers * sum(round_up(tile.block_n * each, ALIGNMENT_BYTES) for each in elements)

    def products_in_flight(self, tile: TileConfig) -> int:
        return self.in_flight(tile.block_n, tile.consumers) if "split_k" in tile.features else 0


class MmaSync(MmaSpec):
    """mma.sync of 16-bit types, m16n8k16 (PTX ISA, "Matrix Fragments for mma.m16n8k16"), from registers into registers.
    Of eight warps four share the rows of a tile and two its columns.

    fma_per_cycle: a GeForce's mma.sync with fp32 sums has an eighth of a B200's (RTX 5090: 209.5 TFLOPS, 170 SMs,
    2.41 GHz).
    """

    name = instruction = shape = "mma.sync"
    rows = 64
    warps_m, warps_n = 4, 2
    step_n = 8
    gpu_feature = "tma"
    fma_per_cycle = 512

    def wrong_rows(self, tile: TileConfig) -> str | None:
        if tile.block_m % self.rows == 0:
            return None
        fit = round_up(tile.block_m, self.rows)
        return f"block_m = {tile.block_m}: mma.sync of four warps computes {self.rows} rows; {fit} fit."

    def registers(self, tile: TileConfig) -> int:
        operands = (tile.block_m // self.warps_m + tile.block_n // self.warps_n) * tile.row_bytes // (4 * WARP)
        return tile.block_m * tile.block_n // self.threads(tile) + operands

    def threads(self, tile: TileConfig) -> int:
        return self.warps_m * self.warps_n * WARP


MMA_SPECS: Mapping[str, MmaSpec] = MappingProxyType({each.name: each for each in (Tcgen05(), Wgmma(), MmaSync())})
"""By the name that a rung has for it."""


def tile_config(schedule: Schedule, problem: Problem, gpu: Gpu) -> TileConfig:
    """InputError for a schedule without a tile."""
    block_m, block_n, block_k = schedule.block_m, schedule.block_n, schedule.block_k
    if block_m is None or block_n is None or block_k is None:
        raise InputError(f"schedule {schedule} is incomplete; it needs block_m, block_n and block_k.")
    return TileConfig(
        block_m=block_m,
        block_n=block_n,
        block_k=block_k,
        e_block_n=schedule.e_block_n or block_n,
        stages=schedule.stages or 1,
        consumers=schedule.consumers or 1,
        group_m=schedule.group_m or 1,
        cluster_m=schedule.cluster_m or 1,
        cluster_n=schedule.cluster_n or 1,
        split_k=schedule.split_k or 1,
        neighbours=schedule.neighbours or NEIGHBOURS,
        swap_ab=bool(schedule.swap_ab),
        features=schedule.kernel_features,
        mma=MMA_SPECS[schedule.mma],
        problem=problem.swapped if schedule.swap_ab else problem,
        gpu=gpu,
    )
