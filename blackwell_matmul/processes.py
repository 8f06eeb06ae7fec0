"""Processes: how ours begin; and of those that may hang or crash, ending one with all that it has started, and why one
has ended."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

SELDOM = 100_000


def collect_seldom() -> None:
    """Before torch and tilus are imported. The garbage collector looks after every 700 new objects and walks again and
    again through what those two make and keep: a fifth of the time of their import."""
    gc.set_threshold(SELDOM)


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
