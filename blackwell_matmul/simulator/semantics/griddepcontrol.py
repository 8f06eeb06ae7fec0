"""The wait for the grids before this one, and what may stand before it (PTX ISA, "griddepcontrol").

`griddepcontrol.wait` returns when all grids before have ended and what they wrote can be read; until then they may
still write what this grid reads, and read what it writes. `griddepcontrol.launch_dependents` allows the next grid to
start, which waits likewise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.machine import Warp
from blackwell_matmul.simulator.semantics.cluster import cluster_sync
from blackwell_matmul.simulator.semantics.description import Again, Description, Space, Wait, describe, description_of
from blackwell_matmul.simulator.site import Site


@describe("GridDependencyInst", name="griddepcontrol.wait", ptx="griddepcontrol", again=Again.NOTHING)
def grid_dependency(inst: Any, site: Site) -> Callable[[Warp], None] | None:
    """Every access of global memory that comes first is a finding: none of them is ordered after the grids before."""
    early = list(_early(inst, site))
    if not early:
        return None

    def run(warp: Warp) -> None:
        for description, location in early:
            message = (
                f"{description.name} accesses global memory before griddepcontrol.wait, while the grid before this one "
                f"may still write there; it must come after the wait"
            )
            warp.cta.report("access-before-grid-wait", message, location, site.location)

    return run


def _early(inst: Any, site: Site) -> Iterator[tuple[Description, Location | None]]:
    """What accesses global memory and stands before the wait, which every thread comes to."""
    from blackwell_matmul.frontend.recording import instructions

    for each in instructions(site.program.tile):
        if each is inst:
            return
        location = site.program.location_of(each)
        description, _ = description_of(each, str(location))
        if any(effect.space is Space.GLOBAL for effect in description.effects):
            yield description, location


@describe(
    "RelaxedClusterSyncInst",
    name="cluster.sync",
    ptx="barrier.cluster.arrive.relaxed",
    waits=(Wait("threads"),),
    again=Again.NOTHING,
)
def relaxed_cluster_sync(inst: Any, site: Site) -> Any:
    """As `cluster.sync`: nothing stands before it but the initialisation of barriers, which has a fence of its own."""
    return cluster_sync(inst, site)
