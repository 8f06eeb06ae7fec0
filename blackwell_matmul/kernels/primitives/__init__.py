"""Small kernels with TMA, one in each file: a copy of 1 to 5 dimensions, a vector add, a GEMM tile.

They need only TMA and mma.sync, and run on Hopper, on every Blackwell GPU, and in the simulator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blackwell_matmul.base.first_use import on_first_use

if TYPE_CHECKING:  # a call of a class returns a Kernel, whose arguments are only the knobs
    GemmTile: Any
    TmaCopy: Any
    VectorAdd: Any

__all__ = ["GemmTile", "TmaCopy", "VectorAdd"]

__getattr__ = on_first_use(
    __name__, {"gemm_tile": ("GemmTile",), "tma_copy": ("TmaCopy",), "vector_add": ("VectorAdd",)}
)
