"""Copies of operands that a kernel cannot read in place.

| A[m, k] or B[n, k], or a batch of them | treatment |
|---|---|
| contiguous along k, or along m or n; lines start at multiples of 16 bytes | read in place |
| the same, with other lines | one copy, lines padded to multiples of 128 bytes, short lines of 16 |
| any other, or 8 bits along m or n | one copy, contiguous along k, in such lines |
| one matrix, expanded over batches | the matrix is read once |
| several batch dimensions without one common stride | a copy with one batch dimension |
| e4m3 with e5m2, or the reverse | copies in bfloat16, as no kernel multiplies mixed types |

`b` has torch's shape (k, n): a row-major b is contiguous along n, and `w.T` of a weight w[n, k] along k. A slice of a
larger tensor has a larger stride between lines.
"""

from __future__ import annotations

import functools
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from blackwell_matmul.hardware.gpu_figures import ROW_BYTES
from blackwell_matmul.kernels.host.forms import Lines, why_unreadable
from blackwell_matmul.kernels.host.grouped import why_no_rows
from blackwell_matmul.kernels.host.matmul import ALIGNMENT_BYTES
from blackwell_matmul.ops.operand_checks import (
    AS_OURS,
    Said,
    batches_of,
    check_columns,
    check_inner,
    check_operands,
    check_optional,
    check_tensors,
    grouped_shape,
    known,
)
from blackwell_matmul.problem.problem import INT32_MAX
from blackwell_matmul.runtime import torch_cuda
from blackwell_matmul.runtime.launches import Launches

Copy = Callable[[Tensor], Tensor]

FOLDED = "its batches do not lie at one distance from each other"
MIXED = "the other one has another type of 8 bits, and both are multiplied in 16"
"""Reason of a copy of operands with mixed types."""


def copies(a: Tensor, b: Tensor, offs: Tensor | None = None) -> list[str]:
    """Return a sentence for each copy made before the kernel of `matmul`, 8-bit `scaled_mm` or `grouped_matmul`."""
    check_tensors(a=a, b=b)
    check_optional(offs=offs)
    sides = _of_product(a, b) if offs is None else _of_groups(a, b, offs)
    return [_sentence("ab"[which % 2], x, reason) for which, (x, reason) in enumerate(sides) if reason]


def _of_product(a: Tensor, b: Tensor) -> list[tuple[Tensor, str]]:
    """Return a and b as given, then as multiplied, each with the reason for a copy; "": no copy."""
    scaled = a.element_size() == 1
    flat_a, flat_b = (a, b) if scaled or not min(a.dim(), b.dim()) else flattened(*as_matrices(a, b))
    check_operands(flat_a, flat_b, scaled=scaled)
    folded = [(x, "" if flat.data_ptr() == x.data_ptr() else FOLDED) for x, flat in ((a, flat_a), (b, flat_b))]
    return [*folded, (lone(flat_a), why_copied(flat_a, flat_b)), (lone(flat_b), why_copied(flat_b.mT, flat_a))]


def as_matrices(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """Return a vector a[k] as a matrix of one row, and a vector b[k] as a matrix of one column; other tensors
    unchanged."""
    return a[None] if a.dim() == 1 else a, b[:, None] if b.dim() == 1 else b


def flattened(a: Tensor, b: Tensor, said: Said = AS_OURS) -> tuple[Tensor, Tensor]:
    """Return a[.., m, k] and b[.., k, n], each as a matrix or as one batch of matrices."""
    check_inner(a, b, said)
    if b.dim() == 2:
        return (a if a.dim() == 2 else a.flatten(0, -2)), b
    batch = batches_of(a, b, said)
    return _flat(a, batch), _flat(b, batch)


def _flat(x: Tensor, batch: tuple[int, ...]) -> Tensor:
    """Return x as [batches, rows, columns], or as one matrix that all batches share."""
    if known(math.prod(x.shape[:-2]) == 1):
        return x.reshape(x.shape[-2:])
    return x.expand(*batch, *x.shape[-2:]).flatten(0, -3)


def rows_of(x: Tensor) -> Tensor:
    """Return x[.., columns] as one matrix."""
    return x if x.dim() == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def _of_groups(a: Tensor, b: Tensor, offs: Tensor) -> list[tuple[Tensor, str]]:
    """Return the operands of a grouped product, each with the reason for a copy; "": no copy."""
    if a.dim() == 3 and b.dim() == 2:
        check_columns(a, b, offs)
        return [(a, why_unreadable(a)), (b, why_no_rows(b.mT))]
    grouped_shape(a, b, offs)
    if b.dim() == 3:
        return [(a, why_no_rows(a)), (b, why_unreadable(b.mT))]
    return [(a, why_no_rows(a.mT)), (b, why_no_rows(b))]


def _sentence(name: str, x: Tensor, reason: str) -> str:
    """Return the sentence about a copy. x: the operand a[.., m, k] or b[.., k, n]."""
    rows = x if name == "a" else x.mT
    count, length = rows.mT.shape[-2:] if reason != MIXED and along_rows(rows) else rows.shape[-2:]
    item = 2 if reason == MIXED else x.element_size()
    nbytes = math.prod(x.shape[:-2]) * count * apart(length, item) * item
    what = f"{name} with shape {tuple(x.shape)} and strides {x.stride()}"
    return f"{what} is copied ({nbytes} bytes): {reason}."


def lone(x: Tensor) -> Tensor:
    """Return the single matrix of a tensor that is expanded over batches, as a batch; other tensors unchanged."""
    return x[:1] if x.dim() == 3 and x.stride(0) == 0 else x


def why_copied(x: Tensor, other: Tensor) -> str:
    """Return the reason for a copy of an operand [.., rows, k] of an ungrouped product; "": no copy."""
    return MIXED if x.dtype != other.dtype else why_unreadable(lone(x))


def copying(x: Tensor, other: Tensor) -> Copy | None:
    """Return the function that copies an operand of an ungrouped product; None if the kernel reads the operand in
    place."""
    reason = why_copied(x, other)
    copy = widened if reason == MIXED else in_lines if reason else None
    if lone(x) is x:
        return copy
    return lone if copy is None else lambda x: copy(lone(x))


def along_rows(x: Tensor) -> bool:
    """Return True if a copy of x[.., rows, k] is contiguous along rows, as x is. TMA reads 8 bits along k alone."""
    return x.stride(-1) != 1 and x.stride(-2) == 1 and x.element_size() == 2


def in_lines(x: Tensor) -> Tensor:
    """Return a copy with aligned lines, contiguous along the same dimension as x if possible."""
    return across(x) if along_rows(x) else k_major(x)


def lines_of_copy(x: Tensor) -> Lines:
    """Return the layout of `in_lines(x)` for a matrix x."""
    length = x.shape[-2 if along_rows(x) else -1]
    return Lines(not along_rows(x), apart(length, x.element_size()), False, 0)


def across(x: Tensor) -> Tensor:
    """Return a copy that is contiguous along its second to last dimension, with aligned lines."""
    return k_major(x.mT).mT


def k_major(x: Tensor, dtype: torch.dtype | None = None) -> Tensor:
    """Return a copy with rows aligned to L2 lines, which TMA loads faster. dtype: type of the copy; None: x's."""
    *outer, k = x.shape
    dtype = dtype or x.dtype
    return filled(x.new_empty((*outer, apart(k, dtype.itemsize)), dtype=dtype)[..., :k], x)


def widened(x: Tensor) -> Tensor:
    """Return a copy of 8-bit floats in bfloat16, which is exact."""
    return k_major(x, torch.bfloat16)


def with_zeros(x: Tensor) -> Tensor:
    """Return a copy with rows padded by zeros to multiples of 16 bytes, for kernels that take no strides."""
    rows, k = x.shape
    made = x.new_zeros((rows, padded(k, x.element_size())))
    filled(made[:, :k], x)
    return made


def packed(x: Tensor) -> Tensor:
    """Return x.contiguous(), copied by `filled`."""
    return x if x.is_contiguous() else filled(x.new_empty(x.shape), x)


WORDS = (torch.int64, torch.int32)


def filled(made: Tensor, x: Tensor) -> Tensor:
    """Copy x into `made`, and return `made`. Wide words are used if possible: torch copies padded rows by element."""
    for word in WORDS:
        if made.dtype == x.dtype and _is_of(word, made) and _is_of(word, x):
            made.detach().view(word).copy_(x.detach().view(word))
            return made
    return made.copy_(x)


def _is_of(word: torch.dtype, x: Tensor) -> bool:
    """Return True if x can be viewed with elements of type `word`."""
    item, *strides = x.element_size(), *x.stride()[:-1]
    begins = x.data_ptr(), x.storage_offset() * item, *(stride * item for stride in strides)
    return x.stride(-1) == 1 and all(each % word.itemsize == 0 for each in (x.shape[-1] * item, *begins))


def apart(k: int, item_bytes: int) -> int:
    """Return the row stride of a copied operand, in elements."""
    return padded(k, item_bytes, ROW_BYTES if k * item_bytes > ROW_BYTES else ALIGNMENT_BYTES)


def padded(count: int, item_bytes: int, line_bytes: int = ALIGNMENT_BYTES) -> int:
    """Return the number of elements, at least `count`, that fills whole lines of line_bytes."""
    step = line_bytes // item_bytes
    return -(-count // step) * step


def every_rung_reads(x: Tensor) -> bool:
    """Return True if every kernel of the ladders can read x: a packed K-major matrix with aligned rows."""
    whole = x.shape[-1] * x.element_size() % ALIGNMENT_BYTES == 0 and x.data_ptr() % ALIGNMENT_BYTES == 0
    return x.dim() == 2 and x.is_contiguous() and whole


class OperandInLines:
    """Layout of an operand [rows, k] or [batches, rows, k] that is contiguous along rows or k, and of its copy.

    sizes: batches, lines, and elements of a line. strides: strides of the copy with these sizes. elements: number of
    elements of the copy's memory, in whole lines of the L2.
    """

    def __init__(self, x: Tensor) -> None:
        self._along_rows, self._batched = along_rows(x), x.dim() == 3
        batches, lines, length = self.sizes = tuple(self.lines(x).shape)
        line = apart(length, x.element_size())
        self.strides = lines * line, line, 1
        self.elements = padded(batches * lines * line, x.element_size(), ROW_BYTES)

    def lines(self, x: Tensor) -> Tensor:
        """Return x as [batches, lines, elements of a line]."""
        lines = x.mT if self._along_rows else x
        return lines if self._batched else lines[None]

    def operand(self, lines: Tensor) -> Tensor:
        """Return the operand of its lines: the reverse of `lines`."""
        x = lines.mT if self._along_rows else lines
        return x if self._batched else x[0]


class CopiedLines:
    """Copies of operands of one kind in lines that TMA can read, by one launch of a kernel.

    left, right: operands [.., rows, k], each contiguous along rows or k; None: not copied, but not both. places:
    indices of the copied operands.
    """

    def __init__(self, left: Tensor | None, right: Tensor | None) -> None:
        operands = {place: x for place, x in enumerate((left, right)) if x is not None}
        self.places, (first, *_) = tuple(operands), operands.values()
        self._layouts = [OperandInLines(x) for x in operands.values()]
        *self._begins, elements = 0, *itertools.accumulate(each.elements for each in self._layouts)
        self._second = self._begins[-1] * first.element_size()  # where the last copy begins, in bytes
        self._shape, self._dtype = (elements,), first.dtype
        self._launches = Launches(_copying_kernel(), first.get_device())

    def __call__(self, *operands: Tensor) -> list[Tensor]:
        """Return left and right, or their copies."""
        found, memory = list(operands), operands[self.places[0]].new_empty(self._shape)
        tensors: list[Tensor] = []
        arguments: list[object] = []
        for place, layout, begin in zip(self.places, self._layouts, self._begins):
            source = layout.lines(operands[place])
            target = memory.as_strided(layout.sizes, layout.strides, begin)
            tensors += source, target
            arguments += *layout.sizes, *source.stride()[:2], target.stride(1), source, target
            found[place] = layout.operand(target)
        absent = [0] * len(arguments) if len(self.places) == 1 else []
        self._launches(tensors, lambda: arguments + absent)
        return found

    def at(self, addresses: list[int]) -> Tensor | None:
        """Copy the operands at the first two addresses, and put in the addresses of the copies.

        Returns the copies' memory; None, without effect, if the launch is not packed yet.
        """
        memory = torch_cuda.allocated(self._shape, (1,), self._dtype, self._launches.device)
        address = memory.data_ptr()
        if len(self.places) == 1:
            (place,) = self.places
            if not self._launches.at((addresses[place], address)):
                return None
            addresses[place] = address
        else:
            second = address + self._second
            if not self._launches.at((addresses[0], address, addresses[1], second)):
                return None
            addresses[:2] = address, second
        return memory


def copies_lines(x: Tensor) -> bool:
    """Return True if `CopiedLines` copies an operand on a GPU. The kernel counts elements in 32 bits."""
    span = sum((size - 1) * stride for size, stride in zip(x.shape, x.stride())) + 1
    in_lines = x.stride(-2 if along_rows(x) else -1) == 1
    return x.is_cuda and in_lines and max(span, OperandInLines(x).elements) <= INT32_MAX


@functools.cache
def _copying_kernel() -> Any:
    """Return the kernel object of all copies. The object caches its compiled code and packed arguments."""
    from blackwell_matmul.kernels.products.line_copy import LineCopy

    script: Any = LineCopy  # for mypy: the class is called with its pinned knobs only
    return script()


@dataclass(frozen=True, eq=False)
class OperandCopies:
    """Function that returns operands left[.., m, k] and right[.., n, k] of one kind, copied where no kernel reads them.

    by_torch: functions that copy left and right; None: no copy by torch. by_kernel: copies by one launch of a kernel;
    None: no such copy.
    """

    by_torch: tuple[Copy | None, Copy | None] = (None, None)
    by_kernel: CopiedLines | None = None

    @classmethod
    def of(cls, left: Tensor, right: Tensor) -> OperandCopies:
        """Return the copies for operands of these kinds."""
        (copy_left, our_left), (copy_right, our_right) = _copies(left, right), _copies(right, left)
        none = our_left is our_right is None
        return cls((copy_left, copy_right), None if none else CopiedLines(our_left, our_right))

    def __call__(self, left: Tensor, right: Tensor) -> list[Tensor]:
        operands = [x if copy is None else copy(x) for x, copy in zip((left, right), self.by_torch)]
        return operands if self.by_kernel is None else self.by_kernel(*operands)

    @property
    def copied(self) -> list[bool]:
        """Return True for left, and for right, if that operand is copied."""
        ours: Sequence[int] = () if self.by_kernel is None else self.by_kernel.places
        return [copy is not None or place in ours for place, copy in enumerate(self.by_torch)]


def _copies(x: Tensor, other: Tensor) -> tuple[Copy | None, Tensor | None]:
    """Return the function by which torch copies x, and the operand that a kernel copies; None: no such copy."""
    matrix, copied = lone(x), why_copied(x, other) not in ("", MIXED)
    if not copied or not copies_lines(matrix):
        return copying(x, other), None
    return None if matrix is x else lone, matrix
