"""Check a kernel by name: a rung or a script of the user's, on inputs made up for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from blackwell_matmul.harness.kernel_call import KernelCall
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
