"""The problem (sizes and types, form of the operands, epilogue) and the schedule of its kernel.

May import: base.
"""

from __future__ import annotations

from blackwell_matmul.problem.problem import Problem, Schedule

__all__ = ["Problem", "Schedule"]
