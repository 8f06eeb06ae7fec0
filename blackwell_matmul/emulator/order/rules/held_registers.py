"""Uses of registers that a pending wgmma or tcgen05.ld still reads or writes."""

from __future__ import annotations

from typing import Any

from blackwell_matmul.emulator.order import judging, touched_registers
from blackwell_matmul.emulator.order.agents import WarpAgents
from blackwell_matmul.emulator.order.ptx_findings import ERROR, UNPROMISED
from blackwell_matmul.emulator.order.run_state import RunState


class RegisterUses:
    """Rules for instructions that use registers of pending asynchronous operations."""

    def __init__(self, run: RunState) -> None:
        self.run = run

    def hold(self, agents: WarpAgents, agent: int, site: int) -> None:
        """Record the registers of a wgmma or a tcgen05.ld as pending."""
        each, found = self.run.sites[site].step.source, agents.registers
        if site in found.early:
            self.tell_early(agents, ERROR)
        writes, reads = touched_registers.held_by(each)
        if touched_registers.is_wgmma(each):
            self._check_fence(agents, site, found.fresh.keys() & (writes | reads))
        found.held.update(dict.fromkeys(reads, (agent, agents.clock, site, False)))
        found.held.update(dict.fromkeys(writes, (agent, agents.clock, site, True)))

    def _check_fence(self, agents: WarpAgents, site: int, fresh: set[int]) -> None:
        found = agents.registers
        if not fresh and found.fenced:
            return
        first = found.fresh[min(fresh)] if fresh else site
        a, b = (self.run.access(agents.first, one, True) for one in (first, site))
        rule = judging.NO_WGMMA_FENCE._replace(severity=UNPROMISED if found.fenced else ERROR)
        self.run.tell(rule, a, b, 0, 0, "registers of the wgmma" if fresh else "its registers")

    def used(self, warp: Any, step: Any, mask: int, touched: touched_registers.Touched) -> None:
        """Check an instruction that uses registers of a pending wgmma or tcgen05.ld."""
        agents = self.run.warps[warp]
        found = agents.registers
        if touched.fresh:
            found.fresh.update(dict.fromkeys(touched.fresh, self.run.site_of(self.run.grid.current)))
        slots = touched.all & found.held.keys()
        if not slots:
            return
        known = agents.known(mask)
        for slot in slots:
            agent, clock, site, is_written = found.held[slot]
            if known.has(agent, clock):
                del found.held[slot]
            elif slot in touched.writes or is_written:
                self._judge(agents, mask, agent, site, slot in touched.writes and slot not in touched.reads, touched)
        if touched.moves:
            for slot in touched.reads & found.held.keys():
                found.held.update(dict.fromkeys(touched.writes, found.held[slot]))

    def _judge(
        self, agents: WarpAgents, mask: int, agent: int, held: int, writes: bool, touched: touched_registers.Touched
    ) -> None:
        run, moves = self.run, touched.moves
        early = run.sites[held].opcode.startswith("tcgen05.ld") and not writes
        if early and (moves or held in agents.registers.early):
            return
        site, _ = run.here()
        first = run.access(agent, held, not writes)
        second = run.access(agents.first + mask.bit_length() - 1, site, writes)
        rule = judging.unordered(first, second)
        if early:
            agents.registers.early[held] = (rule, first, second)
            return
        if moves:
            rule = rule._replace(severity=UNPROMISED)
        run.tell(rule, first, second, held, -1 if moves else site, "registers")

    def tell_early(self, agents: WarpAgents, severity: str) -> None:
        """Report results of tcgen05.ld that were used before a wait. Without any later wait, this is an error. With a
        later wait, the use is unpromised: the assembler sees that the registers depend on the load; Triton relies on
        that."""
        for site, (rule, first, second) in agents.registers.early.items():
            key = (site, site) if severity == ERROR else (0, 1)
            self.run.tell(rule._replace(severity=severity), first, second, *key, "registers")
        agents.registers.early = {}
