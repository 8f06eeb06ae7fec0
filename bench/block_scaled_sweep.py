"""Schedules of S0 to S2 and G1 on odd shapes, in three formats: `python bench/block_scaled_sweep.py [--rungs g1]`.

Each schedule that some problem can have is run once in each format, with the orders of tiles drawn, on a drawn shape
with tails, and in one of three orders, in turn: simulated, and compared with float64. Each tenth is compiled, too, and
its PTX is emulated: with equal values, bit for bit. Nothing here ran on a GPU.

JSON lines, one for each (rung, dtype, schedule); what is there is not run again.

    ratio      the largest error relative to that of torch's product of the dequantised operands (2 is the limit)
    findings   codes of what the simulator found
    emulated   whether the emulator was asked, and computed the same bits
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
from blackwell_matmul.harness.calls.inputs import arguments_of
from blackwell_matmul.harness.calls.kernel_call import resolve
from blackwell_matmul.harness.emulated import emulate_call
from blackwell_matmul.harness.verdict import check_product
from blackwell_matmul.jobs.running_trials import Job, run
from blackwell_matmul.kernels import rung
from blackwell_matmul.problem.block_scaled import BLOCK_SCALED
from blackwell_matmul.problem.problem import Problem, Schedule
from blackwell_matmul.scheduling.ladders import BLOCK_SCALED_LADDER
from blackwell_matmul.scheduling.rules import why_not
from blackwell_matmul.scheduling.space import projection
from blackwell_matmul.simulator import simulate
from blackwell_matmul_studies.scripts import ExecutorOption, judged_rows, script

MS, NS, KS = (1, 17, 127, 129, 200, 300), (8, 40, 72, 136, 200, 264, 520), (32, 64, 96, 160, 288, 544, 1120)
ORDERS = (("adversarial", 0), ("eager", 0), ("random", 1))
EMULATED = 10
"""One of so many is emulated."""

RESULTS = Path(__file__).parent / "results" / "block_scaled_sweep.jsonl"
Case = tuple[str, str, dict[str, int], tuple[int, int, int], int]


def cases() -> Iterator[Case]:
    number = 0
    for name in BLOCK_SCALED_LADDER:
        for dtype in BLOCK_SCALED:
            draw, smallest = random.Random(f"{name} {dtype}"), Problem(8, 8, 32, dtype)
            gpu = gpu_for_target(rung(name).target)
            kinds: dict[tuple[int | None, ...], list[Schedule]] = {}
            for each in projection(rung(name)):
                if not why_not(each, smallest, gpu):
                    kinds.setdefault((each.block_n, each.block_k, each.e_block_n, each.stages), []).append(each)
            for kind in kinds.values():
                number += 1
                shape = draw.choice(MS), draw.choice(NS), draw.choice(KS)
                yield name, dtype, draw.choice(kind).as_dict(), shape, number


FIELDS = ("rung", "dtype", "schedule")


def name(case: Case) -> dict[str, Any]:
    return dict(zip(FIELDS, case[: len(FIELDS)], strict=True))


def measure(case: Case) -> dict[str, Any]:
    """What a line of the result has besides its name."""
    torch.set_num_threads(1)
    rung_name, dtype, schedule, shape, number = case
    start, problem, (policy, seed) = time.perf_counter(), Problem(*shape, dtype), ORDERS[number % len(ORDERS)]
    arguments: Any = arguments_of(problem, number)
    ran = simulate(rung(rung_name), *arguments, schedule=schedule, policy=policy, seed=seed, workers=1, trace=False)
    verdict, emulated = check_product(problem, arguments[3:]), None
    if number % EMULATED == 0:
        call = resolve(rung_name, (problem,), schedule=schedule, seed=number)
        emulated = emulate_call(call, policy=policy).ok and torch.equal(call.arguments[-1], arguments[-1])
    findings = sorted({each.code for each in ran.findings})
    return {
        "m": shape[0], "n": shape[1], "k": shape[2], "order": policy, "ratio": round(verdict.ratio, 4),
        "findings": findings, "emulated": emulated, "ok": verdict.ok and not findings and emulated is not False,
        "seconds": round(time.perf_counter() - start, 2),
    }  # fmt: skip


def main(
    executor: ExecutorOption = "processes:2",
    rungs: Annotated[list[str], typer.Option(help="of these rungs")] = list(BLOCK_SCALED_LADDER),  # noqa: B006
    limit_s: Annotated[float, typer.Option(help="start no more cases after this")] = 1e9,
    result: Annotated[Path, typer.Option(help="the file of JSON lines; what it has is not run again")] = RESULTS,
) -> None:
    """Run what the result lacks, and say what is wrong; exit code 1 if anything is."""
    wanted = (case for case in cases() if case[0] in rungs)
    every = sorted(wanted, key=lambda case: case[-1] * 7919 % 1009)  # a part of the job is a sample of the whole
    run(Job("schedules x formats", every, measure, name), result, executor, time.monotonic() + limit_s)
    raise typer.Exit(report(result))


def report(result: Path) -> int:
    """Sort the file, print the summary."""
    console = Console()
    rows, right = judged_rows(result, FIELDS)
    for rung_name in BLOCK_SCALED_LADDER:
        for dtype in BLOCK_SCALED:
            mine = [row for row in rows if (row["rung"], row["dtype"]) == (rung_name, dtype)]
            worst, emulated = (
                max((row["ratio"] for row in mine), default=0.0),
                sum(bool(row["emulated"]) for row in mine),
            )
            good = sum(row["ok"] for row in mine)
            console.print(
                f"{rung_name} {dtype}: {good} of {len(mine)} ok, {emulated} emulated as well, worst error {worst:.2f}x "
                "torch's (simulated)"
            )
    return int(not right)


if __name__ == "__main__":
    script(main)
