"""`scaled_mm`: products with scales of tensors, rows or blocks, called as either of torch's two functions.

Products with scales of tensors or rows are in `library.py`, those with scales of blocks in `block_scaled/product.py`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, overload

import torch
from torch import Tensor
from torch.nn.functional import ScalingType, SwizzleType

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import shown
from blackwell_matmul.ops.block_scaled.block_operands import BlockOptions, Operands
from blackwell_matmul.ops.block_scaled.formats import format_of
from blackwell_matmul.ops.block_scaled.product import block_scaled_product
from blackwell_matmul.ops.block_scaled.quantized_product import quantized_product
from blackwell_matmul.ops.block_scaled.quantizing import as_number, check_global_scale
from blackwell_matmul.ops.block_scaled.recipes import (
    ROWWISE,
    TENSOR,
    Scaling,
    check_count,
    recipe_of,
    scaling_by_type,
    scaling_of,
)
from blackwell_matmul.ops.direct import bypasses_dispatch
from blackwell_matmul.ops.finished import EpilogueTensors
from blackwell_matmul.ops.library import product
from blackwell_matmul.ops.operand_checks import (
    How,
    Said,
    check_matrices,
    check_optional,
    check_scaled,
    check_tensors,
    taken,
)
from blackwell_matmul.ops.ready import Call, launched
from blackwell_matmul.problem.form import check_flag

BY_TYPES = Said("scaled_mm", "input", "mat2")
BY_RECIPES = Said("scaled_mm", "mat_a", "mat_b")

Scales = Tensor | Sequence[Tensor]
Recipes = ScalingType | Sequence[ScalingType]
Swizzles = SwizzleType | Sequence[SwizzleType]


@overload
def scaled_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Scales,
    scale_recipe_a: Recipes,
    scale_b: Scales,
    scale_recipe_b: Recipes,
    swizzle_a: Swizzles | None = None,
    swizzle_b: Swizzles | None = None,
    bias: Tensor | None = None,
    output_dtype: torch.dtype | None = torch.bfloat16,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
    *,
    simulate: bool = False,
) -> Tensor: ...


@overload
def scaled_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Scales,
    scale_recipe_a: Recipes,
    scale_b: Scales,
    scale_recipe_b: Recipes,
    swizzle_a: Swizzles | None = None,
    swizzle_b: Swizzles | None = None,
    bias: Tensor | None = None,
    *,
    output_dtype: str,
    contraction_dim: Sequence[int] = (),
    global_scale: Tensor | float | None = None,
    simulate: bool = False,
) -> tuple[Tensor, Tensor]: ...


@overload
def scaled_mm(
    input: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    *,
    simulate: bool = False,
) -> Tensor: ...


def scaled_mm(*args: Any, **options: Any) -> Any:
    """Return scale_a * scale_b * (mat_a[m, k] @ mat_b[k, n]) + bias.

    Arguments are those of torch.nn.functional.scaled_mm, or those of torch._scaled_mm. mat_a, mat_b: contiguous along
    k, as `w.T` is. Other operands of 8 bits are copied, other operands of 4 bits refused. bias: [n], of the type of the
    result. The result is bfloat16, float16 or float32; None is bfloat16. The result has no gradient.

    TensorWise, RowWise: e4m3 or e5m2, with fp32 scales: one number ([], [1] or [1, 1]), or [m, 1] or [m] and [1, n] or
    [n]. e4m3 with e5m2 is multiplied in 16 bits, with copies of both.

    BlockWise1x32: e4m3 or e5m2 (mxfp8), or e2m1 (mxfp4), with e8m0 scales. BlockWise1x16: e2m1 with e4m3 scales
    (nvfp4). [BlockWise1x16, TensorWise] takes a list of two scales, the second of fp32 for the tensor. The product of
    A's and B's second scale is applied in fp32, before the result is rounded. Scales are in SWIZZLE_32_4_4 by default.
    With NO_SWIZZLE they are [m, k / block] and [n, k / block], and are copied. k is a multiple of 32, n of 8.

    output_dtype="mxfp8", "mxfp4" or "nvfp4" returns data and scales, equal to `quantize` of the fp32 result with
    global_scale. The operands are block-scaled, n is a multiple of 32, and the bias has any type of a result. The
    kernel quantises, on data-center Blackwell.

    BlockWise1x128, BlockWise128x128: 8-bit operands on Hopper, with fp32 scales. Without recipes, the types and shapes
    of the scales determine them. contraction_dim: () or (1, 0). use_fast_accum: True allows sums of about 13 bits for
    8-bit operands on Hopper.

    Raises InputError for operands that do not fit, UnsupportedError if no kernel runs.
    """
    by_recipes = "scale_recipe_a" in options or (len(args) > 3 and isinstance(args[3], (ScalingType, list, tuple)))
    return (_scaled_mm_by_recipes if by_recipes else _scaled_mm_by_types)(*args, **options)


def _scaled_mm_by_types(
    input: Tensor,
    mat2: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    bias: Tensor | None = None,
    scale_result: None = None,
    out_dtype: torch.dtype | None = None,
    use_fast_accum: bool = False,
    *,
    simulate: bool = False,
) -> Tensor:
    call = None
    if scale_result is None and (out_dtype is None or type(out_dtype) is torch.dtype):
        tensors = (input, mat2, bias, scale_a, scale_b)
        made, call = launched("scaled_mm", tensors, (use_fast_accum, simulate), out_dtype)
        if made is not None:
            return made
    plain = bypasses_dispatch((input, mat2, scale_a, scale_b), (bias,))
    if not plain:
        needed = {"input": input, "mat2": mat2, "scale_a": scale_a, "scale_b": scale_b}
        rest = {"scale_result": scale_result, "out_dtype": out_dtype, "use_fast_accum": use_fast_accum}
        if (node := taken(scaled_mm, needed, {"bias": bias}, **rest, simulate=simulate)) is not None:
            return node
    check_scaled(scale_result, out_dtype, use_fast_accum)
    how = How(out_dtype=out_dtype, simulate=simulate, fast_accum=use_fast_accum)
    check_matrices(input, mat2, BY_TYPES)
    left = scaling_by_type(scale_a, input.shape[-2], input.shape[-1])
    right = scaling_by_type(scale_b.mT if scale_b.dim() == 2 else scale_b, mat2.shape[-1], mat2.shape[-2])
    return multiplied(input, mat2, left, right._replace(scale=scale_b), bias, how, BY_TYPES, plain, call)


def _scaled_mm_by_recipes(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Scales,
    scale_recipe_a: Recipes,
    scale_b: Scales,
    scale_recipe_b: Recipes,
    swizzle_a: Swizzles | None = None,
    swizzle_b: Swizzles | None = None,
    bias: Tensor | None = None,
    output_dtype: torch.dtype | str | None = torch.bfloat16,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
    *,
    global_scale: Tensor | float | None = None,
    simulate: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    check_tensors(mat_a=mat_a, mat_b=mat_b)
    check_optional(bias=bias)
    to_blocks = isinstance(output_dtype, str)
    check_scaled(None, None if to_blocks else output_dtype, use_fast_accum, "output_dtype")
    if to_blocks:
        check_global_scale(global_scale, format_of(output_dtype, "output_dtype"), mat_a.device)
    elif global_scale is not None:
        raise InputError("global_scale is given, for a result in nvfp4; output_dtype must be 'nvfp4'.")
    check_contraction(contraction_dim)
    left = scaling_of("a", scale_a, scale_recipe_a, swizzle_a)
    right = scaling_of("b", scale_b, scale_recipe_b, swizzle_b)
    check_matrices(mat_a, mat_b, BY_RECIPES)
    check_count("a", left, mat_a.shape[0])
    check_count("b", right, mat_b.shape[1])
    if isinstance(output_dtype, str):
        check_flag("simulate", simulate)
        given, recipe = _operands(mat_a, mat_b, left, right, bias), recipe_of(left, right, mat_a.dtype)
        of_bias = torch.float32 if bias is None else bias.dtype
        options = BlockOptions(recipe, of_bias, left.swizzled, right.swizzled, simulate)
        return quantized_product(given, as_number(global_scale, mat_a.device), output_dtype, options)
    plain = bypasses_dispatch((mat_a, mat_b, left.scale, right.scale), (bias,))
    how = How(out_dtype=output_dtype, simulate=simulate, fast_accum=use_fast_accum)
    return multiplied(mat_a, mat_b, left, right, bias, how, BY_RECIPES, plain)


for _signature in (_scaled_mm_by_types, _scaled_mm_by_recipes):
    _signature.__qualname__ = scaled_mm.__qualname__  # Python's message about a missing argument has this name


def check_contraction(dims: object) -> None:
    if not isinstance(dims, (list, tuple)) or tuple(dims) not in ((), (1, 0), (-1, -2), (1, -2), (-1, 0)):
        raise InputError(
            f"contraction_dim is {shown(dims)}; it must be () or (1, 0): the columns of mat_a and the rows of mat_b."
        )


def multiplied(
    a: Tensor, b: Tensor, left: Scaling, right: Scaling, bias: Tensor | None, how: How, said: Said, plain: bool,
    call: Call | None = None,
) -> Tensor:  # fmt: skip
    """Return the product for these scalings. plain: result of `bypasses_dispatch` for all tensors. call: the caller's
    `Call`."""
    if {left.word, right.word} <= {TENSOR, ROWWISE}:
        return product(a, b, EpilogueTensors(bias, None, left.scale, right.scale), how, said, plain, call)
    check_flag("simulate", how.simulate)
    given = _operands(a, b, left, right, bias)
    recipe, out = recipe_of(left, right, a.dtype), how.out_dtype or torch.bfloat16
    return block_scaled_product(given, BlockOptions(recipe, out, left.swizzled, right.swizzled, how.simulate))


def _operands(a: Tensor, b: Tensor, left: Scaling, right: Scaling, bias: Tensor | None) -> Operands:
    factors = [each.factor.reshape(()) for each in (left, right) if each.factor is not None]
    factor = factors[0] if len(factors) == 1 else factors[0] * factors[1] if factors else None
    return Operands(a, b, bias, factor, left.scale, right.scale)
