"""The last accesses to each part of a storage that a later access could race with.

Rectangles are in the storage's coordinates. Single elements are compared only where rectangles overlap that the
accesses do not fill. An access that is ordered after an earlier one of the same part replaces it, so the list grows
with the parts of the storage and not with the run.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np

from blackwell_matmul.simulator.description import Instruction
from blackwell_matmul.simulator.machine.memory import Box, Region

MANY = 24
"""Number of accesses above which numpy compares all boxes together."""


class PastAccess(NamedTuple):
    """An access: its box, its event, True for a write, and its agent (see `happens_before`). before: events of
    accesses to the same part that it is ordered after."""

    box: Box
    event: int
    write: bool
    who: Any
    region: Region
    before: int = 0

    @property
    def instruction(self) -> Instruction:
        """Return the instruction of the access, or of its operation."""
        found: Instruction = self.who[0] if type(self.who) is tuple else self.who.instruction
        return found


class Shadow:
    """Accesses of one storage that could still race."""

    __slots__ = ("_table", "accesses")

    def __init__(self) -> None:
        self.accesses: list[PastAccess] = []
        self._table: np.ndarray | None = None

    def events(self) -> int:
        found = 0
        for access in self.accesses:
            found |= access.event
        return found

    def record(self, region: Region, write: bool, event: int, known: int, who: Any) -> tuple[int, list[PastAccess]]:
        """Add an access. Return the events that it is ordered after, also through other accesses, and the accesses
        that race with it."""
        seen, racing, replaced = 0, [], []
        for i in self._near(region.box):
            access = self.accesses[i]
            if not (write or access.write):
                if access.box == region.box and access.event & known and _same(access.region, region):
                    replaced.append(i)
                    seen |= access.event | access.before
                continue
            if access.event & known:
                seen |= access.event | access.before
                if write and (region is access.region or (region.dense and covers(region.box, access.box))):
                    replaced.append(i)
            elif not _copies(access, region, who) and access.region.meets(region):
                racing.append(access)
        self._replace(replaced, PastAccess(region.box, event, write, who, region, seen))
        return seen, racing

    def elsewhere(self, region: Region, write: bool, known: int) -> tuple[int, list[PastAccess]]:
        """Return the same as `record`, for an access to another storage that shares bytes with this one and records
        the access itself."""
        met = [a for a in self.accesses if (write or a.write) and a.region.meets(region)]
        seen = 0
        for access in met:
            seen |= access.event | access.before if access.event & known else 0
        return seen, [access for access in met if not access.event & known]

    def near(self, box: Box) -> list[PastAccess]:
        """Return the accesses whose boxes overlap this box."""
        return [self.accesses[i] for i in self._near(box)]

    def _near(self, box: Box) -> list[int]:
        """Return the indices of accesses whose boxes overlap this box, in order."""
        count = len(self.accesses)
        if count < MANY:
            return [i for i, access in enumerate(self.accesses) if access.box == box or touch(access.box, box)]
        if self._table is None:
            self._table = np.zeros((2 * count, len(box), 2), np.int64)  # with room for more
            self._table[:count] = [access.box for access in self.accesses]
        wanted, table = np.array(box).reshape(-1, 2), self._table[:count]
        meet = ((table[:, :, 0] < wanted[:, 1]) & (wanted[:, 0] < table[:, :, 1])).all(axis=1)
        hits: list[int] = np.flatnonzero(meet).tolist()
        return hits

    def _replace(self, old: list[int], new: PastAccess) -> None:
        """Replace the first of the old accesses by the new one, and fill the gaps of the others with the last
        accesses."""
        if not old:
            self._put(len(self.accesses), new)
            return
        self._put(old[0], new)
        for i in reversed(old[1:]):
            last = self.accesses.pop()
            if i < len(self.accesses):
                self._put(i, last)

    def _put(self, i: int, access: PastAccess) -> None:
        self.accesses[i : i + 1] = [access]
        if self._table is not None and i < len(self._table):
            self._table[i] = access.box
        else:
            self._table = None

    def forget(self, kept: int) -> None:
        """Remove all but these events from the orders of accesses."""
        self.accesses = [access._replace(before=access.before & kept) for access in self.accesses]

    def drop(self, unneeded: Callable[[PastAccess], bool]) -> None:
        """Remove accesses that nothing can race with any more."""
        self.accesses = [access for access in self.accesses if not unneeded(access)]
        self._table = None


def _same(one: Region, other: Region) -> bool:
    """Return True if both have the same elements of one box."""
    if one is other or (one.dense and other.dense):
        return True
    return not one.dense and not other.dense and np.array_equal(one.flat(), other.flat())


def _copies(access: PastAccess, region: Region, who: Any) -> bool:
    """Return True if warps of a CTA store copies of the same elements in one instruction: the values are equal."""
    if not type(who) is tuple is type(access.who) or access.box != region.box:
        return False
    (instruction, lanes), (other, others) = who, access.who
    return instruction is other and lanes.cta is others.cta


def touch(one: Box, other: Box) -> bool:
    for (a, b), (c, d) in zip(one, other):  # noqa: SIM110 - the hottest line of the checks, and twice as fast so
        if a >= d or c >= b:
            return False
    return True


def covers(outer: Box, inner: Box) -> bool:
    return all(a <= c and d <= b for (a, b), (c, d) in zip(outer, inner))
