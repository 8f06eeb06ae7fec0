"""Candidates: a wait that no line of its warp makes, in the handoffs by mbarriers from one access to the other.

A handoff is a signal of one warp and a wait of another one. A chain of handoffs orders two accesses if each warp in the
chain signals after its own access or wait in the text. All is read from the lines of the program.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from dataclasses import replace
from typing import NamedTuple

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.machine.barrier import Mbarrier, barriers_of
from blackwell_matmul.simulator.machine.cta import Cluster, Warp, spell
from blackwell_matmul.simulator.order.lines import SIGNALS, ProgramLines, place_of, siblings
from blackwell_matmul.simulator.order.missing.conflict import Conflict, Missing
from blackwell_matmul.simulator.order.missing.phases import passed_before
from blackwell_matmul.simulator.order.missing.waits import missing_wait
from blackwell_matmul.simulator.order.signallers import Touch


class WarpLine(NamedTuple):
    """A line as a warp executes it."""

    warp: Warp
    line: Location | None


class MissingWait(NamedTuple):
    """A wait for an mbarrier that the warp of the step makes nowhere, and that should come before the step. reads: the
    step only reads what another warp writes before it signals the mbarrier. far: the number of handoffs before."""

    step: WarpLine
    barrier: Mbarrier
    reads: bool
    far: int


class Handoffs:
    """Signals, waits and accesses of the lines of a program, as the warps of a cluster execute them."""

    def __init__(self, lines: ProgramLines, cluster: Cluster) -> None:
        self.lines, self.roles = lines, lines.roles
        barriers = [barrier for cta in cluster.ctas for barrier in barriers_of(cta)]
        self.signals = {each: self._steps(each, SIGNALS) for each in barriers}
        self.waits = {each: self._steps(each, {"mbarrier"}) for each in barriers}

    def _steps(self, barrier: Mbarrier, kinds: set[str] | frozenset[str]) -> list[WarpLine]:
        lines = (each for each in self.roles.lines if each.kinds & kinds)
        return [WarpLine(warp, each.location) for each in lines for warp in each.warps_for(barrier)]

    def _follows(self, first: WarpLine, then: WarpLine) -> bool:
        return first.warp is then.warp and self.lines.above(first.line, then.line)

    def _signalled(self, step: WarpLine) -> list[Mbarrier]:
        """Return the mbarriers that the warp signals after the step; those of the step alone, if it is a copy that
        brings bytes."""
        itself = [barrier for barrier, steps in self.signals.items() if step in steps]
        return itself or [each for each, steps in self.signals.items() if any(self._follows(step, s) for s in steps)]

    @functools.cache  # noqa: B019 - as long as the diagnosis of one conflict
    def carriers(self, step: WarpLine, past: Warp | None = None) -> dict[Mbarrier, int]:
        """Return the mbarriers that carry the step on, the nearest first, each with the number of handoffs before.
        past: a warp whose signals end the chain, because its next round comes after them."""
        found = dict.fromkeys(self._signalled(step), 0)
        for barrier in (queue := [*found]):
            for wait in self.waits[barrier]:
                new = [each for each in self._signalled(wait) if each not in found and past not in self._by(each)]
                found |= dict.fromkeys(new, found[barrier] + 1)
                queue += new
        return found

    def _by(self, barrier: Mbarrier) -> set[Warp]:
        return {signal.warp for signal in self.signals[barrier]}

    def chained(self, first: WarpLine, then: WarpLine) -> bool:
        """Return True if a chain of handoffs orders the two steps."""
        carriers = self.carriers(first, then.warp)
        return any(self._follows(wait, then) for barrier in carriers for wait in self.waits[barrier])

    def lacks(self, first: WarpLine, then: WarpLine) -> Iterator[MissingWait]:
        """Return the waits each of which would close the chain between the two steps; nothing if there is a chain."""
        for step in [then, *self._elsewhere(then)] if not self.chained(first, then) else ():
            for barrier, far in self.carriers(first, step.warp).items():
                busy = step.warp in self.roles.waiting(barrier) | self._by(barrier)
                reads = None if busy or barrier.cta is not step.warp.cta else self._meets(barrier, step)
                if reads is not None:
                    yield MissingWait(step, barrier, reads, far)

    def _elsewhere(self, then: WarpLine) -> Iterator[WarpLine]:
        """Return accesses of other warps that a chain orders before the step."""
        for touch in self.roles.touches:
            step = WarpLine(then.warp.cta.warps[touch.warps[0]], touch.location)
            if step.warp is not then.warp and self.chained(step, then):
                yield step

    def _meets(self, barrier: Mbarrier, step: WarpLine) -> bool | None:
        """Return True if the step only reads what a warp writes before it signals the mbarrier; False for another
        conflict with such an access; None if each is in a chain with the step, or has no conflict."""
        mine = {each.tensor: each.write for each in self.roles.touches if each.location == step.line}
        found = [
            touch.write and not mine[touch.tensor]
            for warp, touch in self._announced(barrier)
            if touch.tensor in mine and (touch.write or mine[touch.tensor]) and warp is not step.warp
            and not self.chained(WarpLine(warp, touch.location), step)
        ]  # fmt: skip
        return max(found, default=None)

    def _announced(self, barrier: Mbarrier) -> Iterator[tuple[Warp, Touch]]:
        """Return the accesses that a warp makes before its signal of the mbarrier, or that signal it themselves."""
        for signal in self.signals[barrier]:
            for touch in self.lines.touched_by(signal.warp):
                if not self.lines.above(signal.line, touch.location):
                    yield signal.warp, touch

    def brings(self, barrier: Mbarrier, wait: WarpLine) -> bool:
        """Return True if the warp next reads what a copy brings with its signal of the mbarrier, or what other warps
        write before they signal it. Memory that the warp writes itself counts for a copy alone."""
        mine = {each.tensor for each in self.lines.touched_by(wait.warp) if each.write}
        read = {each.tensor for each in self.lines.touched_next(wait.warp, wait.line) if not each.write}
        written = [(warp, each) for warp, each in self._announced(barrier) if each.write and each.tensor in read]
        copied = any(WarpLine(warp, each.location) in self.signals[barrier] for warp, each in written)
        return copied or any(each.tensor not in mine for _, each in written)


def reads_before_the_first(c: Conflict) -> Missing | None:
    """Find a wait of any warp that passed on the phase before the first, where the warp then reads what others write:
    only a writer may start so."""
    handoffs = Handoffs(c.lines, c.warp.cta.cluster)
    for carried in c.barriers():
        for index, wait in carried.waits.items():
            start = WarpLine(c.warp.cta.warps[index], wait.started)
            if wait.started is not None and handoffs.brings(carried.barrier, start):
                return passed_before(carried.barrier, replace(wait, location=wait.started, phase=-1))
    return None


def nobody_waits(c: Conflict) -> Missing | None:
    """Find an mbarrier that is signalled, and for which nobody waits, on the way from one access to the other."""
    handoffs, first, then = _both(c)
    found = [*handoffs.lacks(first, then), *handoffs.lacks(then, first)]
    return _best(c, [each for each in found if not c.lines.roles.waiting(each.barrier)])


def goes_on_without(c: Conflict) -> Missing | None:
    """Find an mbarrier for which only other warps wait, and that the order of the two accesses needs. If the way from
    the earlier access to the later one lacks nothing, the later one was meant to come first."""
    handoffs, first, then = _both(c)
    meet = then.line != first.line and not c.lines.apart(first.line, then.line)
    if meet or first.warp.cta is not then.warp.cta:
        return None
    forward, back = handoffs.lacks(first, then), handoffs.lacks(then, first)
    return _best(c, [*(back if handoffs.chained(first, then) else forward)])


def _both(c: Conflict) -> tuple[Handoffs, WarpLine, WarpLine]:
    here, there = WarpLine(c.warp, c.instruction.location), WarpLine(c.culprit.warp, c.other_location)
    return Handoffs(c.lines, c.warp.cta.cluster), there, here


def _best(c: Conflict, found: list[MissingWait]) -> Missing | None:
    """Return the wait of a warp that reads, if there is one, or else the wait that is the last in the chain."""
    lack = max(found, key=lambda each: (each.reads, each.far), default=None)
    if lack is None:
        return None
    barrier = _stage(c, [each.barrier for each in found if siblings(each.barrier, lack.barrier)])
    if lack.step == (c.warp, c.instruction.location):
        return missing_wait(c, barrier)
    line = lack.step.line
    who = _executing(next(each for each in c.lines.roles.touches if each.location == line), lack.step.warp)
    return Missing("wait", f"the missing wait: {barrier.remedy} by {spell(who)} before {line}", at_fault=line)


def _stage(c: Conflict, ring: list[Mbarrier]) -> Mbarrier:
    """Return the mbarrier of the ring that carries the earlier access, or is of the same stage as its signal."""
    near = [c.end_signal.barrier] if c.end_signal is not None else [each.barrier for each, _ in c.waits()]
    places = [place_of(each) for each in near[:1]]
    return max(ring, key=lambda each: (bool(c.order.of(each).known & c.other.event), place_of(each) in places))


def _executing(touch: Touch, warp: Warp) -> list[Warp]:
    """Return the warps of the same CTA that execute the line."""
    return [warp.cta.warps[each] for each in touch.warps]


def before_any_write(lines: ProgramLines, read: WarpLine) -> tuple[str, str] | None:
    """Return the line at which other warps write what the step reads, and the wait for them that the warp of the step
    lacks, both as clauses. None if the warp waits, or no line writes there."""
    handoffs = Handoffs(lines, read.warp.cta.cluster)
    mine = {each.tensor for each in lines.roles.touches if each.location == read.line and not each.write}
    writing = [each for each in lines.roles.touches if each.write and each.tensor in mine]
    steps = [(WarpLine(warp, each.location), each) for each in writing for warp in _executing(each, read.warp)]
    found = [(lack, touch) for step, touch in steps for lack in handoffs.lacks(step, read) if lack.step == read]
    if not found:
        return None
    barrier = max(found, key=lambda each: (not lines.roles.waiting(each[0].barrier), each[0].far))[0].barrier
    _, touch = min((each for each in found if each[0].barrier is barrier), key=lambda each: each[0].far)
    who = f"{spell(_executing(touch, read.warp))} write{'s' * (len(touch.warps) == 1)}"
    return f"{who} at {touch.location}", f"the missing wait: {barrier.remedy} before {read.line}"
