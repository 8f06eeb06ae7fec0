"""Values of block-scaled products: fp4 in bytes, scales in tensor memory, and the product of blocks.

An atom holds the scales of 128 rows and 4 blocks of K in 512 bytes: row r % 32, then r // 32, then the block. In tensor
memory the row r % 32 is a lane, of each of the four quarters of 32 lanes (PTX ISA, "Block Scaling").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import ml_dtypes
import numpy as np

ATOM_ROWS, ATOM_COLUMNS, COLUMN_ROWS = 128, 4, 32
"""Rows of an atom, its columns of tensor memory, and the rows with scales in one of them."""

FP4_PAIRS = "float4_e2m1x2"
"""The name of the type with two e2m1 in a byte."""

_PAIRS = np.stack([np.arange(256) & 15, np.arange(256) >> 4], axis=1).astype(np.uint8)
_FP4 = _PAIRS.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
"""The two values in each byte, the low four bits first."""


@dataclass(frozen=True)
class Scales:
    """Scales of an operand: of rows from `first` on. cells: 128 lanes, their atoms [along K][along rows]; of e4m3, or
    bytes of e8m0. tiles: atoms along the rows."""

    cells: np.ndarray
    tiles: int
    first: int = 0

    def of(self, rows: int, blocks: int) -> np.ndarray:
        """Return the scales in float64, rows x blocks of K."""
        lanes = self.cells[:COLUMN_ROWS].reshape(COLUMN_ROWS, -1, self.tiles, 4, 4)
        by_row = lanes.transpose(2, 3, 0, 1, 4).reshape(self.tiles * ATOM_ROWS, -1)
        found = np.ascontiguousarray(by_row[self.first : self.first + rows, :blocks])
        return (found.view(ml_dtypes.float8_e8m0fnu) if found.dtype == np.uint8 else found).astype(np.float64)


def in_tensor_memory(atoms: np.ndarray) -> np.ndarray:
    """Return the bytes of 128 lanes, of atoms in shared memory: [along rows][along K][2][256] of a type of a byte."""
    tiles, along_k = atoms.shape[:2]
    rows = atoms.reshape(tiles, along_k, COLUMN_ROWS, 16).transpose(2, 1, 0, 3).reshape(COLUMN_ROWS, -1)
    return np.tile(rows, (4, 1))


def elements(values: np.ndarray, name: str) -> np.ndarray:
    """Return rows of A or B in float64; name: of their type."""
    wide = _FP4[values].reshape(len(values), -1) if name == FP4_PAIRS else values
    return wide.astype(np.float64)


def products(
    a: np.ndarray, b: np.ndarray, scale_a: Scales, scale_b: Scales, block: int, step: int
) -> Iterator[np.ndarray]:
    """Yield the part of each tcgen05.mma in float64, before D is added and the sum rounded once: A [m, k] and B [n, k]
    of `elements`.

    block: elements of K with one scale. step: elements of K of an instruction. The tensor core's own rounding is not
    documented; MMA-Sim (arXiv 2511.10909) finds D among the terms, 25 fractional bits for 8-bit operands and 35 for
    fp4.
    """
    a, b = _scaled(a, scale_a, block), _scaled(b, scale_b, block)
    for start in range(0, a.shape[1], step):
        yield a[:, start : start + step] @ b[:, start : start + step].T


def _scaled(values: np.ndarray, scales: Scales, block: int) -> np.ndarray:
    rows, k = values.shape
    return values * np.repeat(scales.of(rows, k // block), block, axis=1)
