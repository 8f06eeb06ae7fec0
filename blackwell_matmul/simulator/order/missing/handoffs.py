"""Candidates: a missing wait in the handoffs from one access to the other, that no line of its warp makes."""

from __future__ import annotations

from dataclasses import replace

from blackwell_matmul.simulator.machine.barrier import Mbarrier
from blackwell_matmul.simulator.machine.cta import Warp, number, spell
from blackwell_matmul.simulator.order.lines import ProgramLines, place_of, siblings
from blackwell_matmul.simulator.order.missing.conflict import Conflict, Missing, passed_before, waits_of
from blackwell_matmul.simulator.order.missing.handoff_chains import Handoffs, MissingWait, WarpLine
from blackwell_matmul.simulator.order.missing.waits import missing_wait
from blackwell_matmul.simulator.order.signallers import Touch


def reads_before_the_first(c: Conflict) -> Missing | None:
    """Find a warp whose wait passed on the phase before the first, and that then reads what others write. Only a
    writer may start so."""
    for carried in c.barriers():
        for index, wait in carried.waits.items():
            start = WarpLine(c.warp.cta.warps[index], wait.started)
            if wait.started is not None and c.handoffs.brings(carried.barrier, start):
                found = passed_before(carried.barrier, replace(wait, location=wait.started, phase=-1))
                return replace(found, advice=f"{found.advice}{_took_the_turn(c, start.warp, carried.barrier)}")
    return None


def _took_the_turn(c: Conflict, warp: Warp, barrier: Mbarrier) -> str:
    """Return a clause on the first turn, which the warp took without an arrival of the other readers; "" if none."""
    roles = c.lines.roles
    for turn, wait in c.waits(warp):
        taking = roles.waiting(turn.barrier)
        giving = roles.arriving(turn.barrier) - taking
        if wait.started is not None and giving and giving | taking == roles.waiting(barrier):
            who = f"{spell(sorted(taking, key=number))} must not take the first turn"
            return f", or {who}, by the wait on {turn.barrier.name} at {wait.started}"
    return ""


def nobody_waits(c: Conflict) -> Missing | None:
    """Find an mbarrier that is signalled between the two accesses, and for which nobody waits."""
    first, then = _both(c)
    found = [*c.handoffs.lacks(first, then), *c.handoffs.lacks(then, first)]
    return _best(c, [each for each in found if not c.lines.roles.waiting(each.barrier)])


def goes_on_without(c: Conflict) -> Missing | None:
    """Find an mbarrier that the order of the two accesses needs, and for which only other warps wait.

    If the chain from the earlier access to the later one lacks nothing, the later one was meant to come first.
    """
    first, then = _both(c)
    meet = then.line != first.line and not c.lines.apart(first.line, then.line)
    if meet or first.warp.cta is not then.warp.cta:
        return None
    forward, back = c.handoffs.lacks(first, then), c.handoffs.lacks(then, first)
    return _best(c, [*(back if c.handoffs.chained(first, then) else forward)])


def _both(c: Conflict) -> tuple[WarpLine, WarpLine]:
    """Return the lines of the earlier access and of the later one."""
    return WarpLine(c.culprit.warp, c.other_location), WarpLine(c.warp, c.instruction.location)


def _best(c: Conflict, found: list[MissingWait]) -> Missing | None:
    """Return the wait of a warp that reads, if there is one; else the last wait in the chain."""
    lack = max(found, key=lambda each: (each.reads, each.far), default=None)
    if lack is None:
        return None
    barrier = _stage(c, [each.barrier for each in found if siblings(each.barrier, lack.barrier)])
    if lack.step == (c.warp, c.instruction.location):
        return missing_wait(c, barrier)
    line = lack.step.line
    who = _executing(next(each for each in c.lines.roles.touches if each.location == line), lack.step.warp)
    advice = f"the missing wait: {barrier.remedy} by {spell(who)} before {line}"
    return Missing("wait", advice, at_fault=line, lacks=waits_of(barrier, who))


def _stage(c: Conflict, ring: list[Mbarrier]) -> Mbarrier:
    """Return the mbarrier of the ring that carries the earlier access, or has the same stage as its signal."""
    near = [c.end_signal.barrier] if c.end_signal is not None else [each.barrier for each, _ in c.waits()]
    places = [place_of(each) for each in near[:1]]
    return max(ring, key=lambda each: (bool(c.order.of(each).known & c.other.event), place_of(each) in places))


def _executing(touch: Touch, warp: Warp) -> list[Warp]:
    """Return the warps of the same CTA that execute the line."""
    return [warp.cta.warps[each] for each in touch.warps]


def before_any_write(lines: ProgramLines, read: WarpLine) -> tuple[str, Missing] | None:
    """Return the line at which other warps write what the step reads, as a clause, and the wait for them that the warp
    of the step lacks. None if the warp waits, or no line writes there."""
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
    advice = f"the missing wait: {barrier.remedy} before {read.line}"
    return f"{who} at {touch.location}", Missing(
        "wait", advice, at_fault=read.line, lacks=waits_of(barrier, [read.warp])
    )
