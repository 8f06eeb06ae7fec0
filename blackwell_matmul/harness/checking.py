"""Check a kernel by name: a rung or a script of the user's, on inputs made up for it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from blackwell_matmul.errors import InputError
from blackwell_matmul.harness import foreign as foreign_scripts
from blackwell_matmul.harness import run as runs
from blackwell_matmul.harness.foreign import Foreign
from blackwell_matmul.harness.outputs import OutputVerdict, compare
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

    foreign: Foreign
    script: Any
    args: tuple[Any, ...]
    pins: Mapping[str, object]
    expected: Mapping[int, Any] | None

    def check(self, **options: Any) -> Report:
        from blackwell_matmul.simulator.sanitizer.check import check

        with foreign_scripts.importable(self.foreign.folder):
            return check(self.script, *self.args, schedule=self.pins or None, **options)

    def verdicts(self) -> list[Verdict | OutputVerdict]:
        """After a check: whether the outputs are right, where anything says what right is."""
        if self.expected is not None:
            names, tolerance = list(self.foreign.parameters), self.foreign.tolerance
            return [compare(names[at], self.args[at], value, tolerance) for at, value in self.expected.items()]
        return [check_matmul(*self.args[3:])] if self.foreign.example_args is None else []


def call_of(
    kernel: Any,
    size: Sequence[int] | None = None,
    dtype: str | None = None,
    schedule: str | Schedule | Mapping[str, object] | None = None,
) -> Call:
    """kernel: "v1", "my_kernel.py:MyScript", a script class, or a kernel with pins. The rest is as for `run_script`."""
    foreign = _foreign(kernel)
    pins = foreign_scripts.read_schedule(foreign, schedule if isinstance(schedule, str) else as_pins(schedule))
    script = foreign.script_cls if isinstance(kernel, str) else kernel
    sizes = runs.plain_size(size)
    if foreign.example_args is None:
        problem = foreign_scripts.matmul_problem(foreign, sizes, dtype)
        args: tuple[Any, ...] = (problem.m, problem.n, problem.k, *runs.make_inputs(problem, INPUT_SEED))
        pins = pins if script is not foreign.script_cls else foreign_scripts.fill_dtype(foreign, pins, problem)
    elif dtype is not None:
        what = f"dtype is {shown(dtype)} and {foreign.name} has example_args, which makes its own"
        raise InputError(f"{what}; leave it out.")
    else:
        with runs.seeded(INPUT_SEED):
            args = foreign_scripts.example_call(foreign, sizes)
    return Call(foreign, script, args, pins, _expected(foreign, args))


def _foreign(kernel: Any) -> Foreign:
    if isinstance(kernel, str) and not foreign_scripts.names_a_file(kernel):
        from blackwell_matmul.kernels import rung

        return foreign_scripts.load(rung(kernel))
    return foreign_scripts.load(kernel if isinstance(kernel, str) else getattr(kernel, "script_cls", kernel))


def _expected(foreign: Foreign, args: tuple[Any, ...]) -> dict[int, Any] | None:
    if foreign.reference is None:
        return None
    with runs.seeded(INPUT_SEED):
        return foreign_scripts.expected_outputs(foreign, copy.deepcopy(args))


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
