"""`LoweringContext`: one instruction at its place in one program, as its lowering sees it.

A lowering names the operands and scalars that its callable needs (`use`, `scalar`), and gets the warp layouts of its
register tensors. It accesses memory, barriers and other warps only as its description allows: `touch` and `launch`
perform its effects, `signal` its signals, `wait_on`, `end` and `meet` its waits. Listeners get an event for each, so
every check follows from the description.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Generator, Iterable, Mapping
from functools import partial
from typing import Any, NamedTuple, Protocol

import numpy as np

from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.frontend.program import Location, Program
from blackwell_matmul.simulator.arithmetic import Undefined
from blackwell_matmul.simulator.description import (
    Access,
    Description,
    Effect,
    ExecutedBy,
    Instruction,
    SignalKind,
    WaitKind,
    When,
)
from blackwell_matmul.simulator.engine import Blocked, Engine
from blackwell_matmul.simulator.findings import Severity
from blackwell_matmul.simulator.machine.barrier import Mbarrier
from blackwell_matmul.simulator.machine.cta import Cta, Rendezvous, Warp, spell
from blackwell_matmul.simulator.machine.memory import Region
from blackwell_matmul.simulator.machine.operation import AsyncOperation, IssuedGroups, every_groups_of, groups_of
from blackwell_matmul.simulator.machine.registers import WARP, ThreadGroup, WarpLayout, warp_layout


class Names(Protocol):
    """Names in the generated code."""

    program: Program

    def value_of(self, tensor: Any) -> str: ...

    def scalar(self, expression: Any) -> str: ...

    def is_defined(self, tensor: Any) -> bool: ...

    def source_of(self, tensor: Any, rank: int, multiple: int) -> int: ...

    def is_deferrable(self, tensor: Any) -> bool: ...


class Moved(NamedTuple):
    """A call's access to a global tensor. view, offsets: its arguments. source: the tensor's number among those
    accessed so. extents: the tile's, in the tensor's dimensions."""

    view: int
    offsets: int
    source: int
    extents: tuple[int, ...]


def _tuple(texts: list[str]) -> str:
    return f"({''.join(f'{text}, ' for text in texts)})"


class LoweringContext:
    """Facts and effects of a lowering. operands: tensor arguments. logged: the callable's scalars; moved: those of a
    place.

    A lowering sets kind, how the generated code calls it: "plain" (a call), "blocking" (a call that may return a wait),
    "steps" (a generator that waits by itself and returns the result) or "exit" (the warp returns after it). result: its
    scalar variable. by_value: values decide which operands its result depends on. carry(warp, arguments, *arguments
    with origins instead of registers): the origins of the result, if they do not move as the elements do
    (unwritten.py). chosen(warp, *arguments): mask of the register elements that it reads; None: all. foreseen: its text
    in `scan`, if its result is known ahead (replay/).
    """

    def __init__(
        self, names: Names, inst: Any, description: Description, group: ThreadGroup, location: Location | None
    ) -> None:
        self._names = names
        self.inst = inst
        self.instruction = Instruction(description, group, location, getattr(inst, "scope", ""))
        self.description, self.group, self.location = description, group, location
        self.program = names.program
        self.arguments: list[str] = []
        self.operands: dict[int, Any] = {}
        self.kind = "plain"
        self.result: Any = None
        self.by_value = False
        self.logged: list[str] = []
        self.foreseen = ""
        self.moved: Moved | None = None
        self.carry: Callable[..., np.ndarray] | None = None
        self.chosen: Callable[..., np.ndarray] | None = None
        self._reads = [e.operand for e in description.touching(Access.READ, When.COMPLETION)]
        self._later = {e.operand for e in description.effects if e.when is When.COMPLETION}
        self._at_issue = description.signalling(When.ISSUE)
        self._at_completion = description.signalling(When.COMPLETION)
        self._issuing = 1 if description.lanes is ExecutedBy.ELECTED else WARP

    # operands

    def use(self, *tensors: Any) -> None:
        """Pass the value of each tensor (registers, or a view) to the callable, as its next argument."""
        for tensor in tensors:
            self.operands[len(self.arguments)] = tensor
            self.arguments.append(self._names.value_of(tensor))

    def scalar(self, *expressions: Any) -> None:
        """Pass the value of each scalar expression as the next argument."""
        for expression in expressions:
            self.arguments.append(self._names.scalar(expression))
            self.logged.append(self.arguments[-1])

    def scalars(self, expressions: Any) -> None:
        """Pass several scalar expressions as one tuple."""
        texts = [self._names.scalar(e) for e in expressions]
        self.arguments.append(_tuple(texts))
        self.logged += texts

    def place(
        self, tensor: Any, offsets: Any, dims: tuple[int, ...], shape: tuple[int, ...], multiple: int = 1
    ) -> None:
        """Pass the offsets of a tile, of `shape` over `dims`, in a global tensor (named by `use`) as one tuple.

        multiple: step of the last offset. CTAs with different remainders are not alike (replay/).
        """
        extents = dict(zip(sorted(dims), shape, strict=True))
        view, texts = self.arguments.index(self._names.value_of(tensor)), [self._names.scalar(e) for e in offsets]
        ones = tuple(extents.get(dim, 1) for dim in range(len(texts)))
        source = self._names.source_of(tensor, len(ones), multiple)
        self.moved = Moved(view, len(self.arguments), source, ones)
        self.arguments.append(_tuple(texts))

    def defined(self, tensor: Any) -> bool:
        """Return True if the tensor already has a value, which the instruction then updates in place."""
        return self._names.is_defined(tensor)

    def name(self, tensor: Any, fallback: str = "tensor") -> str:
        return self.program.name_of(tensor) or fallback

    def deferrable(self, tensor: Any) -> bool:
        """Return True if the instruction's value may be passed on as a `Patch` or a `Sum`."""
        return self._names.is_deferrable(tensor)

    def layouts(self, tensor: Any) -> Mapping[int, WarpLayout]:
        """Return each warp's part of the tensor's register layout."""
        return layouts_of(tensor, self.group)

    def fail(self, why: str) -> UnsupportedError:
        return UnsupportedError(f"The simulator cannot run {self.description.name} at {self.location}: {why}.")

    # effects

    def effect(self, operand: str) -> Effect:
        for effect in self.description.effects:
            if effect.operand == operand:
                return effect
        raise AssertionError(f"{self.description.name} declares no effect on {operand}")

    def touch(self, operand: str) -> Callable[[Warp, Region], None]:
        """Return a function of the region for an access that is over when the instruction is."""
        effect, instruction = self.effect(operand), self.instruction
        assert effect.when is When.ISSUE, f"{self.description.name} touches {operand} later: launch an operation"

        def access(warp: Warp, region: Region) -> None:
            warp.cta.engine.tell.accessed(warp, instruction, effect, region)

        return access

    def launch(
        self,
        warp: Warp,
        regions: Mapping[str, Region],
        complete: Callable[[], bool | None],
        *,
        agent: str,
        family: str = "",
        barrier: Mbarrier | None = None,
        count_bytes: int = 0,
        cta: Cta | None = None,
        lanes: int = 0,
        **others: Any,
    ) -> AsyncOperation:
        """Start an asynchronous operation. At its end it signals the barrier, as described.

        agent: its name in a trace. family: of the groups in which its warp waits for it: "cp.async", "bulk" (that of
        tma.commit_group) or one of its own; lanes: those that issue a part of it, and have to wait; 0: those of the
        description. count_bytes: of complete-tx. cta: the CTA whose shared memory it writes, if another one of the
        cluster. others: as of `AsyncOperation`.
        """
        assert regions.keys() <= self._later, f"{self.description.name} declares no later effect on {[*regions]}"
        op = AsyncOperation(
            cta or warp.cta, warp, self.description.name, agent, self.location, complete,
            signal=None if barrier is None else partial(self._signal_end, warp.cta.engine, barrier, count_bytes),
            reads=tuple([regions[name] for name in self._reads if name in regions]), barrier=barrier,
            count_bytes=count_bytes, remedy=self.description.completes_by if barrier is None else barrier.remedy,
            **others,
        )  # fmt: skip
        warp.cta.engine.issue(op, warp, self.instruction, regions)
        if family:
            op.lanes = self.group.mask(warp.index, lanes or self._issuing)
            for each in groups_of(warp, family, op.lanes):
                each.open.append(op)
        return op

    # signals

    def _signal_end(self, engine: Engine, barrier: Mbarrier, count_bytes: int) -> None:
        for kind in self._at_completion:
            if kind == "complete_tx":
                engine.complete_tx(barrier, count_bytes, self.location)
            elif kind == "arrive":
                engine.arrive(barrier, 1, self.location)

    def signal(
        self,
        warp: Warp,
        barrier: Mbarrier,
        *,
        instruction: Instruction | None = None,
        scope: str = "",
        count: int = 1,
        count_bytes: int = 0,
    ) -> None:
        """Signal an mbarrier at issue. instruction: with the lanes that do, if not all of the group. count: arrivals of
        each lane. count_bytes: of each lane."""
        engine: Engine = warp.cta.engine
        here = instruction or self.instruction
        _, lanes = here.group.lanes(warp.index)
        for kind in self._at_issue:
            if kind == "expect_tx":
                engine.expect_tx(barrier, lanes * count_bytes, self.location)
            elif kind == "arrive":
                engine.tell.arrived(barrier, warp, here, scope, lanes * count_bytes)
                engine.arrive(barrier, lanes * count, self.location)

    def release(self, warp: Warp, address: int, value: int) -> None:
        """Perform st.release of a value to a semaphore in global memory, by one thread."""
        self._declared("release" in self._at_issue, "release")
        warp.cta.engine.tell.released(warp, self.instruction, address, value)

    # waits

    def _declared(self, there: bool, kind: SignalKind | WaitKind) -> None:
        assert there, f"{self.description.name} declares no {kind}"

    def wait_on(self, warp: Warp, barrier: Mbarrier, parity: int, scope: str) -> Blocked | None:
        """Return the wait for the phase of this parity, or None if it is over."""
        self._declared("mbarrier" in self.description.awaited, "mbarrier")
        warp.cta.engine.tell.comes(barrier, warp, self.instruction, parity)
        if self._passed(warp, barrier, parity, scope):
            return None
        why = partial(_explain, barrier, parity)
        return Blocked(partial(self._passed, warp, barrier, parity, scope), why, self.location, barrier=barrier)

    def _passed(self, warp: Warp, barrier: Mbarrier, parity: int, scope: str) -> bool:
        engine: Engine = warp.cta.engine
        if not engine.passed(barrier, parity):
            return False
        engine.tell.passed(barrier, warp, self.instruction, scope)
        return True

    def commit(self, warp: Warp, family: str, lanes: int = 0) -> None:
        """Close a group of each lane's open operations of the family. lanes: a mask; 0: the lanes that execute the
        commit."""
        warp.cta.engine.tell.committed(warp, self.instruction, family)
        for each in self._groups(warp, family, lanes or self.group.mask(warp.index)):
            each.commit(self.description.completes_by)

    def _groups(self, warp: Warp, family: str, lanes: int) -> list[IssuedGroups]:
        """Return the groups of these lanes, and report operations of other lanes to listeners.

        If the warp has none, operations of warps that do not execute this instruction are reported, too.
        """
        found, every = groups_of(warp, family, lanes), every_groups_of(warp, family)
        others = [each for each in every if not each.lanes & lanes] if len(found) < len(every) else []
        theirs = [op for each in others for group in (*each.groups, each.open) for op in group if not op.lanes & lanes]
        if not any(each.groups or each.open for each in every):
            away = [other for other in warp.cta.warps if other.index not in self.group.warps]
            issued = itertools.chain.from_iterable(other.groups.get(family, ()) for other in away)
            theirs = [op for each in issued for group in (*each.groups, each.open) for op in group]
        if theirs:
            warp.cta.engine.tell.passed_over(warp, self.instruction, theirs)
        return found

    def end(self, warp: Warp, ops: Iterable[AsyncOperation], kind: WaitKind = "group") -> None:
        """Wait for operations of the warp itself, which complete now at the latest."""
        self._declared(kind in self.description.awaited, kind)
        for op in ops:
            warp.cta.engine.wait_for(op, warp, self.instruction, kind == "group.read")

    def come_to_groups(
        self, warp: Warp, family: str, n: int, reads: bool = False, lanes: int = 0
    ) -> list[IssuedGroups]:
        """Return the lanes' groups before they wait for all but the newest n. lanes: a mask; 0: the lanes that execute
        the wait."""
        tell, found = warp.cta.engine.tell, self._groups(warp, family, lanes or self.group.mask(warp.index))
        tell.waits(
            warp, self.instruction, f"its {family} groups{f' but {n}' if n else ''}{' (reads)' if reads else ''}"
        )
        if n or reads:
            for each in found:
                tell.left_in_flight(warp, self.instruction, each.groups, n, reads)
        return found

    def end_groups(self, warp: Warp, family: str, n: int) -> None:
        for each in self.come_to_groups(warp, family, n):
            while len(each.groups) > n:
                self._end_for(each.lanes, warp, each.groups.popleft())

    def end_reads(self, warp: Warp, family: str, n: int) -> None:
        """Wait for the groups' reads alone."""
        for each in self.come_to_groups(warp, family, n, reads=True):
            for group in itertools.islice(each.groups, max(len(each.groups) - n, 0)):
                self.end(warp, [op for op in group if not op.lanes & ~each.lanes], "group.read")

    def end_all(self, warp: Warp, family: str) -> None:
        """Wait for all operations that the executing lanes issued, committed or not."""
        self.end_groups(warp, family, 0)
        for each in groups_of(warp, family, self.group.mask(warp.index)):
            self._end_for(each.lanes, warp, each.open)
            each.open = []

    def _end_for(self, lanes: int, warp: Warp, ops: Iterable[AsyncOperation]) -> None:
        """Record that lanes have waited for operations, and end operations for which no other lane still waits."""
        for op in ops:
            op.lanes &= ~lanes
            if not op.lanes:
                self.end(warp, (op,))

    def meet(self, warp: Warp, key: Any = None, brought: Any = None) -> Rendezvous:
        """Arrive at the barrier of the thread group, or of the group's warps with this key."""
        self._declared("threads" in self.description.awaited, "threads")
        group = self.group
        needed = frozenset(group.warps)
        engine: Engine = warp.cta.engine
        return engine.meet(warp, self.instruction, key or (group.begin, group.count), needed, brought)

    def meet_pair(self, warp: Warp, warps: Iterable[int], purpose: str) -> Generator[Blocked, None, Rendezvous]:
        """Wait until these warps of both CTAs of the pair have arrived."""
        self._declared("threads" in self.description.awaited, "threads")
        engine: Engine = warp.cta.engine
        meeting = engine.meet_pair(warp, ("pair", id(self.inst)), warps)
        if not meeting.over:
            yield Blocked(meeting.complete, partial(_absent, meeting, purpose), self.location, meeting=meeting)
        return meeting

    def meet_cluster(self, warp: Warp) -> Rendezvous:
        """Arrive at the barrier of the cluster."""
        self._declared("cluster" in self.description.awaited, "cluster")
        engine: Engine = warp.cta.engine
        return engine.meet_cluster(warp, self.instruction)

    def gather(self, purpose: str) -> Callable[[Warp, Any], Generator[Blocked, None, dict[int, Any]]]:
        """Return a generator that waits for every warp of the thread group, and returns the values that they
        brought."""
        single = len(self.group.warps) == 1

        def run(warp: Warp, brought: Any) -> Any:
            if single:
                return {warp.index: brought}
            meeting = self.meet(warp, brought=brought)
            if not meeting.over:
                yield self.absent(meeting, purpose)
            return meeting.brought

        return run

    def absent(self, meeting: Rendezvous, purpose: str) -> Blocked:
        """Return the wait for the other warps."""

        def why() -> str:
            absent = sorted(meeting.needed - meeting.brought.keys())
            return f"warp(s) {', '.join(map(str, absent))} at {purpose}"

        return Blocked(meeting.complete, why, self.location, meeting=meeting)


def _absent(meeting: Rendezvous, purpose: str) -> str:
    """Name the warps of several CTAs that have not arrived."""
    absent = sorted(meeting.needed - meeting.brought.keys(), key=lambda warp: (warp.cta.rank, warp.index))
    return f"{spell(absent)} at {purpose}"


def _explain(barrier: Mbarrier, phase: int) -> str:
    return (
        f"parity {phase & 1} of {barrier.name}, which is in phase {barrier.phase} (parity {barrier.phase & 1})"
        f" and still lacks {barrier.missing()}"
    )


def layouts_of(tensor: Any, group: ThreadGroup) -> Mapping[int, WarpLayout]:
    """Return the part of a register tensor's layout of each warp of a group."""
    return _Layouts(tensor.layout, group)


class _Layouts(dict[int, WarpLayout]):
    """Per-warp parts of a layout, computed when a warp first requests its part."""

    def __init__(self, layout: Any, group: ThreadGroup) -> None:
        super().__init__()
        self.layout, self.group = layout, group

    def __missing__(self, warp: int) -> WarpLayout:
        self[warp] = warp_layout(self.layout, self.group, warp)
        return self[warp]


_UNDEFINED: dict[Undefined, tuple[Severity, str]] = {
    "integer-overflow": (
        Severity.ERROR,
        "a sum or product of signed integers leaves its type, which C leaves undefined (the GPU wraps it, as a rule); "
        "compute it in int64, or in an unsigned type where it may wrap",
    ),
    "division-by-zero": (Severity.ERROR, "an integer is divided by zero, which C leaves undefined"),
    "shift-range": (
        Severity.ERROR,
        "a shift by less than 0 bits or by the width of the type or more, which C leaves undefined",
    ),
    "conversion-range": (
        Severity.UNGUARANTEED,
        "a float that the integer type cannot hold is converted to it, which C leaves undefined (PTX's cvt saturates "
        "to 32 and 64 bits); clip it first",
    ),
}


def report_undefined(warp: Warp, code: Undefined, location: Location | None) -> None:
    """Report arithmetic that is undefined in C; the simulator computes the hardware's value."""
    severity, message = _UNDEFINED[code]
    warp.cta.report(code, message, location, severity=severity)


def poisoned(shape: tuple[int, ...], item: Any) -> np.ndarray:
    """Return fresh registers: NaN, or an unlikely value."""
    return np.full(shape, item.poison, item.dtype)
