"""Epilogues in torch, forward and backward, for products whose kernel does not compute them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

ACTIVATED: Mapping[str, Callable[[Tensor], Tensor]] = {
    "none": lambda z: z,
    "relu": functional.relu,
    "gelu": functional.gelu,
    "gelu_tanh": lambda z: functional.gelu(z, approximate="tanh"),
    "silu": functional.silu,
    "swiglu": lambda z: functional.silu(z[..., 0::2]) * z[..., 1::2],
}
"""Activation functions by the names in `form.ACTIVATIONS`."""


class EpilogueTensors(NamedTuple):
    """Tensors of an epilogue; None for an absent tensor."""

    bias: Tensor | None = None
    residual: Tensor | None = None
    scale_a: Tensor | None = None
    scale_b: Tensor | None = None


NO_TENSORS = EpilogueTensors()


def finished(
    z: Tensor, tensors: EpilogueTensors, activation: str = "none", alpha: float = 1.0, beta: float = 1.0
) -> Tensor:
    """Return the epilogue of z, a product in fp32 (`form.Epilogue`)."""
    bias, residual, scale_a, scale_b = tensors
    if scale_a is not None and scale_b is not None:
        z = z * scale_a.reshape(-1, 1) * scale_b.reshape(1, -1)
    if alpha != 1:
        z = z * alpha
    if residual is not None and beta != 0:
        z = torch.add(z, residual, alpha=beta)
    if bias is not None:
        z = z + bias
    made: Tensor = ACTIVATED[activation](z)
    return made


def through_activation(grad: Tensor, z: Tensor, activation: str) -> Tensor:
    """Return the gradient of z, the activation's input. grad: gradient of the activation's result."""
    aten = torch.ops.aten
    if activation == "relu":
        return aten.threshold_backward(grad, z, 0)
    if activation in ("gelu", "gelu_tanh"):
        return aten.gelu_backward(grad, z, approximate="tanh" if activation == "gelu_tanh" else "none")
    if activation == "silu":
        return aten.silu_backward(grad, z)
    if activation == "swiglu":
        gate, up = z[..., 0::2], z[..., 1::2]
        of_gate = aten.silu_backward(grad * up, gate.contiguous())
        return torch.stack((of_gate, grad * functional.silu(gate)), -1).flatten(-2)
    return grad
