"""Runs the missing trials of a row file on any executor, and stores each row at once.

Runs may share a file. Each run submits only as many trials as run in parallel, in random order, after reading the other
runs' rows. A trial whose worker dies runs again alone. If that worker dies too, the row says so.
"""

from __future__ import annotations

import math
import random
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import BrokenExecutor, CancelledError, Future
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Generic, TypeVar

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from blackwell_matmul.base.errors import InputError, UnsupportedError
from blackwell_matmul.base.interrupts import keeping
from blackwell_matmul.base.validation import said, spelled
from blackwell_matmul.jobs.executors import PROCESSES, ExecutorPool, OpenExecutor, open_executor
from blackwell_matmul.jobs.handing_out import completed
from blackwell_matmul.jobs.row_file import DIED, Row, RowFile, Rows

T = TypeVar("T")
WHY_DIED = "its worker ended, and a second one ended with this trial alone"
LOOK_S = 2.0
"""Seconds between checks for new workers."""


@dataclass(frozen=True)
class Job(Generic[T]):
    """Independent trials. name: returns the fields of a row that identify a trial. measure: returns the other fields;
    importable on any machine."""

    what: str
    trials: Sequence[T]
    measure: Callable[[T], Row]
    name: Callable[[T], Row]


def run(
    job: Job[T],
    file: Path | None,
    executor: str | OpenExecutor = PROCESSES,
    until_s: float = math.inf,
    quiet: bool = False,
    tell: Callable[[Row], None] = lambda row: None,
) -> list[Row]:
    """Return the rows of the job's trials, in the job's order; trials that already have rows are not run again.

    file: None stores nothing. until_s: last time to begin a trial, on time.monotonic's clock. tell: called with each
    new row.
    """
    opened = partial(open_executor, executor) if isinstance(executor, str) else executor
    started = opened()  # raises for a wrong executor before a file is made
    if not job.trials:
        return []
    fields = job.name(job.trials[0])
    rows = Rows(fields) if file is None else RowFile(file, fields)
    this_run = _Run(job, rows, until_s, tell)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    said = nullcontext() if file is None else keeping(this_run.kept)
    with said, Progress(*columns, console=Console(stderr=True), disable=quiet) as bar:
        task = bar.add_task(job.what, total=len(job.trials))
        this_run.show = lambda: bar.update(task, completed=this_run.count())
        while this_run.is_left():
            with started as workers:
                this_run.go(workers)
            started = opened()
    return [row for trial in job.trials if (row := rows.get(job.name(trial))) is not None]


class _Run(Generic[T]):
    """Remaining work of a run. suspects: trials whose worker died. alone: True while a suspect runs again."""

    def __init__(self, job: Job[T], rows: Rows, until_s: float, tell: Callable[[Row], None]) -> None:
        self._job, self._rows, self._until_s, self._tell = job, rows, until_s, tell
        self._names = {rows.name_of(job.name(trial)) for trial in job.trials}
        shared = isinstance(rows, RowFile)
        self._pending = deque(random.sample(job.trials, len(job.trials)) if shared else job.trials)
        self._suspects: deque[T] = deque()
        self._in_progress: dict[Future[Row], T] = {}
        self._alone, self._broken = False, False
        self.show: Callable[[], None] = lambda: None

    def kept(self) -> str:
        return self._rows.kept(self._names)

    def count(self) -> int:
        return self._rows.count(self._names)

    def is_left(self) -> bool:
        """Return True if a trial is left, after reading other runs' rows."""
        self._rows.read()
        for trials in (self._suspects, self._pending):
            while trials and self._job.name(trials[0]) in self._rows:
                trials.popleft()
        return bool(self._suspects or self._pending) and time.monotonic() < self._until_s

    def go(self, workers: ExecutorPool) -> None:
        """Run trials until none is left or the executor breaks."""
        self._broken, submit, room = False, partial(self._submit, workers), partial(self._room, workers)
        try:
            for trial, future in completed(self._next, submit, room, self._in_progress, LOOK_S):
                self._take(trial, future)
        except CancelledError as error:
            raise UnsupportedError(f"the executor has ended; {self.kept()}.") from error

    def _next(self) -> T | None:
        if not self.is_left():
            return None
        self._alone = bool(self._suspects)
        return (self._suspects or self._pending).popleft()

    def _room(self, workers: ExecutorPool) -> int:
        """Return the maximum number of parallel trials: 0 for a broken executor, 1 for a suspect, which runs alone."""
        self.show()
        if self._broken:
            return 0
        return 1 if self._suspects or (self._alone and self._in_progress) else workers.parallel_trials()

    def _submit(self, workers: ExecutorPool, trial: T) -> Future[Row] | None:
        try:
            return workers.executor.submit(self._job.measure, trial)
        except BrokenExecutor:  # before the trial was submitted
            (self._suspects if self._alone else self._pending).appendleft(trial)
            self._broken = True
            return None

    def _take(self, trial: T, future: Future[Row]) -> None:
        try:
            row = {**self._job.name(trial), **future.result()}
        except BrokenExecutor:
            self._broken = True
            self._blame(trial)
        except CancelledError:
            raise
        except Exception as error:
            if type(error).__name__ != "KilledWorker":  # Dask's exception; Dask may not be installed
                name = ", ".join(map(str, self._job.name(trial).values()))
                raise UnsupportedError(f"trial {name} fails, {spelled(error)}; {self.kept()}.") from error
            self._blame(trial)
        else:
            self._keep(trial, row)

    def _keep(self, trial: T, row: Row) -> None:
        self._tell(row)
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
