"""Subnormals that are flushed to zero, and the NaN that the hardware gives (PTX ISA, "Floating Point Instructions")."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

from blackwell_matmul.emulator.lanes import Array

PACKED: dict[str, Any] = {"f16x2": np.float16, "bf16x2": ml_dtypes.bfloat16, "f32x2": np.float32}
"""Element of each packed type of floats."""

NANS: dict[Any, Any] = {
    np.dtype(np.float16): np.uint16(0x7FFF).view(np.float16),
    np.dtype(ml_dtypes.bfloat16): np.uint16(0x7FFF).view(ml_dtypes.bfloat16),
    np.dtype(np.float32): np.uint32(0x7FFFFFFF).view(np.float32),
}
"""NaN result of arithmetic for each type; float64 returns the operand's NaN instead."""


@functools.cache
def tiny(kind: Any) -> Any:
    """Return the smallest normal number."""
    return kind.type(ml_dtypes.finfo(kind).tiny)


def flushed(value: Array) -> Array:
    """Flush subnormals to zero with their sign (.ftz)."""
    return np.where(np.abs(value) < tiny(value.dtype), np.copysign(value.dtype.type(0), value), value)


def canonical(value: Array) -> Array:
    """Return the result with each NaN replaced by the hardware's."""
    nan = NANS.get(value.dtype)
    if nan is None:
        return value
    missing = np.isnan(value)
    return np.where(missing, nan, value) if missing.any() else value
