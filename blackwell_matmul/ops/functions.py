"""`matmul`, `linear`, `bmm`, `baddbmm`, `scaled_mm`: named and called as torch's, and each one launch.

CUDA tensors run on their GPU. CPU tensors are refused, unless `simulate` is true: then the simulator runs the kernel as
on a B200. All work with autograd, with torch.compile and in a captured CUDA graph; no operand is copied that TMA can
read where it is (`placing.py`).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from blackwell_matmul.errors import InputError
from blackwell_matmul.ops.direct import is_plain, wants_gradient
from blackwell_matmul.ops.eager import product
from blackwell_matmul.ops.finished import ACTIVATED
from blackwell_matmul.ops.operand_checks import (
    check_activation,
    check_optional,
    check_out,
    check_tensors,
    plain_number,
)
from blackwell_matmul.ops.placing import flattened


def matmul(a: Tensor, b: Tensor, *, simulate: bool = False) -> Tensor:
    """a[.., m, k] @ b[.., k, n] of float16 or bfloat16, accumulated in float32; batches broadcast as torch.matmul's do.

    Raises InputError for what does not fit, UnsupportedError where no kernel runs.
    """
    plain = is_plain((a, b))
    if not plain:
        check_tensors(a=a, b=b)
    if a.dim() < 2 or b.dim() < 2:
        raise InputError(f"a has shape {tuple(a.shape)} and b {tuple(b.shape)}; both must have two dimensions or more.")
    if a.dim() == b.dim() == 2:
        return product(a, b, plain=plain, simulate=simulate)
    made = product(*flattened(a, b), plain=plain, simulate=simulate)
    outer = a.shape[:-1] if b.dim() == 2 else (*torch.broadcast_shapes(a.shape[:-2], b.shape[:-2]), a.shape[-2])
    return made.reshape(*outer, b.shape[-1])


def linear(
    x: Tensor,
    w: Tensor,
    bias: Tensor | None = None,
    activation: str = "none",
    *,
    residual: Tensor | None = None,
    beta: float = 1.0,
    simulate: bool = False,
) -> Tensor:
    """activation(x[.., k] @ w[n, k].T + beta * residual[.., n] + bias[n]), as one kernel.

    activation: "none", "relu", "gelu", "gelu_tanh", "silu", or "swiglu": column j is silu(column 2j) * (column 2j + 1),
    and the result has n / 2 columns. Where a gradient is wanted, torch applies the activation, which needs what it was
    applied to.

    Raises InputError for what does not fit, UnsupportedError where no kernel runs.
    """
    plain = is_plain((x, w), (bias, residual))
    if not plain:
        check_tensors(x=x, w=w)
        check_optional(bias=bias, residual=residual)
    if w.dim() != 2 or x.dim() < 1 or x.shape[-1] != w.shape[1]:
        raise InputError(f"x has shape {tuple(x.shape)} and w {tuple(w.shape)}; they must be (.., k) and (n, k).")
    check_activation(activation, w.shape[0])
    outer = x.shape[:-1]
    if residual is not None and residual.shape != (*outer, w.shape[0]):
        raise InputError(f"residual has shape {tuple(residual.shape)}; it must be {(*outer, w.shape[0])}.")
    late = activation != "none" and wants_gradient((x, w, bias, residual))
    inside = "none" if late else activation
    kept = None if residual is None else _rows(residual)
    factor = plain_number("beta", beta)
    made = product(
        _rows(x), w.T, (bias, kept, None, None), plain=plain, simulate=simulate, activation=inside, beta=factor
    )
    made = made if x.dim() == 2 else made.reshape(*outer, made.shape[-1])
    return ACTIVATED[activation](made) if late else made


def _rows(x: Tensor) -> Tensor:
    """x[.., columns] as one matrix."""
    return x if x.dim() == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def bmm(a: Tensor, b: Tensor, *, simulate: bool = False) -> Tensor:
    """a[batch, m, k] @ b[batch, k, n], as torch.bmm."""
    plain = is_plain((a, b))
    if not plain:
        check_tensors(a=a, b=b)
    if a.dim() != 3 or b.dim() != 3 or a.shape[0] != b.shape[0]:
        raise InputError(
            f"a has shape {tuple(a.shape)} and b {tuple(b.shape)}; bmm takes (batch, m, k) and (batch, k, n)."
        )
    return product(a, b, plain=plain, simulate=simulate)


def baddbmm(
    residual: Tensor, a: Tensor, b: Tensor, *, beta: float = 1.0, alpha: float = 1.0, simulate: bool = False
) -> Tensor:
    """beta * residual + alpha * (a[batch, m, k] @ b[batch, k, n]), as torch.baddbmm; residual is broadcast."""
    plain = is_plain((residual, a, b))
    if not plain:
        check_tensors(residual=residual, a=a, b=b)
    if a.dim() != 3 or b.dim() != 3 or a.shape[0] != b.shape[0]:
        raise InputError(
            f"a has shape {tuple(a.shape)} and b {tuple(b.shape)}; baddbmm takes (batch, m, k) and (batch, k, n)."
        )
    shape = (a.shape[0], a.shape[1], b.shape[2])
    try:
        whole = residual.expand(shape)
    except RuntimeError:
        raise InputError(f"residual has shape {tuple(residual.shape)}; it must broadcast to {shape}.") from None
    factors = {"beta": plain_number("beta", beta), "alpha": plain_number("alpha", alpha)}
    return product(a, b, (None, whole, None, None), plain=plain, simulate=simulate, **factors)


def scaled_mm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    *,
    out_dtype: torch.dtype | None = None,
    simulate: bool = False,
) -> Tensor:
    """scale_a * scale_b * (a[m, k] @ b[k, n]) + bias for 8-bit floats, as torch._scaled_mm.

    a, b: contiguous along k, as `w.T` is; any other is copied, as `copies` says. e4m3 times e5m2 is multiplied in 16
    bits, with copies of both. scale_a, scale_b: float32, one number
    each, or [m, 1] and [1, n]. bias: [n], of the type of the result. out_dtype: bfloat16 where nobody says, float16 or
    float32.

    There are no gradients.
    """
    plain = is_plain((a, b, scale_a, scale_b), (bias,))
    if not plain:
        check_tensors(a=a, b=b, scale_a=scale_a, scale_b=scale_b)
        check_optional(bias=bias)
    if out_dtype is not None:
        check_out(out_dtype)
    return product(a, b, (bias, None, scale_a, scale_b), plain=plain, simulate=simulate, out_dtype=out_dtype)
