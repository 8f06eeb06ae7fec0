"""GPUs and driver of this machine, as the CUDA driver reports them.

Features without a driver attribute: PTX ISA, "Target ISA Notes" of wgmma.mma_async (sm_90a), of tcgen05 (sm_100a,
sm_103a and sm_110a, once called sm_101a) and of clusterlaunchcontrol (sm_100 and above).
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from blackwell_matmul.base.errors import DriverError, UnsupportedError
from blackwell_matmul.base.validation import spelled

NO_DEVICE = "CUDA_ERROR_NO_DEVICE"

Capability = tuple[int, int]

_WGMMA: frozenset[Capability] = frozenset({(9, 0)})
_TCGEN05: frozenset[Capability] = frozenset({(10, 0), (10, 3), (11, 0)})
_BLOCK_SCALE: frozenset[Capability] = frozenset({(12, 0), (12, 1)})
_CLC: frozenset[Capability] = _TCGEN05 | _BLOCK_SCALE
_KNOWN: frozenset[Capability] = frozenset({(8, 0), (8, 6), (8, 7), (8, 9)}) | _WGMMA | _CLC


@dataclass(frozen=True)
class DetectedGpu:
    """A GPU of this machine. Clocks are maximum clocks; memory_bytes is the total memory that the driver reports."""

    index: int
    name: str
    compute_capability: Capability
    sm_count: int
    memory_bytes: int
    shared_memory_per_block_bytes: int
    sm_clock_mhz: float
    memory_clock_mhz: float
    tensor_maps: bool
    clusters: bool

    @property
    def arch(self) -> str:
        """Return the compilation target. From sm_90 on, the target has the suffix of its own features: "sm_90a"."""
        major, minor = self.compute_capability
        return f"sm_{major}{minor}{'a' if major >= 9 else ''}"

    @property
    def features(self) -> Mapping[str, bool | None]:
        """Return True for each feature of the GPU, by its name in `gpus.FEATURES`.

        False: the GPU lacks the feature. None: the GPU's compute capability is unknown to this version.
        """
        asked = {"tma": self.tensor_maps, "clusters": self.clusters}
        by_target = {"tcgen05": _TCGEN05, "wgmma": _WGMMA, "clc": _CLC, "block_scale": _BLOCK_SCALE}
        known = self.compute_capability in _KNOWN
        looked_up = {name: self.compute_capability in have if known else None for name, have in by_target.items()}
        return MappingProxyType({**asked, **looked_up})


@dataclass(frozen=True)
class Driver:
    """The CUDA driver of this machine.

    bindings: True if cuda.bindings can be imported. error: reason of a failed import. cuda: newest CUDA version that
    the driver supports; None without a driver. refusal: name of cuInit's error code; "": cuInit succeeded.
    """

    bindings: bool = True
    error: str = ""
    cuda: tuple[int, int] | None = None
    refusal: str = ""

    @property
    def ready(self) -> bool:
        return self.cuda is not None and not self.refusal


def find_driver() -> Driver:
    """Return the driver's state; never raise."""
    try:
        driver = importlib.import_module("cuda.bindings.driver")
    except ModuleNotFoundError:
        return Driver(bindings=False)
    except Exception as error:  # the package was built for another Python or another library
        return Driver(bindings=False, error=spelled(error))
    try:
        _, version = driver.cuDriverGetVersion()
        (code,) = driver.cuInit(0)
    except Exception:  # cuda-python raises classes of its own if libcuda is missing or broken
        return Driver()
    cuda = (int(version) // 1000, int(version) % 1000 // 10)
    return Driver(cuda=cuda, refusal="" if not int(code) else str(getattr(code, "name", int(code))))


def detect() -> tuple[DetectedGpu, ...]:
    """Return the GPUs in the driver's order; an empty tuple without a driver or a visible GPU.

    Raises DriverError if the driver refuses to start.
    """
    found = find_driver()
    if found.cuda is None or found.refusal == NO_DEVICE:
        return ()
    from blackwell_matmul.hardware import driver

    count = int(driver.call("cuDeviceGetCount", "count the GPUs"))
    return tuple(_gpu(index) for index in range(count))


def require_gpu() -> None:
    """Raise UnsupportedError if this machine has no GPU; the message names commands that work without a GPU."""
    if not detect():
        raise UnsupportedError(
            "measuring takes a GPU, and this machine has none that a CUDA driver names; `blackwell-matmul run v1` "
            "simulates a kernel here, and `bench --compile-only` compiles what another machine will measure."
        )


def alone(index: int) -> dict[str, str]:
    """Return the environment variable that makes only this GPU visible to a process, as a dict."""
    from blackwell_matmul.hardware import driver

    return {"CUDA_VISIBLE_DEVICES": driver.device_uuid(index)}


def _gpu(index: int) -> DetectedGpu:
    from blackwell_matmul.hardware import driver

    def asked(name: str) -> int:
        return driver.device_attribute(index, name)

    handle = driver.device_handle(index)
    return DetectedGpu(
        index=index,
        name=driver.device_name(index),
        compute_capability=(asked("COMPUTE_CAPABILITY_MAJOR"), asked("COMPUTE_CAPABILITY_MINOR")),
        sm_count=asked("MULTIPROCESSOR_COUNT"),
        memory_bytes=int(driver.call("cuDeviceTotalMem", f"read the memory of GPU {index}", handle)),
        shared_memory_per_block_bytes=asked("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
        sm_clock_mhz=asked("CLOCK_RATE") / 1000,
        memory_clock_mhz=asked("MEMORY_CLOCK_RATE") / 1000,
        tensor_maps=_supports(index, "TENSOR_MAP_ACCESS_SUPPORTED"),
        clusters=_supports(index, "CLUSTER_LAUNCH"),
    )


def _supports(index: int, name: str) -> bool:
    """Return True if a GPU and its driver support a feature. An older driver, which does not know it, supports none."""
    from blackwell_matmul.hardware import driver

    try:
        return bool(driver.device_attribute(index, name))
    except DriverError:
        return False
