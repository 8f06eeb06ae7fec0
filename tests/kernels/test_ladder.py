"""Schedules of every rung and product on shapes that fit nothing, against float64, and the same bits in every order."""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest
import torch

from blackwell_matmul.hardware.gpus import gpu_for_target
from blackwell_matmul.harness import check_matmul
from blackwell_matmul.harness.reference import TORCH_DTYPES, dtype_of_c
from blackwell_matmul.kernels import KERNELS, rung
from blackwell_matmul.problem.problem import Problem, Schedule
from blackwell_matmul.scheduling.rules import why_not
from blackwell_matmul.scheduling.space import projection
from blackwell_matmul.simulator import simulate

pytestmark = pytest.mark.slow

SIZES = (1, 8, 17, 40, 127, 129, 136, 200, 264)
ORDERS = (("adversarial", 0), ("eager", 0), ("random", 1))


def problem_for(schedule: Schedule, seed: int) -> Problem:
    """A seeded draw among the shapes that the schedule can run; K may be shorter than the ring of stages."""
    draw = random.Random(seed)
    while True:
        problem = Problem(*(draw.choice(SIZES) for _ in range(3)), dtype=draw.choice(sorted(TORCH_DTYPES)))
        if not why_not(schedule, problem, GPU_FOR[schedule.mma]):
            return problem


SAMPLED = {name: 4 if name in ("v6", "h7", "hopper") else 2 for name in KERNELS if name != "few"}
"""How many schedules of a rung are run, drawn with a seed; `bench/sweep.py` runs all of V0 to V2, and `test_forms.py`
more of the products."""

GPU_FOR = {mma: gpu_for_target(t) for mma, t in (("tcgen05", "sm_100a"), ("wgmma", "sm_90a"), ("mma.sync", "sm_120a"))}


def sm_count(schedule: Schedule) -> int:
    """Of a GPU small enough for its CTAs to compute several tiles each: it has room for one cluster."""
    return max(2, (schedule.cluster_m or 1) * (schedule.cluster_n or 1) * (schedule.split_k or 1))


def cases() -> Iterator[tuple[str, Schedule]]:
    for name in SAMPLED:
        gpu, problem = gpu_for_target(rung(name).target), Problem(128, 128, 128, "fp16")
        listed = projection(rung(name))
        drawn = random.Random(name).sample(listed, len(listed))
        able = (schedule for schedule in drawn if not why_not(schedule, problem, gpu))
        yield from ((name, schedule) for schedule in itertools.islice(able, SAMPLED[name]))


CASES = list(cases())


@pytest.mark.parametrize("index", range(len(CASES)), ids=[f"{name}-{schedule}" for name, schedule in CASES])
def test_a_schedule_on_an_odd_shape(index: int) -> None:
    name, schedule = CASES[index]
    problem = problem_for(schedule, index)
    m, n, k, dtype = problem.m, problem.n, problem.k, TORCH_DTYPES[problem.dtype]
    generator = torch.Generator().manual_seed(index)
    a, b = (torch.randn(rows, k, generator=generator).to(dtype) for rows in (m, n))
    kernel = rung(name)(sm_count=sm_count(schedule)) if "persistent" in rung(name).features else rung(name)
    results = []
    for policy, seed in ORDERS:
        c = torch.full((m, n), float("nan"), dtype=dtype_of_c(problem))
        run = simulate(kernel, m, n, k, a, b, c, schedule=schedule, policy=policy, seed=seed, workers=1)
        assert not run.findings, [str(f) for f in run.findings]
        results.append(c)
    verdict = check_matmul(a, b, results[0])
    assert verdict.ok, verdict.message
    assert all(torch.equal(c, results[0]) for c in results[1:])


PINS = {"block_n": 64, "block_k": 32, "e_block_n": 32, "stages": 3, "group_m": 4}
SHAPES = (
    (40, 24, 8),  # a single tile, of one k-tile
    (128, 64, 64),  # as many k-tiles as stages but one
    (1792, 72, 40),  # 14 rows of tiles, 7 of pairs
    (2432, 72, 40),  # 19 rows of tiles, of which a pair has two, and the last one
    (7168, 72, 40),
    (600, 200, 104),  # 5 x 4 tiles, 3 x 4 of pairs
)


@pytest.mark.parametrize("name, block_m", [("v5", 128), ("v6", 256)])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("seed", range(2))
def test_tiles_that_are_handed_out(name: str, block_m: int, shape: tuple[int, int, int], seed: int) -> None:
    """Whoever takes over whose tiles: each is computed once, and nothing is found."""
    m, n, k = shape
    generator = torch.Generator().manual_seed(seed)
    a, b = (torch.randn(rows, k, generator=generator).half() for rows in (m, n))
    c = torch.full((m, n), float("nan")).half()
    run = simulate(rung(name), m, n, k, a, b, c, schedule={**PINS, "block_m": block_m}, seed=seed, workers=1)
    assert not run.findings, [str(f) for f in run.findings]
    assert run.counts["clusterlaunchcontrol.try_cancel"] == -(-m // block_m) * -(-n // PINS["block_n"])
    verdict = check_matmul(a, b, c)
    assert verdict.ok, verdict.message
