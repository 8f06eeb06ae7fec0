"""GPUs for measurements. A process that measures sees a single GPU. All GPUs are of one model, as the fastest schedule
depends on the model."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import integer, shown
from blackwell_matmul.hardware import detect
from blackwell_matmul.hardware.detect import DetectedGpu

MOST_GPUS = 4096


@dataclass(frozen=True)
class MeasuringGpu:
    """A GPU for measurements.

    index: index among the GPUs that this process sees. environment: variables that make it the only visible GPU; empty
    if it is the only one already.
    """

    index: int = 0
    environment: Mapping[str, str] = field(default_factory=dict)


def measuring_gpus(asked: Any = None) -> tuple[MeasuringGpu, ...]:
    """Return the GPUs with these indices; None: all GPUs of the same model as GPU 0.

    Raises InputError for unknown indices or mixed models.
    """
    found = detect.detect()
    if asked is None:
        taken = [gpu for gpu in found if _kind(gpu) == _kind(found[0])]
        _warn_of([gpu for gpu in found if gpu not in taken], taken)
    else:
        taken = [found[index] for index in _indices(asked, len(found))]
        _require_one_kind(taken)
    if len(found) < 2:
        return (MeasuringGpu(),)
    return tuple(MeasuringGpu(gpu.index, detect.alone(gpu.index)) for gpu in taken)


def _kind(gpu: DetectedGpu) -> tuple[str, str, int]:
    """Return the fields that make a model: name, target and SM count. The tuner's winners are stored by them."""
    return gpu.name, gpu.arch, gpu.sm_count


def _indices(asked: Any, there: int) -> list[int]:
    values = list(asked) if isinstance(asked, Sequence) and not isinstance(asked, str) else [None]
    indices = [index for value in values if (index := integer(value, 0, MOST_GPUS)) is not None]
    if not values or len(indices) < len(values) or len(set(indices)) < len(indices):
        raise InputError(f"gpus is {shown(asked)}; it must be numbers of GPUs, each once, such as (0, 1).")
    if max(indices) >= there:
        have = f"{there} GPUs, numbered from 0" if there > 1 else "GPU 0 alone" if there else "no GPU"
        raise InputError(f"gpus names GPU {max(indices)}, and this process sees {have}.")
    return indices


def _require_one_kind(taken: Sequence[DetectedGpu]) -> None:
    other = next((gpu for gpu in taken if _kind(gpu) != _kind(taken[0])), None)
    if other is not None:
        raise InputError(
            f"gpus names GPU {taken[0].index}, {_told(taken[0])}, and GPU {other.index}, {_told(other)}; times are "
            "compared among GPUs of one kind, so tune for each kind by itself."
        )


def _warn_of(others: Sequence[DetectedGpu], taken: Sequence[DetectedGpu]) -> None:
    if others:
        which = ", ".join(f"{gpu.index} ({gpu.name})" for gpu in others)
        warnings.warn(f"left out, since GPU 0 is {_told(taken[0])}: GPU {which}.", RuntimeWarning, stacklevel=3)


def _told(gpu: DetectedGpu) -> str:
    return f"{gpu.name} of {gpu.sm_count} SMs"
