"""A tile of C that leaves in one strip, whose rows are too long for a swizzle."""

from __future__ import annotations

import pytest
import torch

from blackwell_matmul import check, compile, emulate
from blackwell_matmul.kernels import rung
from blackwell_matmul.scheduling.wgmma_fragments import buffer_layout


@pytest.mark.slow
@pytest.mark.parametrize("block_n", [48, 80, 112, 144, 176])
def test_a_tile_can_leave_in_one_strip(block_n: int) -> None:
    schedule = {"block_m": 64, "block_n": block_n, "block_k": 64, "e_block_n": block_n, "consumers": 1}
    made = torch.Generator().manual_seed(0)
    m, n, k = 72, 2 * block_n, 64
    a, b = (torch.randint(-3, 4, (rows, k), generator=made).half() for rows in (m, n))
    c = torch.full((m, n), torch.nan).half()
    assert check(rung("hopper"), m, n, k, a, b, c, schedule=schedule).ok
    assert torch.equal(c.double(), a.double() @ b.double().T)
    c.fill_(torch.nan)
    emulate(compile(rung("hopper"), m, n, k, a, b, c, schedule=schedule), m, n, k, a, b, c)
    assert torch.equal(c.double(), a.double() @ b.double().T)


def test_rows_follow_each_other_where_they_are_too_long_for_a_swizzle() -> None:
    assert [buffer_layout(64, columns, 2).optional_swizzle is None for columns in (16, 64, 144)] == [False, False, True]
    assert buffer_layout(64, 144, 2)(1, 8) == 144 + 8
