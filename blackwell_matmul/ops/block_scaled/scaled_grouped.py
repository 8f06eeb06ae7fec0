"""`scaled_grouped_mm`: scaled products of a mixture of experts, one launch for each group."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

import torch
from torch import Tensor

from blackwell_matmul.base.errors import InputError, UnsupportedError
from blackwell_matmul.ops.block_scaled.formats import FORMATS
from blackwell_matmul.ops.block_scaled.recipes import ROWWISE, Scaling, recipe_of, scaling_of
from blackwell_matmul.ops.direct import bypasses_dispatch
from blackwell_matmul.ops.launching import gpu_of
from blackwell_matmul.ops.operand_checks import How, Said, check_ends, check_out, check_tensors
from blackwell_matmul.ops.scaled import Recipes, Scales, Swizzles, check_contraction, multiplied
from blackwell_matmul.problem.form import check_flag

SCALED_GROUPED = Said("scaled_grouped_mm", "mat_a", "mat_b")


def scaled_grouped_mm(
    mat_a: Tensor,
    mat_b: Tensor,
    scale_a: Scales,
    scale_recipe_a: Recipes,
    scale_b: Scales,
    scale_recipe_b: Recipes,
    swizzle_a: Swizzles | None = None,
    swizzle_b: Swizzles | None = None,
    bias: None = None,
    offs: Tensor | None = None,
    output_dtype: torch.dtype | None = torch.bfloat16,
    contraction_dim: Sequence[int] = (),
    use_fast_accum: bool = False,
    *,
    simulate: bool = False,
) -> Tensor:
    """Return mat_a[rows of group g, k] @ mat_b[g, k, n] for each group g, scaled and stacked by rows, as
    torch.nn.functional.scaled_grouped_mm.

    mat_a: [m, k], its rows by group. mat_b: [groups, k, n]. offs: int32, ascending ends of the groups' rows. Rows after
    the last end are zeros. Each group is a `scaled_mm`, and the host reads offs, for which it waits: no CUDA graph
    captures the call.

    BlockWise1x32 and BlockWise1x16: scale_a has the groups one behind the other, each padded to 128 rows in
    SWIZZLE_32_4_4; scale_b has all scales of a group in a row [groups, ..]. With NO_SWIZZLE they are [m, k / block] and
    [groups, n, k / block]. A second scale, of a tensor, is one number, or one for each group. RowWise: [m] and [groups,
    n]. There are no gradients.

    Raises InputError for what does not fit, UnsupportedError where no kernel runs.
    """
    check_flag("simulate", simulate)
    check_flag("use_fast_accum", use_fast_accum)
    check_contraction(contraction_dim)
    if output_dtype is not None:
        check_out(output_dtype, "output_dtype")
    ends = _ends(mat_a, mat_b, bias, offs)
    left = scaling_of("a", scale_a, scale_recipe_a, swizzle_a, mat_b.shape[0])
    right = scaling_of("b", scale_b, scale_recipe_b, swizzle_b, mat_b.shape[0])
    recipe, groups = recipe_of(left, right, mat_a.dtype), mat_b.shape[0]
    if recipe not in (ROWWISE, *FORMATS):
        raise UnsupportedError(
            "scaled_grouped_mm takes BlockWise1x32, BlockWise1x16 and RowWise; scaled_mm of each group takes more."
        )
    _check_scales(left.scale, right.scale, None if left.swizzled else mat_a.shape[0], groups)
    gpu_of(mat_a, simulate, *SCALED_GROUPED[:3])
    how = How(out_dtype=output_dtype, simulate=simulate, fast_accum=use_fast_accum)
    c = torch.zeros((mat_a.shape[0], mat_b.shape[2]), dtype=output_dtype or torch.bfloat16, device=mat_a.device)
    parts = _scales_of_rows(left, ends, recipe, mat_a.shape[1])
    for group, (first, last) in enumerate(itertools.pairwise([0, *ends])):
        of_a = left._replace(scale=next(parts), factor=_one(left.factor, group, groups))
        of_b = right._replace(scale=right.scale[group], factor=_one(right.factor, group, groups))
        a, b = mat_a[first:last], mat_b[group]
        plain = bypasses_dispatch((a, b, of_a.scale, of_b.scale))
        c[first:last] = multiplied(a, b, of_a, of_b, None, how, SCALED_GROUPED, plain)
    return c


def _scales_of_rows(scaling: Scaling, ends: list[int], recipe: str, columns: int) -> Iterator[Tensor]:
    """Yield the scales of the rows of each group; swizzled ones are in whole atoms."""
    done = 0
    for first, last in itertools.pairwise([0, *ends]):
        if scaling.swizzled:
            form = FORMATS[recipe]
            count = form.scales(last - first, columns * form.per_byte)
            yield scaling.scale.reshape(-1)[done : done + count]
            done += count
        else:
            yield scaling.scale[first:last]


def _one(factor: Tensor | None, group: int, groups: int) -> Tensor | None:
    """Return a group's scale of a tensor."""
    return factor if factor is None or factor.numel() != groups else factor.reshape(-1)[group]


def _ends(mat_a: Tensor, mat_b: Tensor, bias: object, offs: Any) -> list[int]:
    """Return the ends of the groups, for which the host waits; errors for other forms."""
    check_tensors(mat_a=mat_a, mat_b=mat_b, offs=offs)
    if bias is not None:
        raise UnsupportedError("bias is given, and scaled_grouped_mm has none, as torch's; add it to the result.")
    if mat_a.dim() != 2 or mat_b.dim() != 3 or offs.shape != mat_b.shape[:1]:
        raise InputError(
            f"mat_a has shape {tuple(mat_a.shape)}, mat_b {tuple(mat_b.shape)} and offs {tuple(offs.shape)}; they must "
            "be (m, k), (groups, k, n) and (groups,)."
        )
    if offs.dtype != torch.int32 or offs.device != mat_a.device:
        raise InputError(f"offs is {offs.dtype} on {offs.device}; it must be torch.int32 on {mat_a.device}.")
    check_ends(offs, mat_a.shape[0])
    return list(offs.tolist())


def _check_scales(scale_a: Tensor, scale_b: Tensor, rows: int | None, groups: int) -> None:
    """Refuse scales that cannot be divided by group. rows: of scale_a; None: it has groups one behind the other."""
    if rows is not None and (not scale_a.dim() or scale_a.shape[0] != rows):
        raise InputError(f"scale_a has shape {tuple(scale_a.shape)}; it must have a line for each of {rows} rows.")
    if scale_b.dim() < 2 or scale_b.shape[0] != groups:
        raise InputError(f"scale_b has shape {tuple(scale_b.shape)}; it must have a line for each of {groups} groups.")
