"""Functions of torch that the runtime uses: current stream, current GPU, and memory from its allocator."""

from __future__ import annotations

import functools
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, cast

import torch

from blackwell_matmul.base.errors import InputError, UnsupportedError
from blackwell_matmul.base.validation import shown
from blackwell_matmul.compiler.plan import Workspace


@functools.cache
def _raw_stream() -> Callable[[int], int]:
    """Return torch's function for the handle of a GPU's current stream; faster than torch.cuda.current_stream."""
    found: Callable[[int], int] | None = getattr(torch._C, "_cuda_getCurrentRawStream", None)
    if found is None:
        raise UnsupportedError(
            f"torch {torch.__version__} was built without CUDA, so that it has no streams and no CUDA tensors; "
            "install a CUDA build of torch."
        )
    return found


def current_stream(device: int) -> int:
    """Return the handle of torch's current stream on a GPU; 0 is the default stream."""
    return _raw_stream()(device)


def stream_handle(stream: Any) -> int:
    """Return the handle of a torch.cuda.Stream, or of an integer."""
    handle = getattr(stream, "cuda_stream", stream)
    if not isinstance(handle, int) or isinstance(handle, bool) or handle < 0:
        raise InputError(
            f"stream is {shown(stream)}; it must be a torch.cuda.Stream, a handle, or None for torch's own."
        )
    return handle


@functools.cache
def several_devices() -> bool:
    return torch.cuda.device_count() > 1


def is_current(device: int) -> bool:
    return not several_devices() or torch._C._cuda_getDevice() == device  # called by torch.cuda.current_device


def current(device: int) -> AbstractContextManager[Any]:
    """Make a GPU current inside a block, for torch and for the driver."""
    return torch.cuda.device(device)


def empty(workspace: Workspace, device: int, stream: int) -> torch.Tensor:
    """Return a workspace for one stream. The tensor may be dropped once the work is queued.

    A workspace in which each launch leaves zeros is kept for the stream's next launch. A graph gets its own, which each
    replay zeroes.
    """
    if stream != current_stream(device):
        with torch.cuda.stream(torch.cuda.ExternalStream(stream, device=torch.device("cuda", device))):
            return empty(workspace, device, current_stream(device))
    nbytes = cast("int", workspace.nbytes)
    keeps = workspace.kept and not torch.cuda.is_current_stream_capturing()
    kept = _zeroed.get((device, stream)) if keeps else None
    if kept is not None and kept.nbytes >= nbytes:
        return kept
    make = torch.zeros if workspace.clear else torch.empty
    made = make(nbytes, dtype=torch.uint8, device=torch.device("cuda", device))
    if keeps:
        _zeroed[device, stream] = made
    return made


_zeroed: dict[tuple[int, int], torch.Tensor] = {}
"""The workspace that is kept for each GPU's stream. It holds zeros between launches."""


def allocated(shape: tuple[int, ...], strides: tuple[int, ...], dtype: torch.dtype, device: int) -> torch.Tensor:
    """Return an uninitialised tensor for a result; the kernel must write every element."""
    if _fast_empty is not None and is_current(device):
        made: torch.Tensor = _fast_empty(shape, strides, dtype)
        return made
    return torch.empty_strided(shape, strides, dtype=dtype, device=torch.device("cuda", device))


_fast_empty: Any = getattr(torch._C._dynamo.guards, "_empty_strided_cuda", None)
"""torch's allocation on the current GPU without its dispatcher, as torch.compile's code calls it; None without it."""
