"""Constant expressions: operators on 64-bit integers and on floats (PTX ISA, "Constant Expressions").

A value is a number and a flag: True for .u64, False for .s64 and for floats.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable
from typing import Any

Value = tuple[int | float, bool]

LEVELS = (
    ("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!="), ("<", "<=", ">", ">="), ("<<", ">>"), ("+", "-"),
    ("*", "/", "%"),
)  # fmt: skip
"""Binary operators by precedence, the lowest first."""

SUMS = LEVELS.index(("+", "-"))

UNARY = ("-", "+", "!", "~")

_MASK = (1 << 64) - 1


def _quotient(a: Any, b: Any) -> Any:
    if isinstance(a, float) or isinstance(b, float):
        return a / b
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


_BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "||": lambda a, b: bool(a) or bool(b), "&&": lambda a, b: bool(a) and bool(b), "|": operator.or_,
    "^": operator.xor, "&": operator.and_, "==": operator.eq, "!=": operator.ne, "<": operator.lt,
    "<=": operator.le, ">": operator.gt, ">=": operator.ge, "<<": lambda a, b: a << (b & 63),
    ">>": lambda a, b: a >> (b & 63), "+": operator.add, "-": operator.sub, "*": operator.mul, "/": _quotient,
    "%": lambda a, b: a - b * int(_quotient(a, b)),
}  # fmt: skip


def wrapped(number: int | float, is_unsigned: bool) -> Value:
    """Return an integer's low 64 bits as .u64 or .s64; a float unchanged."""
    if isinstance(number, float):
        return number, False
    low = int(number) & _MASK
    return (low if is_unsigned or low < 1 << 63 else low - (1 << 64)), is_unsigned


def unary(symbol: str, value: Value) -> Value:
    """Return the value of a unary operator on an operand."""
    number, is_unsigned = value
    if symbol == "!":
        return int(not number), False
    if symbol == "~":
        return wrapped(~int(number), True)
    return wrapped(-number if symbol == "-" else number, is_unsigned)


def binary(symbol: str, left: Value, right: Value) -> Value:
    """Return the value of a binary operation; raise ValueError if there is none, as for a division by zero."""
    shifts = symbol in ("<<", ">>")
    is_unsigned = symbol in ("&", "|", "^") or left[1] or (right[1] and not shifts)
    a, b = wrapped(left[0], is_unsigned)[0], wrapped(right[0], is_unsigned)[0]
    try:
        found = _BINARY[symbol](a, b)
    except (TypeError, ZeroDivisionError) as error:
        raise ValueError(f"{a} {symbol} {b} has no value") from error
    if isinstance(found, bool):
        return int(found), False
    if isinstance(found, float) and math.isnan(found):
        raise ValueError(f"{a} {symbol} {b} has no value")
    return wrapped(found, is_unsigned)
