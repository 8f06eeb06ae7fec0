"""`torch.ops.blackwell_matmul.matmul`: one operation for all products; what torch is told of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from blackwell_matmul.errors import InputError, UnsupportedError
from blackwell_matmul.frontend.bind import DEFAULT_TARGET
from blackwell_matmul.gpus import gpu_for_target
from blackwell_matmul.ops.gradients import gradients
from blackwell_matmul.ops.launching import Extras, product
from blackwell_matmul.ops.operand_checks import check_extras, check_operands, check_out
from blackwell_matmul.runtime.device import gpu_at

SCHEMA = (
    "matmul(Tensor a, Tensor b, Tensor? bias=None, Tensor? residual=None, Tensor? scale_a=None, Tensor? scale_b=None, "
    "*, str activation='none', float alpha=1.0, float beta=1.0, ScalarType? out_dtype=None, bool simulate=False) "
    "-> Tensor"
)
TENSORS = ("bias", "residual", "scale_a", "scale_b")
Tensors = Sequence[Tensor | None]
"""As many, in this order; None: there is no such."""

_library = torch.library.Library("blackwell_matmul", "DEF")
_library.define(SCHEMA, tags=[torch.Tag.pt2_compliant_tag])


def shape_of(a: Tensor, b: Tensor) -> tuple[int, ...]:
    """Of the product, before the activation."""
    if a.dim() == b.dim() == 2:
        return a.shape[0], b.shape[1]
    batches = [x.shape[0] for x in (a, b) if x.dim() == 3]
    return (batches[0] if batches[0] != 1 else batches[-1]), a.shape[-2], b.shape[-1]


def checked(
    a: Tensor, b: Tensor, tensors: Tensors, activation: str = "none", out_dtype: torch.dtype | None = None
) -> tuple[tuple[int, ...], torch.dtype]:
    """The shape of the product and C's type; InputError for what is none."""
    check_operands(a, b, scaled=tensors[2] is not None and a.element_size() == 1)
    out = out_dtype or (a.dtype if a.element_size() > 1 else torch.bfloat16)
    check_out(out)
    of_c = shape_of(a, b)
    check_extras(of_c, out, a.device, dict(zip(TENSORS, tensors, strict=True)), activation)
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
) -> Tensor:
    """Without gradients."""
    _, out = checked(a, b, tensors, activation, out_dtype)
    if simulate:
        if a.device.type != "cpu":
            raise InputError(f"a and b are on {a.device}; simulate=True takes CPU tensors, such as a.cpu().")
        a, b = a.detach(), b.detach()
        tensors = [None if each is None else each.detach() for each in tensors]
        gpu = gpu_for_target(DEFAULT_TARGET)
    elif a.is_cuda:
        gpu = gpu_at(a.get_device())
    else:
        raise UnsupportedError(
            f"matmul got tensors on {a.device}; it runs CUDA tensors, and simulates CPU tensors with simulate=True."
        )
    return product(
        a,
        b,
        gpu,
        out,
        Extras(**dict(zip(TENSORS, tensors, strict=True)), activation=activation, alpha=alpha, beta=beta),
    )


def _eager(a: Tensor, b: Tensor, *tensors: Tensor | None, **rest: Any) -> Tensor:
    return run(a, b, _four(tensors), **rest)


def _four(tensors: tuple[Tensor | None, ...]) -> Tensors:
    return (*tensors, *[None] * (len(TENSORS) - len(tensors)))


def _fake(a: Tensor, b: Tensor, *tensors: Tensor | None, **rest: Any) -> Tensor:
    activation = rest.get("activation", "none")
    (*outer, columns), out = checked(a, b, _four(tensors), activation, rest.get("out_dtype"))
    return a.new_empty((*outer, columns // 2 if activation == "swiglu" else columns), dtype=out)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], keyword_only_inputs: Any, output: Tensor) -> None:
    ctx.save_for_backward(*inputs)
    ctx.rest = keyword_only_inputs


def _backward(ctx: Any, grad: Tensor) -> tuple[Any, ...]:
    a, b, *tensors = ctx.saved_tensors
    return gradients(grad, a, b, tensors, ctx.needs_input_grad, **ctx.rest)


_library.impl("matmul", _eager, "CompositeExplicitAutograd")
torch.library.register_fake("blackwell_matmul::matmul", _fake, lib=_library)
torch.library.register_autograd("blackwell_matmul::matmul", _backward, setup_context=_setup_context, lib=_library)
