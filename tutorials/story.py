"""`Story`: the events of a simulator run, replayed into bars (who was busy when) and the states of mbarriers.

Time is counted in columns: groups of neighbouring events that belong together. It is an order, not a duration.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from blackwell_matmul.simulator.findings import Event


@dataclass
class Bar:
    """Something that lasts from one column to another. kind: what it is drawn as."""

    lane: str
    start: int
    end: int
    kind: str
    label: str = ""


@dataclass
class Barrier:
    """An mbarrier, replayed: the columns of its arrivals, of its phases' ends, and its tx-count over time."""

    pending: int = 1
    tx_bytes: int = 0
    arrivals: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    tx: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])

    @property
    def phase(self) -> int:
        return len(self.ends)

    def change(self, column: int, arrivals: int = 0, tx_bytes: int = 0) -> None:
        self.pending -= arrivals
        self.tx_bytes += tx_bytes
        if arrivals:
            self.arrivals.append(column)
        if tx_bytes:
            self.tx.append((column, self.tx_bytes))
        if self.pending == 0 and self.tx_bytes == 0:
            self.ends.append(column)
            self.pending = 1

    def end_after(self, column: int, parity: int) -> int:
        """Where a wait for `parity` that starts at `column` ends: at once, if the phase before this one has it."""
        phase = sum(end < column for end in self.ends)
        if (phase ^ parity) & 1:
            return column
        if phase == len(self.ends):
            raise ValueError("a wait that never ends")
        return max(self.ends[phase], column)


class Story:
    """The events of one CTA as bars in lanes, and its barriers. Columns are groups of events that belong together."""

    def __init__(self, events: Sequence[Event], fine: bool = True, products: int = 1) -> None:
        """fine: the two copies of a k-tile arrive in columns of their own. products: lanes that they take in turn."""
        self.fine, self.products = fine, products
        self.bars: list[Bar] = []
        self.barriers: dict[str, Barrier] = defaultdict(Barrier)
        self.syncs: list[int] = []
        self.columns = 0
        self._waits: list[tuple[str, int, str, int]] = []
        self._loads: dict[object, deque[tuple[int, str, str, int]]] = defaultdict(deque)
        self._mmas: deque[int] = deque()
        self._commits: deque[str] = deque()
        self._stores: deque[int] = deque()
        self._tile: dict[str, int] = defaultdict(int)
        self._expecting = ""
        self._mma_count = 0
        previous: object = None
        for i, event in enumerate(events):
            key = self._key(events, i)
            if key != previous:
                self.columns += 1
                previous = key
            self._take(event, self.columns - 1, events, i)
        for lane, column, name, parity in self._waits:
            end = self.barriers[name].end_after(column, parity)
            self.bars.append(Bar(lane, column, end, "wait", str(parity)))

    def _key(self, events: Sequence[Event], i: int) -> object:
        """Neighbours with the same key share a column."""
        event = events[i]
        what, kind = event.what, event.kind
        if what == "cp.async" or what == "fence.proxy.async":
            return ("copy", self._copier(events, i)) if self._in_loop(events, i) else "strip"
        if event.agent == "tensor memory":
            return "strip"
        if kind == "wait" and "parity" in what:
            return ("wait", what)
        if kind == "arrive":
            self._expecting = what.split()[0]
            return ("load", self._expecting)
        if "(load) to" in what:
            return ("load", self._expecting)
        if what.startswith("tcgen05"):
            return ("mma", kind)
        if "(store) of" in what or what.startswith("bulk groups"):
            return "store"
        if event.agent == "TMA" and "(load)" in what and not self.fine:
            return "arrival"
        return kind if kind == "exit" else (kind, event.step)

    @staticmethod
    def _in_loop(events: Sequence[Event], i: int) -> bool:
        return any(e.what.startswith("tcgen05.mma") and e.kind == "issue" for e in events[i:])

    @staticmethod
    def _copier(events: Sequence[Event], i: int) -> str:
        """The warp whose cp.async this is: the one that fences next."""
        return next(e.agent for e in events[i:] if e.what == "fence.proxy.async")

    def _take(self, event: Event, column: int, events: Sequence[Event], i: int) -> None:
        what, kind, agent = event.what, event.kind, event.agent
        if kind == "resume":
            self.syncs.append(column)
        elif what == "fence.proxy.async":
            loop = self._in_loop(events, i)
            kind = "copy" if loop else "strip"
            self.bars.append(Bar(agent, column, column + 1, kind, kind))
        elif kind == "arrive":
            name, count = what.split()[0], int(re.findall(r"(\d+) bytes", what)[0])
            self._expecting = name
            self.barriers[name].change(column, 1, count)
            self.bars.append(Bar(agent, column, column + 1, "issue", "load"))
        elif "(load) to" in what:
            self._loads[event.location].append((column, what.split(" to ")[1], self._expecting, _bytes(what)))
        elif agent == "TMA" and kind == "complete" and "(load)" in what:
            start, target, name, count = self._loads[event.location].popleft()
            self.barriers[name].change(column, 0, -count)
            letter = target[2].upper()
            tile = self._tile[letter]
            self._tile[letter] += 1
            label = f"{letter}, k-tile {tile}" if self.fine else f"k-tile {tile}, A and B"
            self.bars.append(Bar(f"TMA {target.split('[')[0]} {name}", start, column, "load", label))
        elif kind == "wait" and "parity" in what:
            name, parity = what.split(", parity ")
            self._waits.append((agent, column, name, int(parity)))
        elif what == "tcgen05.mma" and kind == "issue":
            self._mmas.append(column)
            self.bars.append(Bar(agent, column, column + 1, "issue", "mma"))
        elif what.startswith("tcgen05.commit to"):
            self._commits.append(what.rsplit(" ", 1)[1])
        elif what == "tcgen05.mma":
            turn = f" {self._mma_count % self.products}" if self.products > 1 else ""
            self.bars.append(Bar(f"tensor core{turn}", self._mmas.popleft(), column, "mma", f"tile {self._mma_count}"))
            self._mma_count += 1
        elif what == "tcgen05.commit":
            self.barriers[self._commits.popleft()].change(column, 1)
        elif "(store) of" in what:
            self._stores.append(column)
            self.bars.append(Bar(agent, column, column + 1, "issue", "store"))
        elif agent == "TMA" and "(store)" in what:
            start, strip = self._stores.popleft(), self._tile["store"]
            self._tile["store"] += 1
            self.bars.append(Bar(f"TMA store {strip}", start, start + 1, "read", "read"))
            self.bars.append(Bar(f"TMA store {strip}", start + 1, column + 1, "write", "write to C"))


def _bytes(what: str) -> int:
    """The bytes of "... to s_a[0:128, 0:16]", two an element."""
    size = 2
    for low, high in re.findall(r"(\d+):(\d+)", what):
        size *= int(high) - int(low)
    return size
