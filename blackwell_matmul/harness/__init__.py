"""Is the product right? The reference, the verdict, and the one line that says what was computed, how, and where."""

from blackwell_matmul.harness.listing import ScheduleList, ScheduleRow, schedules
from blackwell_matmul.harness.outputs import OutputVerdict
from blackwell_matmul.harness.reference import exact_product, torch_product
from blackwell_matmul.harness.result import Result, ScriptResult
from blackwell_matmul.harness.run import make_inputs, report, run_matmul, run_script
from blackwell_matmul.harness.verdict import Verdict, check_matmul

__all__ = [
    "OutputVerdict",
    "Result",
    "ScheduleList",
    "ScheduleRow",
    "ScriptResult",
    "Verdict",
    "check_matmul",
    "exact_product",
    "make_inputs",
    "report",
    "run_matmul",
    "run_script",
    "schedules",
    "torch_product",
]
