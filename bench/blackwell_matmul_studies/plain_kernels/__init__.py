"""Plain kernels: a copy and an add without TMA, to compare the primitives with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from blackwell_matmul.base.first_use import on_first_use

if TYPE_CHECKING:  # calling a class makes a Kernel, which takes the knobs alone
    PlainAdd: Any
    PlainCopy: Any

__all__ = ["PlainAdd", "PlainCopy"]

__getattr__ = on_first_use(__name__, {"plain_add": ("PlainAdd",), "plain_copy": ("PlainCopy",)})
