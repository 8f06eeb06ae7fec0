"""`rank`: orders a kernel's candidates by predicted time; nothing is compiled or measured.

The first candidates are predicted with the time model, in a child process for each core. The time model is more
accurate than the order of `candidates`. Candidates without a prediction follow in their former order.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from blackwell_matmul.hardware.gpu_figures import TIME_FIGURES, figures_of
from blackwell_matmul.hardware.gpus import Gpu, gpu_named
from blackwell_matmul.harness.bench import session
from blackwell_matmul.harness.bench.workers import Ended, Task
from blackwell_matmul.harness.calls.user_kernel import UserKernel, find
from blackwell_matmul.harness.predicting import predict
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.tuner.candidates import Candidates, Pins, candidates, mixed, spelled
from blackwell_matmul.tuner.predicting_trials import Predictors, predicted_by

MOST_PREDICTIONS = 40
"""Default number of candidates to predict; each takes a core several seconds."""

PREDICTION_LIMIT_S = 120.0
"""Time limit of one prediction in seconds."""

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Ranked:
    """A candidate. predicted_us: None without prediction. reason: why it does not come first."""

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

    most: number of predictions. executor: as for `jobs.executors.crew`; "": a child process for each core. rows: file
    of predictions, which runs may share.

    Raises InputError for a GPU without figures, and for a kernel that is unknown or cannot run.
    """
    figures_of(gpu)
    kernel, device, start = find(rung), gpu_named(gpu), time.monotonic()
    found = candidates(kernel, problem, device)
    tell, by = progress or (lambda what: None), Predictors(executor, rows)
    ranked = ordered(kernel, problem, device, found, most, math.inf, tell, by)
    return Ranking(kernel.name, problem, device.name, ranked, found.refused, time.monotonic() - start)


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
    about = kernel, problem, gpu, asked, until_s, tell
    told = predicted_by(*about, by) if by.chosen else _predicted(*about)
    rows = [_ranked(pins, told.get(number)) for number, pins in enumerate(found.ordered)]
    rows.sort(key=_cost)
    return tuple(_beside(row, rows[0]) for row in rows)


def first(rows: Sequence[Ranked], count: int, chosen: Pins) -> list[Ranked]:
    """Return the best rows of several tiles, as predictions hardly see the other knobs, and the chosen one."""
    best = mixed(rows, lambda row: row.schedule, _cost)
    best.sort(key=lambda row: row.schedule != chosen)
    return [row for row in rows if row in best[:count]]


def _cost(row: Ranked) -> float:
    return math.inf if row.predicted_us is None else row.predicted_us


def _predicted(
    kernel: UserKernel, problem: Problem, gpu: Gpu, asked: Sequence[Pins], until_s: float, tell: Tell
) -> dict[int, Ended]:
    """Return each candidate's result by its number."""
    told: dict[int, Ended] = {}
    about = {"do": f"{__name__}:predicted_us", "source": kernel.source, "gpu": gpu.name, "problem": problem.as_dict()}

    def task(number: int) -> Task:
        return {**about, "schedule": spelled(asked[number])}

    with closing(session.on_all_cores(range(len(asked)), task, PREDICTION_LIMIT_S, until_s)) as ends:
        for number, ended in ends:
            told[number] = ended
            tell(f"predicted {len(told)} of {len(asked)}: {spelled(asked[number])}")
    return told


def predicted_us(
    step: Tell, source: str, gpu: str, problem: Mapping[str, Any], schedule: str
) -> dict[str, float]:  # a task of a child
    """Predict one candidate in a child process."""
    step(schedule)
    found = predict(source, Problem.from_dict(problem), schedule=schedule, target=gpu, explained=False)
    return {"us": found.time_us}


def _ranked(pins: Pins, ended: Ended | None) -> Ranked:
    if ended is None:
        return Ranked(pins, reason="not predicted, since others are likelier to be fast.")
    if ended.result is None:
        return Ranked(pins, reason=f"not predicted: {ended.refused or ended.failed}")
    return Ranked(pins, ended.result["us"])


def _beside(row: Ranked, first: Ranked) -> Ranked:
    """Return the row with its percentage behind the first."""
    if row is first or row.predicted_us is None or first.predicted_us is None:
        return row
    slower = row.predicted_us / first.predicted_us - 1
    return Ranked(row.schedule, row.predicted_us, f"predicted {slower:.0%} slower than the first.".replace("%", " %"))
