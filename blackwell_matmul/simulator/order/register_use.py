"""Registers of asynchronous operations. No other instruction may use them before the wait. An mma of a warpgroup may,
but only after a wgmma.fence (PTX ISA, "wgmma.fence", "wgmma.wait_group", "tcgen05.wait")."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.description import Instruction
from blackwell_matmul.simulator.findings import Code, Severity
from blackwell_matmul.simulator.lowering.accumulators import root_of
from blackwell_matmul.simulator.machine.cta import Warp
from blackwell_matmul.simulator.machine.operation import AsyncOperation
from blackwell_matmul.simulator.order.knowledge import Operation
from blackwell_matmul.simulator.order.warpgroups import Warpgroups
from blackwell_matmul.simulator.semantics.wgmma import UNCOMMITTED, Mma

FENCE: Final = "missing-wgmma-fence"


class Use(NamedTuple):
    """A use of an accumulator. shape: of the mma; None for an ordinary instruction. what: the use as text."""

    registers: np.ndarray  # held, so that its id stays its own
    location: Location | None
    what: str
    shape: tuple[Any, ...] = ()
    write: bool = True


@dataclass(eq=False)
class Registers:
    """State of a warp's registers. loading: the operation that fills them. latest: the last mma on them in flight.
    since: their last use since the last fence. fenced: the warp has executed a wgmma.fence."""

    loading: dict[int, AsyncOperation] = field(default_factory=dict)
    latest: dict[int, tuple[Use, Operation]] = field(default_factory=dict)
    since: dict[int, Use] = field(default_factory=dict)
    fenced: bool = False


class RegisterUse:
    """The check of registers, a part of `HappensBefore`."""

    def __init__(self, warpgroups: Warpgroups) -> None:
        self.warps: dict[Warp, Registers] = {}
        self.warpgroups = warpgroups

    def of(self, warp: Warp) -> Registers:
        found = self.warps.get(warp)
        if found is None:
            found = self.warps[warp] = Registers()
        return found

    # what happens

    def issued(self, operation: Operation, warp: Warp, instruction: Instruction) -> None:
        op = operation.op
        if isinstance(op, Mma):
            self._multiplies(operation, op, warp, instruction)
        else:
            self.of(warp).loading[id(op.registers[warp.index])] = op

    def waited(self, operation: Operation, warp: Warp) -> None:
        mine, op = self.of(warp), operation.op
        if isinstance(op, Mma):
            mine.latest = {key: (use, last) for key, (use, last) in mine.latest.items() if last is not operation}
        else:
            mine.loading.pop(id(op.registers[warp.index]), None)

    def fenced(self, warp: Warp) -> None:
        mine = self.of(warp)
        mine.fenced = True
        mine.since.clear()

    def used(self, warp: Warp, instruction: Instruction, registers: np.ndarray, name: str, write: bool) -> None:
        mine, key = self.of(warp), id(registers)
        if key in mine.loading:
            _report_loading(warp, instruction, mine.loading[key], name)
        if warp.wgmmas is None:  # no wgmma.fence yet, and the first one comes after this
            return
        latest, since = mine.latest.get(key), mine.since.get(key)
        if latest is not None:
            self._report_in_flight(warp, instruction, latest[1], name, write)
        if since is None or since.shape or write:
            what = f"{instruction.name} {'has written' if write else 'has read'}"
            mine.since[key] = Use(registers, instruction.location, what, write=write)

    # mma

    def _multiplies(self, operation: Operation, op: Mma, warp: Warp, instruction: Instruction) -> None:
        """Report a missing wgmma.fence. It is needed before the first mma of a warpgroup, and after each use of the
        accumulator other than by an mma of the same shape. After a read alone hardware needs none."""
        mine, root = self.of(warp), root_of(op.registers[warp.index])
        latest, since = mine.latest.get(id(root)), mine.since.get(id(root))
        if latest is not None and latest[0].shape != op.shape:
            self._report_in_flight(warp, instruction, latest[1], op.accumulator, write=True)
        before = f"the missing fence: wgmma.fence() before {instruction.location}"
        if not mine.fenced:
            what = f"on {op.accumulator} comes before any wgmma.fence of its warpgroup; {before}"
            _report_fence(warp, instruction, op.accumulator, what, None)
            mine.fenced = True
        elif since is not None and since.shape != op.shape:
            what = f"uses {op.accumulator}, which {since.what} at {since.location} since the last wgmma.fence"
            _report_fence(warp, instruction, op.accumulator, f"{what}; {before}", since)
        use = Use(root, instruction.location, f"{instruction.name} of another shape has used", op.shape)
        mine.since[id(root)], mine.latest[id(root)] = use, (use, operation)

    def _report_in_flight(
        self, warp: Warp, instruction: Instruction, operation: Operation, name: str, write: bool
    ) -> None:
        op, who, passed = operation.op, f"warp {warp.index}", operation.passed
        remedy = self.warpgroups.remedy(operation, self.warpgroups.commits[warp], str(instruction.location))
        advice, at_fault = f"the missing wait: {remedy}", None
        if passed is not None:
            advice, at_fault = passed.advice, passed.location
        verb, doing = ("overwrites", "still accesses") if write else ("reads", "has not finished writing")
        message = f"{instruction.name} by {who} {verb} {name}, which {op.name} {doing}; {advice}"
        code: Code = "overwritten-in-flight" if write else "read-before-complete"
        missing = "commit" if remedy.startswith(UNCOMMITTED) else "wait"
        warp.cta.report(
            code, message, instruction.location, op.location,
            missing=missing, at_fault=at_fault, tensor=name, agents=(who, who), advice=advice,
        )  # fmt: skip


def _report_loading(warp: Warp, instruction: Instruction, op: AsyncOperation, name: str) -> None:
    advice, who = f"the missing wait: {op.remedy}", f"warp {warp.index}"
    message = f"{instruction.name} by {who} reads {name}, which {op.name} has not finished writing; {advice}"
    warp.cta.report(
        "read-before-complete", message, instruction.location, op.location,
        missing="wait", tensor=name, agents=(who, who), advice=advice,
    )  # fmt: skip


def _report_fence(warp: Warp, instruction: Instruction, name: str, what: str, since: Use | None) -> None:
    severity = Severity.ERROR if since is None or since.write else Severity.UNGUARANTEED
    who, advice = f"warp {warp.index}", what.rpartition("; ")[2]
    other = None if since is None else since.location
    warp.cta.report(
        FENCE, f"{instruction.name} by {who} {what}", instruction.location, other, severity,
        missing="fence", tensor=name, agents=(who,), advice=advice,
    )  # fmt: skip
