"""Flags: memory locations by which strong accesses synchronise (PTX ISA, "Release and Acquire Patterns")."""

from __future__ import annotations

from typing import Any

from blackwell_matmul.emulator.lanes import Array
from blackwell_matmul.emulator.order.agents import SCOPES, WarpAgents
from blackwell_matmul.emulator.order.barriers import Flag
from blackwell_matmul.emulator.order.clocks import VectorClock, either
from blackwell_matmul.emulator.order.run_state import RunState, Site


class Flags:
    """Clocks that strong writes have released, by memory and offset."""

    def __init__(self, run: RunState) -> None:
        self.run = run
        self.flags: dict[Any, dict[int, Flag]] = {}

    def overwritten(self, memory: Any, offsets: Array) -> None:
        """Drop the clocks of flags that weak writes have overwritten."""
        for offset in offsets.tolist() if memory in self.flags else ():
            self.flags[memory].pop(offset, None)

    def synchronise(
        self, memory: Any, offsets: Array, agents: WarpAgents, lanes: Array, writes: bool, site: Site
    ) -> None:
        flags = self.flags.setdefault(memory, {})
        places = list(zip(offsets.tolist(), lanes.tolist()))
        if not site.opcode.startswith(("st", "red")):
            for offset, lane in places:
                if offset in flags:
                    self._acquire(flags[offset], agents, 1 << lane, site)
        for offset, lane in places if writes else ():
            self._release(flags, offset, agents, 1 << lane, site)

    def _acquire(self, flag: Flag, agents: WarpAgents, mask: int, site: Site) -> None:
        cta = agents.warp.cta
        level = 0 if flag.cta is cta else 1 if flag.cluster is cta.cluster else 2
        known = flag.known[level]
        if known is None or SCOPES.index(site.order.scope) < level:
            return
        for each in list(agents.parts(mask)):
            if site.order.semantics in ("acquire", "acq_rel"):
                each.known = each.known.joined(known)
            else:
                each.seen = either(each.seen, known)

    def _release(self, flags: dict[int, Flag], offset: int, agents: WarpAgents, mask: int, site: Site) -> None:
        cta, order = agents.warp.cta, site.order
        if order.semantics in ("release", "acq_rel"):
            sent, level = agents.sent(mask), SCOPES.index(order.scope)
            known: list[VectorClock | None] = [sent if place <= level else None for place in range(3)]
        else:
            known = list(next(each for each in agents.groups if each.mask & mask).released)
        before = flags.get(offset)
        if before is not None and site.opcode.startswith(("atom", "red")):
            known = [either(a, b) for a, b in zip(known, before.known)]
        if any(each is not None for each in known):
            flags[offset] = Flag(known, cta, cta.cluster)
        else:
            flags.pop(offset, None)
