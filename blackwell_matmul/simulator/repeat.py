"""CTAs that do the same: the first of a kind runs in full, and of the others only the values are computed.

Which steps a CTA takes follows from its scalars: the extents of its loops, its conditions, the operands of its
instructions, and the places of its tiles in global memory. `Lowered.scan` finds them without executing anything. A CTA
whose steps are those of an earlier one, with all places in a tensor moved by one distance and clipped alike at its
edges, meets the same waits in the same order and makes the same accesses relative to each other; so when the first had
no finding, it has none. What is left are its values: the first one's work on memory and registers was written to a
`Tape`, in the order in which it was done, and is done again on the other's tiles.

A CTA with findings is not repeated, nor is a program that reads a scalar from memory, or whose CTAs talk to each other.
"""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

if TYPE_CHECKING:
    from blackwell_matmul.simulator.deferred import Held, Patch, Product
    from blackwell_matmul.simulator.engine import AsyncOperation
    from blackwell_matmul.simulator.machine import Cta, Grid, Warp
    from blackwell_matmul.simulator.site import Moved

Position = tuple[int, int, int]
Distance = tuple[int, ...]

MAX_LOG = 100_000
"""Entries of the log of a CTA's steps, and turns of a loop; one with more runs in full."""

MAX_STEPS = 20_000
"""Steps of a tape."""

MAX_KINDS = 16
"""Tapes that are kept; each holds a CTA's memory."""

MAX_MISSED = 64
"""CTAs that were like no earlier one, less those that were, after which nobody looks any more."""


class Unrepeatable(Exception):
    """The steps of this CTA are not known before it runs, or are too many."""


# --- the steps of a CTA


def _turns(log: list[Any], extent: int) -> range:
    """range(extent), written to the log."""
    log.append(extent)
    if max(len(log), extent) > MAX_LOG:
        raise Unrepeatable
    return range(extent)


def _taken(log: list[Any], condition: Any) -> bool:
    log.append(bool(condition))
    if len(log) > MAX_LOG:
        raise Unrepeatable
    return bool(condition)


SCAN_NAMESPACE: dict[str, Any] = {"_turns": _turns, "_taken": _taken}
"""What `scan` has beyond the names of `main`."""


class _Seat:
    """A CTA that only its position is known of, for `scan`."""

    def __init__(self, grid: Grid, position: Position) -> None:
        self.grid, self.position = grid, position

    def stop(self, *_: Any) -> Unrepeatable:
        return Unrepeatable()


@dataclass(frozen=True)
class _SeatedWarp:
    cta: _Seat
    index: int


class Course:
    """The steps that a CTA takes. key: equal for CTAs that take the same ones, wherever in global memory.

    places: for each tensor there, the offsets of its tiles, in the order of the warps' programs.
    """

    __slots__ = ("key", "places")

    def __init__(self, grid: Grid, position: Position) -> None:
        lowered, seat, log = grid.lowered, _Seat(grid, position), list[Any]()
        lists: list[list[int]] = [[] for _ in lowered.sources]
        assert lowered.scan is not None
        for index in range(lowered.num_warps):
            lowered.scan(_SeatedWarp(seat, index), log, lists)
            log.append(None)
        self.places = [np.array(n, np.int64).reshape(-1, r) for n, r in zip(lists, lowered.sources, strict=True)]
        self.key = tuple(log), tuple((places - places[:1]).tobytes() for places in self.places)

    def distances(self, other: Course) -> list[Distance]:
        """How far this CTA's tiles lie from the other's, in each tensor."""
        pairs = zip(self.places, other.places, strict=True)
        return [tuple((mine[0] - theirs[0]).tolist()) if len(mine) else () for mine, theirs in pairs]

    def clipped(self, rooms: list[np.ndarray]) -> tuple[bytes, ...]:
        """What of each tile lies outside of its tensor. rooms: the largest offsets at which nothing does."""
        pairs = [(np.minimum(places, 0), np.maximum(places - room, 0)) for places, room in zip(self.places, rooms)]
        return tuple(part.tobytes() if part.any() else b"" for pair in pairs for part in pair)


# --- the work of a CTA


class Step(Protocol):
    """Something that moves values."""

    def again(self, stage: Stage) -> None:
        """Do it for the CTA that is on the stage."""


class Call:
    """An instruction of a warp. args: as it was called. registers: which of them are results, of which number. out: the
    number of its own. launches: numbers of the operations that it started; needed: some of them do something. ended:
    the results that nobody uses afterwards."""

    __slots__ = ("args", "ended", "function", "launches", "moved", "needed", "out", "registers", "warp")

    def __init__(self, function: Callable[..., Any], warp: Warp, args: list[Any], moved: Moved | None) -> None:
        self.function, self.warp, self.args, self.moved = function, warp, args, moved
        self.registers: list[tuple[int, int]] = []
        self.out: int | None = None
        self.launches: list[int] = []
        self.needed = False
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

    __slots__ = ("call", "end", "function", "number")

    def __init__(self, number: int, call: Call, function: Callable[[], Any], end: bool) -> None:
        self.number, self.call, self.function, self.end = number, call, function, end

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


class Tape:
    """Written while a CTA runs in full: its work, in the order in which it is done.

    An instruction comes before the operations that it starts, and after what it has others do first.
    """

    def __init__(self) -> None:
        self.usable = True
        self.steps: list[Any] = []
        self.results: dict[int, tuple[weakref.ref[np.ndarray], int]] = {}
        self.numbers, self.launches = itertools.count(), itertools.count()
        self.current: Call | None = None
        self.entered = False
        self.ops: dict[AsyncOperation, tuple[int, Call | None]] = {}
        self.images: dict[int, tuple[np.ndarray, int]] = {}
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

    def _see(self, view: Any, moved: Moved, warp: int) -> None:
        """A tile of this view is touched. Each memory must move as one: it may have one name only."""
        if (
            view.image is not None
            and self.images.setdefault(id(view.image), (view.image, moved.source))[1] != moved.source
        ):
            self.give_up()
        segment = view.storage.segment
        if not segment.constant and self.segments.setdefault(segment.address, moved.source) != moved.source:
            self.give_up()
        if view.data.shape != view.declared:
            self.give_up()
        room = tuple([limit - extent for limit, extent in zip(view.declared, moved.extents, strict=True)])
        self.rooms.setdefault((moved.source, warp), []).append(room)

    def _enter(self, call: Call) -> None:
        if not self.entered:
            self.entered = True
            self._add(call)

    def _add(self, step: Any) -> None:
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
            self._add(Part(number, call, function, end))

    def filled(self, held: Held) -> None:
        cells = held.view.data[tuple([slice(lo, hi) for lo, hi in held.box])]
        self._add(Filled(cells, held.patch, self._source(held.patch)))

    def performed(self, product: Product) -> None:
        self._add(Multiplied(product, (self._source(product.a), self._source(product.b))))

    def _source(self, patch: Patch) -> int:
        return self.images[id(patch.image)][1]

    # the end

    def room(self, course: Course, warps: int) -> list[np.ndarray] | None:
        """For each place of the course, the largest offsets at which nothing of the tile is outside; None: the CTA did
        not touch just these places."""
        rooms = []
        for source, places in enumerate(course.places):
            seen = [room for warp in range(warps) for room in self.rooms.get((source, warp), ())]
            rooms.append(np.array(seen, np.int64).reshape(-1, places.shape[1]))
        same = all(room.shape == places.shape for room, places in zip(rooms, course.places))
        return rooms if same and self.usable else None

    def cut(self) -> list[Step]:
        """The steps that are needed."""
        steps = [self._resolved(step) for step in self.steps]
        steps = [s for s in steps if not isinstance(s, Call) or s.needed or s.out is not None or not s.launches]
        later: set[int] = set()
        for step in reversed(steps):
            if isinstance(step, Call):
                used = {number for _, number in step.registers} | (set() if step.out is None else {step.out})
                step.ended = sorted(used - later)
                later |= used
        return steps

    @staticmethod
    def _resolved(step: Any) -> Step:
        if isinstance(step, Part):
            if step.call.fixed:
                return Fixed(step.function)
            step.call.needed, step.function = True, _nothing
        resolved: Step = step
        return resolved


def _nothing() -> None:
    pass


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

    def __init__(self, cta: Cta, tape: Tape, course: Course, counts: dict[str, int]) -> None:
        self.cta, self.course, self.counts = cta, course, counts
        self.steps = tape.cut()
        self.warps = tuple(cta.warps)
        self.registers: list[np.ndarray | None] = [None] * next(tape.numbers)
        self.launched: list[Launched | None] = [None] * next(tape.launches)
        self.next = 0
        self.distances: list[Distance] = []
        cta.leave(self)

    def launch(self, complete: Callable[[], Any], read_phase: Callable[[], None] | None) -> Launched:
        launched = self.launched[self.next] = Launched(complete, read_phase)
        self.next += 1
        return launched

    def run(self, position: Position, course: Course) -> None:
        """Compute the values of the CTA at this position."""
        self.distances = course.distances(self.course)
        self.cta.clear(position)
        for step in self.steps:
            step.again(self)
        counts = self.cta.grid.lowered.counts
        for name, count in self.counts.items():
            counts[name] += count


class Kind:
    """CTAs of one key. stages: by what of their tiles lies outside; None: one of them had a finding. rooms: see
    `Course.clipped`; None: not known, and each CTA runs in full."""

    def __init__(self, rooms: list[np.ndarray] | None) -> None:
        self.rooms = rooms
        self.stages: dict[tuple[bytes, ...], Stage | None] = {}


class Repeats:
    """Runs the CTAs of a grid, one after the other."""

    def __init__(self, grid: Grid) -> None:
        self.grid = grid
        self.kinds: dict[Any, Kind] = {}
        self.tapes = self.missed = 0
        x, y, z = grid.dimensions
        self.looking = grid.lowered.scan is not None and x * y * z > 1

    def run(self, position: Position) -> None:
        course = self._course(position) if self.looking else None
        if course is None:
            self.grid.run([position])
            return
        kind = self.kinds.get(course.key)
        if kind is None:
            self._record(position, course, None)
        elif kind.rooms is None:
            self.grid.run([position])
        else:
            self._run(position, course, kind, kind.rooms)

    def _run(self, position: Position, course: Course, kind: Kind, rooms: list[np.ndarray]) -> None:
        clipped = course.clipped(rooms)
        if clipped not in kind.stages:
            self._record(position, course, kind)
            return
        stage = kind.stages[clipped]
        if stage is None or (self.grid.tracing and position == self.grid.traced):
            self.grid.run([position])
        else:
            stage.run(position, course)
            self.missed -= 1

    def _course(self, position: Position) -> Course | None:
        """What goes wrong here goes wrong again when the CTA runs, and is reported then."""
        try:
            return Course(self.grid, position)
        except Exception:
            self._miss()
            return None

    def _miss(self) -> None:
        self.missed += 1
        self.looking = self.missed < MAX_MISSED

    def _record(self, position: Position, course: Course, kind: Kind | None) -> None:
        """Run in full, and keep what was done for those that do the same."""
        self._miss()
        if self.tapes >= MAX_KINDS:
            self.grid.run([position])
            return
        self.tapes += 1
        tape, counts, reports = Tape(), self.grid.lowered.counts, self.grid.reports
        before = dict(counts)
        (cta,) = self.grid.run([position], tape)
        clean = tape.usable and self.grid.reports == reports
        kind = kind or self.kinds.setdefault(course.key, Kind(tape.room(course, len(cta.warps))))
        if kind.rooms is None:
            cta.close()
            return
        done = {name: count - before.get(name, 0) for name, count in counts.items()}
        kind.stages[course.clipped(kind.rooms)] = Stage(cta, tape, course, done) if clean else None
