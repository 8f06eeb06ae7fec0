"""Calls of the CUDA driver. Each return code is checked, and each failure raises an error with a remedy.

Modules, devices and errors use cuda-python. The three functions of `EntryPoints` are called by ctypes: cuda-python's
calls are slower. cuda-python 13 also places a `CUtensorMap` at an address of 48 modulo 64; the driver documents a
multiple of 64.
"""

from __future__ import annotations

import ctypes
import functools
import importlib
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from blackwell_matmul.base.errors import DriverError, UnsupportedError

SUCCESS = 0
INVALID_CONTEXT = 201
"""Code of CUDA_ERROR_INVALID_CONTEXT, for a thread that has not used CUDA before."""

_STICKY = "an earlier kernel of this process failed on that GPU; start the process again, and that kernel first"
_HINTS = {
    "CUDA_ERROR_NO_BINARY_FOR_GPU": "the cubin was compiled for another architecture; compile it for this GPU",
    "CUDA_ERROR_INVALID_IMAGE": "the cubin is damaged or no cubin; compile it again",
    "CUDA_ERROR_UNSUPPORTED_PTX_VERSION": "the driver is older than the compiler; update the driver",
    "CUDA_ERROR_NO_DEVICE": "this machine has no NVIDIA GPU that the driver sees; CPU tensors are simulated",
    "CUDA_ERROR_NOT_FOUND": "the cubin does not hold this name",
    "CUDA_ERROR_OUT_OF_MEMORY": "free GPU memory, with torch.cuda.empty_cache() for example",
    "CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES": "the CTA needs more registers or shared memory than an SM has",
    "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED": "the capture of this stream had failed before",
    **dict.fromkeys(
        (
            *("CUDA_ERROR_ILLEGAL_ADDRESS", "CUDA_ERROR_LAUNCH_FAILED", "CUDA_ERROR_LAUNCH_TIMEOUT"),
            *("CUDA_ERROR_ILLEGAL_INSTRUCTION", "CUDA_ERROR_MISALIGNED_ADDRESS", "CUDA_ERROR_ASSERT"),
        ),
        _STICKY,
    ),
}
"""Remedies or causes, by the name of the CUDA error code."""


class EntryPoints(NamedTuple):
    """Functions of libcuda that a launch calls. Arguments are integers and addresses; the result is a CUresult."""

    launch: Callable[..., int]
    encode_tiled: Callable[..., int]
    replace_address: Callable[..., int]


@functools.cache
def entry_points() -> EntryPoints:
    """Return the functions, from the library that cuda-python has loaded."""
    bindings()
    library = _library()
    pointer, uint = ctypes.c_void_p, ctypes.c_uint32
    encode = (pointer, uint, uint, *[pointer] * 5, *[uint] * 4)
    return EntryPoints(
        launch=_function(library, "cuLaunchKernelEx", [pointer] * 4),
        encode_tiled=_function(library, "cuTensorMapEncodeTiled", encode),
        replace_address=_function(library, "cuTensorMapReplaceAddress", [pointer] * 2),
    )


def _library() -> ctypes.CDLL:
    if sys.platform == "win32":
        return ctypes.WinDLL("nvcuda.dll")
    return ctypes.CDLL("libcuda.so.1")


def _function(library: ctypes.CDLL, name: str, argtypes: Any) -> Callable[..., int]:
    try:
        function = getattr(library, name)
    except AttributeError:
        raise UnsupportedError(f"The CUDA driver has no {name}; it is older than CUDA 12, so update it.") from None
    function.argtypes, function.restype = argtypes, ctypes.c_int
    return function


@functools.cache
def bindings() -> Any:
    """Return the module `cuda.bindings.driver` after cuInit.

    Raises UnsupportedError without the package or the driver, DriverError if cuInit fails.
    """
    try:
        driver = importlib.import_module("cuda.bindings.driver")
    except ImportError:
        raise UnsupportedError(
            "Running on a GPU needs the package cuda-python, which is not installed; CPU tensors are simulated."
        ) from None
    try:
        (code,) = driver.cuInit(0)
    except Exception as error:  # cuda-python's classes depend on its version
        raise UnsupportedError(
            "This machine has no CUDA driver (libcuda is not found); CPU tensors are simulated."
        ) from error
    if int(code) != SUCCESS:
        raise refused("cuInit", "start", int(code), driver)
    return driver


def call(function: str, attempted: str, *arguments: Any) -> Any:
    """Return the result of a driver function; raise DriverError, with the attempted operation, if the function fails.

    Several results are a tuple.
    """
    driver = bindings()
    code, *results = getattr(driver, function)(*arguments)
    if int(code) != SUCCESS:
        raise refused(function, attempted, int(code), driver)
    return results[0] if len(results) == 1 else tuple(results)


def refused(function: str, attempted: str, code: int, driver: Any = None) -> DriverError:
    """Return the error for a driver's code. Its message has the operation, the function, the code's name and remedy."""
    driver = driver or bindings()
    name, meaning = (_text(driver, which, code) for which in ("cuGetErrorName", "cuGetErrorString"))
    hint = _HINTS.get(name) or ("blackwell-matmul doctor says what mends it" if function == "cuInit" else "")
    reason = ": ".join(part for part in (meaning, hint) if part)
    text = f"{name} ({code})" if name else f"the code {code}"
    return DriverError(f"The CUDA driver could not {attempted}: {function} returned {text}{reason and f', {reason}'}.")


def _text(driver: Any, function: str, code: int) -> str:
    """Return the driver's text of a code; "" if the driver or cuda-python does not know the code."""
    try:
        failed, text = getattr(driver, function)(driver.CUresult(code))
    except ValueError:
        return ""
    return "" if int(failed) or not text else str(text.decode(errors="replace"))


# --- devices


def device_attribute(device: int, name: str) -> int:
    """Return an attribute of a GPU by the driver's name without prefix, such as MULTIPROCESSOR_COUNT."""
    attribute = getattr(bindings().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{name}")
    return int(call("cuDeviceGetAttribute", f"read {name} of GPU {device}", attribute, device_handle(device)))


@functools.cache
def device_handle(device: int) -> Any:
    return call("cuDeviceGet", f"find GPU {device}", device)


def device_name(device: int) -> str:
    name: bytes = call("cuDeviceGetName", f"read the name of GPU {device}", 128, device_handle(device))
    return name.split(b"\0")[0].decode(errors="replace")


def device_uuid(device: int) -> str:
    """Return a GPU's UUID, "GPU-" and hexadecimal digits, as CUDA_VISIBLE_DEVICES accepts it."""
    found = call("cuDeviceGetUuid", f"read the UUID of GPU {device}", device_handle(device))
    return f"GPU-{uuid.UUID(bytes=found.bytes)}"


@functools.cache
def _primary_context(device: int) -> Any:
    """Return the primary context of a GPU, which torch uses, too. The process never releases it."""
    return call("cuDevicePrimaryCtxRetain", f"open GPU {device}", device_handle(device))


def activate(device: int) -> None:
    """Make a GPU's primary context current on this thread."""
    call("cuCtxSetCurrent", f"use GPU {device} from this thread", _primary_context(device))


@contextmanager
def active(device: int) -> Iterator[None]:
    """Make a GPU's primary context current inside the block, and restore the former context."""
    call("cuCtxPushCurrent", f"use GPU {device} from this thread", _primary_context(device))
    try:
        yield
    finally:
        call("cuCtxPopCurrent", f"leave GPU {device}")


@contextmanager
def capture_relaxed() -> Iterator[None]:
    """Allow calls inside the block that a stream capture forbids, such as loading a module.

    These calls are not captured. They fail during a capture in the global mode, torch's default.
    """
    relaxed = bindings().CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_RELAXED
    before = call("cuThreadExchangeStreamCaptureMode", "enter the relaxed capture mode", relaxed)
    try:
        yield
    finally:
        call("cuThreadExchangeStreamCaptureMode", "leave the relaxed capture mode", before)
