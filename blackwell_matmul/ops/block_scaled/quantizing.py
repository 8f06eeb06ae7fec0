"""`quantize` and `dequantize` in torch, on any device and in torch.compile. On Blackwell a kernel runs `quantize`, with
the same bits.

The rules are those of torchao's `MXTensor` and `NVFP4Tensor`. Scales of e8m0 follow OCP Microscaling Formats v1.0
("floor") or cuBLAS, "1D Block Quantization" ("rceil"). Scales of e4m3 follow NVIDIA's rule of two scales.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import plain_text, shown
from blackwell_matmul.ops.block_scaled.by_kernel import quantized_by_kernel, runs_kernel
from blackwell_matmul.ops.block_scaled.formats import TorchFormat, format_of, unpacked
from blackwell_matmul.ops.block_scaled.swizzling import swizzle, unswizzle
from blackwell_matmul.ops.direct import bypasses_dispatch
from blackwell_matmul.ops.launching import gpu_of
from blackwell_matmul.ops.operand_checks import check_tensors, plain_number
from blackwell_matmul.problem.block_scaled import LARGEST_E2M1, LARGEST_E4M3, SMALLEST_NORMAL_E4M3
from blackwell_matmul.problem.form import check_flag

INPUTS = (torch.float16, torch.bfloat16, torch.float32)
SCALINGS = ("rceil", "floor")

MANTISSA_BITS, MANTISSA, NAN_E8M0 = 23, 0x7FFFFF, 255
"""Number of fp32's mantissa bits, their mask, and e8m0's byte for NaN."""


def quantize(
    x: Tensor,
    dtype: str,
    scaling: str = "rceil",
    global_scale: Tensor | float | None = None,
    *,
    swizzled: bool = True,
    simulate: bool = False,
) -> tuple[Tensor, Tensor]:
    """Return x[.., rows, k] in a block-scaled format: data and scales, which `scaled_mm` takes.

    x: float16, bfloat16 or float32, of any layout. dtype: "mxfp8" (e4m3), "mxfp4" or "nvfp4". data: [.., rows, k], or
    [.., rows, k / 2] of torch.float4_e2m1fn_x2 with the even element in the low four bits. scales: one for each block
    of 32 elements (nvfp4: 16) along k. Scales are [.., bytes] in torch's SWIZZLE_32_4_4, padded with zeros;
    swizzled=False returns [.., rows, k / block].

    scaling: rounds a scale up to a power of two ("rceil", as cuBLAS; no element saturates) or down ("floor", as the OCP
    specification). nvfp4 has scales of e4m3, rounded to nearest. global_scale: second scale of nvfp4, one positive
    number for the whole tensor; NVIDIA's rule is x.abs().max() / (448 * 6). None: no second scale.

    A block with NaN gets the scale NaN. A block with an infinity gets the scale NaN in mxfp8 and mxfp4; nvfp4 saturates
    infinities. On a Blackwell GPU a kernel quantises, outside of torch.compile; elsewhere torch does, with the same
    bits. simulate: True runs the kernel on a CPU tensor, in the simulator.

    The result has no gradient. Raises InputError for other types, and for a k that is no multiple of the block.
    """
    _check(x, dtype, scaling, global_scale, swizzled)
    check_flag("simulate", simulate)
    if simulate:
        gpu_of(x, simulate, "quantize", "x")
    traced = _needs_operations(x) or (simulate and not bypasses_dispatch((x,)))
    run = _as_operation("quantize") if traced else _run
    made: tuple[Tensor, Tensor] = run(x.detach(), dtype, scaling, as_number(global_scale, x.device), swizzled, simulate)
    return made


def _run(
    x: Tensor, dtype: str, scaling: str, factor: Tensor | None, swizzled: bool, simulate: bool = False
) -> tuple[Tensor, Tensor]:
    run = quantized_by_kernel if runs_kernel(x, simulate) else _quantized
    return run(x, dtype, scaling, factor, swizzled)


def _quantized(
    x: Tensor, dtype: str, scaling: str, factor: Tensor | None, swizzled: bool, simulate: bool = False
) -> tuple[Tensor, Tensor]:
    form = format_of(dtype)
    blocks = x.float().unflatten(-1, (x.shape[-1] // form.block, form.block))
    amax = blocks.abs().amax(-1)
    if form.scale is torch.float8_e4m3fn:
        scales, scaled = _by_numbers(blocks, amax, factor)
    else:
        scales, scaled = _by_powers(blocks, amax, form, scaling)
    scaled = scaled.clamp(-form.largest, form.largest).flatten(-2)
    data = _packed(scaled) if form.per_byte == 2 else scaled.to(form.element)
    return data, swizzle(scales) if swizzled else scales


def dequantize(
    data: Tensor,
    scales: Tensor,
    dtype: str,
    global_scale: Tensor | float | None = None,
    *,
    swizzled: bool = True,
    out_dtype: torch.dtype = torch.float32,
) -> Tensor:
    """Return the values [.., rows, k] of data and scales from `quantize`: element * (global_scale * scale), in fp32.

    Products without a global scale are exact. out_dtype: type of the result, rounded once.
    """
    form = format_of(dtype)
    check_tensors(data=data, scales=scales)
    _check_data(data, form)
    check_global_scale(global_scale, form, data.device)
    _check_scales(scales, data, form, swizzled)
    run = _as_operation("dequantize") if _needs_operations(data) else _dequantized
    values: Tensor = run(data, scales, dtype, as_number(global_scale, data.device), swizzled)
    return values.to(out_dtype)


def _dequantized(data: Tensor, scales: Tensor, dtype: str, factor: Tensor | None, swizzled: bool) -> Tensor:
    form = format_of(dtype)
    values = unpacked(data) if form.per_byte == 2 else data.float()
    rows, blocks = values.shape[-2], values.shape[-1] // form.block
    plain = unswizzle(scales, rows, blocks) if swizzled else scales
    factors = plain.float() if factor is None else factor * plain.float()
    return (values.unflatten(-1, (blocks, form.block)) * factors.unsqueeze(-1)).flatten(-2)


# --- scales


def _by_powers(blocks: Tensor, amax: Tensor, form: TorchFormat, scaling: str) -> tuple[Tensor, Tensor]:
    """Return scales of e8m0, and the elements divided by their scales."""
    if scaling == "rceil":
        byte = _ceil_log2(amax * (1 / form.largest))
    else:
        byte = (_bits(amax) >> MANTISSA_BITS) - int(math.log2(form.largest))
    byte = byte.clamp(min=0).masked_fill(~amax.isfinite(), NAN_E8M0)
    reciprocal = _power(2 * 127 - byte).masked_fill(byte == NAN_E8M0, torch.nan)
    return byte.to(torch.uint8).view(form.scale), blocks * reciprocal.unsqueeze(-1)


def _ceil_log2(x: Tensor) -> Tensor:
    """Return the byte of the smallest e8m0 that is at least x, in int32. x: at least 0. The byte 0 is 2 ** -127."""
    bits = _bits(x)
    subnormal = bits <= MANTISSA  # 2 ** -127 has fp32's bits 0x400000, and e8m0's byte 0
    return torch.where(subnormal, bits + MANTISSA // 2, bits + MANTISSA) >> MANTISSA_BITS


def _bits(x: Tensor) -> Tensor:
    return x.view(torch.int32)


def _power(byte: Tensor) -> Tensor:
    """Return 2 ** (byte - 127) in fp32 for bytes 1 to 254."""
    return (byte << MANTISSA_BITS).view(torch.float32)


def _by_numbers(blocks: Tensor, amax: Tensor, factor: Tensor | None) -> tuple[Tensor, Tensor]:
    """Return scales of e4m3, and the elements times the reciprocal of both scales. Each step is rounded to fp32."""
    exact = amax / LARGEST_E2M1 if factor is None else amax / LARGEST_E2M1 / factor
    scales = exact.clamp(SMALLEST_NORMAL_E4M3, LARGEST_E4M3).to(torch.float8_e4m3fn)
    reciprocal = (1.0 if factor is None else 1.0 / factor) / scales.float()
    return scales, blocks * reciprocal.unsqueeze(-1)


# --- elements of fp4

_BELOW = 1 - 2.0**-24
_BETWEEN = (0.25, 0.75 * _BELOW, 1.25, 1.75 * _BELOW, 2.5, 3.5 * _BELOW, 5.0)
"""Largest fp32 numbers that round to the magnitudes 0 to 4 of e2m1. Ties round to the even code."""


def _packed(x: Tensor) -> Tensor:
    """Return x in e2m1, two elements in a byte. NaN becomes 6, as with PTX's cvt.rn.satfinite.e2m1x2."""
    x = x.nan_to_num(nan=LARGEST_E2M1)
    codes = torch.bucketize(x.abs().contiguous(), x.new_tensor(_BETWEEN), out_int32=True)
    codes = (codes + 8 * x.signbit()).to(torch.uint8)
    return (codes[..., 0::2] | codes[..., 1::2] << 4).view(torch.float4_e2m1fn_x2)


# --- checks


def _check(x: Tensor, dtype: object, scaling: object, global_scale: object, swizzled: object) -> None:
    check_tensors(x=x)
    check_flag("swizzled", swizzled)
    form = format_of(dtype)
    if x.dtype not in INPUTS:
        raise InputError(f"x is {x.dtype}; it must be {' or '.join(map(str, INPUTS))}.")
    if x.dim() < 2 or x.shape[-1] % form.block:
        raise InputError(
            f"x has shape {tuple(x.shape)}; it must be (.., rows, k), and k a multiple of {form.block}, a block of "
            f"{form.name}."
        )
    if plain_text(scaling) not in SCALINGS:
        raise InputError(f"scaling is {shown(scaling)}; it must be one of {', '.join(SCALINGS)}.")
    if form.scale is torch.float8_e4m3fn and scaling != SCALINGS[0]:
        raise InputError(f"scaling is {shown(scaling)}, and scales of nvfp4 are rounded to nearest; leave scaling out.")
    check_global_scale(global_scale, form, x.device)


def check_global_scale(global_scale: object, form: TorchFormat, device: torch.device) -> None:
    """Raise InputError for a second scale that does not fit. A value on a GPU is not read, as the host would wait."""
    if global_scale is None:
        return
    if form.name != "nvfp4":
        raise InputError(f"global_scale is given, and {form.name} has scales of blocks alone; nvfp4 takes one.")
    if not isinstance(global_scale, Tensor):
        _check_positive(plain_number("global_scale", global_scale))
        return
    if global_scale.numel() != 1 or global_scale.dtype != torch.float32 or global_scale.device != device:
        raise InputError(
            f"global_scale has shape {tuple(global_scale.shape)} and type {global_scale.dtype} on "
            f"{global_scale.device}; it must be one number of torch.float32 on {device}."
        )
    if type(global_scale) is Tensor and global_scale.device.type == "cpu" and not torch.compiler.is_compiling():
        _check_positive(global_scale.item())


def _check_positive(value: float) -> None:
    if not 0 < value < float("inf"):
        raise InputError(f"global_scale is {value}; it must be positive and finite, such as x.abs().max() / (448 * 6).")


def as_number(value: Tensor | float | None, device: torch.device) -> Tensor | None:
    """Return a second scale as an fp32 tensor without dimensions; None for None."""
    if value is None or isinstance(value, Tensor):
        return value if value is None else value.detach().reshape(())
    return torch.tensor(float(value), device=device)


def _check_data(data: Tensor, form: TorchFormat) -> None:
    size = form.block // form.per_byte
    if data.dtype not in form.elements or data.dim() < 2 or data.shape[-1] % size:
        types = " or ".join(map(str, form.elements))
        raise InputError(
            f"data has shape {tuple(data.shape)} and type {data.dtype}; {form.name} has {types}, (.., rows, columns), "
            f"and columns a multiple of {size}."
        )


def _check_scales(scales: Tensor, data: Tensor, form: TorchFormat, swizzled: bool) -> None:
    """Refuse scales whose number or order does not match data."""
    check_flag("swizzled", swizzled)
    *outer, rows, columns = data.shape
    k = columns * form.per_byte
    shapes = {True: (*outer, form.scales(rows, k)), False: (*outer, rows, k // form.block)}
    if tuple(scales.shape) != shapes[swizzled] or scales.dtype is not form.scale or scales.device != data.device:
        other = f"; swizzled={not swizzled} takes this shape" if tuple(scales.shape) == shapes[not swizzled] else ""
        raise InputError(
            f"scales has shape {tuple(scales.shape)} and type {scales.dtype} on {scales.device}; it must be "
            f"{shapes[swizzled]} of {form.scale} on {data.device}{other}."
        )


# --- torch's operations


def _needs_operations(x: Tensor) -> bool:
    """Return True if torch.compile may generate C++, which lacks the types of fp4 and e8m0. Its code for GPUs has
    them."""
    return torch.compiler.is_compiling() and x.device.type == "cpu"


def _as_operation(name: str) -> Callable[..., Any]:
    found: Callable[..., Any] = getattr(torch.ops.blackwell_matmul, name).default
    return found


_library = torch.library.Library("blackwell_matmul", "FRAGMENT")
_QUANTIZE = "(Tensor x, str dtype, str scaling, Tensor? factor, bool swizzled, bool simulate=False) -> (Tensor, Tensor)"
_DEQUANTIZE = "(Tensor x, Tensor scales, str dtype, Tensor? factor, bool swizzled) -> Tensor"
for _name, _computed, _by_torch, _schema in (
    ("quantize", _run, _quantized, _QUANTIZE),
    ("dequantize", _dequantized, _dequantized, _DEQUANTIZE),
):
    _library.define(_name + _schema, tags=[torch.Tag.pt2_compliant_tag])
    _library.impl(_name, _computed, "CompositeExplicitAutograd")
    torch.library.register_fake(f"blackwell_matmul::{_name}", _by_torch, lib=_library)
