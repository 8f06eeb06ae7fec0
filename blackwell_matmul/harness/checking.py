"""`check` for any kernel, a rung or a user's script, on generated inputs or its own arguments."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from blackwell_matmul.harness.calls.kernel_call import FormOf, KernelCall, Target, resolve
from blackwell_matmul.harness.calls.user_kernel import Pins
from blackwell_matmul.harness.outputs import OutputVerdict
from blackwell_matmul.harness.verdict import Verdict, check_product
from blackwell_matmul.problem.form import PLAIN

if TYPE_CHECKING:
    from blackwell_matmul.harness.run import Progress
    from blackwell_matmul.simulator.report import Report

INPUT_SEED = 0
"""Seed of all inputs; the seed of a check determines only the order, so that it can be replayed."""


def check(
    kernel: Any,
    m: Any = None,
    n: Any = None,
    k: Any = None,
    *tensors: Any,
    dtype: str | None = None,
    schedule: Pins = None,
    target: Target = None,
    form: FormOf = None,
    orders: int | None = None,
    seed: int = 0,
    strict: bool = False,
    workers: int | None = None,
    progress: Progress | None = None,
) -> Report:
    """Run a kernel on CPU tensors in `orders` orders, and report faults of its ordering.

    kernel: "v1", "my_kernel.py:MyScript", a script class, or a kernel with pins. m, n, k: size for generated inputs, or
    m a `Problem`; or, with tensors, all arguments of its `__call__`. dtype, schedule, target, form: those of
    `run_matmul`. orders: None is 4 for fast launches, about a second each, and 1 for larger ones or a seed other than
    0, which replays. Order i is that of `simulate(..., seed=seed + i)`; seed 0 is program order. The first order writes
    the outputs in place; later ones use copies of the original tensors. strict: findings without a guarantee make the
    report not ok, as errors do. workers, progress: those of `simulate`.

    Raises InputError, CompileError or UnsupportedError if the kernel cannot run; its faults are in the report.
    """
    call = resolve(kernel, (m, n, k, *tensors), dtype, schedule, form, target=target, seed=INPUT_SEED)
    return check_call(call, orders=orders, seed=seed, strict=strict, workers=workers, progress=progress)


def check_call(call: KernelCall, **options: Any) -> Report:
    """Check a resolved call; options: those of `check` after the form, except the target."""
    from blackwell_matmul.simulator.check import check

    with call.kernel.loaded():
        report = check(call.script, *call.arguments, schedule=call.pins or None, target=call.arch, **options)
    formed = call.problem is not None and call.problem.form != PLAIN  # such a kernel reads tensors in their layout
    return replace(report, disagreements=()) if formed else report


def verdicts(call: KernelCall, expected: Mapping[int, Any]) -> list[Verdict | OutputVerdict]:
    """Return verdicts on the outputs after a check, if the expected result is known."""
    if call.kernel.reference is not None:
        return [*call.compared(expected)]
    return [] if call.problem is None else [check_product(call.problem, call.arguments[3:])]
