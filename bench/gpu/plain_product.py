"""The product for Hopper in its plain form, beside H7 and cuBLAS, on a Hopper GPU.

    python bench/gpu/plain_product.py --out bench/results/h200_plain_product.json
    python bench/gpu/plain_product.py --out part.json --every 8 --limit 500    # every 8th problem, for 500 seconds

The problems are those of bench/results/h200_chosen.json, row-major in fp16. The product's tensor maps have three
dimensions, and the product divides the number of a tile by the tiles of a batch; H7 does neither. Contenders:

    hopper          HopperMatmul with the schedule that it chooses
    h7              HopperMatmulV7 with the schedule that it chooses
    hopper as h7    HopperMatmul with the schedule of h7
    cublas          torch.mm

Each is checked against fp32, then all take turns within one run (`orders.measured_in_turns`). A contender that fails or
is wrong has an error instead of a time. A run goes on where an earlier one stopped: problems in the file are left out.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import typer

from blackwell_matmul import compile
from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.harness.bench import bench_machine
from blackwell_matmul.kernels import rung
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.scheduling.space import choose

PROBLEMS = Path(__file__).parents[1] / "results" / "h200_chosen.json"
TURNS, TURN_US = 9, 15e3
CUBLAS = "cublas"
PLAIN = {"cluster_n": 1, "neighbours": 2, "swap_ab": 0}
"""Knobs of the product that H7 does not have, at the values that make it H7."""


class Contender(NamedTuple):
    """A kernel, and its pinned schedule."""

    kernel: str
    schedule: dict[str, int]


def problems(every: int = 1) -> list[Problem]:
    """Return every so-many-th problem of the file."""
    sizes = [tuple(map(int, name.split()[0].split("x"))) for name in json.loads(PROBLEMS.read_text())["us"]]
    return [Problem(*size, "fp16") for size in dict.fromkeys(sizes)][::every]


def contenders(problem: Problem, gpu: Gpu) -> dict[str, Contender]:
    """Return the kernels to measure, by name, each with its schedule."""
    of_product, of_h7 = (choose(rung(name), problem, gpu).as_dict() for name in ("hopper", "h7"))
    return {
        "hopper": Contender("hopper", of_product),
        "h7": Contender("h7", of_h7),
        "hopper as h7": Contender("hopper", {**of_h7, **PLAIN}),
    }


def compiled(job: tuple[Contender, tuple[int, int, int]]) -> None:
    """Compile a contender into the cache; an error comes again when it is launched."""
    (name, schedule), size = job
    try:
        compile(name, *size, dtype="fp16", schedule=schedule)
    except Exception as error:
        print(name, size, error, flush=True)


def compile_ahead(jobs: list[tuple[Contender, tuple[int, int, int]]]) -> None:
    """Compile all contenders, on all cores."""
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        list(pool.map(compiled, jobs, chunksize=4))


def why_wrong(c: torch.Tensor, cublas: torch.Tensor, exact: torch.Tensor) -> str:
    """Return why C is wrong, with its error beside that of cuBLAS; "" if the error is at most twice as large."""
    own, theirs = (float((each.float() - exact).abs().max()) for each in (c, cublas))
    return "" if own <= 2 * theirs or own == 0 else f"wrong: largest error {own:.3g}, of cuBLAS {theirs:.3g}"


def row(problem: Problem, found: Mapping[str, Contender]) -> dict[str, Any]:
    """Return the medians of one problem in us, and the errors, by contender; on the GPU."""
    from orders import measured_in_turns

    torch.backends.cuda.matmul.allow_tf32 = False
    size = problem.m, problem.n, problem.k
    a, b = (torch.randn(rows, problem.k, device="cuda").half() for rows in size[:2])
    c, exact = torch.empty(*size[:2], device="cuda").half(), a.float() @ b.float().t()
    calls: dict[str, Callable[[], Any]] = {CUBLAS: lambda: torch.mm(a, b.t(), out=c)}
    right, errors = torch.mm(a, b.t()), dict[str, str]()
    for name, (kernel, schedule) in found.items():
        try:
            call = partial(rung(kernel)(**schedule), *size, a, b, c)
            c.fill_(math.nan)
            call()
            torch.cuda.synchronize()
            errors[name] = why_wrong(c, right, exact)
        except Exception as error:
            errors[name] = f"{type(error).__name__}: {error}"
        if not errors[name]:
            calls[name] = call
    us = measured_in_turns(calls, TURNS, TURN_US)
    schedules = {name: each.schedule for name, each in found.items()}
    return {"us": us, "schedules": schedules, "errors": {name: text for name, text in errors.items() if text}}


def rows(missing: Mapping[Problem, Mapping[str, Contender]], end: float) -> Iterator[tuple[str, dict[str, Any]]]:
    """Measure each problem until the time is over; a problem that fails is a row with an error."""
    for problem, found in missing.items():
        if time.monotonic() > end:
            return
        try:
            yield str(problem), row(problem, found)
        except Exception as error:
            yield str(problem), {"error": f"{type(error).__name__}: {error}"}


def ratios(measured: Mapping[str, Any]) -> dict[str, float]:
    """Return the time of each contender relative to h7, in the geometric mean over the problems that have both."""
    times = [each["us"] for each in measured.values() if "h7" in each.get("us", {})]
    found = dict[str, float]()
    for name in ("hopper", "hopper as h7", CUBLAS):
        logs = [math.log(each[name] / each["h7"]) for each in times if name in each]
        if logs:
            found[name] = round(math.exp(sum(logs) / len(logs)), 4)
    return found


def main(
    out: Annotated[Path, typer.Option(help="The JSON file to write, or to go on with")],
    every: Annotated[int, typer.Option(help="Every so-many-th problem")] = 1,
    limit: Annotated[float, typer.Option(help="Seconds")] = 3000.0,
) -> None:
    end, gpu = time.monotonic() + limit, bench_machine.gpu_at_hand()
    command = f"python bench/gpu/plain_product.py --out bench/results/{out.name}" + f" --every {every}" * (every > 1)
    record = json.loads(out.read_text()) if out.exists() else {"command": command, "problems": {}}
    missing = {each: contenders(each, gpu) for each in problems(every) if str(each) not in record["problems"]}
    compile_ahead([(each, (p.m, p.n, p.k)) for p, found in missing.items() for each in found.values()])
    record |= {"gpu": torch.cuda.get_device_name(), "dtype": "fp16", "torch": torch.__version__}
    for name, measured in rows(missing, end):
        record["problems"][name] = measured
        record["relative to h7"] = ratios(record["problems"])
        out.write_text(json.dumps(record, indent=1) + "\n")
        print(name, measured.get("us"), measured.get("errors") or measured.get("error", ""), flush=True)


if __name__ == "__main__":
    typer.run(main)
