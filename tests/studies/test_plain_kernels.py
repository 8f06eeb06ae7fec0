"""A copy and an add without TMA: values of every type, and code for every GPU that the primitives run on."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from blackwell_matmul.compiler import compile
from blackwell_matmul.simulator import simulate
from blackwell_matmul_studies.plain_kernels import PlainAdd, PlainCopy

TYPES = (torch.float16, torch.bfloat16, torch.float32)


def clean(kernel: Any, *args: Any, target: str = "sm_100a") -> None:
    run = simulate(kernel, *args, target=target, workers=1)
    assert run.ok and not run.findings, [str(finding) for finding in run.findings]


@pytest.mark.parametrize("shape", [(1,), (1003,), (37, 24), (2, 3, 5, 3, 8), (4096,)])
def test_copy_and_add_without_tma(shape: tuple[int, ...]) -> None:
    for dtype in TYPES:
        x, y = torch.randn(shape).to(dtype), torch.randn(shape).to(dtype)
        copied, total = torch.full_like(x, torch.nan), torch.full_like(x, torch.nan)
        clean(PlainCopy(), x, copied)
        clean(PlainAdd(block=512, warps=2), x, y, total, target="sm_90a")
        assert torch.equal(x, copied) and torch.equal(total, x + y)


def test_without_tma_16_bytes_are_moved_at_a_time() -> None:
    x = torch.zeros(2**20)
    ptx = compile(PlainCopy(), x, x.clone(), target="sm_90a").ptx
    assert "ld.global.v4" in ptx and "st.global.v4" in ptx and "cp.async.bulk" not in ptx


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a", "sm_120a"])
def test_the_compiler_takes_them_for_every_gpu_with_tma(target: str) -> None:
    v = torch.zeros(100)
    for kernel, args in ((PlainCopy(), (v, v.clone())), (PlainAdd(), (v, v.clone(), v.clone()))):
        assert compile(kernel, *args, target=target).cubin
