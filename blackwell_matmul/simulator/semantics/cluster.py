"""Clusters: their barrier, and the CTAs that an instruction names (PTX ISA, "barrier.cluster", "mapa")."""

from __future__ import annotations

from typing import Any

import numpy as np

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.description import FREE, Again, Time, Unit, Wait, describe
from blackwell_matmul.simulator.engine import Blocked
from blackwell_matmul.simulator.lowering.context import LoweringContext
from blackwell_matmul.simulator.machine.barrier import mapped
from blackwell_matmul.simulator.machine.cta import Cta, Rendezvous, Warp, spell
from blackwell_matmul.simulator.machine.registers import WARP

MAX_CLUSTER_CTAS = 8  # CUDA Programming Guide, "Thread Block Clusters": the largest portable size, and tilus's largest


def named(warp: Warp, mask: int, context: LoweringContext) -> list[Cta]:
    """Return the CTAs of the warp's cluster whose bits are set in the mask."""
    ctas = warp.cta.cluster.ctas
    if mask >> len(ctas):
        ranks = ", ".join(str(rank) for rank in range(len(ctas), mask.bit_length()) if mask >> rank & 1)
        message = f"the mask {mask:#b} of {context.description.name} names CTA rank {ranks}; {_sizes(len(ctas))}"
        warp.cta.report("no-such-cta", message, context.location)
    return [cta for cta in ctas if mask >> cta.rank & 1]


def ranked(warp: Warp, rank: int, context: LoweringContext) -> Cta:
    """Return the CTA of the warp's cluster with this rank."""
    ctas = warp.cta.cluster.ctas
    require_rank(warp, rank, len(ctas), context.description.name, context.location)
    return ctas[rank]


def require_rank(warp: Warp, rank: int, ctas: int, name: str, location: Location | None) -> None:
    """Stop the CTA unless a cluster of `ctas` CTAs has this rank."""
    if not 0 <= rank < ctas:
        raise warp.cta.stop("no-such-cta", f"{name} names CTA rank {rank}; {_sizes(ctas)}", location)


def _sizes(ctas: int) -> str:
    return f"the cluster has {ctas} CTAs, ranks 0 to {ctas - 1}" if ctas > 1 else "the cluster has one CTA, rank 0"


@describe(
    "ClusterSyncThreadsInst",
    name="cluster.sync",
    ptx="barrier.cluster",
    waits=(Wait("cluster"),),
    again=Again.NOTHING,
    time=Time(Unit.WARPS, "cluster_sync_cycles"),
    mark="waits for other warps",
)
def cluster_sync(inst: Any, context: LoweringContext) -> Any:
    """Lower barrier.cluster.arrive (release) and wait (acquire): all threads of all CTAs that have not exited."""
    context.kind, location = "blocking", context.location
    if context.group.begin % WARP or context.group.count % WARP:
        raise context.fail("a part of a warp executes it, and it waits for all threads of the cluster")

    def run(warp: Warp) -> Blocked | None:
        warp.cta.engine.tell.waits(warp, context.instruction, "the others at cluster.sync()")
        meeting = context.meet_cluster(warp)
        if meeting.over:
            return None
        return Blocked(meeting.complete, lambda: _missing_in_cluster(meeting), location, meeting=meeting)

    return run


def _missing_in_cluster(meeting: Rendezvous) -> str:
    absent = [warp for warp in meeting.needed - meeting.brought.keys() if not warp.returned]
    return f"{spell(sorted(absent, key=lambda warp: (warp.cta.rank, warp.index)))} at cluster.sync()"


@describe("MapSharedAddrInst", name="map_shared_addr", ptx="mapa", again=Again.NOTHING, time=FREE)
def map_shared_addr(inst: Any, context: LoweringContext) -> Any:
    """Return the addresses of the same places in another CTA."""
    context.use(inst.inputs[0])
    context.scalar(inst.target_rank)

    def run(warp: Warp, addresses: np.ndarray, rank: int) -> np.ndarray:
        return mapped(addresses, ranked(warp, rank, context).rank).astype(np.uint32)

    return run
