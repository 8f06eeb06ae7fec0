"""The compiled code of every rung, executed: `python bench/emulated_sweep.py [--schedules N] [--executor processes:N]`.

For each rung of the three ladders and each element type that it takes, some schedules that are drawn with a seed, each
on a drawn (n, k) and three m: compiled for the rung's own target (and sm_103a for tcgen05), its PTX emulated with
asynchronous operations late, and in a random order. The data are small integers, so that every sum is exact whatever
the order: C must be what float64 says, and bit for bit what the simulator computes from the script.

JSON lines, one for each (rung, target, schedule, n, k, dtype); what is there is not run again.
"""

from __future__ import annotations

import collections
import random
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console

from blackwell_matmul.base.errors import BlackwellMatmulError
from blackwell_matmul.compiler import compile
from blackwell_matmul.emulator import emulate
from blackwell_matmul.hardware.gpus import gpu_for_target
from blackwell_matmul.harness.reference import TORCH_DTYPES, dtype_of_c
from blackwell_matmul.jobs.running_trials import Job, run
from blackwell_matmul.kernels import LADDERS, rung
from blackwell_matmul.problem.problem import Problem, Schedule
from blackwell_matmul.scheduling.rules import why_not
from blackwell_matmul.scheduling.space import projection
from blackwell_matmul.simulator import simulate
from blackwell_matmul_studies.scripts import ExecutorOption, judged_rows, script

TARGETS = ("sm_100a", "sm_103a", "sm_90a", "sm_120a")
MS = (1, 129, 200)
NS = KS = (8, 16, 24, 40, 72, 128, 136, 200, 264)
ORDERS = (("late", 0), ("random", 1))
RESULTS = Path(__file__).parent / "results" / "emulated_sweep.jsonl"
Case = tuple[str, str, dict[str, int], int, int, str]


def cases(schedules: int) -> Iterator[Case]:
    for target in TARGETS:
        gpu = gpu_for_target(target)
        for name in reversed(LADDERS[target]):
            for dtype in sorted(TORCH_DTYPES):
                listed = list(projection(rung(name)))
                draw = random.Random(f"{name} {target} {dtype}")
                for schedule in draw.sample(listed, min(schedules, len(listed))):
                    fitting = [(n, k) for n in NS for k in KS if not why_not(schedule, Problem(128, n, k, dtype), gpu)]
                    for n, k in draw.sample(fitting, min(1, len(fitting))):
                        yield name, target, schedule.as_dict(), n, k, dtype


FIELDS = ("rung", "target", "schedule", "n", "k", "dtype")


def name(case: Case) -> dict[str, Any]:
    return dict(zip(FIELDS, case, strict=True))


def measure(case: Case) -> dict[str, Any]:
    """What a line of the result has besides its name."""
    torch.set_num_threads(1)
    rung_name, target, schedule, n, k, dtype = case
    start, failures, executed = time.perf_counter(), [], 0
    for m in MS:
        try:
            wrong, count = compare(rung_name, target, Schedule(**schedule), m, n, k, dtype)
        except BlackwellMatmulError as error:
            wrong, count = [f"{type(error).__name__}: {error}"], 0
        failures += [f"m = {m}: {each}" for each in wrong]
        executed += count
    return {
        "m": list(MS),
        "orders": len(ORDERS), "ok": not failures, "failures": failures, "warp_instructions": executed,
        "seconds": round(time.perf_counter() - start, 2),
    }  # fmt: skip


def compare(name: str, target: str, schedule: Schedule, m: int, n: int, k: int, dtype: str) -> tuple[list[str], int]:
    """What is wrong, and how many instructions of warps ran."""
    generator = torch.Generator().manual_seed(m * 10**6 + n * 10**3 + k)
    a, b = (torch.randint(-3, 4, (rows, k), generator=generator).to(TORCH_DTYPES[dtype]) for rows in (m, n))
    kind = dtype_of_c(Problem(m, n, k, dtype))
    wanted = (a.double() @ b.double().T).to(kind)
    bundle = compile(rung(name), m, n, k, a, b, torch.empty(m, n, dtype=kind), schedule=schedule, target=target)
    simulated = torch.full((m, n), float("nan"), dtype=kind)
    simulate(rung(name), m, n, k, a, b, simulated, schedule=schedule, target=target, workers=1, trace=False)
    wrong = [] if torch.equal(simulated, wanted) else ["the simulator is wrong"]
    executed = 0
    for order, seed in ORDERS:
        c = torch.full((m, n), float("nan"), dtype=kind)
        arguments = bundle.ordered(m=m, n=n, k=k, a_ptr=a, b_ptr=b, c_ptr=c)
        executed += emulate(bundle, *arguments, order=order, seed=seed).instructions
        if not torch.equal(c, wanted):
            wrong.append(f"{int((c != wanted).sum())} of {c.numel()} elements are wrong, {order} {seed}")
    return wrong, executed


def main(
    schedules: Annotated[int, typer.Option(help="schedules of each rung, target and type, drawn")] = 8,
    executor: ExecutorOption = "processes:2",
    limit_s: Annotated[float, typer.Option(help="start no more cases after this")] = 1e9,
    result: Annotated[Path, typer.Option(help="the file of JSON lines; what it has is not run again")] = RESULTS,
) -> None:
    """Run what the result lacks, and say what is wrong; exit code 1 if anything is."""
    job = Job("rungs x schedules", list(cases(schedules)), measure, name)
    run(job, result, executor, time.monotonic() + limit_s)
    raise typer.Exit(report(result))


def report(result: Path) -> int:
    """Sort the file, print the summary."""
    console = Console()
    rows, right = judged_rows(result, FIELDS)
    groups = collections.defaultdict(list)
    for row in rows:
        groups[row["rung"], row["target"]].append(row)
    for (name, target), mine in groups.items():
        products = sum(len(row["m"]) * row["orders"] for row in mine)
        console.print(
            f"{name} {target}: {sum(row['ok'] for row in mine)} of {len(mine)} ok, {products} products (emulated)"
        )
    return int(not right)


if __name__ == "__main__":
    script(main)
