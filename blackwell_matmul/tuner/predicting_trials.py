"""Candidates of `rank` as trials that any executor predicts, also on other machines; a file stores the results.

A user's kernel file has the same path on each machine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from blackwell_matmul.base.digests import digest, package_digest
from blackwell_matmul.base.errors import BlackwellMatmulError
from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.harness.bench.workers import Ended
from blackwell_matmul.harness.calls.user_kernel import UserKernel
from blackwell_matmul.harness.predicting import predict
from blackwell_matmul.jobs.executors import PROCESSES
from blackwell_matmul.jobs.row_file import Row
from blackwell_matmul.jobs.running_trials import DIED, Job, run
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.tuner.candidates import Pins, spelled


@dataclass(frozen=True)
class Predictors:
    """Executor of predictions; "": a child process for each core. rows: file for results, or None."""

    executor: str = ""
    rows: Path | None = None

    @property
    def chosen(self) -> bool:
        return bool(self.executor or self.rows)


@dataclass(frozen=True)
class PredictionTrial:
    """A candidate. code: digest of the code that the prediction belongs to."""

    source: str
    gpu: str
    problem: Problem
    schedule: str
    code: str

    def name(self) -> Row:
        return {**vars(self), "problem": str(self.problem)}

    def predict(self) -> Row:
        try:
            return {"us": predict(self.source, self.problem, schedule=self.schedule, target=self.gpu).time_us}
        except BlackwellMatmulError as error:
            return {"refused": str(error)}


def predicted_by(
    kernel: UserKernel,
    problem: Problem,
    gpu: Gpu,
    asked: Sequence[Pins],
    until_s: float,
    tell: Callable[[str], None],
    by: Predictors,
) -> dict[int, Ended]:
    """Return each candidate's result by its number; those not begun by until_s are missing."""
    code = code_of(kernel)
    trials = [PredictionTrial(kernel.source, gpu.name, problem, spelled(pins), code) for pins in asked]
    job = Job("predicting", trials, PredictionTrial.predict, PredictionTrial.name)
    tell(f"predicting {len(trials)} candidates by {by.executor or PROCESSES}")
    found = run(job, by.rows, by.executor or PROCESSES, until_s, quiet=True)
    ends = {row["schedule"]: _ended(row) for row in found}
    return {number: ends[trial.schedule] for number, trial in enumerate(trials) if trial.schedule in ends}


def code_of(kernel: UserKernel) -> str:
    """Return the digest of this package and of the kernel's file, if any."""
    path = Path(kernel.source.rpartition(":")[0])
    return package_digest() + (digest(path.read_bytes())[:8] if path.is_file() else "")


def _ended(row: Row) -> Ended:
    if DIED in row:
        return Ended(failed=row[DIED])
    return Ended(result={"us": row["us"]}) if "us" in row else Ended(refused=row["refused"])
