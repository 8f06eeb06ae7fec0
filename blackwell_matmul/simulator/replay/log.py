"""The work of a CTA on memory and registers: written down while it runs, and done again for another (`repeat.py`)."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from blackwell_matmul.simulator.machine.global_memory import GlobalStorage

if TYPE_CHECKING:
    from blackwell_matmul.simulator.machine.deferred import Held, Patch, Product
    from blackwell_matmul.simulator.engine import AsyncOperation
    from blackwell_matmul.simulator.machine.cta import Cta, Warp
    from blackwell_matmul.simulator.semantics.views import GlobalView
    from blackwell_matmul.simulator.lowering.context import Moved

Distance = tuple[int, ...]

MAX_STEPS = 20_000
"""Steps of a tape."""


class Step(Protocol):
    """Something that moves values."""

    def again(self, stage: Stage) -> None:
        """Do it for the CTA that is on the stage."""


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

    def again(self, stage: Stage) -> None:
        args = self.args.copy()
        for i, number in self.registers:
            args[i] = stage.registers[number]
        if self.moved is not None:
            by = stage.distances[self.moved.source]
            args[self.moved.offsets] = tuple([o + d for o, d in zip(args[self.moved.offsets], by, strict=True)])
        if self.launches:
            stage.next = self.launches[0]
        result = self.function(self.warp, *args)
        if self.out is not None:
            stage.registers[self.out] = result
        for number in self.ended:
            stage.registers[number] = None


class Part:
    """The reads of an operation, or its end."""

    __slots__ = ("end", "number")

    def __init__(self, number: int, end: bool) -> None:
        self.number, self.end = number, end

    def again(self, stage: Stage) -> None:
        launched = stage.launched[self.number]
        assert launched is not None
        if self.end:
            launched.complete()
            stage.launched[self.number] = None
        elif launched.read_phase is not None:
            launched.read_phase()


class Fixed:
    """The same function for each CTA, on the memory of the stage."""

    __slots__ = ("function",)

    def __init__(self, function: Callable[[], Any]) -> None:
        self.function = function

    def again(self, stage: Stage) -> None:
        self.function()


class Filled:
    """A copy that was put off, and then had to be made."""

    __slots__ = ("cells", "patch", "source")

    def __init__(self, cells: np.ndarray, patch: Patch, source: int) -> None:
        self.cells, self.patch, self.source = cells, patch, source

    def again(self, stage: Stage) -> None:
        self.cells[...] = self.patch.moved(stage.distances[self.source]).values()


class Multiplied:
    """A product that was put off, and then had to be made."""

    __slots__ = ("product", "sources")

    def __init__(self, product: Product, sources: tuple[int, int]) -> None:
        self.product, self.sources = product, sources

    def again(self, stage: Stage) -> None:
        by_a, by_b = (stage.distances[source] for source in self.sources)
        self.product.moved(by_a, by_b).perform()


class Done(NamedTuple):
    """A part of an operation that `call` started, as it was done."""

    number: int
    call: Call
    function: Callable[[], Any]
    end: bool

    def step(self) -> Step:
        return Fixed(self.function) if self.call.fixed else Part(self.number, self.end)


class Tape:
    """Written while a CTA runs in full: its work, in the order in which it is done.

    An instruction comes before the operations that it starts, and after what it has others do first.
    """

    def __init__(self) -> None:
        self.usable = True
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

    # what the machine tells

    def launched(self, op: AsyncOperation) -> None:
        number = next(self.launches)
        self.ops[op] = number, self.current
        if self.current is not None:
            self.current.launches.append(number)
            self._enter(self.current)

    def taken(self, op: AsyncOperation) -> None:
        self._part(op, op.read_phase, end=False)

    def completed(self, op: AsyncOperation) -> None:
        self._part(op, op.complete, end=True)

    def _part(self, op: AsyncOperation, function: Any, end: bool) -> None:
        number, call = self.ops[op]
        if call is None:
            self.give_up()
        else:
            self._add(Done(number, call, function, end))

    def filled(self, held: Held) -> None:
        if self.usable:
            cells = held.view.data[tuple([slice(lo, hi) for lo, hi in held.box])]
            self._add(Filled(cells, held.patch, self._source(held.patch)))

    def performed(self, product: Product) -> None:
        if self.usable:
            self._add(Multiplied(product, (self._source(product.a), self._source(product.b))))

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


def taping(function: Callable[..., Any], moved: Moved | None) -> Callable[..., Any]:
    """The function, called by way of the CTA's tape."""

    def call(warp: Warp, *args: Any) -> Any:
        tape = warp.cta.tape
        assert tape is not None
        return tape.call(function, moved, warp, args)

    return call


# --- once more


class Launched:
    """An operation as far as its values go."""

    __slots__ = ("complete", "read_phase")

    def __init__(self, complete: Callable[[], Any], read_phase: Callable[[], None] | None) -> None:
        self.complete, self.read_phase = complete, read_phase


class Stage:
    """A CTA that has run, whose memory others use after it. distances: how far away the present one's tiles are.

    registers, launched: by number, results of instructions and operations. next: the number of the next operation.
    """

    def __init__(self, cta: Cta, tape: Tape, counts: dict[str, int]) -> None:
        self.cta, self.counts = cta, counts
        self.steps = tape.cut()
        self.registers: list[np.ndarray | None] = [None] * next(tape.numbers)
        self.launched: list[Launched | None] = [None] * next(tape.launches)
        self.next = 0
        self.distances: list[Distance] = []
        cta.leave(self)

    def launch(self, complete: Callable[[], Any], read_phase: Callable[[], None] | None) -> Launched:
        launched = self.launched[self.next] = Launched(complete, read_phase)
        self.next += 1
        return launched

    def run(self, position: tuple[int, int, int], distances: list[Distance]) -> None:
        """Compute the values of the CTA at this position."""
        self.distances = distances
        self.cta.clear(position)
        for step in self.steps:
            step.again(self)
        counts = self.cta.grid.lowered.counts
        for name, count in self.counts.items():
            counts[name] += count

    def close(self) -> None:
        self.steps.clear()
        self.cta.stage = None
        self.cta.close()
