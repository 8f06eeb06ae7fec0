"""`Story`: the events of a simulator run, replayed into bars (who was busy when) and the states of mbarriers.

Time is counted in columns: groups of neighbouring events that belong together. It is an order, not a duration.
`PairTracer` makes one list of the events of both CTAs of a pair.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

from blackwell_matmul.simulator.findings import Event
from blackwell_matmul.simulator.machine.barrier import Mbarrier
from blackwell_matmul.simulator.machine.cta import Cta
from blackwell_matmul.simulator.machine.grants import RESPONSE_BYTES
from blackwell_matmul.simulator.trace.tracer import Tracer

PEER = "peer:"
"""What the names of the CTA of odd rank begin with."""

REQUEST = "clusterlaunchcontrol.try_cancel"


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
    """An mbarrier, replayed: the columns of its arrivals, of its phases' ends, and its tx-count over time.

    count: events that arrive in each phase; a warp's arrivals are one.
    """

    count: int = 1
    pending: int = field(init=False)
    tx_bytes: int = 0
    arrivals: list[int] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)
    tx: list[tuple[int, int]] = field(default_factory=lambda: [(0, 0)])

    def __post_init__(self) -> None:
        self.pending = self.count

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
            self.pending = self.count

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

    def __init__(
        self,
        events: Sequence[Event],
        fine: bool = True,
        products: int = 1,
        in_a_row: int = 1,
        counts: Mapping[str, int] | None = None,
        followers: Collection[str] = (),
    ) -> None:
        """fine: the two copies of a k-tile arrive in columns of their own. products: lanes that so many MMAs `in_a_row`
        take in turn. counts: of barriers on which several warps arrive. followers: agents that open no columns."""
        self.fine, self.products, self.in_a_row = fine, products, in_a_row
        self.by_hand = any(event.what == "cp.async" for event in events)
        self.bars: list[Bar] = []
        self.barriers: dict[str, Barrier] = defaultdict(Barrier)
        self.barriers.update({name: Barrier(count) for name, count in (counts or {}).items()})
        self.syncs: list[int] = []
        self.columns = 0
        self._waits: list[tuple[str, int, str, int]] = []
        self._loads: dict[object, deque[tuple[int, str, str, int]]] = defaultdict(deque)
        self._mmas: deque[int] = deque()
        self._commits: deque[str] = deque()
        self._stores: deque[int] = deque()
        self._requests: deque[tuple[int, str]] = deque()
        self._tile: dict[str, int] = defaultdict(int)
        self._expecting = ""
        self._mma_count = 0
        previous: object = None
        for i, event in enumerate(events):
            key = previous if event.agent in followers and previous else self._key(events, i)
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
        if what == "cp.async":
            return ("copy", self._copier(events, i))
        if what == "fence.proxy.async":
            purpose = self._purpose(events, i)
            return "strip" if purpose == "strip" else (purpose, event.agent)
        if event.agent == "tensor memory":
            return "strip"
        if kind == "wait" and "parity" in what:
            return ("wait", what)
        if kind == "arrive" and "expects" not in what:
            return ("answer", event.agent)
        if kind == "arrive":
            self._expecting = what.split()[0]
            return ("load", self._expecting)
        if "(load) to" in what or (what == REQUEST and kind == "issue"):
            return ("load", self._told(what))
        if what.startswith("tcgen05"):
            return ("mma", kind)
        if "(store) of" in what or what.startswith("bulk groups"):
            return "store"
        if event.agent == "TMA" and "(load)" in what and not self.fine:
            return "arrival"
        return kind if kind == "exit" else (kind, event.step)

    def _purpose(self, events: Sequence[Event], i: int) -> str:
        """What a proxy fence is for: copies by hand, a strip of C, or an answer that has been read."""
        if self.by_hand:
            return "copy"
        return "answer" if self._next(events, i).kind == "arrive" else "strip"

    @staticmethod
    def _next(events: Sequence[Event], i: int) -> Event:
        """What the agent of an event does after it."""
        return next(e for e in events[i + 1 :] if e.agent == events[i].agent)

    @staticmethod
    def _copier(events: Sequence[Event], i: int) -> str:
        """The warp whose cp.async this is: the one that fences next."""
        return next(e.agent for e in events[i:] if e.what == "fence.proxy.async")

    def _told(self, what: str) -> str:
        """The barrier that a load tells: the one named behind it, or the one on which its bytes were announced."""
        return what.split(" for ")[1] if " for " in what else self._expecting

    def _take(self, event: Event, column: int, events: Sequence[Event], i: int) -> None:
        what, kind, agent = event.what, event.kind, event.agent
        if kind == "resume":
            self.syncs.append(column)
        elif what == "fence.proxy.async":
            purpose = self._purpose(events, i)
            self.bars.append(Bar(agent, column, column + 1, purpose, "next" if purpose == "answer" else purpose))
        elif kind == "arrive" and "expects" not in what:
            self.barriers[what].change(column, 1)
        elif kind == "arrive":
            name, count = what.split()[0], int(re.findall(r"(\d+) bytes", what)[0])
            self._expecting = name
            self.barriers[name].change(column, 1, count)
            asks = self._next(events, i).what == REQUEST
            self.bars.append(Bar(agent, column, column + 1, "issue", "CLC" if asks else "load"))
        elif what == REQUEST and kind == "issue":
            self._requests.append((column, self._expecting))
        elif what == REQUEST:
            start, name = self._requests.popleft()
            self.barriers[name].change(column, 0, -RESPONSE_BYTES)
            self.bars.append(Bar(agent, start, column, "load", "answer"))
        elif "(load) to" in what:
            told = self._told(what)
            self._loads[event.location].append((column, what.split(" to ")[1], told, _bytes(what)))
        elif agent == "TMA" and kind == "complete" and "(load)" in what:
            start, target, name, count = self._loads[event.location].popleft()
            self.barriers[name].change(column, 0, -count)
            tensor = target.split("[")[0]
            tile = self._tile[tensor]
            self._tile[tensor] += 1
            label = f"{tensor[-1].upper()}, k-tile {tile}" if self.fine else f"k-tile {tile}, A and B"
            self.bars.append(Bar(f"TMA {tensor} {name}", start, column, "load", label))
        elif kind == "wait" and "parity" in what:
            name, parity = what.split(", parity ")
            self._waits.append((agent, column, name, int(parity)))
        elif what == "tcgen05.mma" and kind == "issue":
            self._mmas.append(column)
            self.bars.append(Bar(agent, column, column + 1, "issue", "mma"))
        elif what.startswith("tcgen05.commit to"):
            self._commits.append(what.rsplit(" ", 1)[1])
        elif what == "tcgen05.mma":
            turn = f" {self._mma_count // self.in_a_row % self.products}" if self.products > 1 else ""
            self.bars.append(
                Bar(f"tensor core{turn}", self._mmas.popleft(), column, "mma", f"k-tile {self._mma_count}")
            )
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


class PairTracer(Tracer):
    """The events of both CTAs of a grid of one pair. A load names its barrier, which may be the other CTA's."""

    def __init__(self) -> None:
        super().__init__((0, 0, 0))

    def of(self, warp, kind, what, location) -> None:
        self.add(f"{_whose(warp.cta)}warp {warp.index}", kind, what, (warp.cta.rank, location))

    def issued(self, op, warp, instruction, regions) -> None:
        if "(load)" in op.name:
            what = f"{op.name} to {_whose(op.cta)}{regions['dst']} for {_name(op.barrier)}"
            self.of(warp, "issue", what.replace(op.cta.among_others, ""), op.location)
        elif op.barrier is not None and not regions:
            self.of(warp, "issue", f"{op.name} to {_name(op.barrier)}", op.location)
        else:
            super().issued(op, warp, instruction, regions)

    def completed(self, op, put_off) -> None:
        self.add(op.agent, "complete", op.name, (op.warp.cta.rank, op.location))

    def arrived(self, barrier, warp, instruction, scope, count_bytes) -> None:
        told = f" expects {count_bytes} bytes" if count_bytes else ""
        self.of(warp, "arrive", f"{_name(barrier)}{told}", instruction.location)

    def comes(self, barrier, warp, instruction, parity) -> None:
        self.of(warp, "wait", f"{_name(barrier)}, parity {parity & 1}", instruction.location)


def _whose(cta: Cta) -> str:
    return PEER if cta.rank % 2 else ""


def _name(barrier: Mbarrier) -> str:
    return f"{_whose(barrier.cta)}{barrier.name}"


def _bytes(what: str) -> int:
    """The bytes of "... to s_a[0:128, 0:16]", two an element."""
    size = 2
    for low, high in re.findall(r"(\d+):(\d+)", what):
        size *= int(high) - int(low)
    return size
