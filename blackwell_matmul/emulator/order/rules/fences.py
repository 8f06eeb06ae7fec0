"""Fences: they show accesses to later accesses, arrivals and proxies (PTX ISA, "membar, fence", "Proxies")."""

from __future__ import annotations

from typing import Any

import numpy as np

from blackwell_matmul.emulator.lanes import LANES, indices
from blackwell_matmul.emulator.order.agents import WarpAgents
from blackwell_matmul.emulator.order.clocks import BEFORE, GLOBAL, MAPS, ORDERED, SHARED, TENSOR
from blackwell_matmul.emulator.order.rules.mbarrier_phases import Mbarriers
from blackwell_matmul.emulator.order.run_state import RunState


class Fences:
    """Rules of fences, and of tensormap.cp_fenceproxy."""

    def __init__(self, run: RunState, mbarriers: Mbarriers) -> None:
        self.run, self.mbarriers = run, mbarriers

    def fenced(self, warp: Any, mask: int) -> None:
        agents, (_, site) = self.run.warps[warp], self.run.here()
        words = site.opcode.split(".")
        if words[0] == "wgmma":
            agents.registers.fresh, agents.registers.fenced = {}, True
        elif words[0] == "tcgen05":
            self._tensor(agents, mask, "before_thread_sync" in site.opcode)
        elif "proxy" in words or words[0] == "tensormap":
            self._proxy(agents, mask, words)
        elif "mbarrier_init" in words:
            self._initialised(agents)
        elif words[0] in ("fence", "membar"):
            agents.fence(mask, site.order)

    def _tensor(self, agents: WarpAgents, mask: int, is_before: bool) -> None:
        if is_before:
            widen(agents, mask, [BEFORE], ORDERED)
        else:
            widen(agents, mask, [TENSOR], BEFORE)

    def _proxy(self, agents: WarpAgents, mask: int, words: list[str]) -> None:
        """Make observed accesses visible to the async proxy: in the spaces of the opcode, or in both without any."""
        if "tensormap::generic" in words and "release" in words:
            widen(agents, mask, [MAPS], ORDERED)
        if not {"async", "async::generic"} & {*words}:
            return
        named = {part for word in words for part in word.split("::")}
        rows = [row for row, space in ((SHARED, "shared"), (GLOBAL, "global")) if space in named]
        widen(agents, mask, rows or [SHARED, GLOBAL], ORDERED)

    def _initialised(self, agents: WarpAgents) -> None:
        for each in self.mbarriers.valid.values():
            each.fenced |= agents.first <= each.init[0] < agents.first + LANES


def widen(agents: WarpAgents, mask: int, rows: list[int], source: int) -> None:
    """Add one row of the lanes' clocks to other rows, with the lanes' own accesses until now."""
    lanes = np.array(indices(mask)) + agents.first
    for each in agents.parts(mask):
        known = each.known if source != ORDERED else each.known.told(rows, lanes, agents.clock)
        if source == ORDERED and agents.copied is not None:
            known = known.told(rows, agents.copies + lanes - agents.first, agents.copied[lanes - agents.first])
        each.known = known.widened(rows, source)
    agents.clock += 1
