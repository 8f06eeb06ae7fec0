"""Work in child processes, so that a hanging or crashing kernel costs one task only.

A child runs its tasks in order and reports each step. A child that is silent too long, or dies, is ended. Its current
task gets the reason, and a new child continues. A child may be kept for the next run.
"""

from __future__ import annotations

import json
import os
import queue
import signal
import threading
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Any

from blackwell_matmul.base.processes import left_with
from blackwell_matmul.harness.bench import nursery
from blackwell_matmul.harness.bench.child import MESSAGE_PREFIX

Task = Mapping[str, Any]
"""Task as plain data. "do": a function of `tasks` or "module:function"; other items: its arguments."""

TASKS = "blackwell_matmul.harness.bench.tasks"

START_LIMIT_S = 300.0
"""Seconds for a child's imports with a cold disk and busy cores."""


@dataclass(frozen=True)
class Ended:
    """End of a task: a result, a refusal, or a failure at a step. hung: its child was silent too long."""

    result: dict[str, Any] | None = None
    refused: str = ""
    failed: str = ""
    at: str = ""
    hung: bool = False


class Workers:
    """Children, one at a time. limit_s: maximum silence. environment: added variables. module: imported before there is
    work. keep: a child continues in the next run.
    """

    def __init__(
        self, limit_s: float, environment: Mapping[str, str] | None = None, module: str = TASKS, keep: bool = False
    ) -> None:
        self.limit_s, self._module, self._keep = limit_s, module, keep
        self._environment = {**os.environ, **(environment or {})}
        self._ready: _Child | None = None
        self._at_work: _Child | None = None
        self._lock, self._over = threading.Lock(), False

    def __enter__(self) -> Workers:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.end()

    def end(self) -> None:
        """End the children, from any thread; `run` starts nothing more."""
        with self._lock:
            self._over = True
            children = (self._ready, self._at_work)
        for child in filter(None, children):
            child.end()

    def run(self, tasks: Sequence[Task], step: Callable[[str], None] | None = None) -> Generator[Ended]:
        """Yield one `Ended` for each task, in order. step: called before each step of a child."""
        done, idle = 0, False
        while done < len(tasks) and (child := self._take()):
            try:
                for ended in child.work(tasks[done:], self.limit_s, step or (lambda what: None)):
                    done += 1
                    idle = done == len(tasks) and not ended.failed
                    yield ended
            finally:
                self._leave(child, idle)

    def prepare(self) -> None:
        """Start a child's imports."""
        self._ready = self._ready or self._child()

    def _child(self) -> _Child:
        return _Child(nursery.begin(self._module, self._environment))

    def _take(self) -> _Child | None:
        with self._lock:
            if self._over:
                return None
            self._at_work, self._ready = self._ready or self._child(), None
            return self._at_work

    def _leave(self, child: _Child, idle: bool) -> None:
        with self._lock:
            kept = self._keep and idle and not self._over
            if kept:
                self._ready = child
        if not kept:
            child.end()


class _Child:
    """A process that imports, then waits for tasks. It ends when its stdin closes."""

    def __init__(self, process: nursery.Begun) -> None:
        self._process = process
        self._said: queue.Queue[str | None] = queue.Queue()
        self._lock, self._ended, self._started = threading.Lock(), False, False
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with suppress(ValueError):  # it was closed meanwhile
            for line in self._process.stdout:
                self._said.put(line)
        self._said.put(None)

    def work(self, tasks: Sequence[Task], limit_s: float, step: Callable[[str], None]) -> Iterator[Ended]:
        """Yield the tasks' ends, up to the one at which the child failed."""
        self._send(tasks)
        for _ in tasks:
            ended = self._next_end(limit_s, step, limit_s if self._started else START_LIMIT_S)
            self._started = True
            yield ended
            if ended.failed:  # the child has left, or must
                return

    def _next_end(self, limit_s: float, step: Callable[[str], None], first_limit_s: float) -> Ended:
        at, patience_s = "", first_limit_s
        while True:
            try:
                line = self._said.get(timeout=patience_s)
            except queue.Empty:
                return Ended(failed=f"no sign of life for {patience_s:g} s", at=at, hung=True)
            patience_s = limit_s
            if line is None:
                return Ended(failed=self._why(), at=at)
            said = _message(line)
            if "step" in said:
                at = said["step"]
                step(at)
            elif said:
                return Ended(**said)

    def _send(self, tasks: Sequence[Task]) -> None:
        with suppress(BrokenPipeError):  # it died already; reading tells why
            self._process.stdin.write(json.dumps(list(tasks)) + "\n")
            self._process.stdin.flush()

    def _why(self) -> str:
        """Return why the process ended: the signal, or the last line of stderr."""
        code, errors = self._process.why()
        if code < 0:
            return f"its process was ended by signal {-code} ({_signal_name(-code)})"
        return left_with(code, errors)

    def end(self) -> None:
        """Kill the child with its children; once."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
        self._process.end()


def _message(line: str) -> dict[str, Any]:
    return dict(json.loads(line.removeprefix(MESSAGE_PREFIX))) if line.startswith(MESSAGE_PREFIX) else {}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
