"""Entry points of the CUDA driver, each a function with CUDA's name (CUDA driver API reference manual).

A function takes the host and the call's words. It returns an error code, or None for success, or raises `Refused`.
`libraries` adds names with suffixes such as _v2 and _ptsz. All streams act as one: each call is complete when it
returns.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.emulator import tensor_map
from blackwell_matmul.emulator.cuda_runtime.host import (
    CLUSTER_DIMENSION,
    CONTEXT,
    COOPERATIVE,
    ILLEGAL_STATE,
    INVALID_VALUE,
    MAX_DYNAMIC_SHARED,
    NOT_FOUND,
    NOT_SUPPORTED,
    Function,
    Host,
    LoadedModule,
    Refused,
    extents,
)
from blackwell_matmul.emulator.loading import MAX_BLOCK, MAX_GRID, MAX_SHARED_BYTES, MAX_THREADS, LaunchShape

NOTHING = (
    "cuInit", "cuCtxSetCurrent", "cuCtxPushCurrent", "cuCtxDestroy", "cuCtxSynchronize", "cuCtxSetLimit",
    "cuCtxSetCacheConfig", "cuCtxSetSharedMemConfig", "cuCtxEnablePeerAccess", "cuCtxResetPersistingL2Cache",
    "cuDevicePrimaryCtxRelease", "cuDevicePrimaryCtxReset", "cuDevicePrimaryCtxSetFlags",
    "cuStreamDestroy", "cuStreamSynchronize", "cuStreamQuery", "cuStreamWaitEvent", "cuStreamAttachMemAsync",
    "cuStreamSetAttribute", "cuStreamCopyAttributes", "cuThreadExchangeStreamCaptureMode",
    "cuEventDestroy", "cuEventSynchronize", "cuEventQuery",
    "cuModuleUnload", "cuLibraryUnload", "cuFuncSetCacheConfig", "cuFuncSetSharedMemConfig", "cuFuncLoad",
    "cuKernelSetCacheConfig", "cuMemAdvise", "cuMemPrefetchAsync", "cuMemPoolSetAttribute", "cuMemPoolTrimTo",
    "cuMemPoolDestroy", "cuMemPoolSetAccess", "cuDeviceSetMemPool", "cuPointerSetAttribute", "cuProfilerStart",
    "cuProfilerStop", "cuGraphDestroy", "cuGraphExecDestroy", "cuGraphUpload",
)  # fmt: skip
"""Entry points that do nothing and succeed."""

HANDLES = ("cuStreamCreate", "cuStreamCreateWithPriority", "cuEventCreate", "cuMemPoolCreate")
"""Entry points that only return a new handle."""

SAME = {
    "cuMemAllocAsync": "cuMemAlloc", "cuMemAllocFromPoolAsync": "cuMemAlloc", "cuMemFreeAsync": "cuMemFree",
    "cuMemAllocHost": "cuMemHostAlloc", "cuMemAllocManaged": "cuMemHostAlloc",
    **{f"cuMemcpy{kind}{late}": "cuMemcpy" for kind in ("", "HtoD", "DtoH", "DtoD") for late in ("", "Async")
       if kind + late},
    **{f"cuMemsetD{bits}Async": f"cuMemsetD{bits}" for bits in (8, 16, 32)},
    "cuModuleLoadDataEx": "cuModuleLoadData", "cuModuleLoadFatBinary": "cuModuleLoadData",
    "cuLibraryLoadData": "cuModuleLoadData", "cuLibraryLoadFromFile": "cuModuleLoad",
    "cuLibraryGetGlobal": "cuModuleGetGlobal", "cuLibraryGetKernel": "cuModuleGetFunction",
    "cuEventRecordWithFlags": "cuEventRecord",
    "cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuGraphInstantiateWithFlags": "cuGraphInstantiate",
}  # fmt: skip
"""Entry points with the first arguments and the effect of another entry point."""

# --- entry points with one answer


def _gives(format: str, value: int) -> Callable[[Host, int], None]:
    """Return an entry point that writes this value to its pointer argument."""
    return lambda host, place: host.program.put(place, format, value)


def _gives_of(format: str, value: int) -> Callable[[Host, int, int], None]:
    """Return an entry point that ignores its first argument, a handle, and writes this value to its second, a
    pointer."""
    return lambda host, thing, place: host.program.put(place, format, value)


cuDriverGetVersion, cuCtxGetApiVersion = _gives("i", 13000), _gives_of("I", 13000)
cuDeviceGetCount, cuDeviceCanAccessPeer = _gives("i", 1), _gives("i", 0)
cuCtxCreate = cuCtxGetCurrent = cuCtxPopCurrent = cuDevicePrimaryCtxRetain = _gives("Q", CONTEXT)
cuCtxGetDevice, cuCtxGetFlags, cuCtxGetLimit = _gives("i", 0), _gives("I", 0), _gives("Q", 1024)
cuStreamGetCtx = _gives_of("Q", CONTEXT)
cuStreamGetPriority = cuStreamGetFlags = _gives_of("i", 0)
cuOccupancyMaxActiveBlocksPerMultiprocessor, cuOccupancyMaxPotentialClusterSize = _gives("i", 1), _gives("i", 8)
cuOccupancyAvailableDynamicSMemPerBlock = _gives("Q", MAX_SHARED_BYTES)


def give_back(host: Host, place: int, value: int) -> None:
    """Write the second argument to the first, a pointer."""
    host.program.put(place, "Q", value)


cuMemHostGetDevicePointer = cuLibraryGetModule = cuKernelGetFunction = give_back

# --- the driver and the device

ERRORS = {
    0: ("SUCCESS", "no error"), 1: ("INVALID_VALUE", "invalid argument"), 2: ("OUT_OF_MEMORY", "out of memory"),
    3: ("NOT_INITIALIZED", "initialization error"), 100: ("NO_DEVICE", "no CUDA-capable device is detected"),
    101: ("INVALID_DEVICE", "invalid device ordinal"), 200: ("INVALID_IMAGE", "device kernel image is invalid"),
    201: ("INVALID_CONTEXT", "invalid device context"), 400: ("INVALID_HANDLE", "invalid resource handle"),
    500: ("NOT_FOUND", "named symbol not found"), 600: ("NOT_READY", "device not ready"),
    700: ("ILLEGAL_ADDRESS", "an illegal memory access was encountered"),
    719: ("LAUNCH_FAILED", "unspecified launch failure"),
    720: ("COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch"),
    801: ("NOT_SUPPORTED", "operation not supported"),
}  # fmt: skip
"""Name and text of each error code (CUDA driver API, "CUresult")."""

UUID = b"emulated by CPU."


def error_text(code: int) -> str:
    return ERRORS.get(code, ("", f"error {code}"))[1]


def cuGetErrorString(host: Host, error: int, text: int) -> None:
    host.program.put(text, "Q", host.text(error_text(error & 0xFFFFFFFF)))


def cuGetErrorName(host: Host, error: int, text: int) -> None:
    name = ERRORS.get(error & 0xFFFFFFFF, ("UNKNOWN", ""))[0]
    host.program.put(text, "Q", host.text(f"CUDA_{'ERROR_' * (error & 0xFFFFFFFF != 0)}{name}"))


RUNTIME_TABLE = bytes.fromhex("6bd5fb6c5bf4e74a8987d93912fd9df9")
"""UUID of the table that a CUDA runtime linked into a program first requests from the driver."""


def cuGetExportTable(host: Host, table: int, uuid: int) -> None:
    """Refuse tables that only NVIDIA's libraries know; tell the user if the program contains NVIDIA's runtime."""
    host.program.put(table, "Q", 0)
    if host.program.read(uuid, len(RUNTIME_TABLE)) == RUNTIME_TABLE:
        host.tell(
            "the program contains NVIDIA's CUDA runtime, which takes no driver but NVIDIA's, so its calls fail here; "
            "nvcc -cudart shared links the one that is emulated."
        )
    raise Refused(NOT_FOUND)


def cuDeviceGet(host: Host, device: int, ordinal: int) -> None:
    if ordinal & 0xFFFFFFFF:
        raise Refused(101)
    host.program.put(device, "i", 0)


def cuDeviceGetName(host: Host, name: int, nbytes: int) -> None:
    host.program.write(name, host.gpu.name.encode()[: (nbytes & 0xFFFFFFFF) - 1] + b"\0")


def cuDeviceTotalMem(host: Host, nbytes: int) -> None:
    host.program.put(nbytes, "Q", host.gpu.memory_bytes)


def cuMemGetInfo(host: Host, free: int, total: int) -> None:
    host.program.put(free, "Q", host.gpu.memory_bytes - host.used_bytes)
    host.program.put(total, "Q", host.gpu.memory_bytes)


def cuDeviceGetUuid(host: Host, uuid: int) -> None:
    host.program.write(uuid, UUID)


def cuDeviceGetPCIBusId(host: Host, name: int, nbytes: int) -> None:
    host.program.write(name, b"0000:00:00.0"[: (nbytes & 0xFFFFFFFF) - 1] + b"\0")


def cuDeviceGetDefaultMemPool(host: Host, pool: int) -> None:
    host.program.put(pool, "Q", host.handle("the pool"))


cuDeviceGetMemPool = cuDeviceGetDefaultMemPool


def cuMemPoolGetAttribute(host: Host, pool: int, attribute: int, value: int) -> None:
    host.program.put(value, "Q", 0)


def attributes(host: Host) -> dict[int, int]:
    """Return the device's attributes by number; all others are 0 (CUDA driver API, "CUdevice_attribute")."""
    major, minor = divmod(host.gpu.architecture, 10)
    blocks = dict(zip((2, 3, 4, 5, 6, 7), (*MAX_BLOCK, *MAX_GRID)))
    ones = (19, 31, 40, 41, 78, 79, 83, 88, 89, 91, 95, 99, 115, 120, 127)
    return blocks | dict.fromkeys(ones, 1) | {
        1: MAX_THREADS, 8: 48 << 10, 9: 64 << 10, 10: 32, 11: 2**31 - 1, 12: 65536, 13: 1_000_000, 14: 512,
        16: host.gpu.sms, 36: 1_000_000, 37: 1024, 38: 50 << 20, 39: 2048, 75: major, 76: minor,
        81: MAX_SHARED_BYTES + 1024, 82: 65536, 97: MAX_SHARED_BYTES, 106: 32, 111: 1024,
    }  # fmt: skip


def cuDeviceGetAttribute(host: Host, value: int, attribute: int) -> None:
    host.program.put(value, "i", attributes(host).get(attribute & 0xFFFFFFFF, 0))


def cuDeviceComputeCapability(host: Host, major: int, minor: int) -> None:
    for place, value in zip((major, minor), divmod(host.gpu.architecture, 10)):
        host.program.put(place, "i", value)


def cuDevicePrimaryCtxGetState(host: Host, device: int, flags: int, active: int) -> None:
    host.program.put(flags, "I", 0)
    host.program.put(active, "i", 1)


# --- contexts, streams and events


def new_handle(host: Host, place: int) -> None:
    host.program.put(place, "Q", host.handle(SimpleNamespace()))


def cuCtxGetStreamPriorityRange(host: Host, least: int, greatest: int) -> None:
    host.program.put(least, "i", 0)
    host.program.put(greatest, "i", 0)


def cuStreamIsCapturing(host: Host, stream: int, status: int) -> None:
    host.program.put(status, "i", int(host.captured is not None))


cuStreamGetCaptureInfo = cuStreamIsCapturing


def cuStreamBeginCapture(host: Host, stream: int) -> None:
    if host.captured is not None:
        raise Refused(ILLEGAL_STATE)
    host.captured = []


def cuStreamEndCapture(host: Host, stream: int, graph: int) -> None:
    if host.captured is None:
        raise Refused(ILLEGAL_STATE)
    host.program.put(graph, "Q", host.handle(host.captured))
    host.captured = None


def cuGraphInstantiate(host: Host, place: int, graph: int) -> None:
    """Return a handle of the captured graph. The kernels' parameters were read at the capture."""
    host.program.put(place, "Q", host.handle(host.object(graph, list)))


def cuGraphLaunch(host: Host, graph: int) -> None:
    for work in host.object(graph, list):
        host.do(work)


def cuLaunchHostFunc(host: Host, stream: int, function: int, data: int) -> None:
    host.do(partial(host.program.call_back, function, (data,)))


def cuStreamAddCallback(host: Host, stream: int, function: int, data: int) -> None:
    host.do(partial(host.program.call_back, function, (stream, 0, data)))


def cuEventRecord(host: Host, event: int) -> None:
    host.object(event, SimpleNamespace).seconds = time.monotonic()


def cuEventElapsedTime(host: Host, milliseconds: int, start: int, end: int) -> None:
    first, last = (getattr(host.object(each, SimpleNamespace), "seconds", None) for each in (start, end))
    if first is None or last is None:
        raise Refused(400)
    host.program.put(milliseconds, "f", 1e3 * (last - first))


# --- memory


def cuMemAlloc(host: Host, place: int, nbytes: int) -> None:
    host.program.put(place, "Q", host.allocate(nbytes))


def cuMemAllocPitch(host: Host, place: int, pitch: int, width: int, height: int) -> None:
    row_bytes = -(-width // 512) * 512
    host.program.put(place, "Q", host.allocate(row_bytes * height))
    host.program.put(pitch, "Q", row_bytes)


def cuMemFree(host: Host, address: int) -> None:
    if address in host.memory.pinned:
        return cuMemFreeHost(host, address)
    host.free(address)


def cuMemHostAlloc(host: Host, place: int, nbytes: int) -> None:
    host.program.put(place, "Q", host.pin(nbytes))


def cuMemFreeHost(host: Host, address: int) -> None:
    if host.memory.pinned.pop(address, None) is not None:
        host.program.release(address)


def cuMemHostRegister(host: Host, address: int, nbytes: int) -> None:
    host.memory.pinned[address] = nbytes


def cuMemHostUnregister(host: Host, address: int) -> None:
    host.memory.pinned.pop(address, None)


def cuMemGetAddressRange(host: Host, base: int, nbytes: int, address: int) -> None:
    memory = host.memory.at(address)
    host.program.put(base, "Q", memory.base)
    host.program.put(nbytes, "Q", memory.nbytes)


def cuMemcpy(host: Host, target: int, source: int, nbytes: int) -> None:
    host.do(lambda: host.store(target, host.fetch(source, nbytes)))


def _sets(nbytes: int) -> Callable[[Host, int, int, int], None]:
    """Return an entry point that fills memory with a value of this many bytes."""

    def fill(host: Host, address: int, value: int, count: int) -> None:
        host.do(lambda: host.store(address, (value & (1 << 8 * nbytes) - 1).to_bytes(nbytes, "little") * count))

    return fill


cuMemsetD8, cuMemsetD16, cuMemsetD32 = _sets(1), _sets(2), _sets(4)


def cuPointerGetAttribute(host: Host, value: int, attribute: int, address: int) -> None:
    """Return CUDA's attributes of an address. Kernels may also access the program's own memory."""
    kind = attribute & 0xFFFFFFFF
    on_device = host.memory.has(address)
    answers = {1: CONTEXT, 2: 2 if on_device else 1, 3: address, 4: address, 6: 1, 7: 1, 8: 0, 9: 0, 11: 0, 13: 1}
    if kind not in answers:
        raise Refused(NOT_SUPPORTED)
    nbytes = 8 if kind in (1, 3, 4, 7) else 4
    host.program.write(value, answers[kind].to_bytes(nbytes, "little"))


# --- modules


def cuModuleLoadData(host: Host, place: int, image: int) -> None:
    host.program.put(place, "Q", host.handle(host.load(image)))


def cuModuleLoad(host: Host, place: int, name: int) -> None:
    path = host.program.string(name)
    try:
        with open(path, "rb") as file:
            data = file.read()
    except OSError:
        raise Refused(301) from None  # CUDA_ERROR_FILE_NOT_FOUND
    host.program.put(place, "Q", host.handle(host.load(0, data)))


def cuModuleGetFunction(host: Host, place: int, module: int, name: int) -> None:
    kernel = host.object(module, LoadedModule).kernel(host.program.string(name))
    host.program.put(place, "Q", host.handle(kernel))


def cuModuleGetGlobal(host: Host, place: int, nbytes: int, module: int, name: int) -> None:
    address, size = host.variable(host.object(module, LoadedModule), host.program.string(name))
    host.program.put(place, "Q", address)
    host.program.put(nbytes, "Q", size)


def cuLibraryGetKernelCount(host: Host, count: int, library: int) -> None:
    host.program.put(count, "I", len(host.object(library, LoadedModule).kernels))


cuModuleGetFunctionCount = cuLibraryGetKernelCount


def cuLibraryEnumerateKernels(host: Host, places: int, count: int, library: int) -> None:
    kernels = list(host.object(library, LoadedModule).kernels.values())[: count & 0xFFFFFFFF]
    host.program.put(places, f"{len(kernels)}Q", *map(host.handle, kernels))


def cuKernelGetName(host: Host, place: int, kernel: int) -> None:
    host.program.put(place, "Q", host.text(host.object(kernel, Function).entry.name))


cuFuncGetName = cuKernelGetName


def cuFuncGetModule(host: Host, place: int, function: int) -> None:
    host.program.put(place, "Q", host.handle(host.object(function, Function).module))


def cuFuncGetAttribute(host: Host, value: int, attribute: int, function: int) -> None:
    found = host.object(function, Function)
    answers = {0: found.most_threads, 1: found.shared_bytes, 4: 32, 5: found.architecture, 6: host.gpu.architecture}
    answers[MAX_DYNAMIC_SHARED] = found.most_dynamic_bytes
    number = attribute & 0xFFFFFFFF
    host.program.put(value, "i", found.attributes.get(number, answers.get(number, 0)))


cuKernelGetAttribute = cuFuncGetAttribute


def cuFuncSetAttribute(host: Host, function: int, attribute: int, value: int) -> None:
    found, number = host.object(function, Function), attribute & 0xFFFFFFFF
    if number == MAX_DYNAMIC_SHARED and (value & 0xFFFFFFFF) + found.shared_bytes > MAX_SHARED_BYTES:
        raise Refused(INVALID_VALUE)
    found.attributes[number] = value & 0xFFFFFFFF


def cuKernelSetAttribute(host: Host, attribute: int, value: int, kernel: int) -> None:
    cuFuncSetAttribute(host, kernel, attribute, value)


def cuFuncGetParamInfo(host: Host, function: int, index: int, offset: int, nbytes: int) -> None:
    parameters, at = host.object(function, Function).entry.parameters, 0
    if index >= len(parameters):
        raise Refused(INVALID_VALUE)
    for each in parameters[: index + 1]:
        at += -at % each.alignment
        start, at = at, at + (each.nbytes or 0)
    host.program.put(offset, "Q", start)
    host.program.put(nbytes, "Q", parameters[index].nbytes)


cuKernelGetParamInfo = cuFuncGetParamInfo


# --- launches


def cuLaunchKernel(
    host: Host, function: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int,
    parameters: int, extra: int,
) -> None:  # fmt: skip
    shape = LaunchShape(extents(gx, gy, gz), extents(bx, by, bz), (1, 1, 1), shared & 0xFFFFFFFF)
    kernel = host.object(function, Function)
    host.launch(kernel, shape, host.values(kernel, parameters, extra))


def cuLaunchCooperativeKernel(
    host: Host, function: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int,
    parameters: int,
) -> None:  # fmt: skip
    shape = LaunchShape(extents(gx, gy, gz), extents(bx, by, bz), (1, 1, 1), shared & 0xFFFFFFFF, cooperative=True)
    kernel = host.object(function, Function)
    host.launch(kernel, shape, host.values(kernel, parameters))


def cuLaunchKernelEx(host: Host, config: int, function: int, parameters: int, extra: int) -> None:
    kernel = host.object(function, Function)
    host.launch(kernel, configured(host, config), host.values(kernel, parameters, extra))


ATTRIBUTE_BYTES = 72
"""Bytes of a CUlaunchAttribute."""


def configured(host: Host, config: int) -> LaunchShape:
    """Return the launch shape in a CUlaunchConfig or cudaLaunchConfig_t, which have the same field offsets."""
    *sizes, shared, _, attributes, count = host.program.words(config, "7I4xQQI")
    cluster, cooperative = (1, 1, 1), False
    for index in range(count):
        kind, x, y, z = host.program.words(attributes + ATTRIBUTE_BYTES * index, "I4x3I")
        if kind == CLUSTER_DIMENSION:
            cluster = (x, y, z)
        cooperative |= kind == COOPERATIVE and x != 0
    return LaunchShape(extents(*sizes[:3]), extents(*sizes[3:]), cluster, shared, cooperative)


def _nth(table: Any, index: int, what: str) -> str:
    names = list(table)
    number = index & 0xFFFFFFFF
    if number >= len(names):
        raise InputError(f"a tensor map with {what} {number} is not emulated; there are 0 to {len(names) - 1}.")
    return str(names[number])


def cuTensorMapEncodeTiled(
    host: Host, place: int, dtype: int, rank: int, address: int, dims: int, strides: int, box: int, steps: int,
    interleave: int, swizzle: int, promotion: int, fill: int,
) -> None:  # fmt: skip
    rank &= 0xFFFFFFFF
    if not 1 <= rank <= 5:
        raise Refused(INVALID_VALUE)
    described = SimpleNamespace(
        dims=host.program.words(dims, f"{rank}Q"),
        strides_bytes=host.program.words(strides, f"{rank - 1}Q"),
        box=host.program.words(box, f"{rank}I"),
        element_strides=host.program.words(steps, f"{rank}I"),
        dtype=_nth(tensor_map.DRIVER_TYPES, dtype, "element type"),
        interleave=_nth(("NONE",), interleave, "interleave"),
        swizzle=_nth(tensor_map.SWIZZLES, swizzle, "swizzle"),
        l2_promotion=_nth(tensor_map.PROMOTIONS, promotion, "L2 promotion"),
        oob_fill=_nth(tensor_map.FILLS, fill, "fill"),
    )
    host.program.write(place, tensor_map.image(described, address))


def cuTensorMapReplaceAddress(host: Host, place: int, address: int) -> None:
    raw = host.program.read(place, tensor_map.ENCODED_MAP_BYTES)
    host.program.write(place, tensor_map.replaced(raw, "address", address))


def cuTensorMapEncodeIm2col(host: Host) -> None:
    raise InputError("a tensor map of kind im2col is not emulated; tiled ones are.")


# --- occupancy


def cuOccupancyMaxActiveClusters(host: Host, count: int, function: int, config: int) -> None:
    x, y, z = configured(host, config).cluster
    host.program.put(count, "i", host.gpu.sms // (x * y * z))


def cuOccupancyMaxPotentialBlockSize(host: Host, grid: int, block: int, function: int) -> None:
    host.program.put(grid, "i", host.gpu.sms)
    host.program.put(block, "i", host.object(function, Function).most_threads)
