"""TMA in its smallest form, one kernel a file: a copy of 1 to 5 dimensions, a vector add, a GEMM tile.

They need TMA and mma.sync, and nothing newer: they run on Hopper and on every Blackwell GPU, and in the simulator.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:  # calling a class makes a Kernel, which takes the knobs alone
    GemmTile: Any
    TmaCopy: Any
    VectorAdd: Any

_HOMES = {"GemmTile": "gemm_tile", "TmaCopy": "tma_copy", "VectorAdd": "vector_add"}

__all__ = ["GemmTile", "TmaCopy", "VectorAdd"]


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(f"{__name__}.{_HOMES[name]}"), name)
