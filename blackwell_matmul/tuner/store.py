"""Tuned schedules, by a rung's name or class."""

from __future__ import annotations

from typing import Any

from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.kernels import rung as rung_class
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.runtime.device import gpu_at
from blackwell_matmul.runtime.winners import winner


def stored(rung: str | type, problem: Problem, gpu: Gpu | None = None) -> dict[str, Any] | None:
    """Return the schedule that `tune` found for a rung (its name, or a script class), by knob; None if there is none.

    gpu: default the first of this machine.
    """
    script_cls = rung_class(rung) if isinstance(rung, str) else rung
    return winner(script_cls, problem, gpu_at(0) if gpu is None else gpu)
