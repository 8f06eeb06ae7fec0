"""Sentences for instructions that a GPU does not have, and for functions without code."""

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


def no_code(name: str, kind: str) -> str:
    """Return the clause on a function of numbers that tilus has no code for, with what works. kind: its operands'."""
    if name == "abs":
        return f"tilus 0.2.0 generates no code for abs of {kind}; self.where(x < 0, -x, x) has these values"
    wide = "int32" if name in ("max", "min") and "int" in kind else "float32"
    return f"tilus 0.2.0 generates no code for {name} of {kind}; cast to {wide} first"
