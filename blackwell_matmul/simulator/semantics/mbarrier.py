"""mbarrier objects in shared memory, and the proxy fences (PTX ISA, "mbarrier", "membar / fence")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from blackwell_matmul.simulator.description import (
    FREE,
    Access,
    Again,
    Effect,
    Signal,
    Space,
    Time,
    Unit,
    Wait,
    describe,
)
from blackwell_matmul.simulator.engine import Blocked
from blackwell_matmul.simulator.lowering.context import LoweringContext
from blackwell_matmul.simulator.machine.barrier import BARRIER_BYTES, Mbarrier, barrier_at
from blackwell_matmul.simulator.machine.cta import Cta, Warp
from blackwell_matmul.simulator.machine.registers import WARP, ThreadGroup
from blackwell_matmul.simulator.semantics.cluster import MAX_CLUSTER_CTAS, named, ranked


@describe(
    "AllocBarrierInst",
    name="mbarrier.init",
    effects=(Effect("barrier", Space.BARRIER, Access.WRITE),),
    again=Again.NOTHING,
    time=FREE,
)
def alloc_barrier(inst: Any, context: LoweringContext) -> Any:
    """Initialise mbarriers at the kernel's entry; code generation adds a fence and a CTA-wide barrier."""
    counts = [context.group.count if c is None else c for c in inst.counts]
    context.scalars(counts)
    name, location = context.name(inst.output, "mbarrier"), context.location
    first = context.program.barriers.get(inst)

    def make(cta: Cta, values: tuple[int, ...]) -> None:
        for i, count in enumerate(values):
            label = name if len(values) == 1 else f"{name}[{i}]"
            if not 1 <= count < 2**20:
                raise cta.stop(
                    "mbarrier-count", f"{label} has an arrival count of {count}; 1 to 1048575 work", location
                )
            if first is None:  # nothing uses it, so code generation drops it
                continue
            address = first + BARRIER_BYTES * i
            cta.barriers[address] = Mbarrier(cta, label, address, count, location, partial(make, values=values))

    def run(warp: Warp, values: tuple[int, ...]) -> np.ndarray:
        if first is None or first not in warp.cta.barriers:
            make(warp.cta, values)
        elif warp.cta.barriers[first].expected != values[0]:  # made by another CTA that signals it
            raise context.fail(f"the arrival counts of {name} differ between the CTAs of a cluster")
        addresses = (first or 0) + BARRIER_BYTES * np.arange(len(values))
        return np.tile(addresses.astype(np.uint32), (WARP, 1))

    return run


def _scope(inst: Any) -> str:
    """Return the scope of a release or an acquire: "cta", "cluster", or "" if it is relaxed."""
    return "" if inst.sem == "relaxed" else str(inst.scope)


@describe(
    "ArriveBarrierInst",
    name="mbarrier.arrive",
    effects=(Effect("barrier", Space.BARRIER, Access.WRITE),),
    signals=(Signal("arrive"),),
    again=Again.NOTHING,
    time=Time(Unit.WARP, "arrive_cycles"),
    mark=True,
)
def arrive(inst: Any, context: LoweringContext) -> Any:
    """Arrive `count` times in every active lane."""
    context.scalar(inst.barrier, inst.count)
    location, scope = context.location, _scope(inst)

    def run(warp: Warp, address: int, count: int) -> None:
        context.signal(warp, barrier_at(warp.cta, address, location), scope=scope, count=count)

    return run


@describe(
    "ArriveExpectTxBarrierInst",
    name="mbarrier.arrive.expect_tx",
    effects=(Effect("barrier", Space.BARRIER, Access.WRITE),),
    signals=(Signal("expect_tx"), Signal("arrive")),
    again=Again.NOTHING,
    time=Time(Unit.WARP, "expect_cycles"),
    mark=True,
)
def arrive_expect_tx(inst: Any, context: LoweringContext) -> Any:
    """Perform expect-tx, then one arrival, in every active lane."""
    context.scalar(inst.barrier, inst.transaction_bytes)
    location, scope = context.location, _scope(inst)

    def run(warp: Warp, address: int, count_bytes: int) -> None:
        context.signal(warp, barrier_at(warp.cta, address, location), scope=scope, count_bytes=count_bytes)

    return run


_IN_CLUSTER: dict[str, Any] = {
    "ptx": "mbarrier.arrive.expect_tx: .shared::cluster",
    "effects": (Effect("barrier", Space.BARRIER, Access.WRITE),),
    "signals": (Signal("expect_tx"), Signal("arrive")),
    "approximation": "a release of CTA scope orders, for another CTA as well, asynchronous operations after their wait",
    "again": Again.NOTHING,
}


@describe(
    "ArriveExpectTxMulticastBarrierInst",
    name="mbarrier.arrive.expect_tx (multicast)",
    time=Time(Unit.PEER, "expect_cycles"),
    mark=True,
    **_IN_CLUSTER,
)
def arrive_multicast(inst: Any, context: LoweringContext) -> Any:
    """Signal each CTA in the mask, by the thread of the group whose index is the CTA's rank."""
    context.scalar(inst.barrier, inst.transaction_bytes, inst.multicast)
    location, scope, first = context.location, _scope(inst), context.group.begin
    threads = [replace(context.instruction, group=ThreadGroup(first + i, 1)) for i in range(MAX_CLUSTER_CTAS)]

    def run(warp: Warp, address: int, count_bytes: int, mask: int) -> None:
        barrier = barrier_at(warp.cta, address, location)
        for cta in named(warp, mask, context):
            thread = threads[cta.rank]
            if warp.index in thread.group.warps:
                to = barrier.in_cta(cta)
                context.signal(warp, to, instruction=thread, scope=scope, count_bytes=count_bytes)

    return run


@describe(
    "ArriveExpectTxRemoteBarrierInst",
    name="mbarrier.arrive.expect_tx (remote)",
    time=Time(Unit.PEER, "expect_cycles"),
    mark=True,
    **_IN_CLUSTER,
)
def arrive_remote(inst: Any, context: LoweringContext) -> Any:
    """Lower an arrival at the mbarrier of the CTA with the given rank, by every active lane."""
    context.scalar(inst.barrier, inst.transaction_bytes, inst.target_rank)
    location, scope = context.location, _scope(inst)

    def run(warp: Warp, address: int, count_bytes: int, rank: int) -> None:
        barrier = barrier_at(warp.cta, address, location).in_cta(ranked(warp, rank, context))
        context.signal(warp, barrier, scope=scope, count_bytes=count_bytes)

    return run


@describe(
    "WaitBarrierInst",
    name="mbarrier.wait",
    ptx="mbarrier.try_wait",
    effects=(Effect("barrier", Space.BARRIER, Access.READ),),
    waits=(Wait("mbarrier"),),
    again=Again.NOTHING,
    time=Time(Unit.WARP, "wait_cycles"),
    mark="waits for mbarrier",
)
def wait(inst: Any, context: LoweringContext) -> Any:
    """Wait until the phase of this parity, 0 or 1, is over (PTX ISA, mbarrier.test_wait: try_wait.parity in a loop)."""
    context.kind = "blocking"
    context.scalar(inst.barrier, inst.phase)
    location, scope = context.location, _scope(inst)

    def run(warp: Warp, address: int, phase: int) -> Blocked | None:
        barrier = barrier_at(warp.cta, address, location)
        if phase not in (0, 1):
            message = (
                f"{barrier.name} is waited for with phase {phase}, which is to be the parity of a phase, 0 or 1; flip "
                "it with phase ^= 1, or take it modulo 2"
            )
            warp.cta.report("mbarrier-parity", message, location)
        return context.wait_on(warp, barrier, phase & 1, scope)

    return run


@describe(
    "FenceProxyAsync",
    name="fence.proxy.async",
    ptx="membar / fence: fence.proxy.async",
    again=Again.NOTHING,
    time=Time(Unit.WARP, "fence_cycles"),
    mark=True,
)
def fence_proxy_async(inst: Any, context: LoweringContext) -> Callable[[Warp], None]:
    """Order generic against async accesses of the executing threads; it moves no data and waits for no other thread."""
    space = str(getattr(inst, "space", ""))
    return lambda warp: warp.cta.engine.tell.fenced(warp, context.instruction, space)


@describe(
    "FenceProxyAsyncRelease",
    name="fence.proxy.async.release",
    ptx="membar / fence: fence.proxy.async::generic",
    approximation="it orders nothing here",
    again=Again.NOTHING,
    time=FREE,
)
def fence_proxy_async_release(inst: Any, context: LoweringContext) -> Callable[[Warp], None]:
    return lambda warp: warp.cta.engine.tell.fenced(warp, context.instruction, "nothing")
