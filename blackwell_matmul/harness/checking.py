"""`check`: checks the order of any kernel's accesses, on generated inputs or given arguments."""

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
"""Seed of all inputs. The seed of a check determines only the order of warps and completions."""


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
    """Run a kernel on CPU tensors in `orders` orders of warps and completions, and report races and deadlocks.

    kernel: "v1", "my_kernel.py:MyScript", a script class, or a kernel with pins. m, n, k: size for generated inputs, or
    m is a `Problem`. With tensors, these are all arguments of the kernel's `__call__`. dtype, schedule, target, form:
    those of `run_matmul`. orders: number of orders; None is 4 for launches of about a second, and 1 for longer launches
    or a seed other than 0. Order i is that of `simulate(..., seed=seed + i)`; seed 0 is program order. The first order
    writes the outputs in place; later orders use copies of the original tensors. strict: True makes findings about
    behavior that PTX does not guarantee errors, too. workers, progress: those of `simulate`.

    Raises InputError, CompileError or UnsupportedError if the kernel cannot run. The report has the kernel's faults.
    """
    call = resolve(kernel, (m, n, k, *tensors), dtype, schedule, form, target=target, seed=INPUT_SEED)
    return check_call(call, orders=orders, seed=seed, strict=strict, workers=workers, progress=progress)


def check_call(call: KernelCall, **options: Any) -> Report:
    """Check a resolved call. options: arguments of `check` after form."""
    from blackwell_matmul.simulator.check import check

    with call.kernel.loaded():
        report = check(call.script, *call.arguments, schedule=call.pins or None, target=call.arch, **options)
    formed = call.problem is not None and call.problem.form != PLAIN  # the kernel then reads tensors in any layout
    return replace(report, disagreements=()) if formed else report


def verdicts(call: KernelCall, expected: Mapping[int, Any]) -> list[Verdict | OutputVerdict]:
    """Return verdicts on the outputs after a check; an empty list if the expected result is unknown."""
    if call.kernel.reference is not None:
        return [*call.compared(expected)]
    return [] if call.problem is None else [check_product(call.problem, call.arguments[3:])]
