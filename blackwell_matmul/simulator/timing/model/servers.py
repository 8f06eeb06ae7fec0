"""What operations share, as servers that know when they are free. Times are in SM cycles."""

from __future__ import annotations

import bisect
from collections import deque
from collections.abc import Callable, Hashable, Iterable


class Pipe:
    """Serves one after the other. busy: for how long it has. tell: is called with the cycles of each, and whether it
    waited for the one before it."""

    __slots__ = ("busy", "free", "tell")

    def __init__(self) -> None:
        self.free = self.busy = 0.0
        self.tell: Callable[[float, float, bool], None] = _nobody

    def start(self, time: float, cycles: float, ahead: float = 0.0) -> float:
        """When one that comes at this time, and takes so long, begins. ahead: the time of a warp that has its turn now
        and needs it no sooner than then; others may have theirs meanwhile."""
        begin = max(time, self.free)
        self.free = begin + cycles
        self.busy += cycles
        start = max(begin, ahead)
        self.tell(start, start + cycles, begin > time and begin >= ahead)
        return start


def _nobody(start: float, end: float, waited: bool) -> None:
    pass


class Calendar(Pipe):
    """A pipe that serves in the order of time warps which are ahead of each other: who is asked later, but comes
    sooner, has what is free between the others' turns. taken: (begin, end) of these, by time."""

    __slots__ = ("taken",)

    def __init__(self) -> None:
        super().__init__()
        self.taken: list[tuple[float, float]] = []

    def start(self, time: float, cycles: float, ahead: float = 0.0) -> float:
        """ahead: as time, or later; nobody comes any more before the former."""
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
    """Of shared memory. Warps that ask for the same in step are served in turns, so that each is done when all are.
    ctas: whose warps are in step, too, for what they load: those of an SM, where they multiply what they have loaded
    themselves (h100_mma_sync.json). together: when those of each group began, and how many have asked."""

    __slots__ = ("ctas", "together")

    def __init__(self) -> None:
        super().__init__()
        self.ctas = 1
        self.together: dict[Hashable, list[tuple[float, int]]] = {}

    def through(self, now: float, time: float, turns: float, group: Hashable, warps: int) -> float:
        """When a warp that comes at this time is; now, or later. turns: of each of the group's warps."""
        start, others = self.start(now, turns, ahead=time), (warps - 1) * turns
        known = [each for each in self.together.get(group, ()) if each[0] + others + turns > now]
        found = next((each for each in known if abs(start - each[0]) <= others and each[1] < warps), (start, 0))
        first, asked = min(start, found[0]), found[1] + 1
        self.together[group] = [each for each in known if each is not found] + [(first, asked)]
        return max(start, first + others) + turns


class Bucket:
    """A rate, in bytes a cycle, that bursts of so many bytes may exceed. later: (bytes, rate), which it has once so
    many have come, by their number. busy: for how many cycles. tell: as of a `Pipe`, but a burst may end before it
    comes."""

    __slots__ = ("burst", "busy", "free", "later", "moved", "rate", "tell")

    def __init__(self, rate: float, burst: float, later: Iterable[tuple[float, float]] = ()) -> None:
        self.rate, self.burst, self.later = rate, burst, deque(later)
        self.free = self.moved = self.busy = 0.0
        self.tell: Callable[[float, float, bool], None] = _nobody

    def take(self, time: float, count_bytes: float) -> float:
        """When that many bytes are through."""
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
    "tcgen05.relinquish_alloc_permit"): a CTA that has allocated keeps it until it gives it up or exits, and another
    one of the SM waits, though columns are free. passed_on: as if each gave it up at once. waited: how many have; most:
    that had columns at once."""

    def __init__(self, columns: int, passed_on: bool = False) -> None:
        self.left, self.passed_on = columns, passed_on
        self.waited = self.most = 0
        self.holder: Hashable = None
        self.held: dict[Hashable, int] = {}
        self.waiting: deque[tuple[Hashable, int, Callable[[bool], None]]] = deque()

    def request(self, owner: Hashable, columns: int, granted: Callable[[bool], None]) -> None:
        """granted is called once it is; with True where it had to wait."""
        if not self.waiting and self._fits(owner, columns):
            self._grant(owner, columns, granted, False)
        else:
            self.waiting.append((owner, columns, granted))

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
        """It exits."""
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
