"""What has been tuned, by the name of a rung or by its class."""

from __future__ import annotations

from typing import Any

from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.kernels import rung as rung_class
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.runtime.device import gpu_at
from blackwell_matmul.runtime.winners import winner


def stored(rung: str | type, problem: Problem, gpu: Gpu | None = None) -> dict[str, Any] | None:
    """The schedule that `tune` found for a rung (its name, or a script class), by knob; None where there is none.

    gpu: the first of this machine, unless another is given.
    """
    script_cls = rung_class(rung) if isinstance(rung, str) else rung
    return winner(script_cls, problem, gpu_at(0) if gpu is None else gpu)
