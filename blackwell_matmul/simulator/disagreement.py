"""Differences between tensors and the kernel's views of their memory, in type, shape or strides.

A kernel gets an address and uses its own strides, so a difference is no fault by itself. But it is the likely cause of
a wrong result or of an access outside of the memory, and later sentences name it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from blackwell_matmul.base.strides import is_row_major, steps, strides_of, told
from blackwell_matmul.problem.elements import dtype_name, fits
from blackwell_matmul.simulator.machine.global_memory import GlobalMemory, ViewKey


def disagreements(memory: GlobalMemory) -> tuple[str, ...]:
    """Return clauses for all views that differ from their tensors in type, shape or strides."""
    found = (disagreement(memory.tensors, key) for key in memory.seen)
    return tuple(dict.fromkeys(each for each in found if each is not None))


def disagreement(tensors: Mapping[str, Any], key: ViewKey) -> str | None:
    """Return a clause on how the tensor at the view's address differs from the view; None if they agree."""
    clauses = [_told(name, tensor, key) for name, tensor in tensors.items() if _address(tensor) == key.address]
    return clauses[0] if clauses and all(clauses) else None


def _told(name: str, tensor: Any, key: ViewKey) -> str | None:
    shape, strides = tuple(tensor.shape), strides_of(tensor)
    if not fits(key.item.name, tensor.dtype):
        return f"{name} is a tensor of {dtype_name(tensor.dtype)}; the kernel takes it as {key.item.name}"
    if key.item.packed or steps(shape, strides) == steps(key.shape, key.strides):
        return None
    if not is_row_major(shape, strides):
        return f"{name} is {told(shape, strides)}; the kernel takes it as {_spelled(key)}: pass {name}.contiguous()"
    if math.prod(shape) != math.prod(key.shape) or (len(shape) == len(key.shape) and shape != key.shape):
        return f"{name} has shape {list(shape)}; the kernel takes it as {list(key.shape)}"
    return None


def _address(tensor: Any) -> int:
    return int(tensor.__array_interface__["data"][0] if isinstance(tensor, np.ndarray) else tensor.data_ptr())


def _spelled(key: ViewKey) -> str:
    if is_row_major(key.shape, key.strides):
        return f"row-major {list(key.shape)}"
    return f"{list(key.shape)} with strides {key.strides}"
