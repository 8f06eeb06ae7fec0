"""`IdentityMap`: a mapping keyed by object identity.

tilus's register tensors overload `==` (it builds an instruction or raises), so that a plain dict may
call into them on a hash collision. This map compares addresses and keeps its keys alive, so that an
address is never reused.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping
from typing import Any, TypeVar

V = TypeVar("V")


class IdentityMap(MutableMapping[Any, V]):
    """A `MutableMapping` whose keys are compared with `is`."""

    def __init__(self, items: Iterable[tuple[Any, V]] = ()) -> None:
        self._items = {id(key): (key, value) for key, value in items}

    def __getitem__(self, key: Any) -> V:
        return self._items[id(key)][1]

    def __setitem__(self, key: Any, value: V) -> None:
        self._items[id(key)] = (key, value)

    def __delitem__(self, key: Any) -> None:
        del self._items[id(key)]

    def __contains__(self, key: object) -> bool:
        return id(key) in self._items

    def __iter__(self) -> Iterator[Any]:
        return (key for key, _ in self._items.values())

    def __len__(self) -> int:
        return len(self._items)

    def __repr__(self) -> str:
        return f"<IdentityMap of {len(self)}>"
