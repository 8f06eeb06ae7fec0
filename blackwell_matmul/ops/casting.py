"""What torch.autocast does to the operands of a product."""

from __future__ import annotations

import torch
from torch import Tensor

from blackwell_matmul.ops.launching import Tensors

KINDS = ("cuda", "cpu")
"""Of devices that have kernels; torch.compile of torch 2.11 cannot ask which ones have autocast."""


def autocast(a: Tensor, b: Tensor, tensors: Tensors) -> tuple[Tensor, Tensor, Tensors]:
    """All but float64 in the type of torch.autocast for a's device, where it is enabled, as torch's own products take
    them; gradients have the types from before."""
    kind = a.device.type
    if kind not in KINDS or not torch.is_autocast_enabled(kind):
        return a, b, tensors
    dtype = torch.get_autocast_dtype(kind)

    def cast(x: Tensor) -> Tensor:
        eligible = x.device.type == kind and x.is_floating_point() and x.dtype != torch.float64
        return x.to(dtype) if eligible else x

    return cast(a), cast(b), [None if each is None else cast(each) for each in tensors]
