"""`schedules`: what a rung can choose from for a problem and a GPU, what it chooses, and why not the others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Never

from blackwell_matmul.errors import InputError
from blackwell_matmul.frontend import target_for
from blackwell_matmul.gpus import GPUS, Gpu, by_name, gpu_for_target
from blackwell_matmul.harness.user_kernel import find
from blackwell_matmul.problem import Problem, Schedule
from blackwell_matmul.scheduling import space
from blackwell_matmul.scheduling.cost_model import predicted_cycles
from blackwell_matmul.scheduling.mma import tile_config
from blackwell_matmul.scheduling.rules import why_not
from blackwell_matmul.validation import shown

RULE = (
    "Of the schedules that can run the one with the fewest predicted cycles, on the SM that has the most tiles; of "
    "equals the one with the largest tile, then the widest strip, then the most stages that the k-tiles can fill."
)
"""What `space.choose` does, in one sentence."""


@dataclass(frozen=True)
class ScheduleRow:
    """One schedule: what it takes, and each reason why it cannot run (none: it can).

    ctas: tiles of C, in whole clusters. shared_memory_bytes: of one CTA. tensor_memory_columns: what its accumulator
    takes. predicted_cycles: as `scheduling.cost_model` ranks schedules by; not measured.
    """

    schedule: Schedule
    ctas: int
    shared_memory_bytes: int
    tensor_memory_columns: int
    predicted_cycles: int
    reasons: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.reasons


@dataclass(frozen=True)
class ScheduleList:
    """All schedules of a rung for a problem on a GPU.

    kernel: the name of the rung's class. chosen: the one that runs when nobody pins any; None when none can.
    """

    kernel: str
    problem: Problem
    gpu: Gpu
    rows: tuple[ScheduleRow, ...]
    chosen: Schedule | None

    @property
    def runnable(self) -> tuple[ScheduleRow, ...]:
        return tuple(row for row in self.rows if row.ok)

    @property
    def ranked(self) -> tuple[ScheduleRow, ...]:
        """Those that can run, in the order of the choice: the chosen one is the first."""
        key = space.preference
        return tuple(sorted(self.runnable, key=lambda row: key(row.schedule, self.problem, self.gpu)))

    @property
    def rejected(self) -> tuple[ScheduleRow, ...]:
        return tuple(row for row in self.rows if not row.ok)

    @property
    def why(self) -> str:
        """What decided here: how many tiles each SM gets, and how long they take as predicted, not measured."""
        if self.chosen is None:
            return "No schedule can run it."
        row = next(row for row in self.rows if row.schedule == self.chosen)
        most = -(-row.ctas // self.gpu.sm_count)
        one, of_what = ("tile", "C") if self.chosen.split_k in (None, 1) else ("part", "the tiles of C")
        have = f"{_count(row.ctas, one)} of {of_what} for {self.gpu.sm_count} SMs, {_count(most, one)} at most for each"
        return f"{have}; {row.predicted_cycles} cycles predicted, and at least as many for any other that can run."

    def as_dict(self) -> dict[str, object]:
        """The list with plain values and stable keys."""
        return {
            "kernel": self.kernel,
            "m": self.problem.m,
            "n": self.problem.n,
            "k": self.problem.k,
            "dtype": self.problem.dtype,
            "gpu": self.gpu.name,
            "target": self.gpu.arch,
            "count": len(self.rows),
            "runnable": len(self.runnable),
            "chosen": None if self.chosen is None else self.chosen.as_dict(),
            "rule": RULE,
            "why": self.why,
            "schedules": [self._row_as_dict(row) for row in self.rows],
        }

    def _row_as_dict(self, row: ScheduleRow) -> dict[str, object]:
        return {
            "schedule": row.schedule.as_dict(),
            "ok": row.ok,
            "chosen": row.schedule == self.chosen,
            "ctas": row.ctas,
            "shared_memory_bytes": row.shared_memory_bytes,
            "tensor_memory_columns": row.tensor_memory_columns,
            "predicted_cycles": row.predicted_cycles,
            "reasons": list(row.reasons),
        }


def schedules(rung: str | type, problem: Problem, gpu: str | Gpu | None = None, *surplus: Never) -> ScheduleList:
    """Every schedule that a rung can choose for a problem on a GPU, with the one that it does choose.

    rung: "v0", "v1", ..., "my_kernel.py:MyMatmul", or a class with `knobs` from the space. gpu: a name such as
    "B200", a target such as "sm_100a", a Gpu, or None for one that the rung is for. Raises InputError for what is none
    of these.
    """
    if not isinstance(problem, Problem):
        raise InputError(f"problem is {shown(problem)}; it must be a Problem, such as Problem(m, n, k).")
    if surplus:
        raise InputError(f"schedules takes a rung, a Problem and a GPU; it got {shown(surplus[0])} as well.")
    named = None if gpu is None else _gpu(gpu)
    script_cls = _script_cls(rung)
    found = named or gpu_for_target(target_for(script_cls))
    rows = tuple(_row(schedule, problem, found) for schedule in space.projection(script_cls))
    chosen = space.choose(script_cls, problem, found) if any(row.ok for row in rows) else None
    return ScheduleList(script_cls.__name__, problem, found, rows, chosen)


def _row(schedule: Schedule, problem: Problem, gpu: Gpu) -> ScheduleRow:
    config = tile_config(schedule, problem, gpu)
    return ScheduleRow(
        schedule=schedule,
        ctas=config.ctas,
        shared_memory_bytes=config.shared_bytes,
        tensor_memory_columns=config.tensor_memory_columns,
        predicted_cycles=predicted_cycles(config),
        reasons=tuple(why_not(schedule, problem, gpu)),
    )


def _script_cls(rung: str | type) -> Any:
    """The class of a rung; one without knobs from the space has nothing to list."""
    found = find(rung)
    knobs: Sequence[str] | None = getattr(found.script_cls, "knobs", None)
    if not knobs or not {"block_m", "block_n", "block_k"} <= set(knobs):
        raise InputError(f"{found.name} has no knobs of the space; the rungs, such as v1, and their subclasses have.")
    return found.script_cls


def _gpu(gpu: str | Gpu) -> Gpu:
    if isinstance(gpu, Gpu):
        return gpu
    if known := by_name(gpu):
        return known
    if isinstance(gpu, str) and gpu.startswith("sm_"):
        return gpu_for_target(gpu)
    raise InputError(f"gpu is {shown(gpu)}; the GPUs are {', '.join(GPUS)}.")


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
