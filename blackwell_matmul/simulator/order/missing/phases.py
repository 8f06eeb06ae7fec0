"""Candidates: a wait that passed on a wrong phase, because of its parity, count or bytes."""

from __future__ import annotations

from typing import Final

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.description import When
from blackwell_matmul.simulator.machine.barrier import Mbarrier, by_line
from blackwell_matmul.simulator.machine.cta import Warp, spell
from blackwell_matmul.simulator.order.culprits import ends_too_often, small
from blackwell_matmul.simulator.order.knowledge import Carried, EndSignal, LastWait, Operation
from blackwell_matmul.simulator.order.lines import ring_of, siblings
from blackwell_matmul.simulator.order.missing.arrivals import arrives_before, early_arrival, one_lane_arrived
from blackwell_matmul.simulator.order.missing.conflict import (
    Conflict,
    Missing,
    passed_before,
    phase_name,
    stale_phase,
    waits_of,
)
from blackwell_matmul.simulator.order.missing.taking_turns import out_of_turn

BYTES: Final = "too-few-bytes"


def count_too_small(c: Conflict) -> Missing | None:
    """Find phases that ended without an arrival of the accessing warp. The count is too small, or one warp ran ahead
    by a wait for an old phase."""
    for carried, wait in c.waits():
        arrivals, who, arriving = carried.arrivals, c.culprit.warp, c.lines.roles.arriving(carried.barrier)
        before = arrivals[who] - bool(carried.known & c.other.event)
        if before > wait.phase or len(arriving) < 2 or who not in arriving or not _arrives(c, carried):
            continue
        ahead = max(arrivals, key=lambda each: arrivals[each], default=who)
        if arrivals[ahead] <= wait.phase + 1:
            return _small(c, carried.barrier, wait.phase, who, arriving)
        for passed, its in c.waits(ahead):
            if its.again:
                return passed_before(passed.barrier, its)
    return None


def _arrives(c: Conflict, carried: Carried) -> bool:
    """Return True if the accessing warp arrives on the mbarrier. For a warp of another CTA the program's lines do not
    show that."""
    who, end_signals = c.culprit.warp, [] if c.operation is None else c.operation.end_signals
    commits = any(each.tracked and each.barrier is carried.barrier for each in end_signals)
    return (who.cta is carried.barrier.cta and _is_shown(c, carried, who)) or commits or carried.arrivals[who] > 0


def _is_shown(c: Conflict, carried: Carried, warp: Warp) -> bool:
    """Return True if the warp has arrived on the mbarrier, or a line shows that it does. A rank that depends on the CTA
    shows nothing."""
    lines = (each for each in c.lines.roles.signalling(carried.barrier, "arrive") if warp.index in each.warps)
    return carried.arrivals[warp] > 0 or any(each.ranks != -1 for each in lines)


def _small(c: Conflict, barrier: Mbarrier, phase: int, who: Warp, arriving: set[Warp]) -> Missing:
    advice = f"phase {phase} of {barrier} ended without an arrival of {spell([who])}: {small(barrier, arriving)}"
    turn = None if ends_too_often(barrier, c.order.of(barrier).arrivals, c.lines.roles) else out_of_turn(c, barrier)
    return turn or Missing("arrive", advice, at_fault=barrier.location)


def _ended_without(c: Conflict, carried: Carried, wait: LastWait) -> Missing | None:
    """Return the arrival of this warp which the phase lacked that the wait passed on; None if the phase lacked none."""
    barrier, arriving = carried.barrier, c.lines.roles.arriving(carried.barrier)
    if not _is_shown(c, carried, c.warp):
        return None
    if c.warp in arriving and len(arriving) > 1 and carried.arrivals[c.warp] <= wait.phase:
        return _small(c, barrier, wait.phase, c.warp, arriving)
    return None


def _written_again(c: Conflict, op: Operation) -> Missing | None:
    """Find the count that allowed the copy's warp to copy once more. Those bytes ended this copy's phase."""
    later = [each for each in c.waits(c.culprit.warp) if each[1].turn > op.turn]
    return next(filter(None, (_ended_without(c, *each) for each in later)), None)


def skips_a_wait(c: Conflict) -> Missing | None:
    """Find a warp that copies without a wait above its copy, at which the same warp of another CTA began."""
    signal, roles = c.end_signal, c.lines.roles
    if signal is None or not c.other.write:
        return None
    copies = roles.signalling(signal.barrier, "complete_tx")
    for copy, warp in [(each, warp) for each in copies for warp in each.warps_for(signal.barrier)]:
        issued = any(each is warp and by.location == copy.location for each, by in c.order.rounds)
        for back in roles.arrived_by_readers(signal.barrier.in_cta(warp.cta), warp) if issued else ():
            at = {cta: _waits_above(c, cta.warps[warp.index], back, copy.location) for cta in warp.cta.cluster.ctas}
            other = next((cta for cta in at if at[cta]), None)
            if other is not None and not at[warp.cta]:
                line, theirs = at[other][0], spell([other.warps[warp.index]])
                who = f"{theirs} waits for {ring_of(back)} at {line}, and {spell([warp])} does not"
                advice = f"{who}: the missing wait: {back.remedy} before {copy.location}"
                return Missing("wait", advice, at_fault=line, lacks=waits_of(back, [warp]))
    return None


def _waits_above(c: Conflict, warp: Warp, barrier: Mbarrier, line: Location | None) -> list[Location | None]:
    """Return lines above `line`, in the same iteration, at which the warp has waited for a stage of the ring: first or
    last of all."""
    ring = [carried for carried, _ in c.waits(warp) if siblings(carried.barrier, barrier)]
    waits = [each.waits[warp.index] for each in ring]
    return [at for each in waits for at in (each.started, each.location) if c.lines.leads_to(at, line)]


def wrong_phase(c: Conflict) -> Missing | None:
    """Find a wait on the right mbarrier, after the issue of the operation, that passed on an older phase. For bytes the
    wait may be another warp's, which this warp relies on."""
    op, signal = c.operation, c.end_signal
    if op is None or signal is None or signal.barrier.cta is not c.warp.cta:
        return None
    waits = c.order.of(signal.barrier).waits
    mine = waits.get(c.warp.index)
    wait = mine or max(waits.values(), key=lambda each: each.turn, default=None)
    phase = signal.barrier.phase if signal.phase is None else signal.phase
    if wait is None or (wait.turn < op.turn and not c.early) or wait.phase >= phase:
        return None
    passed = f"the wait on {signal.barrier.name} at {wait.location} passed on {phase_name(wait.phase)}"
    if op.op.barrier is not None and (wait.phase >= signal.during or (mine is not None and _unannounced(op, signal))):
        of_itself = "it announces them itself, and the arrivals have to come after it"
        announces = "expect_tx" in op.instruction.description.signalling(When.ISSUE)
        why = of_itself if announces else f"arrive_and_expect_tx announces too few{_balance(c, signal, wait)}"
        advice = f"{passed}, which ended without the bytes of {op.op.name}: {why}"
        return _written_again(c, op) or Missing("bytes", advice, BYTES, at_fault=wait.location)
    if mine is None:
        return None
    ahead = None
    if wait.phase >= 0 and not wait.again:
        ahead = _without_readers(c, signal.barrier) or one_lane_arrived(c)
    return ahead or stale_phase(wait, f"{passed}, and {op.op.name} is part of phase {phase}")


def _balance(c: Conflict, signal: EndSignal, wait: LastWait) -> str:
    """Return a clause with the bytes of the phase on which the wait passed, and of the copies in flight."""
    barrier, before = signal.barrier, signal.barrier.bytes_before
    flying = [each for each in c.order.operations.values() if not each.op.done and each.mbarrier is barrier]
    late = {each.op.location: each.op.count_bytes for each in flying if each.end_signals[0].during <= wait.phase}
    if barrier.phase != wait.phase + 1 or not before.announced:
        return ""
    late.setdefault(c.other_location, c.operation.op.count_bytes if c.operation is not None else 0)
    return f" ({before}; to come: {by_line(late)})"


def _unannounced(op: Operation, signal: EndSignal) -> bool:
    """Return True if too few bytes ended the copy's phase before its issue: nobody has arrived in the present phase."""
    barrier = op.op.barrier
    return barrier is not None and signal.during == barrier.phase and barrier.pending == barrier.expected


def stale_wait(c: Conflict) -> Missing | None:
    """Find a last wait that passed on a phase which had ended before the operation began. Its mbarrier gets signals of
    the operation's issuer, or of a warp that waits for the operation."""
    op, signal, waits = c.operation, c.end_signal, c.waits()
    if op is None or not waits or (signal is None and c.write):
        return None
    (carried, wait), roles = waits[0], c.lines.roles
    signalling = {op.lanes.warp} if signal is None else {op.lanes.warp} | roles.waiting(signal.barrier)
    if any(siblings(each.barrier, carried.barrier) for each in op.end_signals) or wait.ended > op.turn:
        return None
    if (roles.arriving(carried.barrier) - {c.warp}) & signalling and (wait.turn > op.turn or wait.phase < 0):
        known = None if wait.again or wait.phase < 0 else out_of_turn(c, carried.barrier)
        passed = f"the wait on {carried.barrier.name} at {wait.location} passed on {phase_name(wait.phase)}"
        return known or stale_phase(wait, f"{passed}, which was over before {op.op.name} at {op.op.location} began")
    return None


def came_too_early(c: Conflict) -> Missing | None:
    """Find the reason why the other warp continued too early, if its last wait was for this warp: a wrong parity, a
    count that is too small, or an arrival of this warp before its access."""
    here = {c.warp.cta.warps[index] for index in c.instruction.group.warps}
    waits = [(each.again or each.turn, carried, each) for carried, each in c.waits(c.culprit.warp)]
    before = [each for each in waits if c.operation is None or each[0] <= c.operation.turn]
    for _, carried, wait in [max(before, key=lambda each: each[0])] if before else []:
        barrier, arriving = carried.barrier, c.lines.roles.arriving(carried.barrier)
        if wait.again and {warp.index for warp in arriving} & {*c.instruction.group.warps}:
            return passed_before(barrier, wait)
        small_count = _ended_without(c, carried, wait)
        if small_count is not None:
            return small_count
        line = arrives_before(c, barrier, here, c.instruction) if wait.phase >= 0 else None
        if line is not None:
            return early_arrival(c.warp, barrier, line, c.instruction)
    return None


def ran_ahead(c: Conflict) -> Missing | None:
    """Find a warp that writes again without a wait for the readers, or a wait of this warp that passed on an older
    phase."""
    for carried, wait in c.waits()[:1] if c.operation is None or not c.operation.end_signals else ():
        if not carried.known & c.other.event:
            continue
        if wait.phase < 0 or wait.again:
            return passed_before(carried.barrier, wait)
        if c.other.write and not c.write and c.lines.in_loop(c.other_location):
            return _without_readers(c, carried.barrier)
    return None


def _without_readers(c: Conflict, barrier: Mbarrier) -> Missing | None:
    ahead, roles = c.culprit.warp, c.lines.roles
    back = roles.arrived_by_readers(barrier, ahead)
    if not back or ahead in roles.waiting(back[0]):
        return None
    advice = f"{c.culprit} has written again before that: the missing wait: {back[0].remedy} before {c.other_location}"
    return Missing("wait", advice, at_fault=c.other_location, lacks=waits_of(back[0], [ahead]))
