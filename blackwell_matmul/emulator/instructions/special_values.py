"""Subnormals, which .ftz flushes to zero, and the hardware's NaN (PTX ISA, "Floating Point Instructions")."""

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
"""NaN result of arithmetic, by type. float64 returns the operand's NaN instead."""


@functools.cache
def tiny(kind: Any) -> Any:
    """Return the smallest normal number of a float type."""
    return kind.type(ml_dtypes.finfo(kind).tiny)


def flushed(value: Array) -> Array:
    """Return values with subnormals flushed to zeros of the same sign (.ftz)."""
    return np.where(np.abs(value) < tiny(value.dtype), np.copysign(value.dtype.type(0), value), value)


def canonical(value: Array) -> Array:
    """Return values with each NaN replaced by the hardware's NaN."""
    nan = NANS.get(value.dtype)
    if nan is None:
        return value
    missing = np.isnan(value)
    return np.where(missing, nan, value) if missing.any() else value
