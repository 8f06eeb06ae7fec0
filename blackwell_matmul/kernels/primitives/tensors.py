"""Checks of tensors for TMA, and the default box of a tensor."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import has_memory, integer, shown

# Limits of tensor maps (CUDA driver API, cuTensorMapEncodeTiled).
ALIGNMENT_BYTES = 16
MAX_BOX_EXTENT = 256
MAX_RANK = 5

BOX_BYTES = 8192
"""Bytes of a default box: few enough for many CTAs on an SM. The number is not tuned."""

TILUS_NAMES = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32"}


def element_type(tensor: torch.Tensor) -> Any:
    """Return tilus's type for the elements of a tensor."""
    import tilus

    return getattr(tilus, TILUS_NAMES[tensor.dtype])


def check_alike(inputs: Mapping[str, Any], outputs: Mapping[str, Any]) -> None:
    """Raise InputError unless tensors have one type and shape, TMA can address them, and outputs share no memory."""
    tensors = {**inputs, **outputs}
    for name, tensor in tensors.items():
        _check_tensor(name, tensor)
    (first, model), *others = tensors.items()
    for name, tensor in others:
        if (tensor.dtype, tensor.shape, tensor.device) != (model.dtype, model.shape, model.device):
            raise InputError(f"{name} is {_described(tensor)} and {first} is {_described(model)}; they must be alike.")
    check_rows(tensors)
    for name, output in outputs.items():
        _check_output(name, output, {other: tensor for other, tensor in tensors.items() if other != name})


def check_count(n: Any, vector: torch.Tensor) -> None:
    """Raise InputError unless n is the length of a vector."""
    if vector.dim() != 1 or integer(n, 1, 2**31 - 1) != vector.numel():
        raise InputError(f"n is {shown(n)} and the tensors have shape {tuple(vector.shape)}; it must be (n,).")


def check_rows(tensors: Mapping[str, torch.Tensor]) -> None:
    """Raise InputError unless the rows of each tensor are multiples of 16 bytes (cuTensorMapEncodeTiled)."""
    for name, tensor in tensors.items():
        row_bytes = tensor.shape[-1] * tensor.element_size()
        if tensor.dim() > 1 and row_bytes % ALIGNMENT_BYTES:
            step = ALIGNMENT_BYTES // tensor.element_size()
            raise InputError(
                f"A row of {name} is {row_bytes} bytes, and TMA needs a multiple of {ALIGNMENT_BYTES}; make its last "
                f"dimension, {tensor.shape[-1]}, a multiple of {step}."
            )


def default_box(shape: Sequence[int], element_bytes: int) -> tuple[int, ...]:
    """Return the extents of a box, powers of two: the last dimensions are covered first, up to `BOX_BYTES`."""
    left, box = BOX_BYTES // element_bytes, [1] * len(shape)
    for dim in reversed(range(len(shape))):
        box[dim] = min(_power_of_two(shape[dim]), left, MAX_BOX_EXTENT)
        if dim == len(shape) - 1:
            box[dim] = max(box[dim], ALIGNMENT_BYTES // element_bytes)
        left //= box[dim]
    return tuple(box)


def box_offsets(index: Any, boxes: Sequence[int], box: Sequence[int]) -> list[Any]:
    """Return the offsets of box number `index`, an int or a tilus expression. The last dimension varies fastest.

    Scripts call this function because tilus 0.2.0 allows no list comprehension with a named variable.
    """
    offsets = []
    for count, extent in zip(reversed(boxes), reversed(box)):
        offsets.append(index % count * extent)
        index = index // count
    return offsets[::-1]


def plain_box(box: Any, tensor: torch.Tensor) -> tuple[int, ...]:
    """Return the extents of a box as ints; raise InputError for extents that a tensor map cannot have."""
    extents = [integer(extent, 1, MAX_BOX_EXTENT) for extent in box] if isinstance(box, list | tuple) else [None]
    row_bytes = (extents[-1] or 0) * tensor.element_size() if extents else 0
    if None in extents or len(extents) != tensor.dim() or row_bytes % ALIGNMENT_BYTES:
        raise InputError(
            f"box is {shown(box)} for a tensor of {tensor.dim()} dimensions; it must have one extent for each, from 1 "
            f"to {MAX_BOX_EXTENT}, and its last dimension a multiple of {ALIGNMENT_BYTES} bytes."
        )
    return tuple(extent for extent in extents if extent is not None)


def _power_of_two(extent: int) -> int:
    """Return the smallest power of two that is at least `extent`."""
    return 1 << (extent - 1).bit_length()


def _check_tensor(name: str, tensor: Any) -> None:
    if not isinstance(tensor, torch.Tensor) or tensor.layout is not torch.strided or not has_memory(tensor):
        raise InputError(f"{name} is {shown(tensor)}; it must be a dense torch.Tensor.")
    if tensor.dtype not in TILUS_NAMES:
        known = ", ".join(TILUS_NAMES.values())
        raise InputError(f"{name} is {tensor.dtype}; it must be one of {known}.")
    if not 1 <= tensor.dim() <= MAX_RANK or not tensor.numel():
        raise InputError(
            f"{name} has shape {tuple(tensor.shape)}; it must have 1 to {MAX_RANK} dimensions, none empty."
        )
    if not tensor.is_contiguous():
        raise InputError(
            f"{name} has strides {tuple(tensor.stride())}; it must be contiguous ({name}.contiguous() is)."
        )
    if tensor.data_ptr() % ALIGNMENT_BYTES:
        past = tensor.data_ptr() % ALIGNMENT_BYTES
        raise InputError(f"{name} starts {past} bytes past a multiple of {ALIGNMENT_BYTES}; {name}.clone() does not.")


def _check_output(name: str, output: torch.Tensor, others: Mapping[str, torch.Tensor]) -> None:
    if output.requires_grad:
        raise InputError(f"{name} requires grad, and autograd does not see what a kernel writes; detach it.")
    for other, tensor in others.items():
        nbytes = tensor.numel() * tensor.element_size()
        if abs(output.data_ptr() - tensor.data_ptr()) < nbytes:
            raise InputError(f"{name} shares memory with {other}; give it memory of its own.")


def _described(tensor: torch.Tensor) -> str:
    return f"{tensor.dtype} of shape {tuple(tensor.shape)} on {tensor.device}"
