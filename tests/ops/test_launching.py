"""Launches of calls of a known kind, with a launch that stores by the CPU."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import pytest
import torch
from torch import Tensor

from blackwell_matmul.ops.launching import ProductPlan, Ready, ReadyApart
from blackwell_matmul.runtime import torch_cuda


class Stored:
    """Stores a matrix at C's address, the rows `line` elements apart."""

    device = 0

    def __init__(self, c: Tensor, line: int, packed: bool = True) -> None:
        self.c, self.line, self.packed, self.seen = c, line, packed, list[int]()

    def at(self, addresses: Sequence[int]) -> bool:
        self.seen = list(addresses)
        row_bytes = self.c.shape[-1] * self.c.itemsize
        for number, row in enumerate(self.c.flatten(0, -2) if self.packed else ()):
            at = addresses[2] + number * self.line * self.c.itemsize
            ctypes.memmove(at, row.contiguous().data_ptr(), row_bytes)
        return self.packed


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def allocated(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: int) -> Tensor:
        return torch.empty_strided(shape, strides, dtype=dtype)

    monkeypatch.setattr(torch_cuda, "allocated", allocated)


@pytest.mark.parametrize(
    ("shape", "dtype", "line"),
    [
        ((3, 5), torch.bfloat16, 8), ((2, 3, 6), torch.bfloat16, 8), ((2, 2, 3, 4), torch.bfloat16, 8),
        ((4, 3), torch.float32, 4), ((4, 6), torch.float32, 8),
    ],
)  # fmt: skip
def test_rows_that_a_kernel_stores_apart_are_packed(shape: tuple[int, ...], dtype: torch.dtype, line: int) -> None:
    c = torch.randn(shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    stored = Stored(c, line)
    ready = ReadyApart(stored, shape, dtype, 2, line)  # type: ignore[arg-type]  # what it needs of Launches
    made = ready([1, 2, 4])
    assert made is not None and made.is_contiguous() and torch.equal(made, c)
    assert (stored.seen[:2], stored.seen[3:]) == ([1, 2], [4])
    turned = ready.turned()([1, 2])
    assert turned is not None and torch.equal(turned, c.mT) and turned.mT.is_contiguous()


def test_without_a_packed_launch_there_is_no_result() -> None:
    ready = ReadyApart(Stored(torch.zeros(2, 3), 4, packed=False), (2, 3), torch.float32, 2, 4)  # type: ignore[arg-type]
    assert ready([1, 2]) is None


def test_a_column_that_is_stored_apart_has_no_ready_call() -> None:
    """A matrix times a vector has a result [m], whose elements the kernel stores apart."""
    a, b = torch.randn(3, 8).bfloat16(), torch.randn(8, 1).bfloat16()
    launches = Stored(torch.zeros(3, 1), 8)
    plan = ProductPlan(launches, (3, 1, 8), None, None, (3, 8), 1, torch.bfloat16)  # type: ignore[arg-type]
    addresses = [a.data_ptr(), b.data_ptr()]
    assert type(plan.ready((a, b), addresses, (3, 1))) is ReadyApart and plan.ready((a, b), addresses, (3,)) is None
    whole = ProductPlan(launches, (3, 1, 8), None, None, (3, 1), 1, torch.bfloat16)  # type: ignore[arg-type]
    assert type(whole.ready((a, b), addresses, (3,))) is Ready
