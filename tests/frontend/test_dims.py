"""Dimensions of a copy in another order than tilus takes them: refused, by simulate and compile alike."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from copy_scripts import Dims

from blackwell_matmul import compile, simulate
from blackwell_matmul.base.errors import CompileError
from blackwell_matmul.frontend.faults import refusals

WAYS = ("load_global", "store_global", "copy_async", "tma.shared_to_global")


def tile() -> torch.Tensor:
    return torch.arange(1024, dtype=torch.int32).reshape(32, 32)


@pytest.mark.parametrize("run", [simulate, compile])
@pytest.mark.parametrize("how", WAYS)
@pytest.mark.parametrize("dims", [[1, 0], [1, 1]])
def test_another_order_is_refused_with_its_line(run: Any, how: str, dims: list[int]) -> None:
    with pytest.raises(CompileError, match=r"(dims|dimension).*copy_scripts\.py:\d+"):
        run(Dims(how, dims), tile(), torch.zeros_like(tile()))


@pytest.mark.parametrize("how", WAYS)
def test_the_ascending_order_is_right(how: str) -> None:
    x, y = tile(), torch.zeros_like(tile())
    assert simulate(Dims(how, [0, 1]), x, y).ok
    assert torch.equal(x, y)


def test_what_tilus_makes_of_another_order(monkeypatch: pytest.MonkeyPatch) -> None:
    """The fault itself: the tile is not transposed."""
    monkeypatch.setattr(refusals, "_dims", lambda inst, names: None)
    x, y = tile(), torch.zeros_like(tile())
    assert simulate(Dims("load_global", [1, 0]), x, y).ok
    assert torch.equal(x, y)
