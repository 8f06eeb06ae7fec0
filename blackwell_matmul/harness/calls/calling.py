"""Common call of every function that takes a kernel: `f(kernel, m, n, k, dtype=, schedule=, target=, form=)`.

After the kernel come m, n and k, for generated arguments; or a `Problem`; or all arguments of its `__call__`, with
tensors; or nothing, for 1024 each or the defaults of its `example_args`.
"""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import attribute, integer, number, plain_text, shown
from blackwell_matmul.hardware.gpus import Gpu, by_name, gpu_for_target
from blackwell_matmul.harness.calls.user_kernel import DEFAULT_SIZE, Pins, UserKernel, find, pins_of
from blackwell_matmul.problem.form import PLAIN, Epilogue, Form
from blackwell_matmul.problem.problem import DTYPE_OF_TORCH, INT32_MAX, Problem, plain_dtype, positive

if TYPE_CHECKING:
    from blackwell_matmul.harness.calls.kernel_call import KernelCall

Target = str | Gpu | None
"""A GPU by name, "B200", or by target, "sm_100a"; None: one that the kernel is for."""


FormOf = Form | Epilogue | None
"""Form of a product; an epilogue stands for the plain form with it, None for what the kernel pins."""


class Size(NamedTuple):
    """Size of a call; None where the kernel decides."""

    extents: tuple[int, int, int] | None
    dtype: str | None
    form: Form = PLAIN
    batches: int = 1


def resolve_call(
    kernel: Any,
    given: Sequence[Any],
    dtype: str | None = None,
    schedule: Pins = None,
    form: FormOf = None,
    *,
    seed: int | None = None,
) -> KernelCall:
    """Return the resolved call. given: arguments after the kernel, None for omitted ones; the rest as for `resolve`."""
    from blackwell_matmul.harness.calls.kernel_call import KernelCall, require_form, resolve, with_form

    found, given = find(kernel), _without_end(given)
    pinned = _pinned_form(kernel, form)
    size = _size(found, given, dtype, pinned)
    if size is not None:
        more: Any = {"form": size.form, "batches": size.batches}
        return resolve(kernel, size.extents, size.dtype, schedule, seed=seed, **more)
    require_form(found, pinned, 1)
    script = found.script_cls if isinstance(kernel, (str, UserKernel)) else kernel
    arguments, problem = _of_tensors(found, given, pinned)
    pins = with_form(pins_of(found, schedule), pinned, script)
    return KernelCall(found, script, pins, arguments, None, problem, seed or 0)


def _pinned_form(kernel: Any, form: FormOf) -> Form:
    """Return the given form, or the kernel's own."""
    from blackwell_matmul.harness.calls.kernel_call import own_form
    from blackwell_matmul.kernels.host.forms import pinned_form

    own = own_form(kernel)
    if own is not None and form is not None and pinned_form(own) != pinned_form(form):
        raise InputError(f"form is {shown(form)} and the kernel was made with another one; give one of the two.")
    return pinned_form(next((each for each in (form, own) if each is not None), PLAIN))


def problem_of(kernel: Any, given: Sequence[Any], dtype: str | None = None, form: FormOf = None) -> Problem:
    """Return the problem of a call without making tensors."""
    found, given = find(kernel), _without_end(given)
    pinned = _pinned_form(kernel, form)
    size = _size(found, given, dtype, pinned)
    if size is not None:
        return Problem(*size.extents or DEFAULT_SIZE, size.dtype or "fp16", size.form, size.batches)
    _, problem = _of_tensors(found, given, pinned)
    if problem is None:
        raise InputError(f"{found.name} is called with tensors of no matmul; give m, n and k.")
    return problem


def _size(found: UserKernel, given: Sequence[Any], dtype: str | None, form: Form) -> Size | None:
    """Return the size; None if the arguments of the kernel's call are given."""
    kind = None if dtype is None else plain_dtype(dtype)
    if len(given) == 1 and isinstance(given[0], Problem):
        return _of_problem(given[0], kind, form)
    if _are_arguments(found, given):
        _require_no_dtype(found, dtype)
        return None
    whole = given[0] if len(given) == 1 and isinstance(given[0], (tuple, list)) else given
    if len(whole) not in (0, 3) or any(isinstance(each, Problem) for each in whole):
        wanted = f"give m, n and k, a Problem, or the arguments of its call ({', '.join(found.parameters)})"
        raise InputError(f"{shown(tuple(whole))} stands behind {found.name}; {wanted}.")
    m, n, k = (positive(*each, found.least_extent) for each in zip("mnk", whole)) if whole else (None, None, None)
    return Size(None if m is None or n is None or k is None else (m, n, k), kind, form)


def _without_end(given: Sequence[Any]) -> tuple[Any, ...]:
    """Return the arguments without omitted trailing ones."""
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


def _of_problem(problem: Problem, dtype: str | None, form: Form) -> Size:
    if dtype not in (None, problem.dtype):
        raise InputError(f"dtype is {shown(dtype)} and the Problem's is {problem.dtype!r}; give one of the two.")
    if PLAIN != form != problem.form != PLAIN:
        raise InputError(f"form is {form} and the Problem's is {problem.form}; give one of the two.")
    return Size(
        (problem.m, problem.n, problem.k), problem.dtype, form if form != PLAIN else problem.form, problem.batches
    )


def _of_tensors(found: UserKernel, given: Sequence[Any], form: Form) -> tuple[tuple[Any, ...], Problem | None]:
    """Return all arguments of a call, and its problem, or None if it is no matmul."""
    if found.takes_forms:
        return _of_form(found, given, form)
    if len(given) != 6 or found.example_args is not None:
        return tuple(given), None
    m, n, k = (integer(each, 1, INT32_MAX) for each in given[:3])
    dtype = DTYPE_OF_TORCH.get(str(attribute(given[3], "dtype")))
    known = m is not None and n is not None and k is not None and dtype is not None
    return tuple(given), Problem(m, n, k, dtype) if known else None  # type: ignore[arg-type]


def _of_form(found: UserKernel, given: Sequence[Any], form: Form) -> tuple[tuple[Any, ...], Problem]:
    """Return all arguments with defaults; the tensors determine the form, except activation and factors."""
    rung: Any = found.script_cls
    takes = inspect.signature(rung.check_arguments)
    try:
        bound = takes.bind(*given)
    except TypeError as error:
        names = ", ".join(takes.parameters)
        raise InputError(f"{found.name} is called with the arguments {names}: {error}.") from None
    bound.apply_defaults()
    rung.check_arguments(*bound.args)
    problem, _ = rung.problem_of({"form": form}, *bound.args)
    return (bound.args if not problem.is_plain else tuple(given)), problem


# --- the GPU


def one_of(target: Target, gpu: Target) -> Target:
    """Return `gpu`, an older name of the target, if given; else `target`."""
    if target is not None and gpu is not None:
        raise InputError(f"target is {shown(target)} and gpu is {shown(gpu)}, which is the same; give one of the two.")
    return gpu if target is None else target


def name_of(target: Target) -> str | None:
    """Return the GPU's name for a compiler target; other names unchanged."""
    if isinstance(target, Gpu):
        return target.name
    is_target = (plain_text(target) or "").startswith("sm_") and by_name(target) is None
    return gpu_for_target(str(target)).name if is_target else target


def arch_of(target: Target) -> str | None:
    return target.arch if isinstance(target, Gpu) else target
