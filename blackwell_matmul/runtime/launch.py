"""`Prepared`: one launch, packed as the driver reads it, to be repeated as often as the same call comes."""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Iterator, Sequence
from typing import Any

from blackwell_matmul import driver
from blackwell_matmul.compiler.plan import Argument, Launch
from blackwell_matmul.errors import DriverError, UnsupportedError
from blackwell_matmul.runtime import torch_cuda
from blackwell_matmul.runtime.maps import EncodedMap, encoded

_FORMATS = {
    "pointer": "Q", "bool": "?", "float16": "e", "float32": "f", "float64": "d",
    "int8": "b", "int16": "h", "int32": "i", "int64": "q",
    "uint8": "B", "uint16": "H", "uint32": "I", "uint64": "Q",
}  # fmt: skip
"""How `struct` writes each type of a kernel's argument."""

_SLOT_BYTES = 8
_PER_THREAD_STREAM = 2
"""CU_STREAM_PER_THREAD; 1 is CU_STREAM_LEGACY and 0 the default stream."""


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute (CUDA driver API), whose value here is one integer of a union of 64 bytes."""

    _fields_ = (
        ("id", ctypes.c_int),
        ("padding", ctypes.c_char * 4),
        ("value", ctypes.c_int),
        ("unused", ctypes.c_char * 60),
    )


EARLY_START = LaunchAttribute(6, b"", 1, b"")
"""CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: the grid need not wait for the one before it to end."""


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig (CUDA driver API). The cluster's shape is no attribute: it is compiled into the kernel."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")),
        ("dynamic_shared_bytes", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint32),
    )


class Prepared:
    """A launch of one function with fixed arguments on one stream. It never changes, so threads may share it.

    Workspaces are the exception to "fixed": each launch takes new ones from torch's allocator, on the same stream, and
    gives them back at once; the allocator hands them to later work of that stream only.
    """

    __slots__ = (
        "_config",
        "_kept",
        "_pointers",
        "_switches",
        "config",
        "device",
        "function",
        "launch",
        "name",
        "pointers",
    )

    def __init__(self, name: str, function: int, launch: Launch, device: int, stream: int) -> None:
        self.name, self.function, self.launch, self.device = name, function, launch, device
        attributes = (ctypes.addressof(EARLY_START), 1) if launch.early_start else (None, 0)
        self._config = LaunchConfig(*launch.grid, *launch.block, launch.dynamic_shared_bytes, stream, *attributes)
        self._pointers, self._kept = _pack(launch, device)
        self.config, self.pointers = ctypes.addressof(self._config), ctypes.addressof(self._pointers)
        # A stream of its own brings its context; the three streams without an object run in the current one.
        self._switches = stream <= _PER_THREAD_STREAM and torch_cuda.several_devices()

    def __call__(self) -> None:
        """Queue the launch on its stream; DriverError where the driver refuses it."""
        if self._switches and not torch_cuda.is_current(self.device):
            with torch_cuda.current(self.device):
                self._queue()
        else:
            self._queue()

    def _queue(self) -> None:
        if self.launch.workspaces:
            self._launch_with_workspaces()
        elif not self.launch.is_empty:
            self._launch(self.pointers)

    def _launch(self, pointers: int) -> None:
        launch = driver.entry_points().launch
        code = launch(self.config, self.function, pointers, None)
        if code == driver.INVALID_CONTEXT:  # a thread that has not used this GPU yet
            driver.activate(self.device)
            code = launch(self.config, self.function, pointers, None)
        if code != driver.SUCCESS:
            raise self._refused(code)

    def _launch_with_workspaces(self) -> None:
        """The addresses of new workspaces in a copy of the arguments: `self` stays as it is."""
        stream = self._config.stream or 0
        tensors = [torch_cuda.empty(each, self.device, stream) for each in self.launch.workspaces]
        addresses = (ctypes.c_uint64 * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
        pointers = type(self._pointers)(*self._pointers)
        for place, argument in enumerate(self.launch.arguments):
            if argument.kind == "workspace":
                pointers[place] = ctypes.addressof(addresses) + _SLOT_BYTES * _index(argument)
        if not self.launch.is_empty:
            self._launch(ctypes.addressof(pointers))

    def _refused(self, code: int) -> DriverError:
        launch = self.launch
        grid, block, cluster = ("x".join(map(str, extents)) for extents in (launch.grid, launch.block, launch.cluster))
        return driver.refused(
            "cuLaunchKernelEx",
            f"launch {self.name} on GPU {self.device} with a grid of {grid} CTAs of {block} threads in clusters of "
            f"{cluster} and {launch.dynamic_shared_bytes} bytes of dynamic shared memory",
            code,
        )


def _pack(launch: Launch, device: int) -> tuple[Any, list[Any]]:
    """The addresses of the kernel's arguments, and what has to stay alive behind them."""
    maps = [encoded(described, device) for described in launch.tensor_maps]
    values = bytearray(b"".join(_slots(launch.arguments)) or bytes(_SLOT_BYTES))
    memory = (ctypes.c_char * len(values)).from_buffer(values)
    start = ctypes.addressof(memory)
    addresses = [_address(argument, start + _SLOT_BYTES * i, maps) for i, argument in enumerate(launch.arguments)]
    return (ctypes.c_void_p * max(1, len(addresses)))(*addresses), [memory, maps]


def _address(argument: Argument, slot: int, maps: Sequence[EncodedMap]) -> int:
    return maps[_index(argument)].address if argument.kind == "tensor_map" else slot


def _index(argument: Argument) -> int:
    assert isinstance(argument.value, int)
    return argument.value


def _slots(arguments: Sequence[Argument]) -> Iterator[bytes]:
    """Eight bytes for each argument; those of maps and workspaces stay empty."""
    for argument in arguments:
        packed = _packed(argument) if argument.kind == "value" else b""
        yield packed.ljust(_SLOT_BYTES, b"\0")


def _packed(argument: Argument) -> bytes:
    code = _FORMATS.get(argument.type)
    if code is None:
        known = ", ".join(_FORMATS)
        raise UnsupportedError(f"A kernel's argument of type {argument.type} cannot be passed; these can: {known}.")
    try:
        return struct.pack("=" + code, argument.value)
    except (struct.error, OverflowError) as error:
        raise UnsupportedError(
            f"{argument.value!r} is no value of type {argument.type}, which the kernel takes."
        ) from error
