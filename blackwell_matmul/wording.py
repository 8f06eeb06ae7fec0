"""Values in messages: whatever a user passes, one short line says what it was."""

from __future__ import annotations

from collections.abc import Iterable

LONGEST = 80
"""Characters of a value's own text; a longer one goes by its type."""


def shown(value: object) -> str:
    """A value in a few words: its `repr` where that is one short line, its type where not or where it has none."""
    try:
        text = repr(value)
    except Exception:  # another's code, or an integer too long for Python to print
        text = ""
    if 0 < len(text) <= LONGEST and "\n" not in text:
        return text
    return f"{text[:LONGEST]}..." if isinstance(value, str) else f"an object of type {type(value).__name__}"


def among(value: object, names: Iterable[str]) -> bool:
    """Whether a value is one of these names; no for what cannot be compared or hashed."""
    return isinstance(value, str) and value in set(names)
