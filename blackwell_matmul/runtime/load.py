"""`load`: returns a callable on CUDA tensors for a compiled bundle, without tilus.

The cubin is loaded as a `CUlibrary`, not as a `CUmodule` for each context. One CUkernel handle serves every GPU of the
process, and a launch takes the context from its stream.
"""

from __future__ import annotations

import threading
from collections.abc import Hashable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import Tensor

from blackwell_matmul.base.errors import InputError, UnsupportedError
from blackwell_matmul.base.validation import shown
from blackwell_matmul.hardware import driver
from blackwell_matmul.runtime import torch_cuda
from blackwell_matmul.runtime.calls import Calls, address
from blackwell_matmul.runtime.device import gpu_at
from blackwell_matmul.runtime.launch import Prepared
from blackwell_matmul.runtime.moving import Moving
from blackwell_matmul.runtime.packed import LAST_BITS, Moves
from blackwell_matmul.runtime.recent import Recent

if TYPE_CHECKING:
    from blackwell_matmul.compiler.bundle import Bundle

KEPT_KINDS = 256
"""Maximum kinds of calls kept for one kernel; calls of one kind differ only in addresses."""


def load(bundle: Bundle | str | Path) -> Loaded:
    """Return the kernel of a bundle or its folder; no GPU is used before the first call."""
    if isinstance(bundle, (str, Path)):
        from blackwell_matmul.compiler.bundle import Bundle

        bundle = Bundle.load(Path(bundle))
    if not hasattr(bundle, "plan") or not hasattr(bundle, "cubin"):
        raise InputError(f"load takes a Bundle or the folder of one; it got {shown(bundle)}.")
    return Loaded(bundle)


class Loaded:
    """A compiled kernel. `loaded(*arguments)` launches it with the arguments of `bundle.plan.parameters`, in order;
    trailing arguments with defaults may be omitted.

    The kernel gets a tensor's address. Compile-time constants (`bundle.consts`) are fixed, and shapes are not checked
    against them; the caller must check, as `Script` does.
    """

    def __init__(self, bundle: Bundle) -> None:
        self.bundle = bundle
        self._calls = Calls(self.prepare)
        self._prepared: Recent[Hashable, Prepared] = Recent(KEPT_KINDS)
        self._moves = Moves.of(bundle.plan)
        self._lock = threading.Lock()
        self._library: Any = None
        self._kernel: Any = None
        self._ready: dict[int, int] = {}

    def __repr__(self) -> str:
        return f"<{self.bundle.name} for {self.bundle.target}; {self.bundle.serves}>"

    def __call__(self, *arguments: object, stream: object = None) -> None:
        """Launch on the tensors' GPU, on torch's current stream or on `stream`; asynchronous.

        Raises InputError for arguments that do not fit, UnsupportedError for a GPU other than the bundle's, and
        DriverError if the driver refuses.
        """
        self._calls.launch(arguments, None if stream is None else torch_cuda.stream_handle(stream))

    def prepare(self, arguments: Sequence[object], device: int, stream: int) -> Prepared:
        """Return the launch for these arguments on a GPU and a stream: packed anew, or moved to new addresses."""
        values: list[Any] = [address(each) if isinstance(each, Tensor) else each for each in arguments]
        key = self._key(arguments, values, device, stream)
        known = None if key is None else self._prepared.get(key)
        moved = None if known is None or self._moves is None else known.at(self._moves, values)
        if moved is None:
            moved = self._new(arguments, values, device, stream)
            if key is not None:
                self._prepared.put(key, moved)
        return moved

    def moving(self, prepared: Prepared, places: Mapping[int, int], addresses: Sequence[int]) -> Moving | None:
        """Return a launch that can be repeated at any addresses; None if more than the arguments depends on an address.
        prepared: from `prepare`. places: index in `addresses` of each parameter with an address, by the parameter's
        index."""
        moves = None if self._moves is None else self._moves.among(places)
        return None if moves is None or not prepared.packed.is_movable(moves) else Moving(prepared, moves, addresses)

    def _key(self, arguments: Sequence[object], values: Sequence[Any], device: int, stream: int) -> Hashable | None:
        """Return a launch's inputs except addresses; None if a value is no integer, as 0.0 and -0.0 compare equal."""
        key: list[Any] = [device, stream, len(arguments)]
        for parameter, each, value in zip(self.bundle.plan.parameters, arguments, values):
            if type(value) is not int:
                return None
            moves = parameter.type == "pointer" and isinstance(each, Tensor)
            if not moves:
                key.append(value)
                continue
            lies = not parameter.row_major or each.is_contiguous() or (each.shape, each.stride())  # type: ignore[attr-defined]
            key += (each.dtype, value & LAST_BITS, lies)  # type: ignore[attr-defined]
        return tuple(key)

    def _new(self, arguments: Sequence[object], values: Sequence[Any], device: int, stream: int) -> Prepared:
        self.bundle.plan.require_operands(self.bundle.name, arguments)
        launch = self.bundle.plan.evaluate(values)
        function = self._function(device, int(launch.dynamic_shared_bytes))
        return Prepared.of(self.bundle.name, function, launch, device, stream)

    def _function(self, device: int, dynamic_shared_bytes: int) -> int:
        """Return the kernel's handle, after loading the kernel on the GPU and allowing its shared memory."""
        if self._ready.get(device, -1) < dynamic_shared_bytes:
            with self._lock, driver.active(device), driver.capture_relaxed():
                self._load_for(device, dynamic_shared_bytes)
        return int(self._kernel)

    def _load_for(self, device: int, dynamic_shared_bytes: int) -> None:
        name, kernel = self.bundle.name, self.bundle.plan.kernel
        if self._kernel is None:
            self._library = _library(self.bundle, device)
            self._kernel = driver.call(
                "cuLibraryGetKernel", f"find {kernel} in the cubin of {name}", self._library, kernel.encode()
            )
        # loaded before the first launch, as loading during a capture fails in torch's default mode
        driver.call("cuKernelGetFunction", f"load {name} on GPU {device}", self._kernel)
        _allow_shared_memory(self._kernel, device, dynamic_shared_bytes, name)
        self._ready[device] = dynamic_shared_bytes


def _library(bundle: Bundle, device: int) -> Any:
    """Load the cubin into the driver and return its CUlibrary."""
    gpu = gpu_at(device)
    if gpu.arch != bundle.target:
        raise UnsupportedError(
            f"{bundle.name} was compiled for {bundle.target} and GPU {device} is an {gpu.name}, which runs {gpu.arch}; "
            f"compile it with target={gpu.arch!r}."
        )
    attempted = f"load the cubin of {bundle.name} ({len(bundle.cubin)} bytes, {bundle.target})"
    return driver.call("cuLibraryLoadData", attempted, bundle.cubin, None, None, 0, None, None, 0)


def _allow_shared_memory(kernel: Any, device: int, nbytes: int, name: str) -> None:
    """Allow more than 48 KiB of dynamic shared memory, which is an opt-in (CUDA Programming Guide, "Shared Memory")."""
    gpu = gpu_at(device)
    have = gpu.shared_memory_per_block_bytes
    if nbytes > have:
        raise UnsupportedError(
            f"{name} needs {nbytes} bytes of dynamic shared memory and a CTA on GPU {device}, an {gpu.name}, can have "
            f"{have}; compile it with a smaller tile or fewer stages."
        )
    attribute = driver.bindings().CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
    attempted = f"allow {name} {nbytes} bytes of dynamic shared memory on GPU {device}"
    driver.call("cuKernelSetAttribute", attempted, attribute, nbytes, kernel, driver.device_handle(device))
