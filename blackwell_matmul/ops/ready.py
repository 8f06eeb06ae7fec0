"""Cache of launches for calls of a known kind, which need no checks.

A kind has everything on which a call depends, except addresses: the operation and its options, and each tensor's shape,
strides, type, device and alignment. `launched` refuses calls that a mode or hook of torch observes.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor

from blackwell_matmul.kernels.host.matmul import ALIGNMENT_BYTES
from blackwell_matmul.ops.direct import PLAIN_TYPES, someone_listens
from blackwell_matmul.ops.distributed.shared_gpu import when_changed
from blackwell_matmul.runtime.recent import Recent

KEPT_READY = 8192
_ready: Recent[tuple[Any, ...], Any] = Recent(KEPT_READY)
when_changed(_ready.clear)


class Call(NamedTuple):
    """A call that bypasses torch's dispatch. kind: key of the cache. addresses: addresses of the tensors. graded: True
    if a gradient is needed."""

    kind: tuple[Any, ...]
    addresses: list[int]
    graded: bool


_autocast_enabled = torch._C._is_any_autocast_enabled
_grad_enabled = torch.is_grad_enabled
_LAST_BITS = ALIGNMENT_BYTES - 1


def launched(
    operation: str, tensors: Sequence[Tensor | None], flags: Sequence[object] = (), *options: object
) -> tuple[Any, Call | None]:
    """Return (result, None) for a call of a known kind, with gradients if needed, and (None, `Call`) for another kind.

    The caller computes the result, and keeps its launches by `keep`. Returns (None, None) if a flag is not a bool. So
    it does if the call is compiled, observed by a mode or hook, subject to autocast, or refused by `below_dispatch`.
    """
    if someone_listens() or _autocast_enabled():
        return None, None
    for flag in flags:
        if flag is not True and flag is not False:
            return None, None
    return below_dispatch([operation, *flags, *options], tensors)


def below_dispatch(kind: list[Any], tensors: Sequence[Tensor | None]) -> tuple[Any, Call | None]:
    """Return the same as `launched`, without its checks of observers, for a call that torch's dispatch has seen.

    The `Call` is None if a tensor is not plain, not dense, or without memory. kind: the tensors' properties are
    appended.
    """
    seen = _seen(kind, tensors)
    if seen is None:
        return None, None
    key, addresses, graded = seen
    found = _ready.get(key)
    if graded and _grad_enabled():
        if found is None or found.graded is None:
            return None, Call(key, addresses, True)
        return found.graded(addresses, *tensors), None
    made = None if found is None else found(addresses)
    return made, (Call(key, addresses, False) if made is None else None)


def _seen(kind: list[Any], tensors: Iterable[Tensor | None]) -> tuple[tuple[Any, ...], list[int], bool] | None:
    """Return the kind with the tensors' properties, their addresses, and True if a tensor requires a gradient.

    Returns None if a tensor is not plain, not dense, or without memory. data_ptr() of such tensors is 0, or raises
    RuntimeError.
    """
    addresses, graded = [], False
    try:
        for x in tensors:
            if x is None:
                kind.append(None)
                continue
            if type(x) not in PLAIN_TYPES or x.is_neg():
                return None
            address = x.data_ptr()
            if not address:
                return None
            kind += (x.shape, x.stride(), x.dtype, x.get_device(), address & _LAST_BITS)
            addresses.append(address)
            graded |= x.requires_grad
    except RuntimeError:
        return None
    return tuple(kind), addresses, graded


def known(kind: tuple[Any, ...]) -> Any:
    """Return the function that computes calls of a kind; None for an unknown kind."""
    return _ready.get(kind)


def found(operation: str, tensors: Sequence[Tensor], flags: Sequence[bool]) -> Any:
    """Return the function that computes calls with these tensors and flags, without other options; None if unknown."""
    seen = _seen([operation, *flags], tensors)
    return None if seen is None else known(seen[0])


def again(kind: tuple[Any, ...], addresses: list[int]) -> Tensor | None:
    """Return the result of a call of a known kind, without gradients; None, without effect, for an unknown kind."""
    found = _ready.get(kind)
    return None if found is None else found(addresses)


def keep(call: Call, ready: Any) -> None:
    """Keep the function that computes later calls of a kind. ready: a `Ready`, or another function of the tensors'
    addresses; None keeps nothing.
    """
    if ready is not None:
        _ready.put(call.kind, ready)
