"""torch.autocast on a product's operands."""

from __future__ import annotations

import torch
from torch import Tensor

from blackwell_matmul.ops.finished import EpilogueTensors

DEVICE_TYPES = ("cuda", "cpu")
"""Device types with kernels. autocast of other types is ignored: torch.compile of torch 2.11 cannot ask for their
state."""


def autocast(a: Tensor, b: Tensor, tensors: EpilogueTensors) -> tuple[Tensor, Tensor, EpilogueTensors]:
    """Return the tensors in torch.autocast's type for a's device; unchanged if autocast is disabled.

    float64, integers and tensors on other devices stay unchanged.
    """
    kind = a.device.type
    if kind not in DEVICE_TYPES or not torch.is_autocast_enabled(kind):
        return a, b, tensors
    dtype = torch.get_autocast_dtype(kind)

    def cast(x: Tensor) -> Tensor:
        eligible = x.device.type == kind and x.is_floating_point() and x.dtype != torch.float64
        return x.to(dtype) if eligible else x

    return cast(a), cast(b), EpilogueTensors(*[None if each is None else cast(each) for each in tensors])
