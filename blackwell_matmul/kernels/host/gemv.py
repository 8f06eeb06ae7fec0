"""Host code of `Gemv`: which products it can compute, when it is the fastest kernel, and its schedule."""

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
"""Number of 16-bit elements in the widest load."""

MOST_VECTORS = 8
"""Maximum number of rows of the smaller operand: the columns of an mma.sync."""

FEW_VECTORS, LEAST_ROWS, NEAR_BYTES = 4, 1024, 48 << 20
"""Rule for the use of `Gemv`: up to 4 vectors for any matrix; more vectors for a matrix of at least 1024 rows and at
most 48 MiB, which the L2 holds.

Of 14 products with 5 to 8 vectors on an H200 (h200_eight_vectors.json), the rule selects five. Four of them take 0.75
to 0.90 of `HopperMatmul`'s time, and one takes 1.05."""

MMA_ROWS, MMA_COLUMNS = 16, 8
"""Rows and columns of an mma.sync of 16-bit types (PTX ISA, mma.m16n8k16)."""

LEAST_K = 256
"""Minimum k. For a smaller k, half of the lanes or more would have no element to load."""

MOST_BATCHES = 65535
"""Maximum number of batches: the largest y of a grid (CUDA C++ Programming Guide, "Technical Specifications")."""

KNOB_VALUES = (1, 2, 4, 8, 16)
"""Values that each knob may have."""

WARPS_OF_SM = 16
"""Minimum number of warps on each SM, for which warps share k if necessary. With eight loads of each lane, an SM then
has 64 KB in flight."""


def why_no_gemv(a: Any, b: Any, form: Form) -> str:
    """Return the reason why `Gemv` cannot multiply a[.., m, k] by b[.., n, k]; "" if it can. TMA can read a and b."""
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


def gemv_pays(a: Any, b: Any, gpu: Gpu) -> bool:
    """Return True if `Gemv` multiplies a[.., m, k] by b[.., n, k] as fast as the GPU's other kernels, or faster."""
    few, many = sorted((a.shape[-2], b.shape[-2]))
    near = many >= LEAST_ROWS and many * a.shape[-1] * C_BYTES <= NEAR_BYTES
    return few <= FEW_VECTORS or (near and gpu.arch == "sm_90a")


def rows_of_mma(few: int) -> int:
    """Return the number of the matrix's rows in an mma.sync. few: number of vectors.

    Rows and columns of the mma.sync then have the same number of stretches of k.
    """
    return 2 << (few - 1).bit_length()


def gemv_schedule(problem: Problem, gpu: Gpu) -> dict[str, int]:
    """Return the knobs for a problem, with many loads in flight on each SM and many CTAs."""
    few, many = sorted((problem.m, problem.n))
    least = rows_of_mma(few)
    rows = max(least, 4 if problem.batches * many >= 8 * gpu.sm_count else 2)
    ctas = problem.batches * -(-many // rows)
    step = 64 * MMA_ROWS // least  # elements of k that a warp multiplies at a time
    busy = (each for each in KNOB_VALUES if each >= 4 and ctas * each >= WARPS_OF_SM * gpu.sm_count)
    parts = _fitting(problem.k // step, next(busy, KNOB_VALUES[-1]))
    unroll = _fitting(problem.k // step // parts, 2 * least // rows)
    return {"rows": rows, "warps": max(4, parts), "parts": parts, "unroll": unroll}


def _fitting(steps: int, most: int) -> int:
    """Return the largest power of two that is at most `steps` and `most`; at least 1."""
    return 1 << (max(1, min(steps, most)).bit_length() - 1)


def check_knobs(knobs: Mapping[str, Any], problem: Problem) -> None:
    """Raise InputError unless the knobs have values of `KNOB_VALUES` that fit each other and the problem."""
    for name, value in knobs.items():
        if value not in KNOB_VALUES:
            raise InputError(f"{name} is {shown(value)}; it must be one of {', '.join(map(str, KNOB_VALUES))}.")
    rows, warps, parts = (int(knobs[name]) for name in ("rows", "warps", "parts"))
    least = rows_of_mma(min(problem.m, problem.n))
    if rows < least:
        raise InputError(f"rows is {rows}; a mma.sync of {problem} has {least} rows of the matrix, the least.")
    if parts > warps:
        raise InputError(f"parts is {parts} and warps {warps}; the parts of k are warps of one CTA.")


def _elements(x: Any) -> int:
    """Return the number of elements from a tensor's first to its last element in memory."""
    return 1 + sum((size - 1) * stride for size, stride in zip(x.shape, x.stride(), strict=True))
