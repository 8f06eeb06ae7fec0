"""Compiles a Program to a cubin and a LaunchPlan with pip packages alone: no nvcc, host compiler, driver or GPU.

The runtime needs only `plan` and `bundle`, plain data that import neither tilus nor cuda. So names here are imported on
first use.

May import: base, frontend, hardware, problem.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from blackwell_matmul.compiler.bundle import Bundle, Resources
    from blackwell_matmul.compiler.compiling import compile, compile_many
    from blackwell_matmul.compiler.plan import LaunchPlan

__all__ = ["Bundle", "LaunchPlan", "Resources", "compile", "compile_many"]

_HOMES = {
    "bundle": ("Bundle", "Resources"),
    "compiling": ("compile", "compile_many"),
    "plan": ("LaunchPlan",),
}
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}


def __getattr__(name: str) -> object:
    if name not in _HOME_OF:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{_HOME_OF[name]}"), name)
    globals()[name] = value
    return value
