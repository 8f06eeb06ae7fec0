"""Vector clocks: the accesses that happen before the current step of an agent (PTX ISA, "Causality Order").

An agent is a lane of a warp, or a stream of asynchronous operations that threads wait for in order. Agents of a cluster
are numbered from the cluster's base. A cell is a 64-bit word that identifies an access: clock, agent, strength, and
site, the number of its instruction.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from blackwell_matmul.emulator.lanes import Array

ORDERED, WEAK, EARLIER, SHARED, GLOBAL, BEFORE, TENSOR, MAPS = range(8)
"""Rows of a clock, each a set of accesses.

ORDERED: happened before. WEAK: would have happened before if relaxed edges and edges of narrow scope were strong.
EARLIER: came earlier in time, as an operation's issue before its end. SHARED, GLOBAL: visible to the async proxy in
shared and in global memory. BEFORE: precede a tcgen05.fence::before_thread_sync. TENSOR: from BEFORE, after a
tcgen05.fence::after_thread_sync. MAPS: released by a fence for the tensormap proxy.
"""

ROWS = 8
OWN_ROWS = slice(ORDERED, EARLIER + 1)
"""Rows to which a thread's own accesses are added when the thread releases."""

ASYNC_ROWS = slice(ORDERED, GLOBAL + 1)
"""Rows to which an operation of the async proxy is added by a wait for it."""

TRACKED_ROWS = slice(ORDERED, BEFORE + 1)
"""Rows that tcgen05.commit passes on for the operations that it tracks."""

SITE_BITS, AGENT_BITS, CLOCK_BITS = 18, 24, 20
STRONG = 1 << SITE_BITS
AGENT_SHIFT, CLOCK_SHIFT = SITE_BITS + 1, SITE_BITS + 1 + AGENT_BITS
AGENT_MASK, SITE_MASK = (1 << AGENT_BITS) - 1, (1 << SITE_BITS) - 1


def cell(clock: int, agent: int, site: int, strong: bool = False) -> int:
    return clock << CLOCK_SHIFT | agent << AGENT_SHIFT | strong << SITE_BITS | site


def agent_of(cell: int) -> int:
    return cell >> AGENT_SHIFT & AGENT_MASK


def clock_of(cell: int) -> int:
    return cell >> CLOCK_SHIFT


class VectorClock:
    """Accesses that an agent has observed: for each row, a clock for each agent of its cluster. far: the same for other
    clusters, by base.

    Objects never change, so a reference serves as a copy.
    """

    __slots__ = ("base", "clocks", "far")

    def __init__(self, base: int, clocks: Array, far: dict[int, Array] | None = None) -> None:
        self.base, self.clocks, self.far = base, clocks, far

    def joined(self, other: VectorClock) -> VectorClock:
        """Return the union of both clocks."""
        if other is self:
            return self
        if other.base == self.base and self.far is None and other.far is None:
            return VectorClock(self.base, _most(self.clocks, other.clocks))
        found = {**(self.far or {}), self.base: self.clocks}
        for base, clocks in {**(other.far or {}), other.base: other.clocks}.items():
            found[base] = _most(found[base], clocks) if base in found else clocks
        return VectorClock(self.base, found.pop(self.base), found)

    def only(self, row: int) -> VectorClock:
        """Return a clock with one row and EARLIER, without the other rows."""
        far = {base: _only(clocks, row) for base, clocks in (self.far or {}).items()}
        return VectorClock(self.base, _only(self.clocks, row), far or None)

    def told(self, rows: Any, agents: Any, clocks: Any) -> VectorClock:
        """Return the clock after observing these agents up to these clocks, in some rows."""
        first = int(agents if isinstance(agents, int) else agents[0]) - self.base
        last = first if isinstance(agents, int) else int(agents[-1]) - self.base
        made = _wide(self.clocks, last + 1)
        made = made.copy() if made is self.clocks else made
        count = 1 if isinstance(agents, int) else agents.size
        if last - first + 1 == count and isinstance(rows, slice):
            part = made[rows, first : last + 1]
            np.maximum(part, clocks, out=part)
        else:
            index = np.ix_(np.arange(ROWS)[rows], np.atleast_1d(agents) - self.base)
            made[index] = np.maximum(made[index], clocks)
        return VectorClock(self.base, made, self.far)

    def widened(self, rows: list[int], source: int) -> VectorClock:
        """Return the clock with the row `source` added to other rows, as by a fence."""
        far = self.far and {base: _widened(clocks, rows, source) for base, clocks in self.far.items()}
        return VectorClock(self.base, _widened(self.clocks, rows, source), far)

    def covers(self, other: VectorClock) -> bool:
        """Return True if this clock contains all accesses of `other` by agents of the same cluster."""
        a, b = self.clocks[ORDERED], other.clocks[ORDERED]
        width = min(a.size, b.size)
        return other.base == self.base and bool((a[:width] >= b[:width]).all()) and not b[width:].any()

    def has(self, agent: int, clock: int, row: int = ORDERED) -> bool:
        place = agent - self.base
        if 0 <= place < self.clocks.shape[1]:
            return bool(self.clocks[row, place] >= clock)
        return self._has_far(agent, clock, row)

    def _has_far(self, agent: int, clock: int, row: int) -> bool:
        for base, clocks in (self.far or {}).items():
            if 0 <= agent - base < clocks.shape[1] and clocks[row, agent - base] >= clock:
                return True
        return False

    def missing(self, cells: Array, row: int) -> Array:
        """Return a mask of the cells that this clock has not observed in a row."""
        agents = (cells >> AGENT_SHIFT & AGENT_MASK) - self.base
        clocks, known = cells >> CLOCK_SHIFT, self.clocks[row]
        if (
            int(agents.view(np.uint64).max()) < known.size
        ):  # as unsigned numbers, negative ones (earlier clusters) are large
            return np.asarray(known[agents] < clocks)
        inside = (agents >= 0) & (agents < known.size)
        found = np.ones(cells.shape, bool)
        found[inside] = known[agents[inside]] < clocks[inside]
        if self.far:
            for place in np.flatnonzero(found & ~inside).tolist():
                found[place] = not self._has_far(int(agents[place]) + self.base, int(clocks[place]), row)
        return found


def one_each(cells: Array, slots: Array, bad: Array) -> list[int]:
    """Return the index of one bad cell for each pair of warp and instruction."""
    places = np.flatnonzero(bad)
    if places.size > 1:
        some = cells[places]
        keys = some >> AGENT_SHIFT + 5 << AGENT_SHIFT | (some & SITE_MASK) << 1 | (slots[places] == 0)
        keys &= (1 << CLOCK_SHIFT) - 1
        places = places[np.unique(keys, return_index=True)[1]]
    return [int(place) for place in places]


def added(before: VectorClock | None, known: VectorClock, strong: bool) -> VectorClock:
    """Return a barrier's clock after an arrival that releases `known`. strong: False for a weak edge."""
    start = empty(known) if before is None else before
    return start.joined(known if strong else known.only(WEAK))


def either(a: VectorClock | None, b: VectorClock | None) -> VectorClock | None:
    """Return the union of two clocks; None counts as empty."""
    return b if a is None else a if b is None else a.joined(b)


def empty(known: VectorClock) -> VectorClock:
    """Return an empty clock for the same agents."""
    return VectorClock(known.base, np.zeros_like(known.clocks))


def nothing(base: int, agents: int) -> VectorClock:
    return VectorClock(base, np.zeros((ROWS, agents), np.int32))


def _wide(clocks: Array, width: int) -> Array:
    if clocks.shape[1] >= width:
        return clocks
    made = np.zeros((ROWS, -(-width // 64) * 64), np.int32)
    made[:, : clocks.shape[1]] = clocks
    return made


def _most(a: Array, b: Array) -> Array:
    if a is b:
        return a
    if a.shape != b.shape:
        a, b = _wide(a, b.shape[1]), _wide(b, a.shape[1])
        width = max(a.shape[1], b.shape[1])
        a, b = _wide(a, width), _wide(b, width)
    return np.maximum(a, b)


def _widened(clocks: Array, rows: list[int], source: int) -> Array:
    made = clocks.copy()
    for row in rows:
        np.maximum(made[row], made[source], out=made[row])
    return made


def _only(clocks: Array, row: int) -> Array:
    made = np.zeros_like(clocks)
    made[[row, EARLIER]] = clocks[[row, EARLIER]]
    return made
