"""Copied for an emulated Python program whose torch has no CUDA: the device "cuda" becomes the program's memory.

The emulated GPU accesses the program's memory, so a kernel's operand may be a CPU tensor. torch computes its own
operations on the CPU. This module imports nothing of this project.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import time
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

TENSOR_ALIGNMENT_BYTES = 512
"""Alignment of memory from cudaMalloc."""

IS_CUDA = vars(torch._C.TensorBase)["is_cuda"].__get__
"""Getter of `is_cuda`, which returns True for every tensor here, as kernels can access all tensors."""


CUDA_DEVICE = (2, 0)
"""Kind and number of a GPU in DLPack."""

DEVICE_PLACES = {b"dltensor": 8, b"dltensor_versioned": 40}
"""Offsets of the device in DLPack's structures, old and new."""


class OnCpu(TorchFunctionMode):
    """Replaces the device "cuda" by "cpu" in each call of torch."""

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if function is torch.device:
            return function(*args, **kwargs)
        if function == torch.Tensor.cuda:
            return in_region(args[0])
        if function == torch.Tensor.cpu:
            return args[0].clone()
        if function == IS_CUDA:
            return True
        if function == torch.Tensor.__dlpack_device__:
            return CUDA_DEVICE
        if function == torch.Tensor.__dlpack__:
            return on_gpu(function(*args, **kwargs | {"stream": None}))
        values = (*args, *kwargs.values())
        if function is torch._scaled_mm and has_block_scales(*args, **kwargs):
            return in_region(block_scaled_product(*args, **kwargs))
        result = function(*map(on_cpu, args), **{name: on_cpu(value) for name, value in kwargs.items()})
        if any(map(is_cuda, values)):
            return in_region(result)
        if any(map(is_host, values)):
            return result.clone() if has_region(result) else result
        if has_region(result) or not any(map(has_region, values)):
            return result
        return in_region(result)  # the result of a tensor on the GPU


REGIONS: set[int] = set()
"""Start addresses of all tensors on the emulated GPU."""


class GuardedMemory(mmap.mmap):
    """Memory of one tensor on the emulated GPU, followed by an inaccessible page. place: address of the first byte."""

    place = 0

    def __del__(self) -> None:
        if self.place:
            REGIONS.discard(self.place)
            ctypes.CDLL("libcuda.so.1").cuMemHostUnregister(ctypes.c_void_p(self.place))


def in_region(tensor: Any) -> Any:
    """Return a tensor's copy in memory of its own, registered with the emulated GPU: aligned, with known bounds."""
    is_plain = type(tensor) is torch.Tensor and tensor.layout == torch.strided and not tensor.requires_grad
    if not is_plain or not tensor.numel() or tensor.device.type != "cpu":
        return tensor.clone() if isinstance(tensor, torch.Tensor) else tensor
    compact = tensor.clone()
    nbytes = compact.untyped_storage().nbytes()
    made = torch.empty(0, dtype=tensor.dtype).set_(storage(nbytes), 0, compact.size(), compact.stride())
    return made.copy_(compact)


def storage(nbytes: int) -> Any:
    """Return a torch storage in memory of its own, registered with the emulated driver."""
    room = -(-nbytes // TENSOR_ALIGNMENT_BYTES) * TENSOR_ALIGNMENT_BYTES
    pages = -(-room // mmap.PAGESIZE) * mmap.PAGESIZE
    region = GuardedMemory(-1, pages + mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(region))
    ctypes.CDLL(None).mprotect(ctypes.c_void_p(start + pages), mmap.PAGESIZE, 0)
    region.place = start + pages - room
    REGIONS.add(region.place)
    ctypes.CDLL("libcuda.so.1").cuMemHostRegister_v2(ctypes.c_void_p(region.place), ctypes.c_size_t(nbytes), 0)
    return torch.frombuffer(region, dtype=torch.uint8, count=nbytes, offset=pages - room).untyped_storage()


def on_gpu(capsule: Any) -> Any:
    """Return a DLPack capsule whose device is changed to the GPU, so that importers treat its pointers as global."""
    name = ctypes.pythonapi.PyCapsule_GetName
    name.restype, name.argtypes = ctypes.c_char_p, [ctypes.py_object]
    pointer = ctypes.pythonapi.PyCapsule_GetPointer
    pointer.restype, pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
    start = pointer(capsule, name(capsule)) + DEVICE_PLACES[name(capsule)]
    (ctypes.c_int32 * 2).from_address(start)[:] = list(CUDA_DEVICE)
    return capsule


def has_region(value: Any) -> bool:
    return type(value) is torch.Tensor and value.device.type == "cpu" and address(value) in REGIONS


def address(tensor: Any) -> int:
    return tensor.untyped_storage().data_ptr() if tensor.layout == torch.strided else 0


def is_host(value: Any) -> bool:
    return isinstance(value, (str, torch.device)) and str(value) == "cpu"


def is_cuda(value: Any) -> bool:
    return isinstance(value, (str, torch.device)) and str(value).partition(":")[0] == "cuda"


def on_cpu(value: Any) -> Any:
    return torch.device("cpu") if is_cuda(value) else value


# --- products with block scales, which torch has on a GPU alone

BLOCKS = {torch.float8_e8m0fnu: 32, torch.float8_e4m3fn: 16}
"""Number of elements along K that share a scale, by the scales' type."""

E2M1 = torch.tensor([0, 0.5, 1, 1.5, 2, 3, 4, 6, -0.0, -0.5, -1, -1.5, -2, -3, -4, -6], dtype=torch.float64)
"""Values of fp4 by their code (OCP Microscaling Formats v1.0)."""


def has_block_scales(a: Any, b: Any, scale_a: Any, scale_b: Any, *_: Any, **options: Any) -> bool:
    return scale_a.dtype in BLOCKS and scale_b.dtype in BLOCKS


def block_scaled_product(
    a: Any, b: Any, scale_a: Any, scale_b: Any, bias: Any = None, scale_result: Any = None,
    out_dtype: Any = torch.bfloat16, use_fast_accum: bool = False,
) -> Any:  # fmt: skip
    """Return the product of the dequantised operands, summed in float64 and rounded once."""
    product = dequantised(a, scale_a) @ dequantised(b.mT, scale_b).mT
    return (product if bias is None else product + bias.double()).to(out_dtype or torch.bfloat16)


def dequantised(data: Any, scales: Any) -> Any:
    """Return data times scales as float64, rows x K. scales: in blocks of 128 rows and 4 scales (torch's
    `SWIZZLE_32_4_4`)."""
    if data.dtype == torch.float4_e2m1fn_x2:
        pairs = data.view(torch.uint8)
        values = E2M1[torch.stack([pairs & 15, pairs >> 4], -1).flatten(-2).long()]
    else:
        values = data.double()
    block, rows = BLOCKS[scales.dtype], values.shape[0]
    atoms = scales.flatten().view(-(-rows // 128), -1, 32, 4, 4).view(torch.uint8)
    factors = atoms.permute(0, 3, 2, 1, 4).flatten(0, 2).flatten(1).view(scales.dtype).double()
    return values * factors[:rows].repeat_interleave(block, 1)[:, : values.shape[1]]


class Stream:
    """The only CUDA stream; each call is complete when it returns."""

    cuda_stream = 0
    device = torch.device("cuda", 0)

    def __init__(self, *args: Any, **options: Any) -> None:
        pass

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: Any) -> None:
        pass

    def nothing(self, *_: Any) -> None:
        """Do nothing."""

    synchronize = wait_stream = wait_event = nothing

    def record_event(self, event: Any = None) -> Any:
        event = event or Moment()
        event.record()
        return event


class Moment:
    """A CUDA event: a time in seconds of this machine."""

    cuda_event = 0

    def __init__(self, *args: Any, **options: Any) -> None:
        self.seconds = 0.0

    def record(self, stream: Any = None) -> None:
        self.seconds = time.monotonic()

    def elapsed_time(self, end: Moment) -> float:
        return 1e3 * (end.seconds - self.seconds)

    def query(self) -> bool:
        return True

    def synchronize(self) -> None:
        """Do nothing."""

    wait = record


class Graph:
    """A CUDA graph of the emulated driver. replay runs the kernels launched during the capture. Torch's own operations
    run once, during the capture."""

    def __init__(self, *args: Any, **options: Any) -> None:
        self.recorded, self.runnable = ctypes.c_void_p(), ctypes.c_void_p()

    def capture_begin(self, *args: Any, **options: Any) -> None:
        driver().cuStreamBeginCapture(None, 0)

    def capture_end(self) -> None:
        driver().cuStreamEndCapture(None, ctypes.byref(self.recorded))
        driver().cuGraphInstantiate(ctypes.byref(self.runnable), self.recorded, ctypes.c_ulonglong(0))

    def replay(self) -> None:
        driver().cuGraphLaunch(self.runnable, None)

    def reset(self) -> None:
        """Do nothing."""


@contextlib.contextmanager
def recorded(graph: Graph, *args: Any, **options: Any) -> Iterator[None]:
    """Capture the kernels launched in the block, as `torch.cuda.graph` does."""
    graph.capture_begin()
    yield
    graph.capture_end()


def driver() -> ctypes.CDLL:
    return ctypes.CDLL("libcuda.so.1")


def attribute(number: int) -> int:
    """Return an attribute of the emulated GPU by CUDA's number."""
    value = ctypes.c_int()
    driver().cuDeviceGetAttribute(ctypes.byref(value), number, 0)
    return value.value


def properties(device: Any = None) -> SimpleNamespace:
    major, minor = attribute(75), attribute(76)
    return SimpleNamespace(
        name=f"emulated sm_{major}{minor}", major=major, minor=minor, multi_processor_count=attribute(16),
        total_memory=8 << 30, shared_memory_per_block=attribute(8), shared_memory_per_block_optin=attribute(97),
        max_threads_per_multi_processor=attribute(39), regs_per_multiprocessor=attribute(82), warp_size=32,
        L2_cache_size=attribute(38),
    )  # fmt: skip


def adapt() -> None:
    """Replace functions of torch.cuda by those of the emulated GPU."""

    def nothing(*_: Any, **__: Any) -> None:
        pass

    stream = Stream()
    answers: dict[str, Any] = {
        "is_available": lambda: True, "is_initialized": lambda: True, "device_count": lambda: 1,
        "current_device": lambda: 0, "get_device_name": lambda device=None: properties().name,
        "get_device_capability": lambda device=None: (attribute(75), attribute(76)),
        "get_device_properties": properties, "current_stream": lambda device=None: stream,
        "default_stream": lambda device=None: stream, "stream": lambda other: contextlib.nullcontext(),
        "device": lambda device: contextlib.nullcontext(), "mem_get_info": lambda device=None: (8 << 30, 8 << 30),
        "is_current_stream_capturing": lambda: False, "Stream": Stream, "Event": Moment,
        "CUDAGraph": Graph, "graph": recorded,
        "memory_allocated": lambda device=None: 0, "max_memory_allocated": lambda device=None: 0,
    }  # fmt: skip
    silent = ("init", "synchronize", "set_device", "empty_cache", "manual_seed", "manual_seed_all", "set_stream",
              "reset_peak_memory_stats")  # fmt: skip
    for name, value in (answers | dict.fromkeys(silent, nothing)).items():
        setattr(torch.cuda, name, value)
    torch._C._cuda_getCurrentRawStream = lambda device: 0
    OnCpu().__enter__()
