"""Trials that take no time, for sweeps in real workers; what they do is in the trial, as it runs in another process."""

from __future__ import annotations

import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from blackwell_matmul.jobs.running_trials import Job

Trial = tuple[int, str, str]
"""A number, what happens, and a folder."""


def measure(trial: Trial) -> dict[str, Any]:
    number, what, folder = trial
    Path(folder, f"{number}-{os.getpid()}-{time.monotonic_ns()}").touch()  # who ran it
    if what == "kills once" and len(runs(Path(folder), number)) == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "kills":
        os.kill(os.getpid(), signal.SIGKILL)
    if what == "raises":
        raise KeyError("a fault")
    time.sleep(600 if what == "sleeps" else 0.02)
    return {"square": number**2}


def runs(folder: Path, number: int) -> list[Path]:
    return list(folder.glob(f"{number}-*"))


def name(trial: Trial) -> dict[str, Any]:
    return {"number": trial[0]}


def job(folder: Path, count: int, **special: int) -> Job[Trial]:
    """special: which number does what, with _ for spaces."""
    doing = {number: what.replace("_", " ") for what, number in special.items()}
    trials = [(number, doing.get(number, ""), str(folder)) for number in range(count)]
    return Job("squares", trials, measure, name)


def two_threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(2)


NOT_CALLABLE = 7
