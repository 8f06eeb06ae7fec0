"""`matmul`, `linear`, `bmm`, `baddbmm`, `scaled_mm`: named and called as torch's, with one launch each.

CUDA tensors run on their GPU. CPU tensors are refused, unless `simulate` is true: then the simulator runs the kernel as
on a B200. All work with autograd, with torch.compile and in a captured CUDA graph. An operand that TMA can read is not
copied (`placing.py`).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

from blackwell_matmul.base.errors import InputError, UnsupportedError
from blackwell_matmul.ops.direct import bypasses_dispatch, recorded, wants_gradient
from blackwell_matmul.ops.eager import product
from blackwell_matmul.ops.finished import ACTIVATED
from blackwell_matmul.ops.operand_checks import (
    Said,
    broadcast,
    check_activation,
    check_inner,
    check_optional,
    check_out,
    check_tensors,
    differ,
    plain_number,
    unequal,
)
from blackwell_matmul.ops.placing import as_matrices, flattened
from blackwell_matmul.problem.form import check_flag

MATMUL = Said("matmul", "input", "other")
LINEAR = Said("linear", "input", "weight")
BMM = Said("bmm", "input", "mat2")
BADDBMM = Said("baddbmm", "batch1", "batch2", "input")
SCALED = Said("scaled_mm", "input", "mat2")


def matmul(input: Tensor, other: Tensor, *, simulate: bool = False) -> Tensor:
    """input[.., m, k] @ other[.., k, n] of float16 or bfloat16, accumulated in float32; vectors [k] and batches as
    torch.matmul takes them.

    Raises InputError for what does not fit, UnsupportedError where no kernel runs.
    """
    plain = bypasses_dispatch((input, other))
    if not plain:
        if (node := recorded(matmul, input, other, simulate=simulate)) is not None:
            return node
        check_tensors(input=input, other=other)
    if input.dim() < 2 or other.dim() < 2:
        return _of_vectors(input, other, simulate)
    if input.dim() == other.dim() == 2:
        return product(input, other, plain=plain, simulate=simulate, said=MATMUL)
    made = product(*flattened(input, other, MATMUL), plain=plain, simulate=simulate, said=MATMUL)
    batch = input.shape[:-2] if other.dim() == 2 else broadcast(input.shape[:-2], other.shape[:-2])
    return made.reshape(*(batch or ()), input.shape[-2], other.shape[-1])


def _of_vectors(input: Tensor, other: Tensor, simulate: bool) -> Tensor:
    """Return the product of which input, other or both are vectors [k]; the result lacks their dimensions."""
    if not min(input.dim(), other.dim()):
        raise InputError(
            f"input has shape {tuple(input.shape)} and other {tuple(other.shape)}; both must have one dimension or "
            "more."
        )
    check_inner(input, other, MATMUL)
    made = matmul(*as_matrices(input, other), simulate=simulate)
    made = made.squeeze(-1) if other.dim() == 1 else made
    return made.squeeze(made.dim() - min(other.dim(), 2)) if input.dim() == 1 else made


def linear(
    input: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    activation: str | None = "none",
    *,
    residual: Tensor | None = None,
    beta: float = 1.0,
    simulate: bool = False,
) -> Tensor:
    """Return activation(input[.., k] @ weight[n, k].T + beta * residual[.., n] + bias[n]), from one kernel.

    activation: "none" or None, "relu", "gelu", "gelu_tanh", "silu", or "swiglu": column j is silu(column 2j) * (column
    2j + 1), and the result has n / 2 columns. For gradients torch applies the activation, as it needs the activation's
    input, and swiglu also after a residual. A bias of another shape, which torch.nn.functional.linear broadcasts, is
    read as a residual.

    Raises InputError for operands that do not fit, UnsupportedError if no kernel runs.
    """
    plain = bypasses_dispatch((input, weight), (bias, residual))
    if activation is None:
        activation = "none"
    if not plain:
        rest = {"residual": residual, "beta": beta, "simulate": simulate}
        if (node := recorded(linear, input, weight, bias, activation, **rest)) is not None:
            return node
        check_tensors(input=input, weight=weight)
        check_optional(bias=bias, residual=residual)
    if weight.dim() != 2 or input.dim() < 1 or unequal(input.shape[-1], weight.shape[1]):
        if weight.dim() == 1 and input.dim() and not unequal(input.shape[-1], weight.shape[0]):
            column, bias = None if residual is None else residual.unsqueeze(-1), _of_one_column(bias)
            made = linear(input, weight[None], bias, activation, residual=column, beta=beta, simulate=simulate)
            return made.squeeze(-1)
        raise InputError(
            f"input has shape {tuple(input.shape)} and weight {tuple(weight.shape)}; they must be (.., k) and (n, k) "
            "or (k,)."
        )
    check_activation(activation, weight.shape[0])
    outer, n, said, factor = input.shape[:-1], weight.shape[0], LINEAR, plain_number("beta", beta)
    if residual is not None and differ(residual.shape, (*outer, n)):
        raise InputError(f"residual has shape {tuple(residual.shape)}; it must be {(*outer, n)}.")
    if bias is not None and (bias.dim() != 1 or unequal(bias.shape[0], n)):
        bias, residual, factor, said = _spread(bias, residual, factor, (*outer, n))
    late = activation != "none" and (
        wants_gradient((input, weight, bias, residual)) or (activation == "swiglu" and residual is not None)
    )
    kept = None if residual is None else _rows(residual)
    made = product(
        _rows(input),
        weight.T,
        (bias, kept, None, None),
        plain=plain,
        simulate=simulate,
        said=said,
        activation="none" if late else activation,
        beta=factor,
    )
    made = made if input.dim() == 2 else made.reshape(*outer, made.shape[-1])
    return ACTIVATED[activation](made) if late else made


def _spread(
    bias: Tensor, residual: Tensor | None, beta: float, shape: tuple[int, ...]
) -> tuple[Tensor | None, Tensor | None, float, Said]:
    """Return bias and residual, beta, and their names, for a bias of another shape than [n]."""
    try:
        if bias.shape[:-1].numel() == 1:
            return bias.reshape(-1).expand(shape[-1]), residual, beta, LINEAR
        if residual is None:
            return None, bias.expand(shape), 1.0, LINEAR._replace(residual="bias")
    except RuntimeError:
        pass
    also = "" if residual is not None else f", or broadcast to {shape}"
    raise InputError(f"bias has shape {tuple(bias.shape)}; it must be {shape[-1:]}{also}.")


def _of_one_column(bias: Tensor | None) -> Tensor | None:
    """Return the bias of a result without columns, which is a single number, as that of one column."""
    if bias is None or bias.dim() == 0:
        return bias
    raise InputError(f"bias has shape {tuple(bias.shape)}; it must be () with a weight of one dimension.")


def _rows(x: Tensor) -> Tensor:
    """Return x[.., columns] as one matrix."""
    return x if x.dim() == 2 else x.reshape(math.prod(x.shape[:-1]), x.shape[-1])


def bmm(input: Tensor, mat2: Tensor, *, simulate: bool = False) -> Tensor:
    """Return input[batch, m, k] @ mat2[batch, k, n], as torch.bmm."""
    plain = bypasses_dispatch((input, mat2))
    if not plain:
        if (node := recorded(bmm, input, mat2, simulate=simulate)) is not None:
            return node
        check_tensors(input=input, mat2=mat2)
    _check_batches(input, mat2, BMM)
    return product(input, mat2, plain=plain, simulate=simulate, said=BMM)


def baddbmm(
    input: Tensor, batch1: Tensor, batch2: Tensor, *, beta: float = 1.0, alpha: float = 1.0, simulate: bool = False
) -> Tensor:
    """Return beta * input + alpha * (batch1[batch, m, k] @ batch2[batch, k, n]), as torch.baddbmm."""
    plain = bypasses_dispatch((input, batch1, batch2))
    if not plain:
        rest = {"beta": beta, "alpha": alpha, "simulate": simulate}
        if (node := recorded(baddbmm, input, batch1, batch2, **rest)) is not None:
            return node
        check_tensors(input=input, batch1=batch1, batch2=batch2)
    _check_batches(batch1, batch2, BADDBMM)
    shape = (batch1.shape[0], batch1.shape[1], batch2.shape[2])
    try:
        whole = input.expand(shape)
    except RuntimeError:
        raise InputError(f"input has shape {tuple(input.shape)}; it must broadcast to {shape}.") from None
    factors = {"beta": plain_number("beta", beta), "alpha": plain_number("alpha", alpha)}
    tensors = (None, whole, None, None)
    return product(batch1, batch2, tensors, plain=plain, simulate=simulate, said=BADDBMM, **factors)


def _check_batches(a: Tensor, b: Tensor, said: Said) -> None:
    if a.dim() != 3 or b.dim() != 3 or unequal(a.shape[0], b.shape[0]) or unequal(a.shape[2], b.shape[1]):
        raise InputError(
            f"{said.a} has shape {tuple(a.shape)} and {said.b} {tuple(b.shape)}; {said.operation} takes (batch, m, k) "
            "and (batch, k, n)."
        )


def scaled_mm(
    input: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    *,
    simulate: bool = False,
) -> Tensor:
    """scale_a * scale_b * (input[m, k] @ mat2[k, n]) + bias for 8-bit floats, as torch._scaled_mm.

    input, mat2: contiguous along k, as `w.T` is; any other is copied, as `copies` says. e4m3 times e5m2 is multiplied
    in 16 bits, with copies of both. scale_a, scale_b: float32, one number each ([], [1] or [1, 1]), or [m, 1] or [m]
    and [1, n] or [n]. bias: [n], of the type of the result. scale_result: there is none, as no result has 8 bits.
    out_dtype: bfloat16 where nobody says, float16 or float32. use_fast_accum: whether sums may be as the tensor cores
    of Hopper have them, with some 13 bits, which is faster; elsewhere they are float32's either way.

    There are no gradients.
    """
    plain = bypasses_dispatch((input, mat2, scale_a, scale_b), (bias,))
    if not plain:
        rest = (bias, scale_result, out_dtype, use_fast_accum)
        if (node := recorded(scaled_mm, input, mat2, scale_a, scale_b, *rest, simulate=simulate)) is not None:
            return node
        check_tensors(input=input, mat2=mat2, scale_a=scale_a, scale_b=scale_b)
        check_optional(bias=bias)
    if scale_result is not None:
        raise UnsupportedError("scale_result is given, and no result has 8 bits; multiply what scaled_mm returns.")
    if out_dtype is not None:
        check_out(out_dtype)
    check_flag("use_fast_accum", use_fast_accum)
    tensors, how = (bias, None, scale_a, scale_b), {"out_dtype": out_dtype, "fast_accum": use_fast_accum}
    return product(input, mat2, tensors, plain=plain, simulate=simulate, said=SCALED, **how)
