"""Contenders from a file beside, and a session that runs in this process."""

from __future__ import annotations

from pathlib import Path

import pytest

from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.harness.bench import contenders, session
from blackwell_matmul.harness.bench.bundles import Index
from blackwell_matmul.harness.bench.protocol import Settings
from blackwell_matmul.harness.bench.results import Machine, SuiteResults
from blackwell_matmul.harness.bench.suites import BenchCase
from blackwell_matmul.jobs import worker_main
from blackwell_matmul.jobs.worker import TaskOutcome
from blackwell_matmul.problem.problem import Problem

FAKES = Path(__file__).with_name("fake_contenders.py")
MACHINE = Machine("cpu", "sm_90a", 0, None)
QUICK = Settings(rounds=3, warmup_s=0.0)


class InThisProcess:
    """As `Worker`, without children: nothing may hang or die."""

    def __init__(self, limit_s: float, module: str) -> None:
        pass

    def __enter__(self):
        return self

    def __exit__(self, *error) -> None:
        pass

    def do(self, task, step=lambda what: None):
        found, _ = worker_main.outcome(task, step)
        return TaskOutcome(**found)

    def renew(self) -> None:
        pass


class Trial:
    """A plan, a book and what is needed to run it."""

    def __init__(self, folder: Path, *names: str, sizes=((33, 40, 24),), suite: str = "size", **changes) -> None:
        self.folder, self.suite, self.told = folder, suite, []
        fakes = [contenders.function(name, f"{FAKES}:{name}") for name in names]
        cases = tuple(BenchCase(Problem(*size), "a band") for size in sizes)
        options = {"settings": QUICK, "device": "cpu", "limit_s": 60.0, **changes}
        self.plan = session.Plan((contenders.cublas(), *fakes), cases, **options)

    def run(self) -> SuiteResults:
        book = SuiteResults(self.folder, self.suite, MACHINE)
        index = Index(self.folder / "bundles", "sm_90a")
        session.run(self.plan, book, index, GPUS["H200"], self.told.append)
        return book


@pytest.fixture
def trial(tmp_path, monkeypatch):
    """A function that makes a `Trial`, to run in this process."""
    monkeypatch.setattr(session, "Worker", InThisProcess)
    return lambda *names, **options: Trial(tmp_path, *names, **options)


@pytest.fixture
def trial_in_children(tmp_path):
    return lambda *names, **options: Trial(tmp_path, *names, **options)
