"""Errors for code that is not emulated, and containers that raise `Unknown` for a missing key.

The function that builds an instruction reads its operands, modifiers and tables through these containers. So a form
that the function does not know is refused. Any other exception is a fault of the emulator.
"""

from __future__ import annotations

from collections.abc import Container
from typing import Any, TypeVar

from blackwell_matmul.base.errors import InputError, UnsupportedError

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class Unknown(UnsupportedError):
    """Raised for an instruction, or a form of an instruction, that is not emulated."""


class NotEmulated(UnsupportedError):
    """Raised when an instruction that is not emulated is executed."""


class Malformed(InputError):
    """Raised for code that no assembler accepts, before the kernel runs."""


class Known(dict[K, V]):
    """A mapping of all emulated names; raises `Unknown` for any other name."""

    def __missing__(self, name: Any) -> V:
        raise Unknown(f"{name} is not emulated")


class Parts(tuple[T, ...]):
    """Operands or modifiers in order; an index out of range raises `Unknown`."""

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return Parts(super().__getitem__(place))
        if not -len(self) <= place < len(self):
            raise Unknown("this form, with too few operands or modifiers, is not emulated")
        return super().__getitem__(place)

    def exactly(self, count: int) -> Parts[T]:
        """Return these parts, to be unpacked; raise `Unknown` unless there are `count`."""
        if len(self) != count:
            raise Unknown(f"this form, with {len(self)} operands or modifiers and not {count}, is not emulated")
        return self

    def first_of(self, known: Container[Any]) -> T:
        """Return the first element that is in `known`; raise `Unknown` if there is none."""
        for each in self:
            if each in known:
                return each
        raise Unknown(f"none of {', '.join(map(str, self)) or 'no modifiers'} is emulated here")
