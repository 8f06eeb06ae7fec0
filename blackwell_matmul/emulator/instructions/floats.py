"""Floating point: sums, products, extremes, approximations; scalar and packed in pairs (PTX ISA, "Floating Point").

Exact where IEEE 754 says what the result is; the approximations (ex2, lg2, rcp …) are the nearest float, which is
within PTX's stated error of what the hardware gives.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np

from blackwell_matmul.emulator.code import Act, Builder, instruction, last_type
from blackwell_matmul.emulator.instructions import integers
from blackwell_matmul.emulator.instructions.integers import elementwise
from blackwell_matmul.emulator.instructions.special_values import canonical, flushed
from blackwell_matmul.emulator.lanes import Array
from blackwell_matmul.emulator.parser import Statement

PACKED: dict[str, Any] = {"f16x2": np.float16, "bf16x2": ml_dtypes.bfloat16, "f32x2": np.float32}


def floating(build: Builder, each: Statement, function: Callable[..., Any], arithmetic: bool = True) -> Act:
    """`function` on operands of the type that the opcode ends with, element by element where it is packed.

    arithmetic: its NaNs are the hardware's.
    """
    type, count = last_type(each), len(each.operands)
    flush = "ftz" in each.modifiers
    saturate = "sat" in each.modifiers

    def compute(*values: Any) -> Any:
        with np.errstate(all="ignore"):
            if flush:
                values = tuple(map(flushed, values))
            if values[0].dtype.itemsize == 2:
                result = function(*[value.astype(np.float32) for value in values]).astype(values[0].dtype)
            else:
                result = function(*values).astype(values[0].dtype, copy=False)
            if saturate:
                result = np.where(np.isnan(result), result.dtype.type(0), np.clip(result, 0, 1)).astype(result.dtype)
            result = flushed(result) if flush else result
            return canonical(result) if arithmetic else result

    if type in PACKED:
        element, raw = PACKED[type], "b64" if type == "f32x2" else "b32"

        def packed(*values: Any) -> Any:
            parts = [np.ascontiguousarray(value).view(element) for value in values]
            return np.ascontiguousarray(compute(*parts)).view(values[0].dtype)

        return elementwise(build, each, packed, *[raw] * count)
    if each.modifiers[-2:-1] == ("f32",):  # `add.f32.f16 d, a, c`: only what is added is of 32 bits, like the result
        types = ["f32", *[type] * (count - 2), "f32"]
        return elementwise(build, each, lambda *each: compute(*[v.astype(np.float32) for v in each]), *types)
    return elementwise(build, each, compute, *[type] * count)


def _is_float(each: Statement) -> bool:
    return "f" in last_type(each)


@instruction("add", "sub")
def add(build: Builder, each: Statement) -> Act:
    """PTX ISA, "add", "sub"; round to nearest even."""
    if not _is_float(each):
        return integers.integer_sum(build, each)
    return floating(build, each, np.add if each.opcode.startswith("add") else np.subtract)


@instruction("mul")
def multiply(build: Builder, each: Statement) -> Act:
    return floating(build, each, np.multiply) if _is_float(each) else integers.integer_product(build, each)


@instruction("mad", "fma")
def multiply_add(build: Builder, each: Statement) -> Act:
    """fma rounds once."""
    return floating(build, each, fused) if _is_float(each) else integers.integer_product(build, each)


def fused(a: Array, b: Array, c: Array) -> Array:
    """a * b + c, which double precision rounds twice, so that the first rounding is made to odd."""
    if a.dtype == np.float64:
        import math

        return np.array([math.fma(x, y, z) if hasattr(math, "fma") else x * y + z for x, y, z in zip(a, b, c)])
    product, addend = a.astype(np.float64) * b.astype(np.float64), c.astype(np.float64)  # the product is exact
    total = product + addend
    part = total - product
    error = (product - (total - part)) + (addend - part)
    even = (total.view(np.uint64) & np.uint64(1)) == 0
    inexact = (error != 0) & even & np.isfinite(total)
    total = np.where(inexact, np.nextafter(total, np.where(error > 0, np.inf, -np.inf)), total)
    return total


@instruction("fma.rn.relu")
def multiply_add_relu(build: Builder, each: Statement) -> Act:
    return floating(build, each, lambda a, b, c: np.maximum(fused(a, b, c), 0))


@instruction("min", "max")
def extreme(build: Builder, each: Statement) -> Act:
    """Of a number and a NaN: the number, with .NaN the NaN; -0 is below +0."""
    if not _is_float(each):
        return integers.integer_extreme(build, each)
    low = each.opcode.startswith("min")
    function = (np.minimum if low else np.maximum) if "NaN" in each.modifiers else (np.fmin if low else np.fmax)

    def compute(*values: Array) -> Array:
        result = values[0]
        for value in values[1:]:
            zeros = (result == 0) & (value == 0)
            signs = np.signbit(result) | np.signbit(value) if low else np.signbit(result) & np.signbit(value)
            result = np.where(zeros, np.where(signs, np.float32(-0.0), np.float32(0.0)), function(result, value))
        return result

    return floating(build, each, compute)


@instruction("neg")
def negate(build: Builder, each: Statement) -> Act:
    return floating(build, each, np.negative, arithmetic=False)


@instruction("abs")
def absolute(build: Builder, each: Statement) -> Act:
    return floating(build, each, np.abs, arithmetic=False)


@instruction("copysign")
def copy_sign(build: Builder, each: Statement) -> Act:
    return floating(build, each, lambda sign, value: np.copysign(value, sign), arithmetic=False)


@instruction("div.rn", "div.full", "div.approx", "div.rz")
def divide(build: Builder, each: Statement) -> Act:
    return floating(build, each, np.divide)


@instruction("sqrt")
def square_root(build: Builder, each: Statement) -> Act:
    return floating(build, each, np.sqrt)


@instruction("rsqrt")
def reciprocal_root(build: Builder, each: Statement) -> Act:
    return floating(build, each, lambda a: (1 / np.sqrt(a.astype(np.float64))).astype(a.dtype))


@instruction("rcp")
def reciprocal(build: Builder, each: Statement) -> Act:
    return floating(build, each, lambda a: a.dtype.type(1) / a)


@instruction("ex2")
def power_of_two(build: Builder, each: Statement) -> Act:
    return floating(build, each, lambda a: np.exp2(a.astype(np.float64)).astype(a.dtype))


@instruction("lg2")
def logarithm(build: Builder, each: Statement) -> Act:
    return floating(build, each, lambda a: np.log2(a.astype(np.float64)).astype(a.dtype))


@instruction("sin", "cos", "tanh")
def transcendental(build: Builder, each: Statement) -> Act:
    function = {"sin": np.sin, "cos": np.cos, "tanh": np.tanh}[each.opcode.split(".")[0]]
    return floating(build, each, lambda a: function(a.astype(np.float64)).astype(a.dtype))


@instruction("testp")
def test(build: Builder, each: Statement) -> Act:
    """PTX ISA, "testp": finite, infinite, number, notanumber."""
    from blackwell_matmul.emulator.lanes import mask_of

    name, read = each.modifiers[0], build.reader(each.operands[1], last_type(each))
    target = build.target(each.operands[0])
    tests: dict[str, Any] = {"finite": np.isfinite, "infinite": np.isinf, "notanumber": np.isnan}
    tests["number"] = lambda value: ~np.isnan(value)
    return lambda warp, mask: warp.set_predicate(target, mask_of(tests[name](read(warp))), mask)
