"""Tensor maps that a kernel writes and the tensormap proxy reads (PTX ISA, "membar, fence": .proxykind).

The writer releases the map by fence.proxy.tensormap::generic.release or tensormap.cp_fenceproxy. After a
synchronisation, the reader acquires the map by fence.proxy.tensormap with .acquire. Then it may copy by the map.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from blackwell_matmul.emulator.lanes import LANES
from blackwell_matmul.emulator.order import judging
from blackwell_matmul.emulator.order.agents import Flying, WarpAgents
from blackwell_matmul.emulator.order.clocks import MAPS, ORDERED, VectorClock, agent_of, clock_of
from blackwell_matmul.emulator.order.rules.byte_accesses import ByteAccesses
from blackwell_matmul.emulator.order.run_state import RunState
from blackwell_matmul.emulator.tensor_map import ENCODED_MAP_BYTES

Acquired = tuple[WarpAgents, int, VectorClock]
"""A fence that acquired a tensor map: the warp, its clock value, and the clock that the warp had observed."""


class TensorMaps:
    """Checks of uses of tensor maps. acquired: fences that acquired a map, by memory, offset and CTA. last: memory and
    offset of the map of the last copy, and the copy's instruction."""

    def __init__(self, run: RunState, memory: ByteAccesses) -> None:
        self.run, self.memory = run, memory
        self.acquired: dict[Any, list[Acquired]] = {}
        self.last: Any = None

    def described(self, memory: Any, places: Any, warp: Any, mask: int) -> None:
        agents, (site, at) = self.run.warps[warp], self.run.here()
        key = memory, int(places[0]) - memory.base, warp.cta
        if at.opcode.startswith("fence"):
            others = [each for each in self.acquired.get(key, ()) if each[0] is not agents]
            self.acquired[key] = [*others, (agents, agents.clock, agents.known(mask))]
            agents.clock += 1
            return
        if memory in self.memory.shadows:
            self._check(key, agents, mask)
        self.memory.accessed(memory, places, ENCODED_MAP_BYTES, warp, mask, False, None)
        self.last = memory, int(places[0]) - memory.base, site

    def issued(self, flying: Flying) -> None:
        """Record that a copy reads its map until the copy is complete."""
        last, self.last = self.last, None
        if last is not None and last[2] == flying.site:
            memory, offset, _ = last
            index, _ = self.memory.shadows[memory].index(np.array([offset]), ENCODED_MAP_BYTES)
            self.memory.read_by_operation(memory, index, flying)

    def _check(self, key: Any, agents: WarpAgents, mask: int) -> None:
        """Report observed writes to a map that no fence has made visible to the tensormap proxy."""
        memory, offset, _ = key
        shadow, (site, _) = self.memory.shadows[memory], self.run.here()
        index, _ = shadow.index(np.array([offset]), ENCODED_MAP_BYTES)
        known, own = agents.known(mask), agents.first + mask.bit_length() - 1
        where = f"a tensor map at {offset:,} of {memory.name}"
        for one in np.unique(shadow.cells[index, 0]).tolist():
            ordered = agent_of(one) == own or known.has(agent_of(one), clock_of(one), ORDERED)
            if one and ordered and not self._is_acquired(key, known, agents, one):
                self.run.tell_unknown(known, one, True, own, site, False, lambda: where, rule=judging.NO_MAP_FENCE)

    def _is_acquired(self, key: Any, known: VectorClock, agents: WarpAgents, one: int) -> bool:
        """Return True if an observed fence acquired the map after a write to the map and the writer's release."""
        for whose, clock, knew in self.acquired.get(key, ()):
            if whose is agents or any(known.has(whose.first + lane, clock) for lane in range(LANES)):
                if knew.has(agent_of(one), clock_of(one), MAPS):
                    return True
        return False

    def forget(self, ctas: list[Any]) -> None:
        self.acquired = {key: each for key, each in self.acquired.items() if key[2] not in ctas}
