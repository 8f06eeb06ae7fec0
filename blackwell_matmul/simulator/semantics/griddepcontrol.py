"""The wait for the preceding grids, and instructions that may precede it (PTX ISA, "griddepcontrol").

`griddepcontrol.wait` returns when all preceding grids have ended and their writes can be read; until then they may
still access memory that this grid reads or writes. `griddepcontrol.launch_dependents` allows the next grid to start,
which waits likewise.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.description import (
    FREE,
    Access,
    Again,
    Description,
    Space,
    Time,
    Unit,
    Wait,
    describe,
    description_of,
)
from blackwell_matmul.simulator.engine import Blocked
from blackwell_matmul.simulator.lowering.context import LoweringContext
from blackwell_matmul.simulator.machine.cta import Warp
from blackwell_matmul.simulator.semantics.cluster import cluster_sync


@describe("GridDependencyInst", name="griddepcontrol.wait", ptx="griddepcontrol", again=Again.NOTHING, time=FREE)
def grid_dependency(inst: Any, context: LoweringContext) -> Callable[[Warp], None] | None:
    """Report every earlier access of global memory: none of them is ordered after the preceding grids."""
    early = list(_before(inst, context, frozenset({Space.GLOBAL})))
    if not early:
        return None

    def run(warp: Warp) -> None:
        for description, location in early:
            message = (
                f"{description.name} accesses global memory before griddepcontrol.wait, while the grid before this one "
                "may still write there; it must come after the wait"
            )
            warp.cta.report("access-before-grid-wait", message, location, context.location)

    return run


def _before(
    inst: Any, context: LoweringContext, spaces: frozenset[Space]
) -> Iterator[tuple[Description, Location | None]]:
    """Yield accesses of these spaces that precede an instruction which every thread reaches."""
    from blackwell_matmul.frontend.recording import instructions

    for each in itertools.takewhile(lambda each: each is not inst, instructions(context.program.tile)):
        location = context.program.location_of(each)
        description, _ = description_of(each, str(location))
        if any(e.space in spaces and e.access is not Access.ALLOCATE for e in description.effects):
            yield description, location


@describe(
    "RelaxedClusterSyncInst",
    name="cluster.sync",
    ptx="barrier.cluster.arrive.relaxed",
    waits=(Wait("cluster"),),
    again=Again.NOTHING,
    time=Time(Unit.WARPS, "cluster_sync_cycles"),
    mark="waits for other warps",
)
def relaxed_cluster_sync(inst: Any, context: LoweringContext) -> Callable[[Warp], Blocked | None]:
    """Lower a `cluster.sync` that releases only initialised barriers, which have a fence; report earlier accesses."""
    meet: Callable[[Warp], Blocked | None] = cluster_sync(inst, context)
    early = list(_before(inst, context, frozenset({Space.SHARED, Space.TENSOR, Space.GLOBAL})))

    def run(warp: Warp) -> Blocked | None:
        for description, location in early:
            message = (
                f"{description.name} comes before a cluster.sync whose arrival is relaxed, which orders no access of "
                "memory; it must come after it"
            )
            warp.cta.report("relaxed-wait", message, location, context.location)
        return meet(warp)

    return run if early else meet
