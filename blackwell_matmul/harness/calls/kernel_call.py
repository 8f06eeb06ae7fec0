"""Resolves a kernel and its arguments, once for every command and for Python.

A kernel is a rung's name ("v1"), a user's script ("my_kernel.py:MyScript"), a script class, or a kernel with pins. A
size determines the arguments: of C[m, n] = A[m, k] @ B[n, k].T, or of `example_args` in the class's module.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import attribute, said, shown
from blackwell_matmul.harness.calls import inputs, user_kernel
from blackwell_matmul.harness.calls.user_kernel import Pins, UserKernel, find, pins_of
from blackwell_matmul.harness.outputs import OutputVerdict, compare
from blackwell_matmul.problem.form import PLAIN, Form
from blackwell_matmul.problem.problem import Problem, positive


@dataclass(frozen=True, eq=False)
class KernelCall:
    """A call of a kernel. script: a class, or a kernel with pins of its own. pins: further arguments of `__init__`.
    size: given (m, n, k). problem: of a matmul; None if `example_args` made the arguments. seed: of the arguments.
    """

    kernel: UserKernel
    script: Any
    pins: Mapping[str, object]
    arguments: tuple[Any, ...]
    size: tuple[int, int, int] | None
    problem: Problem | None
    seed: int

    @property
    def is_matmul(self) -> bool:
        """Return true if the expected result is C = A @ B.T, not a reference of its own."""
        return self.problem is not None and self.kernel.reference is None

    def with_defaults(self) -> tuple[Any, ...]:
        """Return the arguments, with the kernel's defaults for omitted ones."""
        bound = inspect.signature(self.kernel.script_cls.__call__).bind(None, *self.arguments)
        bound.apply_defaults()
        return bound.args[1:]

    @contextmanager
    def loaded(self) -> Iterator[None]:
        """Prepare to run the kernel's code: its folder is importable, and its exit ends only itself."""
        with user_kernel.importable(self.kernel.folder), user_kernel.surviving_exit(self.kernel):
            yield

    def expected(self) -> Mapping[int, Any]:
        """Return the outputs of its file's `reference` for these arguments, by position; empty without one."""
        if self.kernel.reference is None:
            return {}
        try:
            copies = copy.deepcopy(self.arguments)
        except Exception as error:
            what = f"the arguments of {self.kernel.name} cannot be copied for its reference"
            raise InputError(f"{what}: {said(error)}.") from error
        with inputs.seeded(self.seed):
            return user_kernel.expected_outputs(self.kernel, copies)

    def compared(self, expected: Mapping[int, Any]) -> list[OutputVerdict]:
        """Compare the outputs of a run with the expected ones."""
        names, tolerance = list(self.kernel.parameters), self.kernel.tolerance
        return [compare(names[at], self.arguments[at], value, tolerance) for at, value in expected.items()]


def resolve(
    kernel: Any,
    size: Sequence[int] | None = None,
    dtype: str | None = None,
    schedule: Pins = None,
    *,
    form: Form = PLAIN,
    batches: int = 1,
    seed: int | None = None,
) -> KernelCall:
    """Return the resolved call. form: layouts and epilogue; batches: number of products. seed: of the arguments'
    values; None if nothing runs, for matmuls' tensors without values.

    size and dtype: None is 1024 each, or the defaults of `example_args`, and the type of the kernel's pointers, or
    fp16.
    """
    found = find(kernel)
    pins, sizes = pins_of(found, schedule), plain_size(size, found.least_extent)
    require_form(found, form, batches)
    script = found.script_cls if isinstance(kernel, (str, UserKernel)) else kernel
    if found.example_args is not None:
        arguments = _example(found, sizes, dtype, seed or 0)
        return KernelCall(found, script, pins, arguments, sizes, None, seed or 0)
    problem = replace(_problem(found, sizes, dtype), form=form, batches=batches)
    pins = user_kernel.fill_dtype(found, pins, problem) if script is found.script_cls and not found.is_rung else pins
    whole, arguments = (problem.m, problem.n, problem.k), inputs.arguments_of(problem, seed)
    return KernelCall(found, script, with_form(pins, problem.form, script), arguments, whole, problem, seed or 0)


def with_form(pins: Mapping[str, object], form: Form, script: Any) -> dict[str, object]:
    """Return the pins with the form, which tensors do not determine, unless the kernel has it."""
    return dict(pins) if form == PLAIN or own_form(script) is not None else {**pins, "form": form}


def own_form(kernel: Any) -> Any:
    """Return the form that a kernel was made with; None without one."""
    pins = attribute(kernel, "pins")
    return pins.get("form") if isinstance(pins, Mapping) else None


def require_form(found: UserKernel, form: Form, batches: int) -> None:
    """Raise InputError if a kernel computes only one product of K-major matrices, and another is requested."""
    if (form == PLAIN and batches == 1) or found.takes_forms:
        return
    what = " and ".join(filter(None, (str(form), f"{batches} batches" if batches > 1 else "")))
    if found.example_args is not None:
        raise InputError(f"form is {what} and {found.name} has example_args, which makes its own; leave it out.")
    raise InputError(f"{found.name} computes one product of K-major matrices, without {what}; blackwell and hopper do.")


def _problem(found: UserKernel, size: Sequence[int] | None, dtype: str | None) -> Problem:
    if not found.is_rung and not found.takes_forms:
        return user_kernel.matmul_problem(found, size, dtype)
    m, n, k = size or user_kernel.DEFAULT_SIZE
    return Problem(m, n, k, "fp16" if dtype is None else dtype)


def _example(kernel: UserKernel, size: Sequence[int] | None, dtype: str | None, seed: int) -> tuple[Any, ...]:
    if dtype is not None:
        what = f"dtype is {shown(dtype)} and {kernel.name} has example_args, which makes its own"
        raise InputError(f"{what}; leave it out.")
    with inputs.seeded(seed):
        return user_kernel.example_call(kernel, size)


def plain_size(size: Sequence[int] | None, least: int = 1) -> tuple[int, int, int] | None:
    """Return three integers, or None."""
    if size is None:
        return None
    if not isinstance(size, (tuple, list)) or len(size) != 3:
        raise InputError("size must be three integers, (m, n, k), or None.")
    m, n, k = (positive(*each, least) for each in zip("mnk", size))
    return m, n, k
