"""Agents: lanes of a warp, in groups that have observed the same accesses, and streams of asynchronous operations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np

from blackwell_matmul.emulator.code import Order
from blackwell_matmul.emulator.lanes import LANES, Array, indices
from blackwell_matmul.emulator.order.clocks import OWN_ROWS, WEAK, VectorClock, either, nothing
from blackwell_matmul.emulator.order.touched_registers import HeldRegisters

SCOPES = ("cta", "cluster", "gpu", "sys")
STREAMS = 1024
"""Maximum number of operation streams in a cluster."""


class OperationStream(NamedTuple):
    """Asynchronous operations that threads wait for in order. kind: of their group, or "mbarrier". what: a noun for
    reports. warp: number of the issuing warp, -1 for none."""

    kind: str
    what: str
    warp: int = -1


@dataclass(slots=True)
class LaneGroup:
    """Lanes of a warp that have observed the same accesses. seen: clock read by relaxed reads, to be acquired at the
    next fence. released: clock that the last fence of each scope (cta, cluster, gpu) released."""

    mask: int
    known: VectorClock
    seen: VectorClock | None = None
    released: tuple[VectorClock | None, VectorClock | None, VectorClock | None] = (None, None, None)


class ClusterAgents:
    """The agents of a cluster, numbered from `base`: lanes in order, then streams. Warps are numbered within the
    cluster.

    This object outlives the cluster, so it holds no reference to CTAs.
    """

    def __init__(self, cluster: Any, base: int) -> None:
        self.base, self.indices = base, [cta.index for cta in cluster.ctas]
        self.warps_of_cta = len(cluster.ctas[0].warps)
        self.lanes = len(cluster.ctas) * self.warps_of_cta * LANES
        self.start = nothing(base, -(-self.lanes // 64) * 64 + 64)
        self.streams: dict[Any, int] = {}
        self.told: list[OperationStream] = []

    @property
    def end(self) -> int:
        return self.base + self.lanes + STREAMS

    def number(self, warp: Any) -> int:
        return int(warp.cta.rank * self.warps_of_cta + warp.index)

    def has_started(self, cta: Any, known: VectorClock) -> bool:
        """Return True if `known` has observed any access of the CTA, even by a weak edge."""
        width = self.warps_of_cta * LANES
        return bool(known.clocks[WEAK, cta.rank * width : (cta.rank + 1) * width].any())

    def name(self, number: int) -> str:
        return f"warp {number % self.warps_of_cta} of CTA {self.indices[number // self.warps_of_cta]}"

    def stream(self, key: Any, kind: str, what: str, count: int = 1, warp: int = -1) -> int:
        """Return the first agent of a stream, made on first use. A stream has one agent for each of `count` lanes."""
        found = self.streams.get(key)
        if found is None:
            found = self.streams[key] = self.base + self.lanes + len(self.told)
            self.told += [OperationStream(kind, what, warp)] * count
        return found

    def stream_of(self, agent: int) -> OperationStream | None:
        place = agent - self.base - self.lanes
        return self.told[place] if 0 <= place < len(self.told) else None

    def warp_of(self, agent: int) -> int:
        """Return the number of the agent's warp; -1 for operations that an mbarrier counts."""
        stream = self.stream_of(agent)
        return (agent - self.base) // LANES if stream is None else stream.warp


@dataclass(slots=True)
class WarpAgents:
    """The agents of a warp's lanes. first: agent of lane 0. clock: of current accesses; advances when lanes release.
    copied: by lane, the clock up to which the lane has waited for its cp.async, whose agents begin at `copies`. last:
    the last issued operation. products: number of issued wgmma."""

    warp: Any
    cluster: ClusterAgents
    first: int
    clock: int = 1
    groups: list[LaneGroup] = field(default_factory=list)
    copies: int = 0
    copied: Any = None
    registers: HeldRegisters = field(default_factory=HeldRegisters)
    last: Flying | None = None
    products: int = 0

    def stream(self, key: Any, kind: str, what: str, count: int = 1) -> int:
        """Return the first agent of a stream of this warp."""
        number, name = self.cluster.number(self.warp), f"{what} of {name_of(self.warp)}"
        return self.cluster.stream((self.warp, key), kind, name, count, number)

    def parts(self, mask: int) -> Iterator[LaneGroup]:
        """Yield the groups of these lanes, after separating them from other lanes."""
        for each in list(self.groups):
            some = each.mask & mask
            if some and some != each.mask:
                each.mask &= ~mask
                each = LaneGroup(some, each.known, each.seen, each.released)
                self.groups.append(each)
            if some:
                yield each

    def known(self, mask: int) -> VectorClock:
        """Return the union of the clocks that these lanes have observed."""
        found: VectorClock | None = None
        for each in self.groups:
            if each.mask & mask:
                found = either(found, each.known)
        assert found is not None
        return found

    def sent(self, mask: int) -> VectorClock:
        """Return the clock that these lanes release: observed accesses, and their own accesses until now."""
        lanes = lanes_of(mask)
        known = self.known(mask).told(OWN_ROWS, self.first + lanes, self.clock)
        if self.copied is not None:
            known = known.told(OWN_ROWS, self.copies + lanes, self.copied[lanes])
        self.clock += 1
        return known

    def learn(self, mask: int, agent: int, clock: int, rows: slice) -> None:
        """Record that these lanes have observed a stream's operations up to a clock, in some rows."""
        for each in self.parts(mask):
            if not each.known.has(agent, clock, rows.stop - 1):
                each.known = each.known.told(rows, agent, clock)

    def receive(self, mask: int, known: VectorClock) -> None:
        for each in self.parts(mask):
            each.known = each.known.joined(known)

    def settle(self, mask: int, known: VectorClock) -> None:
        """Merge these lanes into one group with this clock, which must include their own accesses."""
        parts = list(self.parts(mask))
        first = parts[0]
        for each in parts[1:]:
            first.mask |= each.mask
            first.seen = either(first.seen, each.seen)
            pairs = zip(first.released, each.released)
            first.released = tuple(either(a, b) for a, b in pairs)  # type: ignore[assignment]
            self.groups.remove(each)
        first.known = known

    def fence(self, mask: int, order: Order) -> None:
        """Execute a fence. It acquires the clocks that earlier relaxed reads saw. Later relaxed writes release what
        these lanes have observed. A fence with .acquire or .release semantics has only one of these effects."""
        level = min(SCOPES.index(order.scope), 2)
        for each in list(self.parts(mask)):
            if each.seen is not None and order.semantics != "release":
                each.known, each.seen = each.known.joined(each.seen), None
            if order.semantics != "acquire":
                sent, before = self.sent(each.mask), each.released
                each.released = tuple(sent if place <= level else before[place] for place in range(3))  # type: ignore[assignment]


def name_of(warp: Any) -> str:
    return f"warp {warp.index} of CTA {warp.cta.index}"


@lru_cache(maxsize=4096)
def lanes_of(mask: int) -> Array:
    """Return the indices of the lanes in the mask, as a read-only array."""
    return np.array(indices(mask), np.int64)


@dataclass(slots=True, eq=False)
class Flying:
    """An asynchronous operation in flight. known: clock that its issuer had observed. clock, agent, reader: its clock
    in its streams for writes and for reads; -1 until an mbarrier determines the stream. since: clock of each warp at
    the issue, if operations complete late.

    begin: clock of the first operation that the same execution of an instruction issued. sources: memory and offset of
    all reads of these operations. product: of a wgmma, its CTA, warpgroup and number. waited: True once the warp has
    waited for a wgmma.
    """

    known: VectorClock
    warp: WarpAgents
    lanes: int
    clock: int
    site: int
    proxy: str
    agent: int = -1
    reader: int = -1
    per_lane: bool = False
    pipelined: int = -1
    since: dict[int, int] | None = None
    copied: Any = None
    pending: list[tuple[Any, Any, bool]] = field(default_factory=list)
    begin: int = 0
    sources: set[tuple[Any, int]] = field(default_factory=set)
    product: Any = None
    waited: bool = False
