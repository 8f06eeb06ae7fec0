"""Accesses by threads to the tensor memory of a CTA pair, which must be signalled to the other CTA before its next mma
uses that memory.

PTX ISA, "tcgen05 Memory Consistency Model": an arrival and a wait order it, relaxed ones too, if both have the scope of
the cluster. That is looked at where they arrive and wait: a CTA may know by another way as well, as of a tile by the
answer that names the next one, and the arrival that is there to tell it tells nothing.
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
    """Access by threads to a pair's tensor memory. told: the arrival that may signal it to the other CTA."""

    instruction: Instruction
    write: bool
    told: Instruction | None = None


class Drains:
    """Accesses to pairs' tensor memory that the other CTA must learn of. issuers: CTAs that multiply for their pairs.
    untold: by lanes and access, the events that were not signalled to the other CTA. heard: by mbarrier, the access
    that it signals to waits of cluster scope. found: by the arrival or the wait that is too weak."""

    def __init__(self) -> None:
        self.issuers: set[Cta] = set()
        self.untold: dict[tuple[Lanes, Drain], int] = {}
        self.heard: dict[Mbarrier, Drain] = {}
        self.found: dict[Instruction, tuple[Cta, Finding]] = {}

    @property
    def events(self) -> int:
        kept = 0
        for event in self.untold.values():
            kept |= event
        return kept

    def touches(self, lanes: Lanes, instruction: Instruction, effect: Effect, event: int) -> None:
        if self.issuers:
            self.untold[lanes, Drain(instruction, effect.access is Access.WRITE)] = event

    def told(self, events: int) -> None:
        """Remove these events: they are signalled to the other CTA."""
        self.untold = {drain: event for drain, event in self.untold.items() if not event & events}

    def arrives(self, barrier: Mbarrier, lanes: Lanes, instruction: Instruction, events: int) -> None:
        """Note that lanes ordered after these events arrive at another CTA."""
        known = [drain for (_, drain), event in self.untold.items() if event & events]
        if not known or barrier.cta not in self.issuers or barrier.cta.rank // 2 != lanes.cta.rank // 2:
            return
        worst = max(known, key=lambda drain: drain.write)
        if instruction.scope == "cluster":
            self.heard[barrier] = worst._replace(told=instruction)
            self.told(events)
        else:
            what = f"the arrival on {barrier} by {lanes} has scope cta and tells that CTA nothing of"
            self._find(what, "release", lanes, instruction, worst)

    def passes(self, barrier: Mbarrier, lanes: Lanes, instruction: Instruction) -> None:
        """Note that lanes have waited on a barrier."""
        heard = self.heard.get(barrier)
        if heard is not None and heard.told is not None and instruction.scope != "cluster":
            what = f"the wait on {barrier} by {lanes} has scope cta and hears nothing of"
            self._find(what, "acquire", lanes, instruction, heard)

    def _find(self, what: str, edge: str, lanes: Lanes, instruction: Instruction, drain: Drain) -> None:
        done = f"{drain.instruction.name} at {drain.instruction.location}"
        told = f", of which the arrival at {drain.told.location} tells" if drain.told else ""
        advice = f'with scope="cluster" it does (PTX ISA, "{SECTION}")'
        finding = Finding(
            "relaxed-wait", Severity.ERROR if drain.write else Severity.UNGUARANTEED, f"{what} {done}{told}; {advice}",
            lanes.cta.position, instruction.location, drain.instruction.location, missing=edge,
            at_fault=instruction.location, agents=(str(lanes),), advice=advice,
        )  # fmt: skip
        self.found.setdefault(instruction, (lanes.cta, finding))
