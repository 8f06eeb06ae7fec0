"""Candidates: an edge that is too weak: for another proxy, relaxed, or of too narrow a scope."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from blackwell_matmul.simulator.description import Proxy, Space
from blackwell_matmul.simulator.findings import Severity
from blackwell_matmul.simulator.order.knowledge import Carried, Weak
from blackwell_matmul.simulator.order.missing.conflict import Conflict, Missing

FENCE: Final = "missing-proxy-fence"
RELAXED: Final = "relaxed-wait"


def proxy_fence(c: Conflict) -> Missing | None:
    """Find an order for the generic proxy alone, before an access of the async proxy (PTX ISA, "Async proxy").

    By the letter an async write after a generic read needs the fence as well; on hardware the read is complete by then.
    """
    if c.effect.proxy is not Proxy.ASYNC or not c.other.event & c.lanes.generic:
        return None
    space = c.effect.space.value
    where = f"after {c.other_location} by {c.culprit}, or before {c.instruction.location} by {c.lanes}"
    advice = f'the missing fence: fence.proxy_async(space="{space}") {where}'
    only_read = c.write and not c.other.write
    return Missing("fence", advice, FENCE, Severity.UNGUARANTEED if only_read else Severity.ERROR)


def relaxed_wait(c: Conflict) -> Missing | None:
    """Find a wait on an mbarrier that carries the access, but whose semantics are too weak to acquire it."""
    for carried in c.barriers():
        weak = carried.relaxed.get(c.warp.index)
        if weak is not None and weak.left & c.other.event:
            return _too_weak(c, f"the wait on {carried.barrier.name}", weak, "acquire")
    return None


def relaxed_arrival(c: Conflict) -> Missing | None:
    """Find an arrival that is too weak to release the access, on an mbarrier that this warp waited for."""
    for carried in c.barriers():
        if getattr(carried.loose, c.effect.path) & c.other.event and c.warp.index in carried.waits:
            if carried.loosened is not None and _weak_wait(c, carried) is None:
                return _too_weak(c, f"the arrival on {carried.barrier.name}", carried.loosened, "release")
    return None


def _weak_wait(c: Conflict, carried: Carried) -> Weak | None:
    """Return the last wait of the warp if it was too weak: relaxed, or of CTA scope."""
    wait, weak = carried.waits[c.warp.index], carried.relaxed.get(c.warp.index)
    if weak is None or weak.location != wait.location:
        return None
    return weak if not weak.scope or c.culprit.cta is not c.lanes.cta else None


def relaxed_both(c: Conflict) -> Missing | None:
    """Find an arrival that does not release the access and a wait that would not acquire it. After a read a proxy fence
    may be missing as well (see `proxy_fence`)."""
    for carried in c.barriers():
        if carried.loosened is None or c.warp.index not in carried.waits or not carried.loose.generic & c.other.event:
            continue
        wait, fenced = _weak_wait(c, carried), getattr(carried.loose, c.effect.path) & c.other.event
        if wait is not None and (fenced or not c.other.write):
            return _both_too_weak(c, carried.barrier.name, carried.loosened, wait, bool(fenced))
    return None


def _both_too_weak(c: Conflict, name: str, arrival: Weak, wait: Weak, fenced: bool) -> Missing:
    scope = "" if c.culprit.cta is c.lanes.cta else ', both with scope="cluster"'
    fence = "" if fenced else f', and fence.proxy_async(space="{c.effect.space.value}") before the arrival'
    what = f"the arrival on {name} at {arrival.location} is too weak, and the wait at {wait.location} as well"
    advice = f'{what}; sem="release" and sem="acquire"{scope}{fence} would order the two'
    return replace(_too_weak(c, "", arrival, "release"), advice=advice)


def _too_weak(c: Conflict, what: str, weak: Weak, edge: str) -> Missing:
    """Return the edge with its severity: an error only for threads' stores between CTAs.

    A store may be in flight, or its old value in the L1 of the other SM. Data that the async proxy brought is there
    when the mbarrier is signalled. For tensor memory a relaxed edge of cluster scope is enough.
    """
    apart, of_tensor = c.culprit.cta is not c.lanes.cta, c.effect.space is Space.TENSOR
    narrow = weak.scope or (apart and of_tensor and "cta")
    is_so, better = (f"has scope {narrow}", 'scope="cluster"') if narrow else ("is relaxed", f'sem="{edge}"')
    section = "tcgen05 Memory Consistency Model" if of_tensor else "Morally strong operations"
    source = f' (PTX ISA, "{section}")' if apart else ""
    advice = f"{what} at {weak.location} {is_so}; with {better} it would order the two{source}"
    lost = apart and c.other.write and c.other.event & c.order.threads
    return Missing(edge, advice, RELAXED, Severity.ERROR if lost else Severity.UNGUARANTEED, weak.location)
