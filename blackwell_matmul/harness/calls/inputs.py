"""Tensors for a kernel's call: random values from a seed, or tensors without values if nothing runs."""

from __future__ import annotations

import math
import mmap
import os
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import shown
from blackwell_matmul.harness.calls import scaled_operands
from blackwell_matmul.harness.calls.host_memory import require_memory
from blackwell_matmul.harness.reference import TORCH_DTYPES, dtype_of_c
from blackwell_matmul.problem.form import BLOCK_SCALES, block_scale_shapes
from blackwell_matmul.problem.problem import Problem, plain_seed

Operands = tuple[torch.Tensor, ...]
"""A[m, k], B[n, k], the scales of blocks if any, and C[m, n], or batches of matrices, in the layout of the form."""


def make_inputs(problem: Problem, seed: int = 0) -> Operands:
    """Return A[m, k] and B[n, k], normally distributed, and C[m, n] full of NaN.

    Unwritten elements of C thus stay NaN. Elements of 4 bits are uniformly distributed, and scales of blocks are
    returned before C. The same seed gives the same values. Raises InputError if this machine's memory is too small.
    """
    seed = plain_seed(seed)
    if not isinstance(problem, Problem):
        raise InputError(f"problem is {shown(problem)}; it must be a Problem, such as Problem(m, n, k).")
    require_memory(problem)
    return _operands(_Maker(problem, torch.Generator().manual_seed(seed)))


def unfilled(problem: Problem) -> Operands:
    """Return tensors without values. They reserve address space only, which may exceed this machine's memory."""
    return _operands(_Maker(problem))


NO_RESERVE = 0x4000
"""Linux's MAP_NORESERVE, which Python's mmap lacks before 3.13. Without it Linux refuses more bytes than the memory."""


def address_space(shape: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
    """Return an uninitialised tensor. On Linux its pages take memory only once they are written."""
    nbytes = math.prod(shape) * dtype.itemsize
    if sys.platform != "linux":
        return torch.empty(shape, dtype=dtype)
    pages = mmap.mmap(-1, nbytes, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NO_RESERVE)
    return torch.frombuffer(pages, dtype=dtype).view(*shape)


def arguments_of(problem: Problem, seed: int | None) -> tuple[object, ...]:
    """Return all arguments of a call: m, n, k and the operands. seed: None leaves tensors uninitialised.

    Scales of blocks precede C. A problem that is not plain has bias, residual, scale_a, scale_b and batches after C,
    with 0 for each operand that the epilogue lacks.
    """
    operands = unfilled(problem) if seed is None else make_inputs(problem, seed)
    sizes = problem.m, problem.n, problem.k
    if problem.is_plain or problem.format:
        return *sizes, *operands
    generator = None if seed is None else torch.Generator().manual_seed(plain_seed(seed + 1))
    with _fitting(problem):
        return *sizes, *operands, *_Maker(problem, generator).read_by_epilogue(), problem.batches


def drawn(problem: Problem, generator: torch.Generator) -> tuple[object, ...]:
    """Return random operands: A ~ N(0, 1) and B ~ N(0, 1/K), so that A @ B.T ~ N(0, 1).

    If the problem is not plain, the arguments that follow C are returned, too. For a block-scaled product, return the
    operands and scales of `scaled_operands`.
    """
    if problem.format:
        return tuple(scaled_operands.operands(problem, generator))
    make = _Maker(problem, generator)
    a, b = make.a(), make.b(problem.k**-0.5)
    return (a, b) if problem.is_plain else (a, b, *make.read_by_epilogue(), problem.batches)


@dataclass(frozen=True)
class _Maker:
    """Maker of a problem's tensors. generator: generator of the values; None: tensors without values."""

    problem: Problem
    generator: torch.Generator | None = None

    @property
    def device(self) -> torch.device | str:
        return "cpu" if self.generator is None else self.generator.device

    def values(self, shape: Sequence[int], dtype: torch.dtype, size: float = 1.0) -> torch.Tensor:
        if self.generator is None:
            return address_space(shape, dtype)
        made = torch.randn(shape, generator=self.generator, dtype=torch.float32, device=self.device)
        return made.mul_(size).to(dtype)

    def a(self) -> torch.Tensor:
        form = self.problem.form
        return self.operand(self.problem.m, form.a_major == "k", form.a_stride, form.a_batch_stride, form.a_batched)

    def b(self, size: float = 1.0) -> torch.Tensor:
        form, rows = self.problem.form, self.problem.n
        return self.operand(rows, form.b_major == "k", form.b_stride, form.b_batch_stride, form.b_batched, size)

    def operand(
        self, rows: int, k_major: bool, stride: int, between: int, batched: bool, size: float = 1.0
    ) -> torch.Tensor:
        """Return A[m, k] or B[n, k], or a batch of them.

        stride: elements from a line to the next. between: elements from a batch's matrix to the next. size: standard
        deviation.
        """
        lines = (rows, self.problem.k) if k_major else (self.problem.k, rows)
        batches = (self.problem.batches,) if batched and self.problem.batches > 1 else ()
        made = spread(self.values((*batches, *lines), TORCH_DTYPES[self.problem.dtype], size), stride, between)
        return made if k_major else made.mT

    def output(self) -> torch.Tensor:
        """Return C, full of NaN."""
        problem, dtype = self.problem, dtype_of_c(self.problem)
        shape = ((problem.batches,) if problem.batches > 1 else ()) + (problem.m, problem.columns)
        if self.generator is None:
            made = address_space(shape, dtype)
        else:
            made = torch.full(shape, math.nan, dtype=dtype, device=self.device)
        return spread(made, problem.form.c_stride, 0)

    def read_by_epilogue(self) -> tuple[object, ...]:
        """Return bias, residual, scale_a and scale_b; 0 for an operand that the epilogue lacks."""
        problem, how, of_c = self.problem, self.problem.form.epilogue, dtype_of_c(self.problem)
        batches = (problem.batches,) if problem.batches > 1 else ()
        bias = self.values((problem.n,), of_c) if how.bias else 0
        residual = self.values((*batches, problem.m, problem.n), of_c) if how.residual else 0
        if how.scale == "none":
            return bias, residual, 0, 0
        shapes: Any = ((problem.m,), (problem.n,)) if how.scale == "rowwise" else ((1,), (1,))
        if how.scale in BLOCK_SCALES:
            shapes = block_scale_shapes(how.scale, problem.m, problem.n, problem.k)
        return bias, residual, *(self.values(shape, torch.float32) for shape in shapes)


def _operands(make: _Maker) -> Operands:
    with _fitting(make.problem):
        if make.problem.format is None:
            return make.a(), make.b(), make.output()
        if make.generator is None:
            return *scaled_operands.unfilled(make.problem, address_space), make.output()
        return *scaled_operands.operands(make.problem, make.generator), make.output()


@contextmanager
def _fitting(problem: Problem) -> Iterator[None]:
    try:
        yield
    except (MemoryError, OSError, OverflowError, RuntimeError):  # raised by torch and mmap
        raise InputError(f"{problem} does not fit into this machine's memory; choose a smaller size.") from None


def spread(lines: torch.Tensor, stride: int, between: int) -> torch.Tensor:
    """Return a copy with `stride` elements from a line to the next, and `between` from a matrix to the next; 0:
    packed."""
    if not stride and not between:
        return lines
    *batches, count, length = lines.shape
    step = stride or length
    apart = between or count * step
    if step < length or (batches and apart < (count - 1) * step + length):
        raise InputError(
            f"strides of {step} and {apart} elements are too small for {count} lines of {length}; make them larger."
        )
    room = lines.new_zeros(apart * (batches[0] if batches else 1) + count * step)
    return room.as_strided(lines.shape, (apart, step, 1)[-lines.dim() :]).copy_(lines)


_seeding = threading.RLock()
"""Lock around the use of torch's and numpy's global random state, which all threads share."""


def _renew() -> None:
    """Replace the lock in a forked child, as a thread of the parent may have held it."""
    global _seeding
    _seeding = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew)


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Seed torch's and numpy's global random state inside the block, and restore the former state."""
    gpus = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
    with _seeding, torch.random.fork_rng(devices=gpus):
        before = np.random.get_state()
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            np.random.set_state(before)
