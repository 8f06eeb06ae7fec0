"""How the clusters of a grid get grants."""

from __future__ import annotations

import pytest

from blackwell_matmul.simulator.cluster_schedule import LENGTHS, ScheduledCluster, clusters, schedule, scheduled_from
from blackwell_matmul.simulator.machine.global_memory import GlobalMemory
from blackwell_matmul.simulator.machine.grid import Grid, Position


def grid(*dimensions: int, cluster: Position = (1, 1, 1)) -> Grid:
    x, y, z = dimensions
    return Grid(GlobalMemory(), {}, (x, y, z), cluster, num_warps=1)


def lengths(found: list[ScheduledCluster]) -> list[int]:
    return [1 + len(scheduled.grants) for scheduled in found]


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("launch", [grid(1, 1, 1), grid(40, 3, 2), grid(12, 4, 1, cluster=(2, 2, 1))])
def test_each_cluster_is_in_one_team_in_launch_order(launch: Grid, seed: int) -> None:
    found = schedule(launch, seed, cancels=True)
    leaders = [first for scheduled in found for first in (scheduled.cluster[0], *scheduled.grants)]
    assert leaders == [cluster[0] for cluster in clusters(launch)]
    assert set(lengths(found)[:-1]) <= {*LENGTHS, LENGTHS[-1] - 1}


def test_program_order_has_a_long_team_and_a_short_one() -> None:
    found = [lengths(schedule(grid(count, 1, 1), 0, cancels=True)) for count in range(1, 7)]
    assert found == [[1], [2], [2, 1], [3, 1], [4, 1], [4, 1, 1]]


def test_a_kernel_that_cancels_nothing() -> None:
    launch = grid(4, 2, 1, cluster=(2, 1, 1))
    assert schedule(launch, 0, cancels=False) == [ScheduledCluster(cluster) for cluster in clusters(launch)]


def test_what_a_team_leaves_is_a_team() -> None:
    launch = grid(6, 1, 1)
    every = schedule(launch, 0, cancels=True)
    left = every[0].left(launch, 1)
    assert left == ScheduledCluster([(2, 0, 0)], ((3, 0, 0),)) == scheduled_from(launch, (2, 0, 0), every)
    assert every[0].left(launch, 3) is None and every[0] == scheduled_from(launch, (0, 0, 0), every)
