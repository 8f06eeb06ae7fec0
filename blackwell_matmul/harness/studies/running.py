"""Run what a sheet lacks, one trial after the other, each in a process of its own."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from blackwell_matmul.harness.bench.workers import Ended, Workers
from blackwell_matmul.harness.studies.sheet import Row, Sheet, Status
from blackwell_matmul.harness.studies.trial import Trial

Tell = Callable[[str], None]
"""Takes what is being done, in a few words."""


def run(trials: Sequence[Trial], sheet: Sheet, limit_s: float, tell: Tell = lambda what: None) -> None:
    """limit_s: the longest silence of a process, times its trial's patience; each step breaks the silence."""
    missing = [trial for trial in trials if trial.name not in sheet]
    for number, trial in enumerate(missing, 1):
        about = f"{number} of {len(missing)}: {trial.name}"
        tell(about)
        sheet.put(_row(trial, _ended(trial, limit_s, partial(_tell_step, tell, about))))


def _tell_step(tell: Tell, about: str, what: str) -> None:
    tell(f"{about}, {what}")


def _ended(trial: Trial, limit_s: float, step: Tell) -> Ended:
    with Workers(limit_s * trial.patience, ahead=0, environment=trial.environment) as workers:
        return next(iter(workers.run([trial.task], step)))


def _row(trial: Trial, ended: Ended) -> Row:
    if ended.result is not None:
        return Row(trial.name, "done", ended.result)
    status: Status = "refused" if ended.refused else "hung" if ended.hung else "failed"
    return Row(trial.name, status, None, ended.refused or ended.failed, ended.at)
