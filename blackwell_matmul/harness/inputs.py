"""The tensors that a kernel is called with: made up from a seed, or address space alone where nothing runs."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import torch

from blackwell_matmul.errors import InputError
from blackwell_matmul.harness.reference import TORCH_DTYPES, dtype_of_c
from blackwell_matmul.problem import Problem, plain_seed
from blackwell_matmul.validation import shown

Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor]
"""A[m, k], B[n, k] and C[m, n]."""


def make_inputs(problem: Problem, seed: int = 0) -> Operands:
    """A[m, k] and B[n, k], normally distributed, and C[m, n] full of NaN, so that an element nobody writes shows.

    The same seed gives the same values. Raises InputError when this machine's memory is too small for them.
    """
    seed = plain_seed(seed)
    if not isinstance(problem, Problem):
        raise InputError(f"problem is {shown(problem)}; it must be a Problem, such as Problem(m, n, k).")
    _require_memory(problem)
    dtype, generator = TORCH_DTYPES[problem.dtype], torch.Generator().manual_seed(seed)
    try:
        a, b = (
            torch.randn(rows, problem.k, generator=generator, dtype=torch.float32, device="cpu").to(dtype)
            for rows in (problem.m, problem.n)
        )
        return a, b, torch.full((problem.m, problem.n), float("nan"), dtype=dtype_of_c(problem), device="cpu")
    except (MemoryError, RuntimeError):
        raise _too_large(problem) from None


def unfilled(problem: Problem) -> Operands:
    """Tensors that nobody fills: address space, not memory."""
    m, n, k, dtype = problem.m, problem.n, problem.k, TORCH_DTYPES[problem.dtype]
    try:
        a, b = (torch.empty((rows, k), dtype=dtype) for rows in (m, n))
        return a, b, torch.empty((m, n), dtype=dtype_of_c(problem))
    except (MemoryError, RuntimeError):
        raise _too_large(problem) from None


def _too_large(problem: Problem) -> InputError:
    return InputError(f"{problem} does not fit into this machine's memory; choose a smaller size.")


@contextmanager
def seeded(seed: int) -> Iterator[None]:
    """Random numbers of torch and numpy that depend on the seed alone; what they were goes on afterwards."""
    before = np.random.get_state()
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        np.random.seed(seed % 2**32)
        try:
            yield
        finally:
            np.random.set_state(before)


def _require_memory(problem: Problem) -> None:
    need_bytes = problem.bytes + 8 * problem.n * problem.k
    have_bytes = _physical_memory_bytes()
    if have_bytes is not None and need_bytes > have_bytes:
        raise InputError(
            f"{problem} needs {need_bytes / 2**30:.4g} GiB for A, B, C and the check; this machine has "
            f"{have_bytes / 2**30:.4g} GiB, so choose a smaller size."
        )


def _physical_memory_bytes() -> int | None:
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    except (AttributeError, OSError, ValueError):
        return None
