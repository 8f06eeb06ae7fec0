"""What a kernel reads where it is, and what is copied first.

| A[m, k] or B[n, k], or a batch of them | what happens |
|---|---|
| contiguous along k or along its rows; its lines begin at multiples of 16 bytes | read as it is |
| any other | one copy, contiguous along k, its rows a multiple of 128 bytes apart, short ones of 16 |
| expanded over batches | the one matrix |
| several dimensions of batches, whose matrices do not lie at one distance | a copy before that |
| e4m3 beside e5m2, or e5m2 beside e4m3 | the same in bfloat16: no kernel multiplies one by the other |

`b` is given as torch gives it, with shape (k, n): a row-major one is contiguous along n, and `w.T` of a weight w[n, k]
along k. A slice of a larger tensor has its lines further apart.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.hardware.gpu_figures import ROW_BYTES
from blackwell_matmul.kernels.forms import why_unreadable
from blackwell_matmul.kernels.group_calls import why_no_rows
from blackwell_matmul.kernels.matmul import ALIGNMENT_BYTES
from blackwell_matmul.ops.operand_checks import (
    AS_OURS,
    Said,
    broadcast,
    check_columns,
    check_inner,
    check_operands,
    check_optional,
    check_tensors,
    grouped_shape,
    known,
)

FOLDED = "its batches do not lie at one distance from each other"
MIXED = "the other one has another type of 8 bits, and both are multiplied in 16"
"""Why one is copied."""


def copies(a: Tensor, b: Tensor, offs: Tensor | None = None) -> list[str]:
    """The copies that `matmul(a, b)`, `scaled_mm` of 8 bits, or with offs `grouped_matmul(a, b, offs)` makes before its
    kernel, one sentence each; empty if it reads both as they are."""
    check_tensors(a=a, b=b)
    check_optional(offs=offs)
    sides = _of_product(a, b) if offs is None else _of_groups(a, b, offs)
    return [_sentence("ab"[which % 2], x, reason) for which, (x, reason) in enumerate(sides) if reason]


def _of_product(a: Tensor, b: Tensor) -> list[tuple[Tensor, str]]:
    """Of a and b as they are given, and then as they are multiplied."""
    scaled = a.element_size() == 1
    flat_a, flat_b = (a, b) if scaled or min(a.dim(), b.dim()) < 2 else flattened(a, b)
    check_operands(flat_a, flat_b, scaled=scaled)
    folded = [(x, "" if flat.data_ptr() == x.data_ptr() else FOLDED) for x, flat in ((a, flat_a), (b, flat_b))]
    return [*folded, (lone(flat_a), why_copied(flat_a, flat_b)), (lone(flat_b), why_copied(flat_b.mT, flat_a))]


def flattened(a: Tensor, b: Tensor, said: Said = AS_OURS) -> tuple[Tensor, Tensor]:
    """a[.., m, k] and b[.., k, n] as `matmul` multiplies them: a matrix or one batch of them each."""
    check_inner(a, b, said)
    if b.dim() == 2:
        return (a if a.dim() == 2 else a.flatten(0, -2)), b
    batch = broadcast(a.shape[:-2], b.shape[:-2])
    if batch is None:
        raise InputError(f"{said.a} has shape {tuple(a.shape)} and {said.b} {tuple(b.shape)}; their batches differ.")
    return _flat(a, batch), _flat(b, batch)


def _flat(x: Tensor, batch: tuple[int, ...]) -> Tensor:
    """[batches, rows, columns], or the one matrix that all batches share."""
    if known(math.prod(x.shape[:-2]) == 1):
        return x.reshape(x.shape[-2:])
    return x.expand(*batch, *x.shape[-2:]).flatten(0, -3)


def _of_groups(a: Tensor, b: Tensor, offs: Tensor) -> list[tuple[Tensor, str]]:
    """In sums a group is rows of b, and columns of a."""
    if a.dim() == 3 and b.dim() == 2:
        check_columns(a, b, offs)
        return [(a, why_unreadable(a)), (b, why_no_rows(b.mT))]
    grouped_shape(a, b, offs)
    if b.dim() == 3:
        return [(a, why_no_rows(a)), (b, why_unreadable(b.mT))]
    return [(a, why_no_rows(a.mT)), (b, why_no_rows(b))]


def _sentence(name: str, x: Tensor, reason: str) -> str:
    """x: [.., m, k] or [.., k, n]."""
    lines, k = (x.shape[-2], x.shape[-1]) if name == "a" else (x.shape[-1], x.shape[-2])
    item = 2 if reason == MIXED else x.element_size()
    nbytes = math.prod(x.shape[:-2]) * lines * apart(k, item) * item
    what = f"{name} with shape {tuple(x.shape)} and strides {x.stride()}"
    return f"{what} is copied ({nbytes} bytes): {reason}."


def lone(x: Tensor) -> Tensor:
    """The one matrix that an expanded tensor has for all batches, as a batch; any other as it is."""
    return x[:1] if x.dim() == 3 and x.stride(0) == 0 else x


def why_copied(x: Tensor, other: Tensor) -> str:
    """Of an operand [.., rows, k] of a product that is not grouped; "" where it is read as it is."""
    return MIXED if x.dtype != other.dtype else why_unreadable(lone(x))


def copying(x: Tensor, other: Tensor) -> Callable[[Tensor], Tensor] | None:
    """What makes what is read of such an operand; None where it is read as it is."""
    reason = why_copied(x, other)
    copy = widened if reason == MIXED else k_major if reason else None
    if lone(x) is x:
        return copy
    return lone if copy is None else lambda x: copy(lone(x))


def k_major(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """A copy whose rows begin with lines of the L2: out of others TMA loads take up to twice as long. dtype: its type;
    None: x's."""
    *outer, k = x.shape
    dtype = dtype or x.dtype
    return filled(x.new_empty((*outer, apart(k, dtype.itemsize)), dtype=dtype)[..., :k], x)


def widened(x: Tensor) -> Tensor:
    """8 bits in 16, exactly."""
    return k_major(x, torch.bfloat16)


def with_zeros(x: Tensor) -> Tensor:
    """The same with all of its padding, as zeros, for kernels that know no stride."""
    rows, k = x.shape
    made = x.new_zeros((rows, padded(k, x.element_size())))
    filled(made[:, :k], x)
    return made


def packed(x: Tensor) -> Tensor:
    """x.contiguous()."""
    return x if x.is_contiguous() else filled(x.new_empty(x.shape), x)


WORDS = (torch.int64, torch.int32)


def filled(made: Tensor, x: Tensor) -> Tensor:
    """made.copy_(x), in words. Of rows that lie apart torch copies an element at a time: 8192 of 8196 numbers of 16
    bits take 156 us on an H200, and 73 in words of 64."""
    for word in WORDS:
        if made.dtype == x.dtype and _is_of(word, made) and _is_of(word, x):
            made.detach().view(word).copy_(x.detach().view(word))
            return made
    return made.copy_(x)


def _is_of(word: torch.dtype, x: Tensor) -> bool:
    """Whether it can be seen as words."""
    item, *strides = x.element_size(), *x.stride()[:-1]
    begins = x.data_ptr(), x.storage_offset() * item, *(stride * item for stride in strides)
    return x.stride(-1) == 1 and all(each % word.itemsize == 0 for each in (x.shape[-1] * item, *begins))


def apart(k: int, item_bytes: int) -> int:
    """Elements from a row of such a copy to the next."""
    return padded(k, item_bytes, ROW_BYTES if k * item_bytes > ROW_BYTES else ALIGNMENT_BYTES)


def padded(count: int, item_bytes: int, line_bytes: int = ALIGNMENT_BYTES) -> int:
    """The next count of elements that fills lines of so many bytes."""
    step = line_bytes // item_bytes
    return -(-count // step) * step


def is_plain(x: Tensor) -> bool:
    """Whether every rung of a ladder reads it: one matrix, K-major, its rows in a row."""
    whole = x.shape[-1] * x.element_size() % ALIGNMENT_BYTES == 0 and x.data_ptr() % ALIGNMENT_BYTES == 0
    return x.dim() == 2 and x.is_contiguous() and whole
