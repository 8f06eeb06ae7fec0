"""Work in child processes, so that a kernel that hangs or crashes costs one task and never the run.

A child does its tasks one after the other and tells of each step. One that is silent for too long, or dies, ends; the
task it was at gets the reason, and a new child goes on with the rest. A child that has done its tasks may be kept, and
goes on with those of the next run.
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
from blackwell_matmul.harness.bench.child import MARK

Task = Mapping[str, Any]
"""Plain data: "do" names a function, of `tasks` or as "module:function", the rest are its arguments."""

TASKS = "blackwell_matmul.harness.bench.tasks"

START_LIMIT_S = 300.0
"""For a child's imports, which take seconds, and more where the disk is cold and the cores are busy."""


@dataclass(frozen=True)
class Ended:
    """How a task ended: with a result, refused in a sentence, or broken off (failed) at a step (at).
    hung: its child was silent for too long."""

    result: dict[str, Any] | None = None
    refused: str = ""
    failed: str = ""
    at: str = ""
    hung: bool = False


class Workers:
    """Children, one at a time. limit_s: the longest that one may be silent. environment: variables that they start
    with, besides this process's. module: what they import before there is work. keep: a child that has done its tasks
    does those of the next run as well."""

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
        """End the children, from any thread; `run` begins nothing more."""
        with self._lock:
            self._over = True
            children = (self._ready, self._at_work)
        for child in filter(None, children):
            child.end()

    def run(self, tasks: Sequence[Task], step: Callable[[str], None] | None = None) -> Generator[Ended]:
        """One `Ended` for each task, in order. step: is told what a child is about to do."""
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
        """Have a child ready, with its imports under way."""
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
    """A process that imports what it needs and then waits for its tasks. It ends when its stdin is closed."""

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
        """The tasks' ends, up to the one at which the child broke off."""
        self._send(tasks)
        for _ in tasks:
            ended = self._next_end(limit_s, step, limit_s if self._started else START_LIMIT_S)
            self._started = True
            yield ended
            if ended.failed:  # the child has left, or has to
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
        """Why the process ended: the signal, or the last line that it wrote to stderr."""
        code, errors = self._process.why()
        if code < 0:
            return f"its process was ended by signal {-code} ({_signal_name(-code)})"
        return left_with(code, errors)

    def end(self) -> None:
        """With all that it has started; once."""
        with self._lock:
            if self._ended:
                return
            self._ended = True
        self._process.end()


def _message(line: str) -> dict[str, Any]:
    return dict(json.loads(line.removeprefix(MARK))) if line.startswith(MARK) else {}


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return "unknown"
