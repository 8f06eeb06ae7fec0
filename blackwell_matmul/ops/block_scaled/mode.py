"""`ScaledMmMode`: replaces torch's scaled products, such as those of torchao's tensors, by this package's
`scaled_mm`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import ScalingType, SwizzleType
from torch.utils._python_dispatch import TorchDispatchMode

from blackwell_matmul.ops.scaled import scaled_mm
from blackwell_matmul.problem.form import check_flag


class ScaledMmMode(TorchDispatchMode):
    """Context in which `torch._scaled_mm` and `torch.nn.functional.scaled_mm` call `blackwell_matmul.scaled_mm`. It
    includes calls by tensor subclasses. simulate: True also runs CPU tensors, in the simulator.

    with ScaledMmMode(simulate=True):
        y = model(x)
    """

    def __init__(self, *, simulate: bool = False) -> None:
        check_flag("simulate", simulate)
        super().__init__()
        self._simulate = simulate

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        if any(each.__torch_dispatch__ is not Tensor.__torch_dispatch__ for each in types):
            return NotImplemented  # the subclass first decomposes its operation; this mode then sees the parts
        if func is torch.ops.aten._scaled_mm.default:
            return scaled_mm(*args, **kwargs or {}, simulate=self._simulate)
        if func is torch.ops.aten._scaled_mm_v2.default:
            return _by_numbers(*args, **kwargs or {}, simulate=self._simulate)
        return func(*args, **kwargs or {})


def _by_numbers(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Sequence[Tensor],
    recipe_a: Sequence[int],
    swizzle_a: Sequence[int],
    scale_b: Sequence[Tensor],
    recipe_b: Sequence[int],
    swizzle_b: Sequence[int],
    *rest: Any,
    simulate: bool,
) -> Tensor:
    """Return the result of aten::_scaled_mm_v2, whose recipes and swizzles are integers."""
    recipes = [[ScalingType(each) for each in found] for found in (recipe_a, recipe_b)]
    swizzles = [[SwizzleType(each) for each in found] for found in (swizzle_a, swizzle_b)]
    sides = scale_a, recipes[0], scale_b, recipes[1], swizzles[0], swizzles[1]
    return scaled_mm(mat_a, mat_b, *sides, *rest, simulate=simulate)
