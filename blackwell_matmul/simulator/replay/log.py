"""The work of a CTA on memory and registers: logged while it runs, and done again for another (`alike.py`)."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, Protocol

import numpy as np

from blackwell_matmul.simulator.description import Instruction
from blackwell_matmul.simulator.findings import Finding
from blackwell_matmul.simulator.listener import Broadcast, Listener
from blackwell_matmul.simulator.lowering.context import Moved
from blackwell_matmul.simulator.machine.cta import Cta, Warp
from blackwell_matmul.simulator.machine.deferred import Held, Patch, Product
from blackwell_matmul.simulator.machine.global_memory import GlobalStorage
from blackwell_matmul.simulator.machine.grid import Position
from blackwell_matmul.simulator.machine.memory import Region
from blackwell_matmul.simulator.machine.operation import AsyncOperation
from blackwell_matmul.simulator.semantics.views import GlobalView

Distance = tuple[int, ...]

MAX_STEPS = 20_000
"""Steps of a log."""


class Step(Protocol):
    """Something that moves values."""

    def again(self, replayed: Replayed) -> None:
        """Do it for the CTA that is on the replayed."""


class Call:
    """An instruction of a warp. args: as it was called. registers: which of them are results, of which number. out: the
    number of its own. launches: numbers of the operations that it started. ended: the results that nobody uses
    afterwards."""

    __slots__ = ("args", "ended", "function", "launches", "moved", "out", "registers", "warp")

    def __init__(self, function: Callable[..., Any], warp: Warp, args: list[Any], moved: Moved | None) -> None:
        self.function, self.warp, self.args, self.moved = function, warp, args, moved
        self.registers: list[tuple[int, int]] = []
        self.out: int | None = None
        self.launches: list[int] = []
        self.ended: list[int] = []

    @property
    def fixed(self) -> bool:
        """It is the same for each CTA, so that the operations it started can be used again."""
        return not self.registers and self.moved is None and self.out is None

    def again(self, replayed: Replayed) -> None:
        args = self.args.copy()
        for i, number in self.registers:
            args[i] = replayed.registers[number]
        if self.moved is not None:
            by = replayed.distances[self.moved.source]
            args[self.moved.offsets] = tuple([o + d for o, d in zip(args[self.moved.offsets], by, strict=True)])
        if self.launches:
            replayed.next = self.launches[0]
        result = self.function(self.warp, *args)
        if self.out is not None:
            replayed.registers[self.out] = result
        for number in self.ended:
            replayed.registers[number] = None


class Part:
    """The reads of an operation, or its end."""

    __slots__ = ("end", "number")

    def __init__(self, number: int, end: bool) -> None:
        self.number, self.end = number, end

    def again(self, replayed: Replayed) -> None:
        launched = replayed.launched[self.number]
        assert launched is not None
        if self.end:
            launched.complete()
            replayed.launched[self.number] = None
        elif launched.read_phase is not None:
            launched.read_phase()


class Fixed:
    """The same function for each CTA, on the memory of the replayed."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function

    def again(self, replayed: Replayed) -> None:
        self.function()


class Filled:
    """A copy that was put off, and then had to be made."""

    __slots__ = ("cells", "patch", "source")

    def __init__(self, cells: np.ndarray, patch: Patch, source: int) -> None:
        self.cells, self.patch, self.source = cells, patch, source

    def again(self, replayed: Replayed) -> None:
        self.cells[...] = self.patch.moved(replayed.distances[self.source]).values()


class Multiplied:
    """A product that was put off, and then had to be made."""

    __slots__ = ("product", "sources")

    def __init__(self, product: Product, sources: tuple[int, int]) -> None:
        self.product, self.sources = product, sources

    def again(self, replayed: Replayed) -> None:
        by_a, by_b = (replayed.distances[source] for source in self.sources)
        self.product.moved(by_a, by_b).perform()


class Done(NamedTuple):
    """A part of an operation that `call` started, as it was done."""

    number: int
    call: Call
    function: Callable[[], Any]
    end: bool

    def step(self) -> Step:
        return Fixed(self.function) if self.call.fixed else Part(self.number, self.end)


class ReplayLog(Listener):
    """Written while a CTA runs in full: its work, in the order in which it is done.

    An instruction comes before the operations that it starts, and after what it has others do first.
    """

    def __init__(self) -> None:
        self.usable = self.columns_unused = True
        self.findings: list[Finding] = []
        self.steps: list[Step | Done] = []
        self.results: dict[int, tuple[weakref.ref[np.ndarray], int]] = {}
        self.numbers, self.launches = itertools.count(), itertools.count()
        self.current: Call | None = None
        self.entered = False
        self.ops: dict[AsyncOperation, tuple[int, Call | None]] = {}
        self.images: dict[int, tuple[np.ndarray | None, int]] = {}
        self.segments: dict[int, int] = {}
        self.rooms: dict[tuple[int, int], list[tuple[int, ...]]] = {}

    def give_up(self) -> None:
        self.usable = False

    def call(self, function: Callable[..., Any], moved: Moved | None, warp: Warp, args: tuple[Any, ...]) -> Any:
        """Call an instruction's function, and remember how."""
        if not self.usable:
            return function(warp, *args)
        call = self.current = Call(function, warp, list(args), moved)
        self.entered = False
        self._find_registers(call)
        if moved is not None:
            self._see(args[moved.view], moved, warp.index)
        result = function(warp, *args)
        if isinstance(result, np.ndarray):
            call.out = next(self.numbers)
            self.results[id(result)] = weakref.ref(result), call.out
        self._enter(call)
        self.current = None
        return result

    def _find_registers(self, call: Call) -> None:
        for i, arg in enumerate(call.args):
            if isinstance(arg, np.ndarray):
                known, number = self.results.get(id(arg), (None, 0))
                if known is not None and known() is arg:
                    call.registers.append((i, number))
                    call.args[i] = None
                elif arg.flags.writeable:
                    self.give_up()

    def _see(self, view: GlobalView, moved: Moved, warp: int) -> None:
        """A tile of this view is touched. Memory must be all there, and move as one: under one name."""
        storage = view.storage
        assert isinstance(storage, GlobalStorage)
        _, image_of = self.images.setdefault(id(view.image), (view.image, moved.source))
        memory_of = self.segments.setdefault(storage.segment.address, moved.source)
        alone = (view.image is None or image_of == moved.source) and (storage.constant or memory_of == moved.source)
        self.usable &= alone and view.data.shape == view.declared
        room = tuple([limit - extent for limit, extent in zip(view.declared, moved.extents, strict=True)])
        self.rooms.setdefault((moved.source, warp), []).append(room)

    def _enter(self, call: Call) -> None:
        if not self.entered:
            self.entered = True
            self._add(call)

    def _add(self, step: Step | Done) -> None:
        if len(self.steps) >= MAX_STEPS:
            self.give_up()
        if self.usable:
            self.steps.append(step)

    # what happens

    def issued(self, op: AsyncOperation, warp: Warp, instruction: Instruction, regions: Mapping[str, Region]) -> None:
        number = next(self.launches)
        self.ops[op] = number, self.current
        if self.current is not None:
            self.current.launches.append(number)
            self._enter(self.current)

    def source_read(self, op: AsyncOperation) -> None:
        self._part(op, op.read_phase, end=False)

    def completed(self, op: AsyncOperation, put_off: bool) -> None:
        if not put_off:
            self._part(op, op.complete, end=True)

    def found(self, finding: Finding) -> None:
        self.findings.append(finding)

    def allocated(self, region: Region) -> None:
        """What columns hold that somebody has used is not known."""
        self.usable &= self.columns_unused
        self.columns_unused = False

    def _part(self, op: AsyncOperation, function: Any, end: bool) -> None:
        number, call = self.ops[op]
        if call is None:
            self.give_up()
        else:
            self._add(Done(number, call, function, end))

    def performed(self, work: Held | Product) -> None:
        if isinstance(work, Held):
            self._filled(work)
        elif self.usable:
            self._add(Multiplied(work, (self._source(work.a), self._source(work.b))))

    def _filled(self, held: Held) -> None:
        if self.usable:
            cells = held.view.data[tuple([slice(lo, hi) for lo, hi in held.box])]
            self._add(Filled(cells, held.patch, self._source(held.patch)))

    def _source(self, patch: Patch) -> int:
        return self.images[id(patch.image)][1]

    # the end

    def rooms_of(self, places: list[np.ndarray], warps: int) -> list[np.ndarray] | None:
        """For each of these places, the largest offsets at which nothing of the tile is outside of the tensor; None:
        other places were touched, as when the CTA came to a stop."""
        rooms = []
        for source, mine in enumerate(places):
            seen = [room for warp in range(warps) for room in self.rooms.get((source, warp), ())]
            rooms.append(np.array(seen, np.int64).reshape(-1, mine.shape[1]))
        same = all(room.shape == mine.shape for room, mine in zip(rooms, places, strict=True))
        return rooms if same and self.usable else None

    def close(self) -> None:
        """Break the cycles through the program that calls it."""
        self.steps.clear()
        self.ops.clear()
        self.results.clear()
        self.images.clear()
        self.findings.clear()

    def cut(self) -> list[Step]:
        """The steps that move values."""
        needed = {id(done.call) for done in self.steps if isinstance(done, Done) and not done.call.fixed}
        steps = [step.step() if isinstance(step, Done) else step for step in self.steps]
        steps = [s for s in steps if not isinstance(s, Call) or s.out is not None or not s.launches or id(s) in needed]
        _forget_results(steps)
        return steps


def _forget_results(steps: list[Step]) -> None:
    """Each call is told which results nobody uses after it."""
    later: set[int] = set()
    for step in reversed(steps):
        if isinstance(step, Call):
            used = {number for _, number in step.registers} | (set() if step.out is None else {step.out})
            step.ended = sorted(used - later)
            later |= used


def logging(log: ReplayLog) -> Callable[[Callable[..., Any], Moved | None], Callable[..., Any]]:
    """For `Lowered.main_with`: an instruction's function, called by way of the log."""

    def wrap(function: Callable[..., Any], moved: Moved | None) -> Callable[..., Any]:
        return lambda warp, *args: log.call(function, moved, warp, args)

    return wrap


# --- once more


class Replayed:
    """A CTA that has run, whose memory others use after it; it takes the place of its engine. distances: how far away
    the present one's tiles are.

    registers, launched: by number, results of instructions and operations. next: the number of the next operation.
    """

    tell: Listener = Broadcast(())

    def __init__(self, cta: Cta, log: ReplayLog, executed: dict[str, int], counts: dict[str, int]) -> None:
        self.cta, self.executed, self.counts = cta, executed, counts
        self.steps = log.cut()
        self.registers: list[np.ndarray | None] = [None] * next(log.numbers)
        self.launched: list[AsyncOperation | None] = [None] * next(log.launches)
        self.next = 0
        self.distances: list[Distance] = []
        cta.engine = self
        cta.columns.revive()
        for storage in (cta.tensor_memory, *cta.shared.values()):
            storage.performed = self.tell.performed

    def issue(self, op: AsyncOperation, warp: Warp, instruction: Instruction, regions: Mapping[str, Region]) -> None:
        self.launched[self.next] = op
        self.next += 1

    def run(self, position: Position, distances: list[Distance]) -> None:
        """Compute the values of the CTA at this position."""
        self.distances = distances
        self.cta.clear(position)
        for step in self.steps:
            step.again(self)
        for name, count in self.executed.items():
            self.counts[name] += count

    def close(self) -> None:
        self.steps.clear()
        self.cta.close()
