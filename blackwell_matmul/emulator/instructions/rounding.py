"""Rounding of wider results: to nearest, towards zero, down or up (PTX ISA, "Rounding Modifiers")."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

from blackwell_matmul.emulator.lanes import Array

DIRECTED = ("rz", "rm", "rp")


def nearest(value: Array, kind: Any) -> Array:
    """Return values rounded to nearest, ties to even. ml_dtypes rounds float64 to bfloat16 through float32. So such
    values are first rounded to odd."""
    if kind == ml_dtypes.bfloat16 and value.dtype == np.float64:
        cut = directed(value, np.dtype(np.float32), "rz")
        value = (cut.view(np.uint32) | (np.isfinite(value) & (cut != value))).view(np.float32)
    return value.astype(kind, copy=False)


def directed(value: Array, kind: Any, rounding: str) -> Array:
    """Return values rounded towards zero (rz), down (rm) or up (rp): the nearest value, or its neighbour."""
    exact, kind = value.astype(np.float64), np.dtype(kind)
    near = exact.astype(kind)
    far = near.astype(np.float64)
    over = {"rz": np.abs(far) > np.abs(exact), "rm": far > exact, "rp": far < exact}[rounding]
    step = {"rz": 0.0, "rm": -np.inf, "rp": np.inf}[rounding]
    return np.where(over, np.nextafter(near, kind.type(step)), near)


def directed_double(function: Callable[..., Any], rounding: str, sums: bool = False) -> Callable[..., Array]:
    """Return a function like `function`, whose exact result is rounded to float64 towards zero, down or up.

    sums: True if the result is a sum of the first and the last operand. A zero sum rounded down is -0, unless both
    terms are +0.
    """

    def one(*values: float) -> Any:
        plain = function(*map(np.float64, values))
        if not np.isfinite(plain) and not all(map(np.isfinite, values)):
            return plain
        try:
            exact = function(*map(Fraction, values))
        except (OverflowError, ValueError, ZeroDivisionError):  # an infinite, NaN or zero operand
            return plain
        if exact == 0:
            first, *rest, last = map(np.float64, values)
            return -function(-first, *rest, -last) if sums and rounding == "rm" else plain
        return _beside(exact, _double(exact), rounding)

    return lambda *columns: np.array([one(*row) for row in zip(*(column.tolist() for column in columns))])


def _double(exact: Fraction) -> float:
    try:
        return float(exact)
    except OverflowError:
        return math.inf if exact > 0 else -math.inf


def _beside(exact: Fraction, near: float, rounding: str) -> float:
    """Return the float64 nearest to an exact value, or its neighbour in the direction of rounding."""
    is_over = {"rz": abs(near) > abs(exact), "rm": near > exact, "rp": near < exact}[rounding]
    return math.nextafter(near, {"rz": 0.0, "rm": -math.inf, "rp": math.inf}[rounding]) if is_over else near


def directed_root(values: Array, rounding: str) -> Array:
    """Return square roots in float64, rounded towards zero, down or up."""

    def one(value: float) -> float:
        near = math.sqrt(value)
        exact, square = Fraction(value), Fraction(near) ** 2
        if square > exact and rounding != "rp":
            return math.nextafter(near, 0.0)
        return math.nextafter(near, math.inf) if square < exact and rounding == "rp" else near

    plain = np.sqrt(values)
    return np.array([one(x) if 0 < x < math.inf else y for x, y in zip(values.tolist(), plain.tolist())])


def fused(a: Array, b: Array, c: Array) -> Array:
    """Return a * b + c, rounded once to float64. For narrower types, rounded to odd in float64, so that the next
    rounding is correct."""
    if a.dtype == np.float64:
        return np.array([_fused(x, y, z) for x, y, z in zip(a.tolist(), b.tolist(), c.tolist())])
    product, addend = np.multiply(a, b, dtype=np.float64), c.astype(np.float64)  # the product is exact
    total = product + addend
    bits = total.view(np.int64)
    if (bits & _UNUSED).all():
        return total  # the sum is no tie of the next rounding, so that rounding twice changes nothing
    part = total - product
    error = (product - (total - part)) + (addend - part)
    inexact = (error != 0) & (bits & 1 == 0) & np.isfinite(total)
    return (bits + np.where((error > 0) == (total > 0), inexact, -1 * inexact)).view(np.float64)


_UNUSED = np.int64((1 << 28) - 1)
"""Bits of a float64 below half of the last bit of a float32 or a narrower float."""


def _fused(x: float, y: float, z: float) -> float:
    try:
        return float(Fraction(x) * Fraction(y) + Fraction(z)) or x * y + z  # a zero keeps its sign
    except (OverflowError, ValueError):  # an infinite or NaN operand
        return x * y + z
