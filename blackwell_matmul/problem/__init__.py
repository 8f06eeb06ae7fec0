"""The requested product: sizes and dtype, the schedule, the form of the operands, the epilogue.

May import: base.
"""

from __future__ import annotations

from blackwell_matmul.problem.problem import Problem, Schedule

__all__ = ["Problem", "Schedule"]
