"""Maps a device index to a `Gpu`, from the table of known GPUs and the device's own attributes."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Sequence

from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.hardware import driver
from blackwell_matmul.hardware.gpus import GPUS, Gpu


@functools.cache
def gpu_at(device: int) -> Gpu:
    """Return the GPU with this index. Raise UnsupportedError, which lists the supported compute capabilities, for
    another architecture."""
    capability = (
        driver.device_attribute(device, "COMPUTE_CAPABILITY_MAJOR"),
        driver.device_attribute(device, "COMPUTE_CAPABILITY_MINOR"),
    )
    name = driver.device_name(device)
    family = [gpu for gpu in GPUS.values() if gpu.compute_capability == capability]
    if not family:
        raise UnsupportedError(
            f"GPU {device} is an {name} of compute capability {capability[0]}.{capability[1]}, for which nothing is "
            f"compiled here; GPUs that work have {_capabilities()}, and CPU tensors are simulated on every machine."
        )
    return dataclasses.replace(
        _closest(name, family),
        name=name.removeprefix("NVIDIA "),
        sm_count=driver.device_attribute(device, "MULTIPROCESSOR_COUNT"),
        shared_memory_per_block_bytes=driver.device_attribute(device, "MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
    )


def _closest(name: str, family: Sequence[Gpu]) -> Gpu:
    """Return the GPU with the longest name that the device's name contains; else the first GPU of the family."""
    named = [gpu for gpu in family if gpu.name in name]
    return max(named, key=lambda gpu: len(gpu.name), default=family[0])


def _capabilities() -> str:
    found = dict.fromkeys(f"{'.'.join(map(str, gpu.compute_capability))} ({gpu.arch})" for gpu in GPUS.values())
    return ", ".join(found)
