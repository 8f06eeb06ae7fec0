"""Products of 8-bit matrices with fp32 scales of blocks on Hopper, with scales as torch has them (DeepSeek's fp8).

For each 128 elements along k, an operand has one scale for each row (1x128) or for each 128 rows (128x128).
`HopperMatmul` takes the scales in the order that torch has in memory.
"""

from __future__ import annotations

import functools
from typing import Any

import torch
from torch import Tensor

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import plain_text, shown
from blackwell_matmul.kernels.host.forms import ABSENT, OUTPUTS
from blackwell_matmul.kernels.host.matmul import check_is_tensor
from blackwell_matmul.kernels.products.hopper import HopperMatmul
from blackwell_matmul.problem.form import BLOCK_SCALES, SCALED_K, Epilogue, Form, block_scale_shapes
from blackwell_matmul.scheduling.tile_config import ceil_div


def hopper_block_scaled_mm(
    a: Tensor,
    b: Tensor,
    scale_a: Tensor,
    scale_b: Tensor,
    scale: str = "1x128 128x128",
    bias: Tensor | None = None,
    out_dtype: torch.dtype = torch.bfloat16,
) -> Tensor:
    """Return a[m, k] @ b[k, n], scaled by blocks, plus bias[n]. CPU tensors are simulated.

    scale: a key of `BLOCK_SCALES`. scale_a: [m, k / 128] or [m / 128, k / 128]. scale_b: [k / 128, n] or [k / 128, n /
    128]. For 128x128 scales, k / 128 may be padded to a multiple of four. Scales with torch's strides are copied only
    if their lines in memory are not multiples of four scales. Raises InputError for arguments that do not fit.
    """
    for name, tensor in {"a": a, "b": b, "scale_a": scale_a, "scale_b": scale_b}.items():
        check_is_tensor(name, tensor)
    if plain_text(scale) not in BLOCK_SCALES:
        raise InputError(f"scale is {shown(scale)}; it must be one of {', '.join(map(repr, BLOCK_SCALES))}.")
    if out_dtype not in OUTPUTS:
        raise InputError(f"out_dtype is {shown(out_dtype)}; it must be {', '.join(map(str, OUTPUTS))}.")
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise InputError(f"a is {tuple(a.shape)} and b is {tuple(b.shape)}; they must be (m, k) and (k, n).")
    (m, k), n = a.shape, b.shape[1]
    of_a, of_b = in_kernel_order(scale, m, n, k, scale_a, scale_b)
    c = a.new_empty((m, n), dtype=out_dtype)
    _kernel(scale)(m, n, k, a, b.mT, c, ABSENT if bias is None else bias, ABSENT, of_a, of_b, 1)
    return c


@functools.cache
def _kernel(scale: str) -> Any:
    """Return the kernel object for a kind of scales. The object caches its compiled code and packed arguments."""
    return HopperMatmul(form=Form(epilogue=Epilogue(scale=scale)))


def in_kernel_order(scale: str, m: int, n: int, k: int, scale_a: Tensor, scale_b: Tensor) -> tuple[Tensor, Tensor]:
    """Return torch's scales in the shapes of `block_scale_shapes`; raise InputError for scales of other shapes."""
    rows_a, rows_b = BLOCK_SCALES[scale]
    shape_a, shape_b = block_scale_shapes(scale, m, n, k)
    first = _in_kernel_order("scale_a", scale_a, rows_a, m, k, shape_a)
    of_b = scale_b.mT if scale_b.dim() == 2 else scale_b
    return first, _in_kernel_order("scale_b", of_b, rows_b, n, k, shape_b)


def _in_kernel_order(
    name: str, scales: Tensor, rows_per_scale: int, rows: int, k: int, shape: tuple[int, int]
) -> Tensor:
    """Return one operand's scales, [rows, k / 128] or [rows / 128, k / 128], in the kernel's `shape`."""
    blocks, blocks_k = ceil_div(rows, rows_per_scale), ceil_div(k, SCALED_K)
    able = {(blocks, blocks_k)} if rows_per_scale == 1 else {(blocks, blocks_k), shape}
    if tuple(scales.shape) not in able or scales.dtype != torch.float32:
        wanted = (blocks, blocks_k)[:: 1 if name == "scale_a" else -1]
        found = tuple(scales.shape)[:: 1 if name == "scale_a" else -1]
        raise InputError(f"{name} is {scales.dtype} of shape {found}; it must be torch.float32 of shape {wanted}.")
    lines = scales.mT if rows_per_scale == 1 else scales
    missing = shape[1] - lines.shape[1]
    return torch.nn.functional.pad(lines, (0, missing)) if missing else lines.contiguous()
