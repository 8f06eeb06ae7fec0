"""Values of block-scaled products: fp4 in bytes, scales in tensor memory, and the product of blocks.

An atom holds the scales of 128 rows and 4 blocks of K in 512 bytes: row r % 32, then r // 32, then the block. In tensor
memory the row r % 32 is a lane, of each of the four quarters of 32 lanes (PTX ISA, "Block Scaling").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from blackwell_matmul.simulator.findings import Code

ATOM_ROWS, ATOM_COLUMNS, COLUMN_ROWS = 128, 4, 32
"""Rows of an atom, its columns of tensor memory, and the rows with scales in one of them."""

QUARTERS = 4
"""Quarters of the 128 lanes, each with all scales."""

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

    def raw(self, rows: int, blocks: int, quarter: int = 0) -> np.ndarray:
        """Return the bytes of rows x blocks of K as a quarter of the lanes has them."""
        lanes = self.cells.view(np.uint8).reshape(QUARTERS, COLUMN_ROWS, -1, self.tiles, 4, 4)[quarter]
        by_row = lanes.transpose(2, 3, 0, 1, 4).reshape(self.tiles * ATOM_ROWS, -1)
        return np.ascontiguousarray(by_row[self.first : self.first + rows, :blocks])

    def of(self, rows: int, blocks: int) -> np.ndarray:
        """Return the scales in float64, rows x blocks of K."""
        type = ml_dtypes.float8_e8m0fnu if self.cells.dtype == np.uint8 else self.cells.dtype
        return self.raw(rows, blocks).view(type).astype(np.float64)

    def unlike(self, rows: int, blocks: int) -> str:
        """Say where a quarter of the lanes differs from the first one; "" where all are alike."""
        first, *others = (self.raw(rows, blocks, quarter) for quarter in range(QUARTERS))
        for number, quarter in enumerate(others, 1):
            if (apart := first != quarter).any():
                row, block = (int(each[0]) for each in apart.nonzero())
                lane = (self.first + row) % COLUMN_ROWS
                values = f"{first[row, block]:#04x} in lane {lane}, {quarter[row, block]:#04x} in lane "
                return f"row {row}, block {block}: {values}{lane + number * COLUMN_ROWS}"
        return ""


def in_tensor_memory(atoms: np.ndarray) -> np.ndarray:
    """Return the bytes of 128 lanes, of atoms in shared memory: [along rows][along K][2][256] of a type of a byte."""
    tiles, along_k = atoms.shape[:2]
    rows = atoms.reshape(tiles, along_k, COLUMN_ROWS, 16).transpose(2, 1, 0, 3).reshape(COLUMN_ROWS, -1)
    return np.tile(rows, (QUARTERS, 1))


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


# faults of the values


def faults(a: np.ndarray, b: np.ndarray, scale_a: Scales, scale_b: Scales, block: int) -> Iterator[tuple[Code, str]]:
    """Yield code and sentence of what is wrong with the scales of a product; operands as for `products`."""
    empty = _blocks_of_zeros(a, block) & _blocks_of_zeros(b, block)
    for name, values, scales in (("scale_a", a, scale_a), ("scale_b", b, scale_b)):
        rows, blocks = len(values), len(empty)
        if apart := scales.unlike(rows, blocks):
            yield "scales-not-duplicated", f"{name} differs between the quarters of 32 lanes ({apart}); {_COPIED}"
        padding = np.isnan(scales.of(rows, blocks)) & empty & values.any(axis=1, keepdims=True)
        if padding.any():
            hit, where = padding.any(axis=1).sum(), ", ".join(map(str, padding.any(axis=0).nonzero()[0]))
            yield "scale-of-padding", f"{name} has NaN in {hit} rows of block {where} along k of this tile, {_BEYOND}"


_COPIED = "the tensor core reads all four, and tcgen05.copy_scales writes all four"
_BEYOND = (
    "where A and B are zero, as TMA fills what lies outside of them: NaN times zero is NaN in the whole row; scales of "
    "padding are 0"
)


def _blocks_of_zeros(values: np.ndarray, block: int) -> np.ndarray:
    """Return for each block along K whether no row has a number other than zero there."""
    return ~values.any(axis=0).reshape(-1, block).any(axis=1)
