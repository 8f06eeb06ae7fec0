"""torch operations in two levels: a public one with gradients, and one below autograd, for graphs.

torch calls an operation's Python gradient formula even without gradients, and for each call in compiled code. That
takes as long as the rest of a launch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from blackwell_matmul.base.errors import BlackwellMatmulError
from blackwell_matmul.ops.direct import wants_gradient

LAUNCH = "_launch"
"""Suffix of the lower operation's name."""

TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)
"""Tags of an operation. Operands keep the order of their strides, as kernels read any order. inductor's code then
omits arguments with default values; passing all of them takes twice as long."""


COMPOSED = "_call"
"""Suffix of the name of an operation that is a function of this package."""


def compose(library: torch.library.Library, name: str, arguments: str, function: Callable[..., Tensor]) -> Any:
    """Define an operation that is a function of this package, and return it. arguments: as in torch's schemas.

    A graph of torch.compile has it as one node, without checks before each call of all Python state that the function
    reads. torch then calls the function for the operations in it. A refused call is left out of the graph, so that it
    raises the function's own error when it runs. With fullgraph, torch's error contains the sentence.
    """

    def composed(*tensors: Tensor | None, **options: Any) -> Tensor:
        try:
            return function(*tensors, **options)
        except BlackwellMatmulError as error:
            if any(type(each).__name__ == "FakeTensor" for each in tensors):
                from torch._subclasses.fake_tensor import UnsupportedFakeTensorException

                raise UnsupportedFakeTensorException(str(error)) from error
            raise

    library.define(f"{name}{COMPOSED}({arguments}) -> Tensor", tags=torch.Tag.pt2_compliant_tag)
    library.impl(name + COMPOSED, composed, "CompositeImplicitAutograd")
    return getattr(getattr(torch.ops, library.ns), name + COMPOSED).default


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
