"""Teams: a grid's clusters in launch order, and the clusters whose work they take over. Without clusters, a CTA is one.

A kernel that cancels clusters (clusterlaunchcontrol) is run in teams, formed ahead of the run. The first cluster of a
team is launched. It is granted the others, in order, and then refused, although clusters may be left (a B300 does so
under load). So every team runs by itself, in any process, and a seed replays it. Clusters of the team that it does not
take over are launched after it.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import NamedTuple

from blackwell_matmul.simulator.machine.grid import Grid, Position

LENGTHS = (1, 2, 4)
"""Clusters of a team: few, so that many teams are alike (replay/); the longest uses two accumulators twice."""


class Team(NamedTuple):
    """The block indices of a cluster, by rank, and the first CTA of each cluster that it is granted."""

    cluster: list[Position]
    grants: tuple[Position, ...] = ()

    def left(self, grid: Grid, taken: int) -> Team | None:
        """Return the team that is launched next if this one took over `taken` clusters."""
        rest = self.grants[taken:]
        return Team(cluster_at(grid, rest[0]), rest[1:]) if rest else None


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


def teams(grid: Grid, seed: int, cancels: bool) -> list[Team]:
    """Return the teams of a grid. cancels: the kernel cancels clusters; otherwise each cluster is a team."""
    every = clusters(grid)
    if not cancels:
        return [Team(cluster) for cluster in every]
    lengths, begin, found = _lengths(len(every), seed), 0, []
    while begin < len(every):
        first, *others = every[begin : begin + next(lengths)]
        found.append(Team(first, tuple(other[0] for other in others)))
        begin += 1 + len(others)
    return found


def _lengths(count: int, seed: int) -> Iterator[int]:
    """Yield lengths drawn from the seed; with seed 0 first a long one, then a short one if there are two clusters."""
    draw = random.Random(seed)
    if seed == 0:
        yield from (min(max(count - 1, 2), LENGTHS[-1]), 1)
    while True:
        yield draw.choice(LENGTHS)


def team_from(grid: Grid, position: Position, every: list[Team]) -> Team:
    """Return the team of a CTA's cluster, launched first or after others left it."""
    cluster = cluster_at(grid, position)
    for team in every:
        chain = (team.cluster[0], *team.grants)
        if cluster[0] in chain:
            return Team(cluster, chain[chain.index(cluster[0]) + 1 :])
    raise LookupError(f"no cluster of the grid has a CTA {position}")
