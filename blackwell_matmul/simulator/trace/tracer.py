"""Events of one CTA, in the simulator's order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.description import (
    Access,
    Description,
    Effect,
    ExecutedBy,
    Instruction,
    Proxy,
    Space,
)
from blackwell_matmul.simulator.findings import Event, Finding
from blackwell_matmul.simulator.listener import Listener
from blackwell_matmul.simulator.machine.barrier import Mbarrier
from blackwell_matmul.simulator.machine.cta import Warp
from blackwell_matmul.simulator.machine.grid import Position
from blackwell_matmul.simulator.machine.memory import Region
from blackwell_matmul.simulator.machine.operation import AsyncOperation

MAX_EVENTS = 20_000


class Tracer(Listener):
    """Tracer of a CTA. detailed: also loads, stores, findings, waits, and the operands of every issue."""

    def __init__(self, position: Position, detailed: bool = False) -> None:
        self.position, self.detailed = position, detailed
        self.events: list[Event] = []

    def add(self, agent: str, kind: str, what: str, location: Location | None) -> None:
        if len(self.events) < MAX_EVENTS:
            self.events.append(Event(len(self.events), self.position, agent, kind, what, location))

    def of(self, warp: Warp, kind: str, what: str, location: Location | None) -> None:
        if warp.cta.position == self.position:
            self.add(f"warp {warp.index}", kind, what, location)

    # events

    def returned(self, warp: Warp) -> None:
        self.of(warp, "exit", "returned", None)

    def accessed(self, warp: Warp, instruction: Instruction, effect: Effect, region: Region) -> None:
        if self.detailed and not region.storage.constant:
            preposition = "to" if effect.access is Access.WRITE else "of"
            self.of(warp, "access", f"{instruction.name} {preposition} {region}", instruction.location)

    def issued(self, op: AsyncOperation, warp: Warp, instruction: Instruction, regions: Mapping[str, Region]) -> None:
        """Record an issue: in detail with all operands; otherwise of the async proxy and tensor core with the
        main one."""
        description = instruction.description
        if self.detailed and regions and not op.registers:
            text = ", ".join(dict.fromkeys(map(str, regions.values())))
            self.of(warp, "issue", f"{op.name} on {text}", op.location)
        if op.barrier is not None and not regions:
            self.of(warp, "issue", f"{op.name} to {op.barrier.name}", op.location)
        elif any(effect.proxy is Proxy.ASYNC for effect in description.effects):
            self.of(warp, "issue", f"{op.name}{_object(description, regions)}", op.location)

    def joined(self, op: AsyncOperation, warp: Warp, instruction: Instruction, regions: Mapping[str, Region]) -> None:
        self.of(warp, "issue", op.name, op.location)

    def completed(self, op: AsyncOperation, put_off: bool) -> None:
        if op.cta.position == self.position:
            self.add(op.agent, "complete", op.name, op.location)

    def arrived(self, barrier: Mbarrier, warp: Warp, instruction: Instruction, scope: str, count_bytes: int) -> None:
        name = barrier.name if barrier.cta is warp.cta else str(barrier)
        text = f" expects {count_bytes} bytes" if count_bytes else ""
        self.of(warp, "arrive", f"{name}{text}", instruction.location)

    def passed(self, barrier: Mbarrier, warp: Warp, instruction: Instruction, scope: str) -> None:
        if self.detailed:
            what = f"phase {barrier.phase - 1} of {barrier.name} is over"
            self.of(warp, "resume", what, instruction.location)

    def comes(self, barrier: Mbarrier, warp: Warp, instruction: Instruction, parity: int) -> None:
        self.of(warp, "wait", f"{barrier.name}, parity {parity & 1}", instruction.location)

    def waits(self, warp: Warp, instruction: Instruction, what: str) -> None:
        if self.detailed or instruction.description.lanes is ExecutedBy.ELECTED:
            self.of(warp, "wait", what, instruction.location)

    def met(self, warps: Sequence[Warp], last: Warp, instruction: Instruction | None) -> None:
        """Record a barrier of threads, unless it is part of another instruction."""
        if instruction is not None and len(warps) > 1 and not instruction.description.effects:
            self.of(last, "resume", f"{instruction.name}: all warps are here", instruction.location)

    def fenced(self, warp: Warp, instruction: Instruction, space: str) -> None:
        if space != "registers":
            self.of(warp, "issue", instruction.name, instruction.location)

    def found(self, finding: Finding) -> None:
        if self.detailed and finding.cta == self.position:
            self.add(finding.agents[0] if finding.agents else "", "finding", finding.code, finding.location)


def _object(description: Description, regions: Mapping[str, Region]) -> str:
    """Return ` to S[0:64]` for a load, ` of S[0:64]` for a store, "" for an mma."""
    shared = [e for e in description.effects if e.space is Space.SHARED and e.operand in regions]
    if any(e.space is Space.GLOBAL for e in description.effects) and shared:
        return f" {'to' if shared[0].access is Access.WRITE else 'of'} {regions[shared[0].operand]}"
    return ""
