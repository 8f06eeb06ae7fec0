"""Flushing to zero (.ftz): subnormals of single precision, in operands and results (PTX ISA, "Floating Point")."""

from __future__ import annotations

import numpy as np

from blackwell_matmul.emulator.lanes import Array


def flushed(value: Array) -> Array:
    """Subnormals are zero, with their sign (.ftz)."""
    tiny = np.finfo(np.float32).tiny if value.dtype == np.float32 else None
    if tiny is None:
        return value
    return np.where(np.abs(value) < tiny, np.copysign(np.float32(0), value), value)
