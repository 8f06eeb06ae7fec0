"""What a kernel reads where it is, and what is copied first.

| A[m, k] or B[n, k], or a batch of them | what happens |
|---|---|
| contiguous along k or along its rows; its lines begin at multiples of 16 bytes | read as it is |
| any other | one copy, contiguous along k, its rows padded to a multiple of 16 bytes |

`b` is given as torch gives it, with shape (k, n): a row-major one is contiguous along n, and `w.T` of a weight w[n, k]
along k. A slice of a larger tensor has its lines further apart.
"""

from __future__ import annotations

from torch import Tensor

from blackwell_matmul.kernels.forms import why_unreadable
from blackwell_matmul.kernels.matmul import ALIGNMENT_BYTES
from blackwell_matmul.ops.operand_checks import check_operands, check_tensors


def copies(a: Tensor, b: Tensor) -> list[str]:
    """The copies that `matmul(a, b)`, or `scaled_mm` of 8 bits, makes before its kernel, one sentence each; empty if it
    reads both as they are."""
    check_tensors(a=a, b=b)
    check_operands(a, b, scaled=a.element_size() == 1)
    return [sentence for name, x in (("a", a), ("b", b.mT)) if (sentence := _why_copied(name, x))]


def _why_copied(name: str, x: Tensor) -> str | None:
    """x: [rows, k], or a batch; b is described as it was given, (k, rows)."""
    given = x if name == "a" else x.mT
    reason = why_unreadable(x)
    if not reason:
        return None
    nbytes = x.numel() // max(1, x.shape[-1]) * padded(x.shape[-1], x.element_size()) * x.element_size()
    what = f"{name} with shape {tuple(given.shape)} and strides {given.stride()}"
    return f"{what} is copied ({nbytes} bytes): {reason}."


def k_major(x: Tensor) -> Tensor:
    """A copy whose rows begin at multiples of 16 bytes."""
    *outer, k = x.shape
    return x.new_empty((*outer, padded(k, x.element_size())))[..., :k].copy_(x)


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
