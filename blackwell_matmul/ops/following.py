"""Tests if torch.func or forward mode tracks a tensor.

The import of this file imports torch's compiler. Only calls under torch.func, forward mode or torch.compile need it.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad

from blackwell_matmul.ops.direct import in_forward_mode


@torch.compiler.disable
def followed(x: Tensor) -> bool:
    """Return True if torch.func's grad, vjp or jvp tracks x, also inside vmap, or if x has a tangent."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(x):
        if functorch.is_gradtrackingtensor(x):
            return True
        x = functorch.get_unwrapped(x)
    return in_forward_mode() and forward_ad.unpack_dual(x).tangent is not None


def followed_in_a_graph(x: Tensor) -> bool:
    """Return True if x may be tracked, in torch.compile. The tracer hides tangents and some wrappers of tensors.

    Without fullgraph, torch.compile runs a refused call eagerly, which then calls `followed`.
    """
    transforms = _transforms()
    derived = "Grad" in transforms and (transforms[-1] != "Grad" or x.view_as(x).requires_grad)
    return in_forward_mode() or derived


@torch.compiler.assume_constant_result
def derives() -> bool:
    """Return True if torch.func is taking derivatives."""
    return "Grad" in _transforms()


@torch.compiler.assume_constant_result
def _transforms() -> list[str]:
    """Return the active transforms of torch.func, outermost first. torch.compile does not trace this function."""
    return [each.key().name for each in torch._C._functorch.get_interpreter_stack() or ()]
