"""Reads torch's scale recipes (`ScalingType`), and names the product that two recipes describe."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import ScalingType, SwizzleType

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import counted, shown
from blackwell_matmul.ops.block_scaled.formats import FORMATS
from blackwell_matmul.ops.operand_checks import check_tensors, known, unequal
from blackwell_matmul.problem.form import BLOCK_SCALES, PADDED_SCALES, SCALED_K

TENSOR, ROWWISE = "tensor", "rowwise"
MX = {element: name for name in ("mxfp8", "mxfp4") for element in FORMATS[name].elements}
"""Name of the format with BlockWise1x32 scales, by the type of the elements."""

WORDS: dict[tuple[Any, ...], str] = {
    (ScalingType.TensorWise,): TENSOR,
    (ScalingType.RowWise,): ROWWISE,
    (ScalingType.BlockWise1x32,): "mx",
    (ScalingType.BlockWise1x16,): "nvfp4",
    (ScalingType.BlockWise1x16, ScalingType.TensorWise): "nvfp4",
    (ScalingType.BlockWise1x128,): "1x128",
    (ScalingType.BlockWise128x128,): "128x128",
}
"""Short names of an operand's recipes. The type is dict, as torch.compile cannot trace MappingProxyType."""


class Scaling(NamedTuple):
    """Scales of one operand.

    scale: scales of blocks, of rows or of the tensor. word: name of their recipe in `WORDS`. factor: second scale, of
    the tensor. swizzled: True if `scale` is in SWIZZLE_32_4_4.
    """

    scale: Tensor
    word: str
    factor: Tensor | None = None
    swizzled: bool = True


def scaling_of(side: str, scales: object, recipes: object, swizzles: object, groups: int = 1) -> Scaling:
    """Return the scaling that arguments of torch.nn.functional.scaled_mm describe.

    side: "a" or "b", for messages. groups: number of groups; each group may have a second scale. Raises InputError for
    other arguments.
    """
    given, named = _listed(scales), _listed(recipes)
    if not all(isinstance(each, ScalingType) for each in named) or named not in WORDS:
        able = ", ".join(" with ".join(one.name for one in each) for each in WORDS)
        raise InputError(f"scale_recipe_{side} is {_names(recipes)}; it must be one of {able}, of torch's ScalingType.")
    if len(given) != len(named):
        raise InputError(
            f"scale_{side} has {counted(len(given), 'tensor')} and scale_recipe_{side} "
            f"{counted(len(named), 'recipe')}, {_names(recipes)}; each recipe has one."
        )
    check_tensors(**{f"scale_{side}" + "[1]" * place: each for place, each in enumerate(given)})
    word = WORDS[named]
    first, factor = given if len(given) == 2 else (given[0], None)
    if factor is not None:
        _check_factor(f"scale_{side}[1]", factor, first.device, groups)
    return Scaling(first, word, factor, _swizzled(side, swizzles, len(given), word))


def _check_factor(name: str, factor: Tensor, device: torch.device, groups: int) -> None:
    one = not unequal(factor.numel(), 1) or not unequal(factor.numel(), groups)
    if factor.dtype != torch.float32 or not one or factor.device != device:
        more = "" if groups == 1 else f", or {groups}, one for each group,"
        raise InputError(
            f"{name} is {factor.dtype} of shape {tuple(factor.shape)} on {factor.device}; the scale of a tensor must "
            f"be one number{more} of torch.float32 on {device}."
        )


def _listed(given: object) -> tuple[Any, ...]:
    return tuple(given) if isinstance(given, (list, tuple)) else (given,)


def _names(given: object) -> str:
    each = [getattr(one, "name", None) or shown(one) for one in _listed(given)]
    return f"[{', '.join(each)}]" if isinstance(given, (list, tuple)) else each[0]


def _swizzled(side: str, swizzles: object, most: int, word: str) -> bool:
    """Return True for scales of 16 or 32 elements in SWIZZLE_32_4_4, their default order.

    most: maximum number of swizzles. Raises InputError for swizzles that do not fit the recipe.
    """
    of_blocks = word in ("mx", "nvfp4")
    named = _listed(swizzles) if swizzles not in (None, [], ()) else ()
    if not all(isinstance(each, SwizzleType) for each in named) or len(named) > most:
        raise InputError(
            f"swizzle_{side} is {_names(swizzles)}; it must be SWIZZLE_32_4_4 or NO_SWIZZLE, of torch's SwizzleType, "
            "one for each scale."
        )
    if any(each != SwizzleType.NO_SWIZZLE for each in named[1 if of_blocks else 0 :]):
        raise InputError(
            f"swizzle_{side} is {_names(swizzles)}; only scales of BlockWise1x32 and BlockWise1x16 are swizzled, so "
            "that it must be NO_SWIZZLE."
        )
    return of_blocks and (not named or named[0] == SwizzleType.SWIZZLE_32_4_4)


def scaling_by_type(scale: Tensor, rows: int, k: int) -> Scaling:
    """Return the scaling that follows from the type and shape of the scales, by the rules of torch._scaled_mm.

    A scale of blocks has the blocks along its last dimension. A shape that fits no other recipe is RowWise.
    """
    if scale.dtype == torch.float8_e8m0fnu:
        return Scaling(scale, "mx")
    if scale.dtype == torch.float8_e4m3fn:
        return Scaling(scale, "nvfp4")
    blocks_k = -(-k // SCALED_K)
    if scale.dim() == 2 and known(blocks_k > 1):
        if _is(scale, rows, blocks_k):
            return Scaling(scale, "1x128")
        padded = -(-blocks_k // PADDED_SCALES) * PADDED_SCALES
        if any(_is(scale, -(-rows // SCALED_K), each) for each in (blocks_k, padded)):
            return Scaling(scale, "128x128")
    return Scaling(scale, TENSOR if known(scale.numel() == 1) else ROWWISE)


def _is(scale: Tensor, *shape: int) -> bool:
    return all(known(size == other) for size, other in zip(scale.shape, shape, strict=True))


def check_count(side: str, scaling: Scaling, rows: int) -> None:
    """Raise InputError for a wrong number of TensorWise or RowWise scales."""
    wanted = {TENSOR: 1, ROWWISE: rows}.get(scaling.word)
    if wanted is not None and unequal(scaling.scale.numel(), wanted):
        name = {TENSOR: "TensorWise", ROWWISE: "RowWise"}[scaling.word]
        raise InputError(
            f"scale_{side} has shape {tuple(scaling.scale.shape)}; with {name} it must have "
            f"{counted(wanted, 'number')}."
        )


def recipe_of(a: Scaling, b: Scaling, dtype: torch.dtype) -> str:
    """Return the name of the product: "tensor", "rowwise", a key of `FORMATS`, or a key of `BLOCK_SCALES`.

    dtype: type of the elements, which distinguishes the formats of BlockWise1x32. Raises InputError for scalings that
    do not fit together.
    """
    both = f"{a.word} {b.word}"
    if both in BLOCK_SCALES:
        return both
    if a.word != b.word or both == "128x128 128x128":
        able = "; or ".join(f"{one} with {other}" for one, other in (each.split() for each in BLOCK_SCALES))
        raise InputError(
            f"mat_a has {_said(a)} and mat_b {_said(b)}; both must be alike, or fp32 scales of blocks, {able}."
        )
    return MX.get(dtype, "mxfp8") if a.word == "mx" else a.word


def _said(scaling: Scaling) -> str:
    return {
        TENSOR: "a scale of the tensor", ROWWISE: "scales of rows", "mx": "e8m0 scales of 32 elements",
        "nvfp4": "e4m3 scales of 16 elements",
    }.get(scaling.word, f"fp32 scales of {scaling.word}")  # fmt: skip
