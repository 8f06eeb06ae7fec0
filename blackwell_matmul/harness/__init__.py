"""Is the product right? The reference, the verdict, and the one line that says what was computed, how, and where."""

from blackwell_matmul.harness.reference import exact_product, torch_product
from blackwell_matmul.harness.result import Result
from blackwell_matmul.harness.run import make_inputs, report, run_matmul
from blackwell_matmul.harness.verdict import Verdict, check_matmul

__all__ = [
    "Result",
    "Verdict",
    "check_matmul",
    "exact_product",
    "make_inputs",
    "report",
    "run_matmul",
    "torch_product",
]
