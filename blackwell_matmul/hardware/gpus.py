"""GPUs: limits, features and peak rates. figures/limits.toml has the numbers, each with its source.

figures/sources.toml says what a source's letters, such as (P), stand for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from blackwell_matmul.base.data_files import entries, filled, read
from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import plain_text, shown

if TYPE_CHECKING:
    from blackwell_matmul.hardware.detect import DetectedGpu


FIGURES = Path(__file__).parent / "figures"
"""Folder of the data files, each figure with its unit and source."""

_LIMITS = FIGURES / "limits.toml"

_EVERY = {name: entry.value for name, entry in entries(_LIMITS, read(_LIMITS)["every"]).items()}
"""Limits that all GPUs of the file share."""

REGISTERS_PER_SM: int = _EVERY["registers_per_sm"]
"""Number of 32-bit registers of an SM."""

CTAS_PER_SM: int = _EVERY["ctas_per_sm"]
"""Maximum number of CTAs of an SM."""

RESERVED_BYTES: int = _EVERY["reserved_bytes"]
"""Bytes of an SM's shared memory that CUDA reserves for each CTA."""

SHARED_BYTES_PER_CYCLE: int = _EVERY["shared_bytes_per_cycle"]
"""Bytes of shared memory that all readers and writers of an SM move in a cycle."""

NEIGHBOURS: int = _EVERY["l2_path_sms"]
"""Number of SMs that share a path to the L2 and get consecutive CTAs. The L2 delivers a tile once that they load at
about the same time."""

GPC_SMS: int = _EVERY["gpc_sms"]
"""Number of SMs of most GPCs of an H100. If CTAs of a GPC load the same data at the same time, the L2 delivers the data
once."""

_WARPGROUP = 128
"""Threads of a warpgroup: one warp in each of an SM's four partitions. A partition has a quarter of the registers."""


@dataclass(frozen=True)
class Gpu:
    """A GPU's name, target, limits and rates. None: the data sheet has no figure."""

    name: str
    """Name of the GPU, such as "H200"."""
    arch: str
    """PTX target of the GPU, such as "sm_100a"."""
    compute_capability: tuple[int, int]
    """Compute capability, major and minor."""
    sm_count: int
    """Number of SMs."""
    shared_memory_per_block_bytes: int
    """Maximum shared memory of a CTA, static and dynamic together, after opt-in."""
    shared_memory_per_sm_bytes: int
    """Shared memory of an SM."""
    tensor_memory_columns: int
    """Number of columns of an SM's tensor memory, 128 lanes of 32 bits each; 0 without tcgen05."""
    features: frozenset[str]
    """Names from `FEATURES`."""
    max_threads_per_block: int = _EVERY["max_threads_per_block"]
    """Maximum number of threads of a CTA."""
    max_threads_per_sm: int = _EVERY["max_threads_per_sm"]
    """Maximum number of threads of an SM."""
    max_registers_per_thread: int = _EVERY["max_registers_per_thread"]
    """Maximum number of registers of a thread."""
    memory_gb: int | None = None
    """Device memory, 10^9 bytes."""
    memory_gb_per_s: int | None = None
    """Peak memory bandwidth, 10^9 bytes a second."""
    dense_fp16_tflops: float | None = None
    """Peak rate of fp16 or bf16 with fp32 accumulation, without sparsity."""

    def __str__(self) -> str:
        return f"{self.name} ({self.arch})"

    def registers_per_thread(self, threads: int) -> int:
        """Return the maximum number of registers of a thread, a multiple of 8, in a CTA of this many threads."""
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
        "block_scale": "mma.sync with a scale for each block (P: sm_120a, sm_121a)",
    }
)
"""Descriptions of GPU features by name, with the targets that have the feature and the source."""


def _gpu(name: str) -> Gpu:
    limits = {key: tuple(value) if isinstance(value, list) else value for key, value in _limits(name).items()}
    return filled(Gpu, _LIMITS, {"name": name, **limits, "features": frozenset(limits["features"])})


def _limits(name: str) -> dict[str, Any]:
    """Return the limits in a table, including inherited ones."""
    table = read(_LIMITS)[name]
    inherited = _limits(table["inherits"]) if "inherits" in table else {}
    return inherited | {key: entry.value for key, entry in entries(_LIMITS, table).items()}


_ALL = tuple(_gpu(name) for name, table in read(_LIMITS).items() if "inherits" in table)

GPUS: Mapping[str, Gpu] = MappingProxyType({gpu.name: gpu for gpu in _ALL})
"""GPUs by name. The first GPU with an `arch` represents that target."""

_OF_TARGET = {arch: next(gpu for gpu in _ALL if gpu.arch == arch) for arch in dict.fromkeys(gpu.arch for gpu in _ALL)}


def gpu_for_target(target: str) -> Gpu:
    """Return the GPU that represents a target such as "sm_100a".

    Raises InputError, with the valid targets, for an unknown target.
    """
    found = _OF_TARGET.get(plain_text(target) or "")
    if found is None:
        raise InputError(f"target is {shown(target)}; the targets with a known GPU are {', '.join(_OF_TARGET)}.")
    return found


OTHER_TARGETS = (
    *("sm_70", "sm_75", "sm_80", "sm_86", "sm_87", "sm_88", "sm_89", "sm_90", "sm_100", "sm_100f", "sm_103", "sm_103f"),
    *("sm_110", "sm_110f", "sm_110a", "sm_120", "sm_120f", "sm_121", "sm_121f"),
)
"""Targets for which tilus can compile and that no GPU in `GPUS` has."""


def by_name(text: object) -> Gpu | None:
    """Return the GPU of this name, such as "H200" or "h200"; None for anything else."""
    name = (plain_text(text) or "").casefold()
    return next((gpu for gpu in _ALL if gpu.name.casefold() == name), None)


def board(gpu: Gpu) -> Gpu | None:
    """Return the GPU in `GPUS` with the same SM count whose name begins the given GPU's name; None without such a GPU.

    An "H100 80GB HBM3" of 132 SMs is an "H100".
    """
    alike = (each for each in GPUS.values() if each.sm_count == gpu.sm_count)
    return next((each for each in alike if f"{gpu.name} ".startswith(f"{each.name} ")), None)


OTHER_NAMES: Mapping[str, str] = MappingProxyType(
    {"GB300": "sm_103a", "DGX Spark": "sm_121a", "RTX PRO 6000": "sm_120a", "H800": "sm_90a", "GH200": "sm_90a"}
)
"""Targets by the names of GPUs that are not in `GPUS`, as their limits are not known.

Sources: GB300 and RTX PRO 6000, S; DGX Spark, NVIDIA/cutlass issue 2802; H800, HPMLL/NVIDIA-Hopper-Benchmark, which
compiles for sm_90a; GH200, a Hopper GPU by its data sheet (D)."""

_TARGETS = {gpu.name.casefold(): gpu.arch for gpu in _ALL}
_TARGETS.update((name.casefold(), arch) for name, arch in OTHER_NAMES.items())


def target_of(name: object) -> str | None:
    """Return the target of the GPU of this name; None for anything else."""
    return _TARGETS.get((plain_text(name) or "").casefold())


def target_named(text: str) -> str:
    """Return the target of the GPU of this name, or a target unchanged; raise InputError for any other text."""
    return text if text in OTHER_TARGETS else target_of(text) or gpu_named(text).arch


WITH_TCGEN05 = ("sm_100", "sm_103", "sm_110")
"""Prefixes of the targets for which PTX has tcgen05 (P)."""


def gpu_named(text: object, argument: str = "target") -> Gpu:
    """Return a GPU by name, such as "H200", or by target; raise InputError, which names the argument, for any other
    value."""
    found = by_name(text) or _OF_TARGET.get(plain_text(text) or "")
    if found is None:
        names, targets, arch = ", ".join(GPUS), ", ".join(_OF_TARGET), target_of(text)
        known = f" ({arch}), of which only the target is known here" if arch else ""
        raise InputError(f"{argument} is {shown(text)}{known}; it must be a GPU ({names}) or a target ({targets}).")
    return found


def lacking(arch: str, feature: str) -> str:
    """Return a clause for an error: the target lacks the feature's instructions, and which GPUs have them."""
    *others, last = (gpu.name for gpu in GPUS.values() if feature in gpu.features)
    have = f"{', '.join(others)} and {last} have" if others else f"{last} has"
    return f"{with_gpus(arch)} has no {_AS_WRITTEN.get(feature, feature)} instructions; {have} them"


def with_gpus(arch: str) -> str:
    """Return a target with the names of all its GPUs, such as "sm_90a (H100, H200)"."""
    names = ", ".join(gpu.name for gpu in GPUS.values() if gpu.arch == arch)
    return f"{arch} ({names})" if names else arch


_AS_WRITTEN = {"tma": "TMA", "block_scale": "mma.sync.block_scale"}


def detect() -> tuple[DetectedGpu, ...]:
    """Return the GPUs of this machine, as the driver reports them; an empty tuple without a GPU or driver."""
    from blackwell_matmul.hardware.detect import detect as detected

    return detected()
