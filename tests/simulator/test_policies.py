"""Policies and seeds on the ladder: the same bits, and the same silence."""

from __future__ import annotations

import pytest
import torch
from orders import ORDERS, run_in

from blackwell_matmul.harness import check_matmul
from blackwell_matmul.kernels import rung


@pytest.mark.slow
@pytest.mark.parametrize("name", ["v0", "v1", "v2"])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_rung_gives_the_same_bits_in_every_order(name: str, dtype: torch.dtype) -> None:
    generator = torch.Generator().manual_seed(0)
    m, n, k = 129, 136, 200
    a, b = (torch.randn(rows, k, generator=generator).to(dtype) for rows in (m, n))
    first = None
    for order in ORDERS:
        c = torch.full((m, n), float("nan"), dtype=dtype)
        run = run_in(order, rung(name), m, n, k, a, b, c)
        assert not run.findings, (order, [str(f) for f in run.findings])
        first = c if first is None else first
        assert torch.equal(c, first), order
    assert first is not None and check_matmul(a, b, first).ok
