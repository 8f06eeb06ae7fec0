"""Calls of one trial against each other, in turn, as `protocol` has it; and what a trial's process shares."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from types import ModuleType
from typing import Any

import torch

from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.harness.bench import protocol
from blackwell_matmul.harness.bench.devices import Arguments, Call, Cpu
from blackwell_matmul.harness.bench.tasks import interleaved
from blackwell_matmul.harness.verdict import Verdict, check_matmul

Step = Callable[[str], None]
INTERLEAVED_SETTINGS = protocol.Settings(warmup_s=2.0)
"""A study has many processes, and each compares few calls."""


class WrongResult(Exception):
    """A kernel ran and computed something else; a row that says so has failed."""


def timed(
    calls: Mapping[str, Callable[..., Any]],
    sets: Sequence[Any],
    place: Cpu,
    settings: protocol.Settings,
    step: Step,
    capture: bool = True,
) -> dict[str, Any]:
    """The µs of each call, on sets of operands that all of them take, and how they were taken. capture: from graphs."""
    groups, how = {}, {}
    for name, call in calls.items():
        step(name)
        groups[name], how[name] = place.group(call, sets, settings.group_us, capture)
    return {**interleaved(groups, how, place, settings, step), "sets": len(sets)}


def rotating(place: Cpu, set_bytes: int) -> range:
    """Numbers of so many sets that twice the L2 is touched between two uses of one."""
    return range(1 + math.ceil(2 * place.l2_bytes / set_bytes))


def first_call(call: Callable[[], Any], place: Cpu) -> tuple[Any, float]:
    """What the first call returns, and the seconds that it took with its compilation."""
    start = time.monotonic()
    returned = call()
    place.synchronize()
    return returned, time.monotonic() - start


def triton_kernels() -> ModuleType:
    """UnsupportedError where Triton is not installed."""
    if find_spec("triton") is None:
        raise UnsupportedError("this needs Triton, which is not installed; pip install triton.")
    return import_module("blackwell_matmul_studies.baselines.triton_kernels")


def verdict_on(call: Call, operands: Arguments) -> Verdict:
    """Return the verdict on one call; its output, the last operand, is filled with NaN before."""
    operands[-1].fill_(math.nan)
    call(*operands)
    return check_matmul(*operands)


def poisoned_like(tensor: torch.Tensor) -> torch.Tensor:
    return torch.full_like(tensor, math.nan)
