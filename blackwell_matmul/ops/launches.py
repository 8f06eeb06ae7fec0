"""Launches of a product at the addresses of its tensors, without checks."""

from __future__ import annotations

import copy
import functools
import itertools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from blackwell_matmul.hardware.gpu_figures import ROW_BYTES
from blackwell_matmul.kernels.host.forms import ABSENT
from blackwell_matmul.kernels.host.matmul import row_major_strides
from blackwell_matmul.ops.placing import along_rows, apart, padded
from blackwell_matmul.problem.problem import INT32_MAX
from blackwell_matmul.runtime import torch_cuda
from blackwell_matmul.runtime.launch import Prepared
from blackwell_matmul.runtime.load import Loaded
from blackwell_matmul.runtime.moving import Moving
from blackwell_matmul.runtime.script_calls import ScriptCalls

KEPT_STREAMS = 64
"""Maximum number of streams with packed launches of one plan."""


class Launches:
    """Launches of one kernel on tensors with equal shapes, strides and types, at any addresses.

    device: index of the GPU; below 0, the kernel is simulated.
    """

    def __init__(self, kernel: Any, device: int) -> None:
        self.kernel, self.device = kernel, device
        self._calls = ScriptCalls(kernel) if device >= 0 else None
        self._code: tuple[Loaded, tuple[int, ...]] | None = None
        self._moving: dict[int, Moving] = {}

    def __call__(self, tensors: Iterable[Tensor], arguments: Callable[[], Sequence[object]]) -> None:
        """Launch the kernel on these tensors.

        arguments: function that returns the call's arguments, for a launch that is not packed yet. Its tensors have the
        order of `tensors`.
        """
        if self._calls is None:
            self.kernel(*arguments())
            return
        addresses = [each.data_ptr() for each in tensors]
        if not self.at(addresses):
            stream = torch_cuda.current_stream(self.device)
            self._packed(self._calls, arguments(), addresses, stream)()

    def calls(self, arguments: Sequence[object]) -> list[tuple[Any, Sequence[object]]]:
        """Return the launches of a call, as pairs of kernel and arguments."""
        return [(self.kernel, arguments)]

    def at(self, addresses: Sequence[int]) -> bool:
        """Launch at these addresses and return True; return False, without effect, if the launch is not packed yet."""
        moving = self._moving.get(torch_cuda.current_stream(self.device))
        return moving is not None and moving(addresses)

    def _packed(
        self, calls: ScriptCalls, arguments: Sequence[object], addresses: Sequence[int], stream: int
    ) -> Prepared:
        """Return the packed launch, and keep it for later calls at other addresses."""
        if self._code is None:
            self._code = calls.code(arguments, self.device)
        loaded, places = self._code
        prepared = loaded.prepare([arguments[place] for place in places], self.device, stream)
        tensors = [i for i, each in enumerate(arguments) if isinstance(each, Tensor)]
        at = {i: tensors.index(place) for i, place in enumerate(places) if place in tensors}
        moving = loaded.moving(prepared, at, addresses)
        if moving is not None:
            if len(self._moving) >= KEPT_STREAMS:
                self._moving.clear()
            self._moving[stream] = moving
        return prepared


class LaunchesOfParts:
    """Two launches for a product whose K is divided, called as `Launches`.

    product: kernel of the sums over the parts of K. total: kernel that adds the parts. shape: shape of these sums in
    memory, [parts, m, line]. line is n, rounded up to multiples of 16 bytes.
    """

    def __init__(self, product: Any, total: Any, shape: tuple[int, int, int], device: int) -> None:
        self._product, self._total = Launches(product, device), Launches(total, device)
        self.kernel, self.device = product, self._product.device
        self._shape, self._strides = shape, row_major_strides(shape)

    def __call__(self, tensors: Iterable[Tensor], arguments: Callable[[], Sequence[object]]) -> None:
        for launches, given in zip((self._product, self._total), self._arguments(arguments())):
            launches([each for each in given if isinstance(each, Tensor)], functools.partial(tuple, given))

    def calls(self, arguments: Sequence[object]) -> list[tuple[Any, Sequence[object]]]:
        return list(zip((self._product.kernel, self._total.kernel), self._arguments(arguments)))

    def _arguments(self, arguments: Sequence[Any]) -> tuple[Sequence[object], Sequence[object]]:
        """Return the arguments of both launches."""
        m, n, k, a, b, c, bias, residual, *scales, _ = arguments
        parts, _, line = self._shape
        sums = a.new_empty(self._shape, dtype=torch.float32)
        of_sum = parts, m, n, line, sums, c, bias, residual
        return (m, n, k, a, b, sums[..., :n], ABSENT, ABSENT, *scales, parts), of_sum

    def at(self, addresses: Sequence[int]) -> bool:
        a, b, c, *extras = addresses
        sums = torch_cuda.allocated(self._shape, self._strides, torch.float32, self.device)  # until both are queued
        return self._product.at([a, b, sums.data_ptr()]) and self._total.at([sums.data_ptr(), c, *extras])


class OperandInLines:
    """Layout of an operand [rows, k] or [batches, rows, k] that is contiguous along rows or k, and of its copy.

    sizes: batches, lines, and elements of a line. line, strides: elements from line to line of the copy, and all its
    strides. elements: number of elements of the copy's memory, in whole lines of the L2.
    """

    def __init__(self, x: Tensor) -> None:
        self._along_rows, self._batched = along_rows(x), x.dim() == 3
        batches, lines, length = self.sizes = tuple(self.lines(x).shape)
        self.line = apart(length, x.element_size())
        self.strides = lines * self.line, self.line, 1
        self.elements = padded(batches * lines * self.line, x.element_size(), ROW_BYTES)

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
            arguments += *layout.sizes, *source.stride()[:2], layout.line, source, target
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


class Ready:
    """Function that computes calls of one kind without checks: it allocates C, and launches the kernel at the tensors'
    addresses.

    shape: shape of the result. place: index of C's address among the others. copies: copies of operands; None: no
    copies. graded: function that returns the result with gradients, from addresses and tensors; None before the first
    such call.
    """

    __slots__ = ("_copies", "_launches", "_out", "_place", "_shape", "_strides", "graded")

    def __init__(
        self,
        launches: Launches | LaunchesOfParts,
        shape: Sequence[int],
        out: torch.dtype,
        place: int,
        copies: CopiedLines | None = None,
    ) -> None:
        self._launches, self._shape, self._out, self._place = launches, tuple(shape), out, place
        self._copies = copies
        self._strides = row_major_strides(self._shape)
        self.graded: Callable[..., Tensor] | None = None

    def __call__(self, addresses: list[int]) -> Tensor | None:
        """Return the result; None if a launch is not packed yet. addresses: C's and those of copies are put in."""
        if self._copies is not None:
            copied = self._copies.at(addresses)  # memory that lasts until the product is queued
            if copied is None:
                return None
        c = torch_cuda.allocated(self._shape, self._strides, self._out, self._launches.device)
        addresses.insert(self._place, c.data_ptr())
        return c if self._launches.at(addresses) else None

    def turned(self) -> Ready:
        """Return a copy whose result has the last two dimensions exchanged."""
        made = copy.copy(self)
        made._shape, made._strides = ((*each[:-2], each[-1], each[-2]) for each in (self._shape, self._strides))
        made.graded = None
        return made
