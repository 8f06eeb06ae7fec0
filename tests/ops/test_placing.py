"""Copies of what TMA does not address: the same numbers, in rows that lie apart or follow each other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from blackwell_matmul.kernels.host.forms import lines_of
from blackwell_matmul.ops import placing

TYPES = (torch.bfloat16, torch.float32, torch.float8_e4m3fn)
SLICES: dict[str, Callable[[Tensor], Tensor]] = {
    "whole": lambda x: x,
    "later rows": lambda x: x[:, 1:],
    "from the second column": lambda x: x[..., 1:],
    "from the fifth column": lambda x: x[..., 4:],
    "turned": lambda x: x.mT,
    "expanded": lambda x: x[:1].expand(4, -1, -1),
    "every second": lambda x: x[..., ::2],
}


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("columns", [1004, 1002, 1001, 12])
@pytest.mark.parametrize("taken", SLICES)
def test_a_copy_has_the_same_numbers(dtype: torch.dtype, columns: int, taken: str) -> None:
    x = SLICES[taken](torch.randn(3, 5, columns, generator=torch.Generator().manual_seed(1)).to(dtype))
    apart = placing.k_major(x)
    assert torch.equal(apart.float(), x.float()) and apart.stride(-2) * x.element_size() % 16 == 0
    row = placing.packed(apart)
    assert torch.equal(row.float(), x.float()) and row.is_contiguous()
    assert torch.equal(placing.with_zeros(x[0])[:, : x.shape[-1]].float(), x[0].float())


@pytest.mark.parametrize(
    ("begins", "columns", "word"),
    [
        (0, 100, torch.int64),
        (4, 96, torch.int64),
        (2, 96, torch.int32),
        (0, 98, torch.int32),
        (1, 96, None),
        (0, 97, None),
    ],
)
def test_rows_are_copied_in_the_widest_words_that_both_have(
    begins: int, columns: int, word: torch.dtype | None
) -> None:
    x, made = torch.zeros(4, 104, dtype=torch.float16), torch.empty(4, 128, dtype=torch.float16)
    asked = [each for each in placing.WORDS if placing._is_of(each, x[:, begins : begins + columns])]
    assert (asked[0] if asked else None) == word
    assert placing._is_of(torch.int64, made[:, :100]) and not placing._is_of(torch.int64, made.T)


def test_a_copy_of_another_type_is_converted() -> None:
    x = torch.arange(8.0).view(2, 4).to(torch.float8_e4m3fn)
    assert torch.equal(placing.widened(x), x.bfloat16())


OPERANDS: dict[str, Callable[[], Tensor]] = {
    "rows": lambda: torch.randn(6, 37),
    "columns": lambda: torch.randn(37, 6).T,
    "batches": lambda: torch.randn(3, 6, 37),
    "batches of columns": lambda: torch.randn(3, 37, 6).mT,
    "a slice": lambda: torch.randn(6, 300)[:, 1:290],
    "equal lines": lambda: torch.randn(1, 37).expand(6, -1),
    "one column": lambda: torch.randn(6, 3)[:, :1],
}


@pytest.mark.process
@pytest.mark.parametrize(
    ("name", "dtype"),
    [(name, torch.bfloat16) for name in OPERANDS] + [(name, torch.float8_e4m3fn) for name in ("rows", "batches")],
)
def test_operands_are_copied_into_lines_that_tma_reads(name: str, dtype: torch.dtype) -> None:
    x = OPERANDS[name]().to(dtype)
    made = placing.CopiedLines(None, x)(OPERANDS["rows"](), x)[1]
    assert torch.equal(made.float(), x.float())
    assert made.stride() == placing.in_lines(x).stride()
    if x.dim() == 2:
        assert lines_of(made) == placing.lines_of_copy(x)


def test_two_operands_are_copied_by_one_launch() -> None:
    x, y = OPERANDS["batches of columns"]().bfloat16(), torch.randn(5, 7).bfloat16()
    made = placing.CopiedLines(x, y)(x, y)
    assert torch.equal(made[0], x) and torch.equal(made[1], y)
    assert all(each.data_ptr() % 16 == 0 for each in made)
    assert made[0].untyped_storage().data_ptr() == made[1].untyped_storage().data_ptr()
