"""Sets of events that happen before the next step of an agent, stored as the bits of an int.

An event covers all accesses of one agent between two points at which other agents could observe them. An asynchronous
operation is an event of its own. An access is ordered after another one if the frontier of its agent has the event of
the other. PTX ISA, "Memory Consistency Model": a frontier is closed under causality order. It has one set for each path
to memory, because an order between threads does not cross proxies ("Proxy-preserved base causality order").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from blackwell_matmul.simulator.machine.cta import Cta, Warp


class Frontier:
    """Events that happen before the next step of an agent. generic: for ordinary loads and stores. shared, global_: for
    the async proxy, of shared and of global memory. tensor: for tensor memory, which has accesses of one kind only.
    steps: waits on mbarriers, and accesses of one CTA of a cluster to another, that are complete; they need no memory
    order."""

    __slots__ = ("generic", "global_", "shared", "steps", "tensor")

    def __init__(self) -> None:
        self.clear()

    def join(self, other: Frontier) -> None:
        """Add the events of `other`."""
        self.generic |= other.generic
        self.shared |= other.shared
        self.global_ |= other.global_
        self.tensor |= other.tensor
        self.steps |= other.steps

    def keep(self, other: Frontier) -> None:
        """Keep only events that are also in `other`."""
        self.generic &= other.generic
        self.shared &= other.shared
        self.global_ &= other.global_
        self.tensor &= other.tensor
        self.steps &= other.steps

    def learn(self, events: int) -> None:
        """Add events that are complete for all agents: the completion of an asynchronous operation crosses proxies by
        itself (PTX ISA, "Async proxy": completion is followed by an implicit generic-async proxy fence)."""
        self.generic |= events
        self.shared |= events
        self.global_ |= events
        self.tensor |= events

    def forget(self, kept: int) -> None:
        self.generic &= kept
        self.shared &= kept
        self.global_ &= kept
        self.tensor &= kept
        self.steps &= kept

    def clear(self) -> None:
        self.generic = self.shared = self.global_ = self.tensor = self.steps = 0


class Lanes(Frontier):
    """Lanes of one warp that execute together: all lanes, the elected lane, or some of them.

    name: the lanes in reports. own: the event of their accesses since their last release; 0 if none. issued: tensor
    core operations that the lanes issued. Those complete in order (PTX ISA, tcgen05 "Pipelined Instructions"), so no
    wait is needed between them.
    """

    __slots__ = ("issued", "name", "own", "warp")

    def __init__(self, warp: Warp, name: str) -> None:
        super().__init__()
        self.warp, self.name = warp, name
        self.own = 0
        self.issued = 0

    def __str__(self) -> str:
        who = f"{self.name} of warp {self.warp.index}" if self.name else f"warp {self.warp.index}"
        return f"{who}{self.cta.among_others}"

    @property
    def cta(self) -> Cta:
        return self.warp.cta

    def forget(self, kept: int) -> None:
        super().forget(kept)
        self.issued &= kept


class Events:
    """A pool of bits. A bit is reused after nothing refers to it any more."""

    def __init__(self) -> None:
        self.free: list[int] = []
        self.next = 1
        self.live = 0

    def new(self) -> int:
        bit = self.free.pop() if self.free else self.next
        if bit == self.next:
            self.next <<= 1
        self.live += 1
        return bit

    def sweep(self, kept: int) -> None:
        """Free all bits except `kept`, which are still in use."""
        self.free = [bit for bit in _bits(self.next - 1) if not bit & kept]
        self.live = kept.bit_count()


def _bits(mask: int) -> Iterator[int]:
    while mask:
        bit = mask & -mask
        yield bit
        mask ^= bit


def union(frontiers: Iterable[Frontier]) -> Frontier:
    whole = Frontier()
    for each in frontiers:
        whole.join(each)
    return whole
