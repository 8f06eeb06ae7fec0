"""An operation of torch in two: the one that is called, with gradients, and the one below autograd, which graphs have.

torch calls what it knows of an operation's gradients in Python, whether there is one to take or not: also for each call
in the code of torch.compile, which has taken them long before. That takes as long as all the rest of a launch.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from blackwell_matmul.ops.direct import wants_gradient

LAUNCH = "_launch"
"""Ends the name of the lower operation."""


def define(
    library: torch.library.Library,
    name: str,
    arguments: str,
    run: Callable[..., Tensor],
    fake: Callable[..., Tensor],
    gradients: type[torch.autograd.Function],
) -> None:
    """library's operation of that name, and the one that does its work.

    arguments: as schemas of torch have them; the tensors come first, and all others are keywords. run: computes it,
    without gradients. fake: shape and type of its result. gradients: takes the lower operation, the one for the way
    back, which has gradients in turn, the keywords, and the tensors."""
    for each in (name, name + LAUNCH):
        library.define(f"{each}({arguments}) -> Tensor", tags=[torch.Tag.pt2_compliant_tag])
        library.impl(each, run, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{library.ns}::{each}", fake, lib=library)
    upper, lower = (getattr(getattr(torch.ops, library.ns), each).default for each in (name, name + LAUNCH))

    def followed(*tensors: Tensor | None, **rest: Any) -> Tensor:
        if wants_gradient(tensors):
            made: Tensor = gradients.apply(lower, upper, rest, *tensors)
            return made
        return lower(*tensors, **rest)

    library.impl(name, followed, "Autograd")
    library.impl(name + LAUNCH, torch.library.fallthrough_kernel, "Autograd")
