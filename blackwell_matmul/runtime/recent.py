"""`Recent`: a dictionary of bounded size that forgets what was not used lately."""

from __future__ import annotations

from typing import Generic, TypeVar

K = TypeVar("K")
V = TypeVar("V")


class Recent(Generic[K, V]):
    """At most `limit` entries. When it is full, the entries that were not read since the last time go.

    `get` costs two lookups and no reordering, unlike an ordered dictionary, which has to hash a long key again. Threads
    may share it: each step is one operation of a dictionary.
    """

    __slots__ = ("_entries", "_limit", "_used")

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: dict[K, V] = {}
        self._used: dict[int, None] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def get(self, key: K) -> V | None:
        found = self._entries.get(key)
        if found is not None:
            self._used[id(found)] = None
        return found

    def put(self, key: K, value: V) -> None:
        if len(self._entries) >= self._limit:
            self._forget()
        self._entries[key] = value
        self._used[id(value)] = None

    def _forget(self) -> None:
        """Keep what was read since the last time; where that is nearly all, the later half of it."""
        kept = [(key, value) for key, value in list(self._entries.items()) if id(value) in self._used]
        if len(kept) > self._limit * 3 // 4:
            kept = kept[len(kept) // 2 :]
        self._entries = dict(kept)
        self._used = {}
