"""Specs of MMA instructions. `tile_config` joins a schedule, its spec, a problem and a GPU."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from types import MappingProxyType

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.hardware.gpus import NEIGHBOURS, Gpu
from blackwell_matmul.problem.block_scaled import ATOM_BYTES, BLOCK_SCALED
from blackwell_matmul.problem.form import BLOCK_SCALES, SCALED_K, Form
from blackwell_matmul.problem.problem import DTYPES, Problem, Schedule
from blackwell_matmul.scheduling.tile_config import (
    LAST_ROWS,
    MMA_K_BYTES,
    SCALE_ROW_BYTES,
    SHARED_ALIGNMENT_BYTES,
    SPACE_COLUMNS,
    SPACE_ROW_ELEMENTS,
    WARP,
    WARPGROUP,
    MmaSpec,
    TileConfig,
    ceil_div,
    round_up,
)


class Tcgen05(MmaSpec):
    """tcgen05.mma of kind::f16 and kind::f8f6f4 into tensor memory, as tilus 0.2.0 emits it (PTX ISA, "tcgen05 Matrix
    Shapes"). A CTA computes 128 rows, with cta_group::1 or, in each CTA of a pair, cta_group::2.

    fma_per_cycle: from the dense peak and the clock of a B200's data sheet. workspace_bytes: tcgen05.alloc writes the
    address of the tensor memory to shared memory.
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
    """Values of block_n in the space of a kernel that puts few rows of A into the columns of tensor memory."""

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
        """Count four warps that read tensor memory; with CLC three more load, multiply and query."""
        return WARPGROUP + 3 * WARP if "clc" in tile.features else WARPGROUP

    def tensor_memory_columns(self, tile: TileConfig) -> int:
        return tensor_memory_columns(tile.block_n * (2 if "clc" in tile.features else 1))

    def barriers(self, tile: TileConfig) -> int:
        """Return one mbarrier for the accumulator; with CLC, two for each of two accumulators and two for the
        responses."""
        return 6 if "clc" in tile.features else 1

    def multiplied_columns(self, tile: TileConfig) -> float:
        """Return the columns that a tile's MMAs count for. A narrow tile counts as wider, because shared memory bounds
        it.

        16 of K take N / 2 cycles, or a cycle for each 128 bytes of A and B if that is more (SemiAnalysis,
        microbench-blackwell, B200).
        """
        return tile.block_n * max(1.0, (self.rows + tile.cta_n) / (2 * tile.block_n))


def tensor_memory_columns(block_n: int) -> int:
    """Return the columns of an fp32 accumulator: a power of two, at least 32 (PTX ISA, "tcgen05.alloc")."""
    return max(32, 1 << (block_n - 1).bit_length())


class BlockScaledMma(MmaSpec):
    """Common part of tcgen05.mma and mma.sync with a scale for each block. columns: values of block_n in the space."""

    rows = 128
    dtypes = tuple(BLOCK_SCALED)
    columns: Sequence[int] = SPACE_COLUMNS

    def in_space(self, row: Mapping[str, int], features: Sequence[str]) -> bool:
        rows = self.rows * (2 if "pairs" in features else 1)
        fits = row.get("block_m", rows) == rows and row.get("block_k", SPACE_ROW_ELEMENTS) >= SPACE_ROW_ELEMENTS
        return row.get("block_n", self.columns[0]) in self.columns and fits

    def scale_rows(self, tile: TileConfig) -> int:
        return sum(_scale_atoms(tile)) * ATOM_BYTES // SCALE_ROW_BYTES


class ScaledTcgen05(BlockScaledMma, Tcgen05):
    """tcgen05.mma with a scale for each block (PTX ISA, "tcgen05 Block Scaling"), as the room `lang` emits it.

    step_n: rows of scales in a column of tensor memory; scales of a tile of B begin at a multiple of it.
    """

    instruction = "tcgen05.mma.block_scale"
    shape = f"{instruction}, which reads scales of B from a column of 32 rows on,"
    step_n = 32
    accumulates = "the fp32 accumulator and the scales take"
    fewer_columns = "make block_n, block_k or stages smaller"

    def tensor_memory_columns(self, tile: TileConfig) -> int:
        """Return the columns of accumulator and scales.

        They are three allocations; with a ring one allocation, with scales of two k-tiles. CLC adds a second
        accumulator, which may overlap with the first.
        """
        scales = [ATOM_COLUMNS * atoms for atoms in _scale_atoms(tile)]
        if "ring" not in tile.features:
            return sum(map(tensor_memory_columns, (tile.block_n, *scales)))
        second = tile.block_n - min(tile.block_n, self.overlap(tile.block_n, 2 * sum(scales)))
        return tensor_memory_columns(tile.block_n + second * ("clc" in tile.features) + 2 * sum(scales))

    @staticmethod
    def overlap(block_n: int, others: int) -> int:
        """Return the columns that two accumulators share, if tensor memory has no room for both and for `others`."""
        return max(0, 2 * block_n + others - TENSOR_MEMORY_COLUMNS)

    def stored_before(self, tile: TileConfig) -> float:
        """Return the part that two accumulators share."""
        return self.overlap(tile.block_n, 2 * ATOM_COLUMNS * sum(_scale_atoms(tile))) / tile.block_n

    def barriers(self, tile: TileConfig) -> int:
        """Return the mbarriers; overlapping accumulators need one pair instead of two."""
        overlaps = "clc" in tile.features and self.stored_before(tile) > 0
        return super().barriers(tile) - (2 if overlaps else 0)

    def multiplied_columns(self, tile: TileConfig) -> float:
        """Count the copies of scales as well, of 128 bytes a cycle, a derived figure, because none is published."""
        copied_cycles = sum(_scale_atoms(tile)) * ATOM_BYTES / COPIED_BYTES
        products_cycles = tile.row_bytes / (2 * MMA_K_BYTES)  # of one column
        return super().multiplied_columns(tile) + copied_cycles / products_cycles


TENSOR_MEMORY_COLUMNS = 512
"""Columns of an SM's tensor memory (PTX ISA, "Tensor Memory")."""

ATOM_COLUMNS = 4
"""Columns of tensor memory with the scales of an atom (PTX ISA, "tcgen05.cp", .32x128b)."""

COPIED_BYTES = 128
"""Bytes that tcgen05.cp reads in a cycle, the bandwidth of shared memory."""

SUM_K, SUM_K_FP32 = 512, 128
"""Products of 8-bit numbers that wgmma sums before they are added in fp32, for a C of 16 bits and of fp32. The error
then is at most 1.18 times that of torch._scaled_mm, and equal (h100_fast_accum.json, h200_drawn.json)."""

SCALES_OF_A_LINE = 32
"""Scales of a block of 128 rows that a k-tile brings: 128 bytes, the alignment of TMA in shared memory. One is used."""

LANES_OF_A_ROW = 4
"""Threads that hold the columns of one row of sums ("Register Fragments" of wgmma.mma_async: D)."""

NARROW = 80
"""Most columns of a tile of C for which a k-tile of two boxes pays (`space.preference`)."""


class Wgmma(MmaSpec):
    """wgmma into registers (PTX ISA, "Asynchronous wgmma" shapes: m64, n a multiple of 8, 32 bytes of k).

    fma_per_cycle: from the dense peak and the clock of an H200's data sheet.
    """

    name = instruction = shape = gpu_feature = "wgmma"
    rows = 64
    step_n = 8
    fma_per_cycle = 2048
    plain_strips = True
    least_rows = rows
    few_rows = (16, 32)
    """Values of block_m of a tile with fewer rows than wgmma; the kernel pads them with zeros."""
    columns = (16, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 224, 256)
    """Values of block_n in the space without swap_ab; with swap_ab any multiple of 8 from 64 on."""

    columns_of_three, columns_of_bytes = 192, (96, 128)
    """Largest block_n for three warpgroups, and the values in the space with a block_k of 128, for 8 bits and two sums.
    ptxas compiles a wgmma with the registers that threads start with: 192 columns compile, 208 do not (C7602)."""

    columns_of_two_sums = 128
    """Largest block_n for two sums in turn, and the sum of both; ptxas takes 203 registers of a thread."""

    registers_of_three, loading_registers = 160, 32
    """Registers of a thread in each of three warpgroups, and in the one with the loading warp: 65,536 of a CTA."""

    @staticmethod
    def in_flight(block_n: int, consumers: int) -> int:
        """Return the number of k-tiles whose MMAs a warpgroup leaves in flight when it continues: 0 or 1.

        Of two warpgroups, one multiplies while the other waits, so MMAs in flight of both would delay both. A k-tile
        in flight pays for a single warpgroup, for short MMAs, and for a few widths that stall (measured on an H200 and
        an H100).
        """
        return int(consumers == 1 or block_n < 128 or block_n in (136, 144, 176))

    @staticmethod
    def sum_tiles(element_bytes: int, block_k: int, form: Form) -> int:
        """Return the k-tiles that wgmma sums before their sum is added to the others in fp32; 0: all.

        wgmma sums products of 16 bits in fp32. Of 8 bits it keeps some 13 bits of each addend relative to the largest,
        which loses precision over a long K (h100_fast_accum.json).
        """
        if form.epilogue.scale in BLOCK_SCALES:
            return max(1, SCALED_K // block_k)
        if element_bytes > 1 or form.fast_accum:
            return 0
        return max(1, (SUM_K_FP32 if form.out == "fp32" else SUM_K) // block_k)

    @staticmethod
    def two_sums(form: Form, consumers: int, block_n: int) -> bool:
        """Return True if a warpgroup multiplies into one sum while it adds another: a single one, which has registers
        for three sums of so few columns, and no scales of blocks."""
        return consumers == 1 and block_n <= Wgmma.columns_of_two_sums and form.epilogue.scale not in BLOCK_SCALES

    def wrong_columns(self, tile: TileConfig) -> str | None:
        if tile.consumers > 2 and tile.block_n > self.columns_of_three:
            most = self.columns_of_three
            return f"block_n = {tile.block_n}: ptxas has registers for {most} columns of three warpgroups; {most} fits."
        return super().wrong_columns(tile)

    def wrong_rows(self, tile: TileConfig) -> str | None:
        rows = self.rows * tile.consumers
        if tile.block_m in self.few_rows and tile.consumers == 1 and "any_size" in tile.features:
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
        """Return True if the search space has this tile. Specialised warps may have tiles of any width, single CTAs
        only small tiles."""
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
        alone = row["consumers"] == row.get("cluster_m", 1) == 1 and "any_size" in features
        few = whole or row.get("block_m") in self.few_rows
        return alone and few and SPACE_ROW_ELEMENTS <= row.get("block_k", 0) <= most

    def _is_for_three(self, row: Mapping[str, int]) -> bool:
        """Return True if three warpgroups have the registers for this width."""
        block_n, block_k = row.get("block_n", 0), row["block_k"]
        if block_k == 2 * SPACE_ROW_ELEMENTS:
            return block_n in self.columns_of_bytes
        return block_k == SPACE_ROW_ELEMENTS and SPACE_COLUMNS[0] <= block_n <= self.columns_of_three

    @staticmethod
    def gives_registers(consumers: int) -> bool:
        """Return True if the loading warp has a warpgroup, which gives registers to those that multiply."""
        return consumers > 2

    def threads(self, tile: TileConfig) -> int:
        whole = self.gives_registers(tile.consumers)
        return WARPGROUP * (tile.consumers + 1) if whole else super().threads(tile)

    def registers_per_thread(self, tile: TileConfig) -> int:
        more = self.gives_registers(tile.consumers)
        return self.registers_of_three if more else super().registers_per_thread(tile)

    def registers(self, tile: TileConfig) -> int:
        """Count registers of the sums, per thread. 8-bit products also hold the sums of a few k-tiles, and scales of
        columns."""
        form = tile.problem.form
        sums = 1
        if self.sum_tiles(tile.problem.element_bytes, tile.block_k, form):
            sums = 3 if self.two_sums(form, tile.consumers, tile.block_n) else 2
        of_each_column = self.of_blocks(form, tile.swap_ab)[1:] == (False,)
        scales = tile.block_n // LANES_OF_A_ROW if of_each_column else 0
        return sums * tile.mma_m * tile.block_n // (WARPGROUP * tile.consumers) + scales

    def rows_read(self, tile: TileConfig) -> int:
        """Return the rows read from shared memory for each k-tile: each warpgroup's rows of A and all of B."""
        return tile.mma_m + tile.consumers * tile.block_n

    def column_bytes(self, tile: TileConfig) -> int:
        """Return the bytes of a bias and of row-wise scales, for each warpgroup, and of scales of blocks."""
        epilogue = tile.problem.form.epilogue
        elements = epilogue.bias * tile.problem.c_bytes, 4 * (epilogue.scale == "rowwise")
        columns = tile.consumers * sum(round_up(tile.block_n * each, SHARED_ALIGNMENT_BYTES) for each in elements)
        of_blocks = self.of_blocks(tile.problem.form, tile.swap_ab)
        staged = map(self.scale_bytes, of_blocks, (tile.mma_m, tile.block_n))
        return columns + tile.stages * sum(round_up(each, SHARED_ALIGNMENT_BYTES) for each in staged)

    @staticmethod
    def scale_bytes(of_blocks: bool, rows: int) -> int:
        """Return the bytes of one operand's scales in a stage, for a tile that may begin within 128 rows.

        of_blocks: 128 rows share a scale, and TMA loads a line of `SCALES_OF_A_LINE` scales.
        """
        return 4 * (SCALES_OF_A_LINE * (ceil_div(rows - 1, SCALED_K) + 1) if of_blocks else rows)

    @staticmethod
    def of_blocks(form: Form, swap_ab: bool) -> tuple[bool, ...]:
        """Return whether 128 rows of the sums, and 128 columns, share a scale; empty without such scales."""
        return tuple(rows > 1 for rows in BLOCK_SCALES.get(form.epilogue.scale, ()))[:: -1 if swap_ab else 1]

    @staticmethod
    def scaled_columns(form: Form, block_n: int, e_block_n: int, swap_ab: bool) -> int:
        """Return the columns of a strip that has one scale; the whole tile if each column has one."""
        step = LAST_ROWS if swap_ab else e_block_n  # divisor of the first column of a tile
        return math.gcd(step, SCALED_K) if any(Wgmma.of_blocks(form, swap_ab)[1:]) else block_n

    def adds_sums(self, tile: TileConfig) -> bool:
        form = tile.problem.form
        exact = self.sum_tiles(tile.problem.element_bytes, tile.block_k, form) > 0
        return exact and form.epilogue.scale not in BLOCK_SCALES

    def has_scales_of_column_blocks(self, tile: TileConfig) -> bool:
        return any(self.of_blocks(tile.problem.form, tile.swap_ab)[1:])

    def products_in_flight(self, tile: TileConfig) -> int:
        return self.in_flight(tile.block_n, tile.consumers) if "any_size" in tile.features else 0


class MmaSync(MmaSpec):
    """mma.sync of 16-bit types, m16n8k16, from registers into registers (PTX ISA, "Matrix Fragments for mma.m16n8k16").

    Four of eight warps share the rows of a tile and two its columns. fma_per_cycle: an eighth of a B200's for fp32 sums
    on a GeForce (RTX 5090: 209.5 TFLOPS, 170 SMs, 2.41 GHz).
    """

    name = instruction = shape = "mma.sync"
    rows = 64
    warps_m, warps_n = 4, 2
    step_n = 8
    gpu_feature = "tma"
    interval = "mma_sync_interval"
    fma_per_cycle = 512

    def wrong_rows(self, tile: TileConfig) -> str | None:
        if tile.block_m % self.rows == 0:
            return None
        fit = round_up(tile.block_m, self.rows)
        return f"block_m = {tile.block_m}: {self.instruction} of four warps computes {self.rows} rows; {fit} fit."

    def registers(self, tile: TileConfig) -> int:
        operands = (tile.block_m // self.warps_m + tile.block_n // self.warps_n) * tile.row_bytes // (4 * WARP)
        return tile.block_m * tile.block_n // self.threads(tile) + operands

    def threads(self, tile: TileConfig) -> int:
        return self.warps_m * self.warps_n * WARP


class ScaledMmaSync(BlockScaledMma, MmaSync):
    """mma.sync with a scale for each block, m16n8k32 or m16n8k64 (PTX ISA, "Block Scaling for mma.sync").

    A register has the scales of 32 rows, so that a warp has 32 rows of a tile or more. columns: values of block_n whose
    scales lie in half an atom, or in whole ones.
    """

    instruction = shape = "mma.sync.block_scale"
    columns = (64, 128, 256)
    gpu_feature = "block_scale"
    interval = "mma_sync_scaled_interval"

    def wrong_columns(self, tile: TileConfig) -> str | None:
        if tile.block_n in self.columns:
            return None
        fit = ", ".join(map(str, self.columns))
        return (
            f"block_n = {tile.block_n}: {self.shape} reads scales of half an atom of 128 rows, or of atoms; {fit} fit."
        )


def _scale_atoms(tile: TileConfig) -> tuple[int, int]:
    """Return the atoms of a k-tile of A and of B in one CTA."""
    form = tile.problem.format
    return (0, 0) if form is None else form.tile_atoms(tile.cta_m, tile.block_n, tile.block_k)


MMA_SPECS: Mapping[str, MmaSpec] = MappingProxyType({each.name: each for each in (Tcgen05(), Wgmma(), MmaSync())})
"""Specs by the name that a rung's `mma` has."""

SCALED: Mapping[str, MmaSpec] = MappingProxyType({each.name: each for each in (ScaledTcgen05(), ScaledMmaSync())})
"""Specs of kernels with block scales, by MMA name."""

EVERY_SPEC = (*MMA_SPECS.values(), *SCALED.values())


def spec_of(mma: str, features: Collection[str] | None) -> MmaSpec:
    """Return the spec of kernels with this instruction and these features."""
    return (SCALED if "scaled" in (features or ()) else MMA_SPECS)[mma]


def tile_config(schedule: Schedule, problem: Problem, gpu: Gpu) -> TileConfig:
    """Return a schedule's sizes on a problem and a GPU; raise InputError if block_m, block_n or block_k is missing."""
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
        mma=spec_of(schedule.mma, schedule.kernel_features),
        problem=problem.swapped if schedule.swap_ab else problem,
        gpu=gpu,
    )
