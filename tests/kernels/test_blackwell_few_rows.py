"""The product of few rows on Blackwell: right in both witnesses, and a fault where a wait or a scope is missing."""

from __future__ import annotations

import pytest
import torch

from blackwell_matmul import assert_clean, check, compile, emulate, predict, simulate
from blackwell_matmul.base.errors import InputError
from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.kernels import rung
from blackwell_matmul.kernels.products.few_rows import BlackwellFewRows
from blackwell_matmul.problem.problem import Problem, Schedule
from blackwell_matmul.scheduling import space
from blackwell_matmul.scheduling.rules import why_not

B200 = GPUS["B200"]
SHAPES = [(1, 200, 264, 2), (16, 128, 1024, 8), (20, 136, 640, 4), (33, 256, 128, 1)]
"""m, n, k and split_k, with rows and columns outside of the last tiles."""


def operands(m: int, n: int, k: int, dtype: torch.dtype = torch.float16) -> tuple[torch.Tensor, ...]:
    generator = torch.Generator().manual_seed(m * n + k)
    a, b = (torch.randint(-3, 4, (rows, k), generator=generator).to(dtype) for rows in (m, n))
    return a, b, torch.full((m, n), float("nan"), dtype=torch.bfloat16 if dtype.itemsize == 1 else dtype)


@pytest.mark.slow
@pytest.mark.parametrize(("m", "n", "k", "split_k"), SHAPES)
@pytest.mark.parametrize("columns", [16, 32])
def test_it_is_exact_simulated_and_compiled(m: int, n: int, k: int, split_k: int, columns: int) -> None:
    a, b, c = operands(m, n, k)
    right = (a.double() @ b.double().T).to(c.dtype)
    pins = {"block_n": columns, "split_k": split_k, "stages": 3}
    run = simulate(BlackwellFewRows, m, n, k, a, b, c, schedule=pins)
    assert run.ok and not run.findings and torch.equal(c, right)
    emulate(compile(BlackwellFewRows, m, n, k, a, b, c.fill_(0), schedule=pins), m, a, b, c)
    assert torch.equal(c, right)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_it_takes_the_types_of_the_ladder(dtype: torch.dtype) -> None:
    a, b, c = operands(9, 144, 256, dtype)
    assert BlackwellFewRows()(9, 144, 256, a, b, c).ok
    assert torch.equal(c, (a.double() @ b.double().T).to(c.dtype))


def test_it_is_clean_in_every_order() -> None:
    assert_clean("few", 20, 136, 640, schedule="split_k=4,stages=2", orders=8)


@pytest.mark.parametrize("gpu", ["B200", "GB200", "B300"])
@pytest.mark.parametrize(("m", "n", "k"), [(1, 4096, 4096), (16, 1024, 65536), (128, 4096, 4096), (7, 8, 64)])
def test_a_schedule_is_chosen(gpu: str, m: int, n: int, k: int) -> None:
    problem = Problem(m, n, k, "bf16")
    assert why_not(space.choose(rung("few"), problem, GPUS[gpu]), problem, GPUS[gpu]) == []


def test_few_rows_of_a_long_k_take_far_less_than_by_the_ladder() -> None:
    few, ladder = (predict(name, 16, 1024, 16384, dtype="bf16", explained=False).time_us for name in ("few", "v4"))
    assert few < ladder / 2


def test_each_part_needs_a_k_tile() -> None:
    schedule = Schedule(128, 16, 64, stages=2, split_k=8, swap_ab=1, features=BlackwellFewRows.features)
    (why,) = why_not(schedule, Problem(16, 128, 256), B200)
    assert why == "split_k = 8: K = 256 has 4 k-tiles of 64; each part needs one."
    with pytest.raises(InputError, match="each part needs one"):
        space.choose(BlackwellFewRows, Problem(16, 128, 256), B200, {"split_k": 8})


def test_what_the_ladder_refuses_is_refused() -> None:
    with pytest.raises(InputError, match="pad K to 104"):
        check("few", 16, 128, 100)
