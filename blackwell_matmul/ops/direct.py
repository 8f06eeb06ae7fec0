"""Conditions under which a call may bypass torch's dispatch, as nothing but autograd observes the call."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.compiler import is_dynamo_compiling
from torch.nn import Parameter
from torch.overrides import handle_torch_function

PLAIN_TYPES = frozenset((Tensor, Parameter))


def bypasses_dispatch(needed: Iterable[Tensor], optional: Iterable[Tensor | None] = ()) -> bool:
    """Return True if a call with these tensors needs no dispatch of torch.

    Then no mode or hook observes operations, and all tensors are plain and dense. No tensor has its negative bit set,
    is a zero tensor without memory, or is on the meta device.
    """
    if someone_listens():
        return False
    for each in (*needed, *(other for other in optional if other is not None)):
        if type(each) not in PLAIN_TYPES or each.layout is not torch.strided or each.is_nested:
            return False
        if each.is_neg() or each._is_zerotensor() or each.is_meta or torch._C._functorch.is_legacy_batchedtensor(each):
            return False
    return True


_tracing = torch._C._get_tracing_state
_dispatch_modes = torch._C._len_torch_dispatch_stack
_function_modes = torch._C._len_torch_function_stack
_transform = torch._C._functorch.peek_interpreter_stack
_profiled = torch.autograd._profiler_enabled


def someone_listens() -> bool:
    """Return True if torch.compile, forward mode, a tracer, a mode, torch.func or a profiler observes operations."""
    return (
        is_dynamo_compiling()  # the first term: torch.compile then does not trace the other terms
        or forward_ad._current_level >= 0
        or _tracing() is not None
        or _dispatch_modes() > 0
        or _function_modes() > 0
        or _transform() is not None
        or _profiled()
    )


def in_forward_mode() -> bool:
    return forward_ad._current_level >= 0


def recorded(operation: Callable[..., Tensor], **given: Any) -> Tensor | None:
    """Return the node that torch.fx.symbolic_trace records for the call, if a tensor is a proxy; else None."""
    if not any(isinstance(each, torch.fx.Proxy) for each in given.values()):
        return None
    made: Tensor = handle_torch_function(operation, tuple(given.values()), **given)
    return made


def wants_gradient(tensors: Iterable[Tensor | None]) -> bool:
    return torch.is_grad_enabled() and any(each is not None and each.requires_grad for each in tensors)
