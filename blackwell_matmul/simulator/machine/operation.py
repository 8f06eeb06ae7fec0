"""Asynchronous operations, and the groups by which threads wait for them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.machine.barrier import Mbarrier
from blackwell_matmul.simulator.machine.cta import Cta, Warp
from blackwell_matmul.simulator.machine.memory import Region
from blackwell_matmul.simulator.machine.registers import WARP


@dataclass(eq=False, repr=False, slots=True)
class AsyncOperation:
    """An asynchronous operation: an agent of its own, with a fresh identity.

    warp: its issuer. reads: regions that it reads. barrier: the mbarrier that it signals, or None; count_bytes: that it
    brings there. complete: performs its reads and writes; returns True if there are none, or all are deferred
    (deferred.py). signal: then signals the barrier. read_phase: of a bulk store, performs the reads only. pipe:
    operations of one pipe complete in order. peer: the other CTA of the pair, whose memory it accesses as well.

    covers: operations that are complete when it is (a commit's MMAs and copies). registers: by warp, the registers that
    it fills or adds to. remedy: the wait that ends it. waiters: warps yet to wait for it; lanes: mask of those of its
    own warp, by groups. done: it has completed, though no warp may have waited for it yet. source_free: its reads were
    waited for, so the source may be overwritten before the writes.
    """

    cta: Cta
    warp: Warp
    name: str
    agent: str
    location: Location | None
    complete: Callable[[], bool | None]
    signal: Callable[[], None] | None = None
    reads: tuple[Region, ...] = ()
    barrier: Mbarrier | None = None
    count_bytes: int = 0
    pipe: Any = None
    peer: Cta | None = None
    read_phase: Callable[[], None] | None = None
    remedy: str = ""
    covers: tuple[AsyncOperation, ...] = ()
    registers: Mapping[int, np.ndarray] = field(default_factory=dict)
    waiters: int = 1
    lanes: int = 0
    done: bool = False
    source_free: bool = False


EVERY_LANE = (1 << WARP) - 1
"""Mask of all lanes."""


class IssuedGroups:
    """Operations of one family by lanes that have issued the same. They are uncommitted, or in committed groups not
    yet waited for, oldest first. lanes: their mask."""

    __slots__ = ("groups", "lanes", "open")

    def __init__(
        self, lanes: int, groups: Iterable[list[AsyncOperation]] = (), open: Iterable[AsyncOperation] = ()
    ) -> None:
        self.lanes, self.open = lanes, [*open]
        self.groups: deque[list[AsyncOperation]] = deque([[*group] for group in groups])

    def commit(self, remedy: str) -> None:
        """Commit the open operations. remedy: the wait that they need from now on."""
        for op in self.open:
            op.remedy = remedy
        while self.groups and not self.groups[0]:
            self.groups.popleft()  # over, and nobody may ever wait for it
        self.groups.append(self.open)
        self.open = []

    def part(self, lanes: int) -> IssuedGroups:
        """Split off some of the lanes, which issue operations of their own from now on."""
        self.lanes &= ~lanes
        return IssuedGroups(lanes, self.groups, self.open)


def every_groups_of(warp: Warp, family: str) -> list[IssuedGroups]:
    """Return the groups of all lanes of a warp."""
    found: list[IssuedGroups] = warp.groups.setdefault(family, [])
    if not found:
        found.append(IssuedGroups(EVERY_LANE))
    return found


def groups_of(warp: Warp, family: str, lanes: int = EVERY_LANE) -> list[IssuedGroups]:
    """Return these lanes' groups, which belong to threads (PTX ISA, "cp.async.commit_group", also of bulk copies)."""
    every = every_groups_of(warp, family)
    if lanes == EVERY_LANE:
        return every
    for each in [each for each in every if each.lanes & lanes and each.lanes & ~lanes]:
        every.append(each.part(each.lanes & lanes))
    return [each for each in every if each.lanes & lanes]
