"""Silence on kernels that are right: a seeded sample of schedules and odd shapes, in three orders.

All schedules, over more shapes: `python bench/sweep.py`.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterator

import pytest
import torch

from blackwell_matmul.hardware.gpus import gpu_for_target
from blackwell_matmul.harness import check_matmul
from blackwell_matmul.kernels import KERNELS, rung
from blackwell_matmul.problem.problem import Problem, Schedule
from blackwell_matmul.scheduling.rules import why_not
from blackwell_matmul.scheduling.space import projection
from blackwell_matmul.simulator import simulate

MS, NS, KS = (1, 17, 129, 200), (8, 24, 72, 136), (8, 16, 40, 128, 264)
ORDERS = (("adversarial", 0), ("eager", 0), ("random", 1))
EACH = 2

Case = tuple[str, Schedule, tuple[int, int, int]]


def cases() -> Iterator[Case]:
    draw = random.Random(4)
    for name in KERNELS:
        gpu, smallest = gpu_for_target(rung(name).target), Problem(1, 8, 8, "fp16")
        listed = projection(rung(name))
        able = (schedule for schedule in draw.sample(listed, len(listed)) if not why_not(schedule, smallest, gpu))
        for schedule in itertools.islice(able, EACH):
            yield name, schedule, (draw.choice(MS), draw.choice(NS), draw.choice(KS))


@pytest.mark.parametrize("name, schedule, shape", list(cases()), ids=str)
def test_a_correct_kernel_is_silent(name: str, schedule: Schedule, shape: tuple[int, int, int]) -> None:
    m, n, k = shape
    generator = torch.Generator().manual_seed(0)
    a, b = (torch.randn(rows, k, generator=generator).half() for rows in (m, n))
    sm_count = max(2, (schedule.cluster_m or 1) * (schedule.cluster_n or 1) * (schedule.split_k or 1))
    kernel = rung(name)(sm_count=sm_count) if "persistent" in rung(name).features else rung(name)
    for policy, seed in ORDERS:
        c = torch.full((m, n), float("nan")).half()
        run = simulate(kernel, m, n, k, a, b, c, schedule=schedule, policy=policy, seed=seed, workers=1)
        assert not run.findings, (policy, seed, [str(f) for f in run.findings])
        assert check_matmul(a, b, c).ok
