"""Candidates: a wait for a semaphore that is missing, or for a value that is there too early."""

from __future__ import annotations

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.machine.cta import Cta
from blackwell_matmul.simulator.order.frontier import Lanes
from blackwell_matmul.simulator.order.knowledge import SemaphoreWait
from blackwell_matmul.simulator.order.missing.conflict import Conflict, Missing, stands_before


def value_too_early(c: Conflict) -> Missing | None:
    """Find a CTA that passed its wait for a semaphore too early: a CTA with a lower index, which accesses the same
    memory, had not released it.

    The value was there from the start, or both CTAs take turns.
    """
    here, there = c.instruction.location, c.other_location
    return _passed(c, c.lanes, here, c.culprit.cta, there) or _passed(c, c.culprit, there, c.warp.cta, here)


def stored_over(c: Conflict) -> Missing | None:
    """Find a release by a third CTA that has not waited for the release by the CTA of the earlier access. The old
    value of the semaphore is lost."""
    lock = _lock(c, c.lanes, c.instruction.location)
    stored = None if lock is None else lock.stored
    if lock is None or stored is None or stored.lanes.cta in (c.culprit.cta, c.lanes.cta):
        return None
    before = [*c.order.releases[lock.address]]
    lost = stored in before and c.culprit.cta in {each.lanes.cta for each in before[: before.index(stored)]}
    locks = {(each.warp.cta, each.address) for each in c.order.locks}
    if not lost or (stored.lanes.cta, lock.address) in locks:
        return None
    over = f"release_semaphore at {stored.location} of CTA {stored.lanes.cta.position} stores {stored.value} over that"
    advice = f"{over} of CTA {c.culprit.cta.position}: the missing wait: lock_semaphore before {stored.location}"
    if {each.value for each in before if each.lanes.cta is c.culprit.cta} == {stored.value}:
        advice += ", or a semaphore for each of the two"  # both are the same part, of two tiles
    return Missing("wait", advice, at_fault=stored.location)


def never_locks(c: Conflict) -> Missing | None:
    """Find an access of a CTA that waits for no semaphore before, although the CTA of the other access releases one
    after it."""
    here, roles = c.instruction.location, c.lines.roles
    releases = [each.location for each in roles.semaphores("release") if stands_before(c.other_location, each.location)]
    if c.culprit.cta.cluster is c.lanes.cta.cluster or not releases or _lock(c, c.lanes, here) is not None:
        return None
    if any(stands_before(each.location, here) for each in roles.semaphores("acquire")):
        return None
    return Missing(
        "sync", f"the missing sync: lock_semaphore before {here}, for the release_semaphore at {releases[0]}"
    )


def _passed(
    c: Conflict, ahead: Lanes, access: Location | None, cta: Cta, meant_first: Location | None
) -> Missing | None:
    """Return the wait that the lanes passed too early. access: of these lanes. cta, meant_first: CTA and access that
    should come first."""
    releases = [each.location for each in c.lines.roles.semaphores("release")]
    release = next((each for each in releases if stands_before(meant_first, each)), None)
    lock = _lock(c, ahead, access)
    if lock is None or release is None or cta.position[::-1] >= ahead.cta.position[::-1]:
        return None
    stored, turns = lock.stored, any(each.warp.cta is cta and each.address == lock.address for each in c.order.locks)
    if stored is not None and (not turns or stored.lanes.cta is cta):
        return None
    waits = f"lock_semaphore at {lock.location} of CTA {ahead.cta.position} waits for the value {lock.value}"
    why = "is there before any release"
    if stored is not None:
        why = f"release_semaphore at {stored.location} of CTA {stored.lanes.cta.position} stores"
    own = (each for each in c.order.releases.get(lock.address, ()) if each.lanes.cta is cta)
    value = next((f"stores {each.value}" for each in own), "comes")
    then = f"release_semaphore at {release} of CTA {cta.position} {value} only after {meant_first}"
    advice = f"{waits}, which {why}, and {then}: the value of the semaphore is wrong"
    return Missing("wait", advice, at_fault=lock.location)


def _lock(c: Conflict, lanes: Lanes, access: Location | None) -> SemaphoreWait | None:
    """Return the last wait for a semaphore that the CTA of the lanes passed and that orders their access."""
    locks = [each for each in reversed(c.order.locks) if each.warp.cta is lanes.cta and lanes.generic & each.event]
    return next((each for each in locks if stands_before(each.location, access)), None)
