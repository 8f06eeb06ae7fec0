"""Arithmetic as the generated code does it: C's integers and PTX's floats, on numpy arrays of the type itself.

Kernels are compiled with --ftz=true: float32 operations take denormal operands for zero and give zero for denormal
results (PTX ISA, "Floating Point Instructions": .ftz). The 8-bit floats compute in half and convert back with
saturation, as tilus's headers do. Undefined behaviour of C is reported to a `Told`, and gives what the hardware gives.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any, Literal

import numpy as np

from blackwell_matmul.simulator.scaled_values import power_bytes
from blackwell_matmul.simulator.types import EIGHT_BIT_FLOATS, Element, canonical, convert, element_by_name, flushed

Undefined = Literal["integer-overflow", "division-by-zero", "conversion-range", "shift-range"]
"""Codes of findings for operations that C leaves undefined."""

Told = Callable[[Undefined], None]

HALF, INT32 = element_by_name("float16", 16), element_by_name("int32", 32)


def nobody(_: Undefined) -> None:
    """Ignore a report of undefined arithmetic."""


# --- types


def promoted(item: Element) -> Element:
    """Return C's integer promotion of a type: int for a narrower one."""
    return item if item.nbits >= 32 else INT32


def common(a: Element, b: Element) -> Element:
    """Return C's common type of two integer types: the wider one, or of two as wide the unsigned one."""
    return max(promoted(a), promoted(b), key=lambda item: (item.nbits, not item.signed))


def limits(item: Element) -> tuple[int, int]:
    """Return the smallest and the largest value of an integer type."""
    if item.name == "bool":
        return 0, 1
    return (-(1 << (item.nbits - 1)), (1 << (item.nbits - 1)) - 1) if item.signed else (0, (1 << item.nbits) - 1)


# --- integers


def c_div(a: int, b: int) -> int:
    """Divide as C does: towards zero."""
    if (a >= 0) == (b > 0):
        return a // b
    return -(-a // b)


def c_mod(a: int, b: int) -> int:
    """Return C's remainder, with the sign of the dividend."""
    return a - b * c_div(a, b)


def wrapped(value: int, bits: int, signed: bool) -> int:
    """Return the low bits of an integer, in two's complement."""
    value &= (1 << bits) - 1
    return value - (1 << bits) if signed and value >> (bits - 1) else value


def overflowing(told: Told, value: int, bits: int) -> int:
    """Return the low bits of an integer that leaves its signed type."""
    told("integer-overflow")
    return wrapped(value, bits, True)


def quotient(told: Told, a: int, b: int) -> int:
    """Return a / b. Division by zero gives all ones, as on an H200."""
    if b:
        return c_div(a, b)
    told("division-by-zero")
    return -1


def remainder(told: Told, a: int, b: int) -> int:
    """Return a % b; by zero it is a, as on an H200."""
    if b:
        return c_mod(a, b)
    told("division-by-zero")
    return a


def shifted(told: Told, left: bool, bits: int, a: int, by: int) -> int:
    """Shift an integer. A shift beyond the width, taken as unsigned, counts as the width (PTX ISA, "shl", "shr")."""
    if not 0 <= by < bits:
        told("shift-range")
        by = bits
    return a << by if left else a >> by


def _sum(told: Told, sign: int, a: Any, b: Any) -> Any:
    result = a + b if sign > 0 else a - b
    if told is not nobody and result.dtype.kind == "i":
        other = b if sign > 0 else ~b
        if (((a ^ result) & (other ^ result)) < 0).any():
            told("integer-overflow")
    return result


def _product(told: Told, a: Any, b: Any) -> Any:
    result = a * b
    if told is not nobody and result.dtype.kind == "i":
        wide = a.astype(np.float64) * b if result.dtype.itemsize == 8 else a.astype(np.int64) * b
        top = 2.0 ** (8 * result.dtype.itemsize - 1)
        if ((wide >= top) | (wide < -top)).any():
            told("integer-overflow")
    return result


def _divided(told: Told, a: Any, b: Any, rest: bool) -> Any:
    a, b = np.broadcast_arrays(a, b)
    zero, signed = b == 0, a.dtype.kind == "i"
    if zero.any():
        told("division-by-zero")
    if signed and ((a == np.iinfo(a.dtype).min) & (b == -1)).any():
        told("integer-overflow")
    by = np.where(zero, b.dtype.type(1), b)
    down = a // by
    if signed:
        down = down + ((down * by != a) & ((a < 0) != (by < 0))).astype(a.dtype)
    if rest:
        return np.where(zero, a, a - down * by)
    return np.where(zero, ~a.dtype.type(0), down)


def _shift(told: Told, left: bool, a: Any, by: Any) -> Any:
    bits = 8 * a.dtype.itemsize
    outside = (by < 0) | (by >= bits)
    if outside.any():
        told("shift-range")
    amount = np.where(outside, 0, by).astype(a.dtype)
    beyond = a.dtype.type(0) if left else np.where(a < 0, ~a.dtype.type(0), a.dtype.type(0))
    return np.where(outside, beyond, np.left_shift(a, amount) if left else np.right_shift(a, amount))


_INTEGERS: dict[str, Callable[[Told, Any, Any], Any]] = {
    "Add": lambda told, a, b: _sum(told, 1, a, b),
    "Sub": lambda told, a, b: _sum(told, -1, a, b),
    "Multiply": _product,
    "Div": lambda told, a, b: _divided(told, a, b, False),
    "FloorDiv": lambda told, a, b: _divided(told, a, b, False),
    "Mod": lambda told, a, b: _divided(told, a, b, True),
    "LeftShift": lambda told, a, b: _shift(told, True, a, b),
    "RightShift": lambda told, a, b: _shift(told, False, a, b),
    "BitwiseAnd": lambda told, a, b: a & b,
    "BitwiseOr": lambda told, a, b: a | b,
    "BitwiseXor": lambda told, a, b: a ^ b,
    "LessThan": lambda told, a, b: a < b,
    "LessEqual": lambda told, a, b: a <= b,
    "Equal": lambda told, a, b: a == b,
    "NotEqual": lambda told, a, b: a != b,
    "max": lambda told, a, b: np.maximum(a, b),
    "min": lambda told, a, b: np.minimum(a, b),
}


def integers(kind: str, told: Told) -> Callable[[Any, Any], Any]:
    """Return an operator of two integer arrays of one type, int32 or wider."""
    function = _INTEGERS[kind]

    def operate(a: Any, b: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(told, np.asarray(a), np.asarray(b))

    return operate


# --- floats


def _fmin(a: Any, b: Any) -> Any:
    """Return the smaller number: NaN loses to a number, and -0 is less than +0 (PTX ISA, "min")."""
    lower = np.fmin(a, b)
    return np.where((a == 0) & (b == 0) & (np.signbit(a) | np.signbit(b)), -np.zeros_like(lower), lower)


def _fmax(a: Any, b: Any) -> Any:
    higher = np.fmax(a, b)
    return np.where((a == 0) & (b == 0) & ~(np.signbit(a) & np.signbit(b)), np.zeros_like(higher), higher)


def _round(x: Any) -> Any:
    """Round halves away from zero (roundf)."""
    return np.trunc(x + np.copysign(np.nextafter(x.dtype.type(0.5), x.dtype.type(0)), x))


_ARITHMETIC: dict[str, Callable[..., Any]] = {
    "Add": np.add,
    "Sub": np.subtract,
    "Multiply": np.multiply,
    "Div": np.divide,
    "Neg": np.negative,
}
_COMPARISONS: dict[str, Callable[..., Any]] = {
    "LessThan": np.less,
    "LessEqual": np.less_equal,
    "Equal": np.equal,
    "NotEqual": np.not_equal,
    "isnan": np.isnan,
    "isinf": np.isinf,
    "isfinite": np.isfinite,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "expm1": np.expm1,
    "log": np.log,
    "log2": np.log2,
    "log10": np.log10,
    "log1p": np.log1p,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tan": np.tan,
    "tanh": np.tanh,
    "sinh": np.sinh,
    "cosh": np.cosh,
    "asin": np.arcsin,
    "acos": np.arccos,
    "atan": np.arctan,
    "atan2": np.arctan2,
    "asinh": np.arcsinh,
    "acosh": np.arccosh,
    "atanh": np.arctanh,
    "erf": lambda x: np.vectorize(math.erf, otypes=[np.float64])(x),
    "round": _round,
    "rint": np.rint,
    "floor": np.floor,
    "ceil": np.ceil,
    "trunc": np.trunc,
    "pow": np.power,
    "mod": np.fmod,
    "fma": lambda a, b, c: a.astype(np.float64) * b + c,
    "abs": np.abs,
    "min": _fmin,
    "max": _fmax,
}
_IN_FLOAT = ("tanh", "erf", "pow")
"""Functions that the 8-bit floats compute in float, not in half."""


_ROUNDED: dict[str, Callable[..., Any]] = {
    "rounded_add": np.add,
    "rounded_mul": np.multiply,
    "rounded_div": np.divide,
    "rounded_magnitude": lambda x: x.view(np.int32) & 0x7FFFFFFF,
    "rounded_power_up": lambda x: power_bytes(x, up=True),
    "rounded_power_down": lambda x: power_bytes(x, up=False),
}
"""Functions of float32 that keep subnormal numbers (`lang.rounded`)."""


def known_function(name: str) -> bool:
    return name in _FUNCTIONS or name in _COMPARISONS or name in _ROUNDED


@functools.cache
def floats(kind: str, item: Element) -> Callable[..., Any]:
    """Return an operator, comparison or function of arrays of one float type; its result has the same type, or
    bool."""
    if item.name in EIGHT_BIT_FLOATS:
        return _through(element_by_name("float32", 32) if kind in _IN_FLOAT else HALF, kind, item)
    if kind in _ROUNDED:
        return _quiet(lambda *x: canonical(np.asarray(_ROUNDED[kind](*x))))
    if item.nbits == 16 and kind == "round":
        kind = "rint"  # hrint: halves go to the even neighbour
    if kind in _COMPARISONS:
        return _quiet(lambda *x: _COMPARISONS[kind](*map(flushed, x)))
    keeps = item.nbits == 64 or (kind, item.nbits) == ("Neg", 32)
    narrow = flushed if keeps else lambda values: canonical(flushed(values))
    if kind in _ARITHMETIC:
        return _quiet(lambda *x: narrow(np.asarray(_ARITHMETIC[kind](*map(flushed, x)))))
    function, wide = _FUNCTIONS[kind], np.float32 if item.nbits < 32 else item.dtype
    return _quiet(lambda *x: narrow(np.asarray(function(*[flushed(a).astype(wide) for a in x])).astype(item.dtype)))


def _quiet(function: Callable[..., Any]) -> Callable[..., Any]:
    def operate(*arrays: Any) -> Any:
        with np.errstate(all="ignore"):
            return function(*map(np.asarray, arrays))

    return operate


def _through(proxy: Element, kind: str, item: Element) -> Callable[..., Any]:
    """Return the operation computed in the type `proxy`, rounded to `item`; comparisons return bool."""
    inner = floats(kind, proxy)

    def operate(*arrays: Any) -> Any:
        result = inner(*[convert(np.asarray(x), item, proxy) for x in arrays])
        return result if kind in _COMPARISONS else convert(np.asarray(result), proxy, item)

    return operate


# --- conversions


def conversion(source: Element, target: Element, told: Told) -> Callable[[Any], Any]:
    """Return a function that converts arrays from `source` to `target`."""
    watched = source.is_float and not target.is_float and target.name != "bool" and told is not nobody
    low, high = limits(target) if watched else (0, 0)

    def change(x: Any) -> Any:
        values = np.asarray(x)
        if watched and (wide := np.trunc(values.astype(np.float64))).size:
            if not ((wide >= low) & (wide <= high)).all():
                told("conversion-range")
        return convert(values, source, target)

    return change
