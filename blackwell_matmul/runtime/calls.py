"""`Calls`: a cache of checked and packed launches by their arguments, so that a repeated call is cheap.

A key holds all inputs of a launch: the numbers; each tensor's address, shape, strides, type, device and requires_grad;
the stream. Any difference makes a new call, with all its checks.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any

from torch import Tensor
from torch.nn import Parameter

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import has_memory
from blackwell_matmul.runtime import torch_cuda
from blackwell_matmul.runtime.launch import Prepared
from blackwell_matmul.runtime.recent import Recent

KEPT_CALLS = 1024
"""Maximum packed launches for one kernel."""


PLAIN_TENSORS: set[type] = {Tensor, Parameter}
"""Tensor types with ordinary address and strides; a subclass may differ."""


class Calls:
    """Launch cache of one kernel. prepare(arguments, device, stream): checks and packs a new call."""

    def __init__(self, prepare: Callable[[Sequence[object], int, int], Prepared]) -> None:
        self._prepare = prepare
        self._known: Recent[Hashable, Prepared] = Recent(KEPT_CALLS)

    def attempt(self, arguments: Sequence[object]) -> bool:
        """Launch on the current stream and return True. Return False, without effect, for arguments without a key."""
        key = call_key(arguments)
        if key is None:
            return False
        (self._known.get(key) or self._new(arguments, key, None))()
        return True

    def launch(self, arguments: Sequence[object], stream: int | None = None) -> None:
        """Launch on a stream, or on the current one."""
        if stream is not None or not self.attempt(arguments):
            self._new(arguments, None, stream)()

    def _new(self, arguments: Sequence[object], key: Hashable | None, stream: int | None) -> Prepared:
        device = device_of(arguments)
        prepared = self._prepare(arguments, device, torch_cuda.current_stream(device) if stream is None else stream)
        if key is not None:
            self._known.put(key, prepared)
        return prepared


def call_key(arguments: Sequence[object]) -> Hashable | None:
    """Return a key that is equal for equal launches; None if an argument is neither an int nor a plain CUDA tensor."""
    key: list[Any] = []
    device = -1
    for argument in arguments:
        kind = type(argument)
        if kind is int:
            key.append(argument)
        elif kind in PLAIN_TENSORS:
            key += tensor_key(argument)
            device = key[-1]
        else:
            return None
    if device < 0:
        return None
    key.append(torch_cuda.current_stream(device))
    return tuple(key)


def tensor_key(tensor: Any) -> tuple[object, ...]:
    return (
        tensor.data_ptr(),
        tensor.shape,
        tensor.stride(),
        tensor.dtype,
        tensor.requires_grad,
        tensor.get_device(),
    )


def device_of(arguments: Sequence[object]) -> int:
    """Return the index of the GPU that holds all tensors; raise InputError if there is none or several."""
    places = {f"argument {i}": str(each.device) for i, each in enumerate(arguments) if isinstance(each, Tensor)}
    if len(set(places.values())) == 1 and all(place.startswith("cuda:") for place in places.values()):
        return next(each.get_device() for each in arguments if isinstance(each, Tensor))
    placed = ", ".join(f"{name} on {place}" for name, place in places.items()) or "no tensor at all"
    raise InputError(f"The arguments are {placed}; all tensors must be on one CUDA device, and there must be one.")


def address(tensor: Any) -> int:
    """Return a tensor's address; raise InputError for a tensor without memory, such as a fake tensor of a trace."""
    if not has_memory(tensor):
        raise InputError(
            f"A {type(tensor).__name__} of shape {tuple(tensor.shape)} has no memory that a kernel could read; "
            "inside of torch.compile call blackwell_matmul.matmul, which it understands."
        )
    return int(tensor.data_ptr())
