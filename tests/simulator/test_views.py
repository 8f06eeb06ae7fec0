"""Slices, permutations, reshapes and single elements of memory."""

from __future__ import annotations

import pytest
import torch
from clean import clean, only
from scripts_memory import Items, SharedParts, SliceRow

from blackwell_matmul.simulator import simulate


def test_parts_of_a_shared_tensor() -> None:
    x = torch.arange(2048).remainder(997).half().reshape(4, 16, 32)
    y, z = torch.zeros(16, 32, dtype=torch.float16), torch.zeros(32, 4, 16, dtype=torch.float16)
    r = torch.zeros(64, 32, dtype=torch.float16)
    clean(SharedParts(), x, y, z, r)
    assert torch.equal(y, x[2])
    assert torch.equal(z, x.permute(2, 0, 1))
    assert torch.equal(r, x.reshape(64, 32))


@pytest.mark.parametrize("index", [0, 3])
def test_row_of_a_global_tensor(index: int) -> None:
    x, y = torch.arange(128.0).reshape(4, 32), torch.zeros(32)
    clean(SliceRow(), index, x, y)
    assert torch.equal(y, x[index])


@pytest.mark.parametrize(("index", "nearest"), [(4, 3), (-1, 0)])
def test_row_that_does_not_exist(index: int, nearest: int) -> None:
    x, y = torch.arange(128.0).reshape(4, 32), torch.zeros(32)
    finding = only(simulate(SliceRow(), index, x, y), "out-of-bounds")
    assert f"index {index} of dimension 0, which has 4 elements" in finding.message
    assert finding.location is not None
    assert torch.equal(y, x[nearest])


def test_items_and_addresses() -> None:
    x, y = torch.arange(32, dtype=torch.int32).reshape(4, 8), torch.zeros(4, dtype=torch.int32)
    x[1, 3] = 2
    clean(Items(), x, y)
    assert torch.equal(y, x[2, 2:6] + 4)
