"""The rule of which products `Gemv` computes, and the choice of its schedule."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import shown
from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.kernels.host.forms import lines_of
from blackwell_matmul.kernels.host.matmul import ALIGNMENT_BYTES, HALVES
from blackwell_matmul.problem.form import Form
from blackwell_matmul.problem.problem import C_BYTES, INT32_MAX, Problem

VECTOR = ALIGNMENT_BYTES // C_BYTES
"""Elements of 16 bits in the widest load."""

MOST_VECTORS = 4
"""Maximum rows of the smaller operand. Each thread multiplies what it has loaded by all of them."""

LEAST_K = 32 * VECTOR
"""Minimum k: one load of each lane of a warp."""

MOST_BATCHES = 65535
"""Maximum batches: the extent of a grid in y (CUDA C++ Programming Guide, "Technical Specifications")."""

KNOB_VALUES = (1, 2, 4, 8, 16)


def why_no_gemv(a: Any, b: Any, form: Form) -> str:
    """Return the reason why `Gemv` does not multiply a[.., m, k] by b[.., n, k]; "" if it does. TMA can read both."""
    if min(a.shape[-2], b.shape[-2]) > MOST_VECTORS:
        return f"neither operand has {MOST_VECTORS} rows at most"
    if a.dtype not in HALVES or form.epilogue.scale != "none":
        return "operands of 8 bits and scales are for the other kernels"
    if form.epilogue.columns_of_c > 1 and b.shape[-2] < a.shape[-2]:
        return "swiglu of few columns is for the other kernels"
    k = a.shape[-1]
    if k < LEAST_K or k % VECTOR or not (lines_of(a).k_major and lines_of(b).k_major):
        return f"both operands must be contiguous along k, and k a multiple of {VECTOR}, {LEAST_K} at least"
    if max(map(_elements, (a, b))) > INT32_MAX or max(x.shape[0] if x.dim() == 3 else 1 for x in (a, b)) > MOST_BATCHES:
        return f"an operand spans more than {INT32_MAX} elements, or has more than {MOST_BATCHES} batches"
    return ""


def gemv_schedule(problem: Problem, gpu: Gpu) -> dict[str, int]:
    """Return the knobs for a problem: many loads in flight on each SM, and many CTAs, which leave short tails."""
    few, many = sorted((problem.m, problem.n))
    ctas = problem.batches * many  # with one row each
    least = problem.form.epilogue.columns_of_c
    rows = next((each for each in (4, 2) if ctas >= 2 * gpu.sm_count * each), least)
    parts = _fitting(problem.k, 16 if ctas < gpu.sm_count else 4)
    unroll = _fitting(problem.k // parts, (8 if few <= 2 else 4) // rows)
    return {"rows": rows, "warps": max(4, parts), "parts": parts, "unroll": unroll}


def _fitting(k: int, most: int) -> int:
    """Return the most warps, or loads of a lane, up to `most`, that share k with something to do for each."""
    return next(each for each in reversed(KNOB_VALUES) if each == 1 or (each <= most and each * LEAST_K <= k))


def check_knobs(knobs: Mapping[str, Any], problem: Problem) -> None:
    """Raise InputError unless rows, warps, parts and unroll are powers of two that fit each other and the problem."""
    for name, value in knobs.items():
        if value not in KNOB_VALUES:
            raise InputError(f"{name} is {shown(value)}; it must be one of {', '.join(map(str, KNOB_VALUES))}.")
    rows, warps, parts = (knobs[name] for name in ("rows", "warps", "parts"))
    if parts > warps:
        raise InputError(f"parts is {parts} and warps {warps}; the parts of k are warps of one CTA.")
    if rows * (warps // parts) < problem.form.epilogue.columns_of_c:
        raise InputError("A CTA has one column of the product, and swiglu needs two; rows=2 has them.")


def _elements(x: Any) -> int:
    """Return the elements from the first to the last one of a tensor in memory."""
    return 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
