"""mbarrier objects in shared memory, and the proxy fences (PTX ISA, "mbarrier", "membar / fence")."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from blackwell_matmul.simulator.engine import Blocked
from blackwell_matmul.simulator.machine.cta import BARRIER_BYTES, Cta, Mbarrier, Warp
from blackwell_matmul.simulator.machine.registers import WARP, ThreadGroup
from blackwell_matmul.simulator.order.happens_before import Place
from blackwell_matmul.simulator.semantics.cluster import MAX_CTAS, named, ranked
from blackwell_matmul.simulator.semantics.description import Access, Again, Effect, Signal, Space, Wait, describe
from blackwell_matmul.simulator.semantics.views import Statement
from blackwell_matmul.simulator.lowering.context import Site


@describe(
    "AllocBarrierInst",
    name="mbarrier.init",
    ptx="mbarrier.init",
    effects=(Effect("barrier", Space.BARRIER, Access.WRITE),),
    again=Again.NOTHING,
)
def alloc_barrier(inst: Any, site: Site) -> Any:
    """Initialised at the kernel's entry, before a fence and a CTA-wide barrier, which code generation adds."""
    counts = [site.group.count if c is None else c for c in inst.counts]
    site.scalars(counts)
    name, location = site.name(inst.output, "mbarrier"), site.location
    first = site.program.barriers.get(inst)
    if first is None:  # nothing uses it, so code generation drops it: any address will do
        first = (site.program.barrier_address or 0) + BARRIER_BYTES * 2**16 + 2**20

    def make(cta: Cta, values: tuple[int, ...]) -> None:
        for i, count in enumerate(values):
            label = name if len(values) == 1 else f"{name}[{i}]"
            if not 1 <= count < 2**20:
                raise cta.stop(
                    "mbarrier-count", f"{label} has an arrival count of {count}; 1 to 1048575 work", location
                )
            address = first + BARRIER_BYTES * i
            cta.barriers[address] = Mbarrier(cta, label, address, count, location, partial(make, values=values))

    def run(warp: Warp, values: tuple[int, ...]) -> np.ndarray:
        if first not in warp.cta.barriers:
            make(warp.cta, values)
        elif warp.cta.barriers[first].expected != values[0]:  # made by another CTA that signals it
            raise site.fail(f"the arrival counts of {name} differ between the CTAs of a cluster")
        addresses = first + BARRIER_BYTES * np.arange(len(values))
        return np.broadcast_to(addresses.astype(np.uint32), (WARP, len(values)))

    return run


def _scope(inst: Any) -> str:
    """Which threads a release or an acquire is for: "cta", "cluster", or "" where it is relaxed."""
    return "" if inst.sem == "relaxed" else str(inst.scope)


@describe(
    "ArriveBarrierInst",
    name="mbarrier.arrive",
    ptx="mbarrier.arrive",
    effects=(Effect("barrier", Space.BARRIER, Access.WRITE),),
    signals=(Signal("arrive"),),
    again=Again.NOTHING,
)
def arrive(inst: Any, site: Site) -> Any:
    """Every active lane arrives, each `count` times."""
    site.scalar(inst.barrier)
    site.scalar(inst.count)
    group, location, release = site.group, site.location, _scope(inst)

    def run(warp: Warp, address: int, count: int) -> None:
        _, lanes = group.lanes(warp.index)
        barrier = warp.cta.barrier_at(address, location)
        warp.event("arrive", barrier.name, location)
        if warp.wgmma is not None:
            warp.wgmma.arrive(barrier, location)
        if warp.cta.order is not None:
            warp.cta.order.arrive(barrier, warp, site, release)
        barrier.arrive(lanes * count, location)

    return run


@describe(
    "ArriveExpectTxBarrierInst",
    name="mbarrier.arrive.expect_tx",
    ptx="mbarrier.arrive.expect_tx",
    effects=(Effect("barrier", Space.BARRIER, Access.WRITE),),
    signals=(Signal("expect_tx"), Signal("arrive")),
    again=Again.NOTHING,
)
def arrive_expect_tx(inst: Any, site: Site) -> Any:
    """expect-tx, then one arrival, by every active lane."""
    site.scalar(inst.barrier)
    site.scalar(inst.transaction_bytes)
    group, location, release = site.group, site.location, _scope(inst)

    def run(warp: Warp, address: int, count_bytes: int) -> None:
        _, lanes = group.lanes(warp.index)
        barrier = warp.cta.barrier_at(address, location)
        if warp.cta.tracing:
            warp.event("arrive", f"{barrier.name} expects {lanes * count_bytes} bytes", location)
        barrier.expect_tx(lanes * count_bytes, location)
        if warp.cta.order is not None:
            warp.cta.order.arrive(barrier, warp, site, release)
        barrier.arrive(lanes, location)

    return run


_IN_CLUSTER: dict[str, Any] = {
    "ptx": "mbarrier.arrive.expect_tx: .shared::cluster",
    "effects": (Effect("barrier", Space.BARRIER, Access.WRITE),),
    "signals": (Signal("expect_tx"), Signal("arrive")),
    "approximation": "a release to its own CTA alone tells another one of all but stores",
    "again": Again.NOTHING,
}


@describe("ArriveExpectTxMulticastBarrierInst", name="mbarrier.arrive.expect_tx (multicast)", **_IN_CLUSTER)
def arrive_multicast(inst: Any, site: Site) -> Any:
    """For each bit that is set in the mask, the thread of that number in the group tells the CTA of that rank."""
    site.scalar(inst.barrier)
    site.scalar(inst.transaction_bytes)
    location, mask, release = site.location, int(inst.multicast), _scope(inst)
    threads = [Statement(site.description, ThreadGroup(site.group.begin + i, 1), location) for i in range(MAX_CTAS)]

    def run(warp: Warp, address: int, count_bytes: int) -> None:
        barrier = warp.cta.barrier_at(address, location)
        for cta in named(warp, mask, site):
            if warp.index in threads[cta.rank].group.warps:
                _arrive_at(barrier.in_cta(cta), warp, threads[cta.rank], count_bytes, release)

    return run


@describe("ArriveExpectTxRemoteBarrierInst", name="mbarrier.arrive.expect_tx (remote)", **_IN_CLUSTER)
def arrive_remote(inst: Any, site: Site) -> Any:
    """Every active lane tells the CTA of the given rank."""
    site.scalar(inst.barrier)
    site.scalar(inst.transaction_bytes)
    site.scalar(inst.target_rank)
    location, release = site.location, _scope(inst)

    def run(warp: Warp, address: int, count_bytes: int, rank: int) -> None:
        barrier = warp.cta.barrier_at(address, location).in_cta(ranked(warp, rank, site))
        _arrive_at(barrier, warp, site, count_bytes, release)

    return run


def _arrive_at(barrier: Mbarrier, warp: Warp, place: Place, count_bytes: int, release: str) -> None:
    """expect-tx, then one arrival, by the lanes at `place`, on a barrier of their CTA or of another one."""
    _, lanes = place.group.lanes(warp.index)
    if warp.cta.tracing:
        told = f" expects {lanes * count_bytes} bytes" if count_bytes else ""
        warp.event("arrive", f"{barrier}{told}", place.location)
    barrier.expect_tx(lanes * count_bytes, place.location)
    if warp.wgmma is not None:
        warp.wgmma.arrive(barrier, place.location)
    order = warp.cta.order
    if order is not None:
        if barrier.cta is not warp.cta:
            order.signals(barrier, warp, place)
        order.arrive(barrier, warp, place, release)
    barrier.arrive(lanes, place.location)


@describe(
    "WaitBarrierInst",
    name="mbarrier.wait",
    ptx="mbarrier.try_wait",
    effects=(Effect("barrier", Space.BARRIER, Access.READ),),
    waits=(Wait("mbarrier"),),
    again=Again.NOTHING,
)
def wait(inst: Any, site: Site) -> Any:
    """Blocks until the phase of the given parity is over (mbarrier.try_wait.parity in a loop)."""
    site.kind = "blocking"
    site.scalar(inst.barrier)
    site.scalar(inst.phase)
    location, acquire = site.location, _scope(inst)

    def passed(warp: Warp, barrier: Mbarrier, phase: int) -> bool:
        if not barrier.passed(phase):
            return False
        if warp.cta.detailed:
            warp.event("resume", f"phase {barrier.phase - 1} of {barrier.name} is over", location)
        if warp.cta.order is not None:
            warp.cta.order.passed(barrier, warp, site, acquire)
        return True

    def run(warp: Warp, address: int, phase: int) -> Blocked | None:
        barrier = warp.cta.barrier_at(address, location)
        if warp.cta.tracing:
            warp.event("wait", f"{barrier.name}, parity {phase & 1}", location)
        if passed(warp, barrier, phase):
            return None
        why = partial(_explain, barrier, phase)
        return Blocked(partial(passed, warp, barrier, phase), why, location, barrier=barrier)

    return run


def _explain(barrier: Mbarrier, phase: int) -> str:
    return (
        f"parity {phase & 1} of {barrier.name}, which is in phase {barrier.phase} (parity {barrier.phase & 1})"
        f" and still lacks {barrier.missing()}"
    )


@describe("FenceProxyAsync", name="fence.proxy.async", ptx="membar / fence: fence.proxy.async", again=Again.NOTHING)
def fence_proxy_async(inst: Any, site: Site) -> Callable[[Warp], None]:
    """Orders generic against async accesses of the executing threads; it moves no data and waits for nobody."""
    location, space = site.location, str(getattr(inst, "space", ""))

    def run(warp: Warp) -> None:
        warp.event("issue", "fence.proxy.async", location)
        if warp.cta.order is not None:
            warp.cta.order.fence_proxy(warp, site, shared=space != "global", global_=space != "shared")

    return run


@describe(
    "FenceProxyAsyncRelease",
    name="fence.proxy.async.release",
    ptx="membar / fence: fence.proxy.async::generic",
    approximation="it orders nothing here",
    again=Again.NOTHING,
)
def fence_proxy_async_release(inst: Any, site: Site) -> Callable[[Warp], None]:
    location = site.location
    return lambda warp: warp.event("issue", "fence.proxy.async.release", location)
