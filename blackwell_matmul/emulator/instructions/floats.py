"""Floating point: sums, products, minimum and maximum, approximations; scalar or packed (PTX ISA, "Floating Point").

Results are exact where IEEE 754 defines them. Approximations (ex2, lg2, rcp …) return the nearest float, within the
error that PTX allows.
"""

from __future__ import annotations

import functools
import operator
from collections.abc import Callable
from typing import Any

import numpy as np

from blackwell_matmul.emulator.code import Act, Builder, instruction, last_type, wide
from blackwell_matmul.emulator.instructions import integers
from blackwell_matmul.emulator.instructions.integers import elementwise
from blackwell_matmul.emulator.instructions.rounding import (
    DIRECTED,
    directed,
    directed_double,
    directed_root,
    fused,
    nearest,
)
from blackwell_matmul.emulator.instructions.special_values import PACKED, canonical, flushed, tiny
from blackwell_matmul.emulator.lanes import Array, mask_of
from blackwell_matmul.emulator.parser import Statement
from blackwell_matmul.emulator.unknown import Known, Unknown


def floating(build: Builder, each: Statement, function: Callable[..., Any], arithmetic: bool = True) -> Act:
    """Apply `function` to operands of the opcode's last type; to each element of a packed type.

    arithmetic: True if NaN results become the hardware's NaN.
    """
    type, count, finish = last_type(each), len(each.operands), _finish(each)

    def compute(*values: Any) -> Any:
        kind = values[0].dtype
        if "ftz" in each.modifiers:
            values = tuple(map(flushed, values))
        wide = [value.astype(np.float32) for value in values] if kind.itemsize == 2 else values
        result = finish(function(*wide), kind)
        return canonical(result) if arithmetic else result

    if type in PACKED:
        element, raw = PACKED[type], "b64" if type == "f32x2" else "b32"

        def packed(*values: Any) -> Any:
            parts = [np.ascontiguousarray(value).view(element) for value in values]
            return np.ascontiguousarray(compute(*parts)).view(values[0].dtype)

        return elementwise(build, each, packed, *[raw] * count)
    if each.modifiers[-2:-1] == ("f32",):  # `add.f32.f16 d, a, c`: the addend and the result have 32 bits
        types = ["f32", *[type] * (count - 2), "f32"]
        return elementwise(build, each, lambda *each: compute(*[v.astype(np.float32) for v in each]), *types)
    return elementwise(build, each, compute, *[type] * count)


def _finish(each: Statement) -> Callable[[Array, Any], Array]:
    """Return a function that rounds a result to its type and applies .sat, .relu and .ftz."""
    words, rounding = each.modifiers, _direction(each)
    if "oob" in words:
        raise Unknown(f"{each.opcode} is not emulated")

    def finish(result: Array, kind: Any) -> Array:
        result = directed(result, kind, rounding) if rounding else nearest(result, kind)
        if "sat" in words:  # NaN and -0 are +0
            result = np.where(np.isnan(result), kind.type(0), np.clip(result, 0, 1) + kind.type(0)).astype(kind)
        result = np.maximum(result, kind.type(0)) if "relu" in words else result
        return flushed(result) if "ftz" in words else result

    return finish


def _direction(each: Statement) -> str:
    return next((word for word in each.modifiers if word in DIRECTED), "")


def _rounded(each: Statement, function: Callable[..., Any], exact: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function`; for directed rounding of float64, a function that rounds the result of `exact` on
    fractions."""
    direction, sums = _direction(each), not each.opcode.startswith(("mul", "div", "rcp"))
    return directed_double(exact, direction, sums) if direction and last_type(each) == "f64" else function


# --- instructions


def _is_float(each: Statement) -> bool:
    return "f" in last_type(each)


@instruction("add", "sub")
def add(build: Builder, each: Statement) -> Act:
    """Add or subtract (PTX ISA, "add", "sub")."""
    if not _is_float(each):
        return integers.integer_sum(build, each)
    exact = operator.add if each.opcode.startswith("add") else operator.sub
    if _direction(each):
        sign = np.float32(1 if exact is operator.add else -1)
        return floating(build, each, _rounded(each, lambda a, b: fused(b, np.full_like(b, sign), a), exact))
    return floating(build, each, np.add if exact is operator.add else np.subtract)


@instruction("mul")
def multiply(build: Builder, each: Statement) -> Act:
    if not _is_float(each):
        return integers.integer_product(build, each)
    wide = np.float64 if _direction(each) else None
    return floating(build, each, _rounded(each, lambda a, b: np.multiply(a, b, dtype=wide), operator.mul))


@instruction("mad", "fma")
def multiply_add(build: Builder, each: Statement) -> Act:
    """Multiply and add, rounded once."""
    if not _is_float(each):
        return integers.integer_product(build, each)
    return floating(build, each, _rounded(each, fused, lambda a, b, c: a * b + c))


@instruction("min", "max")
def extreme(build: Builder, each: Statement) -> Act:
    """Return the minimum or maximum. A NaN operand is ignored, or is the result with .NaN; -0 is below +0.

    .abs compares magnitudes; .xorsign gives the result the product of the signs ("min", "max").
    """
    if not _is_float(each):
        return integers.integer_extreme(build, each)
    low, words = each.opcode.startswith("min"), each.modifiers
    function = (np.minimum if low else np.maximum) if "NaN" in words else (np.fmin if low else np.fmax)

    def two(a: Array, b: Array) -> Array:
        return np.where(a == b, np.where(np.signbit(a) == low, a, b), function(a, b))

    def every(*values: Array) -> Array:
        found = functools.reduce(two, map(np.abs, values) if "abs" in words else values)
        if "xorsign" not in words:
            return found
        return np.copysign(found, functools.reduce(np.multiply, [np.copysign(found.dtype.type(1), v) for v in values]))

    return floating(build, each, every)


_SIGNS: dict[str, Callable[..., Any]] = {
    "neg": np.negative, "abs": np.abs, "copysign": lambda sign, value: np.copysign(value, sign),
}  # fmt: skip


@instruction(*_SIGNS)
def change_sign(build: Builder, each: Statement) -> Act:
    return floating(build, each, _SIGNS[each.opcode.split(".")[0]], arithmetic=False)


@instruction("div")
def divide(build: Builder, each: Statement) -> Act:
    wide = np.float64 if _direction(each) else None
    return floating(build, each, _rounded(each, lambda a, b: np.divide(a, b, dtype=wide), operator.truediv))


@instruction("sqrt")
def square_root(build: Builder, each: Statement) -> Act:
    direction = _direction(each)
    if direction and last_type(each) == "f64":
        return floating(build, each, lambda a: directed_root(a, direction))
    return floating(build, each, lambda a: np.sqrt(a, dtype=np.float64 if direction else None))


@instruction("rsqrt")
def reciprocal_root(build: Builder, each: Statement) -> Act:
    return floating(build, each, _coarse(each, lambda a: (1 / np.sqrt(a.astype(np.float64))).astype(a.dtype)))


@instruction("rcp")
def reciprocal(build: Builder, each: Statement) -> Act:
    wide = np.float64 if _direction(each) else None
    function = _rounded(each, lambda a: np.divide(a.dtype.type(1), a, dtype=wide), lambda a: 1 / a)
    return floating(build, each, _coarse(each, function))


def _coarse(each: Statement, function: Callable[[Array], Array]) -> Callable[[Array], Array]:
    """Return `function`. For .approx.ftz.f64, operand and result keep their upper 32 bits; the lower bits are zero."""
    if not {"approx", "ftz"} <= {*each.modifiers} or last_type(each) != "f64":
        return function
    upper = lambda a: (a.view(np.uint64) & np.uint64(0xFFFFFFFF00000000)).view(np.float64)  # noqa: E731
    return lambda a: upper(function(upper(a)))


_TRANSCENDENTAL = {"ex2": np.exp2, "lg2": np.log2, "sin": np.sin, "cos": np.cos, "tanh": np.tanh}


@instruction(*_TRANSCENDENTAL)
def transcendental(build: Builder, each: Statement) -> Act:
    function = _TRANSCENDENTAL[each.opcode.split(".")[0]]
    return floating(build, each, lambda a: function(a.astype(np.float64)).astype(a.dtype))


_TESTS: Known[str, Callable[[Array], Array]] = Known(
    {
        "finite": np.isfinite,
        "infinite": np.isinf,
        "number": lambda a: ~np.isnan(a),
        "notanumber": np.isnan,
        "normal": lambda a: np.isfinite(a) & (np.abs(a) >= tiny(a.dtype)),
        "subnormal": lambda a: (a != 0) & (np.abs(a) < tiny(a.dtype)),
    }
)


@instruction("testp")
def test(build: Builder, each: Statement) -> Act:
    """Test the class of a float, such as finite or subnormal (PTX ISA, "testp")."""
    holds, read = _TESTS[each.modifiers[0]], build.reader(each.operands[1], last_type(each))
    target = build.target(each.operands[0])
    return wide(lambda warp, mask: warp.set_predicate(target, mask_of(holds(read(warp))), mask))
