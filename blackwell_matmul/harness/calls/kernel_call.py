"""Which kernel does the user mean, and on which arguments: resolved once, for every command and for Python.

A kernel is a rung's name ("v1"), a script of the user's ("my_kernel.py:MyScript"), a script class, or a kernel with
pins. A size gives the arguments: of C[m, n] = A[m, k] @ B[n, k].T, or of `example_args` beside the class.
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
    """One call of one kernel. script: what is called, the class or a kernel with pins of its own. pins: of `__init__`,
    besides those. size: (m, n, k) as given. problem: of a matmul; None where `example_args` made the arguments.
    seed: what gave them."""

    kernel: UserKernel
    script: Any
    pins: Mapping[str, object]
    arguments: tuple[Any, ...]
    size: tuple[int, int, int] | None
    problem: Problem | None
    seed: int

    @property
    def is_matmul(self) -> bool:
        """Whether it is judged as C = A @ B.T, and not by a reference of its own."""
        return self.problem is not None and self.kernel.reference is None

    def with_defaults(self) -> tuple[Any, ...]:
        """The arguments, with what the kernel has for those that were left out."""
        bound = inspect.signature(self.kernel.script_cls.__call__).bind(None, *self.arguments)
        bound.apply_defaults()
        return bound.args[1:]

    @contextmanager
    def loaded(self) -> Iterator[None]:
        """Around all that runs the kernel's code: its folder can be imported from, and its exit ends nobody else."""
        with user_kernel.importable(self.kernel.folder), user_kernel.surviving_exit(self.kernel):
            yield

    def expected(self) -> Mapping[int, Any]:
        """By position, the outputs that its file's `reference` names for these arguments; none without one."""
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
        """After a run, the outputs beside what was expected."""
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
    """form: how the matrices lie in memory, and the epilogue; batches: how many products. seed: gives the values
    of the arguments; None where nothing runs, and matmuls get tensors that nobody fills.

    size and dtype: None is 1024 each, or the defaults of `example_args`, and as the kernel's pointers say, or fp16.
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
    """With the form pinned, as tensors do not say all of it; unless the kernel was made with it."""
    return dict(pins) if form == PLAIN or own_form(script) is not None else {**pins, "form": form}


def own_form(kernel: Any) -> Any:
    """What a kernel was made with; None where it was not."""
    pins = attribute(kernel, "pins")
    return pins.get("form") if isinstance(pins, Mapping) else None


def require_form(found: UserKernel, form: Form, batches: int) -> None:
    """InputError for a kernel that computes one product of K-major matrices, and is asked for another."""
    if (form == PLAIN and batches == 1) or found.takes_forms:
        return
    what = " and ".join(filter(None, (str(form), f"{batches} batches" if batches > 1 else "")))
    if found.example_args is not None:
        raise InputError(f"form is {what} and {found.name} has example_args, which makes its own; leave it out.")
    raise InputError(f"{found.name} computes one product of K-major matrices, without {what}; v7 and h8 do.")


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
    """Three integers, or None."""
    if size is None:
        return None
    if not isinstance(size, (tuple, list)) or len(size) != 3:
        raise InputError("size must be three integers, (m, n, k), or None.")
    m, n, k = (positive(*each, least) for each in zip("mnk", size))
    return m, n, k
