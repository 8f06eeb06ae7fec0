"""The GPU of this machine, its kernels, and the versions and settings on which measured times depend."""

from __future__ import annotations

import importlib.metadata
import platform
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from itertools import chain

from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.hardware.detect import require_gpu
from blackwell_matmul.hardware.gpus import Gpu, board
from blackwell_matmul.harness.bench.results import Machine
from blackwell_matmul.kernels import LADDERS, rung
from blackwell_matmul.scheduling.ladders import BLOCK_SCALED_BY_FEATURE, BLOCK_SCALED_LADDER

PACKAGES = (*("blackwell-matmul", "tilus", "torch", "triton", "cuda-bindings", "nvidia-cuda-nvrtc", "nvidia-cublas"),)
SETTINGS = ("driver_version", "clocks.max.sm", "power.limit")
UNKNOWN_SETTING = "unknown"


def gpu_at_hand(index: int = 0) -> Gpu:
    """Return the GPU of this index in the driver's order; raise UnsupportedError if there is none."""
    require_gpu()
    import torch

    if not torch.cuda.is_available():
        raise UnsupportedError(
            f"measuring needs torch for the inputs and for cuBLAS, and torch {torch.__version__} does not use this "
            "machine's GPU; install a CUDA build of torch."
        )
    from blackwell_matmul.runtime.device import gpu_at

    return gpu_at(index)


def ladder(gpu: Gpu) -> tuple[str, ...]:
    """Return the names of a GPU's kernels, the slowest first; raise UnsupportedError if the GPU has none."""
    if gpu.arch not in LADDERS:
        raise UnsupportedError(
            f"there is no rung for {gpu} yet; there are some for {', '.join(LADDERS)}, and --rungs takes a script of "
            "your own, my_kernel.py:MyMatmul."
        )
    return LADDERS[gpu.arch][::-1]


def of_forms(gpu: Gpu) -> tuple[str, ...]:
    """Return the names of a GPU's kernels that compute a product of any `Form`; raise UnsupportedError if none does."""
    found = tuple(name for name in ladder(gpu) if "forms" in rung(name).features)
    if not found:
        raise UnsupportedError(
            f"no rung for {gpu} computes anything but plain products; blackwell and hopper do, on other GPUs."
        )
    return found


def of_block_scales(gpu: Gpu) -> tuple[str, ...]:
    """Return the names of a GPU's kernels for block-scaled operands, the slowest first; raise UnsupportedError if none
    exists."""
    found = tuple(chain(*(rungs for feature, rungs in BLOCK_SCALED_BY_FEATURE.items() if feature in gpu.features)))
    if not found:
        raise UnsupportedError(
            f"no rung for {gpu} multiplies block-scaled operands; {', '.join(BLOCK_SCALED_LADDER)} do, on Blackwell."
        )
    return found


def machine_of(gpu: Gpu) -> Machine:
    return Machine(gpu.name, gpu.arch, gpu.sm_count, peak_tflops(gpu), {**settings(), "versions": versions()})


def peak_tflops(gpu: Gpu) -> float | None:
    """Return the dense fp16 peak of a GPU with this name and SM count; None if unknown."""
    known = board(gpu)
    return known.dense_fp16_tflops if known else None


def versions() -> dict[str, str]:
    found = {"python": platform.python_version()}
    for name in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[name] = importlib.metadata.version(name)
    return found


def settings(names: Sequence[str] = SETTINGS) -> dict[str, str]:
    """Return settings of driver and board, by nvidia-smi's names; "unknown" for each if nvidia-smi fails."""
    command = ["nvidia-smi", f"--query-gpu={','.join(names)}", "--format=csv,noheader", "-i", "0"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError):
        return dict.fromkeys(names, UNKNOWN_SETTING)
    words = [word.strip() for word in done.stdout.splitlines()[0].split(",")] if done.stdout.strip() else []
    return dict(zip(names, words)) if len(words) == len(names) else dict.fromkeys(names, UNKNOWN_SETTING)
