"""Layout of a tensor or array in memory, and memory that no kernel can use.

A kernel gets an address. A global view without strides reads memory as row-major, whatever the tensor's strides.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from typing import Any

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import has_memory, shown

Extents = tuple[int, ...]


def strides_of(value: Any) -> Extents:
    """Return the strides in elements."""
    if _is_array(value):
        return tuple(stride // value.itemsize for stride in value.strides)
    return tuple(value.stride())


def steps(shape: Sequence[int], strides: Sequence[int]) -> list[tuple[int, int]]:
    """Return extent and stride of each dimension whose extent is not 1."""
    return [(extent, stride) for extent, stride in zip(shape, strides, strict=True) if extent != 1]


def row_major(shape: Sequence[int]) -> Extents:
    """Return the strides of a contiguous tensor."""
    return tuple(math.prod(shape[dim + 1 :]) for dim in range(len(shape)))


def is_row_major(shape: Sequence[int], strides: Sequence[int]) -> bool:
    """Return True if a tensor is contiguous; a tensor without elements always is."""
    return 0 in shape or steps(shape, strides) == steps(shape, row_major(shape))


def by_stride(shape: Sequence[int], strides: Sequence[int]) -> tuple[Extents, Extents]:
    """Return shape and strides with the dimensions in order of decreasing stride."""
    order = sorted(range(len(shape)), key=lambda dim: -strides[dim])
    return tuple(shape[dim] for dim in order), tuple(strides[dim] for dim in order)


def told(shape: Sequence[int], strides: Sequence[int]) -> str:
    """Return words for a non-contiguous tensor: "a transposed view of shape [64, 32] with strides (1, 64)"."""
    kind = "transposed" if is_row_major(*by_stride(shape, strides)) else "strided"
    return f"a {kind} view of shape {list(shape)} with strides {tuple(strides)}"


def require_row_major(kernel: str, name: str, value: Any) -> None:
    """Raise InputError for a tensor or array that is not contiguous. For kernels that take no strides."""
    shape, strides = tuple(value.shape), strides_of(value)
    if not is_row_major(shape, strides):
        copy = f"numpy.ascontiguousarray({name})" if _is_array(value) else f"{name}.contiguous()"
        what = f"{name} of {kernel} is {told(shape, strides)}, and {kernel} takes {name} as row-major"
        raise InputError(f"{what}: pass {copy}, or give its views strides.")


# --- memory


def require_memory(what: str, value: Any) -> None:
    """Raise InputError unless a tensor's or array's elements are in memory, unchanged and writable.

    what: name of the value in the message.
    """
    fault = _fault_of_array(value) if _is_array(value) else _fault_of_tensor(value)
    if fault:
        raise InputError(f"{what} is {fault}.")


def _is_array(value: Any) -> bool:
    """Return True for a numpy array, without importing numpy."""
    return hasattr(value, "flags")


def _fault_of_array(value: Any) -> str:
    if hasattr(value, "filled"):
        return "a masked array, and a kernel sees no mask; pass its filled() array"
    if not value.dtype.isnative:
        return f"of type {value.dtype}, in another byte order than this machine's"
    if value.dtype.hasobject or not value.shape:
        return f"{shown(value)}; it must have numbers and a dimension"
    return "" if value.flags.writeable else "a read-only array; pass a writeable one"


def _fault_of_tensor(value: Any) -> str:
    if not has_memory(value) or (value.device.type == "cpu" and _end_bytes(value) > value.untyped_storage().nbytes()):
        return f"{shown(value)} without memory of its own; pass a dense tensor"
    return "in read-only memory; pass a clone() of it" if _is_read_only(value) else ""


def _end_bytes(tensor: Any) -> int:
    """Return the bytes from the start of a tensor's storage to the end of its last element."""
    if not tensor.numel():
        return 0
    last = sum((extent - 1) * stride for extent, stride in zip(tensor.shape, tensor.stride(), strict=True))
    return int((tensor.storage_offset() + last + 1) * tensor.element_size())


def _is_read_only(tensor: Any) -> bool:
    """Return True if a tensor is in read-only memory, such as a mapped file's. A write would kill the process."""
    if tensor.device.type != "cpu" or not tensor.numel() or tensor.untyped_storage().resizable():
        return False
    return "w" not in _permissions(tensor.data_ptr())


def _permissions(address: int) -> str:
    """Return the permissions of the memory at an address, such as "rw-p" (proc_pid_maps(5)); "w" if the system does
    not report them."""
    if sys.platform != "linux":
        return "w"
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, permissions, *_ = line.split(maxsplit=2)
            begin, end = (int(bound, 16) for bound in span.split("-"))
            if begin <= address < end:
                return permissions
    return "w"
