"""Division of a product on Hopper by parts of K among all SMs, where few tiles and a long K would leave most SMs idle.

One launch computes the sums of each tile over each part of K (`Form.divides_k`), a second one adds the parts up. CTAs
that share a tile in one launch have to be a cluster, and a cluster has few CTAs.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import product
from typing import Any, NamedTuple

from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.problem.problem import KNOBS, Problem, Schedule
from blackwell_matmul.scheduling.cost_model import (
    SHALLOW_STAGES,
    SUM_BYTES,
    ctas_beside,
    nearest_figures,
    predicted_cycles,
)
from blackwell_matmul.scheduling.mma import Wgmma, tile_config
from blackwell_matmul.scheduling.rules import TMA_BYTES, can_run
from blackwell_matmul.scheduling.space import choose
from blackwell_matmul.scheduling.tile_config import SWIZZLE_BYTES, ceil_div, round_up

ROWS, COLUMNS = (16, 32, 64, 128), (16, 32, 64, 96, 128, 256)
"""Values of block_m and block_n that are compared. They are few, as such products are bound by loads and not by the
tile."""

SPAN = 64
"""Elements of 16 bits in a piece of an operand that is not K-major (`frontend.operand_majors`)."""

CLUSTERS, LARGE = ((1, 1), (4, 1), (2, 2), (1, 4)), 64
"""Values of cluster_m and cluster_n, and the least block_m and block_n in a cluster. Four CTAs share loads; pairs, and
smaller tiles in clusters, were no faster than single CTAs."""

OF_FOUR = 0.9
"""Cycles of the first launch in clusters of four, as a fraction of the predicted cycles (h200_divisions.json)."""

SUMS_BYTES_PER_NS = 2500
"""Bytes of sums that the first launch writes and the second one reads in a nanosecond (h200_divisions.json)."""

CLEARLY_LESS = 0.96
"""Maximum ratio of predicted cycles for two launches in place of one. Of 17 products on an H200, two launches took 0.38
to 0.98 of the time of one at ratios up to 0.95, and 0.83 to 1.33 of it above (h200_divisions.json)."""

KEPT_DIVISIONS = 4096


class Division(NamedTuple):
    """Parts of K, the schedule of their sums, and the predicted cycles of both launches."""

    cycles: float
    parts: int
    schedule: Schedule


@lru_cache(KEPT_DIVISIONS)
def best_division(problem: Problem, gpu: Gpu, kernel: Any) -> Division | None:
    """Return a division of K that takes clearly less time than one launch; None if there is none.

    problem: one product without an epilogue. kernel: its class. Only a few schedules of one launch are compared first,
    as a full search takes long.
    """
    features = kernel.features
    found = min(_divisions(problem, gpu, features), key=lambda each: each.cycles, default=None)
    if found is None:
        return None
    limit, splits = found.cycles / CLEARLY_LESS, KNOBS["split_k"].values
    of_tiles = product(_tiles(problem), splits)
    some = (_schedule(problem, tile, CLUSTERS[0], split_k, gpu, features) for tile, split_k in of_tiles)
    if any(one is not None and _cycles(one, problem, gpu) <= limit for one in some):
        return None
    return found if _cycles(choose(kernel, problem, gpu), problem, gpu) > limit else None


def divided(problem: Problem, parts: int) -> Problem:
    """Return the problem of the first launch: fp32 sums over each part of K, with rows that TMA can write."""
    line = round_up(problem.n, TMA_BYTES // SUM_BYTES)
    form = replace(
        problem.form,
        a_batched=False,
        b_batched=False,
        c_stride=0 if line == problem.n else line,
        out="fp32",
        divides_k=True,
    )
    return replace(problem, form=form, batches=parts)


def _divisions(problem: Problem, gpu: Gpu, features: tuple[str, ...]) -> Iterator[Division]:
    """Yield divisions whose CTAs fill all SMs or half of them, and whose sums fit the L2."""
    figures = nearest_figures(gpu)
    room = figures.near_l2_bytes / (SUM_BYTES * problem.m * problem.n)
    for tile, cluster in product(_tiles(problem), CLUSTERS):
        tiles = [ceil_div(size, block) for size, block in zip((problem.m, problem.n), tile)]
        ctas, together = math.prod(map(round_up, tiles, cluster)), math.prod(cluster)
        at_once = together * figures.clusters_at_once(gpu.sm_count, together)
        most = int(min(at_once // ctas, room, problem.k_bytes // SWIZZLE_BYTES[0]))
        able = all(map(operator.ge, tiles, cluster)) and (together == 1 or min(tile) >= LARGE)
        for parts in {most, most // 2} - {0, 1} if able else ():
            sums = divided(problem, parts)
            schedule = _schedule(sums, tile, cluster, 1, gpu, features)
            if schedule is not None:
                first = _cycles(schedule, sums, gpu) * (OF_FOUR if together > 1 else 1)
                yield Division(first + _sum_cycles(problem, parts, gpu), parts, schedule)


def _tiles(problem: Problem) -> Iterator[tuple[int, int]]:
    """Yield the values of block_m and block_n that are compared."""
    form = problem.form
    return product(_extents(ROWS, problem.m, form.a_major), _extents(COLUMNS, problem.n, form.b_major))


def _extents(offered: Sequence[int], size: int, major: str) -> list[int]:
    """Return the extents of tiles that are not twice as large as needed; the least one always."""
    able = [each for each in offered if major == "k" or each >= SPAN]
    return [each for each in able if each < 2 * size] or able[:1]


def _schedule(
    problem: Problem,
    tile: tuple[int, int],
    cluster: tuple[int, int],
    split_k: int,
    gpu: Gpu,
    features: tuple[str, ...],
) -> Schedule | None:
    """Return the schedule of a tile (block_m, block_n) and a cluster (cluster_m, cluster_n) with `SHALLOW_STAGES`, or
    else the number of stages next to them that can run with one CTA on an SM; None if none can."""
    (block_m, block_n), (cluster_m, cluster_n) = tile, cluster
    made = Schedule(
        block_m=block_m,
        block_n=block_n,
        block_k=SWIZZLE_BYTES[0] // problem.element_bytes,
        e_block_n=min(32 if split_k == 1 else 16, block_n),
        stages=1,
        consumers=max(1, block_m // Wgmma.rows),
        group_m=KNOBS["group_m"].values[-1],
        cluster_m=cluster_m,
        cluster_n=cluster_n,
        split_k=split_k,
        neighbours=KNOBS["neighbours"].values[-1],
        swap_ab=0,
        mma=Wgmma.name,
        features=features,
    )
    numbers = sorted(KNOBS["stages"].values, key=lambda stages: (stages < SHALLOW_STAGES, abs(stages - SHALLOW_STAGES)))
    with_stages = (made.with_known({"stages": stages}) for stages in numbers)
    able = (each for each in with_stages if can_run(each, problem, gpu))
    return next((each for each in able if ctas_beside(tile_config(each, problem, gpu)) == 1), None)


def _cycles(schedule: Schedule, problem: Problem, gpu: Gpu) -> int:
    return predicted_cycles(tile_config(schedule, problem, gpu))


def _sum_cycles(problem: Problem, parts: int, gpu: Gpu) -> float:
    """Predict the cycles of the second launch: two loads, one after the other, and all parts through the L2, which the
    first launch writes."""
    figures = nearest_figures(gpu)
    moved_ns = SUM_BYTES * problem.m * problem.n * parts / SUMS_BYTES_PER_NS
    return (figures.ramp_ns + 2 * figures.l2_ns + moved_ns) * figures.clock_ghz + figures.start_cycles
