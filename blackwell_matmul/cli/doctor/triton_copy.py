"""A copy through Triton's tensor descriptors, made by the host or by the kernel. Importing this file needs Triton."""

from __future__ import annotations

import importlib
from typing import Any

import torch

# Imported by name, as Triton may be missing: only torch's CUDA builds require it.
triton: Any = importlib.import_module("triton")
tl: Any = importlib.import_module("triton.language")

KINDS = ("host", "device")
BLOCK = 16


@triton.jit
def copy_host(x, y, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    offsets = [tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK]
    y.store(offsets, x.load(offsets))


@triton.jit
def copy_device(x_ptr, y_ptr, m, n, BLOCK: tl.constexpr):  # type: ignore[no-untyped-def]
    x = tl.make_tensor_descriptor(x_ptr, [m, n], [n, 1], [BLOCK, BLOCK])
    y = tl.make_tensor_descriptor(y_ptr, [m, n], [n, 1], [BLOCK, BLOCK])
    offsets = [tl.program_id(0) * BLOCK, tl.program_id(1) * BLOCK]
    y.store(offsets, x.load(offsets))


def copy(x: torch.Tensor, y: torch.Tensor, kind: str) -> None:
    """Copy x to y, matrices of the same shape. kind: "host" or "device", which makes the descriptors."""
    m, n = x.shape
    grid = (triton.cdiv(m, BLOCK), triton.cdiv(n, BLOCK))
    if kind == "host":
        descriptor: Any = importlib.import_module("triton.tools.tensor_descriptor").TensorDescriptor
        copy_host[grid](*(descriptor.from_tensor(each, [BLOCK, BLOCK]) for each in (x, y)), BLOCK=BLOCK)
    else:
        triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device=x.device))
        copy_device[grid](x, y, m, n, BLOCK=BLOCK)
