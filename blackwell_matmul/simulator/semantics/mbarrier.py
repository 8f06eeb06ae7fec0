"""mbarrier objects in shared memory, and the proxy fences (PTX ISA, "mbarrier", "membar / fence")."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from blackwell_matmul.simulator.engine import Blocked
from blackwell_matmul.simulator.machine import BARRIER_BYTES, Cta, Mbarrier, Warp
from blackwell_matmul.simulator.registers import WARP
from blackwell_matmul.simulator.semantics.description import (
    Access,
    Again,
    Effect,
    Signal,
    Space,
    Wait,
    describe,
    needs_a_cluster,
)
from blackwell_matmul.simulator.site import Site


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
            cta.barriers[address] = Mbarrier(cta, label, address, count, location)

    def run(warp: Warp, values: tuple[int, ...]) -> np.ndarray:
        if first not in warp.cta.barriers:
            make(warp.cta, values)
        addresses = first + BARRIER_BYTES * np.arange(len(values))
        return np.broadcast_to(addresses.astype(np.uint32), (WARP, len(values)))

    return run


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
    group, location, release = site.group, site.location, inst.sem == "release"

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
    group, location, release = site.group, site.location, inst.sem == "release"

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


@describe("ArriveExpectTxMulticastBarrierInst", "ArriveExpectTxRemoteBarrierInst", ptx="mbarrier.arrive.expect_tx")
def arrive_remote(inst: Any, site: Site) -> Any:
    raise needs_a_cluster("The arrival on another CTA's mbarrier", site.location)


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
    location, acquire = site.location, inst.sem == "acquire"

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
