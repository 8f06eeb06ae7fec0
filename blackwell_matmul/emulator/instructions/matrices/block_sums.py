"""Sums of block-scaled products in integers, as measured on tensor cores (MMA-Sim, arXiv 2511.10909).

An instruction adds D and its products in fixed point: each term is a significand and an exponent, and is cut to some
bits after the largest exponent. The sum is cut to float32. A term of 8-bit kinds is a product of two elements. A term
of fp4 kinds is the exact sum of 16 products, times both scales.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from blackwell_matmul.emulator.lanes import Array

NORMAL = {"e4m3": -6, "e5m2": -14, "e2m3": 0, "e3m2": -2, "e2m1": 0, "ue4m3": -6, "ue8m0": -127, "f32": -126}
"""Exponent of the least normal number of a type."""

FRACTION = {"e4m3": 3, "e5m2": 2, "e2m3": 3, "e3m2": 2, "e2m1": 1, "ue4m3": 3, "ue8m0": 0, "f32": 23}
"""Bits of a significand after the point."""

EIGHT_BITS, FOUR_BITS = 25, 35
"""Bits kept after the largest exponent, for elements of 8 bits and of 4 bits."""

GROUP = 16
"""Products of fp4 that are added exactly."""


@dataclass(frozen=True)
class FixedPoint:
    """Numbers: significand * 2 ** (exponent - fraction), integers."""

    significand: Array
    exponent: Array
    fraction: int

    @classmethod
    def of(cls, values: Array, type: str) -> FixedPoint:
        """Split finite numbers of a type; others count as zero."""
        values = np.where(np.isfinite(values), values, 0).astype(np.float64)
        exponent = np.maximum(np.frexp(values)[1] - 1, NORMAL[type]).astype(np.int64)
        return cls(np.ldexp(values, FRACTION[type] - exponent).astype(np.int64), exponent, FRACTION[type])

    def outer(self, other: FixedPoint) -> FixedPoint:
        """Return all products of a column of numbers and a row of them."""
        return FixedPoint(
            self.significand[:, None] * other.significand,
            self.exponent[:, None] + other.exponent,
            self.fraction + other.fraction,
        )

    def column(self, place: int) -> FixedPoint:
        return FixedPoint(self.significand[:, place], self.exponent[:, place], self.fraction)

    def cut(self, top: Array, bits: int) -> Array:
        """Return the numbers in units of 2 ** (top - bits), cut."""
        left = bits - self.fraction + self.exponent - top
        size = np.abs(self.significand)
        moved = np.where(left >= 0, size << np.clip(left, 0, 62), size >> np.clip(-left, 0, 62))
        return np.sign(self.significand) * moved


@dataclass(frozen=True)
class ScaledOperand:
    """Rows of A, or columns of B, rows x K, with scales, rows x blocks. type, scale: their types."""

    values: Array
    factors: Array
    type: str
    scale: str

    @property
    def wide(self) -> Array:
        """Return the numbers that they stand for."""
        return self.values * np.repeat(self.factors, self.values.shape[1] // self.factors.shape[1], axis=1)


def block_sums(parts_of_a: list[ScaledOperand], b: ScaledOperand, d: Array | None) -> Array:
    """Return `block_sum` of parts of A, each with its part of B's columns; d: None for nothing."""
    count = len(parts_of_a)
    d = np.zeros((len(parts_of_a[0].values), len(b.values)), np.float32) if d is None else d
    rights = zip(np.split(b.values, count), np.split(b.factors, count), np.split(d, count, axis=1))
    found = [
        block_sum(left, ScaledOperand(values, factors, b.type, b.scale), part)
        for left, (values, factors, part) in zip(parts_of_a, rights)
    ]
    return np.concatenate(found, axis=1)


def block_sum(a: ScaledOperand, b: ScaledOperand, d: Array) -> Array:
    """Return D + A times B of one instruction in float32."""
    packed = a.type.startswith("packed")
    terms = [FixedPoint.of(d, "f32"), *(_groups(a, b) if packed else _products(a, b))]
    found = _sum(terms, FOUR_BITS if packed else EIGHT_BITS)
    if all(np.isfinite(each).all() for each in (a.wide, b.wide, d)):
        return found
    with np.errstate(invalid="ignore"):
        special = a.wide @ b.wide.T + d
    return np.where(np.isfinite(special), found, special).astype(np.float32)


def _products(a: ScaledOperand, b: ScaledOperand) -> list[FixedPoint]:
    (left, of_a), (right, of_b) = ((FixedPoint.of(x.values, x.type), FixedPoint.of(x.factors, x.scale)) for x in (a, b))
    both = of_a.column(0).outer(of_b.column(0)).exponent
    pairs = (left.column(k).outer(right.column(k)) for k in range(a.values.shape[1]))
    return [FixedPoint(each.significand, each.exponent + both, each.fraction) for each in pairs]


def _groups(a: ScaledOperand, b: ScaledOperand) -> list[FixedPoint]:
    left, right = (np.rint(2 * np.asarray(x.values, np.float64)).astype(np.int64) for x in (a, b))
    of_a, of_b = (FixedPoint.of(x.factors, x.scale) for x in (a, b))
    block, terms = a.values.shape[1] // a.factors.shape[1], []
    for k in range(0, a.values.shape[1], GROUP):
        scales = of_a.column(k // block).outer(of_b.column(k // block))
        sums = left[:, k : k + GROUP] @ right[:, k : k + GROUP].T
        terms.append(FixedPoint(sums * scales.significand, scales.exponent, scales.fraction + 2))
    return terms


def _sum(terms: list[FixedPoint], bits: int) -> Array:
    least = NORMAL["f32"]
    top = np.full(terms[0].exponent.shape, least, np.int64)
    for each in terms:
        np.maximum(top, np.where(each.significand == 0, least, each.exponent), out=top)
    total = np.sum([each.cut(top, bits) for each in terms], axis=0)
    size = np.abs(total)
    length = np.frexp(size.astype(np.float64))[1]
    dropped = np.maximum(np.maximum(length - 24, least - FRACTION["f32"] - (top - bits)), 0)
    kept = size >> np.minimum(dropped, 62) << np.minimum(dropped, 62)
    with np.errstate(over="ignore"):
        return np.ldexp(np.sign(total) * kept.astype(np.float64), top - bits).astype(np.float32)
