"""Asynchronous operations: their streams, and the groups by which threads wait for them."""

from __future__ import annotations

from typing import Any

import numpy as np

from blackwell_matmul.emulator.lanes import ALL, LANES, indices
from blackwell_matmul.emulator.order.agents import Flying, WarpAgents
from blackwell_matmul.emulator.order.clocks import ASYNC_ROWS, EARLIER, OWN_ROWS
from blackwell_matmul.emulator.order.ptx_findings import UNPROMISED
from blackwell_matmul.emulator.order.rules.held_registers import RegisterUses
from blackwell_matmul.emulator.order.run_state import RunState


class Operations:
    """Checks of asynchronous operations. products: each warp's part of a wgmma, until every warp has waited for it."""

    def __init__(self, run: RunState, registers: RegisterUses) -> None:
        self.run, self.registers = run, registers
        self.products: dict[Any, list[Flying]] = {}

    def issued(self, operation: Any) -> None:
        run, warp = self.run, operation.warp
        agents, (site, at) = run.warps[warp], run.here()
        own, known = agents.known(operation.lanes), agents.sent(operation.lanes)
        made = operation.heard = Flying(known, agents, operation.lanes, agents.clock, site, at.order.proxy)
        self._name(made, at.opcode)
        made.begin = made.clock
        if agents.last is not None and _goes_on(agents.last, made):
            made.begin, made.sources = agents.last.begin, agents.last.sources
        agents.last = made
        if made.per_lane:
            made.known, made.copied = own, agents.copied.copy()
        if run.grid.order != "eager":
            cluster = agents.cluster
            warps = (each for cta in warp.cta.cluster.ctas for each in cta.warps)
            made.since = {cluster.number(each): run.warps[each].clock for each in warps}
        agents.clock += 1

    def _name(self, made: Flying, opcode: str) -> None:
        """Assign an operation to a stream. For operations without a group, an mbarrier determines the stream later."""
        agents, lane = made.warp, made.lanes.bit_length() - 1
        if opcode.startswith("cp.async.c"):
            if agents.copied is None:
                agents.copies = agents.stream("cp.async", "cp.async", "a cp.async", LANES)
                agents.copied = np.zeros(LANES, np.int64)
            made.agent, made.per_lane = agents.copies, True
        elif opcode.startswith("wgmma"):
            made.agent = agents.stream("wgmma", "wgmma", "a wgmma")
            made.product = (agents.warp.cta, agents.warp.index // 4, agents.products)
            self.products.setdefault(made.product, []).append(made)
            agents.products += 1
            self.registers.hold(agents, made.agent, made.site)
        elif opcode.startswith(("tcgen05.mma", "tcgen05.cp")):
            made.agent = made.pipelined = agents.stream((lane, "tcgen05"), "tcgen05", "a tcgen05 operation")
        elif opcode.startswith("tcgen05.st"):
            made.agent = agents.stream("st", "tcgen05.st", "a tcgen05.st")
        elif opcode.startswith(("cp.async.bulk", "cp.reduce")) and "mbarrier" not in opcode:
            made.agent = agents.stream((lane, "bulk"), "cp.async.bulk", "a bulk copy")
            made.reader = agents.stream((lane, "bulk read"), "cp.async.bulk.read", "a bulk copy")
            return
        made.reader = made.agent

    def waited(self, kind: str, operations: Any, warp: Any, mask: int) -> None:
        agents = self.run.warps[warp]
        if kind == "tcgen05.ld":
            agents.learn(mask, loads_of(agents), agents.clock, OWN_ROWS)
            self.registers.tell_early(agents, UNPROMISED)
            agents.clock += 1
            return
        only_reads = "read" in self.run.grid.current.source.modifiers
        for operation in operations:
            self._waited(agents, operation.heard, kind, mask, only_reads)
        if kind == "wgmma":
            self._waited_warpgroup(agents, [each.heard for each in operations])

    def _waited_warpgroup(self, agents: WarpAgents, products: list[Flying]) -> None:
        """Record that a warp has observed the other warps' parts, as a group belongs to the warpgroup (PTX ISA,
        "wgmma.commit_group").

        The part of the last product includes earlier parts. All parts were issued before one was complete.
        """
        for each in self.products[products[-1].product]:
            if each.warp is not agents:
                agents.receive(ALL, each.known.only(EARLIER).told(ASYNC_ROWS, each.agent, each.clock))
        for one in products:
            one.waited = True
            if all(each.waited for each in self.products[one.product]):
                del self.products[one.product]

    def _waited(self, agents: WarpAgents, found: Flying, kind: str, mask: int, only_reads: bool) -> None:
        if found.per_lane:
            lanes = list(indices(found.lanes & mask))
            agents.copied[lanes] = np.maximum(agents.copied[lanes], found.clock)
            return
        own = mask if kind in ("wgmma", "tcgen05.st") else mask & found.lanes
        rows = OWN_ROWS if kind == "tcgen05.st" else ASYNC_ROWS
        for agent in {found.reader} if only_reads else {found.reader, found.agent}:
            if agent >= 0 and own:
                agents.learn(own, agent, found.clock, rows)


def _goes_on(last: Flying, made: Flying) -> bool:
    """Return True if `made` was issued by the next lane in the same execution of an instruction as `last`."""
    return last.site == made.site and last.clock + 2 == made.clock and last.lanes < made.lanes


def loads_of(agents: WarpAgents) -> int:
    """Return the agent of a warp's tcgen05.ld."""
    return agents.stream("ld", "tcgen05.ld", "a tcgen05.ld")
