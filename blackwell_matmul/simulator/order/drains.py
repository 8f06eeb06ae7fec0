"""Threads' accesses to the tensor memory of a CTA pair. An arrival must signal them to the other CTA before its next
mma uses that memory.

PTX ISA, "tcgen05 Memory Consistency Model": an arrival and a wait order the accesses, relaxed ones too, if both have
cluster scope. The check is made at the arrival and the wait. The CTAs may also be ordered in another way, such as by
the CLC response that names the next tile, and then the arrival at CTA scope is still wrong.
"""

from __future__ import annotations

from typing import NamedTuple

from blackwell_matmul.simulator.description import Access, Effect, Instruction
from blackwell_matmul.simulator.findings import Finding, Severity
from blackwell_matmul.simulator.machine.barrier import Mbarrier
from blackwell_matmul.simulator.machine.cta import Cta
from blackwell_matmul.simulator.order.frontier import Lanes

SECTION = "tcgen05 Memory Consistency Model"


class Drain(NamedTuple):
    """A threads' access to a pair's tensor memory. arrival: the arrival that signals the access to the other CTA."""

    instruction: Instruction
    write: bool
    arrival: Instruction | None = None


class Drains:
    """Accesses to pairs' tensor memory. issuers: CTAs that issue the mma of their pairs. unsignalled: events not yet
    signalled to the other CTA, by lanes and access. heard: by mbarrier, the access that the mbarrier signals at cluster
    scope. found: findings, by the arrival or wait that is too weak."""

    def __init__(self) -> None:
        self.issuers: set[Cta] = set()
        self.unsignalled: dict[tuple[Lanes, Drain], int] = {}
        self.heard: dict[Mbarrier, Drain] = {}
        self.found: dict[Instruction, tuple[Cta, Finding]] = {}

    @property
    def events(self) -> int:
        kept = 0
        for event in self.unsignalled.values():
            kept |= event
        return kept

    def touches(self, lanes: Lanes, instruction: Instruction, effect: Effect, event: int) -> None:
        if self.issuers:
            self.unsignalled[lanes, Drain(instruction, effect.access is Access.WRITE)] = event

    def signalled(self, events: int) -> None:
        """Remove these events, because they were signalled to the other CTA."""
        self.unsignalled = {drain: event for drain, event in self.unsignalled.items() if not event & events}

    def arrives(self, barrier: Mbarrier, lanes: Lanes, instruction: Instruction, events: int) -> None:
        """Record an arrival at the other CTA by lanes that these events happen before."""
        known = [drain for (_, drain), event in self.unsignalled.items() if event & events]
        if not known or barrier.cta not in self.issuers or barrier.cta.rank // 2 != lanes.cta.rank // 2:
            return
        worst = max(known, key=lambda drain: drain.write)
        if instruction.scope == "cluster":
            self.heard[barrier] = worst._replace(arrival=instruction)
            self.signalled(events)
        else:
            what = f"the arrival on {barrier} by {lanes} has scope cta and does not order for that CTA"
            self._find(what, "release", lanes, instruction, worst)

    def passes(self, barrier: Mbarrier, lanes: Lanes, instruction: Instruction) -> None:
        """Record a wait of the lanes on an mbarrier, and report a wait of CTA scope."""
        heard = self.heard.get(barrier)
        if heard is not None and heard.arrival is not None and instruction.scope != "cluster":
            what = f"the wait on {barrier} by {lanes} has scope cta and does not order"
            self._find(what, "acquire", lanes, instruction, heard)

    def _find(self, what: str, edge: str, lanes: Lanes, instruction: Instruction, drain: Drain) -> None:
        done = f"{drain.instruction.name} at {drain.instruction.location}"
        by = f", which the arrival at {drain.arrival.location} signals" if drain.arrival else ""
        advice = f'with scope="cluster" it does (PTX ISA, "{SECTION}")'
        finding = Finding(
            "relaxed-wait", Severity.ERROR if drain.write else Severity.UNGUARANTEED, f"{what} {done}{by}; {advice}",
            lanes.cta.position, instruction.location, drain.instruction.location, missing=edge,
            at_fault=instruction.location, agents=(str(lanes),), advice=advice,
        )  # fmt: skip
        self.found.setdefault(instruction, (lanes.cta, finding))
