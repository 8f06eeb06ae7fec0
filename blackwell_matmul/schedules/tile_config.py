"""`TileConfig`: a complete schedule on a problem and a GPU, and what it needs of an SM."""

from __future__ import annotations

from dataclasses import dataclass

from blackwell_matmul.errors import InputError
from blackwell_matmul.gpus import Gpu
from blackwell_matmul.problem import Problem, Schedule

WARP = 32
WARPGROUP = 128
MMA_SYNC_THREADS = 256
"""Threads; of the eight warps of mma.sync four share the rows of a tile and two its columns."""

SPARE_REGISTERS = 60
"""What a thread needs besides its part of the accumulator: addresses, the loop, a strip on its way out. Kernels that
were compiled for sm_90a took 26 to 60 (`Bundle.resources`)."""

ALIGNMENT_BYTES = 128
"""Shared memory is handed out in multiples of this, at least."""

MBARRIER_BYTES = 8
ALLOC_WORKSPACE_BYTES = 4
"""tcgen05.alloc leaves the address of the tensor memory in shared memory."""


@dataclass(frozen=True)
class TileConfig:
    """A complete schedule on a problem and a GPU, with the sizes that follow."""

    block_m: int
    block_n: int
    block_k: int
    e_block_n: int | None
    stages: int
    consumers: int | None
    group_m: int | None
    cluster_m: int
    split_k: int
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
        of_parts = (self.consumers or 0) if self.split_k > 1 else 0
        return of_tma + of_parts + (1 if self.mma == "tcgen05" else 0)

    @property
    def strips(self) -> int:
        """Of a tile of C."""
        return self.block_n // self.e_block_n if self.e_block_n else 1

    @property
    def strip_buffers(self) -> int:
        """Strips of C that are in shared memory at once, in each group of rows: two if a CTA has tiles to come."""
        return min(2, self.strips) if self.group_m else 1

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
    def threads(self) -> int:
        if self.mma == "mma.sync":
            return MMA_SYNC_THREADS
        return WARPGROUP * (self.consumers or 1) + (WARP if self.consumers else 0)

    @property
    def ctas(self) -> int:
        """Tiles of C and their parts, or, where a CTA computes many, what would be a CTA each; in whole clusters."""
        tiles_m = round_up(ceil_div(self.problem.m, self.block_m), self.cluster_m)
        return tiles_m * ceil_div(self.problem.n, self.block_n) * self.split_k

    @property
    def k_tiles(self) -> int:
        """Those of one CTA, or of the one that has most."""
        return ceil_div(ceil_div(self.problem.k, self.block_k), self.split_k)

    @property
    def cluster_ctas(self) -> int:
        return self.cluster_m * self.split_k


def dynamic_shared_bytes(schedule: Schedule, problem: Problem, gpu: Gpu) -> int:
    """What the launch asks for: A, B, the strip of C, the barriers, and the word that tcgen05.alloc writes."""
    return shared_bytes(tile_config(schedule, problem, gpu))


def shared_bytes(config: TileConfig) -> int:
    """Of a config that is there already."""
    end = 0
    for rows, row_bytes in (
        (config.stages * config.block_m, config.row_bytes),
        (config.stages * config.block_n, config.row_bytes),
        (config.strip_buffers * config.block_m, config.strip_row_bytes),
    ):
        alignment = _alignment_bytes(row_bytes)
        end = round_up(round_up(end, alignment) + rows * row_bytes, alignment)
    end = round_up(end, ALIGNMENT_BYTES) + round_up(config.barriers * MBARRIER_BYTES, ALIGNMENT_BYTES)
    return end + (ALLOC_WORKSPACE_BYTES if config.mma == "tcgen05" else 0)


SWIZZLE_BYTES = (128, 64, 32, 16)
"""How long a row can be for TMA to spread it over the banks; 16 is no swizzle (PTX ISA, "Swizzling Modes")."""


def _alignment_bytes(row_bytes: int) -> int:
    """A swizzle repeats after eight rows of its length, and a tile starts where the pattern starts."""
    swizzle = next((size for size in SWIZZLE_BYTES if row_bytes % size == 0), 0)
    return max(ALIGNMENT_BYTES, 8 * swizzle)


def tensor_memory_columns(block_n: int) -> int:
    """What tcgen05.alloc takes for an accumulator of fp32: a power of two, 32 at least (PTX ISA, "tcgen05.alloc")."""
    return max(32, 1 << (block_n - 1).bit_length())


def tile_config(schedule: Schedule, problem: Problem, gpu: Gpu) -> TileConfig:
    block_m, block_n, block_k = schedule.block_m, schedule.block_n, schedule.block_k
    if block_m is None or block_n is None or block_k is None:
        raise InputError(f"schedule {schedule} is incomplete; it needs block_m, block_n and block_k.")
    return TileConfig(
        block_m=block_m,
        block_n=block_n,
        block_k=block_k,
        e_block_n=schedule.e_block_n,
        stages=1 if schedule.stages is None else schedule.stages,
        consumers=schedule.consumers,
        group_m=schedule.group_m,
        cluster_m=1 if schedule.cluster_m is None else schedule.cluster_m,
        split_k=1 if schedule.split_k is None else schedule.split_k,
        mma=schedule.mma,
        problem=problem,
        gpu=gpu,
        ring=schedule.stages is not None,
    )


def ceil_div(a: int, b: int) -> int:
    return -(-a // b)


def round_up(value: int, step: int) -> int:
    return ceil_div(value, step) * step
