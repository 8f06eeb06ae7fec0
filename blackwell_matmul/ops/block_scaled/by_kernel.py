"""`quantize` by its kernel, `BlackwellQuantizer`: on Blackwell, and simulated for CPU tensors."""

from __future__ import annotations

import functools
import math
from typing import Any

import torch
from torch import Tensor

from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.kernels.host.forms import ABSENT
from blackwell_matmul.ops.block_scaled.formats import FORMATS
from blackwell_matmul.ops.block_scaled.swizzling import unswizzle
from blackwell_matmul.ops.direct import bypasses_dispatch
from blackwell_matmul.ops.launching import kind_of, readable
from blackwell_matmul.problem.problem import INT32_MAX
from blackwell_matmul.runtime.device import gpu_at
from blackwell_matmul.runtime.launches import Launches
from blackwell_matmul.runtime.recent import Recent

KEPT_QUANTIZERS = 256
_launches: Recent[tuple[Any, ...], Launches] = Recent(KEPT_QUANTIZERS)


def runs_kernel(x: Tensor, simulate: bool) -> bool:
    """Return True if the kernel quantises x, False if torch does.

    The kernel counts elements in 32 bits. torch quantises tensors that need its dispatch.
    """
    if not 0 < x.numel() <= INT32_MAX:
        return False
    return simulate or (x.is_cuda and bypasses_dispatch((x,)) and _has_kernel(x.get_device()))


@functools.cache
def _has_kernel(device: int) -> bool:
    from blackwell_matmul.kernels.products.quantizer import BlackwellQuantizer

    try:
        return gpu_at(device).arch in BlackwellQuantizer.targets
    except UnsupportedError:  # a GPU for which nothing is compiled
        return False


def quantized_by_kernel(
    x: Tensor, dtype: str, scaling: str, factor: Tensor | None, swizzled: bool
) -> tuple[Tensor, Tensor]:
    """Return data and scales of x[.., rows, k], computed by the kernel. Arguments are those of `quantize`; factor: the
    global scale."""
    form, (*outer, rows, k) = FORMATS[dtype], x.shape
    batches = math.prod(outer)
    read = readable(x).view(batches, rows, k)
    data, scales = (
        torch.empty((batches, *shape), dtype=torch.uint8, device=x.device)
        for shape in ((rows, k // form.per_byte), (form.scales(rows, k),))
    )
    given = [] if factor is None else [readable(factor.reshape(1))]
    key = (kind_of(read), dtype, scaling, factor is None)
    launches = _launches.made(key, lambda: Launches(_kernel(dtype, scaling), x.get_device()))
    launches(
        (read, *given, data, scales), lambda: (batches, rows, k, read, given[0] if given else ABSENT, data, scales)
    )
    made = scales.view(form.scale).view(*outer, -1)
    plain = made if swizzled else unswizzle(made, rows, k // form.block)
    return data.view(form.element).view(*outer, rows, -1), plain


@functools.cache
def _kernel(dtype: str, scaling: str) -> Any:
    """Return the kernel object for a format. The object caches its compiled code and packed arguments."""
    from blackwell_matmul.kernels.products.quantizer import BlackwellQuantizer

    script: Any = BlackwellQuantizer  # for mypy: the class is called with its pinned knobs only
    return script(dtype=dtype, scaling=scaling)
