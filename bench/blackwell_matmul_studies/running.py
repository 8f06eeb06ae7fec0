"""Run what the results lack, one trial after the other, each in a process of its own."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from blackwell_matmul.base.interrupts import keeping
from blackwell_matmul.harness import studies_part
from blackwell_matmul.harness.bench import bench_machine
from blackwell_matmul.harness.bench.results import require_writable
from blackwell_matmul.jobs.worker import TaskOutcome, Worker
from blackwell_matmul_studies import trials_of
from blackwell_matmul_studies.study_results import Status, StudyResults, TrialRow
from blackwell_matmul_studies.trial import Trial

Tell = Callable[[str], None]
"""Takes what is being done, in a few words."""


@dataclass(frozen=True)
class StudyRequest:
    """What a user asks of a study. limit_s: the longest silence of a trial. again: what is there is measured anew.
    quick: the few trials that say most."""

    study: str
    out: Path
    limit_s: float
    again: bool = False
    quick: bool = False

    def run(self, tell: Tell) -> StudyResults:
        """What is missing, on this machine's GPU; all that is there by then."""
        results = StudyResults(self.out, self.study, bench_machine.machine_of(bench_machine.gpu_at_hand()))
        require_writable(self.out)
        if self.again:
            results.forget()
        run(trials_of(self.study)(self.quick), results, self.limit_s, tell)
        return results


def run(trials: Sequence[Trial], results: StudyResults, limit_s: float, tell: Tell = lambda what: None) -> None:
    """limit_s: the longest silence of a process, times its trial's patience; each step breaks the silence."""
    studies_part.make_importable()  # child processes import the part, too
    missing = [trial for trial in trials if trial.name not in results]

    def kept() -> str:
        return f"{sum(trial.name in results for trial in trials)} of {len(trials)} trials are kept in {results.file}"

    with keeping(kept), ExitStack() as stack:
        children = _children(missing, limit_s, stack)
        for number, (trial, child) in enumerate(zip(missing, children), 1):
            about = f"{number} of {len(missing)}: {trial.name}"
            tell(about)
            results.put(_row(trial, child.do(trial.task, partial(_tell_step, tell, about))))
            child.end()


def _children(trials: Sequence[Trial], limit_s: float, stack: ExitStack) -> Iterator[Worker]:
    """One process for each trial; it does its imports while the trial before runs."""
    ahead: deque[Worker] = deque()
    for trial in trials:
        worker = Worker(limit_s * trial.patience, trial.module, trial.environment)
        ahead.append(stack.enter_context(worker))
        ahead[-1].prepare()
        if len(ahead) > 1:
            yield ahead.popleft()
    yield from ahead


def _tell_step(tell: Tell, about: str, what: str) -> None:
    tell(f"{about}, {what}")


def _row(trial: Trial, ended: TaskOutcome) -> TrialRow:
    if ended.result is not None:
        return TrialRow(trial.name, "done", ended.result)
    status: Status = "refused" if ended.refused else "hung" if ended.timed_out else "failed"
    return TrialRow(trial.name, status, None, ended.refused or ended.failed, ended.step)
