"""The way back through a product: two products more, in which A and B are read where they are."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from blackwell_matmul.errors import UnsupportedError
from blackwell_matmul.ops.finished import through_activation

Needs = Sequence[bool]


def gradients(
    grad: Tensor,
    a: Tensor,
    b: Tensor,
    tensors: Sequence[Tensor | None],
    needs: Needs,
    *,
    activation: str = "none",
    alpha: float = 1.0,
    beta: float = 1.0,
    simulate: bool = False,
    **_: Any,
) -> tuple[Tensor | None, ...]:
    """Of a, b, the bias and the residual; the scales have none. What an activation was applied to is computed once
    more: who trains is better off without it in the kernel, as `linear` does."""
    bias, residual, scale_a, _scale_b = tensors
    if scale_a is not None:
        raise UnsupportedError("A product with scales has no gradients; multiply 16-bit tensors where you train.")
    matmul = torch.ops.blackwell_matmul.matmul
    dz = grad.to(a.dtype)
    if activation != "none":
        z = matmul(a, b, bias, residual, alpha=alpha, beta=beta, simulate=simulate)
        dz = through_activation(dz, z, activation)
    of_a = _like(matmul(dz, b.mT, alpha=alpha, simulate=simulate), a) if needs[0] else None
    of_b = _of_b(dz, a, b, alpha, simulate) if needs[1] else None
    of_bias = dz.flatten(0, -2).sum(0) if bias is not None and needs[2] else None
    of_residual = dz * beta if residual is not None and needs[3] else None
    return of_a, of_b, of_bias, of_residual, None, None


def _of_b(dz: Tensor, a: Tensor, b: Tensor, alpha: float, simulate: bool) -> Tensor:
    """One product where B is one for all batches: their rows follow each other."""
    if b.dim() == 2 and dz.dim() == 3 and a.dim() == 3 and a.shape[0] == dz.shape[0]:
        a, dz = a.flatten(0, 1), dz.flatten(0, 1)
    made: Tensor = torch.ops.blackwell_matmul.matmul(a.mT, dz, alpha=alpha, simulate=simulate)
    return _like(made, b)


def _like(made: Tensor, x: Tensor) -> Tensor:
    """Summed over the batches that shared x."""
    if made.dim() > x.dim():
        return made.sum(0)
    return made.sum(0, keepdim=True) if made.shape != x.shape else made
