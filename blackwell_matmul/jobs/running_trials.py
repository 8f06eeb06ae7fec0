"""Run the trials that a file of rows lacks, on any executor, and keep each row as it comes.

No more trials are handed out than run at a time, in an order of this run's own, and what other runs have added is read
before: runs that share a file share the work. A worker that dies costs its trial a second try, alone, so that who dies
with it is known; a trial whose worker dies then, too, gets a row that says so.
"""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from blackwell_matmul.base.errors import InputError, UnsupportedError
from blackwell_matmul.base.interrupts import keeping
from blackwell_matmul.base.validation import said, spelled
from blackwell_matmul.jobs.executors import PROCESSES, Crew, crew
from blackwell_matmul.jobs.row_file import Row, RowFile, Rows

T = TypeVar("T")
DIED = "died"
"""The field of a row whose trial took its worker with it."""
WHY_DIED = "its worker ended, and a second one ended with this trial alone"
LOOK_S = 2.0
"""Between two looks whether workers have come."""


@dataclass(frozen=True)
class Job(Generic[T]):
    """Trials that are independent of one another. name: the fields of a row that name its trial; measure: the other
    ones, found in any process and on any machine."""

    what: str
    trials: Sequence[T]
    measure: Callable[[T], Row]
    name: Callable[[T], Row]


def run(
    job: Job[T], file: Path | None, executor: str = PROCESSES, until_s: float = math.inf, quiet: bool = False
) -> list[Row]:
    """The rows of the job's trials, those that were there among them, in the job's order. file: None keeps none.
    until_s: on the clock of time.monotonic; what has not begun by then is left."""
    started = crew(executor)  # refused before there is a file
    if not job.trials:
        return []
    fields = job.name(job.trials[0])
    rows = Rows(fields) if file is None else RowFile(file, fields)
    campaign = _Campaign(job, rows, until_s)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    said = nullcontext() if file is None else keeping(campaign.kept)
    with said, Progress(*columns, console=Console(stderr=True), disable=quiet) as bar:
        task = bar.add_task(job.what, total=len(job.trials))
        campaign.tell = lambda: bar.update(task, completed=campaign.count())
        while campaign.is_left():
            with started as workers:
                campaign.go(workers)
            started = crew(executor)
    return [row for trial in job.trials if (row := rows.get(job.name(trial))) is not None]


class _Campaign(Generic[T]):
    """What a run has before it. suspects: trials whose worker died; alone: the one that is tried again."""

    def __init__(self, job: Job[T], rows: Rows, until_s: float) -> None:
        self._job, self._rows, self._until_s = job, rows, until_s
        self._names = {rows.name_of(job.name(trial)) for trial in job.trials}
        self._pending = deque(random.sample(job.trials, len(job.trials)))
        self._suspects: deque[T] = deque()
        self._flying: dict[Future[Row], T] = {}
        self._alone, self._broken = False, False
        self.tell: Callable[[], None] = lambda: None

    def kept(self) -> str:
        return self._rows.kept(self._names)

    def count(self) -> int:
        return self._rows.count(self._names)

    def is_left(self) -> bool:
        """Whether a trial has to be handed out, after a look at what others have done."""
        self._rows.read()
        for trials in (self._suspects, self._pending):
            while trials and self._job.name(trials[0]) in self._rows:
                trials.popleft()
        return bool(self._suspects or self._pending) and time.monotonic() < self._until_s

    def go(self, workers: Crew) -> None:
        """To the end, or to that of the executor."""
        self._broken = False
        while not self._broken and (self._hand_out(workers) or self._flying):
            done, _ = wait(self._flying, LOOK_S, FIRST_COMPLETED)
            for future in done:
                self._take(self._flying.pop(future), future)
            self.tell()
        for future, trial in self._flying.items():  # of a broken executor
            self._take(trial, future)
        self._flying.clear()

    def _hand_out(self, workers: Crew) -> bool:
        """Whether there was any."""
        handed = False
        while len(self._flying) < self._room(workers) and not self._broken and self.is_left():
            self._alone = bool(self._suspects)
            self._submit(workers, (self._suspects or self._pending).popleft())
            handed = True
        return handed

    def _room(self, workers: Crew) -> int:
        """A suspect waits until nothing else is in flight, and nothing joins it."""
        return 1 if self._suspects or (self._alone and self._flying) else workers.width()

    def _submit(self, workers: Crew, trial: T) -> None:
        try:
            self._flying[workers.executor.submit(self._job.measure, trial)] = trial
        except BrokenExecutor:  # before it was handed out
            (self._suspects if self._alone else self._pending).appendleft(trial)
            self._broken = True

    def _take(self, trial: T, future: Future[Row]) -> None:
        try:
            row = {**self._job.name(trial), **future.result()}
        except BrokenExecutor:
            self._broken = True
            self._blame(trial)
        except CancelledError as error:
            raise UnsupportedError(f"the executor has ended; {self.kept()}.") from error
        except Exception as error:
            if type(error).__name__ != "KilledWorker":  # Dask's, which need not be installed
                name = ", ".join(map(str, self._job.name(trial).values()))
                raise UnsupportedError(f"trial {name} fails, {spelled(error)}; {self.kept()}.") from error
            self._blame(trial)
        else:
            self._keep(trial, row)

    def _keep(self, trial: T, row: Row) -> None:
        try:
            self._rows.add(row)
        except InputError as error:
            name = ", ".join(map(str, self._job.name(trial).values()))
            raise UnsupportedError(f"trial {name} is not kept, {said(error)}; {self.kept()}.") from error

    def _blame(self, trial: T) -> None:
        if self._alone:
            self._keep(trial, {**self._job.name(trial), DIED: WHY_DIED})
        else:
            self._suspects.append(trial)


def died(rows: Sequence[Row]) -> list[Row]:
    """Those of trials that took their workers with them; they have a name and no result."""
    return [row for row in rows if DIED in row]
