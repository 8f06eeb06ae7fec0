"""GPUs: limits, features and peak rates, each figure with its source.

Sources, by the letter used below:

- G: CUDA C++ Programming Guide, "Compute Capabilities", table "Technical Specifications per Compute Capability".
- P: PTX ISA, "Target ISA Notes" of the instruction, and "Tensor Memory" for its size.
- S: reported by devices and recorded in public: pytorch/ao PR 4002 and ByteDance VeOmni PR 986 (B200, GB200, B300,
  H100, H200), Dao-AILab/quack AI/sm120_hardware.md (RTX 5090).
- D: NVIDIA's data sheet of the product. A figure that differs between boards of one name is left out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import plain_text, shown

if TYPE_CHECKING:
    from blackwell_matmul.hardware.detect import DetectedGpu


REGISTERS_PER_SM = 65536
"""32-bit registers of an SM of every GPU here (G)."""

_WARPGROUP = 128
"""Threads of a warp in each of the four partitions of an SM, which have a quarter of its registers each."""


@dataclass(frozen=True)
class Gpu:
    """A GPU's name, target, limits and rates.

    arch: the PTX target, e.g. "sm_100a". shared_memory_per_block_bytes: the most of one CTA after opting in, static and
    dynamic together. tensor_memory_columns: 32-bit columns of 128 lanes, per SM; 0 without tcgen05. features: names
    from `FEATURES`. memory_gb: device memory. memory_gb_per_s: peak memory bandwidth, 10^9 bytes a second.
    dense_fp16_tflops: fp16 or bf16 with fp32 accumulation, without sparsity. None: the data sheet does not say.
    """

    name: str
    arch: str
    compute_capability: tuple[int, int]
    sm_count: int
    shared_memory_per_block_bytes: int
    shared_memory_per_sm_bytes: int
    tensor_memory_columns: int
    features: frozenset[str]
    max_threads_per_block: int = 1024  # G, all of them
    max_threads_per_sm: int = 2048  # G
    max_registers_per_thread: int = 255  # G, all of them
    memory_gb: int | None = None
    memory_gb_per_s: int | None = None
    dense_fp16_tflops: float | None = None

    def __str__(self) -> str:
        return f"{self.name} ({self.arch})"

    def registers_per_thread(self, threads: int) -> int:
        """Return the registers of each thread of a CTA, in steps of 8: an SM's four partitions share them equally."""
        of_partition = REGISTERS_PER_SM // (-(-threads // _WARPGROUP) * _WARPGROUP) // 8 * 8
        return min(self.max_registers_per_thread, of_partition)


FEATURES: Mapping[str, str] = MappingProxyType(
    {
        "cp.async": "non-bulk asynchronous copies (P: sm_80)",
        "mbarrier": "barriers in shared memory, with phases and tx-counts (P: sm_80; tx-counts sm_90)",
        "tma": "bulk tensor copies through a tensor map (P: sm_90)",
        "clusters": "CTAs that reach one another's shared memory (P: sm_90)",
        "multicast": "one TMA load into several CTAs of a cluster (P: fast on sm_90a and sm_10x, S: not on sm_120)",
        "wgmma": "warpgroup MMA (P: sm_90a alone)",
        "tcgen05": "tensor memory and the MMAs that accumulate in it (P: sm_100a, sm_103a, sm_110a)",
        "clc": "cluster launch control (P: sm_100)",
    }
)
"""Features of GPUs, with the source of the targets that have them."""

_HOPPER = frozenset({"cp.async", "mbarrier", "tma", "clusters", "multicast", "wgmma"})
_DATA_CENTER_BLACKWELL = frozenset({"cp.async", "mbarrier", "tma", "clusters", "multicast", "tcgen05", "clc"})
# Blackwell in name, without tensor memory. PTX promises clc from sm_100 on; quack's notes say that sm_120 lacks it.
_GEFORCE_BLACKWELL = frozenset({"cp.async", "mbarrier", "tma", "clusters", "clc"})

_KIB = 1024


def _data_center_blackwell(
    name: str, arch: str, minor: int, sm_count: int, memory_gb: int | None, dense_fp16_tflops: float | None
) -> Gpu:
    return Gpu(
        name=name,
        arch=arch,
        compute_capability=(10, minor),
        memory_gb_per_s=8000,  # D, rounded; S, from bus and clock: 7670
        sm_count=sm_count,
        shared_memory_per_block_bytes=227 * _KIB,  # G
        shared_memory_per_sm_bytes=228 * _KIB,  # G
        tensor_memory_columns=512,  # P
        features=_DATA_CENTER_BLACKWELL,
        memory_gb=memory_gb,
        dense_fp16_tflops=dense_fp16_tflops,
    )


def _hopper(name: str, memory_gb: int, memory_gb_per_s: int) -> Gpu:
    return Gpu(
        name=name,
        arch="sm_90a",
        compute_capability=(9, 0),
        sm_count=132,  # S: SXM; the PCIe board has fewer
        shared_memory_per_block_bytes=227 * _KIB,  # G
        shared_memory_per_sm_bytes=228 * _KIB,  # G
        tensor_memory_columns=0,  # P
        features=_HOPPER,
        memory_gb=memory_gb,
        memory_gb_per_s=memory_gb_per_s,
        dense_fp16_tflops=989,  # D: SXM
    )


def _geforce_blackwell(
    name: str,
    arch: str,
    minor: int,
    sm_count: int,
    memory_gb: int,
    memory_gb_per_s: int,
    dense_fp16_tflops: float | None,
) -> Gpu:
    return Gpu(
        name=name,
        arch=arch,
        compute_capability=(12, minor),
        sm_count=sm_count,
        shared_memory_per_block_bytes=99 * _KIB,  # G
        shared_memory_per_sm_bytes=100 * _KIB,  # G
        tensor_memory_columns=0,  # P
        features=_GEFORCE_BLACKWELL,
        max_threads_per_sm=1536,  # G
        memory_gb=memory_gb,
        memory_gb_per_s=memory_gb_per_s,
        dense_fp16_tflops=dense_fp16_tflops,
    )


_ALL = (
    # SMs: S. Memory: D, HGX B200. TFLOPS: D, half of the figure with sparsity; of B300, its boards differ.
    _data_center_blackwell("B200", "sm_100a", minor=0, sm_count=148, memory_gb=180, dense_fp16_tflops=2250),
    _data_center_blackwell("GB200", "sm_100a", minor=0, sm_count=152, memory_gb=None, dense_fp16_tflops=2500),
    _data_center_blackwell("B300", "sm_103a", minor=3, sm_count=148, memory_gb=None, dense_fp16_tflops=None),
    _hopper("H100", memory_gb=80, memory_gb_per_s=3350),  # D, SXM
    _hopper("H200", memory_gb=141, memory_gb_per_s=4800),  # D
    # SMs: S; of GB10, D (DGX Spark: 6144 cores, 128 an SM). TFLOPS: D.
    _geforce_blackwell(
        "RTX 5090",
        "sm_120a",
        minor=0,
        sm_count=170,
        memory_gb=32,
        memory_gb_per_s=1792,
        dense_fp16_tflops=209.5,
    ),
    _geforce_blackwell(
        "GB10",
        "sm_121a",
        minor=1,
        sm_count=48,
        memory_gb=128,
        memory_gb_per_s=273,
        dense_fp16_tflops=None,
    ),
)

GPUS: Mapping[str, Gpu] = MappingProxyType({gpu.name: gpu for gpu in _ALL})
"""GPUs by name. The first of several with one `arch` stands for it."""

_OF_TARGET = {arch: next(gpu for gpu in _ALL if gpu.arch == arch) for arch in dict.fromkeys(gpu.arch for gpu in _ALL)}


def gpu_for_target(target: str) -> Gpu:
    """Return the GPU that stands for a target such as "sm_100a"; raise InputError, with valid targets, if none does."""
    found = _OF_TARGET.get(plain_text(target) or "")
    if found is None:
        raise InputError(f"target is {shown(target)}; the targets with a known GPU are {', '.join(_OF_TARGET)}.")
    return found


OTHER_TARGETS = (
    *("sm_70", "sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90", "sm_100", "sm_100f", "sm_103", "sm_103f"),
    *("sm_110", "sm_110f", "sm_110a", "sm_120", "sm_120f", "sm_121", "sm_121f"),
)
"""Other targets that tilus compiles for."""


def by_name(text: object) -> Gpu | None:
    """Return the GPU of this name, such as "H200" or "h200"; None for anything else."""
    name = (plain_text(text) or "").casefold()
    return next((gpu for gpu in _ALL if gpu.name.casefold() == name), None)


def board(gpu: Gpu) -> Gpu | None:
    """Return the GPU of the table with this name and SM count, or None: an "H100 80GB HBM3" of 132 SMs is an H100."""
    alike = (each for each in GPUS.values() if each.sm_count == gpu.sm_count)
    return next((each for each in alike if f"{gpu.name} ".startswith(f"{each.name} ")), None)


OTHER_NAMES: Mapping[str, str] = MappingProxyType(
    {"GB300": "sm_103a", "DGX Spark": "sm_121a", "RTX PRO 6000": "sm_120a", "H800": "sm_90a", "GH200": "sm_90a"}
)
"""Targets of the GPUs without a row here: their limits and figures are not known.

GB300, RTX PRO 6000: S. DGX Spark: NVIDIA/cutlass issue 2802. H800: HPMLL/NVIDIA-Hopper-Benchmark, which compiles for
sm_90a. GH200: a Hopper GPU by its data sheet (D)."""

_TARGETS = {gpu.name.casefold(): gpu.arch for gpu in _ALL}
_TARGETS.update((name.casefold(), arch) for name, arch in OTHER_NAMES.items())


def target_of(name: object) -> str | None:
    """Return the target of the GPU of this name; None for anything else."""
    return _TARGETS.get((plain_text(name) or "").casefold())


def target_named(text: str) -> str:
    """Return the target of the GPU of this name, or a target as it is; raise InputError for anything else."""
    return text if text in OTHER_TARGETS else target_of(text) or gpu_named(text).arch


WITH_TCGEN05 = ("sm_100", "sm_103", "sm_110")
"""Prefixes of the targets for which PTX has tcgen05 (P)."""


def gpu_named(text: str) -> Gpu:
    """Return the GPU of this name, such as "H200", or the one of this target; raise InputError for anything else."""
    found = by_name(text) or _OF_TARGET.get(plain_text(text) or "")
    if found is None:
        names, targets, arch = ", ".join(GPUS), ", ".join(_OF_TARGET), target_of(text)
        known = f" ({arch}), of which only the target is known here" if arch else ""
        raise InputError(f"target is {shown(text)}{known}; it must be a GPU ({names}) or a target ({targets}).")
    return found


def lacking(arch: str, feature: str) -> str:
    """Return words of a sentence: a target lacks the instructions of a feature, and these GPUs have them."""
    *others, last = (gpu.name for gpu in GPUS.values() if feature in gpu.features)
    have = f"{', '.join(others)} and {last} have" if others else f"{last} has"
    return f"{with_gpus(arch)} has no {_AS_WRITTEN.get(feature, feature)} instructions; {have} them"


def with_gpus(arch: str) -> str:
    """Return a target with all GPUs of it, such as "sm_90a (H100, H200)"."""
    names = ", ".join(gpu.name for gpu in GPUS.values() if gpu.arch == arch)
    return f"{arch} ({names})" if names else arch


_AS_WRITTEN = {"tma": "TMA"}


def detect() -> tuple[DetectedGpu, ...]:
    """Return the GPUs of this machine, as the driver reports them; none if there is no GPU or no driver."""
    from blackwell_matmul.hardware.detect import detect as detected

    return detected()
