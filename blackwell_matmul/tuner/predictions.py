"""Predicted times for `rank`, one trial per candidate.

Worker processes or any executor run the trials, also on other machines. A file may store the results. A user's kernel
file must have the same path on each machine.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from blackwell_matmul.base.digests import digest, package_digest
from blackwell_matmul.base.errors import BlackwellMatmulError
from blackwell_matmul.base.validation import plain_text
from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.harness.bench import TASKS
from blackwell_matmul.harness.calls.user_kernel import UserKernel
from blackwell_matmul.harness.predicting import predict
from blackwell_matmul.jobs.executors import PROCESSES, ExecutorPool, known
from blackwell_matmul.jobs.row_file import Row, usable
from blackwell_matmul.jobs.running_trials import Job, run
from blackwell_matmul.jobs.worker import worker_pool
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.tuner.candidates import Pins, spelled

PREDICTION_LIMIT_S = 120.0
"""Maximum seconds of one prediction in a worker."""


@dataclass(frozen=True)
class Predictors:
    """Executor of predictions. executor: its name; "" for a worker on each core, or for processes if there is a file.
    rows: file for results."""

    executor: str = ""
    rows: Path | None = None

    @classmethod
    def checked(cls, executor: str, rows: Path | None) -> Predictors:
        """Return predictors that can begin; raise InputError or UnsupportedError for an unknown executor or a file that
        cannot keep rows. Nothing is started or written."""
        named = "" if plain_text(executor) == "" else known(executor)
        return cls(named, None if rows is None else usable(rows))


@dataclass(frozen=True)
class PredictionTrial:
    """Prediction of one candidate. code: digest of this package and of the kernel's file."""

    source: str
    gpu: str
    problem: Problem
    schedule: str
    code: str

    def name(self) -> Row:
        return {**vars(self), "problem": str(self.problem)}

    def predict(self) -> Row:
        try:
            found = predict(self.source, self.problem, schedule=self.schedule, target=self.gpu, explained=False)
            return {"us": found.time_us}
        except BlackwellMatmulError as error:
            return {"refused": str(error)}


def predictions(
    kernel: UserKernel,
    problem: Problem,
    gpu: Gpu,
    asked: Sequence[Pins],
    until_s: float,
    tell: Callable[[str], None],
    by: Predictors,
) -> dict[str, Row]:
    """Return a row for each candidate, by schedule; candidates not begun before until_s (time.monotonic) are missing.
    asked: candidates. by: executor and file."""
    code = code_of(kernel)
    trials = [PredictionTrial(kernel.source, gpu.name, problem, spelled(pins), code) for pins in asked]
    job = Job("predicting", trials, PredictionTrial.predict, PredictionTrial.name)
    if by.executor or by.rows:
        tell(f"predicting {len(trials)} candidates by {by.executor or PROCESSES}")
        found = run(job, by.rows, by.executor or PROCESSES, until_s, quiet=True)
    else:
        told = (f"predicted {number} of {len(trials)}: " for number in range(1, len(trials) + 1))
        one_each = partial(_workers, len(trials))
        found = run(job, None, one_each, until_s, quiet=True, tell=lambda row: tell(next(told) + row["schedule"]))
    return {row["schedule"]: row for row in found}


@contextmanager
def _workers(count: int) -> Generator[ExecutorPool]:
    with worker_pool(count, PREDICTION_LIMIT_S, TASKS) as pool:
        yield ExecutorPool(pool, lambda: len(pool.workers))


def code_of(kernel: UserKernel) -> str:
    """Return the digest of this package and of the kernel's file, if any."""
    path = Path(kernel.source.rpartition(":")[0])
    return package_digest() + (digest(path.read_bytes())[:8] if path.is_file() else "")
