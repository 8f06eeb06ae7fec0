"""Log of a cluster's work on memory and registers, and its replay for another cluster (`alike.py`)."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol

import numpy as np

from blackwell_matmul.simulator.cluster_schedule import ScheduledCluster
from blackwell_matmul.simulator.description import Instruction
from blackwell_matmul.simulator.findings import Finding, Findings, Severity
from blackwell_matmul.simulator.listener import Broadcast, Listener
from blackwell_matmul.simulator.lowering.context import Moved
from blackwell_matmul.simulator.machine.cta import Cta, Warp
from blackwell_matmul.simulator.machine.deferred import Held, Parted, Patch, Product, Sum, Term, Values
from blackwell_matmul.simulator.machine.grants import Grants
from blackwell_matmul.simulator.machine.memory import Region
from blackwell_matmul.simulator.machine.operation import AsyncOperation
from blackwell_matmul.simulator.semantics.views import GlobalView

MAX_STEPS = 100_000
"""Most steps of a log."""

Thread = tuple[int, int]
"""The rank of a CTA in its cluster, and the number of a warp."""


class Step(Protocol):
    """A step that moves values. uses: numbers of the registers that the step reads or writes."""

    @property
    def uses(self) -> Sequence[int]: ...

    def again(self, replayed: Replayed) -> None:
        """Repeat it for the replayed cluster."""


class NumberedTile(NamedTuple):
    """A tile of a warp in a global tensor (a source of the program), by its number."""

    source: int
    thread: Thread
    number: int


class LoggedCall:
    """An instruction of a warp. args: of the call. registers: (argument, number of the result). place: of its tile.
    out: number of its own result. launches: numbers of its operations. ended: results without a later use."""

    __slots__ = ("args", "ended", "function", "launches", "moved", "out", "place", "registers", "warp")

    def __init__(self, function: Callable[..., Any], warp: Warp, args: list[Any], moved: Moved | None) -> None:
        self.function, self.warp, self.args, self.moved = function, warp, args, moved
        self.registers: list[tuple[int, int]] = []
        self.place: NumberedTile | None = None
        self.out: int | None = None
        self.launches: list[int] = []
        self.ended: list[int] = []

    @property
    def uses(self) -> list[int]:
        return [number for _, number in self.registers] + ([] if self.out is None else [self.out])

    @property
    def fixed(self) -> bool:
        """Return True if the call is the same for every cluster, so that its operations can be reused."""
        return not self.registers and self.moved is None and self.out is None

    def again(self, replayed: Replayed) -> None:
        args = self.args.copy()
        for i, number in self.registers:
            args[i] = replayed.registers[number]
        if self.moved is not None and self.place is not None:
            args[self.moved.offsets] = replayed.tiles.at(self.place)
        if self.launches:
            replayed.next = self.launches[0]
        result = self.function(self.warp, *args)
        if self.out is not None:
            replayed.registers[self.out] = result
        for number in self.ended:
            replayed.registers[number] = None


@dataclass(slots=True)
class Part:
    """The reads of an operation, or its end."""

    number: int
    end: bool
    uses: Sequence[int] = ()

    def again(self, replayed: Replayed) -> None:
        launched = replayed.launched[self.number]
        assert launched is not None
        if self.end:
            launched.complete()
            replayed.launched[self.number] = None
        elif launched.read_phase is not None:
            launched.read_phase()


@dataclass(slots=True)
class Fixed:
    """A function that is the same for every cluster, on the memory of the logged cluster."""

    function: Callable[[], Any]
    uses: Sequence[int] = ()

    def again(self, replayed: Replayed) -> None:
        self.function()


@dataclass(slots=True)
class Filled:
    """A deferred copy that had to be performed."""

    cells: np.ndarray
    patch: Patch
    uses: Sequence[int] = ()

    def again(self, replayed: Replayed) -> None:
        self.cells[...] = replayed.tiles.moved(self.patch).values()


@dataclass(slots=True)
class Multiplied:
    """A deferred product that had to be computed."""

    product: Product
    uses: Sequence[int] = ()

    def again(self, replayed: Replayed) -> None:
        replayed.tiles.moved_product(self.product).perform()


@dataclass(slots=True)
class Added:
    """A term of an accumulator's sum in registers; None: they got the sum. uses: registers of each warp's part."""

    total: Sum
    term: Product | Values | None
    uses: Sequence[int]

    def again(self, replayed: Replayed) -> None:
        total, term = replayed.sum_of(self.total, self.uses), self.term
        if term is None:
            total.flush()
        else:
            total.take(replayed.tiles.moved_product(term) if isinstance(term, Product) else term)


class Done(NamedTuple):
    """A performed part of an operation that `call` started."""

    number: int
    call: LoggedCall
    function: Callable[[], Any]
    end: bool

    def step(self) -> Step:
        return Fixed(self.function) if self.call.fixed else Part(self.number, self.end)


class ReplayLog(Listener):
    """Log of a cluster's work in order, written while it runs in full.

    An instruction comes before the operations that it starts, and after those that it completes. rooms, extents: of
    each warp's tiles in each source, the largest offsets without clipping, and the size.
    """

    def __init__(self) -> None:
        self.usable = True
        self.columns_used: set[int] = set()  # tensor memories with allocations
        self.steps: list[Step | Done] = []
        self.results: dict[int, tuple[weakref.ref[np.ndarray], int]] = {}
        self.numbers, self.launches = itertools.count(), itertools.count()
        self.current: LoggedCall | None = None
        self.entered = False
        self.ops: dict[AsyncOperation, tuple[int, LoggedCall | None]] = {}
        self.images: dict[int, tuple[np.ndarray | None, int]] = {}
        self.segments: dict[int, int] = {}
        self.changing: set[int] = set()  # sources of memory that the program may write
        self.rooms: dict[tuple[int, Thread], list[tuple[int, ...]]] = {}
        self.extents: dict[tuple[int, Thread], list[tuple[int, ...]]] = {}
        self.findings = Findings()
        self.parted: list[Parted] = []

    def call(self, function: Callable[..., Any], moved: Moved | None, warp: Warp, args: tuple[Any, ...]) -> Any:
        """Call an instruction's function, and log the call."""
        if not self.usable:
            return function(warp, *args)
        call = self.current = LoggedCall(function, warp, list(args), moved)
        self.entered = False
        self._find_registers(call)
        if moved is not None:
            call.place = self._see(args[moved.view], moved, (warp.cta.rank, warp.index))
        result = function(warp, *args)
        if any(isinstance(each, (Patch, Sum)) for each in (result, *args)):
            self.usable &= not isinstance(result, np.ndarray)
            self.current = None
            return result
        if isinstance(result, np.ndarray):
            call.out = next(self.numbers)
            self.results[id(result)] = weakref.ref(result), call.out
        self._enter(call)
        self.current = None
        return result

    def _find_registers(self, call: LoggedCall) -> None:
        for i, arg in enumerate(call.args):
            if isinstance(arg, np.ndarray):
                number = self._number(arg)
                if number is not None:
                    call.registers.append((i, number))
                    call.args[i] = None
                elif arg.flags.writeable:
                    self.usable = False

    def _number(self, registers: np.ndarray) -> int | None:
        known, number = self.results.get(id(registers), (None, 0))
        return number if known is not None and known() is registers else None

    def _see(self, view: GlobalView, moved: Moved, thread: Thread) -> NumberedTile:
        """Record a tile of this view. Its memory must exist as a whole, and belong to one source."""
        storage, source = view.storage, moved.source
        _, image_of = self.images.setdefault(id(view.image), (view.image, source))
        memory_of = self.segments.setdefault(storage.segment.address, source)
        alone = (view.image is None or image_of == source) and (storage.constant or memory_of == source)
        self.usable &= alone and view.data.shape == view.declared
        if not storage.constant:
            self.changing.add(source)
        rooms = self.rooms.setdefault((source, thread), [])
        rooms.append(tuple([limit - extent for limit, extent in zip(view.declared, moved.extents, strict=True)]))
        self.extents.setdefault((source, thread), []).append(moved.extents)
        return NumberedTile(source, thread, len(rooms) - 1)

    def _enter(self, call: LoggedCall) -> None:
        if not self.entered:
            self.entered = True
            self._add(call)

    def _add(self, step: Step | Done) -> None:
        if len(self.steps) >= MAX_STEPS:
            self.usable = False
        if self.usable:
            self.steps.append(step)

    # events

    def issued(self, op: AsyncOperation, warp: Warp, instruction: Instruction, regions: Mapping[str, Region]) -> None:
        if self.current is None:
            self.ops[op] = -1, None
            return
        number = next(self.launches)
        self.ops[op] = number, self.current
        self.current.launches.append(number)
        self._enter(self.current)

    def source_read(self, op: AsyncOperation) -> None:
        self._part(op, op.read_phase, end=False)

    def completed(self, op: AsyncOperation, put_off: bool) -> None:
        if not put_off:
            self._part(op, op.complete, end=True)

    def _part(self, op: AsyncOperation, function: Any, end: bool) -> None:
        number, call = self.ops[op]
        if call is None:
            self.usable = False
        else:
            self._add(Done(number, call, function, end))

    def performed(self, work: Held | Parted | Product | Term | Sum) -> None:
        if isinstance(work, Held):
            self._add(Filled(work.view.data[tuple([slice(lo, hi) for lo, hi in work.box])], work.patch))
        elif isinstance(work, Parted):
            self.parted.append(work)
        elif isinstance(work, Product):
            self._add(Multiplied(work))
        elif isinstance(work, Term):
            self._added(work.total, work.what)
        else:
            self._added(work, None)

    def _added(self, total: Sum, term: Product | Values | None) -> None:
        numbers = [self._number(registers) for registers in total.parts.values()]
        known = [number for number in numbers if number is not None]
        self.usable &= len(known) == len(numbers)
        self._add(Added(total, term, known))

    def allocated(self, region: Region) -> None:
        """Stop using the log if columns are allocated again, as their contents are unknown."""
        self.usable &= id(region.storage) not in self.columns_used
        self.columns_used.add(id(region.storage))

    def found(self, finding: Finding) -> None:
        self.findings.add(finding)
        self.usable &= finding.severity is not Severity.ERROR

    # end

    def cut(self) -> list[Step]:
        """Return the steps that move values."""
        needed = {id(done.call) for done in self.steps if isinstance(done, Done) and not done.call.fixed}
        steps = [step.step() if isinstance(step, Done) else step for step in self.steps]
        steps = [
            s for s in steps if not isinstance(s, LoggedCall) or s.out is not None or not s.launches or id(s) in needed
        ]
        _forget_results(steps)
        return steps

    def source_of(self, patch: Patch) -> int:
        return self.images[id(patch.image)][1]

    def close(self) -> None:
        """Break the reference cycle through the program that calls this log."""
        self.steps.clear()
        self.ops.clear()
        self.results.clear()


def _forget_results(steps: Iterable[Step]) -> None:
    """Record in each call, as `ended`, the results that no later step uses, so that they can be freed."""
    later: set[int] = set()
    for step in reversed(list(steps)):
        used = set(step.uses)
        if isinstance(step, LoggedCall):
            step.ended = sorted(used - later)
        later |= used


def logging(log: ReplayLog) -> Callable[[Callable[..., Any], Moved | None], Callable[..., Any]]:
    """Return a wrapper for `Lowered.main_with` that logs an instruction's calls."""

    def wrap(function: Callable[..., Any], moved: Moved | None) -> Callable[..., Any]:
        return lambda warp, *args: log.call(function, moved, warp, args)

    return wrap


# --- once more


class Tiles(Protocol):
    """Tiles of the present cluster."""

    def at(self, place: NumberedTile) -> tuple[int, ...]: ...

    def moved(self, patch: Patch) -> Patch: ...

    def moved_product(self, product: Product) -> Product: ...


class Replayed:
    """A cluster that has run, whose memory later ones use; it replaces their engine.

    registers, launched: results of instructions and operations, by number. next: number of the next operation. sums: by
    the id of the logged one. findings: unguaranteed ones, added for each cluster.
    """

    tell: Listener = Broadcast(())
    tiles: Tiles

    def __init__(self, ctas: list[Cta], log: ReplayLog, executed: dict[str, int], counts: dict[str, int]) -> None:
        self.ctas, self.executed, self.counts = ctas, executed, counts
        self.steps, self.findings, self.parted = log.cut(), tuple(log.findings), log.parted
        self.registers: list[np.ndarray | None] = [None] * next(log.numbers)
        self.launched: list[AsyncOperation | None] = [None] * next(log.launches)
        self.sums: dict[int, Sum] = {}
        self.next = 0
        for cta in ctas:
            cta.engine = self
            cta.columns.revive()
            for storage in cta.storages:
                storage.performed = self.tell.performed

    @property
    def products(self) -> list[tuple[Any, Product]]:
        """Return the deferred products, with a key of the accumulator of each."""
        in_memory = [
            (s.product.cells.__array_interface__["data"][0], s.product) for s in self.steps if isinstance(s, Multiplied)
        ]
        added = [(s.total, s.term) for s in self.steps if isinstance(s, Added)]
        return [*in_memory, *((total, term) for total, term in added if isinstance(term, Product))]

    @property
    def patches(self) -> list[Patch]:
        """Return the patches of constant memory that its steps use, or could not join."""
        copies = [step.patch for step in self.steps if isinstance(step, Filled)]
        copies += [held.patch for parted in self.parted for held in (parted.first, parted.second)]
        return copies + [patch for _, product in self.products for patch in (product.a, product.b)]

    @property
    def neighbours(self) -> list[tuple[Product, Product]]:
        """Return pairs of products that follow each other in an accumulator, and were not joined."""
        found: list[tuple[Product, Product]] = []
        last: dict[Any, Product] = {}
        for accumulator, product in self.products:
            if accumulator in last:
                found.append((last[accumulator], product))
            last[accumulator] = product
        return found

    def sum_of(self, total: Sum, numbers: Sequence[int]) -> Sum:
        """Return the sum of this cluster that corresponds to a logged one."""
        if id(total) not in self.sums:
            parts: Any = {warp: self.registers[number] for warp, number in zip(total.parts, numbers, strict=True)}
            self.sums[id(total)] = Sum(total.layouts, parts, total.latest)
        return self.sums[id(total)]

    def issue(self, op: AsyncOperation, warp: Warp, instruction: Instruction, regions: Mapping[str, Region]) -> None:
        self.launched[self.next] = op
        self.next += 1

    def run(self, scheduled: ScheduledCluster, tiles: Tiles) -> int:
        """Compute the values of this cluster; return the number of clusters that it took over."""
        self.tiles = tiles
        self.sums.clear()
        cluster, asked = self.ctas[0].cluster, self.ctas[0].cluster.grants.asked
        cluster.grants = Grants(scheduled.grants, asked)
        for cta, position in zip(self.ctas, scheduled.cluster, strict=True):
            cta.clear(position)
        for step in self.steps:
            step.again(self)
        for name, count in self.executed.items():
            self.counts[name] += count
        for finding in self.findings:
            self.ctas[0].grid.findings.add(replace(finding, cta=scheduled.cluster[0]))
        return cluster.grants.taken

    def close(self) -> None:
        self.steps.clear()
        for cta in self.ctas:
            cta.close()
