"""Processes: faster start, temporary process-wide changes, and the end of child processes."""

from __future__ import annotations

import gc
import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

SELDOM = 100_000


def collect_seldom() -> None:
    """Run the garbage collector rarely; call before importing torch and tilus, which make many objects."""
    gc.set_threshold(SELDOM)


class ForAWhile:
    """A temporary change of process-wide state, such as of the garbage collector.

    One thread at a time makes and undoes the change; other threads pass through their blocks without a change. A forked
    child undoes a change that another thread of its parent has made.
    """

    def __init__(self, change: Callable[[], AbstractContextManager[Any]]) -> None:
        self._change = change
        self._free = threading.Lock()
        self._made: tuple[int, AbstractContextManager[Any]] | None = None
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=self._forked)

    @contextmanager
    def __call__(self) -> Iterator[None]:
        if not self._free.acquire(blocking=False):
            yield
            return
        try:
            made = self._change()
            self._made = threading.get_ident(), made
            with made:
                yield
        finally:
            self._made = None
            self._free.release()

    def _forked(self) -> None:
        if self._made is None or self._made[0] == threading.get_ident():
            return
        self._made[1].__exit__(None, None, None)
        self._made, self._free = None, threading.Lock()


@ForAWhile
@contextmanager
def uncollected() -> Iterator[None]:
    """Disable garbage collection inside the block, which makes many long-lived objects."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@ForAWhile
@contextmanager
def heap_set_aside() -> Iterator[None]:
    """Exclude existing objects from garbage collection inside the block. After a fork, a collection would visit all
    objects and so copy their memory pages."""
    if gc.get_freeze_count():
        yield
        return
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def cores() -> int:
    """Return the number of cores that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def can_fork() -> bool:
    """Return True if this process may fork. Forking is safe on Linux alone, and daemons may have no children."""
    return sys.platform == "linux" and not multiprocessing.current_process().daemon


def end_with_children(process: subprocess.Popen[Any]) -> None:
    """Kill a process that leads its own session, and its children. A surviving child would keep the pipes open."""
    with suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def left_with(code: int, stderr: str) -> str:
    """Return the reason of a nonzero exit: the code and the last line of stderr."""
    last = [line.strip() for line in stderr.splitlines() if line.strip()][-1:]
    return f"its process ended with code {code}{''.join(f': {line[:300]}' for line in last)}"
