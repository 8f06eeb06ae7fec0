"""Compiles a Program to a cubin and a LaunchPlan with pip packages alone: no nvcc, host compiler, driver or GPU.

The runtime imports only `plan` and `bundle`, which hold plain data and import neither tilus nor cuda. So this package
imports its names on first use.

May import: base, frontend, hardware, problem.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from blackwell_matmul.base.first_use import on_first_use

if TYPE_CHECKING:
    from blackwell_matmul.compiler.bundle import Bundle, Resources
    from blackwell_matmul.compiler.compiling import compile, compile_many
    from blackwell_matmul.compiler.plan import LaunchPlan

__all__ = ["Bundle", "LaunchPlan", "Resources", "compile", "compile_many"]

__getattr__ = on_first_use(
    __name__,
    {
        "bundle": ("Bundle", "Resources"),
        "compiling": ("compile", "compile_many"),
        "plan": ("LaunchPlan",),
    },
)
