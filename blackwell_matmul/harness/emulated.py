"""Runs of a compiled kernel's PTX in the emulator, on the CPU, as an independent check."""

from __future__ import annotations

import time
from dataclasses import replace

from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.compiler import Bundle
from blackwell_matmul.emulator import check_ptx, emulate
from blackwell_matmul.emulator.order.ptx_findings import PtxReport
from blackwell_matmul.harness.calls.kernel_call import KernelCall
from blackwell_matmul.harness.compiled import compile_call
from blackwell_matmul.harness.result import Ran, Result, ScriptResult
from blackwell_matmul.harness.run import Progress, judged, tile_of_c
from blackwell_matmul.harness.timelines import timeline_buffer

TMA_ROWS = 8
"""Minimum number of 16-bit elements of a line for TMA."""

ORDERS_OF_POLICIES = {"adversarial": "late", "eager": "eager", "random": "random"}
"""The emulator's order of asynchronous operations for each policy of the simulator."""


def emulate_call(
    call: KernelCall, *, policy: str = "adversarial", progress: Progress | None = None
) -> Result | ScriptResult:
    """Compile a resolved call, execute its PTX in the emulator, and check the outputs as `run_call` does.

    Raises the errors of `compile`, and EmulationError if the code has a fault.
    """
    return _executed(call, compile_call(call), policy, progress)


def _executed(
    call: KernelCall, bundle: Bundle, policy: str = "adversarial", progress: Progress | None = None
) -> Result | ScriptResult:
    expected = call.expected()
    seconds = execute(call, bundle, policy, progress)
    return judged(call, expected, Ran(bundle.name, bundle.schedule, bundle.target, seconds, "emulated"))


def execute(call: KernelCall, bundle: Bundle, policy: str = "adversarial", progress: Progress | None = None) -> float:
    """Execute a bundle in the emulator on the arguments of a call; return the seconds."""
    arguments = _arguments(call, bundle)
    start = time.perf_counter()
    emulate(bundle, *arguments, order=ORDERS_OF_POLICIES[policy], seed=call.seed or 0, progress=progress)
    return time.perf_counter() - start


def _arguments(call: KernelCall, bundle: Bundle) -> list[object]:
    named = dict(zip(call.kernel.parameters, call.arguments))
    takes = bundle.plan.parameters if bundle.marks is None else bundle.plan.parameters[:-1]
    arguments = [named.get(each.name, each.default) for each in takes]
    if bundle.marks is not None:
        arguments.append(timeline_buffer(bundle, *arguments))
    return arguments


def check_code(call: KernelCall, progress: Progress | None = None) -> PtxReport:
    """Compile a resolved call, and check the order of the accesses in its PTX."""
    bundle = compile_call(call)
    return check_ptx(bundle, *_arguments(call, bundle), progress=progress)


def check_compiled(bundle: Bundle, call: KernelCall, progress: Progress | None = None) -> Result | ScriptResult:
    """Execute a bundle in the emulator, and check the outputs.

    A matmul is executed with few rows: one tile and one row. n and k, which may be constants of the code, stay. A
    kernel with a `reference` is executed on the call's arguments. Raises UnsupportedError for a kernel without a known
    result.
    """
    asked, call = call.problem, replace(call, seed=call.seed or 0)
    if call.kernel.reference is not None:
        return _executed(call, bundle, progress=progress)
    if asked is None:
        raise UnsupportedError(
            f"nothing says what {call.kernel.name} has to compute, as --check must know; give its file a reference(...)"
            " beside example_args, or compile it without --check."
        )
    rows, more = tile_of_c(bundle.schedule)[0], 1 if asked.form.a_major == "k" else TMA_ROWS
    few = rows + more if isinstance(bundle.schedule.get("block_m"), int) and "m" not in bundle.consts else asked.m
    small = replace(call, given=None, problem=replace(asked, m=min(asked.m, few)))
    return _executed(small, bundle, progress=progress)
