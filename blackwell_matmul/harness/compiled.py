"""Compile a kernel by the name that the command line knows it by, for arguments of a size; nothing is run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import torch

from blackwell_matmul import kernels
from blackwell_matmul.errors import InputError
from blackwell_matmul.harness import user_kernel
from blackwell_matmul.harness.reference import TORCH_DTYPES
from blackwell_matmul.problem import Problem, Schedule, as_pins

if TYPE_CHECKING:
    from blackwell_matmul.compiler import Bundle


def compile_kernel(
    kernel: str,
    size: Sequence[int] | None = None,
    dtype: str | None = None,
    schedule: str | Schedule | Mapping[str, object] | None = None,
    *,
    target: str | None = None,
    cache: bool = True,
) -> Bundle:
    """The bundle of a rung ("v1"), or of a script of the user's ("my_kernel.py:MyScript").

    size, dtype and schedule are those of `run_matmul` and `run_script`. Raises InputError, CompileError or
    UnsupportedError.
    """
    from blackwell_matmul.compiler import compile

    if not user_kernel.names_a_file(kernel):
        pins = kernels.parse_schedule(kernel, schedule) if isinstance(schedule, str) else as_pins(schedule)
        m, n, k = size or user_kernel.DEFAULT_SIZE
        args = _matmul_arguments(Problem(m, n, k, "fp16" if dtype is None else dtype))
        return compile(kernels.rung(kernel), *args, schedule=pins or None, target=target, cache=cache)
    found = user_kernel.load(kernel)
    knobs = user_kernel.read_schedule(found, schedule if isinstance(schedule, str) else as_pins(schedule))
    if found.example_args is not None:
        args = user_kernel.example_call(found, size)
    else:
        problem = user_kernel.matmul_problem(found, size, dtype)
        knobs, args = user_kernel.fill_dtype(found, knobs, problem), _matmul_arguments(problem)
    with user_kernel.importable(found.folder):
        return compile(found.script_cls, *args, schedule=knobs or None, target=target, cache=cache)


def _matmul_arguments(problem: Problem) -> tuple[Any, ...]:
    """(m, n, k, a, b, c) with tensors that nobody fills: address space, not memory."""
    m, n, k, dtype = problem.m, problem.n, problem.k, TORCH_DTYPES[problem.dtype]
    try:
        return (m, n, k, *(torch.empty(shape, dtype=dtype) for shape in ((m, k), (n, k), (m, n))))
    except (MemoryError, RuntimeError):
        raise InputError(f"{problem} does not fit into this machine's memory; choose a smaller size.") from None
