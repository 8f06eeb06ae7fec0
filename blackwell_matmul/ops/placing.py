"""What a kernel reads where it is, and what is copied first.

| A[m, k] or B[n, k], or a batch of them | what happens |
|---|---|
| contiguous along k or along its rows; its lines begin at multiples of 16 bytes | read as it is |
| any other | one copy, contiguous along k, its rows padded to a multiple of 16 bytes |
| e4m3 beside e5m2, or e5m2 beside e4m3 | the same in bfloat16: no kernel multiplies one by the other |

`b` is given as torch gives it, with shape (k, n): a row-major one is contiguous along n, and `w.T` of a weight w[n, k]
along k. A slice of a larger tensor has its lines further apart.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from blackwell_matmul.kernels.forms import why_unreadable
from blackwell_matmul.kernels.group_calls import why_no_rows
from blackwell_matmul.kernels.matmul import ALIGNMENT_BYTES
from blackwell_matmul.ops.operand_checks import check_operands, check_optional, check_tensors, grouped_shape

MIXED = "the other one has another type of 8 bits, and both are multiplied in 16"
"""Why it is copied."""


def copies(a: Tensor, b: Tensor, offs: Tensor | None = None) -> list[str]:
    """The copies that `matmul(a, b)`, `scaled_mm` of 8 bits, or with offs `grouped_matmul(a, b, offs)` makes before its
    kernel, one sentence each; empty if it reads both as they are."""
    check_tensors(a=a, b=b)
    check_optional(offs=offs)
    if offs is not None:
        grouped_shape(a, b, offs)
        sides = [(a, why_no_rows(a)), (b, why_unreadable(b.mT))] if b.dim() == 3 else _of_sums(a, b)
    else:
        check_operands(a, b, scaled=a.element_size() == 1)
        sides = [(a, why_copied(a, b)), (b, why_copied(b.mT, a))]
    return [_sentence(name, x, reason) for name, (x, reason) in zip("ab", sides, strict=True) if reason]


def _of_sums(a: Tensor, b: Tensor) -> list[tuple[Tensor, str]]:
    """A group is rows of b, and columns of a."""
    return [(a, why_no_rows(a.mT)), (b, why_no_rows(b))]


def _sentence(name: str, x: Tensor, reason: str) -> str:
    """x: [.., m, k] or [.., k, n]."""
    lines, k = (x.shape[-2], x.shape[-1]) if name == "a" else (x.shape[-1], x.shape[-2])
    item = 2 if reason == MIXED else x.element_size()
    nbytes = x.shape[:-2].numel() * lines * padded(k, item) * item
    what = f"{name} with shape {tuple(x.shape)} and strides {x.stride()}"
    return f"{what} is copied ({nbytes} bytes): {reason}."


def why_copied(x: Tensor, other: Tensor) -> str:
    """Of an operand [.., rows, k] of a product that is not grouped; "" where it is read as it is."""
    return MIXED if x.dtype != other.dtype else why_unreadable(x)


def copying(x: Tensor, other: Tensor) -> Callable[[Tensor], Tensor] | None:
    """What makes the copy of such an operand; None where it is read as it is."""
    reason = why_copied(x, other)
    return widened if reason == MIXED else k_major if reason else None


def k_major(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A copy whose rows begin at multiples of 16 bytes. dtype: its type; None: x's."""
    *outer, k = x.shape
    dtype = dtype or x.dtype
    return x.new_empty((*outer, padded(k, dtype.itemsize)), dtype=dtype)[..., :k].copy_(x)


def widened(x: Tensor) -> Tensor:
    """8 bits in 16, exactly."""
    return k_major(x, torch.bfloat16)


def with_zeros(x: Tensor) -> Tensor:
    """The same with all of its padding, as zeros, for kernels that know no stride."""
    rows, k = x.shape
    made = x.new_zeros((rows, padded(k, x.element_size())))
    made[:, :k].copy_(x)
    return made


def padded(count: int, item_bytes: int) -> int:
    """The next count of elements that fills 16 bytes."""
    step = ALIGNMENT_BYTES // item_bytes
    return -(-count // step) * step


def is_plain(x: Tensor) -> bool:
    """Whether every rung of a ladder reads it: one matrix, K-major, its rows in a row."""
    whole = x.shape[-1] * x.element_size() % ALIGNMENT_BYTES == 0 and x.data_ptr() % ALIGNMENT_BYTES == 0
    return x.dim() == 2 and x.is_contiguous() and whole
