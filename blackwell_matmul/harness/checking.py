"""Check a kernel by name: a rung or a script of the user's, on inputs made up for it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from blackwell_matmul.harness.kernel_call import KernelCall, Pins, resolve
from blackwell_matmul.harness.outputs import OutputVerdict
from blackwell_matmul.harness.verdict import Verdict, check_matmul

if TYPE_CHECKING:
    from blackwell_matmul.simulator.report import Report

INPUT_SEED = 0
"""The inputs are always the same: the seed of a check gives the order alone, so that it replays."""


def check_call(call: KernelCall, **options: Any) -> Report:
    from blackwell_matmul.simulator.check import check

    with call.loaded():
        return check(call.script, *call.arguments, schedule=call.pins or None, **options)


def verdicts(call: KernelCall, expected: Mapping[int, Any]) -> list[Verdict | OutputVerdict]:
    """After a check: whether the outputs are right, where anything says what right is."""
    if call.kernel.reference is not None:
        return [*call.compared(expected)]
    return [] if call.problem is None else [check_matmul(*call.arguments[3:])]


def check_kernel(
    kernel: Any,
    size: Sequence[int] | None = None,
    dtype: str | None = None,
    schedule: Pins = None,
    *,
    orders: int = 1,
    seed: int = 0,
    strict: bool = False,
    target: str | None = None,
    workers: int | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> Report:
    """Make inputs for a kernel and `check` it on them."""
    call = resolve(kernel, size, dtype, schedule, seed=INPUT_SEED)
    return check_call(call, orders=orders, seed=seed, strict=strict, target=target, workers=workers, progress=progress)
