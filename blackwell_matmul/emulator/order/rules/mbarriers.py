"""mbarriers: who may use one, and what its phases carry from arrivals to waits (PTX ISA, "mbarrier")."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from blackwell_matmul.emulator.lanes import indices
from blackwell_matmul.emulator.order import judging
from blackwell_matmul.emulator.order.agents import SCOPES, Flying, WarpAgents
from blackwell_matmul.emulator.order.barriers import MbarrierOrder
from blackwell_matmul.emulator.order.clocks import ASYNC_ROWS, OWN_ROWS, TRACKED_ROWS, WEAK, Known, cell, either, empty
from blackwell_matmul.emulator.order.findings import ERROR, UNPROMISED, Finding
from blackwell_matmul.emulator.order.rules.byte_accesses import ByteAccesses
from blackwell_matmul.emulator.order.rules.thread_barriers import add_relaxed
from blackwell_matmul.emulator.order.run_state import RunState


class Mbarriers:
    """Hears of mbarriers. valid: by the identity of the emulator's object. used: phases of each place until now."""

    def __init__(self, run: RunState, memory: ByteAccesses) -> None:
        self.run, self.memory = run, memory
        self.valid: dict[int, MbarrierOrder] = {}
        self.used: dict[Any, int] = {}

    # --- begin and end

    def initialised(self, barrier: Any, cta: Any, offset: int, warp: Any, lane: int, before: Any) -> None:
        agents, (site, _) = self.run.warps[warp], self.run.here()
        if before is not None:
            self._double(self.valid.pop(id(before)), site)
        stream = self.run.warps[cta.warps[0]].cluster.stream
        agent = stream((cta, offset), "mbarrier", f"an operation that the mbarrier at {offset:,} counts")
        base, init = self.used.setdefault((cta, offset), 0), (agents.first + lane, agents.clock)
        self.valid[id(barrier)] = MbarrierOrder(barrier, cta, offset, agent, base, init, site)
        self._write_object(cta, offset, agents, lane)

    def _write_object(self, cta: Any, offset: int, agents: WarpAgents, lane: int) -> None:
        """Note that a thread writes an mbarrier's bytes."""
        self.memory.accessed(cta.shared, np.array([cta.shared.base + offset]), 8, agents.warp, 1 << lane, True, None)

    def _double(self, before: MbarrierOrder, site: int) -> None:
        self.used[before.cta, before.offset] = before.base + before.barrier.phase + 2
        first, second = self.run.place(before.init_site), self.run.place(site)
        where = f"the mbarrier at {before.offset:,} of shared memory of CTA {before.cta.index}"
        text = f"{where} is initialised at {first}, and again at {second}, with no mbarrier.inval in between"
        found = Finding(
            "mbarrier-initialised-twice", ERROR, text, first, second, "mbarrier.inval before the second",
            "initialise once, or invalidate first", "mbarrier.init",
        )  # fmt: skip
        self.run.findings.setdefault((before.init_site, site, found.code), found)

    def invalidated(self, barrier: Any, warp: Any, lane: int) -> None:
        found, agents = self.valid.pop(id(barrier), None), self.run.warps[warp]
        if found is None:
            return
        self.used[found.cta, found.offset] = found.base + barrier.phase + 2
        site, _ = self.run.here()
        own, known = agents.first + lane, agents.known(1 << lane)
        for agent, (clock, used) in found.uses.items():
            if agent != own and not known.has(agent, clock):
                one = cell(clock, agent, used)
                self.run.tell_unknown(known, one, False, own, site, True, lambda: _place(found))
        self._write_object(found.cta, found.offset, agents, lane)

    def _use(self, found: MbarrierOrder, agent: int, known: Known, site: int) -> None:
        """Check that who uses an mbarrier knows that it was initialised."""
        first, since = found.init
        if agent == first or known.has(first, since):
            return
        weak = known.has(first, since, WEAK)
        if weak and found.fenced:
            return
        a, b = self.run.access(first, found.init_site, True), self.run.access(agent, site, False)
        rule = judging.weakly_ordered(a)._replace(severity=UNPROMISED) if weak else judging.unordered(a, b)
        if not weak:
            rule = rule._replace(code="data-race")
        self.run.tell(rule, a, b, found.init_site, site, _place(found))

    # --- arrivals

    def arrived(self, barrier: Any, warp: Any = None, mask: int = 0, nbytes: int | None = None) -> None:
        found = self.valid.get(id(barrier))
        if found is None:
            return
        if warp is None:
            self._arrived_operation(found, self.run.grid.completing.heard, nbytes)
        else:
            self._arrived_thread(found, self.run.warps[warp], mask, nbytes is not None)

    def _arrived_thread(self, found: MbarrierOrder, agents: WarpAgents, mask: int, only_counts: bool) -> None:
        site, at = self.run.here()
        own = agents.first + mask.bit_length() - 1
        self._use(found, own, agents.known(mask), site)
        found.uses[own] = (agents.clock, site)
        if only_counts:
            return
        level = 0 if agents.warp.cta is found.cta else 1
        phase = found.barrier.phase
        if at.order.semantics == "relaxed":
            add_relaxed(partial(found.add, phase), agents, mask, level)
        else:
            found.add(phase, agents.sent(mask), SCOPES.index(at.order.scope) >= level)

    def _arrived_operation(self, found: MbarrierOrder, flying: Flying, nbytes: int | None) -> None:
        phase = found.barrier.phase
        self._use(found, flying.warp.first + flying.lanes.bit_length() - 1, flying.known, flying.site)
        if nbytes is not None:
            clock = found.base + phase + 1
            self.memory.settle(flying, found.agent, clock)
            found.uses[found.agent] = (clock, flying.site)
            found.add(phase, empty(flying.known).told(ASYNC_ROWS, found.agent, clock))
        elif self.run.sites[flying.site].opcode.startswith("cp.async"):
            self._arrived_copies(found, phase, flying)
        else:
            self._committed(found, phase, flying)

    def _arrived_copies(self, found: MbarrierOrder, phase: int, flying: Flying) -> None:
        """Add the cp.async of some lanes, which tell nothing else of the lanes."""
        agents = flying.warp
        if agents.copies:
            lanes = np.array(indices(flying.lanes))
            found.add(phase, empty(flying.known).told(OWN_ROWS, agents.copies + lanes, flying.clock))

    def _committed(self, found: MbarrierOrder, phase: int, flying: Flying) -> None:
        agents, lane, known = flying.warp, flying.lanes.bit_length() - 1, flying.known
        agent = agents.cluster.streams.get((agents.warp, (lane, "tcgen05")))
        if agent is not None:
            known = known.told(TRACKED_ROWS, agent, flying.clock)
            found.uses[agent] = (flying.clock, flying.site)
        found.add(phase, known)

    # --- waits

    def passed(self, barrier: Any, warp: Any, mask: int, phase: int) -> None:
        found = self.valid.get(id(barrier))
        if found is None:
            return
        agents, (site, at) = self.run.warps[warp], self.run.here()
        own = agents.first + mask.bit_length() - 1
        self._use(found, own, agents.known(mask), site)
        found.uses[own] = (agents.clock, site)
        known = found.phases.get(phase)
        if known is None:
            return
        if at.order.semantics == "relaxed":
            for each in agents.parts(mask):
                each.known, each.seen = each.known.weakly_joined(known), either(each.seen, known)
        else:
            agents.receive(mask, known)

    def forget(self, ctas: list[Any]) -> None:
        self.valid = {key: each for key, each in self.valid.items() if each.cta not in ctas}
        self.used = {key: each for key, each in self.used.items() if key[0] not in ctas}


def _place(found: MbarrierOrder) -> str:
    return f"the mbarrier at {found.offset:,} of shared memory"
