"""The wait that an mma of a warpgroup lacks, by the number of groups that were committed after it when a warp
went on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import NamedTuple

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.machine.barrier import Mbarrier
from blackwell_matmul.simulator.machine.cta import Warp
from blackwell_matmul.simulator.order.knowledge import Carried, Operation
from blackwell_matmul.simulator.semantics.wgmma import FAMILY, UNCOMMITTED, Mma


class Arrival(NamedTuple):
    """An arrival on an mbarrier, at `turn`. issued, committed: the warp's counts at that time. announces: the arrival
    announces bytes, too."""

    issued: int
    committed: int
    location: Location | None
    turn: int
    announces: bool


class Warpgroups:
    """MMAs of warpgroups. issues, commits: counts of each warp. open: operations not yet committed. number: an mma's
    number among those of its warps. group: the number of its group, once committed. arrivals: a warp's last arrival, by
    mbarrier."""

    def __init__(self) -> None:
        self.issues: Counter[Warp] = Counter()
        self.commits: Counter[Warp] = Counter()
        self.open: dict[Warp, list[Operation]] = {}
        self.number: dict[Operation, int] = {}
        self.group: dict[Operation, int] = {}
        self.arrivals: dict[Warp, dict[Mbarrier, Arrival]] = {}

    def issued(self, operation: Operation, warp: Warp) -> None:
        if isinstance(operation.op, Mma):
            self.number.setdefault(operation, self.issues[warp])
            self.issues[warp] += 1
            self.open.setdefault(warp, []).append(operation)

    def committed(self, warp: Warp, family: str) -> None:
        if family == FAMILY:
            for operation in self.open.pop(warp, ()):
                self.group[operation] = self.commits[warp]
            self.commits[warp] += 1

    def arrived(self, barrier: Mbarrier, warp: Warp, location: Location | None, turn: int, announces: bool) -> None:
        mine = self.arrivals.setdefault(warp, {})
        mine[barrier] = Arrival(self.issues[warp], self.commits[warp], location, turn, announces)

    # what is missing

    def remedy(self, operation: Operation, committed: int, where: str) -> str:
        """Return the wait for an operation. committed: number of groups committed by then."""
        group = self.group.get(operation)
        if group is None or committed <= group:
            return f"{UNCOMMITTED} before {where}"
        return f"wgmma.wait_group({committed - group - 1}) before {where}"

    def advice(
        self, operation: Operation, warp: Warp, location: Location | None, carried: Mapping[Mbarrier, Carried]
    ) -> str:
        """Return the missing wait: before the arrival that released `warp`, or else before `location`."""
        arrival = self.let_go_early(operation, warp, carried)
        if not isinstance(operation.op, Mma):
            before = "" if arrival is None else f" before the arrival at {arrival.location}"
            return operation.remedy + before
        if arrival is None:
            return self.remedy(operation, self.commits[operation.op.warp], str(location))
        return self.remedy(operation, arrival.committed, f"the arrival at {arrival.location}")

    def let_go_early(self, operation: Operation, warp: Warp, carried: Mapping[Mbarrier, Carried]) -> Arrival | None:
        """Return the arrival that released `warp` too early: the arriving warp had issued the operation and not waited
        for it. None if the operation signals an mbarrier."""
        if operation.end_signals:
            return None
        op = operation.op
        issuers = [op.cta.warps[index] for index in op.meeting.brought] if isinstance(op, Mma) else [op.warp]
        found = [
            (carried[barrier].waits[warp.index].turn, arrival)
            for issuer in issuers
            for barrier, arrival in self.arrivals.get(issuer, {}).items()
            if barrier.cta is warp.cta and warp.index in carried[barrier].waits and self._too_early(operation, arrival)
        ]
        return max(found, key=lambda each: each[0])[1] if found else None

    def _too_early(self, operation: Operation, arrival: Arrival) -> bool:
        """Return True if an arrival came after the issue of the operation, and before its own warp had waited
        for it."""
        if isinstance(operation.op, Mma):
            return arrival.issued > self.number[operation]
        waited = operation.waited
        return arrival.turn > operation.turn and (waited is None or arrival.turn < waited)
