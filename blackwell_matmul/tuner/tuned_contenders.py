"""Contenders of `bench --tuned`: each rung with its tuned schedule for a problem."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.harness.bench.contenders import BASELINE_FILES, Contender
from blackwell_matmul.harness.bench.suites import BenchCase
from blackwell_matmul.harness.calls.user_kernel import find
from blackwell_matmul.runtime.winners import winner
from blackwell_matmul.tuner.candidates import spelled


def winners(rungs: Sequence[str], cases: Sequence[BenchCase], gpu: Gpu) -> Iterator[Contender]:
    """Yield a contender for each problem that has a tuned schedule."""
    for rung in rungs:
        if rung in BASELINE_FILES:
            continue
        kernel = find(rung)
        for case in cases:
            schedule = winner(kernel.script_cls, case.problem, gpu)
            if schedule:
                name = f"{rung.rpartition(':')[2]} tuned"
                yield Contender(name, "kernel", rung, spelled(schedule), str(case.problem))
