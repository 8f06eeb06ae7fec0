"""`Prepared`: one launch, packed for the driver, to be repeated for equal calls."""

from __future__ import annotations

import ctypes
import dataclasses
import functools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from blackwell_matmul.base.errors import DriverError
from blackwell_matmul.compiler.plan import Launch, Workspace
from blackwell_matmul.hardware import driver
from blackwell_matmul.runtime import torch_cuda
from blackwell_matmul.runtime.packed import SLOT_BYTES, Moves, Packed, index_of

_PER_THREAD_STREAM = 2
"""CU_STREAM_PER_THREAD; 1 is CU_STREAM_LEGACY and 0 the default stream."""


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute (CUDA driver API), with one integer as value in a union of 64 bytes."""

    _fields_ = (
        ("id", ctypes.c_int),
        ("padding", ctypes.c_char * 4),
        ("value", ctypes.c_int),
        ("unused", ctypes.c_char * 60),
    )


EARLY_START = LaunchAttribute(6, b"", 1, b"")
"""CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION: the grid may start before the preceding grid has ended."""


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig (CUDA driver API). The cluster's shape is compiled into the kernel."""

    _fields_ = (
        *((name, ctypes.c_uint32) for name in ("grid_x", "grid_y", "grid_z", "block_x", "block_y", "block_z")),
        ("dynamic_shared_bytes", ctypes.c_uint32),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.c_void_p),
        ("attribute_count", ctypes.c_uint32),
    )


@dataclass(slots=True, eq=False)
class Prepared:
    """A launch of one function on one stream. Threads may share a launch whose addresses are not rewritten (`Moving`).

    Workspaces are not fixed: each launch takes them for its stream (`torch_cuda.empty`), and frees them immediately.
    torch's allocator reuses them only for later work of that stream.
    """

    name: str
    function: int
    launch: Launch
    device: int
    config: LaunchConfig
    packed: Packed
    switches: bool
    """True if the GPU must be made current first: streams 0, 1 and 2 belong to no GPU and use the current context."""
    plain: bool
    """True if a launch is one driver call on the current GPU: no workspaces, and a grid that is not empty."""
    kept: tuple[tuple[int, Workspace], ...] = ()
    """The workspaces, with the places of their arguments, if all are kept and the grid is not empty."""
    _enqueue: Callable[[], int] = dataclasses.field(init=False)
    """The driver's launch with these arguments, on the current GPU; returns the driver's error code."""

    def __post_init__(self) -> None:
        self._enqueue = self._with(self.packed.address)

    @classmethod
    def of(cls, name: str, function: int, launch: Launch, device: int, stream: int) -> Prepared:
        attributes = (ctypes.addressof(EARLY_START), 1) if launch.early_start else (None, 0)
        config = LaunchConfig(*launch.grid, *launch.block, launch.dynamic_shared_bytes, stream, *attributes)
        switches = stream <= _PER_THREAD_STREAM and torch_cuda.several_devices()
        plain = not (launch.workspaces or launch.is_empty)
        places = [
            (i, launch.workspaces[index_of(each)])
            for i, each in enumerate(launch.arguments)
            if each.kind == "workspace"
        ]
        kept = () if launch.is_empty or not all(each.kept for _, each in places) else tuple(places)
        return cls(name, function, launch, device, config, Packed.of(launch, device), switches, plain, kept)

    def copy(self) -> Prepared:
        """Return the launch with its own copy of the arguments."""
        return dataclasses.replace(self, packed=self.packed.copy())

    def at(self, moves: Moves, values: Sequence[int]) -> Prepared | None:
        """Return a copy of the launch with other addresses; None if the launch must be packed again. values: arguments
        of the new call, by parameter. The copy's `launch` keeps the old addresses."""
        if not self.packed.is_movable(moves):
            return None
        made = self.copy()
        for array, place, parameter in made.packed.words(moves):
            if parameter < len(values):  # an omitted argument keeps its default
                array[place] = values[parameter]
        return made

    def __call__(self) -> None:
        """Queue the launch on its stream; raise DriverError if the driver refuses."""
        here = not self.switches or torch_cuda.is_current(self.device)
        if here and self.plain:
            self._launch(self._enqueue)
        elif not here:
            with torch_cuda.current(self.device):
                self._queue()
        else:
            self._queue()

    def _queue(self) -> None:
        if self.launch.workspaces:
            self._launch_with_workspaces()
        elif not self.launch.is_empty:
            self._launch(self._enqueue)

    def _with(self, pointers: int) -> Callable[[], int]:
        """Return the driver's launch, ready to call. pointers: address of the array of pointers to the arguments."""
        launch = driver.entry_points().launch
        return functools.partial(launch, ctypes.addressof(self.config), self.function, pointers, None)

    def _launch(self, enqueue: Callable[[], int]) -> None:
        code = enqueue()
        if code == driver.INVALID_CONTEXT:  # a thread that has not used this GPU yet
            driver.activate(self.device)
            code = enqueue()
        if code != driver.SUCCESS:
            raise self._refused(code)

    def _launch_with_workspaces(self) -> None:
        """Launch with new workspaces in a copy of the arguments; `self` stays unchanged. Kept ones alone, which every
        launch of the stream shares, are arguments of `self`."""
        stream = self.config.stream or 0
        if self.kept:
            tensors = [torch_cuda.empty(each, self.device, stream) for _, each in self.kept]
            for (place, _), tensor in zip(self.kept, tensors):
                self.packed.values[place] = tensor.data_ptr()
            self._launch(self._enqueue)
            return
        tensors = [torch_cuda.empty(each, self.device, stream) for each in self.launch.workspaces]
        addresses = (ctypes.c_uint64 * len(tensors))(*(tensor.data_ptr() for tensor in tensors))
        pointers = type(self.packed.pointers).from_buffer_copy(self.packed.pointers)
        for place, argument in enumerate(self.launch.arguments):
            if argument.kind == "workspace":
                pointers[place] = ctypes.addressof(addresses) + SLOT_BYTES * index_of(argument)
        if not self.launch.is_empty:
            self._launch(self._with(ctypes.addressof(pointers)))

    def _refused(self, code: int) -> DriverError:
        launch = self.launch
        grid, block, cluster = ("x".join(map(str, extents)) for extents in (launch.grid, launch.block, launch.cluster))
        return driver.refused(
            "cuLaunchKernelEx",
            f"launch {self.name} on GPU {self.device} with a grid of {grid} CTAs of {block} threads in clusters of "
            f"{cluster} and {launch.dynamic_shared_bytes} bytes of dynamic shared memory",
            code,
        )
