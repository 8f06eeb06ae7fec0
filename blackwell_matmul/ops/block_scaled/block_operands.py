"""Operands of a product with scales of blocks, and all their checks."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.kernels.host.matmul import BYTES
from blackwell_matmul.ops.block_scaled.formats import FORMATS, TorchFormat
from blackwell_matmul.ops.finished import EpilogueTensors
from blackwell_matmul.ops.operand_checks import Said, check_extras, check_inner, check_out, known, unequal
from blackwell_matmul.problem.block_scaled import STEP_K

OF_BLOCKS = Said("scaled_mm", "mat_a", "mat_b")
STEP_N = 8
"""Divisor of n: rows of a 16-bit C are then multiples of 16 bytes."""

RECIPES = {32: "BlockWise1x32", 16: "BlockWise1x16"}
"""Names of torch's recipes, by the elements of a block."""


class Operands(NamedTuple):
    """Tensors of factor * (a[m, k] @ b[k, n]) + bias[n]. factor: one fp32 number, the product of A's and B's second
    scale."""

    a: Tensor
    b: Tensor
    bias: Tensor | None
    factor: Tensor | None
    scale_a: Tensor
    scale_b: Tensor


class BlockOptions(NamedTuple):
    """Options of the product. recipe: a key of `FORMATS` or of `BLOCK_SCALES`. swizzled_a, swizzled_b: True for scales
    in SWIZZLE_32_4_4."""

    recipe: str
    out_dtype: torch.dtype
    swizzled_a: bool = True
    swizzled_b: bool = True
    simulate: bool = False


def checked(given: Operands, how: BlockOptions) -> tuple[int, int]:
    """Return C's shape; raise InputError for operands that do not fit together."""
    a, b = given.a, given.b
    check_out(how.out_dtype)
    for name, x, shape in (("mat_a", a, "(m, k)"), ("mat_b", b, "(k, n)")):
        if x.dim() != 2:
            raise InputError(f"{name} has shape {tuple(x.shape)}; it must be a matrix {shape}.")
    check_inner(a, b, OF_BLOCKS)
    _check_device(given)
    of_c = a.shape[0], b.shape[1]
    check_extras(of_c, how.out_dtype, a.device, EpilogueTensors(given.bias), OF_BLOCKS)
    if how.recipe in FORMATS:
        _check_blocks(given, FORMATS[how.recipe], of_c, how)
    elif a.dtype not in BYTES or a.dtype != b.dtype:
        able = " or both ".join(map(str, BYTES))
        raise InputError(f"mat_a is {a.dtype} and mat_b {b.dtype}; with fp32 scales of blocks both must be {able}.")
    return of_c


def _check_device(given: Operands) -> None:
    for name, x in given._asdict().items():
        if x is not None and x.device != given.a.device:
            said = "mat_b" if name == "b" else name
            raise InputError(f"{said} is on {x.device} and mat_a on {given.a.device}; both must be on one.")


def _check_blocks(given: Operands, form: TorchFormat, of_c: tuple[int, int], how: BlockOptions) -> None:
    for name, x in (("mat_a", given.a), ("mat_b", given.b)):
        _check_elements(name, x, form)
    if form.per_byte > 1:
        _check_pairs("mat_a", given.a, given.a.stride(1), "x[m, k / 2]")
        _check_pairs("mat_b", given.b, given.b.stride(0), "w[n, k / 2].mT")
    k, n = given.a.shape[1] * form.per_byte, of_c[1]
    for name, size, step in (("k", k, STEP_K), ("n", n, STEP_N)):
        if unequal(size % step, 0):
            wide = -(-size // step) * step
            raise InputError(f"{name} is {size}; it must be a multiple of {step}, and zeros as padding make it {wide}.")
    _check_scales("scale_a", given.scale_a, of_c[0], k, how.swizzled_a, form)
    _check_scales("scale_b", given.scale_b, of_c[1], k, how.swizzled_b, form)


def _check_elements(name: str, x: Tensor, form: TorchFormat) -> None:
    if x.dtype in form.elements:
        return
    able = [each for each in FORMATS.values() if each.scale == form.scale and each.block == form.block]
    types = " or ".join(f"{' or '.join(map(str, each.elements))} ({each.name})" for each in able)
    hint = "; .view(torch.float4_e2m1fn_x2) gives bytes of fp4 their type" if x.dtype == torch.uint8 else ""
    raise InputError(
        f"{name} is {x.dtype}; with {RECIPES[form.block]} mat_a and mat_b must both be {types}, as quantize makes "
        f"them{hint}."
    )


def _check_pairs(name: str, x: Tensor, stride: int, able: str) -> None:
    """Refuse 4-bit elements that are not contiguous along k, as torch does. stride: stride along k.

    The shape of a square operand does not show a missing transpose.
    """
    if known(stride != 1):
        raise InputError(
            f"{name} has strides {tuple(x.stride())}; elements of 4 bits must be contiguous along k, as {able} of a "
            "contiguous tensor is."
        )


def _check_scales(name: str, scales: Tensor, rows: int, k: int, swizzled: bool, form: TorchFormat) -> None:
    if scales.dtype != form.scale:
        raise InputError(f"{name} is {scales.dtype}; scales of {form.name}, {RECIPES[form.block]}, are {form.scale}.")
    blocks, wanted = k // form.block, form.scales(rows, k)
    if not swizzled:
        if scales.dim() != 2 or unequal(scales.shape[0], rows) or unequal(scales.shape[1], blocks):
            raise InputError(f"{name} has shape {tuple(scales.shape)}; without swizzle it must be {(rows, blocks)}.")
        return
    if unequal(scales.numel(), wanted):
        plain = "; NO_SWIZZLE takes this shape" if tuple(scales.shape) == (rows, blocks) else ""
        raise InputError(
            f"{name} has {scales.numel()} scales; in SWIZZLE_32_4_4, padded to 128 rows and 4 blocks, {rows} rows of "
            f"k = {k} have {wanted}{plain}."
        )
    if not scales.is_contiguous():
        raise InputError(f"{name} has strides {scales.stride()}; swizzled scales must be contiguous.")
