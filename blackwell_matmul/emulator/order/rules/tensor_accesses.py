"""Accesses to tensor memory, by lanes and columns, and its allocations (PTX ISA, "tcgen05")."""

from __future__ import annotations

from typing import Any

import numpy as np

from blackwell_matmul.emulator.lanes import Array
from blackwell_matmul.emulator.order import judging
from blackwell_matmul.emulator.order.agents import WarpAgents, name_of
from blackwell_matmul.emulator.order.clocks import (
    AGENT_MASK,
    AGENT_SHIFT,
    CLOCK_SHIFT,
    ORDERED,
    SITE_MASK,
    TENSOR,
    WEAK,
    VectorClock,
    agent_of,
    cell,
)
from blackwell_matmul.emulator.order.last_accesses import TensorShadow
from blackwell_matmul.emulator.order.ptx_findings import UNPROMISED
from blackwell_matmul.emulator.order.rules.held_registers import RegisterUses
from blackwell_matmul.emulator.order.rules.operations import loads_of
from blackwell_matmul.emulator.order.run_state import RunState


class TensorAccesses:
    """Checks of accesses to tensor memory. pairs: by CTA, agent and clock of each allocation with cta_group::2."""

    def __init__(self, run: RunState, registers: RegisterUses) -> None:
        self.run, self.registers = run, registers
        self.shadows: dict[Any, TensorShadow] = {}
        self.pairs: dict[Any, list[tuple[int, int]]] = {}

    def _shadow(self, memory: Any) -> TensorShadow:
        found = self.shadows.get(memory)
        if found is None:
            lanes, columns = memory.words.shape
            slots = 2 * len(self.run.owners[memory].warps) + 1
            found = self.shadows[memory] = TensorShadow(lanes, columns, slots)
        return found

    def touched(self, memory: Any, rows: Any, columns: Any, writes: bool, warp: Any = None) -> None:
        shadow = self._shadow(memory)
        part = TensorPart(self.run, shadow, rows, columns)
        if warp is not None:
            agents, (site, _) = self.run.warps[warp], self.run.here()
            part.by(agents.known(warp.alive), loads_of(agents), agents.clock, site)
            slot = warp.index
            if not writes:
                self.registers.hold(agents, part.agent, site)
        else:
            flying = self.run.grid.completing.heard
            warp = flying.warp.warp
            part.by(flying.known, flying.agent, flying.clock, flying.site, flying.pipelined)
            slot = len(warp.cta.warps) + warp.index
        slot = slot if warp.cta is self.run.owners[memory] else shadow.slots - 2
        part.check(0, writes)
        if not writes:
            shadow.read(part.index, slot, part.word)
            return
        for each in sorted(shadow.used):
            part.check(each, writes)
        shadow.write(part.index, part.word)

    def allocated(self, memory: Any, column: int, columns: int, warp: Any, gives_back: bool) -> None:
        shadow, agents, (site, at) = self._shadow(memory), self.run.warps[warp], self.run.here()
        if "cta_group::2" in at.opcode and len(warp.cta.cluster.ctas) > 1:
            self._of_pair(agents, site, gives_back)
        part = slice(column, column + columns)
        if gives_back:
            known = agents.known(warp.alive)
            for slot in (0, *sorted(shadow.used)):
                cells = distinct(shadow.cells[slot, :, part])
                for one in cells[known.missing(cells, ORDERED)].tolist() if cells.size else ():
                    self._in_flight(known, one, agents.first, site, f"columns {column} to {column + columns - 1}")
        shadow.cells[:, :, part] = 0

    def _of_pair(self, agents: WarpAgents, site: int, gives_back: bool) -> None:
        """Check that a warp has observed the start of the other CTA of its pair; before dealloc, that CTA's
        allocation."""
        run, warp, known = self.run, agents.warp, agents.known(agents.warp.alive)
        cta = warp.cta.cluster.ctas[warp.cta.rank ^ 1]
        place, who = run.place(site), f"{name_of(warp)} {{}} tensor memory of a pair at {run.place(site)}, unaware that"
        if not gives_back:
            if not agents.cluster.has_started(cta, known):
                rule = judging.PEER_NOT_STARTED._replace(severity=UNPROMISED, section="tcgen05.alloc")
                run.tell_text(rule, f"{who.format('allocates')} CTA {cta.index} has started", place)
            self.pairs.setdefault(warp.cta, []).append((agents.first, agents.clock))
        elif not all(known.has(agent, clock, WEAK) for agent, clock in self.pairs.get(cta, [(-1, 1)])):
            run.tell_text(judging.NOT_ALLOCATED, f"{who.format('frees')} CTA {cta.index} has allocated it", place)

    def _in_flight(self, known: VectorClock, one: int, own: int, site: int, columns: str) -> None:
        """Report an access that dealloc has not observed, or only by arrivals of narrow scope."""
        run = self.run
        first, second = run.access(agent_of(one), one & SITE_MASK, False), run.access(own, site, True)
        rule = judging.unordered(first, second)._replace(code="dealloc-in-flight")
        if known.has(agent_of(one), one >> CLOCK_SHIFT, WEAK):
            rule = judging.weakly_ordered(False)
        run.tell(rule, first, second, one & SITE_MASK, site, f"{columns} of tensor memory")


class TensorPart:
    """Lanes and columns of an access. index: of the cells, as slices if they form a rectangle."""

    def __init__(self, run: RunState, shadow: TensorShadow, rows: Array, columns: Array) -> None:
        self.run, self.shadow = run, shadow
        low, high = int(rows.min()), int(rows.max()) + 1
        left, right = int(columns.min()), int(columns.max()) + 1
        count = np.broadcast(rows, columns).size
        is_whole = (high - low) * (right - left) == count
        self.index: Any = (slice(low, high), slice(left, right)) if is_whole else (rows, columns)

    def by(self, known: VectorClock, agent: int, clock: int, site: int, pipelined: int = -1) -> None:
        """Set the agent of the access. pipelined: agent of the same thread's tcgen05 operations, which run in order."""
        self.known, self.agent, self.site, self.pipelined = known, agent, site, pipelined
        self.word = cell(clock, agent, site)

    def check(self, slot: int, writes: bool) -> None:
        """Report the cells of a slot that the access has not observed. Slot 0 has the writers."""
        cells = distinct(self.shadow.cells[slot][self.index])
        if not cells.size:
            return
        missing, theirs = self.known.missing(cells, ORDERED), cells >> AGENT_SHIFT & AGENT_MASK
        queued = missing & (theirs == self.pipelined)
        for one in cells[queued].tolist():
            self._check_pipelined(one, slot, writes)
        for one in cells[missing & ~queued].tolist():
            self._tell(one, slot, writes, None)
        if "fence" in self.run.findings:
            return
        bare = ~missing & self.known.missing(cells, TENSOR) & (theirs != self.agent)
        for one in cells[bare].tolist():
            self._check_fence(one, slot, writes)

    def _tell(self, one: int, slot: int, writes: bool, rule: judging.Rule | None) -> None:
        self.run.tell_unknown(
            self.known, one, slot == 0, self.agent, self.site, writes, lambda: self._where(one, slot), rule=rule
        )

    def _where(self, one: int, slot: int) -> str:
        cells = self.shadow.cells[slot]
        inside = np.zeros(cells.shape, bool)
        inside[self.index] = True
        lane, column = np.argwhere((cells == one) & inside)[0]
        return f"lane {lane}, column {column} of tensor memory"

    def _check_pipelined(self, one: int, slot: int, writes: bool) -> None:
        """Report two tcgen05 operations of a thread whose order PTX does not guarantee: an mma, then a cp, or an mma
        that writes other elements than the first."""
        opcodes = self.run.sites[self.site].opcode, self.run.sites[one & SITE_MASK].opcode
        if ".mma" in opcodes[1] and (".cp." in opcodes[0] or (slot == 0 and not self._is_all_of(one))):
            self._tell(one, slot, writes, judging.OUT_OF_PIPELINE)

    def _is_all_of(self, one: int) -> bool:
        """Return True if these elements are all that the operation wrote, and no others."""
        cells = self.shadow.cells[0]
        mine = cells[self.index] == one
        return bool(mine.all()) and np.count_nonzero(cells == one) == mine.size

    def _check_fence(self, one: int, slot: int, writes: bool) -> None:
        """Report, once in a run, that two warps access tensor memory without tcgen05.fence between."""
        run = self.run
        if run.warp_of(agent_of(one)) == run.warp_of(self.agent):
            return
        first, second = run.access(agent_of(one), one & SITE_MASK, slot == 0), run.access(self.agent, self.site, writes)
        run.findings.setdefault(
            "fence", judging.finding(judging.NO_TCGEN05_FENCE, first, second, self._where(one, slot))
        )


def distinct(cells: Array) -> Array:
    """Return the different nonzero cells. Equal cells are neighbours in long runs."""
    flat = cells.reshape(-1)
    starts = np.flatnonzero(flat[1:] != flat[:-1]) + 1
    found = {int(flat[0]), *flat[starts].tolist()} - {0}
    return np.array(sorted(found), np.int64)
