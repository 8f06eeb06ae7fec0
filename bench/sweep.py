"""Schedules of V0 to V6 over many odd shapes, against float64: `python bench/sweep.py [--executor processes:N]`.

For each schedule and element type, or for some that are drawn with a seed, a seeded draw of (n, k), and for each of
those all of MS, since m is no compile-time constant. Everything is simulated: a line of the result says what the
simulator computed, and nothing about a GPU.
The result is JSON lines, one for each (rung, schedule, n, k, dtype); lines that are already there are not run again.

    worst_ratio   the largest error over all m, relative to that of torch's own product (2 is the limit)
    ok            every m is right, the simulator found nothing, and every order gives the same bits
    wrong         the m that are not right; findings: codes of what the simulator found
    seconds       host time for all m in all orders, compilation included
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console

from blackwell_matmul.hardware.gpus import gpu_for_target
from blackwell_matmul.harness import check_matmul
from blackwell_matmul.harness.reference import TORCH_DTYPES, dtype_of_c
from blackwell_matmul.jobs.running_trials import Job, run
from blackwell_matmul.kernels import LADDERS, rung
from blackwell_matmul.problem.problem import Problem, Schedule
from blackwell_matmul.scheduling.rules import why_not
from blackwell_matmul.scheduling.space import projection
from blackwell_matmul.simulator import simulate
from blackwell_matmul_studies.scripts import ExecutorOption, judged_rows, script

TARGET = "sm_100a"
MS = (1, 8, 17, 127, 129, 200, 264)
NS = KS = (1, 2, 8, 16, 17, 24, 40, 72, 126, 127, 128, 129, 136, 200, 264, 392)
ORDERS = (("adversarial", 0), ("eager", 0), ("random", 1))
RESULTS = Path(__file__).parent / "results" / "sweep.jsonl"

Case = tuple[str, dict[str, int], int, int, str]


def cases(draws: int, schedules: int) -> Iterator[Case]:
    """`draws` different (n, k) for each rung, schedule and element type, of those that why_not allows. schedules: the
    most of each rung and type; 0: all."""
    gpu = gpu_for_target(TARGET)
    for name in reversed(LADDERS[TARGET]):
        for dtype in sorted(TORCH_DTYPES):
            listed = projection(rung(name))
            some = random.Random(f"{name} {dtype}").sample(listed, min(schedules, len(listed)))
            for schedule in some or listed:
                fitting = [(n, k) for n in NS for k in KS if not why_not(schedule, Problem(128, n, k, dtype), gpu)]
                draw = random.Random(f"{name} {schedule} {dtype}")
                for n, k in draw.sample(fitting, min(draws, len(fitting))):
                    yield name, schedule.as_dict(), n, k, dtype


FIELDS = ("rung", "schedule", "n", "k", "dtype")


def name(case: Case) -> dict[str, Any]:
    return dict(zip(FIELDS, case, strict=True))


def measure(case: Case) -> dict[str, Any]:
    """What a line of the result has besides its name."""
    torch.set_num_threads(1)
    rung_name, schedule, n, k, dtype = case
    start, worst, wrong, findings = time.perf_counter(), 0.0, [], set[str]()
    for m in MS:
        ratio, ok, found = compare(rung_name, Schedule(**schedule), m, n, k, dtype)
        worst, findings = max(worst, ratio), findings | found
        wrong += [] if ok else [m]
    return {
        "m": list(MS), "orders": len(ORDERS),
        "ok": not wrong and not findings, "worst_ratio": round(worst, 4), "wrong": wrong, "findings": sorted(findings),
        "seconds": round(time.perf_counter() - start, 3),
    }  # fmt: skip


def compare(name: str, schedule: Schedule, m: int, n: int, k: int, dtype: str) -> tuple[float, bool, set[str]]:
    """The error over torch's, whether C is right and the same in all orders, and the codes of findings."""
    generator = torch.Generator().manual_seed(m * 10**6 + n * 10**3 + k)
    a, b = (torch.randn(rows, k, generator=generator).to(TORCH_DTYPES[dtype]) for rows in (m, n))
    outputs, findings = [], set()
    for policy, seed in ORDERS:
        c = torch.full((m, n), float("nan"), dtype=dtype_of_c(Problem(m, n, k, dtype)))
        run = simulate(
            rung(name), m, n, k, a, b, c, schedule=schedule, policy=policy, seed=seed, workers=1, trace=False
        )
        outputs.append(c)
        findings |= {finding.code for finding in run.findings}
    verdict = check_matmul(a, b, outputs[0])
    same = all(torch.equal(c, outputs[0]) for c in outputs[1:])
    return verdict.ratio, verdict.ok and same, findings


def main(
    draws: Annotated[int, typer.Option(help="shapes (n, k) for each rung, schedule and type")] = 5,
    schedules: Annotated[int, typer.Option(help="schedules of each rung and type, drawn; 0: all")] = 0,
    executor: ExecutorOption = "processes:2",
    result: Annotated[Path, typer.Option(help="the file of JSON lines; what it has is not run again")] = RESULTS,
) -> None:
    """Run what the result lacks, and say what is wrong; exit code 1 if anything is."""
    run(Job("schedules x shapes", list(cases(draws, schedules)), measure, name), result, executor)
    raise typer.Exit(report(result))


def report(result: Path) -> int:
    """Sort the file, print the summary."""
    console = Console()
    rows, right = judged_rows(result, FIELDS)
    for name in reversed(LADDERS[TARGET]):
        mine = [row for row in rows if row["rung"] == name]
        worst = max((row["worst_ratio"] for row in mine), default=0.0)
        good = sum(row["ok"] for row in mine)
        products = sum(len(row["m"]) for row in mine)
        console.print(
            f"{name}: {good} of {len(mine)} ok, {products} products, worst error {worst:.2f}x torch's (simulated)"
        )
    return int(not right)


if __name__ == "__main__":
    script(main)
