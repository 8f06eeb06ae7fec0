"""Sentences for instructions that a GPU does not have."""

from __future__ import annotations

from blackwell_matmul.hardware import gpus
from blackwell_matmul.hardware.gpus import GPUS

OF_FEATURE = {"Wgmma": "wgmma", "Tcgen05": "tcgen05", "DotScaled": "block_scale"}
"""The feature of a GPU that an instruction needs, by the first letters of the instruction's name."""


def lacking(instruction: str, target: str) -> str:
    """Return a sentence: which GPUs have the feature that this target lacks, or that tilus has no code for the
    instruction."""
    feature = next((name for begin, name in OF_FEATURE.items() if instruction.startswith(begin)), None)
    gpu = next((gpu for gpu in GPUS.values() if gpu.arch == target), None)
    if feature is None or (gpu is not None and feature in gpu.features) or _has(target, feature):
        return f"tilus has no code for {instruction} on this target"
    return gpus.lacking(target, feature)


def _has(target: str, feature: str) -> bool:
    """Return True if PTX has a feature for a target that has no GPU in the table."""
    return feature == "tcgen05" and target.startswith(gpus.WITH_TCGEN05)
