"""Processes: how ours begin, and what is changed for a while in this one; and of those that may hang or crash, ending
one with all that it has started, and why one has ended."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from typing import Any

SELDOM = 100_000


def collect_seldom() -> None:
    """Before torch and tilus are imported. The garbage collector looks after every 700 new objects and walks again and
    again through what those two make and keep: a fifth of the time of their import."""
    gc.set_threshold(SELDOM)


class ForAWhile:
    """A change of what the whole process shares. One thread at a time makes the change and puts back what it found;
    another thread goes on meanwhile with what it finds.

    A forked child is rid of its parent's other threads, and of what one of these has changed.
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
    """Without garbage collection inside the block: it makes hundreds of thousands of objects and needs most of them to
    its end, and would be stopped to look at all that the process has.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def end_with_children(process: subprocess.Popen[Any]) -> None:
    """Of a process that leads a session of its own: compilers leave workers, which would keep its pipes open."""
    with suppress(ProcessLookupError):
        if hasattr(os, "killpg"):
            os.killpg(process.pid, signal.SIGKILL)
        else:
            process.kill()


def left_with(code: int, stderr: str) -> str:
    """Why a process ended that no signal did: the last line that it wrote to stderr."""
    last = [line.strip() for line in stderr.splitlines() if line.strip()][-1:]
    return f"its process ended with code {code}{''.join(f': {line[:300]}' for line in last)}"
