"""Lanes of warps, 32 per warp. A mask is an integer, a bit per lane; a register is an array, a raw word per lane."""

from __future__ import annotations

import functools
from typing import Any

import ml_dtypes
import numpy as np

from blackwell_matmul.emulator.unknown import Known

Array = np.ndarray[Any, Any]

LANES = 32
ALL = (1 << LANES) - 1

WORDS: Known[int, Any] = Known({1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64, 16: np.dtype("V16")})
"""numpy type of raw words, by size in bytes."""

TYPES: Known[str, Any] = Known(
    {
        **{f"{kind}{bits}": WORDS[bits // 8] for kind in "bu" for bits in (8, 16, 32, 64)},
        "s8": np.int8,
        "s16": np.int16,
        "s32": np.int32,
        "s64": np.int64,
        "f16": np.float16,
        "bf16": ml_dtypes.bfloat16,
        "f32": np.float32,
        "f64": np.float64,
        "b128": WORDS[16],
    }
)
"""numpy type of each PTX type."""


@functools.lru_cache(maxsize=4096)
def lanes(mask: int, count: int = LANES) -> Array:
    """Return a mask as an array of booleans, read-only. count: number of lanes."""
    raw = (mask & (1 << count) - 1).to_bytes(count // 8, "little")
    return np.unpackbits(np.frombuffer(raw, np.uint8), bitorder="little").view(bool)


def words_of(mask: int, count: int) -> Array:
    """Return the mask of each warp as an array. count: number of all lanes."""
    return np.frombuffer(mask.to_bytes(count // 8, "little"), np.uint32)


@functools.lru_cache(maxsize=256)
def by_warps(mask: int, warps: int) -> tuple[tuple[int, int], ...]:
    """Return, for each warp with lanes in the mask, its index and its part of the mask."""
    words = words_of(mask, warps * LANES)
    return tuple((place, int(words[place])) for place in np.flatnonzero(words).tolist())


@functools.lru_cache(maxsize=4096)
def indices(mask: int) -> tuple[int, ...]:
    """Return the indices of the lanes in the mask."""
    return tuple(lane for lane in range(LANES) if mask >> lane & 1)


def first(mask: int) -> int:
    return (mask & -mask).bit_length() - 1


def mask_of(booleans: Array) -> int:
    return int.from_bytes(np.packbits(booleans, bitorder="little").tobytes(), "little")


def filled(value: int, nbytes: int) -> Array:
    """Return a register with the same value in each lane."""
    if nbytes == 16:
        return np.full(LANES, np.frombuffer(value.to_bytes(16, "little"), WORDS[16])[0])
    return np.full(LANES, value & ((1 << 8 * nbytes) - 1), WORDS[nbytes])
