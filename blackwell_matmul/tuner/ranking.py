"""`rank`: orders a kernel's candidates by predicted time; nothing is compiled or measured.

The first candidates are predicted with the time model, in a child process for each core. The time model is more
accurate than the order of `candidates`. Candidates without a prediction follow in the order of `candidates`.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.validation import accepts, plain_text, shown
from blackwell_matmul.hardware.gpu_figures import TIME_FIGURES, figures_of
from blackwell_matmul.hardware.gpus import Gpu, gpu_named
from blackwell_matmul.harness.bench.request import require_within
from blackwell_matmul.harness.calls.user_kernel import UserKernel, find
from blackwell_matmul.jobs.row_file import DIED, Row
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.tuner.candidates import Candidates, Pins, candidates, interleaved_by_tile, spelled
from blackwell_matmul.tuner.predictions import Predictors, predictions

MOST_PREDICTIONS = 40
"""Default number of candidates to predict; a prediction takes a core several seconds."""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Ranked:
    """A candidate. predicted_us: None without a prediction. reason: why the candidate is not first."""

    schedule: Pins
    predicted_us: float | None = None
    reason: str = ""


@dataclass(frozen=True)
class Ranking:
    """Result of `rank`. rows: best first, unpredicted last. refused: number of schedules that cannot run, by reason."""

    kernel: str
    problem: Problem
    gpu: str
    rows: tuple[Ranked, ...]
    refused: Mapping[str, int]
    seconds: float
    measured: bool = False

    @property
    def predicted(self) -> tuple[Ranked, ...]:
        return tuple(row for row in self.rows if row.predicted_us is not None)

    def as_dict(self) -> dict[str, Any]:
        return {**asdict(self), "problem": self.problem.as_dict()}


def rank(
    rung: str,
    problem: Problem,
    gpu: str,
    *,
    most: int = MOST_PREDICTIONS,
    progress: Tell | None = None,
    executor: str = "",
    rows: Path | None = None,
) -> Ranking:
    """Order the schedules of a rung ("v2", or "file.py:Script") for a problem on a named GPU, which may be absent.

    most: number of predictions. executor: as for `jobs.executors.open_executor`; "": a child process for each core.
    rows: file of predictions, which runs may share.

    Raises InputError for a GPU without figures, for a kernel that is unknown or cannot run, and for a file that cannot
    keep rows.
    """
    figures_of(gpu)
    require_within("most", most, 0, 100_000, whole=True)
    kernel, tell, by = checked(rung, problem, progress, executor, rows)
    device, start = gpu_named(gpu), time.monotonic()
    found = candidates(kernel, problem, device)
    ranked = ordered(kernel, problem, device, found, most, math.inf, tell, by)
    return Ranking(kernel.name, problem, device.name, ranked, found.refused, time.monotonic() - start)


def checked(
    rung: str, problem: Problem, progress: Tell | None, executor: str, rows: Path | None
) -> tuple[UserKernel, Tell, Predictors]:
    """Return the kernel, the function that gets messages, and the predictors; raise InputError for arguments that do
    not fit."""
    if plain_text(rung) is None:
        raise InputError(f"rung is {shown(rung)}; workers import it, so give a name, or my_kernel.py:MyMatmul.")
    if not isinstance(problem, Problem):
        raise InputError(f"problem is {shown(problem)}; it must be a Problem.")
    if progress is not None and not accepts(progress, 1):
        raise InputError(f"progress is {shown(progress)}; it must be a function of a text, or None.")
    by = Predictors.checked(executor, rows)
    return find(rung), progress or (lambda what: None), by


def ordered(
    kernel: UserKernel,
    problem: Problem,
    gpu: Gpu,
    found: Candidates,
    most: int,
    until_s: float,
    tell: Tell,
    by: Predictors,
) -> tuple[Ranked, ...]:
    """Return all candidates in order, unpredicted for a GPU without figures. until_s: deadline, by time.monotonic."""
    asked = found.ordered[:most] if gpu.name in TIME_FIGURES else ()
    by_schedule = predictions(kernel, problem, gpu, asked, until_s, tell, by)
    rows = [_ranked(pins, by_schedule.get(spelled(pins))) for pins in asked]
    rows += [_ranked(pins, None) for pins in found.ordered[len(asked) :]]
    rows.sort(key=_cost)
    return tuple(_with_slowdown(row, rows[0]) for row in rows)


def first(rows: Sequence[Ranked], count: int, chosen: Pins) -> list[Ranked]:
    """Return the best `count` rows, spread over several tiles, with the schedule that a call would choose (`chosen`).
    Predictions hardly distinguish schedules of one tile."""
    best = interleaved_by_tile(rows, lambda row: row.schedule, _cost)
    best.sort(key=lambda row: row.schedule != chosen)
    return [row for row in rows if row in best[:count]]


def _cost(row: Ranked) -> float:
    return math.inf if row.predicted_us is None else row.predicted_us


def _ranked(pins: Pins, row: Row | None) -> Ranked:
    if row is None:
        return Ranked(pins, reason="not predicted, since others are likelier to be fast.")
    if "us" not in row:
        return Ranked(pins, reason=f"not predicted: {row[DIED] if DIED in row else row['refused']}")
    return Ranked(pins, row["us"])


def _with_slowdown(row: Ranked, first: Ranked) -> Ranked:
    """Return the row with its slowdown against the first row, in percent."""
    if row is first or row.predicted_us is None or first.predicted_us is None:
        return row
    slower = row.predicted_us / first.predicted_us - 1
    return Ranked(row.schedule, row.predicted_us, f"predicted {slower:.0%} slower than the first.".replace("%", " %"))
