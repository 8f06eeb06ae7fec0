"""The clusters of a grid in launch order, each with the clusters whose work it may take over. Without clusters, a CTA
counts as one.

A kernel that cancels clusters (clusterlaunchcontrol) gets a schedule ahead of the run. A scheduled cluster is launched
and granted some others, in order. Then its requests are refused, although clusters may be left (a B300 does so under
load). So every scheduled cluster runs by itself, in any process, and a seed replays it. A granted cluster that it does
not take over is launched after it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import NamedTuple

from blackwell_matmul.simulator.machine.grid import Grid, Position

LENGTHS = (1, 2, 4)
"""Numbers of clusters in a schedule. Few lengths make many schedules alike (replay/). The longest uses two
accumulators twice."""


class ScheduledCluster(NamedTuple):
    """The block indices of a launched cluster, by rank. grants: the first CTA of each cluster that it may take over."""

    cluster: list[Position]
    grants: tuple[Position, ...] = ()

    def left(self, grid: Grid, taken: int) -> ScheduledCluster | None:
        """Return the cluster that is launched next if this one took over `taken` clusters; None if no grant
        remains."""
        rest = self.grants[taken:]
        return ScheduledCluster(cluster_at(grid, rest[0]), rest[1:]) if rest else None


def positions(grid: Grid) -> Iterator[Position]:
    """Yield block indices in launch order, x fastest."""
    x, y, z = grid.dimensions
    for k, j, i in itertools.product(range(z), range(y), range(x)):
        yield i, j, k


def cluster_at(grid: Grid, position: Position) -> list[Position]:
    """Return the block indices of a CTA's cluster, by rank."""
    first = [at // extent * extent for at, extent in zip(position, grid.cluster, strict=True)]
    x, y, z = (range(begin, begin + extent) for begin, extent in zip(first, grid.cluster, strict=True))
    return [(i, j, k) for k, j, i in itertools.product(z, y, x)]


def clusters(grid: Grid) -> list[list[Position]]:
    """Return the block indices of each cluster, in launch order."""
    if grid.cluster == (1, 1, 1):
        return [[position] for position in positions(grid)]
    leaders = (at for at in positions(grid) if not any(i % e for i, e in zip(at, grid.cluster, strict=True)))
    return [cluster_at(grid, leader) for leader in leaders]


def schedule(grid: Grid, seed: int, cancels: bool) -> list[ScheduledCluster]:
    """Return the scheduled clusters of a grid. cancels: the kernel cancels clusters; otherwise none has grants."""
    every = clusters(grid)
    if not cancels:
        return [ScheduledCluster(cluster) for cluster in every]
    lengths, begin, found = _lengths(len(every), seed), 0, []
    while begin < len(every):
        first, *others = every[begin : begin + next(lengths)]
        found.append(ScheduledCluster(first, tuple(other[0] for other in others)))
        begin += 1 + len(others)
    return found


def _lengths(count: int, seed: int) -> Iterator[int]:
    """Yield lengths drawn from the seed; with seed 0 first a long one, then a short one if there are two clusters."""
    draw = random.Random(seed)
    if seed == 0:
        yield from (min(max(count - 1, 2), LENGTHS[-1]), 1)
    while True:
        yield draw.choice(LENGTHS)


def scheduled_from(grid: Grid, position: Position, every: list[ScheduledCluster]) -> ScheduledCluster:
    """Return the scheduled cluster of a CTA, launched first or after another one left it."""
    cluster = cluster_at(grid, position)
    for scheduled in every:
        chain = (scheduled.cluster[0], *scheduled.grants)
        if cluster[0] in chain:
            return ScheduledCluster(cluster, chain[chain.index(cluster[0]) + 1 :])
    raise LookupError(f"no cluster of the grid has a CTA {position}")
