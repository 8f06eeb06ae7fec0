"""Tasks in child processes, so that a task that hangs or crashes does not affect other tasks.

A child reports each step of a task. A child that dies, or reports nothing for too long, is killed. Its task fails with
the reason, and the next task gets a new child.
"""

from __future__ import annotations

import base64
import json
import math
import os
import pickle
import queue
import signal
import threading
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import Executor, Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any, ParamSpec, TypeVar

from blackwell_matmul.base.processes import left_with
from blackwell_matmul.jobs import fork_server, worker_main
from blackwell_matmul.jobs.handing_out import completed
from blackwell_matmul.jobs.row_file import DIED
from blackwell_matmul.jobs.worker_main import MESSAGE_PREFIX

T = TypeVar("T")
R = TypeVar("R")
P = ParamSpec("P")
Task = Mapping[str, Any]
"""Task as plain data. "do": name of a function, as "module:function". Other items: the function's arguments."""

START_LIMIT_S = 300.0
"""Maximum seconds for a child's imports, with a cold disk and busy cores."""

MAX_POOL_WORKERS = 16
"""Maximum workers of a pool, as each may hold torch and tilus in memory."""


@dataclass(frozen=True)
class TaskOutcome:
    """End of a task: a result, a refusal, or a failure. step: the last step begun. timed_out: True if the child
    reported nothing for too long."""

    result: dict[str, Any] | None = None
    refused: str = ""
    failed: str = ""
    step: str = ""
    timed_out: bool = False

    @property
    def why(self) -> str:
        """Return the reason why the task has no result."""
        return self.refused or self.failed


class WorkerEnded(Exception):
    """Raised for a task that is given to a worker after its `end`."""


class Worker:
    """A child process for one task at a time. limit_s: maximum seconds between its reports. module: imported before the
    first task. environment: added variables."""

    def __init__(self, limit_s: float, module: str, environment: Mapping[str, str] | None = None) -> None:
        self._limit_s, self._module = limit_s, module
        self._environment = {**os.environ, **(environment or {})}
        self._child: _Child | None = None
        self._lock, self._over = threading.Lock(), False

    def __enter__(self) -> Worker:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()

    def do(self, task: Task, step: Callable[[str], None] = lambda what: None) -> TaskOutcome:
        """Return the outcome of a task. step: called before each step, with its name. Raises WorkerEnded after
        `end`."""
        child, outcome = self.prepare(), None
        try:
            outcome = child.do(task, self._limit_s, step)
            return outcome
        finally:
            if (outcome is None or outcome.failed) and self._child is child:  # the child has exited, or must
                self.renew()

    def prepare(self) -> _Child:
        """Return the child process; if there is none, start a child and its imports."""
        with self._lock:
            if self._over:
                raise WorkerEnded
            self._child = self._child or _Child(fork_server.start_child(self._module, self._environment))
            return self._child

    def renew(self) -> None:
        """End the child; the next task starts a new child."""
        with self._lock:
            child, self._child = self._child, None
        if child is not None:
            child.end()

    def end(self) -> None:
        """End the worker, from any thread."""
        with self._lock:
            self._over = True
        self.renew()


class _Child:
    """A child process that imports, then waits for tasks. It exits when its stdin closes."""

    def __init__(self, process: fork_server.Child) -> None:
        self._process = process
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._started = False
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with suppress(ValueError):  # stdout was closed meanwhile
            for line in self._process.stdout:
                self._lines.put(line)
        self._lines.put(None)

    def do(self, task: Task, limit_s: float, step: Callable[[str], None]) -> TaskOutcome:
        self._send(task)
        at, patience_s = "", limit_s if self._started else max(limit_s, START_LIMIT_S)
        while True:
            try:
                line = self._lines.get(timeout=patience_s)
            except queue.Empty:
                return TaskOutcome(failed=f"no sign of life for {patience_s:g} s", step=at, timed_out=True)
            self._started, patience_s = True, limit_s
            if line is None:
                return TaskOutcome(failed=self._why(), step=at)
            message = _message(line)
            if message.keys() == {"step"}:
                at = message["step"]
                step(at)
            elif message:
                return TaskOutcome(**message)

    def _send(self, task: Task) -> None:
        with suppress(BrokenPipeError):  # the child has died; reading its stdout says so
            self._process.stdin.write(json.dumps(task) + "\n")
            self._process.stdin.flush()

    def _why(self) -> str:
        """Return why the process ended: the signal, or the last line of stderr."""
        code, errors = self._process.exit_status()
        if code < 0:
            return f"its process was ended by signal {-code} ({_signal_name(-code)})"
        return left_with(code, errors)

    def end(self) -> None:
        """Kill the child and its children. Call it once; `Worker.renew` drops the child."""
        self._process.end()


def _message(line: str) -> dict[str, Any]:
    return dict(json.loads(line.removeprefix(MESSAGE_PREFIX))) if line.startswith(MESSAGE_PREFIX) else {}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"


# --- workers in parallel


class WorkerPool(Executor):
    """Workers in parallel. As an Executor, the pool runs functions that return a row and that children can import.

    running: items of `run` in progress, by future.
    """

    def __init__(self, workers: Iterable[Worker]) -> None:
        self.workers = tuple(workers)
        self.running: dict[Future[TaskOutcome], Any] = {}
        self._threads = ThreadPoolExecutor(len(self.workers))
        self._free: queue.SimpleQueue[Worker] = queue.SimpleQueue()
        for worker in self.workers:
            self._free.put(worker)

    def run(
        self, items: Iterable[T], task: Callable[[T], Task], until_s: float = math.inf
    ) -> Generator[tuple[T, TaskOutcome]]:
        """Give each free worker the next item's task; yield each item with its outcome as tasks end.

        A worker keeps its child until a task fails; at the end no child is left. Nothing is submitted while the caller
        handles an outcome. Close this generator if it may not be exhausted. until_s: last time to begin a task, on
        time.monotonic's clock.
        """
        left = iter(items)
        next_item = lambda: next(left, None) if time.monotonic() < until_s else None  # noqa: E731
        submit = lambda item: self._threads.submit(self._do, task(item))  # noqa: E731
        try:
            for item, future in completed(next_item, submit, lambda: len(self.workers), self.running):
                yield item, future.result()
        finally:
            self.running.clear()
            for worker in self.workers:
                worker.renew()

    def _do(self, task: Task) -> TaskOutcome:
        worker = self._free.get()
        try:
            return worker.do(task)
        finally:
            self._free.put(worker)

    def submit(self, fn: Callable[P, R], /, *args: P.args, **kwargs: P.kwargs) -> Future[R]:
        """Return the future of the function's row; the row of a failure has the reason as "refused" or `DIED`."""
        call = base64.b64encode(pickle.dumps((fn, args, kwargs))).decode()
        return self._threads.submit(self._row, {"do": f"{worker_main.__name__}:call", "pickled": call})

    def _row(self, task: Task) -> Any:
        outcome = self._do(task)
        if outcome.result is not None:
            return outcome.result
        return {"refused": outcome.refused} if outcome.refused else {DIED: outcome.failed}

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers immediately."""
        end_all(self.workers)
        self._threads.shutdown(wait, cancel_futures=True)


@contextmanager
def worker_pool(
    count: int, limit_s: float, module: str, environment: Mapping[str, str] | None = None
) -> Generator[WorkerPool]:
    """Yield a pool of this many workers, at most one a core; their children start importing at once."""
    cores = max(1, min(count, os.cpu_count() or 1, MAX_POOL_WORKERS))
    with WorkerPool([Worker(limit_s, module, environment) for _ in range(cores)]) as pool:
        for worker in pool.workers:
            worker.prepare()
        yield pool


def compiled_in_pool(
    tasks: Mapping[str, Task], limit_s: float, module: str, tell: Callable[[str], None]
) -> dict[str, TaskOutcome]:
    """Run tasks that compile, each by name, and return their outcomes in the order of the tasks. tell: called with a
    line at the end of each."""
    found = dict[str, TaskOutcome]()
    with worker_pool(len(tasks), limit_s, module) as pool:
        for name, outcome in pool.run(tasks, lambda name: tasks[name]):
            found[name] = outcome
            verb = "refused" if outcome.result is None else "compiled"
            tell(f"{verb} {len(found)} of {len(tasks)}: {name}")
    return {name: found[name] for name in tasks}


def end_all(workers: Iterable[Worker]) -> None:
    for worker in workers:
        worker.end()


@contextmanager
def ended_on_exception(workers: Iterable[Worker]) -> Iterator[None]:
    """Kill the workers on an exception, before their threads are joined."""
    try:
        yield
    except BaseException:
        end_all(workers)
        raise
