"""A GPU that computes nothing: CPU tensors pass for an H200's, and each call of the driver is an empty C function.

The way of a call from Python to the driver can be measured with it. Results are whatever memory holds.
"""

from __future__ import annotations

import ctypes
import importlib
from typing import Any

import torch

from blackwell_matmul.hardware import driver
from blackwell_matmul.hardware.gpus import GPUS, Gpu

STUBBED = "H200"
EMPTY = "pthread_mutexattr_destroy"
"""A function of the C library that does nothing and returns 0."""
STREAM = 0x51


def install() -> None:
    """Replace the driver and the questions about a tensor's device, for the rest of the process."""
    gpu = GPUS[STUBBED]
    _replace_driver()
    modules = [importlib.import_module(f"blackwell_matmul.{name}") for name in MODULES]
    for module in modules:
        for name, stub in _stubs(gpu).items():
            if hasattr(module, name):
                setattr(module, name, stub)
    load, torch_cuda = (importlib.import_module(f"blackwell_matmul.runtime.{name}") for name in ("load", "torch_cuda"))
    load.Loaded._function = lambda self, device, nbytes: 1
    torch_cuda._raw_stream = lambda: lambda device: STREAM
    torch_cuda._fast_empty = torch._C._dynamo.guards._empty_strided_cpu


MODULES = ("ops.launching", "ops.library", "ops.grouped", "runtime.load", "runtime.script_calls")


def _stubs(gpu: Gpu) -> dict[str, Any]:
    """Return what modules ask of a GPU, by name."""
    from blackwell_matmul.runtime.launches import Launches

    return {
        "gpu_at": lambda device: gpu,
        "gpu_of": lambda *about: gpu,
        "Launches": lambda kernel, device: Launches(kernel, 0),
    }


def _replace_driver() -> None:
    pointer, uint = ctypes.c_void_p, ctypes.c_uint32
    empty = ctypes.cast(getattr(ctypes.CDLL(None), EMPTY), pointer).value
    replace = ctypes.CFUNCTYPE(ctypes.c_int, pointer, pointer)(_replace_address)
    encode = ctypes.CFUNCTYPE(ctypes.c_int, pointer, uint, uint, *[pointer] * 5, *[uint] * 4)(_encode)
    points = driver.EntryPoints(ctypes.CFUNCTYPE(ctypes.c_int, *[pointer] * 4)(empty), encode, replace)
    bindings = importlib.import_module("cuda.bindings.driver")
    driver.entry_points, driver.bindings = lambda: points, lambda: bindings


def _replace_address(tensor_map: int, address: int) -> int:
    ctypes.c_uint64.from_address(tensor_map).value = address
    return 0


def _encode(tensor_map: int, dtype: int, rank: int, address: int, *_: int) -> int:
    return _replace_address(tensor_map, address)
