"""Backward pass of a product: two more products that read A and B without copies."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.ops import ready
from blackwell_matmul.ops.finished import through_activation
from blackwell_matmul.ops.launching import Ready
from blackwell_matmul.ops.operand_checks import How, known
from blackwell_matmul.ops.placing import rows_of
from blackwell_matmul.ops.ready import Call

Needs = Sequence[bool]
GRADIENTS = "gradients"
"""Name of the kinds of backward passes."""


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


class Graded(NamedTuple):
    """The product x[.., k] @ w[n, k].T + factor * residual[.., n] + bias[n] with gradients, the same for all calls of a
    kind; turned: of x[.., k] @ w[k, n], or of batches x[.., m, k] @ w[.., k, n]. flags: those of `matmul`.

    multiply: computes it, for a kind that is not ready. again: multiplies in the backward pass, with the flags.
    """

    turned: bool
    factor: float
    flags: tuple[bool, bool]
    multiply: Callable[..., Tensor]
    again: Callable[..., Tensor]
    ready: Ready | None = None

    def first(self, call: Call, *tensors: Tensor | None) -> Tensor:
        """Return the product for a kind's first call; later ones take the shortest way."""
        made = _with_gradients(self, call.addresses, *tensors)
        found = ready.known(call.kind)
        if found is not None:
            found.graded = functools.partial(_with_gradients, self._replace(ready=found))
        return made

    def of_operands(self, dz: Tensor, x: Tensor, w: Tensor, needs: Sequence[bool]) -> Sequence[Tensor | None]:
        """Return the gradients of x and w. needs: if each is needed."""
        given = dz, x, w
        made: Sequence[Tensor | None] | None
        made, call = ready.launched(GRADIENTS, given, self.flags, self.turned, *needs)
        if made is not None:
            return made
        products = [each(*given, self.turned) if needed else None for each, needed in zip((_of_x, _of_w), needs)]
        made = [None if each is None else each.by(self.again) for each in products]
        if call is not None and not call.graded:
            ready.keep(call, ReadyGradients.of(products, self.flags, call.addresses))
        return made


class Factors(NamedTuple):
    """A gradient left @ right, or its transpose if it is turned; places: of both among dz, x and w."""

    left: Tensor
    right: Tensor
    turned: bool = False
    places: tuple[int, int] = (0, 0)

    def by(self, multiply: Callable[..., Tensor]) -> Tensor:
        made = multiply(self.left, self.right)
        return made.mT if self.turned else made

    def laid_as(self, x: Tensor) -> Factors:
        """Return the same gradient, contiguous along the same dimension as x, so that autograd copies none."""
        if _lies_across(x) is self.turned:
            return self
        return Factors(self.right.mT, self.left.mT, not self.turned, self.places[::-1])


class ReadyGradients:
    """Gradients of both operands for calls of one kind, launched at the addresses of dz, x and w, without views.

    launches: each gradient's, with the places of its factors' addresses; None for one that is not needed.
    """

    __slots__ = ("_launches",)
    graded = None

    def __init__(self, launches: Sequence[tuple[Ready, int, int] | None]) -> None:
        self._launches = launches

    @classmethod
    def of(
        cls, products: Iterable[Factors | None], flags: Sequence[bool], addresses: list[int]
    ) -> ReadyGradients | None:
        """Return the launches of products that have been made; None if one copies a tensor."""
        launches: list[tuple[Ready, int, int] | None] = []
        for each in products:
            if each is None:
                launches.append(None)
                continue
            found = ready.found("matmul", each[:2], flags)
            if found is None or any(x.data_ptr() != addresses[place] for x, place in zip(each[:2], each.places)):
                return None
            launches.append((found.turned() if each.turned else found, *each.places))
        return cls(launches)

    def __call__(self, addresses: list[int]) -> list[Tensor | None] | None:
        made: list[Tensor | None] = []
        for each in self._launches:
            if each is None:
                made.append(None)
                continue
            launch, left, right = each
            one = launch([addresses[left], addresses[right]])
            if one is None:
                return None
            made.append(one)
        return made


class RowsTimesMatrix(torch.autograd.Function):
    """Autograd function of a `Graded` product. addresses: of the tensors; used for a kind that is ready."""

    @staticmethod
    def forward(ctx: Any, graded: Graded, addresses: list[int], x: Tensor, w: Tensor, *others: Tensor | None) -> Tensor:
        ctx.graded = graded
        ctx.save_for_backward(x, w)
        made = None if graded.ready is None else graded.ready(addresses)
        return graded.multiply(x, w, *others) if made is None else made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        graded, (x, w) = ctx.graded, ctx.saved_tensors
        _, _, for_x, for_w, *others = ctx.needs_input_grad
        dz = grad if grad.dtype == x.dtype else grad.to(x.dtype)
        of_operands = graded.of_operands(dz, x, w, (for_x, for_w))
        if not others:
            return None, None, *of_operands
        for_bias, for_residual = others
        of_bias = rows_of(dz).sum(0) if for_bias else None
        of_residual = (dz if graded.factor == 1 else dz * graded.factor) if for_residual else None
        return None, None, *of_operands, of_bias, of_residual


_with_gradients: Callable[..., Tensor] = super(torch.autograd.Function, RowsTimesMatrix).apply
"""RowsTimesMatrix.apply without what it does for torch.func, of whose tensors there is no `Call`."""


def _of_x(dz: Tensor, x: Tensor, w: Tensor, turned: bool) -> Factors:
    return Factors(dz, w.mT if turned else w, places=(0, 2)).laid_as(x)


def _of_w(dz: Tensor, x: Tensor, w: Tensor, turned: bool) -> Factors:
    if w.dim() == 2:
        x, dz = rows_of(x), rows_of(dz)
    made = Factors(x.mT, dz, False, (1, 0)) if turned else Factors(dz.mT, x, False, (0, 1))
    return made.laid_as(w)


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
    of_a = _like(Factors(dz, b.mT).laid_as(a).by(multiply), a) if needs[0] else None
    of_b = _of_b(dz, a, b, multiply) if needs[1] else None
    of_bias = dz.flatten(0, -2).sum(0) if needs[2] else None
    of_residual = (dz if how.beta == 1 else dz * how.beta) if needs[3] else None
    return of_a, of_b, of_bias, of_residual


def _of_b(dz: Tensor, a: Tensor, b: Tensor, multiply: Callable[..., Tensor]) -> Tensor:
    """Return B's gradient, by one product if all batches share B, as their rows are adjacent."""
    if b.dim() == 2 and dz.dim() == 3 and a.dim() == 3 and known(a.shape[0] == dz.shape[0]):
        a, dz = a.flatten(0, 1), dz.flatten(0, 1)
    return _like(Factors(a.mT, dz).laid_as(b).by(multiply), b)


def _lies_across(x: Tensor) -> bool:
    """Return true if x is contiguous along its last dimension but one."""
    return known(x.stride(-2) == 1) and known(x.stride(-1) != 1)


def _like(made: Tensor, x: Tensor) -> Tensor:
    """Return the gradient summed over the batches that shared x, also for symbolic sizes."""
    if made.dim() > x.dim():
        return made.sum(0)
    shared = x.dim() == 3 and known(x.shape[0] == 1) and not known(made.shape[0] == 1)
    return made.sum(0, keepdim=True) if shared else made
