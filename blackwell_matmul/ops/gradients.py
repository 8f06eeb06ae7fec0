"""Backward pass of a product: two more products, which read A and B without copies."""

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
"""Operation name of a backward pass in the cache `ready`."""


class OperandLayout(NamedTuple):
    """Shape of an operand, and across: True if it is contiguous along its second to last dimension.

    The operand's gradient needs no more, so that autograd need not save the operand.
    """

    shape: torch.Size
    across: bool

    @classmethod
    def of(cls, x: Tensor) -> OperandLayout:
        return cls(x.shape, known(x.stride(-2) == 1) and known(x.stride(-1) != 1))

    def summed(self, made: Tensor) -> Tensor:
        """Return the gradient `made`, summed over the batches that shared the operand. Sizes may be symbolic."""
        if made.dim() > len(self.shape):
            return made.sum(0)
        shared = len(self.shape) == 3 and known(self.shape[0] == 1) and not known(made.shape[0] == 1)
        return made.sum(0, keepdim=True) if shared else made


class ProductOfTwo(torch.autograd.Function):
    """Autograd function of multiply(a, b, bias, residual, scale_a, scale_b); trailing tensors may be omitted.

    again: function that multiplies in the backward pass. With an activation all tensors are saved. A product with
    scales has no gradients.
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
        made = multiply(a, b, *tensors)
        ctx.again, ctx.how, ctx.given, ctx.dtype = again, how, len(tensors), a.dtype
        ctx.scaled = any(each is not None for each in tensors[2:])
        ctx.layouts = OperandLayout.of(a), OperandLayout.of(b)
        if how.activation == "none":
            for_a, for_b = ctx.needs_input_grad[3:5]
            ctx.save_for_backward(a if for_b else None, b if for_a else None)
        else:
            ctx.save_for_backward(a, b, *tensors[:2])
        return made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        if ctx.scaled:
            raise UnsupportedError("A product with scales has no gradients; multiply 16-bit tensors where you train.")
        needs, dz = (*ctx.needs_input_grad[3:], False, False), grad.to(ctx.dtype)
        made = gradients(dz, *ctx.saved_tensors, layouts=ctx.layouts, needs=needs, matmul=ctx.again, how=ctx.how)
        return None, None, None, *(*made, None, None)[: 2 + ctx.given]


class Graded(NamedTuple):
    """Product x[.., k] @ w[n, k].T + factor * residual[.., n] + bias[n] with gradients, for all calls of a kind.

    turned: True for x[.., k] @ w[k, n], or batches x[.., m, k] @ w[.., k, n]. flags: batch_invariant and simulate.
    multiply: function that computes the product if `ready` is None. again: function that multiplies in the backward
    pass. layouts: layouts of x and w. ready: packed launches of the product.
    """

    turned: bool
    factor: float
    flags: tuple[bool, bool]
    multiply: Callable[..., Tensor]
    again: Callable[..., Tensor]
    layouts: tuple[OperandLayout, ...] = ()
    ready: Ready | None = None

    def first(self, call: Call, x: Tensor, w: Tensor, *others: Tensor | None) -> Tensor:
        """Return the product of the first call of a kind, and keep its launches for later calls of the kind."""
        graded = self._replace(layouts=(OperandLayout.of(x), OperandLayout.of(w)))
        made = _with_gradients(graded, call.addresses, x, w, *others)
        found = ready.known(call.kind)
        if found is not None:
            found.graded = functools.partial(_with_gradients, graded._replace(ready=found))
        return made

    def of_operands(self, dz: Tensor, x: Tensor | None, w: Tensor | None) -> Sequence[Tensor | None]:
        """Return the gradients of x and w. x: None if w needs no gradient. w: None if x needs no gradient."""
        made: Sequence[Tensor | None] | None
        made, call = ready.launched(GRADIENTS, (dz, x, w), self.flags, self.turned, self.layouts)
        if made is not None:
            return made
        of_x, of_w = self.layouts
        products = (
            None if w is None else _of_x(dz, w, self.turned).laid_as(of_x),
            None if x is None else _of_w(dz, x, len(of_w.shape) == 2, self.turned).laid_as(of_w),
        )
        made = [None if each is None else each.by(self.again) for each in products]
        if call is not None and not call.graded:
            ready.keep(call, ReadyGradients.of(products, self.flags, call.addresses))
        return made


class Factors(NamedTuple):
    """Gradient left @ right; turned: its transpose. places: indices of left and right among the given of dz, x, w."""

    left: Tensor
    right: Tensor
    turned: bool = False
    places: tuple[int, int] = (0, 0)

    def by(self, multiply: Callable[..., Tensor]) -> Tensor:
        made = multiply(self.left, self.right)
        return made.mT if self.turned else made

    def laid_as(self, x: OperandLayout) -> Factors:
        """Return the same gradient, contiguous along the same dimension as x. autograd then need not copy it."""
        if x.across is self.turned:
            return self
        return Factors(self.right.mT, self.left.mT, not self.turned, self.places[::-1])


class ReadyGradients:
    """Function that launches the gradients of both operands, at the addresses of dz, x and w.

    launches: for each gradient a launch and the indices of its factors' addresses; None if the gradient is not needed.
    """

    __slots__ = ("_launches",)
    graded = None

    def __init__(self, launches: Sequence[tuple[Ready, int, int] | None]) -> None:
        self._launches = launches

    @classmethod
    def of(
        cls, products: Iterable[Factors | None], flags: Sequence[bool], addresses: list[int]
    ) -> ReadyGradients | None:
        """Return the launches of products that were computed before; None if torch copies a tensor."""
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
    """Autograd function of a `Graded` product. addresses: addresses of the tensors, for `Graded.ready`."""

    @staticmethod
    def forward(ctx: Any, graded: Graded, addresses: list[int], x: Tensor, w: Tensor, *others: Tensor | None) -> Tensor:
        ctx.graded = graded
        for_x, for_w = ctx.needs_input_grad[2:4]
        ctx.save_for_backward(x if for_w else None, w if for_x else None)
        made = None if graded.ready is None else graded.ready(addresses)
        return graded.multiply(x, w, *others) if made is None else made

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
        graded, (x, w) = ctx.graded, ctx.saved_tensors
        of_operands = graded.of_operands(grad, x, w)
        others = ctx.needs_input_grad[4:]
        if not others:
            return None, None, *of_operands
        for_bias, for_residual = others
        of_bias = rows_of(grad).sum(0) if for_bias else None
        of_residual = (grad if graded.factor == 1 else grad * graded.factor) if for_residual else None
        return None, None, *of_operands, of_bias, of_residual


_with_gradients: Callable[..., Tensor] = super(torch.autograd.Function, RowsTimesMatrix).apply
"""RowsTimesMatrix.apply without its slow support of torch.func. Tensors of torch.func never get here."""


def _of_x(dz: Tensor, w: Tensor, turned: bool) -> Factors:
    return Factors(dz, w.mT if turned else w, places=(0, -1))


def _of_w(dz: Tensor, x: Tensor, rows: bool, turned: bool) -> Factors:
    """Return w's gradient. rows: True if w is a matrix; the gradient then sums over all rows of x and dz."""
    if rows:
        x, dz = rows_of(x), rows_of(dz)
    return Factors(x.mT, dz, False, (1, 0)) if turned else Factors(dz.mT, x, False, (0, 1))


def gradients(
    dz: Tensor,
    a: Any,
    b: Any,
    bias: Tensor | None = None,
    residual: Tensor | None = None,
    *,
    layouts: Sequence[OperandLayout],
    needs: Needs,
    matmul: Callable[..., Tensor],
    how: How,
) -> tuple[Tensor | None, ...]:
    """Return the gradients of a, b, the bias and the residual; None for a gradient that is not needed.

    a: may be None if b needs no gradient. b: may be None if a needs no gradient. With an activation, a, b, the bias and
    the residual are all given, and the activation's input is computed again. `linear` trains without this second
    product: torch applies its activation.
    """
    same = {"simulate": how.simulate, "batch_invariant": how.batch_invariant}
    multiply = functools.partial(matmul, alpha=how.alpha, **same)
    if how.activation != "none":
        dz = through_activation(dz, multiply(a, b, bias, residual, beta=how.beta), how.activation)
    like_a, like_b = layouts
    of_a = like_a.summed(Factors(dz, b.mT).laid_as(like_a).by(multiply)) if needs[0] else None
    of_b = like_b.summed(_of_b(dz, a, like_b).by(multiply)) if needs[1] else None
    of_bias = dz.flatten(0, -2).sum(0) if needs[2] else None
    of_residual = (dz if how.beta == 1 else dz * how.beta) if needs[3] else None
    return of_a, of_b, of_bias, of_residual


def _of_b(dz: Tensor, a: Tensor, b: OperandLayout) -> Factors:
    """Return B's gradient. If all batches share B, return a single product over the rows of all batches."""
    if len(b.shape) == 2 and dz.dim() == 3 and a.dim() == 3 and known(a.shape[0] == dz.shape[0]):
        a, dz = a.flatten(0, 1), dz.flatten(0, 1)
    return Factors(a.mT, dz).laid_as(b)
