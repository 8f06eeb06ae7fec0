"""Where a tensor and the kernel's view of its memory differ in type, shape or strides.

A kernel gets an address and brings its own strides, so that none of this is a fault by itself; of a wrong result or an
access outside of the memory it is the likely cause, and a sentence that follows names it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from blackwell_matmul.elements import dtype_name, fits
from blackwell_matmul.simulator.machine.global_memory import GlobalMemory, ViewKey


def disagreements(memory: GlobalMemory) -> tuple[str, ...]:
    """Where the kernel's views and the tensors themselves differ in type, shape or strides."""
    found = (disagreement(memory.tensors, key) for key in memory.seen)
    return tuple(dict.fromkeys(each for each in found if each is not None))


def disagreement(tensors: Mapping[str, Any], key: ViewKey) -> str | None:
    """A clause on the tensor that starts where the view does; None where it is what the kernel takes it as."""
    told = [_told(name, tensor, key) for name, tensor in tensors.items() if _address(tensor) == key.address]
    return told[0] if told and all(told) else None


def _told(name: str, tensor: Any, key: ViewKey) -> str | None:
    shape, strides = tuple(tensor.shape), _strides(tensor)
    if not fits(key.item.name, tensor.dtype):
        return f"{name} is a tensor of {dtype_name(tensor.dtype)}; the kernel takes it as {key.item.name}"
    if key.item.packed or _steps(shape, strides) == _steps(key.shape, key.strides):
        return None
    if not _is_row_major(shape, strides):
        kind = "transposed" if _is_row_major(*_by_stride(shape, strides)) else "strided"
        return (
            f"{name} is a {kind} view of shape {list(shape)} with strides {strides}; the kernel takes it as "
            f"{_spelled(key)}: pass {name}.contiguous()"
        )
    if math.prod(shape) != math.prod(key.shape) or (len(shape) == len(key.shape) and shape != key.shape):
        return f"{name} has shape {list(shape)}; the kernel takes it as {list(key.shape)}"
    return None


def _address(tensor: Any) -> int:
    return int(tensor.__array_interface__["data"][0] if isinstance(tensor, np.ndarray) else tensor.data_ptr())


def _strides(tensor: Any) -> tuple[int, ...]:
    """In elements."""
    if isinstance(tensor, np.ndarray):
        return tuple(stride // tensor.itemsize for stride in tensor.strides)
    return tuple(tensor.stride())


def _steps(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Extent and stride of each dimension that has more than one element: the others say nothing."""
    return [(extent, stride) for extent, stride in zip(shape, strides, strict=True) if extent != 1]


def _is_row_major(shape: Sequence[int], strides: Sequence[int]) -> bool:
    expected = 1
    for extent, stride in reversed(_steps(shape, strides)):
        if stride != expected:
            return False
        expected *= extent
    return True


def _by_stride(shape: Sequence[int], strides: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The dimensions with the slowest first."""
    order = sorted(range(len(shape)), key=lambda dim: -strides[dim])
    return tuple(shape[dim] for dim in order), tuple(strides[dim] for dim in order)


def _spelled(key: ViewKey) -> str:
    if _is_row_major(key.shape, key.strides):
        return f"row-major {list(key.shape)}"
    return f"{list(key.shape)} with strides {key.strides}"
