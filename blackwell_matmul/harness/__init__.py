"""Runs of kernels with checked results: inputs, reference, verdict, and a one-line report.

Names are imported on first use, so that a refused option loads neither torch nor tilus.

May import: base, compiler, emulator, frontend, hardware, jobs, kernels, ops, problem, runtime, scheduling,
simulator, simulator.semantics, simulator.timing, simulator.trace.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blackwell_matmul.base.first_use import on_first_use

if TYPE_CHECKING:
    from blackwell_matmul.harness.calls.inputs import make_inputs as make_inputs
    from blackwell_matmul.harness.listing import (
        ScheduleList as ScheduleList,
        ScheduleRow as ScheduleRow,
        schedules as schedules,
    )
    from blackwell_matmul.harness.outputs import OutputVerdict as OutputVerdict
    from blackwell_matmul.harness.reference import torch_product as torch_product
    from blackwell_matmul.harness.result import Result as Result, ScriptResult as ScriptResult
    from blackwell_matmul.harness.run import report as report, run_matmul as run_matmul, run_script as run_script
    from blackwell_matmul.harness.verdict import Verdict as Verdict, check_matmul as check_matmul

__getattr__ = on_first_use(
    __name__,
    {
        "calls.inputs": ("make_inputs",),
        "listing": ("ScheduleList", "ScheduleRow", "schedules"),
        "outputs": ("OutputVerdict",),
        "reference": ("torch_product",),
        "result": ("Result", "ScriptResult"),
        "run": ("report", "run_matmul", "run_script"),
        "verdict": ("Verdict", "check_matmul"),
    },
)
