"""Sums of block-scaled products in fixed point, as measured on tensor cores (MMA-Sim, arXiv 2511.10909).

An instruction truncates D and each term to a number of bits below the largest exponent, and adds them exactly. The sum
is truncated to float32. For 8-bit kinds, a term is one product. For fp4 kinds, a term is the exact sum of 16 products,
times both scales.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from blackwell_matmul.emulator.lanes import Array

NORMAL = {"e4m3": -6, "e5m2": -14, "e2m3": 0, "e3m2": -2, "e2m1": 0, "ue4m3": -6, "ue8m0": -127, "f32": -126}
"""Exponent of the smallest normal number, by type."""

FRACTION_BITS = 23
"""Fraction bits of a float32."""

EIGHT_BITS, FOUR_BITS = 25, 35
"""Bits kept below the largest exponent, for elements of 8 bits and of 4 bits."""

GROUP = 16
"""Number of fp4 products that are added exactly."""

NONE = -(1 << 16)
"""Exponent of a zero product, lower than that of any other product."""

MOST_AT_ONCE = 1 << 15
"""Maximum number of products in one numpy call, so that they fit into a CPU cache."""


@dataclass(frozen=True)
class Terms:
    """Exact numbers in float64, with the exponents of their fixed-point form."""

    values: Array
    exponents: Array

    @classmethod
    def of(cls, values: Array, type: str) -> Terms:
        """Return terms for numbers of a type; infinities and NaN count as zero."""
        values = np.where(np.isfinite(values), values, 0).astype(np.float64)
        exponents = np.maximum(np.frexp(values)[1] - 1, NORMAL[type])
        return cls(values, np.where(values == 0, NONE, exponents))

    def __getitem__(self, key: Any) -> Terms:
        return Terms(self.values[key], self.exponents[key])

    def times(self, other: Terms) -> Terms:
        return Terms(self.values * other.values, self.exponents + other.exponents)

    def outer(self, other: Terms, places: slice) -> Terms:
        """Return the outer product of both operands' column k, for each k in `places`: places x rows x rows."""
        left, right = (Terms(each.values.T[places], each.exponents.T[places]) for each in (self, other))
        return left[:, :, None].times(right[:, None])


@dataclass(frozen=True)
class ScaledOperand:
    """Values of A, or of B transposed, rows x K, with scales, rows x blocks. type, scale: types of both."""

    values: Array
    factors: Array
    type: str
    scale: str

    @property
    def wide(self) -> Array:
        """Return the values multiplied by their scales."""
        return self.values * np.repeat(self.factors, self.values.shape[1] // self.factors.shape[1], axis=1)


def block_sums(parts_of_a: list[ScaledOperand], b: ScaledOperand, d: Array | None) -> Array:
    """Return D + A times B for parts of A, each with its own part of B's columns. d: None for zero."""
    count = len(parts_of_a)
    d = np.zeros((len(parts_of_a[0].values), len(b.values)), np.float32) if d is None else d
    rights = zip(np.split(b.values, count), np.split(b.factors, count), np.split(d, count, axis=1))
    found = [
        block_sum(left, ScaledOperand(values, factors, b.type, b.scale), part)
        for left, (values, factors, part) in zip(parts_of_a, rights)
    ]
    return np.concatenate(found, axis=1)


def block_sum(a: ScaledOperand, b: ScaledOperand, d: Array) -> Array:
    """Return D + A times B of one instruction, in float32."""
    packed = a.type.startswith("packed")
    terms = [Terms.of(d, "f32")[None], *(_groups(a, b) if packed else _products(a, b))]
    found = _sum(terms, FOUR_BITS if packed else EIGHT_BITS)
    if all(np.isfinite(each).all() for each in (a.wide, b.wide, d)):
        return found
    with np.errstate(invalid="ignore"):
        special = a.wide @ b.wide.T + d
    return np.where(np.isfinite(special), found, special).astype(np.float32)


def _products(a: ScaledOperand, b: ScaledOperand) -> Iterator[Terms]:
    (left, of_a), (right, of_b) = ((Terms.of(x.values, x.type), Terms.of(x.factors, x.scale)) for x in (a, b))
    both, step = of_a.outer(of_b, slice(1)), max(1, MOST_AT_ONCE // (len(a.values) * len(b.values)))
    for k in range(0, a.values.shape[1], step):
        yield left.outer(right, slice(k, k + step)).times(both)


def _groups(a: ScaledOperand, b: ScaledOperand) -> Iterator[Terms]:
    left, right = (np.asarray(x.values, np.float64) for x in (a, b))
    of_a, of_b = (Terms.of(x.factors, x.scale) for x in (a, b))
    block = a.values.shape[1] // a.factors.shape[1]
    for k in range(0, a.values.shape[1], GROUP):
        sums = left[:, k : k + GROUP] @ right[:, k : k + GROUP].T
        yield of_a.outer(of_b, slice(k // block, k // block + 1)).times(Terms(sums, np.where(sums == 0, NONE, 0)))


def _sum(terms: list[Terms], bits: int) -> Array:
    """Return the sum of terms, rows x columns. bits: number of bits kept below the largest exponent."""
    least = NORMAL["f32"]
    top = np.maximum(functools.reduce(np.maximum, [each.exponents.max(axis=0) for each in terms]), least)
    unit = np.ldexp(1.0, bits - top)
    total = sum(np.trunc(each.values * unit).sum(axis=0) for each in terms)
    size = np.abs(total).astype(np.int64)
    length = np.frexp(size.astype(np.float64))[1]
    dropped = np.maximum(np.maximum(length - 24, least - FRACTION_BITS - (top - bits)), 0)
    kept = size >> np.minimum(dropped, 62) << np.minimum(dropped, 62)
    with np.errstate(over="ignore"):
        return np.ldexp(np.sign(total) * kept.astype(np.float64), top - bits).astype(np.float32)
