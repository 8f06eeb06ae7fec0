"""Candidates: a missing barrier of threads, between lanes, warps, CTAs or clusters."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.machine.cta import Cta, spell_warps
from blackwell_matmul.simulator.order.frontier import Lanes
from blackwell_matmul.simulator.order.knowledge import Operation, SemaphoreRelease
from blackwell_matmul.simulator.order.missing.conflict import Conflict, Missing, stands_before


def lanes_of_one_warp(c: Conflict) -> Missing | None:
    """Find lanes of the same warp that have observed the access: a sync of the warp is missing."""
    for lanes in c.order.lanes[c.warp].values():
        if lanes is not c.lanes and c.known_to(lanes):
            knows = lanes.name or "the other lanes"
            return Missing("sync", f"{knows} of warp {c.warp.index} may rely on it, {_lanes(c.lanes)} may not: the"
                           f" missing sync: self.sync() before {c.here}")  # fmt: skip
    return None


def _lanes(lanes: Lanes) -> str:
    return lanes.name or "all lanes together"


def another_warp_knows(c: Conflict) -> Missing | None:
    """Find another warp that waited for the access, or made it: a sync between the two warps is missing."""
    together = (warp for warp in c.order.lanes if warp.cta.cluster is c.warp.cta.cluster)
    for warp in together:
        for lanes in c.order.lanes[warp].values():
            made_it = c.operation is None and lanes.warp is c.culprit.warp
            if warp is not c.warp and c.known_to(lanes) and not made_it:
                done, op = "has waited for it" if c.operation is not None else "may rely on it", c.operation
                that = op.wait if op is not None and op.wait is not None else "that"
                return sync_between(c, lanes, f"between {that} and {c.here}", f"{lanes} {done}: ")
    return None


def written_again(c: Conflict) -> Missing | None:
    """Find a read after its wait, of memory that the next round's operation already writes: the issuer did not wait for
    the reader. The wait stands between the issue and the read in the text."""
    op, signal = c.operation, c.end_signal
    if c.write or op is None or signal is None or signal.barrier.cta is not c.warp.cta or c.culprit.warp is c.warp:
        return None
    wait = c.order.of(signal.barrier).waits.get(c.warp.index)
    if wait is None or None in (c.other_location, wait.location, c.instruction.location) or wait.turn >= op.turn:
        return None
    if not (stands_before(c.other_location, wait.location) and stands_before(wait.location, c.instruction.location)):
        return None
    where = f"between {c.here} and {c.other_location} of the next round"
    return sync_between(c, c.culprit, where, f"{c.culprit} has written again before that: ")


def each_waits_for_its_own(c: Conflict) -> Missing | None:
    """Find a copy that both warps execute, each for its own part. This warp has not reached the copy yet, or each warp
    has waited only for its own part."""
    op, rounds = c.operation, c.order.rounds
    if op is None or op.mbarrier is not None or op.lanes.warp is c.warp or c.early:
        return None
    comes = c.warp.index in op.instruction.group.warps and c.lines.above(c.instruction.location, c.other_location)
    if not rounds[c.warp, op.instruction] and not comes:
        return None
    if rounds[c.warp, op.instruction] <= op.round:
        where = f"between {c.lines.between(c.instruction.location, c.other_location)}"
        return sync_between(c, c.culprit, where, f"{c.culprit} has gone on to that: ")
    flying = any(each.lanes.warp is c.warp and _same_copy(each, op) for each in c.order.operations.values())
    wait = c.order.waited_at.get(c.warp)
    if flying or wait is None or op.lanes.warp.index not in wait.group.warps:
        return None
    where = f"between {wait.location} and {c.here}"
    return sync_between(c, c.culprit, where, f"{c.lanes} has waited for what it copied itself: ")


def _same_copy(one: Operation, other: Operation) -> bool:
    return one.instruction is other.instruction and one.round == other.round


def waited_for_later(c: Conflict) -> Missing | None:
    """Find a read before the wait of the operation's own threads. No other thread can wait for the operation."""
    op = c.operation
    if op is None or not c.early or op.mbarrier is not None or op.op in c.order.operations:
        return None
    return sync_between(c, c.culprit, f"between that and {c.here}", f"{c.culprit} waits for it: ")


def released_alone(c: Conflict) -> Missing | None:
    """Find a release of a semaphore in the accessing CTA, by a thread that has not observed the access. For an
    operation, another thread there has."""
    cta = c.culprit.cta
    over = any(c.known_to(lanes) for warp in cta.warps for lanes in c.order.lanes.get(warp, {}).values())
    if c.operation is not None and not over:
        return None
    for release in chain.from_iterable(c.order.releases.values()):
        if release.lanes.cta is cta and c.lanes.generic & release.event:
            return _released(c, release)
    return None


def _released(c: Conflict, release: SemaphoreRelease) -> Missing:
    made, where = c.other_location, release.location
    behind = stands_before(made, where)
    sync = f"self.sync() between {made} and that" if behind else f"move it behind {made}, and self.sync() between them"
    who = f"release_semaphore at {where} by {release.lanes}"
    publishes = f"{who} publishes only what these lanes have accessed or observed"
    return Missing("sync", f"{publishes}: the missing sync: {sync}", at_fault=where)


def missing_sync(c: Conflict) -> Missing:
    """Return the barrier of threads between the two accesses, if no candidate has found an edge."""
    if c.culprit.cta.cluster is not c.lanes.cta.cluster:
        here, acquires = c.instruction.location, c.lines.roles.semaphores("acquire")
        locks = [each for each in acquires if stands_before(each.location, here)]
        if locks and c.warp.index not in locks[-1].warps:
            lock = f"lock_semaphore at {locks[-1].location} is for {spell_warps(locks[-1].warps)} alone"
            return Missing("sync", f"{lock}: the missing sync: self.sync() between that and {c.here}")
        where = f"release_semaphore after {c.other_location}, and lock_semaphore before {c.instruction.location}"
        return Missing("sync", f"the missing sync: {where}, or two launches")
    where = f"between {c.lines.between(c.other_location, c.instruction.location)}"
    found = sync_between(c, c.culprit, where)
    other = ", or an arrive and a wait on an mbarrier" * can_meet(c, c.culprit)
    return replace(found, advice=f"{found.advice}{other}")


def sync_between(c: Conflict, lanes: Lanes, where: str, why: str = "", at_fault: Location | None = None) -> Missing:
    """Return the sync between these lanes and those of the access, or an mbarrier if they never meet at one line. why:
    the start of the sentence."""
    if not can_meet(c, lanes):
        advice = f"the missing order: an mbarrier {where}, on which {lanes} arrives and {c.lanes} waits"
        return Missing("sync", f"{why}{advice}", at_fault=at_fault)
    sync = _sync(lanes.cta, c.warp.cta)
    advice = f"{why}the missing sync: {sync} {where}"
    return Missing("sync", advice, at_fault=at_fault, lacks=frozenset([(sync, where)]))


def can_meet(c: Conflict, lanes: Lanes) -> bool:
    """Return True if both reach a common line. Warps that each run a loop of their own have none inside the loops."""
    apart = c.lines.apart(c.other_location, c.instruction.location)
    return not apart or lanes.warp.index in c.instruction.group.warps


def _sync(one: Cta, other: Cta) -> str:
    return "self.sync()" if one is other or one.cluster is not other.cluster else "self.cluster.sync()"
