"""`RunState`: state of a run that all rules share, and its findings."""

from __future__ import annotations

import bisect
from collections.abc import Callable
from typing import Any, NamedTuple

from blackwell_matmul.emulator.code import Order, order_of
from blackwell_matmul.emulator.lanes import LANES
from blackwell_matmul.emulator.order import judging
from blackwell_matmul.emulator.order.agents import ClusterAgents, Flying, WarpAgents, name_of
from blackwell_matmul.emulator.order.clocks import CLOCK_SHIFT, SITE_MASK, WEAK, VectorClock, agent_of
from blackwell_matmul.emulator.order.judging import MemoryAccess, Rule
from blackwell_matmul.emulator.order.ptx_findings import ERROR, Place, PtxFinding

Words = Callable[[], str]
"""Function that returns a text for the place where two accesses overlap."""


class Site(NamedTuple):
    """An instruction, with the memory order of its opcode. step: the Executable."""

    step: Any
    order: Order
    opcode: str


class RunState:
    """State of a run. findings: by instructions and severity, in the order of discovery. owners: CTA of each memory.
    issuers: by instruction, the cluster and the warp that issued operations that an mbarrier counts."""

    grid: Any

    def __init__(self) -> None:
        self.findings: dict[Any, PtxFinding] = {}
        self.certain: set[Any] = set()
        self.clusters: list[ClusterAgents] = []
        self.bases: list[int] = []
        self.warps: dict[Any, WarpAgents] = {}
        self.owners: dict[Any, Any] = {}
        self.issuers: dict[int, Any] = {}
        self.sites: list[Site] = []
        self._site_of: dict[int, int] = {}

    # --- instructions

    def site_of(self, step: Any) -> int:
        found = self._site_of.get(id(step))
        if found is None:
            found = self._site_of[id(step)] = len(self.sites) & SITE_MASK
            self.sites.append(Site(step, order_of(step.source), step.source.opcode))
        return found

    def here(self) -> tuple[int, Site]:
        """Return the number and the Site of the running instruction."""
        number = self.site_of(self.grid.current)
        return number, self.sites[number]

    def place(self, site: int) -> Place:
        return judging.place_of(self.sites[site].step)

    # --- agents

    def cluster_of(self, agent: int) -> ClusterAgents:
        return self.clusters[bisect.bisect_right(self.bases, agent) - 1]

    def warp_of(self, agent: int) -> tuple[int, int]:
        """Return the cluster's base, and the warp's number in the cluster."""
        cluster = self.cluster_of(agent)
        return cluster.base, cluster.warp_of(agent)

    def access(self, agent: int | Flying, site: int, writes: bool) -> MemoryAccess:
        if isinstance(agent, Flying):
            return self.access_of(agent, writes)
        cluster = self.cluster_of(agent)
        stream = cluster.stream_of(agent)
        if stream is not None:
            return MemoryAccess(self.place(site), stream.what, stream.kind, writes, self._issuer(agent, site))
        number, lane = divmod(agent - cluster.base, LANES)
        return MemoryAccess(
            self.place(site), f"lane {lane} of {cluster.name(number)}", "", writes, (cluster.base, number)
        )

    def _issuer(self, agent: int, site: int) -> Any:
        """Return the warp of a thread or of an operation. For operations that an mbarrier counts, return the last warp
        that issued them at `site`."""
        cluster = self.cluster_of(agent)
        number = cluster.warp_of(agent)
        return (cluster.base, number) if number >= 0 else self.issuers.get(site)

    def access_of(self, flying: Flying, writes: bool) -> MemoryAccess:
        """Return the access of an operation, whose stream may not be known yet."""
        agent = flying.agent if writes else flying.reader
        stream = self.cluster_of(agent).stream_of(agent) if agent >= 0 else None
        cluster, warp = flying.warp.cluster, flying.warp.warp
        who, number = f"an operation of {name_of(warp)}", cluster.number(warp)
        kind = stream.kind if stream else "mbarrier"
        return MemoryAccess(self.place(flying.site), who, kind, writes, (cluster.base, number))

    # --- findings

    def tell(self, rule: Rule, first: MemoryAccess, second: MemoryAccess, a: int, b: int, where: str) -> None:
        """Report a pair of instructions once, preferably by accesses of one warp, whose order is certain."""
        key, certain = (min(a, b), max(a, b), rule.severity), first.warp == second.warp
        before = self.findings.get(key)
        if before is None or (certain and key not in self.certain):
            self.findings[key] = judging.finding(rule, first, second, where)
        if certain:
            self.certain.add(key)

    def tell_text(self, rule: Rule, text: str, first: Place, second: Place | None = None) -> None:
        """Report an instruction once for each rule, with this text."""
        self.findings.setdefault((rule.code, rule.severity, first.line), judging.as_finding(rule, text, first, second))

    def tell_unknown(
        self, known: VectorClock, one: int, wrote: bool, own: int | Flying, site: int, writes: bool, where: Words,
        later: bool = False, rule: Rule | None = None,
    ) -> None:  # fmt: skip
        """Report an earlier access (the cell `one`) that the current access has not observed. own: agent or operation
        of the current access. later: True if the earlier access came after the issue of the operation. rule: kind of
        finding; None: derived from both accesses."""
        a = one & SITE_MASK
        agent = agent_of(one)
        if rule is None and known.has(agent, one >> CLOCK_SHIFT, WEAK):
            is_operation = self.cluster_of(agent).stream_of(agent) is not None
            rule = judging.weakly_ordered(wrote, is_operation and writes)
        if self._is_told(a, site, rule.severity if rule else ERROR, agent, own):
            return
        first, second = self.access(agent, a, wrote), self.access(own, site, writes)
        if later:
            first, second, a, site = second, first, site, a
        self.tell(rule or judging.unordered(first, second), first, second, a, site, where())

    def _is_told(self, a: int, b: int, severity: str, one: int, own: int | Flying) -> bool:
        """Return True if the two instructions were reported before and a new report would not replace the old one."""
        key = (min(a, b), max(a, b), severity)
        if key in self.certain or key not in self.findings:
            return key in self.certain
        mine = own.warp.first if isinstance(own, Flying) else own
        return bool(self._issuer(one, a) != self._issuer(mine, b))
