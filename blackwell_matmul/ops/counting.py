"""FLOPs of products, for torch.utils.flop_counter."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from blackwell_matmul.ops.operand_checks import shape_of
from blackwell_matmul.ops.two_levels import LAUNCH


def of_product(a: Tensor, b: Tensor, *_: Any, **__: Any) -> int:
    """Return the FLOPs of a[.., m, k] @ b[.., k, n]. An epilogue counts 0 FLOPs, as in torch."""
    return 2 * math.prod(shape_of(a, b)) * a.shape[-1]


def of_blocks(a: Tensor, b: Tensor, *_: Any, **__: Any) -> int:
    """Return the FLOPs of a block-scaled product. fp4 has two elements in a byte."""
    return of_product(a, b) * (2 if a.dtype == torch.float4_e2m1fn_x2 else 1)


def of_groups(x: Tensor, w: Tensor, *_: Any, **__: Any) -> int:
    """Return the FLOPs of a grouped product if all rows of x were in groups; the groups' ends are not read."""
    return 2 * x.numel() * w.shape[-1]


FORMULAS: Mapping[str, Callable[..., int]] = {
    name + end: formula
    for name, formula in (("matmul", of_product), ("grouped_matmul", of_groups), ("block_scaled_mm", of_blocks))
    for end in ("", LAUNCH)
}
"""Formulas of FLOPs, by the name of an operation in `torch.ops.blackwell_matmul`."""


def tell_counters() -> None:
    """Register the formulas with torch's flop_counter and with its running counters. A slow import is avoided:
    nothing happens if flop_counter is not imported."""
    if torch.compiler.is_compiling() or not torch._C._len_torch_dispatch_stack():
        return
    counter = sys.modules.get("torch.utils.flop_counter")
    if counter is None:
        return
    for name, formula in FORMULAS.items():
        operation = getattr(torch.ops.blackwell_matmul, name, None)
        if operation is None:  # the file that defines the operation is not imported
            continue
        if operation not in counter.flop_registry:
            counter.register_flop_formula(operation, get_raw=True)(formula)
        for mode in torch.utils._python_dispatch._get_current_dispatch_mode_stack():
            getattr(getattr(mode, "counter", None), "flop_registry", {}).setdefault(operation, formula)
