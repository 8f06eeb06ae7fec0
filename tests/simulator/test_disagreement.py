"""Where a tensor and the kernel's view of it differ, and where that is told."""

from __future__ import annotations

import pytest
import torch
from clean import only
from scripts_memory import Copy2D
from tilus import float16, float32

from blackwell_matmul.simulator import Run, simulate


def run(x: torch.Tensor, shape: tuple[int, int] = (64, 64), row: int = 64, column: int = 1, dtype=float16) -> Run:
    y = torch.zeros(shape, dtype=torch.float32 if dtype is float32 else torch.float16)
    return simulate(Copy2D(dtype), *shape, row, column, x, y, workers=1)


def half(*shape: int) -> torch.Tensor:
    return torch.zeros(shape, dtype=torch.float16)


@pytest.mark.parametrize(
    ("x", "words"),
    [
        (
            half(64, 64).T,
            "x_ptr is a transposed view of shape [64, 64] with strides (1, 64); the kernel takes it as row-major "
            "[64, 64]: pass x_ptr.contiguous()",
        ),
        (
            half(64, 128)[:, ::2],
            "x_ptr is a strided view of shape [64, 64] with strides (128, 2); the kernel takes it as row-major "
            "[64, 64]: pass x_ptr.contiguous()",
        ),
        (half(32, 128), "x_ptr has shape [32, 128]; the kernel takes it as [64, 64]"),
        (half(8192), "x_ptr has shape [8192]; the kernel takes it as [64, 64]"),
        (torch.zeros(64, 64), "x_ptr is a tensor of float32; the kernel takes it as float16"),
    ],
)
def test_a_tensor_that_is_not_what_the_kernel_takes_it_as(x: torch.Tensor, words: str) -> None:
    found = run(x)
    assert found.disagreements == (words,)
    assert found.ok and not found.findings


@pytest.mark.parametrize("x", [half(64, 64), half(4096), half(64, 1, 64), half(4, 16, 64)])
def test_memory_that_is_what_the_kernel_takes_it_as(x: torch.Tensor) -> None:
    assert run(x).disagreements == ()


def test_strides_that_the_kernel_was_told() -> None:
    assert run(half(64, 64).T, row=1, column=64).disagreements == ()
    assert run(half(64, 128)[:, :64], row=128).disagreements == ()
    assert (
        "the kernel takes it as [64, 64] with strides (256, 1)" in run(half(64, 512)[:, ::4], row=256).disagreements[0]
    )


def test_one_memory_under_two_names_agrees_where_either_does() -> None:
    x = half(64, 64)
    assert simulate(Copy2D(float16), 64, 64, 64, 1, x.T, x, workers=1).disagreements == ()


def test_an_access_outside_says_why() -> None:
    finding = only(run(half(64, 32)), "out-of-bounds")
    assert "(4096 bytes) ends before it: x_ptr has shape [64, 32]; the kernel takes it as [64, 64]" in finding.message
