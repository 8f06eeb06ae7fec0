"""Lifetimes of CTAs: accesses by other CTAs of the cluster to their shared memory, and operations in flight at their
end.

Distributed shared memory requires that the target CTA has started and not ended (CUDA programming guide, "Distributed
Shared Memory"; PTX ISA, "Cooperative Thread Arrays").
"""

from __future__ import annotations

from typing import Any

import numpy as np

from blackwell_matmul.emulator.lanes import ALL
from blackwell_matmul.emulator.order import judging
from blackwell_matmul.emulator.order.agents import Flying
from blackwell_matmul.emulator.order.barriers import MbarrierOrder
from blackwell_matmul.emulator.order.clocks import SITE_MASK, WEAK, VectorClock, agent_of, either
from blackwell_matmul.emulator.order.judging import MemoryAccess
from blackwell_matmul.emulator.order.last_accesses import ByteShadow
from blackwell_matmul.emulator.order.run_state import RunState, Words


class Lifetimes:
    """Checks of accesses to other CTAs' shared memory. over: CTAs that have exited, with the last instruction."""

    def __init__(self, run: RunState) -> None:
        self.run = run
        self.over: dict[Any, int] = {}

    def reached(self, cta: Any, known: VectorClock, own: int | Flying, site: int, writes: bool, where: Words) -> None:
        """Check an access to another CTA's memory: the CTA has not exited, and the agent has observed its start."""
        if cta in self.over:
            self._ended(self.run.access(own, site, writes), cta, where(), self.over[cta])
        if not self.run.warps[cta.warps[0]].cluster.has_started(cta, known):
            self._not_started(self.run.access(own, site, writes), cta, where())

    def _not_started(self, access: MemoryAccess, cta: Any, where: str) -> None:
        text = f"{access.who} {access.verb} {where} at {access.place}, unaware that CTA {cta.index} has started"
        self.run.tell_text(judging.PEER_NOT_STARTED, text, access.place)

    def _ended(self, access: MemoryAccess, cta: Any, where: str, site: int) -> None:
        place = self.run.place(site)
        text = f"{access.who} {access.verb} {where} at {access.place}, and CTA {cta.index} may have ended at {place}"
        self.run.tell_text(judging.EXIT_BEFORE_PEER, text, access.place, place)

    # --- the end of a CTA

    def ended(self, cta: Any, shadow: ByteShadow | None, mbarriers: list[MbarrierOrder]) -> None:
        """Check the accesses to the memory of a CTA whose threads have all exited."""
        site, _ = self.run.here()
        self.over[cta] = site
        known: VectorClock | None = None
        for warp in cta.warps:
            known = either(known, self.run.warps[warp].known(ALL))
        assert known is not None
        self._check_bytes(cta, shadow, known, site)
        for each in mbarriers:
            self._check_uses(cta, each, known, site)
        for operation in self.run.grid.pending:
            access = self.run.access_of(operation.heard, False)
            if operation.warp.cta is cta and access.kind != "cp.async":
                self._in_flight(access, cta, site)

    def _check_bytes(self, cta: Any, shadow: ByteShadow | None, known: VectorClock, site: int) -> None:
        """Check accesses by other CTAs and by operations, which have reader slots of their own."""
        if shadow is None:
            return
        for column in (0, *range(1 + len(cta.warps), shadow.cells.shape[1])):
            cells = shadow.cells[:, column]
            cells = cells[cells != 0]
            for one in np.unique(cells[known.missing(cells, WEAK)]).tolist() if cells.size else ():
                self._left(cta, one, column == 0, site)

    def _left(self, cta: Any, one: int, wrote: bool, site: int) -> None:
        """Report an access that may come after the end of the CTA, unless a thread of this CTA made the access."""
        run = self.run
        access = run.access(agent_of(one), one & SITE_MASK, wrote)
        if not self._is_own(cta, access):
            self._ended(access, cta, f"shared memory of CTA {cta.index}", site)
        elif access.kind not in ("", "cp.async"):  # each lane waits for its own cp.async
            self._in_flight(access, cta, site)

    def _is_own(self, cta: Any, access: MemoryAccess) -> bool:
        if access.warp is None:
            return True
        cluster = self.run.warps[cta.warps[0]].cluster
        return bool(access.warp[1] // cluster.warps_of_cta == cta.rank)

    def _in_flight(self, access: MemoryAccess, cta: Any, site: int) -> None:
        """Report an operation of the CTA that is in flight at the CTA's end."""
        place = self.run.place(site)
        text = f"{access.who} {access.verb} shared memory of CTA {cta.index} at {access.place}, which ends at {place}"
        self.run.tell_text(judging.IN_FLIGHT_AT_EXIT, text, access.place, place)

    def _check_uses(self, cta: Any, each: MbarrierOrder, known: VectorClock, site: int) -> None:
        for agent, (clock, used) in each.uses.items():
            access = self.run.access(agent, used, False)
            if agent != each.agent and not self._is_own(cta, access) and not known.has(agent, clock, WEAK):
                self._ended(access._replace(writes=True), cta, each.place, site)
