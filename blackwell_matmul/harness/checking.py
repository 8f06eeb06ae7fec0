"""Check a kernel by name: a rung or a script of the user's, on inputs made up for it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from blackwell_matmul.errors import InputError
from blackwell_matmul.harness import run as runs
from blackwell_matmul.harness import user_kernel
from blackwell_matmul.harness.outputs import OutputVerdict, compare
from blackwell_matmul.harness.user_kernel import UserKernel
from blackwell_matmul.harness.verdict import Verdict, check_matmul
from blackwell_matmul.problem import Schedule, as_pins
from blackwell_matmul.validation import shown

if TYPE_CHECKING:
    from blackwell_matmul.simulator.sanitizer.report import Report

INPUT_SEED = 0
"""The inputs are always the same: the seed of a check gives the order alone, so that it replays."""


@dataclass(frozen=True, eq=False)
class Call:
    """A script and the arguments of one call of it. pins: of its `__init__`. expected: by position, the outputs that
    its file's `reference` names."""

    found: UserKernel
    script: Any
    args: tuple[Any, ...]
    pins: Mapping[str, object]
    expected: Mapping[int, Any] | None

    def check(self, **options: Any) -> Report:
        from blackwell_matmul.simulator.sanitizer.check import check

        with user_kernel.importable(self.found.folder):
            return check(self.script, *self.args, schedule=self.pins or None, **options)

    def verdicts(self) -> list[Verdict | OutputVerdict]:
        """After a check: whether the outputs are right, where anything says what right is."""
        if self.expected is not None:
            names, tolerance = list(self.found.parameters), self.found.tolerance
            return [compare(names[at], self.args[at], value, tolerance) for at, value in self.expected.items()]
        return [check_matmul(*self.args[3:])] if self.found.example_args is None else []


def call_of(
    kernel: Any,
    size: Sequence[int] | None = None,
    dtype: str | None = None,
    schedule: str | Schedule | Mapping[str, object] | None = None,
) -> Call:
    """kernel: "v1", "my_kernel.py:MyScript", a script class, or a kernel with pins. The rest is as for `run_script`."""
    found = _found(kernel)
    pins = user_kernel.read_schedule(found, schedule if isinstance(schedule, str) else as_pins(schedule))
    script = found.script_cls if isinstance(kernel, str) else kernel
    sizes = runs.plain_size(size)
    if found.example_args is None:
        problem = user_kernel.matmul_problem(found, sizes, dtype)
        args: tuple[Any, ...] = (problem.m, problem.n, problem.k, *runs.make_inputs(problem, INPUT_SEED))
        pins = pins if script is not found.script_cls else user_kernel.fill_dtype(found, pins, problem)
    elif dtype is not None:
        what = f"dtype is {shown(dtype)} and {found.name} has example_args, which makes its own"
        raise InputError(f"{what}; leave it out.")
    else:
        with runs.seeded(INPUT_SEED):
            args = user_kernel.example_call(found, sizes)
    return Call(found, script, args, pins, _expected(found, args))


def _found(kernel: Any) -> UserKernel:
    if isinstance(kernel, str) and not user_kernel.names_a_file(kernel):
        from blackwell_matmul.kernels import rung

        return user_kernel.load(rung(kernel))
    return user_kernel.load(kernel if isinstance(kernel, str) else getattr(kernel, "script_cls", kernel))


def _expected(found: UserKernel, args: tuple[Any, ...]) -> dict[int, Any] | None:
    if found.reference is None:
        return None
    with runs.seeded(INPUT_SEED):
        return user_kernel.expected_outputs(found, copy.deepcopy(args))


def check_kernel(
    kernel: Any,
    size: Sequence[int] | None = None,
    dtype: str | None = None,
    schedule: str | Schedule | Mapping[str, object] | None = None,
    *,
    orders: int = 1,
    seed: int = 0,
    strict: bool = False,
    target: str | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Make inputs for a kernel and `check` it on them."""
    options = {"seed": seed, "strict": strict, "target": target, "workers": workers, "progress": progress}
    return call_of(kernel, size, dtype, schedule).check(orders=orders, **options)
