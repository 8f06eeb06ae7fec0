"""`torch.ops.blackwell_matmul.matmul`: one operation for all products, and its registration."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from blackwell_matmul.ops.finished import finished
from blackwell_matmul.ops.gradients import ProductOfTwo
from blackwell_matmul.ops.launching import ProductPlan, Tensors, gpu_of, kind_of, planned
from blackwell_matmul.ops.operand_checks import (
    AS_OURS,
    Said,
    broadcast,
    check_dense,
    check_extras,
    check_operands,
    check_out,
    check_sizes,
)
from blackwell_matmul.ops.two_levels import define
from blackwell_matmul.runtime.recent import Recent

TENSORS = ("bias", "residual", "scale_a", "scale_b")


def shape_of(a: Tensor, b: Tensor) -> tuple[int, ...]:
    """Return the product's shape before the activation."""
    if a.dim() == b.dim() == 2:
        return a.shape[0], b.shape[1]
    batches = broadcast(a.shape[:-2], b.shape[:-2]) or ()
    return *batches, a.shape[-2], b.shape[-1]


def checked(
    a: Tensor,
    b: Tensor,
    tensors: Tensors,
    activation: str = "none",
    out_dtype: torch.dtype | None = None,
    said: Said = AS_OURS,
) -> tuple[tuple[int, ...], torch.dtype]:
    """Return the product's shape and C's type; InputError for operands that do not fit."""
    check_operands(a, b, scaled=tensors[2] is not None, said=said)
    out = out_dtype or (a.dtype if a.element_size() > 1 else torch.bfloat16)
    check_out(out)
    of_c = shape_of(a, b)
    check_extras(of_c, out, a.device, dict(zip(TENSORS, tensors, strict=True)), activation, said)
    return of_c, out


def run(
    a: Tensor,
    b: Tensor,
    tensors: Tensors,
    activation: str = "none",
    alpha: float = 1.0,
    beta: float = 1.0,
    out_dtype: torch.dtype | None = None,
    simulate: bool = False,
    fast_accum: bool = False,
    into: Tensor | None = None,
    said: Said = AS_OURS,
) -> Tensor:
    """Multiply without gradients, by an equal earlier call's plan. into: C's destination if possible."""
    how = (activation, alpha, beta, out_dtype, simulate, fast_accum)
    key = (*kind_of(a), *kind_of(b), *[None if each is None else kind_of(each) for each in tensors], *how)
    plan = _plans.get(key)
    if plan is None:
        plan = _planned(a, b, tensors, *how, said)
        _plans.put(key, plan)
    if simulate:
        a, b = a.detach(), b.detach()
        tensors = [None if each is None else each.detach() for each in tensors]
    if isinstance(plan, ProductPlan):
        return plan(a, b, tensors, into)
    return _without_kernel(a, plan, tensors, activation, alpha, beta)


Empty = tuple[tuple[int, ...], torch.dtype]
"""Shape and type of a product without elements or summands."""

KEPT_PLANS = 4096
_plans: Recent[tuple[Any, ...], ProductPlan | Empty] = Recent(KEPT_PLANS)


def _planned(
    a: Tensor,
    b: Tensor,
    tensors: Tensors,
    activation: str,
    alpha: float,
    beta: float,
    out_dtype: torch.dtype | None,
    simulate: bool,
    fast_accum: bool,
    said: Said,
) -> ProductPlan | Empty:
    of_c, out = checked(a, b, tensors, activation, out_dtype, said)
    check_sizes(a, b, tensors[1], said)
    plan = planned(a, b, tensors, gpu_of(a, simulate, *said[:3]), out, activation, alpha, beta, fast_accum)
    return plan or (of_c, out)


def _without_kernel(a: Tensor, known: Empty, tensors: Tensors, activation: str, alpha: float, beta: float) -> Tensor:
    """Return the epilogue of zeros, for a product without summands."""
    of_c, out = known
    return finished(a.new_zeros(of_c, dtype=torch.float32), tensors, activation, alpha, beta).to(out)


def _eager(a: Tensor, b: Tensor, *tensors: Tensor | None, **rest: Any) -> Tensor:
    return run(a, b, _four(tensors), **rest)


def _four(tensors: tuple[Tensor | None, ...]) -> Tensors:
    return (*tensors, *[None] * (len(TENSORS) - len(tensors)))


def _fake(a: Tensor, b: Tensor, *tensors: Tensor | None, **rest: Any) -> Tensor:
    for name, x in zip(("a", "b", *TENSORS), (a, b, *tensors)):
        if x is not None:
            check_dense(name, x)
    activation = rest.get("activation", "none")
    (*outer, columns), out = checked(a, b, _four(tensors), activation, rest.get("out_dtype"))
    return a.new_empty((*outer, columns // 2 if activation == "swiglu" else columns), dtype=out)


MATMUL_SCHEMA = (
    "Tensor a, Tensor b, Tensor? bias=None, Tensor? residual=None, Tensor? scale_a=None, Tensor? scale_b=None, "
    "*, str activation='none', float alpha=1.0, float beta=1.0, ScalarType? out_dtype=None, bool simulate=False, "
    "bool fast_accum=False"
)
_library = torch.library.Library("blackwell_matmul", "DEF")
define(_library, "matmul", MATMUL_SCHEMA, _eager, _fake, ProductOfTwo)
