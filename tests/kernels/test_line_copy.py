"""`LineCopy`: any lines, elements beyond the lines, and calls that do not fit."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.compiler import compile
from blackwell_matmul.emulator import emulate
from blackwell_matmul.kernels.products.line_copy import LineCopy
from blackwell_matmul.simulator import simulate

TYPES = (torch.bfloat16, torch.float16, torch.float8_e4m3fn, torch.float8_e5m2)


def call(batches: int, lines: int, length: int, dtype: torch.dtype) -> list[Any]:
    """Return the arguments of a copy of lines that begin at the second element of a longer line."""
    generator = torch.Generator().manual_seed(0)
    source = torch.randn(batches, lines, length + 2, generator=generator).to(dtype)[..., 1:-1]
    target = torch.full((batches, lines, length + 5), 7.0).to(dtype)[..., :length]
    return [batches, lines, length, *source.stride()[:2], target.stride(1), source, target]


def alone(arguments: list[Any]) -> list[Any]:
    """Return the arguments of a call without a second operand."""
    return arguments + [0] * len(arguments)


@pytest.mark.process
@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("sizes", [(1, 1, 1), (1, 9, 257), (3, 8, 256), (2, 13, 511)])
def test_lines_are_copied_and_nothing_beside_them(sizes: tuple[int, int, int], dtype: torch.dtype) -> None:
    arguments = call(*sizes, dtype)
    *_, source, target = arguments
    assert not simulate(LineCopy(), *alone(arguments), target="sm_90a").findings
    whole = target.as_strided((*sizes[:2], sizes[2] + 5), target.stride()).float()
    assert torch.equal(target.float(), source.float()) and (whole[..., sizes[2] :] == 7).all()


@pytest.mark.slow
@pytest.mark.parametrize("target", ["sm_90a", "sm_100a"])
def test_the_compiled_kernel_copies_the_same(target: str) -> None:
    arguments = call(2, 13, 511, torch.bfloat16) + call(1, 9, 300, torch.bfloat16)
    emulate(compile(LineCopy(), *arguments, target=target), *arguments)
    assert torch.equal(arguments[7], arguments[6]) and torch.equal(arguments[15], arguments[14])


@pytest.mark.parametrize(
    ("place", "value", "message"),
    [
        (1, 4, r"source has shape \(2, 3, 5\); it must be \(b, m, l\) = \(2, 4, 5\)"),
        (4, 6, r"source has strides \(21, 7, 1\), and is passed with \(21, 6, 1\)"),
        (5, 9, r"target has strides \(30, 10, 1\), and is passed with \(27, 9, 1\)"),
        (7, torch.zeros(2, 3, 10)[..., :5], "target is torch.float32"),
        (8 + 2, 0, "l is 0"),
    ],
)
def test_arguments_that_do_not_fit_are_refused(place: int, value: Any, message: str) -> None:
    given = call(2, 3, 5, torch.bfloat16) + call(2, 3, 5, torch.bfloat16)
    given[place] = value
    with pytest.raises(InputError, match=message):
        LineCopy.complete({}, given, "sm_90a")


def test_a_target_in_the_source_and_operands_of_two_types_are_refused() -> None:
    given = call(2, 3, 5, torch.bfloat16)
    given[3:5], given[6] = (30, 10), given[7]
    with pytest.raises(InputError, match="c shares memory with source"):
        LineCopy.complete({}, alone(given), "sm_90a")
    given = call(2, 3, 5, torch.bfloat16) + call(2, 3, 5, torch.float16)
    with pytest.raises(InputError, match=r"second_source is torch\.float16 and source is torch\.bfloat16"):
        LineCopy.complete({}, given, "sm_90a")
