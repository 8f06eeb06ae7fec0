"""Values that a user passes: what a message calls them, and whether they are what they should be.

Nothing here raises, whatever comes in: `repr`, `==`, `hash` and attributes are another's code.
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

LONGEST = 80
"""Characters of a value's own text; a longer one goes by its type."""


def shown(value: object) -> str:
    """A value in a few words: a tensor's shape and type, or its `repr` where that is one short line, or its type."""
    if isinstance(value, str):
        quoted = str.__repr__(value)
        return quoted if len(quoted) <= LONGEST else f"{quoted[:LONGEST]}..."
    spelled_out = _short(_tensor, value) or (_has_few_items(value) and _short(repr, value))
    return spelled_out or f"an object of type {type(value).__name__[:LONGEST]}"


def _has_few_items(value: object) -> bool:
    """Whether the items of containers, and of those within, are no more than a short line has characters: `repr` of
    deeper ones takes more of the stack than a thread has."""
    count, left = 0, [value]
    while left and count <= LONGEST:
        each, count = left.pop(), count + 1
        if type(each) is dict:
            left += islice(chain(each, each.values()), LONGEST)
        elif type(each) in (list, tuple, set, frozenset):
            left += islice(each, LONGEST)  # type: ignore[call-overload]
    return count <= LONGEST


def _short(spell: Callable[[Any], str], value: object) -> str:
    try:
        words = spell(value)
    except Exception:  # another's code, or an integer too long for Python to print
        return ""
    return words if len(words) <= LONGEST and words.isprintable() else ""


def _tensor(value: Any) -> str:
    kind = "an array" if type(value).__module__.startswith("numpy") else "a tensor"
    return f"{kind} of shape {tuple(value.shape)} and type {value.dtype}" if value.shape else ""


def printable(text: str) -> str:
    """One line that a terminal, a page and XML can show: line ends, control characters, and bytes that were no text,
    become escapes."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def near(file: str) -> str:
    """The path to be shown: from the current folder, where the file is inside it."""
    try:
        path = os.path.relpath(file)
    except (OSError, ValueError):
        path = os.pardir
    return printable(file if path.startswith(os.pardir) else path)


def plain_values(values: Mapping[str, object]) -> dict[str, object]:
    """In values that JSON has; a type goes by its name, the rest by what it is shown as."""
    return {name: _plain(value) for name, value in values.items()}


def _plain(value: object) -> object:
    if isinstance(value, (bool, int, str, type(None))) or (isinstance(value, float) and math.isfinite(value)):
        return value
    name = attribute(value, "name")
    return name if isinstance(name, str) else shown(value)


def said(error: BaseException) -> str:
    """What an error says, on one line without its end; nothing where it cannot say it."""
    try:
        return " ".join(str(error).split()).rstrip(".")
    except Exception:
        return ""


def spelled(error: BaseException) -> str:
    """`ValueError: what it says`, without an end."""
    words = said(error)[:300]
    return f"{type(error).__name__}: {words}" if words else type(error).__name__


def plain_text(value: object) -> str | None:
    """The text that a value is, as a plain str (an enum's member, too), or None."""
    return str.__str__(value) if isinstance(value, str) else None


def is_text(value: object) -> bool:
    """Whether a value is text that a file can hold: half of a surrogate pair is none."""
    text = plain_text(value)
    return text is not None and text.encode(errors="ignore").decode() == text


def integer(value: object, low: int, high: int) -> int | None:
    """The integer in this range that a value is (Python's, numpy's; not a bool), or None."""
    if not isinstance(value, numbers.Integral) or isinstance(value, bool):
        return None
    found = operator.index(value)
    return found if low <= found <= high else None


def number(value: object) -> float | None:
    """The real number that a value is (not a bool), as a float, or None."""
    if not isinstance(value, numbers.Real) or isinstance(value, bool):
        return None
    try:
        return float(value)
    except OverflowError:
        return None


def same(value: object, other: object) -> bool:
    """Whether two values are equal; where they cannot be compared, whether they are one object."""
    try:
        return bool(value == other)
    except Exception:
        return value is other


def attribute(value: object, name: str) -> object:
    """An attribute of a value; None where it has none or does not give it."""
    try:
        return getattr(value, name, None)
    except Exception:
        return None


def has_memory(tensor: Any) -> bool:
    """Whether the elements of a torch tensor lie in memory as they are; not of a sparse, nested or fake one."""
    try:
        lazy = tensor.is_sparse or tensor.is_nested or tensor.is_conj() or tensor.is_neg() or tensor._is_zerotensor()
        return not lazy and tensor.untyped_storage().device == tensor.device
    except Exception:  # torch raises where there is no storage
        return False


def accepts(value: object, count: int) -> bool:
    """Whether a value is a function that says it can be called with so many arguments."""
    try:
        inspect.signature(value).bind(*range(count))  # type: ignore[arg-type]
    except Exception:
        return False
    return True
