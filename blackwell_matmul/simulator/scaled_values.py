"""Values of block-scaled products: fp4 in bytes, scales in tensor memory, and the product of blocks.

An atom holds the scales of 128 rows and 4 blocks of K in 512 bytes: row r % 32, then r // 32, then the block. In tensor
memory the row r % 32 is a lane, of each of the four quarters of 32 lanes (PTX ISA, "Block Scaling").
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from blackwell_matmul.problem.block_scaled import LARGEST_E2M1
from blackwell_matmul.simulator.findings import Code

ATOM_ROWS, ATOM_COLUMNS, COLUMN_ROWS = 128, 4, 32
"""Rows of an atom, 128; its columns of tensor memory, 4; and rows with scales in a column, 32."""

LANE_QUARTERS = 4
"""Quarters of the 128 lanes, each with all scales."""

FP4_PAIRS = "float4_e2m1x2"
"""The name of the type with two e2m1 in a byte."""

_PAIRS = np.stack([np.arange(256) & 15, np.arange(256) >> 4], axis=1).astype(np.uint8)
_FP4 = _PAIRS.view(ml_dtypes.float4_e2m1fn).astype(np.float32)
"""The two values in each byte, the low four bits first."""


def packed_fp4(values: np.ndarray) -> np.ndarray:
    """Return float32 [.., n] as bytes [.., n / 2], rounded by cvt.rn.satfinite.e2m1x2; NaN becomes 6 (PTX ISA,
    "cvt")."""
    known = np.clip(np.where(np.isnan(values), LARGEST_E2M1, values), -LARGEST_E2M1, LARGEST_E2M1)
    codes = known.astype(ml_dtypes.float4_e2m1fn).view(np.uint8)
    return codes[..., 0::2] | codes[..., 1::2] << np.uint8(4)


def power_bytes(x: np.ndarray, up: bool) -> np.ndarray:
    """Return bytes of e8m0 in int32, as cvt.rp or cvt.rz.satfinite.ue8m0x2 give them of float32 that is not negative;
    NaN is 255 (PTX ISA, "cvt")."""
    bits = np.asarray(x, np.float32).view(np.int32).astype(np.int64)
    half = np.where(bits < 1 << 23, (1 << 22) - 1, (1 << 23) - 1)  # the byte 0 is the bits 1 << 22
    byte = np.minimum(bits + half * up >> 23, 254)
    return np.where(np.isnan(x), 255, byte).astype(np.int32)


@dataclass(frozen=True)
class RowScales:
    """Scales of an operand in registers. cells: rows x blocks of K, as e4m3 or as bytes of e8m0."""

    cells: np.ndarray

    def raw(self, rows: int, blocks: int) -> np.ndarray:
        """Return the bytes of rows x blocks of K."""
        return np.ascontiguousarray(self.cells[:rows, :blocks]).view(np.uint8)

    @property
    def powers(self) -> bool:
        """Return True for scales of e8m0."""
        return self.cells.dtype == np.uint8

    def of(self, rows: int, blocks: int) -> np.ndarray:
        """Return the scales in float64, rows x blocks of K."""
        type = ml_dtypes.float8_e8m0fnu if self.powers else self.cells.dtype
        return self.raw(rows, blocks).view(type).astype(np.float64)

    def unlike(self, rows: int, blocks: int) -> str:
        """Return "": registers have each scale once."""
        return ""


@dataclass(frozen=True)
class Scales(RowScales):
    """Scales of an operand in tensor memory: of rows from `first` on. cells: 128 lanes, their atoms [along K][along
    rows]. tiles: atoms along the rows."""

    tiles: int
    first: int = 0

    def raw(self, rows: int, blocks: int, quarter: int = 0) -> np.ndarray:
        """Return the bytes of rows x blocks of K as a quarter of the lanes has them."""
        lanes = self.cells.view(np.uint8).reshape(LANE_QUARTERS, COLUMN_ROWS, -1, self.tiles, 4, 4)[quarter]
        by_row = lanes.transpose(2, 3, 0, 1, 4).reshape(self.tiles * ATOM_ROWS, -1)
        return np.ascontiguousarray(by_row[self.first : self.first + rows, :blocks])

    def unlike(self, rows: int, blocks: int) -> str:
        """Return a clause on where a quarter of the lanes differs from the first quarter; "" if all are equal."""
        first, *others = (self.raw(rows, blocks, quarter) for quarter in range(LANE_QUARTERS))
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
    return np.tile(rows, (LANE_QUARTERS, 1))


@dataclass(frozen=True)
class ScaledRows:
    """Rows of A or of B, rows x K in float64, and their scales. normal: the exponent of the least normal element."""

    values: np.ndarray
    scales: RowScales
    normal: int

    @classmethod
    def of(cls, values: np.ndarray, name: str, scales: RowScales) -> ScaledRows:
        """Return the operand whose elements are values of the named type."""
        wide = _FP4[values].reshape(len(values), -1) if name == FP4_PAIRS else values
        return cls(wide.astype(np.float64), scales, LEAST_NORMAL[name])

    def part(self, start: int, size: int, block: int) -> tuple[np.ndarray, np.ndarray, ScaledRows]:
        """Return elements and scales of `size` elements of K, and the operand."""
        blocks = slice(start // block, (start + size) // block)
        return self.values[:, start : start + size], self.factors(block)[:, blocks], self

    def factors(self, block: int) -> np.ndarray:
        """Return the scales, rows x blocks."""
        rows, k = self.values.shape
        return self.scales.of(rows, k // block)


LEAST_NORMAL = {FP4_PAIRS: 0, "float8_e4m3": -6, "float8_e5m2": -14}
"""Exponent of the least normal number of a type (OCP Microscaling Formats)."""


# sums

GROUPS, BITS = {32: 1, 64: 16}, {32: 25, 64: 35}
"""Products that are added exactly, and fractional bits of the sum of these, by the elements of K of an instruction
(MMA-Sim, arXiv 2511.10909, tcgen05.mma with scales on Blackwell, and mma.sync with scales on GeForce Blackwell)."""

LEAST, NONE = -126, -9999
"""Exponents: of the least normal float32, which a sum has at least, and of zero, which no maximum takes."""

Terms = list[tuple[np.ndarray, np.ndarray]]
"""Numbers, M x N, and their exponents."""


def multiply_add(d: np.ndarray, a: ScaledRows, b: ScaledRows, block: int, step: int) -> np.ndarray:
    """Return D + (A scales) @ (B scales).T in float32.

    block: elements of K with one scale. step: elements of K of an instruction. Each one takes its groups of products
    and D to the largest of their exponents, cuts them there to `BITS`, adds them, and cuts the sum to float32.
    """
    terms_of = _products if GROUPS[step] == 1 else _groups
    with np.errstate(all="ignore"):
        for start in range(0, a.values.shape[1], step):
            unit, terms = terms_of(a.part(start, step, block), b.part(start, step, block))
            d = _sum(d, unit, terms, BITS[step])
    return d


Part = tuple[np.ndarray, np.ndarray, ScaledRows]
"""Elements and scales of the K of an instruction, and the operand that they are of."""


def _products(a: Part, b: Part) -> tuple[np.ndarray, Terms]:
    """Return the product of the scales of each row of A and B, and products of elements in units of that product."""
    left, right = (np.ascontiguousarray(values.T, np.float32) for values, _, _ in (a, b))
    of_a, of_b = (np.ascontiguousarray(_exponent(values, operand.normal).T) for values, _, operand in (a, b))
    exponents = map(np.add.outer, of_a, of_b)
    return a[1] * b[1].T, list(zip(map(np.outer, left, right), exponents, strict=True))


def _groups(a: Part, b: Part) -> tuple[np.ndarray, Terms]:
    """Return ones, and sums of 16 products times the scales, with the exponents of the scales."""
    (left, of_a), (right, of_b) = map(_scaled, (a, b))
    terms = []
    for k in range(0, left.shape[1], 16):
        sums = left[:, k : k + 16] @ right[:, k : k + 16].T
        terms.append((sums, np.where(sums == 0, NONE, of_a[:, k, None] + of_b[:, k]).astype(np.int16)))
    return np.ones(terms[0][0].shape), terms


def _scaled(part: Part) -> tuple[np.ndarray, np.ndarray]:
    """Return elements times their scales, and the exponent of the scale for each element."""
    values, scales, operand = part
    wide = np.repeat(scales, values.shape[1] // scales.shape[1], axis=1)
    return values * wide, _exponent(wide, LEAST - 1 if operand.scales.powers else LEAST_NORMAL["float8_e4m3"])


def _exponent(values: np.ndarray, normal: int) -> np.ndarray:
    found = np.maximum(np.frexp(values)[1] - 1, normal)
    return np.where(values == 0, NONE, found).astype(np.int16)


def _sum(d: np.ndarray, unit: np.ndarray, terms: Terms, bits: int) -> np.ndarray:
    """Return the float32 sum of D and the terms of a unit: each is cut to `bits` after the largest exponent, and the
    sum is cut towards zero."""
    top = np.maximum(_exponent(d, LEAST), LEAST).astype(np.int16) - _exponent(unit, NONE)
    for _, exponent in terms:
        np.maximum(top, exponent, out=top)
    up = np.ldexp(1.0, bits - top)
    total, type = np.trunc(d / unit * up), terms[0][0].dtype
    narrow = np.minimum(up, np.finfo(type).max).astype(type)  # beyond it all terms are zero
    for value, _ in terms:
        np.add(total, np.trunc(value * narrow), out=total)
    return towards_zero(total / up * unit)


def towards_zero(values: np.ndarray) -> np.ndarray:
    """Return float64 numbers as float32, cut; infinity from 2 ** 128 on."""
    near = values.astype(np.float32)
    beyond = (np.abs(near) > np.abs(values)) & (np.abs(values) < 2.0**128)
    return np.where(beyond, np.nextafter(near, np.float32(0)), near)


# faults of the values


def faults(a: ScaledRows, b: ScaledRows, block: int) -> Iterator[tuple[Code, str]]:
    """Yield the code and the sentence of each fault of a product's scales."""
    empty = _blocks_of_zeros(a.values, block) & _blocks_of_zeros(b.values, block)
    for name, operand in (("scale_a", a), ("scale_b", b)):
        if apart := operand.scales.unlike(len(operand.values), len(empty)):
            yield "scales-not-duplicated", f"{name} differs between the quarters of 32 lanes ({apart}); {_COPIED}"
        padding = np.isnan(operand.factors(block)) & empty & operand.values.any(axis=1, keepdims=True)
        if padding.any():
            hit, where = padding.any(axis=1).sum(), ", ".join(map(str, padding.any(axis=0).nonzero()[0]))
            yield "scale-of-padding", f"{name} has NaN in {hit} rows of block {where} along k of this tile, {_BEYOND}"


_COPIED = "the tensor core reads all four, and tcgen05.copy_scales writes all four"
_BEYOND = (
    "where A and B are zero, as TMA fills what lies outside of them: NaN times zero is NaN in the whole row; scales of "
    "padding are 0"
)


def _blocks_of_zeros(values: np.ndarray, block: int) -> np.ndarray:
    """Return, for each block along K, True if all rows are zero there."""
    return np.logical_not(values.any(axis=0).reshape(-1, block).any(axis=1))
