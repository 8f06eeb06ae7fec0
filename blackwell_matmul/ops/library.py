"""`product`: runs a kernel on checked operands, directly, through autograd, or through torch's dispatch.

torch's dispatch of a custom operation takes more CPU time than many kernels take on the GPU. Only calls that a mode or
hook observes use the operation, `torch.ops.blackwell_matmul.matmul`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from blackwell_matmul.ops.casting import autocast
from blackwell_matmul.ops.counting import tell_counters
from blackwell_matmul.ops.direct import bypasses_dispatch, wants_gradient
from blackwell_matmul.ops.distributed.shared_gpu import when_changed
from blackwell_matmul.ops.finished import NO_TENSORS, EpilogueTensors, finished
from blackwell_matmul.ops.gradients import ProductOfTwo
from blackwell_matmul.ops.launching import ProductPlan, gpu_of, kind_of, planned
from blackwell_matmul.ops.operand_checks import (
    AS_OURS,
    DEFAULTS,
    How,
    Said,
    check_dense,
    check_dispatched,
    check_operands,
    checked,
)
from blackwell_matmul.ops.ready import Call, again, below_dispatch, keep
from blackwell_matmul.ops.two_levels import define
from blackwell_matmul.problem.form import check_flag
from blackwell_matmul.runtime.recent import Recent


def product(
    a: Tensor,
    b: Tensor,
    tensors: EpilogueTensors,
    how: How,
    said: Said,
    plain: bool,
    call: Call | None = None,
    shape: Sequence[int] | None = None,
) -> Tensor:
    """Return the product, with gradients if needed.

    plain: result of `bypasses_dispatch` for the caller's tensors, of which a and b may be views. call: the caller's
    `Call`. shape: shape of the result; None: as multiplied.
    """
    check_flag("simulate", how.simulate)
    check_flag("batch_invariant", how.batch_invariant)
    if torch._C._is_any_autocast_enabled() and tensors.scale_a is None:  # autocast ignores torch._scaled_mm, too
        a, b, tensors = autocast(a, b, tensors)
    if plain and not wants_gradient((a, b, *tensors)):
        made = run(a, b, tensors, how, said, call=call, shape=shape)
    elif plain and tensors.scale_a is None:
        multiply = functools.partial(_without_gradients, how, said, call if shape is None else None)
        made = ProductOfTwo.apply(multiply, _product_again, how, a, b, *tensors[:2])
    else:
        made = _operation(a, b, tensors, how, said)
    return made if shape is None else made.reshape(shape)


def _operation(a: Tensor, b: Tensor, tensors: EpilogueTensors, how: How, said: Said) -> Tensor:
    """Return the product through torch's dispatch, which notifies all modes and hooks.

    torch.compile guards all Python state that is read here, and checks the guards before each call. So little is read.
    """
    check_operands(a, b, scaled=tensors.scale_a is not None, said=said)
    check_dispatched((a, b, *tensors), said)
    tell_counters()
    if any(type(each).__name__ == "DTensor" for each in (a, b, *tensors) if each is not None):
        from blackwell_matmul.ops.distributed.sharding import register

        register()
    made: Tensor = torch.ops.blackwell_matmul.matmul.default(
        a, b, *tensors, activation=how.activation, alpha=how.alpha, beta=how.beta, out_dtype=how.out_dtype,
        simulate=how.simulate, fast_accum=how.fast_accum, batch_invariant=how.batch_invariant,
    )  # fmt: skip
    return made


def _without_gradients(
    how: How, said: Said, call: Call | None, a: Tensor, b: Tensor, *tensors: Tensor | None
) -> Tensor:
    made = None if call is None else again(call.kind, call.addresses)
    return run(a, b, EpilogueTensors(*tensors), how, said, call=call) if made is None else made


def _product_again(a: Tensor, b: Tensor, *tensors: Tensor | None, **rest: Any) -> Tensor:
    """Return a product of a backward pass, which may have gradients itself."""
    return product(a, b, EpilogueTensors(*tensors), How(**rest), AS_OURS, bypasses_dispatch((a, b), tensors))


def run(
    a: Tensor,
    b: Tensor,
    tensors: EpilogueTensors = NO_TENSORS,
    how: How = DEFAULTS,
    said: Said = AS_OURS,
    into: Tensor | None = None,
    call: Call | None = None,
    shape: Sequence[int] | None = None,
) -> Tensor:
    """Return the product without gradients. Calls with equal shapes, strides, types and options share a plan.

    into: tensor that receives C, if the kernel can write it. call: the caller's `Call`, of tensors of which a and b may
    be views; later calls of its kind need no checks. shape: shape of the caller's result.
    """
    key = (*kind_of(a), *kind_of(b), *[None if each is None else kind_of(each) for each in tensors], how)
    plan = _plans.made(key, _planned, a, b, tensors, how, said)
    if how.simulate:
        a, b = a.detach(), b.detach()
        tensors = EpilogueTensors(*[None if each is None else each.detach() for each in tensors])
    if isinstance(plan, ProductPlan):
        made = plan(a, b, tensors, into)
        if call is not None:
            keep(call, plan.ready((a, b, *tensors), call.addresses, made.shape if shape is None else shape))
        return made
    of_c, out = plan
    zeros = a.new_zeros(of_c, dtype=torch.float32)
    return finished(zeros, tensors, how.activation, how.alpha, how.beta).to(out)


Empty = tuple[tuple[int, ...], torch.dtype]
"""Shape and type of a product without elements, or with a k of 0."""

KEPT_PLANS = 4096
_plans: Recent[tuple[Any, ...], ProductPlan | Empty] = Recent(KEPT_PLANS)
when_changed(_plans.clear)


def _planned(a: Tensor, b: Tensor, tensors: EpilogueTensors, how: How, said: Said) -> ProductPlan | Empty:
    of_c, out = checked(a, b, tensors, how, said)
    return planned(a, b, tensors, gpu_of(a, how.simulate, *said[:3]), out, how) or (of_c, out)


# --- torch's operation

Operation = Callable[..., Tensor]


def _computed(a: Tensor, b: Tensor, *tensors: Tensor | None, **rest: Any) -> Tensor:
    made, call = None, None
    if not rest.get("simulate"):
        made, call = below_dispatch(["operation", *rest.items()], (a, b, *tensors))
    return run(a, b, EpilogueTensors(*tensors), How(**rest), call=call) if made is None else made


def _followed(lower: Operation, upper: Operation, rest: dict[str, Any], *tensors: Tensor | None) -> Tensor:
    made: Tensor = ProductOfTwo.apply(functools.partial(lower, **rest), upper, How(**rest), *tensors)
    return made


def _fake(a: Tensor, b: Tensor, *tensors: Tensor | None, **rest: Any) -> Tensor:
    extras, how = EpilogueTensors(*tensors), How(**rest)
    for name, x in {"a": a, "b": b, **extras._asdict()}.items():
        if x is not None:
            check_dense(name, x)
    (*outer, columns), out = checked(a, b, extras, how)
    return a.new_empty((*outer, columns // 2 if how.activation == "swiglu" else columns), dtype=out)


MATMUL_SCHEMA = (
    "Tensor a, Tensor b, Tensor? bias=None, Tensor? residual=None, Tensor? scale_a=None, Tensor? scale_b=None, "
    "*, str activation='none', float alpha=1.0, float beta=1.0, ScalarType? out_dtype=None, bool simulate=False, "
    "bool fast_accum=False, bool batch_invariant=False"
)
_library = torch.library.Library("blackwell_matmul", "DEF")
define(_library, "matmul", MATMUL_SCHEMA, _computed, _fake, _followed, required=("a", "b"))
