"""Candidates: a missing wait for an mbarrier that a signal of the access reaches, or for a group that holds the
access."""

from __future__ import annotations

from blackwell_matmul.simulator.machine.barrier import Mbarrier, barriers_of
from blackwell_matmul.simulator.machine.cta import number, spell
from blackwell_matmul.simulator.order.culprits import ANOTHER_STAGE
from blackwell_matmul.simulator.order.knowledge import Operation, TooNew
from blackwell_matmul.simulator.order.lines import siblings
from blackwell_matmul.simulator.order.missing.conflict import Conflict, Missing, passed_before, waits_of
from blackwell_matmul.simulator.order.missing.syncs import can_meet, missing_sync, sync_between
from blackwell_matmul.simulator.order.missing.taking_turns import out_of_turn


def reader_went_on(c: Conflict) -> Missing | None:
    """Find memory that is overwritten while a copy into it is in flight, because a reader's wait passed on the phase
    before the copy's."""
    signal = c.end_signal
    if signal is None or signal.barrier.cta is not c.warp.cta or not (c.write and c.other.write):
        return None
    waiting = c.lines.roles.waiting(signal.barrier)
    for warp in sorted(waiting, key=number) if c.warp not in waiting else ():
        wait = c.order.of(signal.barrier).waits.get(warp.index)
        if wait is not None and (wait.phase < signal.during or wait.again):
            mine = c.waits()[:1]
            known = out_of_turn(c, mine[0][0].barrier) if mine and not wait.again else None
            return known or passed_before(signal.barrier, wait)
    return None


def barrier_carries_it(c: Conflict) -> Missing | None:
    """Find an mbarrier on which the accessing warp arrived afterwards, and for which nobody here waited."""
    signalled = c.operation.mbarrier if c.operation is not None else None
    carrying = [carried.barrier for carried in c.barriers() if carried.known & c.other.event]
    rank = c.lines.roles.rank
    both = c.operation is None and c.warp.index in c.other_instruction.group.warps
    if both and carrying and all(rank(each, c.warp) == 2 for each in carrying):
        return missing_sync(c)  # each of the two warps does its part of one line: they meet there
    found = min(carrying, key=lambda each: (rank(each, c.warp), (each is signalled) is c.write), default=None)
    frees = c.instruction.description.conflict is not None
    if found is None or (frees and rank(found, c.warp) == 2 and can_meet(c, c.culprit)):
        return None  # memory is freed where all warps come: a sync is enough
    meant = _meant(c, found)
    newest, wait = next((each for each in c.waits() if siblings(each[0].barrier, meant)), (None, None))
    if wait is not None and wait.again and newest is c.order.of(meant):
        return passed_before(meant, wait)
    return missing_wait(c, meant)


def missing_wait(c: Conflict, barrier: Mbarrier) -> Missing:
    """Return the missing wait for an mbarrier. at_fault: the line of the access, if no line of its warp waits for the
    mbarrier. Where one write meets another one, and only other warps wait, these may be at fault."""
    waiting, waits = c.lines.roles.waiting(barrier), c.waits()
    nowhere, advice = c.warp not in waiting, f"the missing wait: {barrier.remedy} before {c.here}"
    if waiting and nowhere and not c.write and can_meet(c, c.culprit):
        advice += f", or self.sync() between that of {spell(sorted(waiting, key=number))} and that line"
    if waits and siblings(waits[0][0].barrier, barrier) and waits[0][0].barrier is not barrier:
        advice += f"; the wait at {waits[0][1].location} is on {waits[0][0].barrier.name}"
        if not c.write:
            advice += f" and {c.other_name} at {c.other_location} signals {barrier.name}: {ANOTHER_STAGE}"
        elif c.operation is not None and c.operation.op.pipe is None and not c.other.write:
            advice += f" and {c.other_name} at {c.other_location} reads what {barrier.name} guards: {ANOTHER_STAGE}"
    theirs = waiting and c.write and c.other.write
    at_fault = c.instruction.location if nowhere and not theirs else None
    return Missing("wait", advice, at_fault=at_fault, lacks=waits_of(barrier, [c.warp]))


def _meant(c: Conflict, barrier: Mbarrier) -> Mbarrier:
    """Return the mbarrier; for an mma, an mbarrier on which the same warp commits further down, if that is more likely
    meant."""
    tracked = c.operation is not None and any(each.tracked for each in c.operation.end_signals)
    roles, who = c.lines.roles, c.culprit.warp
    later = [each for each in barriers_of(c.warp.cta) if tracked and who in roles.arriving(each)]
    return min([barrier, *later], key=lambda each: roles.rank(each, c.warp))


def completion(c: Conflict) -> Missing | None:
    """Return the missing wait for the operation, or the wait whose group number covers only earlier groups."""
    op = c.operation
    if op is None:
        return None
    if op.passed is not None:
        left = Missing(op.passed.edge, op.passed.advice, at_fault=op.passed.location)
        return _not_synced(c, op) or _no_group(c, op) or left
    signal = c.end_signal
    if signal is not None and signal.barrier.cta is not c.warp.cta:
        here = f"CTA {c.warp.cta.position} before {c.here}"
        return Missing(
            "wait", f"the missing wait: {signal.barrier} gets its signal, and whoever waits there has to signal {here}"
        )
    if signal is not None:
        return missing_wait(c, _meant(c, signal.barrier))
    advice = c.order.warpgroups.advice(op, c.warp, c.instruction.location, c.order.carried)
    return Missing("commit" if "commit" in advice else "wait", f"the missing wait: {advice}")


def arrival_of_another_cta(c: Conflict) -> Missing | None:
    """Find the upper access of global memory that no wait stands above, although another CTA of the cluster arrives on
    an mbarrier there after its own access."""
    mine, other = (c.lanes, c.instruction.location), (c.culprit, c.other_location)
    ctas = c.lanes.cta, c.culprit.cta
    if c.region.storage.space != "global" or ctas[0] is ctas[1] or ctas[0].cluster is not ctas[1].cluster:
        return None
    found, roles, above = [], c.lines.roles, c.lines.above
    for (who, here), (by, there) in ((mine, other), (other, mine)):
        for barrier in barriers_of(who.cta):
            lines = [each for each in roles.signalling(barrier, "arrive") if above(there, each.location)]
            waits = [each.location for each in roles.signalling(barrier, "mbarrier") if who.warp.index in each.warps]
            signalled = any(warp.cta is by.cta for each in lines for warp in each.warps_for(barrier))
            if signalled and not any(above(each, here) for each in waits):
                found.append((c.lines.places[here], here, barrier, who.warp, waits))
    if not found:
        return None
    _, here, barrier, warp, waits = min(found, key=lambda each: each[0])
    late = f"; the wait at {waits[0]} comes only after that" if waits else ""
    advice = f'the missing wait: {barrier.remedy}, with scope="cluster", before {here}{late}'
    return Missing("wait", advice, at_fault=here, lacks=waits_of(barrier, [warp]))


def each_cta_writes(c: Conflict) -> Missing | None:
    """Find a line outside of loops by which two CTAs of a cluster write the same elements, without a signal from one to
    the other."""
    here, ctas = c.instruction.location, (c.lanes.cta, c.culprit.cta)
    once = c.instruction is c.other_instruction and not c.lines.in_loop(here) and c.write and c.other.write
    if not once or ctas[0] is ctas[1] or ctas[0].cluster is not ctas[1].cluster or arrival_of_another_cta(c):
        return None
    advice = (
        "each CTA executes that line: its offsets have to depend on the rank in the cluster, or one CTA alone writes"
    )
    return Missing("", advice, at_fault=here)


def _not_synced(c: Conflict, op: Operation) -> Missing | None:
    """Find a wait of the issuer alone above the access in the same round, without a sync behind the wait."""
    passed, here, lines = op.passed, c.instruction.location, c.lines
    if not isinstance(passed, TooNew) or passed.reads or op.lanes.warp is c.warp or not can_meet(c, op.lanes):
        return None
    if not lines.leads_to(passed.location, here) or lines.in_turn(passed.location, here, c.warp):
        return None
    where, why = f"between {passed.location} and {here}", f"the wait at {passed.location} is for {op.lanes} alone: "
    return sync_between(c, op.lanes, where, why, at_fault=passed.location)


def _no_group(c: Conflict, op: Operation) -> Missing | None:
    """Find a missing commit: the wait would be right with one more group. The copies after this one are in no group,
    or in the same group in spite of a loop between them."""
    passed = op.passed
    if not isinstance(passed, TooNew) or passed.reads or passed.newest < passed.n:
        return None
    mine = [each for each in c.order.operations.values() if each.lanes is op.lanes and each.op.name == op.op.name]
    open_ = [each.op.location for each in mine if passed.since < each.turn <= passed.turn]
    if open_:
        between = f"between {c.lines.between(open_[-1], passed.location)}"
    elif c.lines.round_of(passed.last) != c.lines.round_of(op.op.location):
        between = f"between {op.op.location} and {passed.last}"
    else:
        return None
    return Missing("commit", passed.lacks_commit(between), at_fault=open_[-1] if open_ else op.op.location)
