"""Tiles of 16 and 32 rows, of whose 64 rows in shared memory only those are loaded."""

from __future__ import annotations

import re

import pytest
import torch

from blackwell_matmul import check, compile, emulate
from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.kernels import rung
from blackwell_matmul.kernels.parts.zero_padding import ZeroPadding
from blackwell_matmul.problem.form import Form
from blackwell_matmul.problem.problem import Problem, Schedule
from blackwell_matmul.scheduling.rules import why_not
from blackwell_matmul.scheduling.space import choose

N, K = 88, 200
SCHEDULE = {"block_k": 64, "e_block_n": 16, "stages": 3, "consumers": 1, "group_m": 16, "cluster_m": 1, "cluster_n": 1}


def operands(m: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Small integers, whose sums are exact."""
    made = torch.Generator().manual_seed(m)
    a, b = (torch.randint(-3, 4, (rows, K), generator=made).to(torch.bfloat16) for rows in (m, N))
    return a, b, torch.full((m, N), torch.nan, dtype=torch.bfloat16)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("m", "block_m", "block_n", "split_k"),
    [
        (1, 16, 64, 1), (24, 16, 64, 4), (33, 32, 80, 2), (16, 16, 80, 2), (32, 32, 64, 1),
    ],
)  # fmt: skip
def test_a_product_of_few_rows(m: int, block_m: int, block_n: int, split_k: int) -> None:
    schedule = {**SCHEDULE, "block_m": block_m, "block_n": block_n, "split_k": split_k}
    a, b, c = operands(m)
    exact = (a.double() @ b.double().T).to(c.dtype)
    assert check(rung("hopper"), m, N, K, a, b, c, schedule=schedule).ok
    assert torch.equal(c, exact)
    c.fill_(torch.nan)
    emulate(compile(rung("hopper"), m, N, K, a, b, c, schedule=schedule), m, N, K, a, b, c)
    assert torch.equal(c, exact)


def clear_nothing(self):  # type: ignore[no-untyped-def]  # tilus reads it
    self.fence.proxy_async(space="shared")


def test_the_other_rows_have_to_be_cleared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ZeroPadding, "clear", clear_nothing)
    a, b, c = operands(16)
    schedule = {**SCHEDULE, "block_m": 16, "block_n": 96, "split_k": 1}
    report = check(rung("hopper"), 16, N, K, a, b, c, schedule=schedule)
    assert "uninitialised-read" in {finding.code for finding in report.findings}


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float8_e4m3fn])
def test_a_thread_clears_16_bytes_at_once(dtype: torch.dtype) -> None:
    """Stores of single bytes took longer than the loads of the first k-tiles."""
    a, b = (torch.zeros(rows, 256).to(dtype) for rows in (16, N))
    c = torch.empty(16, N, dtype=torch.bfloat16)
    schedule = {**SCHEDULE, "block_m": 16, "block_n": 64, "block_k": 128 // dtype.itemsize, "split_k": 1}
    ptx = compile(rung("hopper"), 16, N, 256, a, b, c, schedule=schedule).ptx
    assert set(re.findall(r"st\.shared\.\S+", ptx)) == {"st.shared.v4.u32"}


def test_they_are_chosen_for_so_few_rows_alone() -> None:
    for m, most in ((1, 16), (16, 16), (40, 32)):
        assert choose(rung("hopper"), Problem(m, 4096, 4096, "bf16"), GPUS["H200"]).block_m == most
    for m in (64, 256):
        assert choose(rung("hopper"), Problem(m, 4096, 4096, "bf16"), GPUS["H200"]).block_m >= 64


def test_of_an_a_that_is_contiguous_along_m_there_are_none() -> None:
    schedule = Schedule(**SCHEDULE, block_m=16, block_n=64, split_k=1, mma="wgmma", features=rung("hopper").features)
    reasons = why_not(schedule, Problem(16, 128, 128, "bf16", form=Form(a_major="m")), GPUS["H200"])
    assert reasons == ["block_m = 16: of an A that is contiguous along m a tile has 64 rows or more; 64 fits."]
