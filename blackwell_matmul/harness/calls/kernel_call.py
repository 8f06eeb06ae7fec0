"""`resolve`: from the arguments of `run_matmul`, `check`, `compile` and the commands to one call of a kernel.

The kernel is a name ("v1"), a user's script ("my_kernel.py:MyScript"), a script class, or a kernel with pins. m, n and
k, or a `Problem`, follow, for generated arguments; or all arguments of the kernel's `__call__`, with tensors. Without
them the sizes are 1024 each, or the defaults of `example_args`.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import attribute, integer, number, said, shown
from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.harness.calls import inputs, user_kernel
from blackwell_matmul.harness.calls.user_kernel import Pins, UserKernel
from blackwell_matmul.harness.outputs import OutputVerdict, compare
from blackwell_matmul.kernels.host.forms import pinned_form
from blackwell_matmul.problem.block_scaled import BLOCK_SCALED
from blackwell_matmul.problem.form import PLAIN, Epilogue, Form
from blackwell_matmul.problem.problem import DTYPE_OF_TORCH, INT32_MAX, Problem, plain_dtype, positive
from blackwell_matmul.scheduling.ladders import BLOCK_SCALED_LADDER

Target = str | Gpu | None
"""A `Gpu`, its name such as "B200", or a target such as "sm_100a"; None: the first target of the kernel."""


FormOf = Form | Epilogue | None
"""Form of a product. An `Epilogue` is the plain form with this epilogue. None is the form that the kernel pins."""


@dataclass(frozen=True, eq=False)
class KernelCall:
    """A call of a kernel.

    script: a class, or a kernel with pins. pins: further arguments of `__init__`. seed: seed of generated arguments;
    None: tensors without values, if nothing runs. form: the given form, or the kernel's. problem: problem of a matmul;
    None for other calls. given: all arguments; None: arguments are generated. size, dtype: given size and type, for
    `example_args`. gpu_argument: argument that named the target, for messages.
    """

    kernel: UserKernel
    script: Any
    pins: Mapping[str, object]
    target: Target
    seed: int | None
    form: Form
    problem: Problem | None = None
    given: tuple[Any, ...] | None = None
    size: tuple[int, int, int] | None = None
    dtype: str | None = None
    gpu_argument: str = "target"

    @cached_property
    def arguments(self) -> tuple[Any, ...]:
        """Return all arguments of the call. Arguments are generated at the first use."""
        if self.given is not None:
            require_form(self.kernel, self.form)
            return self.given
        if self.problem is not None:
            require_form(self.kernel, self.form, self.problem.batches)
            require_scales(self.kernel, self.problem)
            return inputs.arguments_of(self.problem, self.seed)
        if self.dtype is not None:
            what = f"dtype is {shown(self.dtype)} and {self.kernel.name} has example_args, which makes its own"
            raise InputError(f"{what}; leave it out.")
        with inputs.seeded(self.seed or 0):
            return user_kernel.example_call(self.kernel, self.size)

    @property
    def arch(self) -> str | None:
        """Return the target for the compiler and the simulator."""
        return self.target.arch if isinstance(self.target, Gpu) else self.target

    @property
    def all_pins(self) -> dict[str, object]:
        """Return the arguments of `__init__` that the kernel or the call pins."""
        return {**own_pins(self.script), **self.pins}

    @property
    def is_matmul(self) -> bool:
        """Return True if the expected result is C = A @ B.T, not that of a `reference`."""
        return self.problem is not None and self.kernel.reference is None

    def with_defaults(self) -> tuple[Any, ...]:
        """Return all arguments, with the kernel's defaults for omitted arguments."""
        bound = inspect.signature(self.kernel.script_cls.__call__).bind(None, *self.arguments)
        bound.apply_defaults()
        return bound.args[1:]

    def expected(self) -> Mapping[int, Any]:
        """Return the outputs of the file's `reference`, by the argument's position; an empty dict without a
        `reference`."""
        if self.kernel.reference is None:
            return {}
        try:
            copies = copy.deepcopy(self.arguments)
        except Exception as error:
            what = f"the arguments of {self.kernel.name} cannot be copied for its reference"
            raise InputError(f"{what}: {said(error)}.") from error
        with inputs.seeded(self.seed or 0):
            return user_kernel.expected_outputs(self.kernel, copies)

    def compared(self, expected: Mapping[int, Any]) -> tuple[OutputVerdict, ...]:
        """Return a verdict on each expected output after a run. expected: outputs by position."""
        names, tolerance = list(self.kernel.parameters), self.kernel.tolerance
        return tuple(compare(names[at], self.arguments[at], value, tolerance) for at, value in expected.items())


def resolve(
    kernel: Any,
    given: Sequence[Any] = (),
    dtype: str | None = None,
    schedule: Pins = None,
    form: FormOf = None,
    *,
    size: Sequence[int] | None = None,
    batches: int = 1,
    target: Target = None,
    gpu: Target = None,
    seed: int | None = None,
) -> KernelCall:
    """Return the call that these arguments describe.

    given: arguments after the kernel; None for an omitted argument. dtype: None is the type of the kernel's pointers,
    or fp16. size: m, n and k, in place of given. gpu: older name of the argument target.
    """
    if target is not None and gpu is not None:
        raise InputError(f"target is {shown(target)} and gpu is {shown(gpu)}, which is the same; give one of the two.")
    found, values = user_kernel.find(kernel), _without_end(given)
    script = found.script_cls if isinstance(kernel, (str, UserKernel)) else kernel
    pinned = _pinned_form(script, form)
    if size is None and _are_arguments(found, values):
        asked = _of_tensors(found, values, dtype, pinned, own_pins(script))
    else:
        asked = _of_size(found, values if size is None else (size,), dtype, pinned, batches)
    pins = user_kernel.pins_of(found, schedule, asked.get("problem") if script is found.script_cls else None)
    if (
        asked["form"] != PLAIN and own_pins(script).get("form") is None and not found.takes_scales
    ):  # tensors do not determine the form
        pins = {**pins, "form": asked["form"]}
    named, argument = (target, "target") if gpu is None else (gpu, "gpu")
    return KernelCall(found, script, pins, named, seed, gpu_argument=argument, **asked)


def _without_end(given: Sequence[Any]) -> tuple[Any, ...]:
    """Return the arguments without omitted trailing ones."""
    values = tuple(given)
    while len(values) <= 3 and values and values[-1] is None:
        values = values[:-1]
    return values


def _pinned_form(script: Any, form: FormOf) -> Form:
    """Return the given form, or else the kernel's; raise InputError if they differ."""
    own = own_pins(script).get("form")
    if own is None and form is None:
        return PLAIN
    if own is not None and form is not None and pinned_form(own) != pinned_form(form):
        raise InputError(f"form is {shown(form)} and the kernel was made with another one; give one of the two.")
    return pinned_form(own if form is None else form)


def own_pins(script: Any) -> Mapping[str, Any]:
    """Return the arguments of `__init__` with which a kernel was made; an empty dict for a class."""
    pins = attribute(script, "pins")
    return pins if isinstance(pins, Mapping) else {}


def require_form(found: UserKernel, form: Form, batches: int = 1) -> None:
    """Raise InputError if a kernel cannot compute this form or several batches."""
    if (form == PLAIN and batches == 1) or found.takes_forms:
        return
    if found.takes_scales and batches == 1 and replace(form, out="") == PLAIN:
        return
    what = " and ".join(filter(None, (str(form), f"{batches} batches" if batches > 1 else "")))
    if found.example_args is not None:
        raise InputError(f"form is {what} and {found.name} has example_args, which makes its own; leave it out.")
    raise InputError(f"{found.name} computes one product of K-major matrices, without {what}; blackwell and hopper do.")


def require_scales(found: UserKernel, problem: Problem) -> None:
    """Raise InputError if only one of kernel and problem is block-scaled."""
    if found.takes_scales == (problem.format is not None):
        return
    ladder = ", ".join(BLOCK_SCALED_LADDER)
    if found.takes_scales:
        raise InputError(f"dtype is {problem.dtype}; {found.name} multiplies {', '.join(BLOCK_SCALED)}.")
    raise InputError(f"dtype is {problem.dtype}; {found.name} takes no scales, and the kernels that do are {ladder}.")


# --- calls with a size


def _of_size(found: UserKernel, given: Sequence[Any], dtype: str | None, form: Form, batches: int) -> dict[str, Any]:
    """Return fields of `KernelCall` for generated arguments. given: a `Problem`; or m, n and k; or nothing."""
    whole = given[0] if len(given) == 1 and isinstance(given[0], (tuple, list, Problem)) else given
    if isinstance(whole, Problem):
        _require_agreement(whole, dtype, form)
        dtype, form, batches = whole.dtype, whole.form if form == PLAIN else form, whole.batches
        whole = whole.m, whole.n, whole.k
    if len(whole) not in (0, 3) or any(isinstance(each, Problem) for each in whole):
        wanted = f"give m, n and k, a Problem, or the arguments of its call ({', '.join(found.parameters)})"
        raise InputError(f"{shown(tuple(whole))} stands behind {found.name}; {wanted}.")
    if found.example_args is not None:  # m, n and k may have any meaning
        require_form(found, form, batches)
        size = tuple(positive(name, each, least=0) for name, each in zip("mnk", whole))
        return {"form": form, "size": size or None, "dtype": dtype}
    problem = user_kernel.matmul_problem(found, whole, dtype, form, batches)
    return {"form": form, "problem": problem, "size": (problem.m, problem.n, problem.k)}


def _require_agreement(problem: Problem, dtype: str | None, form: Form) -> None:
    """Raise InputError if a given dtype or form differs from the `Problem`'s."""
    if dtype is not None and plain_dtype(dtype) != problem.dtype:
        raise InputError(f"dtype is {shown(dtype)} and the Problem's is {problem.dtype!r}; give one of the two.")
    if PLAIN != form != problem.form != PLAIN:
        raise InputError(f"form is {form} and the Problem's is {problem.form}; give one of the two.")


# --- calls with tensors


def _are_arguments(found: UserKernel, values: Sequence[Any]) -> bool:
    """Return True if the values are arguments of the kernel's call, not m, n and k or a `Problem`."""
    if len(values) == 1 and isinstance(values[0], Problem):
        return False
    tensors = any(attribute(each, "shape") is not None and number(each) is None for each in values)
    return tensors or (found.example_args is None and len(values) == len(found.parameters))


def _of_tensors(
    found: UserKernel, given: tuple[Any, ...], dtype: str | None, form: Form, pins: Mapping[str, object]
) -> dict[str, Any]:
    """Return fields of `KernelCall` for given arguments; without a problem if the call is no matmul."""
    if dtype is not None:
        raise InputError(f"dtype is {shown(dtype)} and {found.name} gets tensors, which have their own; leave it out.")
    if found.takes_forms or found.takes_scales:
        return {"form": form, **_of_form(found, given, form, pins)}
    asked: dict[str, Any] = {"form": form, "given": given}
    if len(given) == 6 and found.example_args is None:
        m, n, k = (integer(each, 1, INT32_MAX) for each in given[:3])
        kind = DTYPE_OF_TORCH.get(str(attribute(given[3], "dtype")))
        if m is not None and n is not None and k is not None and kind is not None:
            asked["problem"] = Problem(m, n, k, kind)
    return asked


def _of_form(found: UserKernel, given: tuple[Any, ...], form: Form, pins: Mapping[str, object]) -> dict[str, Any]:
    """Return the arguments with defaults, and the problem.

    The tensors determine its form, except activation, alpha and beta.
    """
    rung: Any = found.script_cls
    takes = inspect.signature(rung.check_arguments)
    try:
        bound = takes.bind(*given)
    except TypeError as error:
        names = ", ".join(takes.parameters)
        raise InputError(f"{found.name} is called with the arguments {names}: {error}.") from None
    bound.apply_defaults()
    rung.check_arguments(*bound.args)
    problem, _ = rung.problem_of({**pins, "form": form}, *bound.args)
    return {"given": given if problem.is_plain else bound.args, "problem": problem}
