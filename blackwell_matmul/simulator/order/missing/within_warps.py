"""Races between lanes of one warp: accesses of two lanes to one element, without a barrier between both.

Lanes of a warp execute an instruction together, and PTX orders nothing by that (PTX ISA, "Memory Consistency Model:
Causality Order"). A barrier orders them, as `self.sync()` in a warp does. What a warp's wait for an mbarrier or a
semaphore orders among its lanes is not followed: all earlier accesses of the warp are forgotten.
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.description import Instruction
from blackwell_matmul.simulator.findings import Finding, Severity
from blackwell_matmul.simulator.machine.cta import Warp
from blackwell_matmul.simulator.machine.memory import Region, meet

MANY = 64
"""Number of accesses of a warp that are kept."""


class _Access(NamedTuple):
    """An access by all lanes of a warp."""

    instruction: Instruction
    region: Region
    write: bool


class WithinWarps:
    """Accesses of each warp since its last barrier or wait, and the races among them."""

    def __init__(self) -> None:
        self.recent: dict[Warp, list[_Access]] = {}
        self.races: dict[tuple[Region, Region, bool, bool], bool] = {}
        self.found: dict[tuple[Location | None, Location | None, str], tuple[Warp, Finding]] = {}

    def accessed(self, warp: Warp, instruction: Instruction, region: Region, write: bool) -> None:
        """Record an access by all lanes of a warp, and its races with earlier ones."""
        if region.holders is None:
            return
        here, recent = _Access(instruction, region, write), self.recent.setdefault(warp, [])
        for before in recent:
            if before.region.storage is region.storage and self._conflict(before, here):
                self._race(warp, before, here)
        if here not in recent:
            recent.append(here)
            del recent[:-MANY]

    def forget(self, warp: Warp) -> None:
        """Forget the accesses of a warp: its lanes are ordered after them, or may be."""
        self.recent.pop(warp, None)

    def _conflict(self, before: _Access, here: _Access) -> bool:
        """Return True if two lanes race."""
        first, second = before.region, here.region
        if not (before.write or here.write) or not meet(first.box, second.box):
            return False
        key = first, second, before.write, here.write
        if key not in self.races:
            if len(self.races) > MANY * MANY:
                self.races.clear()
            self.races[key] = _race(before, here)
        return self.races[key]

    def _race(self, warp: Warp, before: _Access, here: _Access) -> None:
        where, other = here.instruction.location, before.instruction.location
        key = where, other, here.region.name
        if key in self.found:
            return
        again = " of the next round" if where and other and where.line <= other.line else ""
        between = f"between {other} and {where}{again}"
        advice = f"the missing sync: self.sync() {between}"
        message = (
            f"{here.instruction.name} by warp {warp.index} {'writes' if here.write else 'reads'} {here.region}, which"
            f" {before.instruction.name} by other lanes of warp {warp.index} {'writes' if before.write else 'reads'}"
            f" without an order; {advice}"
        )
        self.found[key] = warp, Finding(
            "data-race", Severity.ERROR, message, warp.cta.position, where, other, missing="sync", at_fault=other,
            tensor=here.region.name, box=here.region.box, advice=advice,
            lacks=frozenset([("self.sync()", between)]),
        )  # fmt: skip

    def report(self) -> None:
        """Report the races between lines that no other finding names."""
        for warp, finding in self.found.values():
            findings = warp.cta.grid.findings
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
