"""Launches of calls of a known kind, with launches that the CPU executes."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from blackwell_matmul.ops.launching import ProductPlan, Ready
from blackwell_matmul.ops.placing import CopiedLines, OperandCopies, in_lines
from blackwell_matmul.runtime import torch_cuda


class Stored:
    """Stores a contiguous tensor at C's address, if the launch is packed."""

    device = 0

    def __init__(self, c: Tensor, packed: bool = True) -> None:
        self.c, self.packed, self.seen = c, packed, list[int]()

    def at(self, addresses: Sequence[int]) -> bool:
        self.seen = list(addresses)
        if self.packed:
            ctypes.memmove(addresses[2], self.c.data_ptr(), self.c.nbytes)
        return self.packed


@pytest.fixture(autouse=True)
def on_the_cpu(monkeypatch: pytest.MonkeyPatch) -> None:
    def allocated(shape: Sequence[int], strides: Sequence[int], dtype: torch.dtype, device: int) -> Tensor:
        return torch.empty_strided(shape, strides, dtype=dtype)

    monkeypatch.setattr(torch_cuda, "allocated", allocated)


@pytest.mark.parametrize("shape", [(3, 5), (2, 3, 6), (2, 2, 3, 4)])
def test_the_result_is_stored_into_new_memory(shape: tuple[int, ...]) -> None:
    stored = Stored(torch.randn(shape, generator=torch.Generator().manual_seed(0)))
    ready = Ready(stored, shape, torch.float32, 2)  # type: ignore[arg-type]  # what it needs of Launches
    made = ready([1, 2, 4])
    assert made is not None and made.is_contiguous() and torch.equal(made, stored.c)
    assert (stored.seen[:2], stored.seen[3:]) == ([1, 2], [4])
    turned = ready.turned()([1, 2])
    assert turned is not None and torch.equal(turned, stored.c.mT) and turned.mT.is_contiguous()


def test_without_a_packed_launch_there_is_no_result() -> None:
    ready = Ready(Stored(torch.zeros(2, 3), packed=False), (2, 3), torch.float32, 2)  # type: ignore[arg-type]
    assert ready([1, 2]) is None


def test_a_call_whose_result_is_copied_is_not_kept() -> None:
    a, b = torch.randn(3, 8).bfloat16(), torch.randn(8, 1).bfloat16()
    addresses, launches = [a.data_ptr(), b.data_ptr()], Stored(torch.zeros(3, 1))
    for line, kept in ((8, type(None)), (1, Ready)):
        plan = ProductPlan(launches, (3, 1, 8), OperandCopies(), (3, line), 1, torch.bfloat16)  # type: ignore[arg-type]
        assert type(plan.ready((a, b), addresses, (3,))) is kept


def test_a_call_copies_operands_before_the_product() -> None:
    """The product is launched at the addresses of the copies."""
    a, b = torch.randn(3, 7).bfloat16(), torch.randn(5, 7).bfloat16()
    stored, given = Stored(torch.zeros(3, 5)), [a.data_ptr(), b.data_ptr()]
    lines, launch = CopiedLines(a, b), Copied()
    lines._launches = launch  # type: ignore[assignment]  # what it needs of Launches
    plan = ProductPlan(stored, (3, 5, 7), OperandCopies(by_kernel=lines), (3, 5), 5, torch.float32)  # type: ignore[arg-type]
    ready = plan.ready((a, b.T), given, (3, 5))
    assert ready is not None
    made = ready(list(given))
    assert made is not None and torch.equal(made, stored.c) and list(launch.seen[::2]) == given
    assert stored.seen[:2] == list(launch.seen[1::2]) and launch.seen[3] - launch.seen[1] == 3 * 8 * 2 + 80
    launch.packed = False
    assert ready(list(given)) is None


@pytest.mark.parametrize("place", [0, 1])
def test_a_call_copies_one_operand(place: int) -> None:
    a, b = torch.randn(3, 7).bfloat16(), torch.randn(5, 7).bfloat16()
    stored, given = Stored(torch.zeros(3, 5)), [a.data_ptr(), b.data_ptr()]
    lines, launch = CopiedLines(a if place == 0 else None, b if place == 1 else None), Copied()
    lines._launches = launch  # type: ignore[assignment]  # what it needs of Launches
    assert Ready(stored, (3, 5), torch.float32, 2, lines)(list(given)) is not None  # type: ignore[arg-type]
    assert launch.seen[0] == given[place] and stored.seen[1 - place] == given[1 - place]
    assert stored.seen[place] == launch.seen[1] and len(launch.seen) == 2
    plan = ProductPlan(stored, (3, 5, 7), OperandCopies(), (3, 5), 5, torch.float32)  # type: ignore[arg-type]
    assert plan.ready((a, b.T), given, (3, 5)) is not None
    assert replace(plan, copies=OperandCopies((None, in_lines))).ready((a, b.T), given, (3, 5)) is None


class Copied:
    """Notes the addresses of a copy, if its launch is packed."""

    device = 0
    packed = True
    seen: Sequence[int] = ()

    def at(self, addresses: Sequence[int]) -> bool:
        self.seen = addresses
        return self.packed
