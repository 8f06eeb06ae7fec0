"""Tuned schedules: of a rung for a problem, and as contenders of `bench --tuned`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import shown
from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.harness.bench.contenders import BASELINE_FILES, Contender
from blackwell_matmul.harness.bench.suites import BenchCase
from blackwell_matmul.harness.calls.user_kernel import find
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.runtime.device import gpu_at
from blackwell_matmul.runtime.winners import winner
from blackwell_matmul.tuner.candidates import spelled


def stored(rung: str | type, problem: Problem, gpu: Gpu | None = None) -> dict[str, Any] | None:
    """Return the schedule that `tune` found for a rung (its name, or a script class), by knob; None if there is none.

    gpu: None for the first GPU of this machine. Raises InputError for arguments of other types.
    """
    script_cls, of_gpu = find(rung).script_cls, gpu_at(0) if gpu is None else gpu
    if not isinstance(problem, Problem) or not isinstance(of_gpu, Gpu):
        raise InputError(f"problem is {shown(problem)} and gpu is {shown(gpu)}; they must be a Problem and a Gpu.")
    return winner(script_cls, problem, of_gpu)


def winners(rungs: Sequence[str], cases: Sequence[BenchCase], gpu: Gpu) -> Iterator[Contender]:
    """Yield the tuned schedule of each rung and problem, if there is one, as a contender of a benchmark."""
    for rung in rungs:
        if rung in BASELINE_FILES:
            continue
        kernel = find(rung)
        for case in cases:
            schedule = winner(kernel.script_cls, case.problem, gpu)
            if schedule:
                name = f"{rung.rpartition(':')[2]} tuned"
                yield Contender(name, "kernel", rung, spelled(schedule), str(case.problem))
