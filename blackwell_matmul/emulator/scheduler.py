"""Runs a grid: clusters in order, their warps in turns, and asynchronous operations as they complete.

Hardware leaves open which warp runs first and when a copy or product completes; a program must be right for each order.
By default an operation completes late: when a wait names it, or when nothing else can run.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import inf, prod
from typing import Any

import numpy as np

from blackwell_matmul.base.errors import EmulationError
from blackwell_matmul.emulator.code import EXIT, Clock, Executable
from blackwell_matmul.emulator.listener import Listener
from blackwell_matmul.emulator.machine import ClusterState, CtaState, Strand, WarpState
from blackwell_matmul.emulator.spaces import GlobalSpace, Memory, Undefined
from blackwell_matmul.emulator.unknown import Malformed, Unknown

Progress = Callable[[int, int], None]
Index = tuple[int, int, int]

ORDERS = ("late", "eager", "newest", "copies last", "products last", "random")
"""Orders in which asynchronous operations complete: late and oldest first, at once, late and newest first, late with
one kind last, or random by seed.
"""

TURN_STEPS = 2000
"""Instructions that a warp runs before another warp may."""

TIMED_STEPS = 50
"""Instructions until a limit of seconds is looked at."""

PATIENCE_STEPS = 20_000
"""Instructions without effect until a pending copy or cluster may go on, as a polling loop may wait for it."""

IDLE_STEPS = 400_000
"""Instructions without effect on memory or barriers until a kernel counts as endless."""


@dataclass(slots=True, eq=False)
class InFlight:
    """An asynchronous operation. kind: "copy", "product" or "other". lanes: of the warp, that issued the operation.

    after: operation that completes first. heard: what a listener keeps of the operation.
    """

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
    """Limits of a run, at which it ends with an error; None for none.

    steps: instructions of one warp. seconds: of the whole run. bytes: of memory that the emulator allocates.
    """

    steps: int | None = 10_000_000
    seconds: float | None = None
    bytes: int | None = 8 << 30


@dataclass(frozen=True, slots=True)
class Choices:
    """Choices that hardware leaves open, and what ends a run. progress: called with the clusters done and their total.

    unwritten: "stop" or "note", at a read of shared memory that nothing has written. listener: hears of the run.
    """

    order: str = "late"
    seed: int = 0
    progress: Progress | None = None
    unwritten: str = "stop"
    limit: Limit = Limit()
    listener: Listener | None = None


class Clusters:
    """The clusters of a grid that have not started, in order, x fastest. len: their number."""

    def __init__(self, grid: Index, cluster: Index) -> None:
        self.size = cluster
        self.counts = tuple(-(-extent // size) for extent, size in zip(grid, cluster))
        self.begun, self.total = 0, prod(self.counts)

    def __len__(self) -> int:
        return self.total - self.begun

    def take(self) -> Index:
        """Return the first CTA's index of the next cluster."""
        index, (x, y, _) = self.begun, self.counts
        self.begun += 1
        return index % x * self.size[0], index // x % y * self.size[1], index // (x * y) * self.size[2]


@dataclass
class Execution:
    """One launch. waiting: first CTAs of clusters not started, which cluster launch control may cancel.

    unknown: a sentence for each instruction that is not emulated. completing: the asynchronous operation that does.
    notes: what a GPU leaves open and the kernel did, a sentence for each line.
    """

    steps: list[Executable]
    memory: GlobalSpace
    parameters: Memory
    waiting: Clusters
    start: Callable[[Execution, tuple[int, int, int]], ClusterState]
    choices: Choices
    unknown: list[str] = field(default_factory=list)
    resident: list[ClusterState] = field(default_factory=list)
    pending: list[InFlight] = field(default_factory=list)
    effects: int = 0
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
        self.clusters = len(self.waiting)
        seconds = self.choices.limit.seconds
        self.deadline = inf if seconds is None else time.monotonic() + seconds
        self.stretch = TURN_STEPS if seconds is None else TIMED_STEPS
        self.most_steps = inf if self.choices.limit.steps is None else self.choices.limit.steps

    # --- notes

    def note(self, told: str) -> None:
        """Note what the instruction that runs or completes does; the first time at each line."""
        step = self.completing.step if self.completing is not None else self.current
        where = _where(step) if step is not None else ""
        self.notes.setdefault(where, f"{where}: {told}.")

    def unwritten(self, told: str) -> None:
        if self.choices.unwritten == "stop":
            raise Undefined(told)
        self.note(told)

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
            self.pending.append(operation)
        return operation

    def complete(self, operation: InFlight | None) -> None:
        """Complete an operation and those before it."""
        chain = []
        while operation is not None and not operation.done:
            chain.append(operation)
            operation = operation.after
        for each in reversed(chain):
            each.done, each.after = True, None
            self.effects += 1
            if each in self.pending:
                self.pending.remove(each)
            outer, self.completing = self.completing, each
            try:
                each.act()
            except FAULTS as fault:
                raise _told(fault, each.step) from fault
            self.completing = outer
            if self.listener is not None:
                self.listener.completed(each)

    def _complete_one(self) -> bool:
        ready = [each for each in self.pending if each.after is None or each.after.done]
        if not ready:
            return False
        self.complete(self._chosen(ready))
        return True

    def _chosen(self, ready: list[InFlight]) -> InFlight:
        if self.order == "random":
            return self.random.choice(ready)
        if self.order == "newest":
            return ready[-1]
        last = {"copies last": "copy", "products last": "product"}.get(self.order)
        return next((each for each in ready if each.kind != last), ready[0])

    # --- the grid

    def run(self) -> None:
        """Run to the end; EmulationError, one sentence with the line, if it has none."""
        with np.errstate(all="ignore"):  # what overflows, and NaN, is part of the arithmetic
            self._run_all()

    def _run_all(self) -> None:
        idle, timed_out = 0, None
        while self.waiting or self.resident:
            if not self.resident or (self.order == "random" and self.random.random() < 0.01):
                self._admit()
            before = self.effects
            ran = self._turn()
            self._retire()
            idle = 0 if self.effects != before else idle + ran
            if not self.resident or (ran and idle < PATIENCE_STEPS):
                continue
            if self._complete_one() or self._admit():
                idle = 0
            elif idle >= IDLE_STEPS:
                raise self._endless()
            elif not ran:
                timed_out = self._time_out(timed_out)
        while self._complete_one():
            pass

    def _admit(self) -> bool:
        """Start the next cluster, if there is one."""
        if self.waiting:
            self.resident.append(self.start(self, self.waiting.take()))
            if self.listener is not None:
                self.listener.started(self.resident[-1])
            return True
        return False

    def start_all(self) -> None:
        """Start all clusters, as a cooperative launch promises."""
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
        if len(kept) != len(self.resident) and self.choices.progress is not None:
            self.choices.progress(self.clusters - len(self.waiting) - len(kept), self.clusters)
        self.resident = kept

    def _turn(self) -> int:
        """Give each ready warp a turn; return the number of instructions run."""
        warps = [warp for cluster in self.resident for cta in cluster.ctas for warp in cta.warps if warp.strands]
        if self.order == "random":
            self.random.shuffle(warps)
            if self.pending and self.random.random() < 0.3:
                self._complete_one()
        return sum(self._run(warp) for warp in warps if warp.runnable())

    def _time_out(self, before: Any) -> Any:
        """Fail every try_wait once when nothing can go on; report a deadlock if that did not help."""
        state = [(strand.pc, strand.mask) for strand in self._strands()], self.effects
        if state == before or not any(strand.blocked and strand.blocked.may_fail for strand in self._strands()):
            raise self._deadlock()
        for strand in self._strands():
            if strand.blocked and strand.blocked.may_fail:
                strand.blocked, strand.timed_out = None, True
        return state

    def _strands(self) -> Iterator[Strand]:
        for cluster in self.resident:
            for cta in cluster.ctas:
                for warp in cta.warps:
                    yield from warp.strands

    # --- a warp

    def _run(self, warp: WarpState) -> int:
        """Run the ready strands of a warp, the one furthest behind first."""
        ran = 0
        while ran < TURN_STEPS:
            ready = [strand for strand in warp.strands if strand.blocked is None or strand.blocked.ready()]
            if not ready:
                break
            strand = min(ready, key=lambda each: (each.turns, each.pc))
            if strand.blocked is not None:
                strand.pc += not strand.blocked.again
                strand.blocked = None
            part = self._advance(warp, strand, *_others(warp, strand, ready), min(self.stretch, TURN_STEPS - ran))
            ran, self.executed, warp.steps = ran + part, self.executed + part, warp.steps + part
            if warp.steps > self.most_steps or (self.deadline < inf and time.monotonic() > self.deadline):
                raise self._too_long(warp)
            strand.turns += ran >= TURN_STEPS
            _join(warp)
        return ran

    def _advance(self, warp: WarpState, strand: Strand, others: set[int], behind: int, limit: int) -> int:
        """Run one strand until it waits, ends, parts, meets another (others) or passes one that goes first (behind).
        Return the number of instructions run.
        """
        steps, registers = self.steps, warp.registers
        pc, mask, ran = strand.pc, strand.mask, 0
        try:
            while ran < limit:
                step = steps[pc]
                taken = mask
                ran += 1
                if step.guard >= 0:
                    taken = registers[step.guard]
                    taken = (~taken if step.negated else taken) & mask
                    if not taken:
                        pc += 1
                        if pc > behind or pc in others:
                            break
                        continue
                self.current = step
                warp.timed_out = strand.timed_out
                result = step.act(warp, taken)
                if result is None:
                    pc += 1
                elif result.__class__ is int:
                    if taken != mask:
                        warp.strands.append(Strand(pc + 1, mask & ~taken, turns=strand.turns))
                        mask, pc = taken, result
                        break
                    pc = result
                elif result is EXIT:
                    warp.alive &= ~taken
                    mask &= ~taken
                    warp.cta.exited += taken.bit_count()
                    if self.listener is not None:
                        self.listener.exited(warp, taken)
                    self.effects += 1
                    if not mask:
                        break
                    pc += 1
                elif result.__class__ is dict:  # lanes for each place
                    warp.strands += [Strand(to, each, turns=strand.turns) for to, each in result.items()]
                    mask &= ~taken
                    pc += 1
                    break
                elif result.__class__ is Clock:
                    result.told(self.executed + ran)
                    pc += 1
                else:
                    strand.blocked = result
                    break
                if pc > behind or pc in others:
                    break
        except FAULTS as fault:
            if pc >= len(steps):
                raise EmulationError("the kernel runs past its last instruction.") from fault
            raise _told(fault, steps[pc]) from fault
        strand.pc, strand.mask, strand.timed_out = pc, mask, False
        return ran

    # --- reports

    def _deadlock(self) -> EmulationError:
        waits: dict[str, list[str]] = {}
        for cluster in self.resident:
            for cta in cluster.ctas:
                for warp in cta.warps:
                    for strand in warp.strands:
                        if strand.blocked is not None:
                            where = _where(self.steps[strand.pc])
                            waits.setdefault(f"{where} ({strand.blocked.what()})", []).append(_name(cta, warp))
        told = "; ".join(f"{_few(who)} at {what}" for what, who in list(waits.items())[:6])
        return EmulationError(f"deadlock: everybody waits and nothing is in flight: {told}.")

    def _too_long(self, warp: WarpState) -> EmulationError:
        limit, last = self.choices.limit, min((each.pc for each in warp.strands), default=0)
        what = f"{limit.seconds:g} seconds" if warp.steps <= self.most_steps else f"{limit.steps:,} steps of one warp"
        where = _where(self.steps[min(last, len(self.steps) - 1)])
        return EmulationError(f"the limit of {what} is reached near {where}; `limit=` sets another.")

    def _endless(self) -> EmulationError:
        where = next(iter(self._strands()))
        return EmulationError(
            f"endless: {IDLE_STEPS:,} instructions ran and changed neither memory nor a barrier, the last near "
            f"{_where(self.steps[min(where.pc, len(self.steps) - 1)])}."
        )


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
"""What has no meaning, or is not emulated; and, of the rest, what the author of an instruction did not think of."""


def own_fault(fault: Exception) -> str:
    """Return what is said of an exception that no instruction raises on purpose."""
    return f"the emulator fails here ({fault!r}), which is a fault of its own; please report it"


def _told(fault: Exception, step: Executable | None) -> EmulationError:
    what = str(fault) if isinstance(fault, (Undefined, Unknown, Malformed)) else own_fault(fault)
    return EmulationError(f"{_where(step)}: {what}." if step else f"{what}.")


def _others(warp: WarpState, strand: Strand, ready: list[Strand]) -> tuple[set[int], int]:
    """Return the other strands' places, without this one's, and the lowest place of those that run before this one."""
    places = {each.pc for each in warp.strands if each is not strand} - {strand.pc}
    first = [each.pc for each in ready if each is not strand and each.turns <= strand.turns]
    return places, min(first, default=1 << 60)


def _join(warp: WarpState) -> None:
    """Join strands at one place; drop those without lanes."""
    if len(warp.strands) == 1 and warp.strands[0].mask:
        return
    places: dict[int, Strand] = {}
    kept = []
    for strand in warp.strands:
        if not strand.mask:
            continue
        if strand.blocked is not None and not strand.blocked.meets:
            kept.append(strand)
        elif strand.pc in places:
            places[strand.pc].mask |= strand.mask
            places[strand.pc].blocked = None
            places[strand.pc].turns = min(places[strand.pc].turns, strand.turns)
        else:
            places[strand.pc] = strand
            kept.append(strand)
    warp.strands = kept
