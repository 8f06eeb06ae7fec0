"""Checks of mbarriers: their uses, and the clocks that phases pass from arrivals to waits (PTX ISA, "mbarrier")."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from blackwell_matmul.emulator.lanes import LANES, indices
from blackwell_matmul.emulator.order import judging
from blackwell_matmul.emulator.order.agents import Flying, WarpAgents
from blackwell_matmul.emulator.order.barriers import MbarrierOrder
from blackwell_matmul.emulator.order.clocks import (
    ASYNC_ROWS,
    EARLIER,
    OWN_ROWS,
    TRACKED_ROWS,
    WEAK,
    VectorClock,
    cell,
    either,
    empty,
)
from blackwell_matmul.emulator.order.rules.byte_accesses import ByteAccesses
from blackwell_matmul.emulator.order.rules.lifetimes import Lifetimes
from blackwell_matmul.emulator.order.rules.thread_barriers import add_relaxed
from blackwell_matmul.emulator.order.run_state import RunState

KEPT_PHASES = 4
"""Number of the latest phases of an mbarrier for which waits are kept."""


class Mbarriers:
    """Checks of mbarriers. valid: by id of the emulator's mbarrier. used: number of phases so far at each offset of a
    CTA."""

    def __init__(self, run: RunState, memory: ByteAccesses, lifetimes: Lifetimes) -> None:
        self.run, self.memory, self.lifetimes = run, memory, lifetimes
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
        made = self.valid[id(barrier)] = MbarrierOrder(barrier, cta, offset, agent, base, init, site)
        self._write_object(cta, offset, agents, lane)
        self.memory.objects.setdefault(cta.shared, {})[offset] = made

    def _write_object(self, cta: Any, offset: int, agents: WarpAgents, lane: int) -> None:
        """Record a thread's write of an mbarrier's bytes."""
        self.memory.accessed(cta.shared, np.array([cta.shared.base + offset]), 8, agents.warp, 1 << lane, True, None)

    def _double(self, before: MbarrierOrder, site: int) -> None:
        self.used[before.cta, before.offset] = before.base + before.barrier.phase + 2
        first, second = self.run.place(before.init_site), self.run.place(site)
        text = f"{before.place} of CTA {before.cta.index} is initialised at {first}, and again at {second}"
        self.run.tell_text(judging.INITIALISED_TWICE, f"{text}, with no mbarrier.inval in between", first, second)

    def invalidated(self, barrier: Any, warp: Any, lane: int) -> None:
        found, agents = self.valid.pop(id(barrier), None), self.run.warps[warp]
        if found is None:
            return
        self.used[found.cta, found.offset] = found.base + barrier.phase + 2
        self.memory.objects[found.cta.shared].pop(found.offset, None)
        site, _ = self.run.here()
        own, known = agents.first + lane, agents.known(1 << lane)
        for agent, (clock, used) in found.uses.items():
            if agent != own and not known.has(agent, clock):
                one = cell(clock, agent, used)
                self.run.tell_unknown(known, one, False, own, site, True, lambda: found.place)
        self._write_object(found.cta, found.offset, agents, lane)

    def _use(self, found: MbarrierOrder, agent: int, known: VectorClock, site: int) -> None:
        """Check that the agent that uses an mbarrier has observed its initialisation."""
        first, since = found.init
        if found.spoiled is not None:
            one, place = found.spoiled, self.run.place(site)
            text = f"{one.who} writes bytes of {found.place} at {one.place}, which is used at {place} after that"
            self.run.tell_text(judging.MBARRIER_AS_DATA, text, place, one.place)
        if agent == first or known.has(first, since):
            return
        weak = known.has(first, since, WEAK)
        if weak and found.fenced:
            return
        a, b = self.run.access(first, found.init_site, True), self.run.access(agent, site, False)
        rule = judging.weakly_ordered(False) if weak else judging.unordered(a, b)
        if not weak:
            rule = rule._replace(code="data-race")
        self.run.tell(rule, a, b, found.init_site, site, found.place)

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
        is_far = agents.warp.cta is not found.cta
        self._use(found, own, agents.known(mask), site)
        if is_far and found.cta in self.lifetimes.over:
            self.lifetimes.reached(found.cta, agents.known(mask), own, site, True, lambda: found.place)
        found.uses[own] = (agents.clock, site)
        if only_counts:
            return
        add = partial(found.add, found.barrier.phase, is_far=is_far)
        if at.order.semantics == "relaxed":
            add_relaxed(add, agents, mask, int(is_far))
        else:
            add(agents.sent(mask), strong=not is_far or at.order.scope != "cta")

    def _arrived_operation(self, found: MbarrierOrder, flying: Flying, nbytes: int | None) -> None:
        phase = found.barrier.phase
        self._use(found, flying.warp.first + flying.lanes.bit_length() - 1, flying.known, flying.site)
        if nbytes is not None:
            clock = found.base + phase + 1
            self.memory.settle(flying, found.agent, clock)
            found.uses[found.agent] = (clock, flying.site)
            found.add(phase, flying.known.only(EARLIER).told(ASYNC_ROWS, found.agent, clock))
        elif self.run.sites[flying.site].opcode.startswith("cp.async"):
            self._arrived_copies(found, phase, flying)
        else:
            self._committed(found, phase, flying)

    def _arrived_copies(self, found: MbarrierOrder, phase: int, flying: Flying) -> None:
        """Add the cp.async of some lanes to a phase, without the lanes' other accesses."""
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
        self._check_overrun(found)
        if "parity" in self.run.grid.current.source.modifiers:
            phase = self._surely(found, agents, mask, phase)
        found.seen.setdefault(phase, {})[agents.first] = (agents.clock, site)
        known = found.told(phase, at.order.scope)
        if known is None:
            return
        if at.order.semantics == "relaxed":
            for each in agents.parts(mask):
                each.known, each.seen = each.known.joined(known.only(WEAK)), either(each.seen, known)
        else:
            agents.receive(mask, known)

    def _surely(self, found: MbarrierOrder, agents: WarpAgents, mask: int, number: int) -> int:
        """Return the first phase on which a wait by parity can pass, after the last phase that the warp knows to be
        over.

        A wait by parity names only the parity of a phase ("mbarrier.test_wait, try_wait": .parity). number: the last
        phase that is over.
        """
        known = agents.known(mask)
        oldest = max(number - KEPT_PHASES, -1)
        phases = range(number, oldest, -1)
        last = next((each for each in phases if self._is_over(found, each, agents, known)), oldest)
        return last + (number - last) % 2

    def _is_over(self, found: MbarrierOrder, phase: int, agents: WarpAgents, known: VectorClock) -> bool:
        """Return True if a warp knows that a phase is over: it has observed a wait that saw the end, or all that the
        phase passes on."""
        seen, told = found.seen.get(phase, {}), found.told(phase, "cluster")
        if agents.first in seen or (told is not None and known.covers(told)):
            return True
        return any(
            known.has(first + lane, clock, EARLIER) for first, (clock, _) in seen.items() for lane in range(LANES)
        )

    def _check_overrun(self, found: MbarrierOrder) -> None:
        """Report warps whose wait for a phase may come after the end of the next phase ("mbarrier.test_wait")."""
        for phase in range(found.judged, found.barrier.phase - 1):
            known, seen = found.told(phase + 1, "cluster"), found.seen.get(phase, {})
            found.seen.pop(phase - KEPT_PHASES, None)
            for first, (clock, site) in seen.items():
                if known and not any(known.has(first + lane, clock, EARLIER) for lane in range(LANES)):
                    self._overrun(found, first, site)
        found.judged = max(found.judged, found.barrier.phase - 1)

    def _overrun(self, found: MbarrierOrder, first: int, site: int) -> None:
        access = self.run.access(first, site, False)
        who = access.who.split(" of ", 1)[1]
        text = (
            f"{who} waits for a phase of {found.place} at {access.place}, and the next one may end before that is seen"
        )
        self.run.tell_text(judging.PHASE_OVERRUN, text, access.place)

    def forget(self, ctas: list[Any]) -> None:
        self.valid = {key: each for key, each in self.valid.items() if each.cta not in ctas}
        self.used = {key: each for key, each in self.used.items() if key[0] not in ctas}
