"""Results that nobody measured, for tables and charts."""

from __future__ import annotations

from pathlib import Path

from blackwell_matmul.harness.bench.devices import DATA
from blackwell_matmul.harness.bench.protocol import timing
from blackwell_matmul.harness.bench.results import BenchRow, Machine, SuiteResults
from blackwell_matmul.problem.problem import Problem

MACHINE = Machine("Made-up GPU", "sm_90a", 132, 989.0, {"driver_version": "580.1", "versions": {"torch": "2.11.0"}})
SPEED = {"cublas": 0.78, "h0": 0.11, "h1": 0.2, "h2": 0.46, "h3": 0.58, "h5": 0.66, "h6": 0.74, "triton": 0.7}
"""Of the peak, at the largest size."""

SIZES = (1024, 2048, 4096, 8192)
TELEMETRY = {
    "sm_clock_mhz": {"before": 1980.0, "during": 1725.0, "after": 1710.0},
    "power_w": {"before": 120.0, "during": 683.0, "after": 690.0},
    "temperature_c": {"before": 35.0, "during": 61.0, "after": 64.0},
}


def row(contender: str, problem: Problem, **changes) -> BenchRow:
    best_us = problem.flops / 989e6 / SPEED[contender] * (1 + 700 / problem.m)
    cublas_us = problem.flops / 989e6 / SPEED["cublas"] * (1 + 700 / problem.m)
    found = {
        "contender": contender,
        "problem": problem,
        "band": "squares",
        "schedule": {"block_m": 128, "block_n": 256} if contender[0] == "h" else {},
        "timing": timing([best_us * factor for factor in (0.98, 0.99, 1.0, 1.01, 1.03)]),
        "launched_by": "graph",
        "session": str(problem),
        "cublas_us": cublas_us,
        "error": 0.001,
        "cublas_error": 0.001,
    }
    return BenchRow(**{**found, **changes})


def ladder(folder: Path, contenders=tuple(SPEED), sizes=SIZES, dtypes=("fp16", "bf16")) -> SuiteResults:
    book = SuiteResults(folder, "ladder", MACHINE)
    for dtype in dtypes:
        for size in sizes:
            problem = Problem(size, size, size, dtype)
            for name in contenders:
                book.put(row(name, problem))
            book.sessions[str(problem)] = session()
    return book


def session(settled: bool = True) -> dict:
    return {
        "taken": "2026-01-02 03:04:05",
        "data": DATA,
        "settings": {"rounds": 30},
        "sets": 3,
        "warmup": {"seconds": 1.0, "rounds": 10, "settled": settled},
        "telemetry": TELEMETRY,
    }
