"""Entry points of the CUDA runtime, each a function with CUDA's name (CUDA runtime API reference manual).

Most have the arguments and the effect of a driver entry point, and most error codes are equal. nvcc's host code calls
the functions with two underscores (`crt/host_runtime.h` of the CUDA toolkit).
"""

from __future__ import annotations

from collections.abc import Callable

from blackwell_matmul.emulator.cuda_runtime import driver_calls
from blackwell_matmul.emulator.cuda_runtime.host import Function, Host, LoadedModule, Refused, extents
from blackwell_matmul.emulator.loading import MAX_BLOCK, MAX_GRID, MAX_SHARED_BYTES, MAX_THREADS, LaunchShape

RUNTIME_NOTHING = (
    "cudaSetDevice", "cudaSetDeviceFlags", "cudaInitDevice", "cudaDeviceSynchronize", "cudaThreadSynchronize",
    "cudaDeviceReset", "cudaDeviceSetLimit", "cudaDeviceSetCacheConfig", "cudaDeviceSetSharedMemConfig",
    "cudaDeviceEnablePeerAccess", "cudaStreamDestroy", "cudaStreamSynchronize", "cudaStreamQuery",
    "cudaStreamWaitEvent", "cudaStreamAttachMemAsync", "cudaEventDestroy", "cudaEventSynchronize", "cudaEventQuery",
    "cudaFuncSetCacheConfig", "cudaFuncSetSharedMemConfig", "cudaMemAdvise", "cudaMemPrefetchAsync",
    "cudaLibraryUnload", "cudaProfilerStart", "cudaProfilerStop", "cudaMemPoolSetAttribute", "cudaMemPoolTrimTo",
    "cudaThreadExchangeStreamCaptureMode", "__cudaRegisterFatBinaryEnd", "__cudaUnregisterFatBinary",
    "__cudaInitModule", "cudaGraphDestroy", "cudaGraphExecDestroy", "cudaGraphUpload",
)  # fmt: skip
"""Entry points that do nothing and succeed."""

RUNTIME_HANDLES = ("cudaStreamCreate", "cudaStreamCreateWithFlags", "cudaStreamCreateWithPriority", "cudaEventCreate",
           "cudaEventCreateWithFlags", "cudaMemPoolCreate")  # fmt: skip
"""Entry points that only return a new handle."""

AS_THE_DRIVER = {
    "cudaDriverGetVersion": "cuDriverGetVersion", "cudaRuntimeGetVersion": "cuDriverGetVersion",
    "cudaGetDeviceCount": "cuDeviceGetCount", "cudaGetDevice": "cuCtxGetDevice",
    "cudaDeviceGetAttribute": "cuDeviceGetAttribute", "cudaMemGetInfo": "cuMemGetInfo",
    "cudaDeviceGetStreamPriorityRange": "cuCtxGetStreamPriorityRange",
    "cudaDeviceCanAccessPeer": "cuDeviceCanAccessPeer", "cudaDeviceGetDefaultMemPool": "cuDeviceGetDefaultMemPool",
    "cudaMallocPitch": "cuMemAllocPitch",
    "cudaFree": "cuMemFree", "cudaFreeAsync": "cuMemFree", "cudaFreeHost": "cuMemFreeHost",
    "cudaMallocHost": "cuMemHostAlloc", "cudaHostAlloc": "cuMemHostAlloc", "cudaMallocManaged": "cuMemHostAlloc",
    "cudaHostRegister": "cuMemHostRegister", "cudaHostUnregister": "cuMemHostUnregister",
    "cudaHostGetDevicePointer": "cuMemHostGetDevicePointer",
    "cudaMemcpy": "cuMemcpy", "cudaMemcpyAsync": "cuMemcpy", "cudaMemset": "cuMemsetD8",
    "cudaMemsetAsync": "cuMemsetD8", "cudaEventRecord": "cuEventRecord", "cudaEventRecordWithFlags": "cuEventRecord",
    "cudaEventElapsedTime": "cuEventElapsedTime", "cudaStreamIsCapturing": "cuStreamIsCapturing",
    "cudaStreamGetCaptureInfo": "cuStreamIsCapturing", "cudaStreamBeginCapture": "cuStreamBeginCapture",
    "cudaStreamEndCapture": "cuStreamEndCapture", "cudaGraphInstantiate": "cuGraphInstantiate",
    "cudaGraphInstantiateWithFlags": "cuGraphInstantiate", "cudaGraphLaunch": "cuGraphLaunch",
    "cudaStreamAddCallback": "cuStreamAddCallback", "cudaLaunchHostFunc": "cuLaunchHostFunc",
    "cudaLibraryLoadData": "cuModuleLoadData", "cudaLibraryLoadFromFile": "cuModuleLoad",
    "cudaLibraryGetKernel": "cuModuleGetFunction", "cudaLibraryGetGlobal": "cuModuleGetGlobal",
    "cudaLibraryGetKernelCount": "cuLibraryGetKernelCount",
    "cudaLibraryEnumerateKernels": "cuLibraryEnumerateKernels",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessor": "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cudaOccupancyMaxActiveBlocksPerMultiprocessorWithFlags": "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cudaOccupancyMaxActiveClusters": "cuOccupancyMaxActiveClusters",
    "cudaOccupancyMaxPotentialClusterSize": "cuOccupancyMaxPotentialClusterSize",
    "cudaOccupancyAvailableDynamicSMemPerBlock": "cuOccupancyAvailableDynamicSMemPerBlock",
}  # fmt: skip
"""Runtime entry points with the arguments and the effect of a driver entry point."""

# --- errors and the device


def cudaGetLastError(host: Host) -> int:
    code, host.last = host.last, 0
    return code


def cudaPeekAtLastError(host: Host) -> int:
    return host.last


def cudaGetErrorString(host: Host, error: int) -> int:
    return host.text(driver_calls.error_text(error & 0xFFFFFFFF))


def cudaGetErrorName(host: Host, error: int) -> int:
    name = driver_calls.ERRORS.get(error & 0xFFFFFFFF, ("Unknown", ""))[0]
    return host.text(f"cuda{'Error' * (error & 0xFFFFFFFF != 0)}{name.title().replace('_', '')}")


def cudaGetDeviceProperties(host: Host, place: int) -> None:
    _properties(host, place, {384: host.gpu.sms, 596: 50 << 20, 604: 2048, 624: MAX_SHARED_BYTES + 1024, 668: 1,
                              672: MAX_SHARED_BYTES, 748: 1}, 1008)  # fmt: skip


def cudaGetDeviceProperties_v2(host: Host, place: int) -> None:
    """Write the cudaDeviceProp of CUDA 12, in which some fields have other offsets."""
    _properties(host, place, {348: 1_000_000, 388: host.gpu.sms}, 1032)


def _properties(host: Host, place: int, more: dict[int, int], nbytes: int) -> None:
    """Write a cudaDeviceProp. more: further 32-bit fields by offset; fields that are not listed are zero."""
    major, minor = divmod(host.gpu.architecture, 10)
    words = {304: 65536, 308: 32, 320: MAX_THREADS, 360: major, 364: minor}
    words |= {324 + 4 * axis: extent for axis, extent in enumerate((*MAX_BLOCK, *MAX_GRID))}
    data = bytearray(nbytes)
    data[: len(host.gpu.name)] = host.gpu.name.encode()
    for offset, value in {288: host.gpu.memory_bytes, 296: 48 << 10, 352: 64 << 10}.items():
        data[offset : offset + 8] = value.to_bytes(8, "little")
    for offset, value in (words | more).items():
        data[offset : offset + 4] = value.to_bytes(4, "little")
    host.program.write(place, data)


def cudaPointerGetAttributes(host: Host, place: int, address: int) -> None:
    kind = 2 if host.memory.has(address) else 3 if address in host.memory.pinned else 0
    host.program.put(place, "iiQQ", kind, 0, address, address)


# --- memory


def cudaMalloc(host: Host, place: int, nbytes: int) -> None:
    """Allocate device memory. A size of 0 gives a null pointer; the driver refuses this size."""
    host.program.put(place, "Q", host.allocate(nbytes) if nbytes else 0)


cudaMallocAsync = cudaMalloc


def cudaMemset2D(host: Host, place: int, pitch: int, value: int, width: int, height: int) -> None:
    for row in range(height):
        driver_calls.cuMemsetD8(host, place + row * pitch, value, width)


def cudaMemcpy2D(
    host: Host, target: int, target_pitch: int, source: int, source_pitch: int, width: int, height: int
) -> None:
    for row in range(height):
        driver_calls.cuMemcpy(host, target + row * target_pitch, source + row * source_pitch, width)


cudaMemcpy2DAsync = cudaMemcpy2D


def _symbol(host: Host, symbol: int) -> int:
    """Return the device address of a `__device__` variable, found by its host address."""
    return host.variable(*_registered(host, symbol))[0]


def cudaGetSymbolAddress(host: Host, place: int, symbol: int) -> None:
    host.program.put(place, "Q", _symbol(host, symbol))


def cudaGetSymbolSize(host: Host, place: int, symbol: int) -> None:
    host.program.put(place, "Q", host.variable(*_registered(host, symbol))[1])


def cudaMemcpyToSymbol(host: Host, symbol: int, source: int, nbytes: int, offset: int) -> None:
    driver_calls.cuMemcpy(host, _symbol(host, symbol) + offset, source, nbytes)


def cudaMemcpyFromSymbol(host: Host, target: int, symbol: int, nbytes: int, offset: int) -> None:
    driver_calls.cuMemcpy(host, target, _symbol(host, symbol) + offset, nbytes)


cudaMemcpyToSymbolAsync, cudaMemcpyFromSymbolAsync = cudaMemcpyToSymbol, cudaMemcpyFromSymbol

# --- kernels and variables of the program


def __cudaRegisterFatBinary(host: Host, wrapper: int) -> int:
    """Return a handle; the image is read when the first of its kernels or variables is needed."""
    return host.handle(_FatBinary(wrapper))


class _FatBinary:
    """A fat binary of the program, and its module after loading."""

    def __init__(self, address: int) -> None:
        self.address = address
        self.module: LoadedModule | None = None

    def load(self, host: Host) -> LoadedModule:
        self.module = self.module or host.load(self.address)
        return self.module


def __cudaRegisterFunction(host: Host, binary: int, address: int, on_device: int, name: int) -> None:
    host.registered[address] = binary, host.program.string(name)


__cudaRegisterVar = __cudaRegisterFunction


def __cudaRegisterManagedVar(
    host: Host, binary: int, pointer: int, address: int, name: int, external: int, nbytes: int
) -> None:
    """Allocate a `__managed__` variable in the program's memory, and write its initial value."""
    module, text = host.object(binary, _FatBinary).load(host), host.program.string(name)
    first = next((each.initial for each in module.parsed.variables if each.name == text), b"")
    module.kept[text] = host.pin(nbytes)
    host.program.write(module.kept[text], first.ljust(nbytes, b"\0"))
    host.program.put(pointer, "Q", module.kept[text])


def _registered(host: Host, address: int) -> tuple[LoadedModule, str]:
    if address not in host.registered:
        raise Refused(13)  # cudaErrorInvalidSymbol
    binary, name = host.registered[address]
    return host.object(binary, _FatBinary).load(host), name


def _kernel(host: Host, function: int) -> Function:
    """Return a kernel by its handle or by the address of its host function."""
    if isinstance(host.objects.get(function), Function):
        return host.object(function, Function)
    if function not in host.registered:
        raise Refused(98)  # cudaErrorInvalidDeviceFunction
    module, name = _registered(host, function)
    return module.kernel(name)


__cudaGetKernel = cudaGetKernel = cudaGetFuncBySymbol = driver_calls.give_back


def cudaFuncGetAttributes(host: Host, place: int, function: int) -> None:
    found = _kernel(host, function)
    host.program.put(place, "3Q6i", found.shared_bytes, 0, 0, found.most_threads, 32, found.architecture,
                     host.gpu.architecture, 0, found.most_dynamic_bytes)  # fmt: skip


def cudaFuncSetAttribute(host: Host, function: int, attribute: int, value: int) -> None:
    driver_calls.cuFuncSetAttribute(host, host.handle(_kernel(host, function)), attribute, value)


cudaKernelSetAttributeForDevice = cudaFuncSetAttribute


# --- launches


def __cudaPushCallConfiguration(host: Host, xy: int, z: int, block_xy: int, block_z: int, shared: int) -> None:
    host.configurations.append((xy, z, block_xy, block_z, shared))


def __cudaPopCallConfiguration(host: Host, grid: int, block: int, shared: int, stream: int) -> None:
    xy, z, block_xy, block_z, nbytes = host.configurations.pop()
    host.program.put(grid, "QI", xy, z & 0xFFFFFFFF)
    host.program.put(block, "QI", block_xy, block_z & 0xFFFFFFFF)
    host.program.put(shared, "Q", nbytes)
    host.program.put(stream, "Q", 0)


def _launches(cooperative: bool) -> Callable[..., None]:
    """Return an entry point that launches a kernel. Its grid and block are dim3, each passed in two words."""

    def launch(
        host: Host, function: int, xy: int, z: int, block_xy: int, block_z: int, parameters: int, shared: int
    ) -> None:
        grid, block = extents(xy, xy >> 32, z), extents(block_xy, block_xy >> 32, block_z)
        kernel = _kernel(host, function)
        host.launch(kernel, LaunchShape(grid, block, (1, 1, 1), shared, cooperative), host.values(kernel, parameters))

    return launch


cudaLaunchKernel, cudaLaunchCooperativeKernel = _launches(cooperative=False), _launches(cooperative=True)
__cudaLaunchKernel = cudaLaunchKernel


def cudaLaunchKernelExC(host: Host, config: int, function: int, parameters: int) -> None:
    kernel = _kernel(host, function)
    host.launch(kernel, driver_calls.configured(host, config), host.values(kernel, parameters))


cudaLaunchKernelEx = cudaLaunchKernelExC  # the name that CuTe DSL calls, with an underscore in front
