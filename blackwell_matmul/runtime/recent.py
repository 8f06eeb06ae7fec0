"""`Recent`: a dictionary of bounded size that evicts entries not read lately."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """A dictionary of at most `limit` entries. When it is full, entries not read since the last eviction are removed.

    `get` costs two lookups and no reordering; an ordered dictionary would hash a long key again. Threads may share it:
    each step is one dictionary operation.
    """

    __slots__ = ("_entries", "_limit", "_used")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: dict[K, V] = {}
        self._used: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def clear(self) -> None:
        self._entries.clear()
        self._used.clear()

    def get(self, key: K) -> V | None:
        found = self._entries.get(key)
        if found is not None:
            self._used[id(found)] = None
        return found

    def made(self, key: K, make: Callable[..., V], *given: Any) -> V:
        """Return the key's entry, made by make(*given) if missing."""
        found = self._entries.get(key)
        if found is None:
            found = make(*given)
            self.put(key, found)
        else:
            self._used[id(found)] = None
        return found

    def put(self, key: K, value: V) -> None:
        if len(self._entries) >= self._limit:
            self._forget()
        self._entries[key] = value
        self._used[id(value)] = None

    def _forget(self) -> None:
        """Keep the entries read since the last eviction; of more than 3/4 of the limit, keep the later half."""
        kept = [(key, value) for key, value in list(self._entries.items()) if id(value) in self._used]
        if len(kept) > self._limit * 3 // 4:
            kept = kept[len(kept) // 2 :]
        self._entries = dict(kept)
        self._used = {}
