"""torch operations in two levels: a public one with gradients, and one below autograd, for graphs.

torch calls an operation's Python gradient formula even without gradients, and for each call in compiled code. That
takes as long as the rest of a launch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from blackwell_matmul.ops.direct import wants_gradient

LAUNCH = "_launch"
"""Suffix of the lower operation's name."""

TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)
"""Tags of an operation. Operands keep the order of their strides, as kernels read any order, and inductor's code then
passes no argument that has its default: with all of them a call takes twice as long."""


def define(
    library: torch.library.Library,
    name: str,
    arguments: str,
    run: Callable[..., Tensor],
    fake: Callable[..., Tensor],
    gradients: Callable[..., Tensor],
) -> None:
    """Define an operation of a library, and the lower operation that computes it.

    arguments: as in torch's schemas; tensors first, then keywords. run: computes it, without gradients. fake: shape and
    type of its result. gradients: computes it with gradients, from the lower operation, one for the backward pass that
    has gradients of its own, the keywords, and the tensors.
    """
    for each in (name, name + LAUNCH):
        library.define(f"{each}({arguments}) -> Tensor", tags=TAGS)
        library.impl(each, run, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{library.ns}::{each}", fake, lib=library)
    upper, lower = (getattr(getattr(torch.ops, library.ns), each).default for each in (name, name + LAUNCH))

    def followed(*tensors: Tensor | None, **rest: Any) -> Tensor:
        if wants_gradient(tensors):
            return gradients(lower, upper, rest, *tensors)
        return lower(*tensors, **rest)

    library.impl(name, followed, "Autograd")
    library.impl(name + LAUNCH, torch.library.fallthrough_kernel, "Autograd")
