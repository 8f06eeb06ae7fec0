"""What a product costs a GPU besides time: cycles, bytes out of the L2 and of memory (ncu), and at full load its clock,
its power and the energy of a call.

    python bench/counters.py 4096 8192 --kernels cublas,triton,h5,h6 --out counters.json
    python bench/counters.py 4096 --kernels "h6 cluster_m=1;h6 cluster_m=2"       # with a schedule pinned

ncu counts one call of each kernel alone, at whatever clock the GPU has then. Clock and power are medians over SECONDS
of calls back to back, one kernel after the other: no comparison by the percent, which is what `bench` is for.
"""

from __future__ import annotations

import csv
import json
import re
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.progress import track
from rich.table import Table

from blackwell_matmul.base.errors import BlackwellMatmulError, UnsupportedError
from blackwell_matmul.harness.bench import bench_machine, contenders
from blackwell_matmul.harness.bench.devices import Call, Cuda
from blackwell_matmul.kernels import rung
from blackwell_matmul.problem.problem import Problem, Schedule

METRICS = {
    "cycles": "sm__cycles_elapsed.max",
    "l2_bytes": "lts__t_bytes.sum",
    "memory_read_bytes": "dram__bytes_read.sum",
    "memory_written_bytes": "dram__bytes_write.sum",
    "sm_read_bytes": "l1tex__m_xbar2l1tex_read_bytes.sum",
    "instructions": "smsp__inst_executed.sum",
}
"""Each with ncu's name. l2_bytes: what the L2 looks up; requests of SMs of one GPC that are joined count once."""

SECONDS = 1.5


def call_of(name: str, problem: Problem) -> Call:
    """What a contender's name stands for: a rung, with pins after a space, or what `bench` calls so."""
    source, _, pins = name.partition(" ")
    contender = contenders.cublas() if source == contenders.CUBLAS else contenders.named(source)
    if contender.kind != "kernel":
        return contenders.make_call(contender, problem, None)
    kernel = rung(source)(**Schedule.parse(pins).as_dict()) if pins else rung(source)()

    def call(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
        kernel(len(a), len(b), a.shape[1], a, b, c)

    return call


def counted(name: str, problem: Problem) -> dict[str, int | str]:
    """ncu's counters of one call, in a process of its own."""
    command = [sys.executable, __file__, "--inside", name, str(problem.m)]
    wanted = ["--metrics", ",".join(METRICS.values()), "--profile-from-start", "off"]
    ncu = ["ncu", "--clock-control", "none", "--csv", "--print-units", "base", *wanted]
    if shutil.which("ncu") is None:
        raise UnsupportedError("Counting takes ncu (Nsight Compute), which is not on the PATH.")
    done = subprocess.run([*ncu, *command], capture_output=True, text=True, timeout=300)
    rows = list(csv.DictReader(line for line in done.stdout.splitlines() if line.startswith('"')))
    if done.returncode or not rows:
        raise UnsupportedError(f"ncu failed for {name}: {(done.stderr or done.stdout).strip()[-500:]}")
    values = {row["Metric Name"]: round(float(row["Metric Value"].replace(",", ""))) for row in rows}
    return {"kernel": rows[0]["Kernel Name"], **{short: values[metric] for short, metric in METRICS.items()}}


def inside(name: str, problem: Problem) -> None:
    """One call for ncu, after two that compile, load and fill the L2."""
    call, operands = call_of(name, problem), Cuda().sets(problem)[0]
    for number in range(3):
        torch.cuda.synchronize()
        if number == 2:
            torch.cuda.profiler.start()
        call(*operands)
    torch.cuda.synchronize()
    torch.cuda.profiler.stop()


def loaded(name: str, problem: Problem, device: Cuda) -> dict[str, float]:
    """Time, clock and power while nothing else runs, after as long a time that is not looked at."""
    call, sets = call_of(name, problem), device.sets(problem)
    run, _ = device.group(call, sets, 100_000)
    keep(run, SECONDS)
    telemetry = device.telemetry()
    us = statistics.median(keep(run, SECONDS))
    found: Any = telemetry.stop()
    clock, power = (found[unit]["during"] for unit in ("sm_clock_mhz", "power_w"))
    return {"us": us, "sm_clock_mhz": clock, "power_w": power, "energy_mj": us * power / 1000}


def keep(run: Callable[[], float], seconds: float) -> list[float]:
    end, found = time.monotonic() + seconds, []
    while time.monotonic() < end:
        found.append(run())
    return found


def measure(sizes: list[int], names: list[str]) -> Iterator[dict[str, Any]]:
    device = Cuda()
    pairs = [(name, Problem(size, size, size)) for size in sizes for name in names]
    for name, problem in track(pairs, description="counting", console=Console(stderr=True)):
        yield {"contender": name, "problem": str(problem), **counted(name, problem), **loaded(name, problem, device)}


def table(rows: list[dict[str, Any]]) -> Table:
    shown = Table("problem", "contender", "kcycles", "L2, MB", "memory, MB", "us", "MHz", "W", "mJ")
    for row in rows:
        memory = row["memory_read_bytes"] + row["memory_written_bytes"]
        counts = [row["cycles"] / 1e3, row["l2_bytes"] / 1e6, memory / 1e6]
        loads = [row["us"], row["sm_clock_mhz"], row["power_w"], row["energy_mj"]]
        shown.add_row(row["problem"], row["contender"], *(f"{value:.0f}" for value in (*counts, *loads)))
    return shown


def main(
    sizes: Annotated[list[int], typer.Argument(help="of M = N = K, in fp16")],
    kernels: Annotated[str, typer.Option(help="between commas; or, where one has pins, semicolons")] = "cublas,h5,h6",
    out: Annotated[Path, typer.Option(help="the file to write")] = Path("counters.json"),
) -> None:
    names = [name.strip() for name in re.split(";" if ";" in kernels else ",", kernels)]
    about = asdict(bench_machine.machine_of(bench_machine.gpu_at_hand()))
    command = f"python bench/counters.py {' '.join(map(str, sizes))} --kernels {json.dumps(kernels)}"
    record: dict[str, Any] = {"command": command, "machine": about, "rows": []}
    for row in measure(sizes, names):
        record["rows"].append(row)
        out.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")
    Console().print(table(record["rows"]))


if __name__ == "__main__":
    if sys.argv[1:2] == ["--inside"]:
        size = int(sys.argv[3])
        inside(sys.argv[2], Problem(size, size, size))
    else:
        try:
            typer.run(main)
        except BlackwellMatmulError as error:
            sys.exit(f"error: {error}")
