"""What is said of an instruction that a GPU does not have."""

from __future__ import annotations

from blackwell_matmul.gpus import GPUS

OF_FEATURE = {"Wgmma": "wgmma", "Tcgen05": "tcgen05"}
"""What the instructions of a feature of a GPU begin with."""


def lacking(instruction: str, target: str) -> str:
    """Who has what a GPU lacks, or that tilus has no code for it."""
    feature = next((name for begin, name in OF_FEATURE.items() if instruction.startswith(begin)), "")
    have = [gpu.name for gpu in GPUS.values() if feature in gpu.features]
    if not have or any(GPUS[name].arch == target for name in have):
        return f"tilus has no code for {instruction} on this target"
    who = next((str(gpu) for gpu in GPUS.values() if gpu.arch == target), target)
    return f"{who} has no {feature} instructions; {', '.join(have[:-1])} and {have[-1]} have them"
