"""Backward pass of a product: two more products that read A and B without copies."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.ops import ready
from blackwell_matmul.ops.finished import through_activation
from blackwell_matmul.ops.operand_checks import How, known
from blackwell_matmul.ops.placing import rows_of
from blackwell_matmul.ops.ready import Call

Needs = Sequence[bool]


class ProductOfTwo(torch.autograd.Function):
    """Autograd function of multiply(a, b, bias, residual, scale_a, scale_b); last tensors may be omitted.

    again: multiplies in the backward pass. Bias and residual are saved for an activation; scales have no gradients.
    """

    @staticmethod
    def forward(
        ctx: Any,
        multiply: Callable[..., Tensor],
        again: Callable[..., Tensor],
        how: How,
        a: Tensor,
        b: Tensor,
        *tensors: Tensor | None,
    ) -> Tensor:
        ctx.again, ctx.how, ctx.given = again, how, len(tensors)
        ctx.scaled = any(each is not None for each in tensors[2:])
        kept = () if how.activation == "none" else tensors[:2]
        ctx.save_for_backward(a, b, *kept)
        return multiply(a, b, *tensors)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        if ctx.scaled:
            raise UnsupportedError("A product with scales has no gradients; multiply 16-bit tensors where you train.")
        needs = (*ctx.needs_input_grad[3:], False, False)
        made = gradients(grad, *ctx.saved_tensors, needs=needs, matmul=ctx.again, how=ctx.how)
        return None, None, None, *(*made, None, None)[: 2 + ctx.given]


class RowsTimesMatrix(torch.autograd.Function):
    """Autograd function of x[.., k] @ w[n, k].T + factor * residual[.., n] + bias[n]; turned: of x @ w[k, n].

    call: these tensors' call; multiply: computes one of an unknown kind. again: multiplies in the backward pass.
    """

    @staticmethod
    def forward(
        ctx: Any,
        call: Call,
        multiply: Callable[..., Tensor],
        again: Callable[..., Tensor],
        turned: bool,
        factor: float,
        x: Tensor,
        w: Tensor,
        *tensors: Tensor | None,
    ) -> Tensor:
        ctx.again, ctx.turned, ctx.factor = again, turned, factor
        ctx.save_for_backward(x, w)
        made = ready.again(call.kind, call.addresses)
        return multiply(x, w, *tensors) if made is None else made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        x, w = ctx.saved_tensors
        _, _, _, _, _, for_x, for_w, *others = ctx.needs_input_grad
        dz = grad if grad.dtype == x.dtype else grad.to(x.dtype)
        of_x = _laid_as(x, dz, w.mT if ctx.turned else w, ctx.again) if for_x else None
        of_w = _of_matrix(w, rows_of(x), rows_of(dz), ctx.turned, ctx.again) if for_w else None
        if not others:
            return None, None, None, None, None, of_x, of_w
        for_bias, for_residual = others
        of_bias = rows_of(dz).sum(0) if for_bias else None
        of_residual = (dz if ctx.factor == 1 else dz * ctx.factor) if for_residual else None
        return None, None, None, None, None, of_x, of_w, of_bias, of_residual


graded: Callable[..., Tensor] = super(torch.autograd.Function, RowsTimesMatrix).apply
"""RowsTimesMatrix.apply without what it does for torch.func, of whose tensors there is no `Call`."""


def _of_matrix(w: Tensor, x: Tensor, dz: Tensor, turned: bool, multiply: Callable[..., Tensor]) -> Tensor:
    """Return w's gradient, laid as w."""
    across = _lies_across(w)
    made = multiply(dz.mT, x) if turned is across else multiply(x.mT, dz)
    return made.mT if across else made


def gradients(
    grad: Tensor,
    a: Tensor,
    b: Tensor,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    *,
    needs: Needs,
    matmul: Callable[..., Tensor],
    how: How,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of a, b, the bias and the residual. bias, residual: inputs of an activation besides the
    product.

    The activation's input is recomputed. Training is faster with the activation outside the kernel, as in `linear`.
    """
    dz = grad.to(a.dtype)
    same = {"simulate": how.simulate, "batch_invariant": how.batch_invariant}
    multiply = functools.partial(matmul, alpha=how.alpha, **same)
    if how.activation != "none":
        dz = through_activation(dz, multiply(a, b, bias, residual, beta=how.beta), how.activation)
    of_a = _like(_laid_as(a, dz, b.mT, multiply), a) if needs[0] else None
    of_b = _of_b(dz, a, b, multiply) if needs[1] else None
    of_bias = dz.flatten(0, -2).sum(0) if needs[2] else None
    of_residual = (dz if how.beta == 1 else dz * how.beta) if needs[3] else None
    return of_a, of_b, of_bias, of_residual


def _of_b(dz: Tensor, a: Tensor, b: Tensor, multiply: Callable[..., Tensor]) -> Tensor:
    """Return B's gradient, by one product if all batches share B, as their rows are adjacent."""
    if b.dim() == 2 and dz.dim() == 3 and a.dim() == 3 and known(a.shape[0] == dz.shape[0]):
        a, dz = a.flatten(0, 1), dz.flatten(0, 1)
    return _like(_laid_as(b, a.mT, dz, multiply), b)


def _laid_as(x: Tensor, left: Tensor, right: Tensor, multiply: Callable[..., Tensor]) -> Tensor:
    """Return left @ right, contiguous along the same dimension as x, so that autograd copies no gradient."""
    return multiply(right.mT, left.mT).mT if _lies_across(x) else multiply(left, right)


def _lies_across(x: Tensor) -> bool:
    """Return true if x is contiguous along its last dimension but one."""
    return known(x.stride(-2) == 1) and known(x.stride(-1) != 1)


def _like(made: Tensor, x: Tensor) -> Tensor:
    """Return the gradient summed over the batches that shared x, also for symbolic sizes."""
    if made.dim() > x.dim():
        return made.sum(0)
    shared = x.dim() == 3 and known(x.shape[0] == 1) and not known(made.shape[0] == 1)
    return made.sum(0, keepdim=True) if shared else made
