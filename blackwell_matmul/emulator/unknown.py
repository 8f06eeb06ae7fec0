"""Refusal of instructions that are not emulated: `Unknown`, and containers that raise it for a missing key.

A maker of an instruction reads the statement and its tables through these containers, so that a form that the maker
does not know is refused. Any other exception is a fault of the emulator.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, TypeVar

from blackwell_matmul.base.errors import InputError, UnsupportedError

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class Unknown(UnsupportedError):
    """Instruction, or form of one, that is not emulated."""


class NotEmulated(UnsupportedError):
    """Raised when an instruction that is not emulated is executed."""


class Malformed(InputError):
    """Code that no assembler accepts; it is refused before the kernel runs."""


class Known(dict[K, V]):
    """A mapping of all emulated names; `Unknown` for any other name."""

    def __missing__(self, name: Any) -> V:
        raise Unknown(f"{name} is not emulated")


class Parts(tuple[T, ...]):
    """Operands or modifiers in order; `Unknown` for an index out of range."""

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return Parts(super().__getitem__(place))
        if not -len(self) <= place < len(self):
            raise Unknown("this form, with too few operands or modifiers, is not emulated")
        return super().__getitem__(place)

    def exactly(self, count: int) -> Parts[T]:
        """Return these parts, for unpacking; `Unknown` unless there are `count`."""
        if len(self) != count:
            raise Unknown(f"this form, with {len(self)} operands or modifiers and not {count}, is not emulated")
        return self

    def first_of(self, known: Container[Any]) -> T:
        """Return the first element that is in `known`; `Unknown` if there is none."""
        for each in self:
            if each in known:
                return each
        raise Unknown(f"none of {', '.join(map(str, self)) or 'no modifiers'} is emulated here")
