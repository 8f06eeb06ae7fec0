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
from blackwell_matmul.ops.operand_checks import How, Said, check_ends, check_inner, check_out, check_tensors
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
    """Return the scaled products of groups, as torch.nn.functional.scaled_grouped_mm.

    mat_b[groups, k, n] groups the rows of mat_a[m, k]. The result is [m, n]: mat_a[rows of group g] @ mat_b[g] in the
    rows of group g, zeros after the last group. mat_b[k, n] groups k: the result is [groups, m, n].
    offs: int32, ascending ends of the groups, in rows or elements of k. Each group is a `scaled_mm`. The host waits for
    offs, so that no CUDA graph can capture the call.

    BlockWise1x32 and BlockWise1x16 in SWIZZLE_32_4_4: scale_a has the scales of group after group, each padded to 128
    rows and 4 blocks; later bytes are not read. scale_b is [groups, scales of a group], or like scale_a for groups of
    k. With NO_SWIZZLE: scale_a is [m, k / block], scale_b [groups, n, k / block], or [n, k / block] for groups of k. A
    second scale is one number, or one number for each group. RowWise: [m] and [groups, n]; for groups of k,
    [groups * m] and [groups * n]. The result has no gradient.

    Raises InputError for operands that do not fit, UnsupportedError if no kernel runs.
    """
    check_flag("simulate", simulate)
    check_flag("use_fast_accum", use_fast_accum)
    check_contraction(contraction_dim)
    if output_dtype is not None:
        check_out(output_dtype, "output_dtype")
    ends = _ends(mat_a, mat_b, bias, offs)
    left = scaling_of("a", scale_a, scale_recipe_a, swizzle_a, len(ends))
    right = scaling_of("b", scale_b, scale_recipe_b, swizzle_b, len(ends))
    recipe, of_rows = recipe_of(left, right, mat_a.dtype), mat_b.dim() == 3
    if recipe not in (ROWWISE, *FORMATS):
        raise UnsupportedError(
            "scaled_grouped_mm takes BlockWise1x32, BlockWise1x16 and RowWise; scaled_mm of each group takes more."
        )
    gpu_of(mat_a, simulate, *SCALED_GROUPED[:3])
    how = How(out_dtype=output_dtype, simulate=simulate, fast_accum=use_fast_accum)
    batches = () if of_rows else (len(ends),)
    c = mat_a.new_zeros((*batches, mat_a.shape[0], mat_b.shape[-1]), dtype=output_dtype or torch.bfloat16)
    parts = _groups_of_rows if of_rows else _groups_of_k
    for group, (a, b, of_a, of_b, out) in enumerate(parts(mat_a, mat_b, left, right, ends, recipe, c)):
        one_a, one_b = (
            each._replace(scale=scale, factor=_one(each.factor, group, len(ends)))
            for each, scale in ((left, of_a), (right, of_b))
        )
        plain = bypasses_dispatch((a, b, of_a, of_b))
        out.copy_(multiplied(a, b, one_a, one_b, None, how, SCALED_GROUPED, plain))
    return c


Bounds = Sequence[tuple[int, int]]
"""Begin and end of each group's rows or columns; the end is excluded."""

Parts = Iterator[tuple[Tensor, Tensor, Tensor, Tensor, Tensor]]
"""For each group: its parts of mat_a, mat_b, scale_a, scale_b and the result."""


def _groups_of_rows(
    a: Tensor, b: Tensor, left: Scaling, right: Scaling, ends: list[int], recipe: str, c: Tensor
) -> Parts:
    _check_lines("scale_b", right.scale, b.shape[0], "groups", least=2)
    bounds = list(itertools.pairwise([0, *ends]))
    if left.swizzled:
        of_a = _atoms(left.scale, recipe, [(last - first, a.shape[1]) for first, last in bounds])
    else:
        _check_lines("scale_a", left.scale, a.shape[0], "rows")
        of_a = (left.scale[first:last] for first, last in bounds)
    for group, (first, last) in enumerate(bounds):
        yield a[first:last], b[group], next(of_a), right.scale[group], c[first:last]


def _groups_of_k(a: Tensor, b: Tensor, left: Scaling, right: Scaling, ends: list[int], recipe: str, c: Tensor) -> Parts:
    check_inner(a, b, SCALED_GROUPED)
    per_byte = FORMATS[recipe].per_byte if recipe in FORMATS else 1
    bounds = [(first // per_byte, last // per_byte) for first, last in itertools.pairwise([0, *ends])]
    scales = [_scales_of_k(side, each, x, bounds, recipe) for side, each, x in (("a", left, a), ("b", right, b.mT))]
    for group, ((first, last), of_a, of_b) in enumerate(zip(bounds, *scales)):
        yield a[:, first:last], b[first:last], of_a, of_b, c[group]


def _scales_of_k(side: str, scaling: Scaling, x: Tensor, bounds: Bounds, recipe: str) -> Iterator[Tensor]:
    """Return an iterator over the scales of each group of k. x: the operand [rows, bytes]. bounds: in bytes."""
    scale, rows = scaling.scale, x.shape[0]
    if recipe == ROWWISE:
        if scale.numel() != len(bounds) * rows:
            raise InputError(
                f"scale_{side} has shape {tuple(scale.shape)}; {len(bounds)} groups of {rows} rows have "
                f"{len(bounds) * rows} scales."
            )
        return iter(scale.reshape(len(bounds), rows))
    form = FORMATS[recipe]
    if wrong := [last * form.per_byte for _, last in bounds if last * form.per_byte % form.block]:
        raise InputError(f"offs has {wrong[0]}; ends of groups along k must be multiples of {form.block}, a block.")
    if scaling.swizzled:
        return _atoms(scale, recipe, [(rows, last - first) for first, last in bounds])
    _check_lines(f"scale_{side}", scale, rows, "rows", least=2)
    blocks = [(first * form.per_byte // form.block, last * form.per_byte // form.block) for first, last in bounds]
    return (scale[:, first:last] for first, last in blocks)


def _atoms(scales: Tensor, recipe: str, shapes: Sequence[tuple[int, int]]) -> Iterator[Tensor]:
    """Yield the atoms of each group. shapes: rows and bytes of each group's operand."""
    form, done = FORMATS[recipe], 0
    for rows, columns in shapes:
        count = form.scales(rows, columns * form.per_byte)
        yield scales.reshape(-1)[done : done + count]
        done += count


def _one(factor: Tensor | None, group: int, groups: int) -> Tensor | None:
    """Return the second scale of a group."""
    return factor if factor is None or factor.numel() != groups else factor.reshape(-1)[group]


def _ends(mat_a: Tensor, mat_b: Tensor, bias: object, offs: Any) -> list[int]:
    """Return the ends of the groups, for which the host waits; raise an error for arguments that do not fit."""
    check_tensors(mat_a=mat_a, mat_b=mat_b, offs=offs)
    if bias is not None:
        raise UnsupportedError("bias is given, and scaled_grouped_mm has none, as torch's; add it to the result.")
    of_rows = mat_b.dim() == 3
    if mat_a.dim() != 2 or mat_b.dim() not in (2, 3) or offs.dim() != 1 or (of_rows and offs.shape != mat_b.shape[:1]):
        raise InputError(
            f"mat_a has shape {tuple(mat_a.shape)}, mat_b {tuple(mat_b.shape)} and offs {tuple(offs.shape)}; they must "
            "be (m, k), (groups, k, n) and (groups,), or (m, k), (k, n) and (groups,) for groups of k."
        )
    if offs.dtype != torch.int32 or offs.device != mat_a.device:
        raise InputError(f"offs is {offs.dtype} on {offs.device}; it must be torch.int32 on {mat_a.device}.")
    per_byte = 2 if mat_a.dtype == torch.float4_e2m1fn_x2 else 1
    check_ends(offs, *((mat_a.shape[0],) if of_rows else (mat_a.shape[1] * per_byte, "elements of k")))
    return list(offs.tolist())


def _check_lines(name: str, scale: Tensor, lines: int, what: str, least: int = 1) -> None:
    """Raise InputError unless the first dimension of the scales has this size. least: minimum number of dimensions."""
    if scale.dim() < least or scale.shape[0] != lines:
        raise InputError(f"{name} has shape {tuple(scale.shape)}; it must have a line for each of {lines} {what}.")
