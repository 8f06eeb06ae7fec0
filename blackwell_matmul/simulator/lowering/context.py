"""`Site`: one instruction at its place in one program, as its lowering sees it.

A lowering names the operands and scalars that its callable needs (`use`, `scalar`), gets the warp layouts of its
register tensors, and reaches memory only through `touch` and `launch`, which derive every check from the effects.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import numpy as np

from blackwell_matmul.errors import UnsupportedError
from blackwell_matmul.frontend.program import Location, Program
from blackwell_matmul.simulator.arithmetic import Undefined
from blackwell_matmul.simulator.engine import AsyncOperation
from blackwell_matmul.simulator.findings import Finding, Severity
from blackwell_matmul.simulator.machine.cta import Cta, Mbarrier, Warp
from blackwell_matmul.simulator.machine.memory import Region
from blackwell_matmul.simulator.machine.registers import ThreadGroup, WarpLayout, warp_layout
from blackwell_matmul.simulator.semantics.description import Access, Description, Effect, When

if TYPE_CHECKING:
    from blackwell_matmul.simulator.lowering.lower import Lowering


class Moved(NamedTuple):
    """Which arguments of a call say where it touches a global tensor: view and offsets. source: the tensor's number
    among those that the program touches so. extents: the tile's, in the tensor's dimensions."""

    view: int
    offsets: int
    source: int
    extents: tuple[int, ...]


def _tuple(texts: list[str]) -> str:
    return f"({''.join(f'{text}, ' for text in texts)})"


class Site:
    """What a lowering may know. `kind` says how the generated code calls it: "plain" (a call), "blocking" (a call that
    may return something to wait for) or "steps" (a generator that waits by itself and returns the result). operands:
    the tensors among the arguments. logged: the scalars that the callable gets; moved: those that are a place.

    carry(warp, arguments, *arguments with origins in the place of registers): the origins of the result, where they do
    not move as the elements do (unwritten.py). chosen(warp, *arguments): which elements of its registers the
    instruction reads; None: all."""

    def __init__(self, lowering: Lowering, inst: Any, description: Description, group: ThreadGroup) -> None:
        self._lowering = lowering
        self.inst = inst
        self.description = description
        self.group = group
        self.program: Program = lowering.program
        self.location: Location | None = lowering.program.location_of(inst)
        self.arguments: list[str] = []
        self.operands: dict[int, Any] = {}
        self.kind = "plain"
        self.logged: list[str] = []
        self.moved: Moved | None = None
        self.carry: Callable[..., np.ndarray] | None = None
        self.chosen: Callable[..., np.ndarray] | None = None
        self._reads = [e.operand for e in description.touching(Access.READ, When.COMPLETION)]
        self._writes = [e.operand for e in description.touching(Access.WRITE, When.COMPLETION)]

    # operands

    def use(self, tensor: Any) -> None:
        """Pass the tensor's value (registers, or a view) to the callable, as its next argument."""
        self.operands[len(self.arguments)] = tensor
        self.arguments.append(self._lowering.value_of(tensor))

    def scalar(self, expression: Any) -> None:
        """Pass the value of a scalar expression as the next argument."""
        self.arguments.append(self._lowering.scalar(expression))
        self.logged.append(self.arguments[-1])

    def scalars(self, expressions: Any) -> None:
        """Pass several scalar expressions as one tuple."""
        texts = [self._lowering.scalar(e) for e in expressions]
        self.arguments.append(_tuple(texts))
        self.logged += texts

    def place(
        self, tensor: Any, offsets: Any, dims: tuple[int, ...], shape: tuple[int, ...], multiple: int = 1
    ) -> None:
        """Pass the offsets of a tile, of `shape` over `dims`, in a global tensor (which `use` named) as one tuple.

        multiple: what the last offset must be a multiple of: CTAs whose remainders differ are not alike (repeat.py).
        """
        extents = dict(zip(sorted(dims), shape, strict=True))
        view, texts = self.arguments.index(self._lowering.value_of(tensor)), [self._lowering.scalar(e) for e in offsets]
        ones = tuple(extents.get(dim, 1) for dim in range(len(texts)))
        source = self._lowering.source_of(tensor, len(ones), multiple)
        self.moved = Moved(view, len(self.arguments), source, ones)
        self.arguments.append(_tuple(texts))

    def defined(self, tensor: Any) -> bool:
        """True when the tensor already has a value, which the instruction then updates in place."""
        return self._lowering.is_defined(tensor)

    def name(self, tensor: Any, fallback: str = "tensor") -> str:
        return self.program.name_of(tensor) or fallback

    def layouts(self, tensor: Any) -> Mapping[int, WarpLayout]:
        """For each warp of the group, its part of the tensor's register layout."""
        return _Layouts(tensor.layout, self.group)

    def fail(self, why: str) -> UnsupportedError:
        return UnsupportedError(f"The simulator cannot run {self.description.name} at {self.location}: {why}.")

    # memory

    def _effect(self, operand: str) -> Effect:
        for effect in self.description.effects:
            if effect.operand == operand:
                return effect
        raise AssertionError(f"{self.description.name} declares no effect on {operand}")

    def touch(self, operand: str) -> Callable[[Warp, Region], None]:
        """The check for an access that is over when the instruction is: to be called with the region."""
        effect = self._effect(operand)
        write, what, location = effect.access is Access.WRITE, self.description.name, self.location

        def check(warp: Warp, region: Region) -> None:
            order, storage = warp.cta.order, region.storage
            if order is None or storage.constant:
                return
            if warp.cta.detailed:
                warp.event("access", f"{what} {'to' if write else 'of'} {region}", location)
            order.access(warp, self, effect, region)
            if write:
                storage.mark(region)
            elif storage.written is not True and storage.unwritten(region):
                report_uninitialised(warp, region, what, location)
                order.read_too_early(warp, self, effect, region)

        return check

    def check_ready(self, name: str) -> Callable[[Warp, np.ndarray], None]:
        """The check for registers that an asynchronous load may still be filling."""
        what, location = self.description.name, self.location

        def check(warp: Warp, registers: np.ndarray) -> None:
            _, op = warp.unready.get(id(registers), (None, None))
            if op is not None:
                advice = f"the missing wait: {op.remedy}"
                who = f"warp {warp.index}"
                message = f"{what} by {who} reads {name}, which {op.name} has not finished writing; {advice}"
                warp.cta.grid.report(
                    Finding(
                        "read-before-complete", Severity.ERROR, message, warp.cta.position, location, op.location,
                        missing="wait", tensor=name, agents=(who, who), advice=advice,
                    )
                )  # fmt: skip

        return check

    def launch(
        self,
        warp: Warp,
        regions: Mapping[str, Region],
        complete: Callable[[], bool | None],
        *,
        agent: str,
        signal: Callable[[], None] | None = None,
        barrier: Mbarrier | None = None,
        pipe: Any = None,
        read_phase: Callable[[], None] | None = None,
        remedy: str = "",
        covers: tuple[AsyncOperation, ...] = (),
        cta: Cta | None = None,
    ) -> AsyncOperation:
        """Start an asynchronous operation: check it against those in flight, and hand it to the engine.

        cta: the one whose shared memory it writes, where that is another one of the cluster.
        """
        if warp.cta.stage is not None:
            return cast(AsyncOperation, warp.cta.stage.launch(complete, read_phase))
        reads = tuple([regions[name] for name in self._reads if name in regions])
        if warp.cta.detailed and regions:
            told = ", ".join(dict.fromkeys(map(str, regions.values())))
            warp.event("issue", f"{self.description.name} on {told}", self.location)
        op = AsyncOperation(
            cta or warp.cta, warp.index, self.description.name, agent, self.location, complete,
            signal=signal, reads=reads, barrier=barrier, pipe=pipe, read_phase=read_phase, remedy=remedy, covers=covers,
        )  # fmt: skip
        self.issue(op, warp, regions)
        if barrier is not None and barrier.cta is not warp.cta and warp.cta.order is not None:
            warp.cta.order.tells(op, barrier, warp, self)
        if warp.cta.tape is not None:
            warp.cta.tape.launched(op)
        warp.cta.engine.start(op)
        return op

    def issue(self, op: AsyncOperation, warp: Warp, regions: Mapping[str, Region], joining: bool = False) -> None:
        """Check an operation against those in flight. joining: other warps have issued it before this one."""
        order = warp.cta.order
        if order is not None:
            for name in self._reads:
                region = regions.get(name)
                if region is not None and region.storage.written is not True and region.storage.unwritten(region):
                    report_uninitialised(warp, region, self.description.name, self.location)
                    order.read_too_early(warp, self, self._effect(name), region)
            (order.join if joining else order.issue)(op, warp, self, regions)
            for name in self._writes:
                if name in regions:
                    regions[name].storage.mark(regions[name])


class _Layouts(dict[int, WarpLayout]):
    """Computed for a warp when it first asks."""

    def __init__(self, layout: Any, group: ThreadGroup) -> None:
        super().__init__()
        self.layout, self.group = layout, group

    def __missing__(self, warp: int) -> WarpLayout:
        self[warp] = warp_layout(self.layout, self.group, warp)
        return self[warp]


def report_uninitialised(warp: Warp, region: Region, what: str, location: Location | None) -> None:
    message = f"{what} reads {region}, part of which nothing has written"
    warp.cta.grid.report(
        Finding(
            "uninitialised-read", Severity.ERROR, message, warp.cta.position, location, tensor=region.name,
            box=region.box,
        )
    )  # fmt: skip


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
    """Arithmetic that C leaves undefined; the value is what the hardware gives."""
    severity, message = _UNDEFINED[code]
    warp.cta.report(code, message, location, severity=severity)


def poisoned(shape: tuple[int, ...], item: Any) -> np.ndarray:
    """Fresh registers: NaN, or a value that nobody expects."""
    return np.full(shape, item.poison, item.dtype)
