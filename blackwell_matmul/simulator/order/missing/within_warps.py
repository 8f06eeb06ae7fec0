"""Races between lanes of one warp: accesses of two lanes to one element, without a barrier between both.

Lanes of a warp execute an instruction together, and PTX orders nothing by that (PTX ISA, "Memory Consistency Model:
Causality Order"). A barrier orders them, as `self.sync()` in a warp does. So does an mbarrier on which all of them
arrive, directly or through other warps, before they wait. A lane knows of the end of its own `cp.async` alone, so
that a barrier before the wait does not order the copies.
"""

from __future__ import annotations

import functools
import operator
from typing import NamedTuple

import numpy as np

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.description import Instruction
from blackwell_matmul.simulator.findings import Finding, Severity
from blackwell_matmul.simulator.machine.memory import Region, meet
from blackwell_matmul.simulator.order.frontier import Lanes
from blackwell_matmul.simulator.order.knowledge import Operation

KEPT_ACCESSES = 64
"""Number of accesses that are kept for lanes that execute together."""


class _Access(NamedTuple):
    """An access by lanes that execute together. operation: the copies that make it, if they are asynchronous."""

    instruction: Instruction
    region: Region
    write: bool
    operation: Operation | None


class WithinWarps:
    """Accesses of lanes that execute together, since their last barrier, and the races among them. recent: with the
    events of the arrivals that release each access."""

    def __init__(self) -> None:
        self.recent: dict[Lanes, dict[_Access, int]] = {}
        self.races: dict[tuple[Region, Region, bool, bool], bool] = {}
        self.found: dict[tuple[Location | None, Location | None, str], tuple[Lanes, Finding]] = {}

    @property
    def events(self) -> int:
        return functools.reduce(operator.or_, (e for recent in self.recent.values() for e in recent.values()), 0)

    def accessed(
        self, lanes: Lanes, instruction: Instruction, region: Region, write: bool, operation: Operation | None = None
    ) -> None:
        """Record an access by the lanes, and its races with earlier ones."""
        if region.holders is None:
            return
        here, recent = _Access(instruction, region, write, operation), self.recent.setdefault(lanes, {})
        for before in recent:
            if before.region.storage is region.storage and self._conflict(before, here):
                self._race(lanes, before, here)
        recent.pop(here, None)
        recent[here] = 0
        if len(recent) > KEPT_ACCESSES:
            del recent[next(iter(recent))]

    def released(self, lanes: Lanes, event: int) -> None:
        """Record an arrival of all these lanes: whoever observes the event is ordered after their accesses."""
        recent = self.recent.get(lanes, {})
        for access in recent:
            recent[access] |= event

    def observed(self, lanes: Lanes) -> None:
        """Forget the accesses that a wait of the lanes is ordered after."""
        recent = self.recent.get(lanes)
        if recent:
            self.recent[lanes] = {access: events for access, events in recent.items() if not events & lanes.steps}

    def forget(self, lanes: Lanes) -> None:
        """Forget the accesses of lanes that have met, except copies that they have still to wait for."""
        recent = self.recent.pop(lanes, {})
        flying = {access: 0 for access in recent if access.operation is not None and not access.operation.waited}
        if flying:
            self.recent[lanes] = flying

    def _conflict(self, before: _Access, here: _Access) -> bool:
        """Return True if two lanes race."""
        first, second = before.region, here.region
        if not (before.write or here.write) or not meet(first.box, second.box):
            return False
        key = first, second, before.write, here.write
        if key not in self.races:
            if len(self.races) > KEPT_ACCESSES * KEPT_ACCESSES:
                self.races.clear()
            self.races[key] = _race(before, here)
        return self.races[key]

    def _race(self, lanes: Lanes, before: _Access, here: _Access) -> None:
        where, other = here.instruction.location, before.instruction.location
        key = where, other, here.region.name
        if key in self.found:
            return
        again = " of the next round" if where and other and where.line <= other.line else ""
        copies = before.operation
        between = f"between {copies.wait if copies is not None and copies.waited else other} and {where}{again}"
        advice = f"the missing sync: self.sync() {between}"
        warp = lanes.warp
        who = f"{lanes.name} of warp {warp.index}" if lanes.name else f"warp {warp.index}"
        message = (
            f"{here.instruction.name} by {who} {'writes' if here.write else 'reads'} {here.region}, which"
            f" {before.instruction.name} by other lanes of warp {warp.index} {'writes' if before.write else 'reads'}"
            f" without an order; {advice}"
        )
        self.found[key] = lanes, Finding(
            "data-race", Severity.ERROR, message, warp.cta.position, where, other, missing="sync", at_fault=other,
            tensor=here.region.name, box=here.region.box, advice=advice,
            lacks=frozenset([("self.sync()", between)]),
        )  # fmt: skip

    def report(self) -> None:
        """Report the races between lines that no other finding names."""
        for lanes, finding in self.found.values():
            findings = lanes.cta.grid.findings
            if not any({each.location, each.other} == {finding.location, finding.other} for each in findings):
                findings.add(finding)
        self.found.clear()


def _race(before: _Access, here: _Access) -> bool:
    """Return True if a lane relies on the order of its access and of another lane's. Lanes that write one element by
    one instruction write the same value. So a lane may read what it wrote, too, and write again what it wrote."""
    assert before.region.holders is not None and here.region.holders is not None
    (one, lanes), (other, others) = before.region.holders(), here.region.holders()
    begin, end = max(one.min(), other.min()), min(one.max(), other.max()) + 1
    if begin >= end:
        return False
    masks = np.zeros((2, end - begin), np.uint64)
    for mask, (numbers, holding) in zip(masks, ((one, lanes), (other, others)), strict=True):
        inside = (begin <= numbers) & (numbers < end)
        np.bitwise_or.at(mask, numbers[inside] - begin, np.uint64(1) << holding[inside].astype(np.uint64))
    earlier, later = masks[:, masks.all(axis=0)]
    if not here.write:
        return bool((later & ~earlier).any())
    several = 0 if before.write else later & (later - np.uint64(1))
    return bool((earlier & ~later | several).any())
