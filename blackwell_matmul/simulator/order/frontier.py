"""Events that happen before the next step of an agent: sets of events, kept as the bits of an int.

An event is everything that one agent did between two points at which others could learn of it; an asynchronous
operation is an event of its own. An access is ordered after another when the event of the other is in the frontier of
the accessing agent. PTX ISA, "Memory Consistency Model": a frontier is closed under causality order, and has one set
for each path to memory, because an order between threads does not cross proxies ("Proxy-preserved base causality
order").
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from blackwell_matmul.simulator.machine.cta import Cta, Warp


class Frontier:
    """Events that happen before the next step of an agent. generic: for ordinary loads and stores. shared, global_: for
    the async proxy, of shared and of global memory. tensor: for tensor memory, which has accesses of one kind only.
    steps: waits on mbarriers, and accesses of one CTA of a cluster to another, that are complete; they need no memory
    order.

    generic: as far as ordinary loads and stores can tell. shared, global_: as far as the async proxy can, of shared
    and of global memory. tensor: of tensor memory, which has accesses of one kind only. steps: waits on mbarriers, and
    what one CTA of a cluster did in another, that are over by now; no memory order is needed for that.
    """

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
        """Keep only events that `other` has as well."""
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
    """Lanes of one warp that execute together: all of them, the elected one, or part of them.

    name: as reports call it. own: the event of its accesses since it last published, or 0.
    issued: operations of the tensor core that it issued; those complete in order (PTX ISA, tcgen05 "Pipelined
    Instructions"), so that one need not wait for the others.
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
    """Gives out bits. One is given again only after nothing refers to it any more."""

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
        """Give out again all bits but those in `kept`, which something refers to."""
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
