"""Path of a product to its kernel: direct, by autograd alone, or as torch's operation.

torch's dispatch of a library's operation takes more CPU time than many kernels run.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from blackwell_matmul.ops.casting import autocast
from blackwell_matmul.ops.counting import tell_counters
from blackwell_matmul.ops.direct import bypasses_dispatch, wants_gradient
from blackwell_matmul.ops.gradients import ProductOfTwo
from blackwell_matmul.ops.launching import NO_TENSORS, Tensors
from blackwell_matmul.ops.library import run
from blackwell_matmul.ops.operand_checks import (
    AS_OURS,
    Said,
    check_derivatives,
    check_fakes,
    check_operands,
    check_simulate,
)


def product(
    a: Tensor,
    b: Tensor,
    tensors: Tensors = NO_TENSORS,
    *,
    plain: bool,
    simulate: bool,
    said: Said = AS_OURS,
    **rest: Any,
) -> Tensor:
    """As `library.run`, with gradients. plain: `bypasses_dispatch` of what these are views of."""
    check_simulate(simulate)
    if torch._C._is_any_autocast_enabled() and tensors[2] is None:  # torch._scaled_mm is not cast, either
        a, b, tensors = autocast(a, b, tensors)
    if plain and not wants_gradient((a, b, *tensors)):
        return run(a, b, tensors, simulate=simulate, said=said, **rest)
    if plain and tensors[2] is None:
        rest = {"simulate": simulate, "said": said, **rest}
        made: Tensor = ProductOfTwo.apply(_without_gradients, _product_again, rest, a, b, *tensors[:2])
        return made
    return _operation(a, b, tensors, said, simulate=simulate, **rest)


def _operation(a: Tensor, b: Tensor, tensors: Tensors, said: Said, **rest: Any) -> Tensor:
    """Call torch's operation, which notifies all listeners."""
    check_fakes((a, b, *tensors))
    check_operands(a, b, scaled=tensors[2] is not None, said=said)
    check_derivatives(said.operation, (a, b, *tensors))
    tell_counters()
    if any(type(each).__name__ == "DTensor" for each in (a, b, *tensors)):
        from blackwell_matmul.ops.distributed.sharding import register

        register()
    made: Tensor = torch.ops.blackwell_matmul.matmul.default(a, b, *tensors, **rest)
    return made


def _without_gradients(a: Tensor, b: Tensor, bias: Tensor | None, residual: Tensor | None, **rest: Any) -> Tensor:
    return run(a, b, (bias, residual, None, None), **rest)


def _product_again(
    a: Tensor, b: Tensor, bias: Tensor | None = None, residual: Tensor | None = None, **rest: Any
) -> Tensor:
    """Multiply in a backward pass, which may have gradients in turn."""
    tensors = (bias, residual, None, None)
    return product(a, b, tensors, plain=bypasses_dispatch((a, b), (bias, residual)), **rest)
