"""Whether torch.func or forward mode follows a tensor.

Only who uses them, or torch.compile, needs this file, which imports torch's compiler.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd import forward_ad

from blackwell_matmul.ops.direct import in_forward_mode


@torch.compiler.disable
def followed(x: Tensor) -> bool:
    """By torch.func's grad, vjp or jvp, also within its vmap, or by a tangent, which a compiled frame would not see."""
    functorch = torch._C._functorch
    while functorch.is_functorch_wrapped_tensor(x):
        if functorch.is_gradtrackingtensor(x):
            return True
        x = functorch.get_unwrapped(x)
    return in_forward_mode() and forward_ad.unpack_dual(x).tangent is not None


def followed_in_a_graph(x: Tensor) -> bool:
    """Or whether it may be: torch.compile's tracer shows no tangents, and not all wrapped tensors. Where it need not
    have the whole graph, what is refused is called eagerly, and asked again."""
    transforms = _transforms()
    derived = "Grad" in transforms and (transforms[-1] != "Grad" or x.view_as(x).requires_grad)
    return in_forward_mode() or derived


@torch.compiler.assume_constant_result
def _transforms() -> list[str]:
    """Of torch.func, outermost first. Not traced: the tracer enters them as it goes."""
    return [each.key().name for each in torch._C._functorch.get_interpreter_stack() or ()]
