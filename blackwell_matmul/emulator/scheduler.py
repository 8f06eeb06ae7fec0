"""Runs a grid: clusters in order, warps in turns, and asynchronous operations as they complete.

Hardware leaves open which warp runs first, and when a copy or a product completes. A program must be right in every
order. By default an operation completes late: when a wait needs it, or when nothing else can run.
"""

from __future__ import annotations

import hashlib
import random
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from math import inf, prod
from typing import Any

import numpy as np

from blackwell_matmul.base.errors import EmulationError
from blackwell_matmul.base.processes import heap_set_aside
from blackwell_matmul.emulator.code import EXIT, Clock, Executable, last_type
from blackwell_matmul.emulator.emulation_listener import EmulationListener
from blackwell_matmul.emulator.lanes import ALL, LANES, TYPES, by_warps, first
from blackwell_matmul.emulator.machine import ClusterState, CtaState, Row, Strand, Waiting, Waits, WarpState
from blackwell_matmul.emulator.parser import Register, Vector
from blackwell_matmul.emulator.spaces import GlobalSpace, Memory, Undefined
from blackwell_matmul.emulator.unknown import Malformed, Unknown

Progress = Callable[[int, int], None]
Extents = tuple[int, int, int]

ORDERS = ("late", "eager", "newest", "copies last", "products last", "random")
"""Orders in which asynchronous operations complete. late: late, oldest first. eager: at the issue. newest: late, newest
first. copies last, products last: late, one kind last. random: by seed."""

TURN_STEPS = 2000
"""Instructions in one turn of a warp, before another warp's turn."""

TIMED_STEPS = 50
"""Instructions between looks at the clock, if seconds are limited."""

PATIENCE_STEPS = 20_000
"""Instructions without effect after which pending operations complete or clusters start, as the kernel may poll for
them."""

APART_STEPS = 200
"""Instructions that some warps of a row run without the others before they are moved to a row of their own."""

IDLE_STEPS = 400_000
"""Instructions without effect on memory or barriers after which a kernel counts as endless."""


@dataclass(slots=True, eq=False)
class InFlight:
    """An asynchronous operation in flight. kind: "copy", "product" or "other". step: the instruction that issued it.
    lanes: lanes of the warp that issued it. after: operation that must complete first. heard: a listener's data on the
    operation."""

    kind: str
    act: Callable[[], None]
    step: Executable | None
    warp: WarpState
    lanes: int
    after: InFlight | None = None
    done: bool = False
    heard: Any = None


@dataclass(frozen=True, slots=True)
class Limit:
    """Limits of a run, which raises an error beyond them; None for no limit.

    steps: instructions of one warp. seconds: of the whole run. bytes: of memory that the emulator allocates.
    """

    steps: int | None = 10_000_000
    seconds: float | None = None
    bytes: int | None = 8 << 30


@dataclass(frozen=True, slots=True)
class Choices:
    """Choices that hardware leaves open, and options of a run. progress: called with the number of finished clusters
    and their total. unwritten: "stop" or "note", the effect of a read of unwritten shared memory. listener: gets the
    events of the run."""

    order: str = "late"
    seed: int = 0
    progress: Progress | None = None
    unwritten: str = "stop"
    limit: Limit = Limit()
    listener: EmulationListener | None = None


class Clusters:
    """Clusters of a grid that have not started, in order, x fastest. len() returns their number."""

    def __init__(self, grid: Extents, cluster: Extents) -> None:
        self.size = cluster
        self.counts = tuple(-(-extent // size) for extent, size in zip(grid, cluster))
        self.begun, self.total = 0, prod(self.counts)

    def __len__(self) -> int:
        return self.total - self.begun

    def take(self) -> Extents:
        """Remove the next cluster, and return the index of its first CTA."""
        index, (x, y, _) = self.begun, self.counts
        self.begun += 1
        return index % x * self.size[0], index // x % y * self.size[1], index // (x * y) * self.size[2]


@dataclass
class Execution:
    """One launch. waiting: clusters that have not started, which cluster launch control may cancel. most: maximum
    number of resident clusters. rows: rows of their warps. pending: asynchronous operations in flight, oldest first.
    effects: number of changes of memory and mbarriers, and of completed operations; arrivals: number of arrivals at
    barriers of threads. unknown: a sentence for each instruction that is not emulated. completing: the operation that
    completes now. notes: a sentence for each line whose effect a GPU leaves undefined."""

    steps: list[Executable]
    memory: GlobalSpace
    parameters: Memory
    waiting: Clusters
    start: Callable[[Execution, list[Extents], bool], tuple[list[ClusterState], list[Row]]]
    most: int
    choices: Choices
    unknown: list[str] = field(default_factory=list)
    resident: list[ClusterState] = field(default_factory=list)
    rows: list[Row] = field(default_factory=list)
    pending: dict[InFlight, None] = field(default_factory=dict)
    effects: int = 0
    arrivals: int = 0
    executed: int = 0
    current: Executable | None = None
    completing: InFlight | None = None
    notes: dict[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.listener = self.memory.listener = self.choices.listener
        for memory in self.memory.memories:
            memory.listener = self.listener
        if self.listener is not None:
            self.listener.began(self)
        self.order, self.random = self.choices.order, random.Random(self.choices.seed)
        self.in_rows = self.listener is None and self.order != "random"
        self.most = self.most if self.in_rows else 1
        self.clusters = len(self.waiting)
        self.states: Counter[tuple[int, bytes]] = (
            Counter()
        )  # states seen while no instruction has an effect, and how often
        seconds = self.choices.limit.seconds
        self.deadline = inf if seconds is None else time.monotonic() + seconds
        self.stretch = TURN_STEPS if seconds is None else TIMED_STEPS
        self.most_steps = inf if self.choices.limit.steps is None else self.choices.limit.steps

    # --- notes

    def note(self, text: str) -> None:
        """Record a note on the current instruction or operation, once for each line."""
        step = self.completing.step if self.completing is not None else self.current
        where = _where(step) if step is not None else ""
        self.notes.setdefault(where, f"{where}: {text}.")

    def unwritten(self, text: str) -> None:
        if self.choices.unwritten == "stop":
            raise Undefined(text)
        self.note(text)

    # --- asynchronous operations

    def issue(
        self, kind: str, act: Callable[[], None], warp: WarpState, lanes: int, after: InFlight | None = None
    ) -> InFlight:
        operation = InFlight(kind, act, self.current, warp, lanes, after)
        if self.listener is not None:
            self.listener.issued(operation)
        if self.order == "eager":
            self.complete(operation)
        else:
            self.pending[operation] = warp.cta.cluster.pending[operation] = None
        return operation

    def complete(self, operation: InFlight | None) -> None:
        """Complete an operation, after the operations that must complete first."""
        chain = []
        while operation is not None and not operation.done:
            chain.append(operation)
            operation = operation.after
        for each in reversed(chain):
            self._done(each)
            outer, self.completing = self.completing, each
            try:
                each.act()
            except FAULTS as fault:
                raise _told(fault, each.step) from fault
            self.completing = outer
            if self.listener is not None:
                self.listener.completed(each)

    def _done(self, operation: InFlight) -> None:
        operation.done, operation.after = True, None
        self.effects += 1
        self.pending.pop(operation, None)
        operation.warp.cta.cluster.pending.pop(operation, None)

    def complete_alike(self, operations: Iterable[InFlight]) -> None:
        """Complete operations of several warps, in order for each warp; those with equal keys together."""
        groups: dict[Any, list[InFlight]] = {}
        for each in operations:
            group = groups.setdefault(each.act.alike, [])  # type: ignore[attr-defined]
            group.append(each)
        for group in groups.values():
            left = [each for each in group if not each.done]
            try:
                if any(each.after is not None and not each.after.done for each in left):
                    raise Undefined("operations are not alike")
                if left:
                    left[0].act.together([each.act for each in left])  # type: ignore[attr-defined]
                for each in left:
                    self._done(each)
            except FAULTS:
                for each in left:
                    self.complete(each)

    def _complete_one(self, pending: dict[InFlight, None]) -> bool:
        operation = self._chosen(each for each in pending if each.after is None or each.after.done)
        if operation is not None:
            self.complete(operation)
        return operation is not None

    def _complete_some(self, ran: int) -> bool:
        """Complete an operation; return False if there is none.

        In rows, each cluster that cannot run completes operations until it can. If warps ran, but without effect, each
        cluster completes one operation. Operations of ended clusters come last.
        """
        if not self.in_rows:
            return self._complete_one(self.pending)
        able = {id(warp.cta.cluster) for row in self.rows for each in row.strands for warp in _able(row, each)}
        waits: dict[ClusterState, dict[int, Waiting]] = {cluster: {} for cluster in self.resident}
        for strand in self._strands():
            for warp, _, wait in strand.blocked or ():
                waits[warp.cta.cluster][id(wait)] = wait  # several warps may have the same wait
        stuck = [cluster for cluster in self.resident if ran or id(cluster) not in able]
        done = False
        for cluster in stuck:
            while self._complete_one(cluster.pending):
                done = True
                if ran or any(wait.ready() for wait in waits[cluster].values()):
                    break
        return done or (len(stuck) == len(self.resident) and self._complete_one(self.pending))

    def _chosen(self, ready: Iterator[InFlight]) -> InFlight | None:
        """Return the operation that completes next; None if there is none. ready: candidates, oldest first."""
        if self.order == "late":
            return next(ready, None)
        every = [*ready]
        if self.order == "random":
            return self.random.choice(every) if every else None
        if self.order == "newest":
            return every[-1] if every else None
        last = {"copies last": "copy", "products last": "product"}.get(self.order)
        return next((each for each in every if each.kind != last), every[0] if every else None)

    # --- the grid

    def run(self) -> None:
        """Run the grid to its end; raise EmulationError, one sentence with the line, if it cannot end."""
        with np.errstate(all="ignore"), heap_set_aside():  # overflow and NaN are no errors in the arithmetic
            self._run_all()

    def _run_all(self) -> None:
        idle = quiet = 0  # instructions without any effect, and without effects other than arrivals
        timed_out = None
        while self.waiting or self.resident:
            if not self.resident or (self.order == "random" and self.random.random() < 0.01):
                self._admit()
            effects, arrivals = self.effects, self.arrivals
            ran = self._turn()
            self._retire()
            quiet = 0 if self.effects != effects else quiet + ran
            idle = 0 if self.arrivals != arrivals else min(idle + ran, quiet)
            if self.in_rows and ran and (idle or quiet >= PATIENCE_STEPS):
                self._part_ready()
            if not self.resident or (ran and quiet < PATIENCE_STEPS):
                continue
            completed = self._complete_some(ran)
            if not completed and not ran and self._part_ready():
                continue
            if completed or self._admit():
                idle = quiet = 0
            elif idle >= IDLE_STEPS:
                raise self._endless()
            elif ran:
                self._check_repeats()
            else:
                timed_out = self._time_out(timed_out)
        while self._complete_one(self.pending):
            pass

    def _admit(self) -> bool:
        """Start the next clusters; return False if there are none left."""
        if not self.waiting:
            return False
        origins = [self.waiting.take() for _ in range(min(self.most, len(self.waiting)))]
        clusters, rows = self.start(self, origins, self.in_rows)
        self.resident, self.rows = self.resident + clusters, self.rows + rows
        if self.listener is not None:
            self.listener.started(clusters[0])
        return True

    def start_all(self) -> None:
        """Start all clusters, as a cooperative launch guarantees."""
        while self._admit():
            pass

    def _retire(self) -> None:
        kept = [cluster for cluster in self.resident if not cluster.is_done]
        for cluster in self.resident:
            held = [cta.tensor.allocated for cta in cluster.ctas if cta.tensor.allocated]
            if held and cluster not in kept:
                raise EmulationError(
                    f"a CTA ended with columns of tensor memory that it has not given back: {held[0]}."
                )
        done = self.clusters - len(self.waiting)
        for left in reversed(range(len(kept), len(self.resident))):
            if self.choices.progress is not None:
                self.choices.progress(done - left, self.clusters)
        self.resident = kept
        self.rows = [row for row in self.rows if row.strands]

    def _turn(self) -> int:
        """Give each ready row a turn; return the number of instructions run."""
        rows = [*self.rows]
        if self.order == "random":
            self.random.shuffle(rows)
            if self.pending and self.random.random() < 0.3:
                self._complete_one(self.pending)
        return sum(self._run(row) for row in rows if row.runnable())

    def _part_ready(self) -> bool:
        """Split strands in which only some warps may continue; return True if a strand was split."""
        parted = False
        for row in self.rows:
            for strand in [*row.strands] if len(row.warps) > 1 else ():
                mask = strand.mask & sum(ALL << warp.start for warp in _able(row, strand))
                if mask and mask != strand.mask:
                    row.strands.append(_parted(strand, mask))
                    parted = True
        return parted

    def _time_out(self, before: Any) -> Any:
        """Let every try_wait fail when nothing else can continue, and return the state. Raise the deadlock if none
        waits, or if the state has not changed."""
        state = [(strand.pc, strand.mask) for strand in self._strands()], self.effects, self.arrivals
        if state == before or not self._fail_waits():
            raise self._deadlock()
        return state

    def _fail_waits(self) -> bool:
        """Let each try_wait fail; return False if none waits."""
        waiting = [strand for strand in self._strands() if strand.blocked and strand.blocked[0][2].may_fail]
        for strand in waiting:
            strand.timed_out = True
        return bool(waiting)

    def _check_repeats(self) -> None:
        """Raise EmulationError if an earlier state of warps and memory repeats, so that the run never ends. Before,
        every try_wait fails once."""
        state = self.effects, self._state()
        self.states[state] += 1
        if self.states[state] > 2 or (self.states[state] == 2 and not self._fail_waits()):
            raise self._spinning()

    def _state(self) -> bytes:
        """Return a digest of the state that decides how warps continue, without memory."""
        digest = hashlib.blake2b(digest_size=16)
        for row in self.rows:
            turns = min((each.turns for each in row.strands), default=0)
            strands = [(each.pc, each.mask, each.ready(), each.turns - turns) for each in row.strands]
            digest.update(repr(strands).encode())
            for content in row.registers:
                digest.update(content.tobytes() if isinstance(content, np.ndarray) else b"%d" % content)
            for warp in row.warps:
                met = sorted((wanted, arrived) for wanted, (arrived, _) in warp.meetings.items())
                digest.update(repr((met, warp.carry, warp.stack, [id(each) for each in warp.frames])).encode())
        for cluster in self.resident:
            named = [item for cta in cluster.ctas for item in cta.named.items()]
            counts = [(number, each.arrived, each.asked, each.yes) for number, each in named]
            digest.update(repr((counts, [*cluster.arrived.values()])).encode())
        return digest.digest()

    def _strands(self) -> Iterator[Strand]:
        for row in self.rows:
            yield from row.strands

    # --- a row

    def _run(self, row: Row) -> int:
        """Run the ready strands of a row, fewest turns first; return the number of instructions."""
        ran = 0
        while ran < TURN_STEPS:
            ready = [strand for strand in row.strands if strand.ready()]
            if not ready:
                break
            strand = min(ready, key=lambda each: (each.turns, each.pc))
            late, strand.timed_out = [warp for warp, _ in row.parts(strand.mask)] if strand.timed_out else [], False
            for warp in late:
                warp.timed_out = True
            part = self._resume(row, strand)
            if strand.blocked is None:
                part += self._advance(row, strand, *_others(row, strand, ready), min(self.stretch, TURN_STEPS - ran))
            for warp in late:
                warp.timed_out = False
            ran, row.steps, strand.steps = ran + part, row.steps + part, strand.steps + part
            if row.steps > self.most_steps or (self.deadline < inf and time.monotonic() > self.deadline):
                raise self._too_long(row)
            strand.turns += ran >= TURN_STEPS
            _join(row)
            if strand.steps >= APART_STEPS and strand.mask != row.all:
                self._separate(row, strand)
        return ran

    def _separate(self, row: Row, strand: Strand) -> None:
        """Move the warps of a diverged strand into a row of their own, unless these are all warps of the row."""
        strand.steps, warps = 0, [warp for warp, _ in row.parts(strand.mask)]
        if 0 < len(warps) < len(row.warps):
            self.rows.append(row.part(warps))

    def _resume(self, row: Row, strand: Strand) -> int:
        """Continue the waiting warps of a strand; return 1 if their instruction was executed again, else 0."""
        waits, meets, strand.blocked = strand.blocked, strand.meets, None
        if waits is None or meets:
            return 0
        whole = len(waits) == len(row.warps) > 1 and all(wait.again for _, _, wait in waits)
        if whole and self.steps[strand.pc].wide:
            return 0
        again = [(warp, part) for warp, part, wait in waits if wait.again]
        if again:
            self.current = self.steps[strand.pc]
            strand.blocked = self._apart(strand.pc, again, self.executed)
            self.executed += len(again)
        strand.pc += strand.blocked is None
        return int(bool(again))

    def _apart(self, pc: int, parts: Iterable[tuple[WarpState, int]], executed: int) -> Any:
        """Execute an instruction warp by warp. Return None, the lanes for each next instruction, or the warps that
        wait.

        executed: number of instructions executed before.
        """
        step, through = self.steps[pc], 0
        places: dict[int, int] = {}
        waits: Waits = []
        for now, (warp, part) in enumerate(parts, executed + 1):
            try:
                result = step.act(warp, part)
            except FAULTS as fault:
                raise _told(fault, step) from fault
            if result.__class__ is Waiting:
                waits.append((warp, part, result))
            elif result is None or result.__class__ is Clock:
                through |= part << warp.start
                if result is not None:
                    result.told(now)
            else:
                for to, some in result.items() if result.__class__ is dict else [(result, part)]:
                    places[to] = places.get(to, 0) | some << warp.start
        waits = [each for each in waits if each[2].again or not each[2].ready()]
        if places and through:
            places[pc + 1] = places.get(pc + 1, 0) | through
        return waits or places or None

    def _at_once(self, row: Row, pc: int, mask: int, executed: int) -> Any:
        """Execute an instruction for all lanes of a row in one call. After a fault, execute it warp by warp."""
        row.written.clear()
        try:
            return self.steps[pc].act(row, mask)  # type: ignore[arg-type]
        except FAULTS:
            return self._apart(pc, row.parts(mask), executed)

    def _advance(self, row: Row, strand: Strand, others: set[int], behind: int, limit: int) -> int:
        """Run one strand until it waits, ends or splits, reaches an instruction in `others`, or passes the instruction
        `behind`. others: instructions of other strands. behind: lowest instruction of strands that run first. Return
        the number of instructions."""
        steps, registers, warp, alone = self.steps, row.registers, row.warps[0], len(row.warps) == 1
        pc, mask, ran = strand.pc, strand.mask, 0
        warps = 1 if alone else len(by_warps(mask, len(row.warps)))
        try:
            while ran < limit:
                step, taken, result = steps[pc], mask, None
                ran += 1
                if step.guard >= 0:
                    taken &= ~registers[step.guard] if step.negated else registers[step.guard]
                if taken:
                    self.current = step
                    if alone:
                        result = step.act(warp, taken)
                    else:
                        result = self._in_row(row, pc, taken, self.executed + (ran - 1) * warps)
                if result is None:
                    pc += 1
                elif result.__class__ is int and taken == mask:
                    pc = result
                else:
                    strand.pc = pc
                    goes_on = self._leave(row, strand, taken, result, self.executed + ran)
                    pc, mask = strand.pc, strand.mask
                    if not goes_on:
                        break
                if pc > behind or pc in others:
                    break
        except FAULTS as fault:
            raise _told(fault, steps[pc]) from fault
        strand.pc = pc
        self.executed += ran * warps
        if strand.blocked and not alone:
            self._part_meeting(row, strand)
        return ran

    def _in_row(self, row: Row, pc: int, mask: int, executed: int) -> Any:
        """Execute an instruction for several warps: in one call if the instruction is `wide`, else warp by warp."""
        if self.steps[pc].wide:
            return self._at_once(row, pc, mask, executed)
        return self._apart(pc, row.parts(mask), executed)

    def _leave(self, row: Row, strand: Strand, taken: int, result: Any, now: int) -> bool:
        """Update a strand whose lanes `taken` exit, wait, read the clock or jump to several instructions. Return True
        if the strand runs on. now: number of executed instructions."""
        rest = strand.mask & ~taken
        if result.__class__ is int:
            row.strands.append(Strand(strand.pc + 1, rest, turns=strand.turns))
            strand.pc, strand.mask = result, taken
        elif result is EXIT:
            self._end(row, taken)
            strand.pc, strand.mask = strand.pc + (rest != 0), rest
            return rest != 0
        elif result.__class__ is dict:  # lanes by the index of their next instruction
            row.strands += [Strand(to, each, turns=strand.turns) for to, each in result.items()]
            strand.pc, strand.mask = strand.pc + 1, rest
        elif result.__class__ is Clock:
            result.told(now)
            strand.pc += 1
            return True
        else:
            strand.blocked = result if result.__class__ is list else [(row.warps[0], taken, result)]
        return False

    def _part_meeting(self, row: Row, strand: Strand) -> None:
        """Split off the warps of a strand that wait for their other lanes."""
        meeting = strand.mask & sum(ALL << warp.start for warp, _, wait in strand.blocked or () if wait.meets)
        if meeting and meeting != strand.mask:
            row.strands.append(_parted(strand, meeting))

    def _end(self, row: Row, mask: int) -> None:
        """Mark lanes as exited."""
        for warp, part in row.parts(mask):
            warp.alive &= ~part
            warp.cta.exited += part.bit_count()
            if self.listener is not None:
                self.listener.exited(warp, part)
        self.effects += 1

    # --- reports

    def _deadlock(self) -> EmulationError:
        waits: dict[str, list[str]] = {}
        for strand in self._strands():
            for warp, _, wait in strand.blocked or ():
                what = f"{_where(self.steps[strand.pc])} ({wait.what()})"
                waits.setdefault(what, []).append(_name(warp.cta, warp))
        text = "; ".join(f"{_few(who)} at {what}" for what, who in list(waits.items())[:6])
        return EmulationError(f"deadlock: everybody waits and nothing is in flight: {text}.")

    def _too_long(self, row: Row) -> EmulationError:
        limit, last = self.choices.limit, min((each.pc for each in row.strands), default=0)
        what = f"{limit.seconds:g} seconds" if row.steps <= self.most_steps else f"{limit.steps:,} steps of one warp"
        where = _where(self.steps[min(last, len(self.steps) - 1)])
        return EmulationError(f"the limit of {what} is reached near {where}; `limit=` sets another.")

    def _endless(self) -> EmulationError:
        where = next(iter(self._strands()))
        return EmulationError(
            f"endless: {IDLE_STEPS:,} instructions ran and changed neither memory nor a barrier, the last near "
            f"{_where(self.steps[min(where.pc, len(self.steps) - 1)])}."
        )

    def _spinning(self) -> EmulationError:
        """Return the error for an endless loop, with the loads that one more iteration executes."""
        polls = Polls(self.steps)
        steps, self.steps = self.steps, polls.steps
        self._turn()
        self.steps = steps
        text = "; ".join(polls.sentences()[:6])
        return EmulationError(
            f"endless: {text or f'a loop without loads runs near {_where(self.current or steps[0])}'}; the other warps "
            "have ended, wait or repeat a loop too, and nobody writes another value."
        )


class Polls:
    """Loads that some turns execute, and comparisons of their results. steps: instructions that record both."""

    def __init__(self, steps: list[Executable]) -> None:
        self.loads: dict[
            int, dict[WarpState, tuple[int, Any]]
        ] = {}  # by instruction: first lane and results of each warp
        self.compares: dict[int, dict[WarpState, list[Any]]] = {}  # by instruction: operands of each warp
        self.steps = [self._noting(place, step) for place, step in enumerate(steps)]

    def _noting(self, place: int, step: Executable) -> Executable:
        opcode, operands = step.source.opcode, step.source.operands

        def load(lanes: Any, mask: int) -> Any:
            result = step.act(lanes, mask)
            for warp, part in lanes.parts(mask):
                numbers = _numbers(operands[0], warp, last_type(step.source))
                self.loads.setdefault(place, {})[warp] = first(part), numbers
            return result

        def compare(lanes: Any, mask: int) -> Any:
            for warp, _ in lanes.parts(mask):
                self.compares.setdefault(place, {})[warp] = [
                    _numbers(each, warp, last_type(step.source)) for each in operands[1:3]
                ]
            return step.act(lanes, mask)

        if opcode.startswith("setp."):
            return step._replace(act=compare)
        return step._replace(act=load) if opcode.startswith(_POLLED) else step

    def sentences(self) -> list[str]:
        """Return a clause for each load whose result is compared; if there is none, for every load."""
        found = [(place, self._compared(place)) for place in self.loads]
        compared = [each for each in found if each[1] is not None]
        return [self._sentence(*each) for each in compared or found]

    def _compared(self, place: int) -> tuple[int, int] | None:
        """Return the index of a comparison of a load's result, and the number of the other operand, or None."""
        target = _first(self.steps[place].source.operands[0])
        for other in self.compares:
            operands = self.steps[other].source.operands[1:3]
            if target in operands:
                return other, 1 - operands.index(target)
        return None

    def _sentence(self, place: int, compared: tuple[int, int] | None) -> str:
        who = _few([_name(warp.cta, warp) for warp in self.loads[place]])
        warp, (lane, result) = next(iter(self.loads[place].items()))
        text = f"is read again and again by {who} at {_where(self.steps[place])}"
        if compared is None or warp not in self.compares[compared[0]]:
            return f"{result[lane]} {text}"
        source, numbers = self.steps[compared[0]].source, self.compares[compared[0]][warp]
        found, wanted = numbers[1 - compared[1]][lane], numbers[compared[1]][lane]
        return f"{found} {text}, and compared with {wanted} ({source.opcode}, PTX line {source.line})"


_POLLED = ("ld.global", "ld.shared", "ld.acquire", "ld.relaxed", "ld.volatile", "ld.u", "ld.b", "ld.s", "atom.")
"""Prefixes of loads from memory that other threads may write."""


def _numbers(operand: Any, warp: WarpState, type: str) -> Any:
    """Return an operand's values, one per lane; of a vector, those of the first element."""
    operand = _first(operand)
    if not isinstance(operand, Register):
        return [getattr(operand, "value", "a value")] * LANES
    words, kind = warp.registers[operand.slot], TYPES.get(type)
    return words if kind is None or words.itemsize != np.dtype(kind).itemsize else words.view(kind)


def _first(operand: Any) -> Any:
    return operand.parts[0] if isinstance(operand, Vector) else operand


def _name(cta: CtaState, warp: WarpState) -> str:
    return f"warp {warp.index} of CTA {cta.index}"


def _few(names: list[str]) -> str:
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _where(step: Executable) -> str:
    place = step.source.location
    source = f", {place.file.rsplit('/', 1)[-1]}:{place.line}" if place else ""
    return f"PTX line {step.source.line}{source}: {_short(step.source.text)}"


def _short(text: str, longest: int = 110) -> str:
    return text if len(text) <= longest else f"{text[:longest]}..."


FAULTS = (Undefined, Unknown, Malformed, ArithmeticError, AttributeError, LookupError, TypeError, ValueError)
"""Exceptions of an instruction: undefined behavior, code that is not emulated, Python errors inside the emulator."""


def own_fault(fault: Exception) -> str:
    """Return the message for an exception that is a fault of the emulator itself."""
    return f"the emulator fails here ({fault!r}), which is a fault of its own; please report it"


def _told(fault: Exception, step: Executable | None) -> EmulationError:
    what = str(fault) if isinstance(fault, (Undefined, Unknown, Malformed)) else own_fault(fault)
    return EmulationError(f"{_where(step)}: {what}." if step else f"{what}.")


def _others(row: Row, strand: Strand, ready: list[Strand]) -> tuple[set[int], int]:
    """Return the instruction indices of the other strands, and the lowest index of the strands that run before this
    strand."""
    places = {each.pc for each in row.strands if each is not strand} - {strand.pc}
    first = [each.pc for each in ready if each is not strand and each.turns <= strand.turns]
    return places, min(first, default=1 << 60)


def _able(row: Row, strand: Strand) -> list[WarpState]:
    """Return the warps of a strand that can continue."""
    waits = {id(wait): wait for _, _, wait in strand.blocked or ()}  # several warps may have the same wait
    ready = {number for number, wait in waits.items() if wait.ready()}
    waiting = {warp.start for warp, _, wait in strand.blocked or () if id(wait) not in ready}
    return [warp for warp, _ in row.parts(strand.mask) if warp.start not in waiting]


def _parted(strand: Strand, mask: int) -> Strand:
    """Split lanes, with the waits of their warps, off a waiting strand; return the new strand."""
    blocked = strand.blocked or []
    strand.blocked = [each for each in blocked if not mask >> each[0].start & ALL]
    strand.mask &= ~mask
    inside = [each for each in blocked if mask >> each[0].start & ALL]
    return Strand(strand.pc, mask, inside, turns=strand.turns, steps=strand.steps)


def _join(row: Row) -> None:
    """Merge strands at the same instruction, running strands and waiting strands separately. Drop strands without
    lanes."""
    if len(row.strands) == 1 and row.strands[0].mask:
        return
    places: dict[tuple[int, bool], Strand] = {}
    kept = []
    for strand in row.strands:
        if not strand.mask:
            continue
        waits = strand.blocked is not None and not strand.meets
        other = places.setdefault((strand.pc, waits), strand)
        if other is strand or (waits and not _wait_alike(row, strand, other)):
            kept.append(strand)
            continue
        other.mask |= strand.mask
        other.turns = min(other.turns, strand.turns)
        other.steps = max(other.steps, strand.steps) if other.mask != row.all else 0
        other.blocked = [*(other.blocked or ()), *(strand.blocked or ())] if waits else None
    row.strands = kept


def _wait_alike(row: Row, one: Strand, other: Strand) -> bool:
    """Return True if two waiting strands consist of different warps, so that they can be merged."""
    starts = [{warp.start for warp, _ in row.parts(each.mask)} for each in (one, other)]
    return len(row.warps) > 1 and not starts[0] & starts[1] and one.timed_out == other.timed_out
