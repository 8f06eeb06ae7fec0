"""Thread groups: who executes what."""

from __future__ import annotations

import pytest
import torch
from clean import clean
from scripts_control import Groups, HandOver

from blackwell_matmul.simulator import simulate

PARTS = {
    "groups": [(0, 64, 1), (64, 64, 2)],
    "warps": [(0, 32, 1), (32, 32, 2), (64, 32, 3), (96, 32, 4)],
    "halves": [(16 * half, 16, half) for half in range(8)],
    "upper half": [(48, 16, 9)],
    "nested": [(96, 32, 5)],
    "single": [(3, 1, 11), (65, 1, 12)],
}


@pytest.mark.parametrize("seed", [0, 3])
@pytest.mark.parametrize("kind", PARTS)
def test_groups(kind: str, seed: int) -> None:
    y = torch.full((128,), -1, dtype=torch.int32)
    run = simulate(Groups(kind), y, seed=seed)
    assert run.ok
    want = torch.full((128,), -1, dtype=torch.int32)
    for begin, count, value in PARTS[kind]:
        want[begin : begin + count] = value * 1000 + torch.arange(count)
    assert torch.equal(y, want)
    assert [finding.code for finding in run.findings] == (["never-written"] if (want < 0).any() else [])


@pytest.mark.parametrize("seed", range(5))
def test_a_barrier_orders_two_groups(seed: int) -> None:
    x, y = torch.arange(256).half(), torch.zeros(256, dtype=torch.float16)
    clean(HandOver(), x, y, seed=seed)
    assert torch.equal(x, y)
