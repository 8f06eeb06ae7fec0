"""Shared resources, as servers with the time at which each is free. Times are in SM cycles."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Callable, Hashable, Iterable

from blackwell_matmul.simulator.findings import nobody


class Pipe:
    """A server of one operation at a time. busy: its busy cycles so far. tell: called for each operation with begin,
    end, and True if it waited for the one before."""

    __slots__ = ("busy", "free", "tell")

    def __init__(self) -> None:
        self.free = self.busy = 0.0
        self.tell: Callable[[float, float, bool], None] = nobody

    def start(self, time: float, cycles: float, ahead: float = 0.0) -> float:
        """Return the begin of an operation of `cycles` that arrives at `time`. It is not before `ahead`, its warp's
        own cycle."""
        begin = max(time, self.free)
        self.free = begin + cycles
        self.busy += cycles
        start = max(begin, ahead)
        self.tell(start, start + cycles, begin > time and begin >= ahead)
        return start


class Calendar(Pipe):
    """A pipe for warps that run ahead of each other, in the order of their cycles. Later requests may use free time
    between earlier ones. taken: sorted (begin, end)."""

    __slots__ = ("taken",)

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[float, float]] = []

    def start(self, time: float, cycles: float, ahead: float = 0.0) -> float:
        """Return when it begins. ahead: cycle of the request, at least `time`; no later request is before `time`."""
        self.taken = [turn for turn in self.taken if turn[1] > time]
        asked = begin = max(time, ahead)
        for taken, end in self.taken:
            if taken >= begin + cycles:
                break
            begin = max(begin, end)
        bisect.insort(self.taken, (begin, begin + cycles))
        self.busy += cycles
        waited, self.free = asked < begin == self.free, max(self.free, begin + cycles)
        self.tell(begin, begin + cycles, waited)
        return begin


class Banks(Calendar):
    """Banks of shared memory. Warps of a group that ask for the same in step are interleaved, so that each is done when
    all are.

    ctas: CTAs whose warps load in step: those of an SM if they multiply what they have loaded themselves
    (h100_mma_sync.json). together: by group, the begin of each and the number of its warps.
    """

    __slots__ = ("ctas", "together")

    def __init__(self) -> None:
        super().__init__()
        self.ctas = 1
        self.together: dict[Hashable, list[tuple[float, int]]] = {}

    def through(self, now: float, time: float, turns: float, group: Hashable, warps: int) -> float:
        """Return when a warp that arrives at `time` is done. turns: bank cycles of each warp of the group."""
        start, others = self.start(now, turns, ahead=time), (warps - 1) * turns
        known = [each for each in self.together.get(group, ()) if each[0] + others + turns > now]
        found = next((each for each in known if abs(start - each[0]) <= others and each[1] < warps), (start, 0))
        first, asked = min(start, found[0]), found[1] + 1
        self.together[group] = [each for each in known if each is not found] + [(first, asked)]
        return max(start, first + others) + turns


class Bucket:
    """A rate in bytes a cycle, which bursts may exceed. later: (bytes, rate) after so many bytes in all. busy: cycles.
    tell: as of a `Pipe`, but a burst may end before it comes."""

    __slots__ = ("burst", "busy", "free", "later", "moved", "rate", "tell")

    def __init__(self, rate: float, burst: float, later: Iterable[tuple[float, float]] = ()) -> None:
        self.rate, self.burst, self.later = rate, burst, deque(later)
        self.free = self.moved = self.busy = 0.0
        self.tell: Callable[[float, float, bool], None] = nobody

    def take(self, time: float, count_bytes: float) -> float:
        """Return when these bytes are through."""
        while self.later and self.moved >= self.later[0][0]:
            self.rate = self.later.popleft()[1]
        full, took = time - self.burst / self.rate, count_bytes / self.rate
        waited, begin = self.free > full, max(self.free, full)
        self.free = begin + took
        self.moved += count_bytes
        self.busy += took
        self.tell(begin, self.free, waited)
        return max(time, self.free)


class TensorMemoryLock:
    """Columns of tensor memory, and the right to allocate them (PTX ISA, "tcgen05.alloc",
    "tcgen05.relinquish_alloc_permit").

    A CTA that has allocated keeps the right until it gives it up or exits; another CTA of the SM waits even if columns
    are free. passed_on: as if each gave it up at once. waited: CTAs that had to wait; most: that held columns at once.
    """

    def __init__(self, columns: int, passed_on: bool = False) -> None:
        self.left, self.passed_on = columns, passed_on
        self.waited = self.most = 0
        self.holder: Hashable = None
        self.held: dict[Hashable, int] = {}
        self.waiting: deque[tuple[Hashable, int, Callable[[bool], None]]] = deque()

    def request(self, owner: Hashable, columns: int, granted: Callable[[bool], None]) -> None:
        """Call `granted` once columns are allocated, with True if the owner had to wait. The owner of the permit comes
        before owners that wait for it."""
        has_right = self.holder is not None and self.holder is owner
        if (has_right or not self.waiting) and self._fits(owner, columns):
            self._grant(owner, columns, granted, False)
        else:
            self.waiting.insert(0 if has_right else len(self.waiting), (owner, columns, granted))

    def relinquish(self, owner: Hashable) -> None:
        if self.holder is owner:
            self.holder = None
        self._serve()

    def free(self, owner: Hashable, columns: int) -> None:
        self.held[owner] -= columns
        self.left += columns
        if not self.held[owner]:
            del self.held[owner]
        self._serve()

    def leave(self, owner: Hashable) -> None:
        """Release the columns and the permit of an exiting owner."""
        self.left += self.held.pop(owner, 0)
        self.relinquish(owner)

    def _fits(self, owner: Hashable, columns: int) -> bool:
        return self.holder in (None, owner) and columns <= self.left

    def _grant(self, owner: Hashable, columns: int, granted: Callable[[bool], None], again: bool) -> None:
        self.holder = None if self.passed_on else owner
        self.left -= columns
        self.waited += again
        self.held[owner] = self.held.get(owner, 0) + columns
        self.most = max(self.most, len(self.held))
        granted(again)

    def _serve(self) -> None:
        while self.waiting and self._fits(*self.waiting[0][:2]):
            self._grant(*self.waiting.popleft(), True)
