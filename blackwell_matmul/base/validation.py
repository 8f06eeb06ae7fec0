"""Values from users: their text in messages, and checks of their type.

No function here raises, whatever the value: `repr`, `==`, `hash` and attributes are foreign code.
"""

from __future__ import annotations

import inspect
import math
import numbers
import operator
import os
from collections.abc import Callable, Mapping
from itertools import chain, islice
from typing import Any

LONGEST_VALUE_CHARACTERS = 80
"""Maximum characters of a value's text; a longer text is replaced by the value's type."""


def shown(value: object) -> str:
    """Return a value in a few words: a tensor's shape and type, a short one-line `repr`, or the type."""
    if isinstance(value, str):
        quoted = str.__repr__(value)
        return quoted if len(quoted) <= LONGEST_VALUE_CHARACTERS else f"{quoted[:LONGEST_VALUE_CHARACTERS]}..."
    spelled_out = _short(_tensor, value) or (_has_few_items(value) and _short(repr, value))
    return spelled_out or f"an object of type {type(value).__name__[:LONGEST_VALUE_CHARACTERS]}"


def _has_few_items(value: object) -> bool:
    """Return True if nested containers have few items. `repr` of deep containers would overflow a thread's stack."""
    count, left = 0, [value]
    while left and count <= LONGEST_VALUE_CHARACTERS:
        each, count = left.pop(), count + 1
        if type(each) is dict:
            left += islice(chain(each, each.values()), LONGEST_VALUE_CHARACTERS)
        elif type(each) in (list, tuple, set, frozenset):
            left += islice(each, LONGEST_VALUE_CHARACTERS)  # type: ignore[call-overload]
    return count <= LONGEST_VALUE_CHARACTERS


def _short(spell: Callable[[Any], str], value: object) -> str:
    try:
        words = spell(value)
    except Exception:  # foreign code may raise; an integer may be too long to print
        return ""
    return words if len(words) <= LONGEST_VALUE_CHARACTERS and words.isprintable() else ""


def _tensor(value: Any) -> str:
    kind = "an array" if type(value).__module__.startswith("numpy") else "a tensor"
    return f"{kind} of shape {tuple(value.shape)} and type {value.dtype}" if value.shape else ""


def printable(text: str) -> str:
    """Return one line that a terminal, a page and XML can show; line ends and control characters are escaped."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun: 1 error, 2 errors."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def near(file: str) -> str:
    """Return a path to show, relative if inside the current folder."""
    try:
        path = os.path.relpath(file)
    except (OSError, ValueError):
        path = os.pardir
    return printable(file if path.startswith(os.pardir) else path)


def plain_values(values: Mapping[str, object]) -> dict[str, object]:
    """Return values for JSON: a type becomes its name, any other object the text of `shown`."""
    return {name: _plain(value) for name, value in values.items()}


def _plain(value: object) -> object:
    if isinstance(value, (bool, int, str, type(None))) or (isinstance(value, float) and math.isfinite(value)):
        return value
    name = attribute(value, "name")
    return name if isinstance(name, str) else shown(value)


def said(error: BaseException) -> str:
    """Return an error's message on one line, without its final period; "" if it cannot be printed."""
    try:
        return " ".join(str(error).split()).rstrip(".")
    except Exception:
        return ""


def spelled(error: BaseException) -> str:
    """Return `ValueError: message`, without a final period."""
    words = said(error)[:300]
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def plain_text(value: object) -> str | None:
    """Return a str, or an enum member that is a str, as a plain str; None for other values."""
    return str.__str__(value) if isinstance(value, str) else None


def is_text(value: object) -> bool:
    """Return True if a value is text that UTF-8 can encode: the text has no unpaired surrogates."""
    text = plain_text(value)
    return text is not None and text.encode(errors="ignore").decode() == text


def integer(value: object, low: int, high: int) -> int | None:
    """Return a value as an int if it is an integer in this range (Python's or numpy's; not a bool); else None."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        return None
    found = operator.index(value)
    return found if low <= found <= high else None


def number(value: object) -> float | None:
    """Return a real number (not a bool) as a float; None for other values."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def same(value: object, other: object) -> bool:
    """Return True if two values are equal; values that cannot be compared must be identical."""
    try:
        return bool(value == other)
    except Exception:
        return value is other


def attribute(value: object, name: str) -> object:
    """Return an attribute of a value; None if the attribute is missing or raises."""
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def has_memory(tensor: Any) -> bool:
    """Return True if a torch tensor's elements are in memory unchanged; False for sparse, nested or fake tensors."""
    try:
        lazy = tensor.is_sparse or tensor.is_nested or tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor()
        return not lazy and tensor.untyped_storage().device == tensor.device
    except Exception:  # torch raises where there is no storage
        return False


def accepts(value: object, count: int) -> bool:
    """Return True if a value can be called with this many positional arguments."""
    try:
        inspect.signature(value).bind(*range(count))  # type: ignore[arg-type]
    except Exception:
        return False
    return True
