"""Definition of torch operations in two levels: a public operation with gradients, and one below autograd.

torch calls the Python formula of an operation's gradient even if no gradient is needed, and for each call in compiled
code. The formula takes as much time as the rest of a launch, and the lower operation has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from blackwell_matmul.base.errors import BlackwellMatmulError
from blackwell_matmul.ops.direct import wants_gradient

LAUNCH = "_launch"
"""Suffix of the lower operation's name."""

TENSORS_ALONE = "plain"
"""Name of the lower operation's overload without optional arguments, which takes torch's dispatch half the time."""

TAGS = (torch.Tag.pt2_compliant_tag, torch.Tag.needs_fixed_stride_order)
"""Tags of an operation. With needs_fixed_stride_order, inductor keeps the strides of operands. Its code then also omits
arguments with default values; passing all of them takes twice as long."""


COMPOSED = "_call"
"""Suffix of the name of an operation that `compose` defines."""


def compose(library: torch.library.Library, name: str, arguments: str, function: Callable[..., Tensor]) -> Any:
    """Define an operation that calls a function of this package, and return the operation. arguments: the arguments of
    torch's schema.

    In a graph of torch.compile the operation is one node. torch.compile then has no guards for the Python state that
    the function reads. A call that the function refuses is left out of the graph, and raises the function's error at
    run time. With fullgraph, torch's error contains the message.
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
    required: Sequence[str] = (),
) -> None:
    """Define an operation of a library, and the lower operation without gradients.

    arguments: the arguments of torch's schema, tensors first, then keywords. run: function that computes the result
    without gradients. fake: function that returns a tensor of the result's shape and type. gradients: function that
    computes the result with gradients. It takes the lower operation, the upper operation, the keywords and the tensors.
    required: names of the required tensors, for an overload of the lower operation that takes these alone; none: no
    overload.
    """
    schemas = {name: arguments, name + LAUNCH: arguments}
    if required:
        schemas[f"{name}{LAUNCH}.{TENSORS_ALONE}"] = ", ".join(f"Tensor {each}" for each in required)
    for each, schema in schemas.items():
        library.define(f"{each}({schema}) -> Tensor", tags=TAGS)
        library.impl(each, run, "CompositeExplicitAutograd")
        torch.library.register_fake(f"{library.ns}::{each}", fake, lib=library)
        if each != name:
            library.impl(each, torch.library.fallthrough_kernel, "Autograd")
    upper, launches = (getattr(getattr(torch.ops, library.ns), each) for each in (name, name + LAUNCH))
    lower, alone, count = launches.default, getattr(launches, TENSORS_ALONE) if required else None, len(required)

    def followed(*tensors: Tensor | None, **rest: Any) -> Tensor:
        launch = lower
        if alone is not None and not rest and all(each is None for each in tensors[count:]):
            launch, tensors = alone, tensors[:count]
        if wants_gradient(tensors):
            return gradients(launch, upper.default, rest, *tensors)
        made: Tensor = launch(*tensors, **rest)
        return made

    library.impl(name, followed, "Autograd")
