"""One shape of call for every function that takes a kernel: `f(kernel, m, n, k, dtype=, schedule=, target=)`.

Behind the kernel stand m, n and k, for which the arguments are made up; or a `Problem`; or all the arguments of its
`__call__`, with tensors; or nothing, for 1024 each or the defaults of its `example_args`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from blackwell_matmul.errors import InputError
from blackwell_matmul.form import PLAIN
from blackwell_matmul.gpus import Gpu, by_name, gpu_for_target
from blackwell_matmul.harness.user_kernel import DEFAULT_SIZE, Pins, UserKernel, find, pins_of
from blackwell_matmul.problem import DTYPE_OF_TORCH, INT32_MAX, Problem, plain_dtype, positive
from blackwell_matmul.validation import attribute, integer, number, plain_text, shown

if TYPE_CHECKING:
    from blackwell_matmul.harness.kernel_call import KernelCall

Target = str | Gpu | None
"""A GPU by name, "B200", or as the compiler calls it, "sm_100a"; None: one that the kernel is for."""


class Size(NamedTuple):
    """How large a call is; None where that is left to the kernel."""

    extents: tuple[int, int, int] | None
    dtype: str | None


def resolve_call(
    kernel: Any, given: Sequence[Any], dtype: str | None = None, schedule: Pins = None, *, seed: int | None = None
) -> KernelCall:
    """given: what stands behind the kernel, None at its end where something was left out; the rest as for `resolve`."""
    from blackwell_matmul.harness.kernel_call import KernelCall, resolve

    found, given = find(kernel), _without_end(given)
    size = _size(found, given, dtype)
    _require_plain(given)
    if size is not None:
        return resolve(kernel, size.extents, size.dtype, schedule, seed=seed)
    script = found.script_cls if isinstance(kernel, (str, UserKernel)) else kernel
    return KernelCall(found, script, pins_of(found, schedule), tuple(given), None, _of_tensors(found, given), seed or 0)


def problem_of(kernel: Any, given: Sequence[Any], dtype: str | None = None) -> Problem:
    """The matmul that is meant, without any tensors of it."""
    found, given = find(kernel), _without_end(given)
    size = _size(found, given, dtype)
    if isinstance(given[0] if given else None, Problem):
        return given[0]
    problem = (
        _of_tensors(found, given) if size is None else Problem(*size.extents or DEFAULT_SIZE, size.dtype or "fp16")
    )
    if problem is None:
        raise InputError(f"{found.name} is called with tensors of no matmul; give m, n and k.")
    return problem


def _size(found: UserKernel, given: Sequence[Any], dtype: str | None) -> Size | None:
    """None where what stands behind the kernel are the arguments of its call."""
    kind = None if dtype is None else plain_dtype(dtype)
    if len(given) == 1 and isinstance(given[0], Problem):
        return _of_problem(given[0], kind)
    if _are_arguments(found, given):
        _require_no_dtype(found, dtype)
        return None
    whole = given[0] if len(given) == 1 and isinstance(given[0], (tuple, list)) else given
    if len(whole) not in (0, 3) or any(isinstance(each, Problem) for each in whole):
        wanted = f"give m, n and k, a Problem, or the arguments of its call ({', '.join(found.parameters)})"
        raise InputError(f"{shown(tuple(whole))} stands behind {found.name}; {wanted}.")
    m, n, k = (positive(*each) for each in zip("mnk", whole)) if whole else (None, None, None)
    return Size(None if m is None or n is None or k is None else (m, n, k), kind)


def _without_end(given: Sequence[Any]) -> tuple[Any, ...]:
    """Without what was left out of m, n and k."""
    values = tuple(given)
    while len(values) <= 3 and values and values[-1] is None:
        values = values[:-1]
    return values


def _are_arguments(found: UserKernel, values: Sequence[Any]) -> bool:
    tensors = any(attribute(each, "shape") is not None and number(each) is None for each in values)
    return tensors or (found.example_args is None and len(values) == len(found.parameters))


def _require_no_dtype(found: UserKernel, dtype: str | None) -> None:
    if dtype is not None:
        raise InputError(f"dtype is {shown(dtype)} and {found.name} gets tensors, which have their own; leave it out.")


def _of_problem(problem: Problem, dtype: str | None) -> Size:
    if dtype not in (None, problem.dtype):
        raise InputError(f"dtype is {shown(dtype)} and the Problem's is {problem.dtype!r}; give one of the two.")
    return Size((problem.m, problem.n, problem.k), problem.dtype)


def _require_plain(given: Sequence[Any]) -> None:
    """Arguments are made up for A[m, k] and B[n, k] alone."""
    problem = given[0] if given else None
    if isinstance(problem, Problem) and (problem.form != PLAIN or problem.batches != 1):
        raise InputError(f"inputs are made up for plain products, not for {problem}; give the arguments of the call.")


def _of_tensors(found: UserKernel, arguments: Sequence[Any]) -> Problem | None:
    """What a call with (m, n, k, a, b, c) multiplies; None where it is none."""
    if len(arguments) != 6 or found.example_args is not None:
        return None
    m, n, k = (integer(each, 1, INT32_MAX) for each in arguments[:3])
    dtype = DTYPE_OF_TORCH.get(str(attribute(arguments[3], "dtype")))
    return None if m is None or n is None or k is None or dtype is None else Problem(m, n, k, dtype)


# --- the GPU


def one_of(target: Target, gpu: Target) -> Target:
    """`gpu` is what some functions called the target before all were called alike."""
    if target is not None and gpu is not None:
        raise InputError(f"target is {shown(target)} and gpu is {shown(gpu)}, which is the same; give one of the two.")
    return gpu if target is None else target


def name_of(target: Target) -> str | None:
    """The GPU's name, where a target of the compiler stands for one; anything else as it is."""
    if isinstance(target, Gpu):
        return target.name
    is_target = (plain_text(target) or "").startswith("sm_") and by_name(target) is None
    return gpu_for_target(str(target)).name if is_target else target


def arch_of(target: Target) -> str | None:
    return target.arch if isinstance(target, Gpu) else target
