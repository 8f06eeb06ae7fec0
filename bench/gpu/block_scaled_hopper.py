"""8-bit products with fp32 scales of 1x128 of A and of 128x128 of B, on a Hopper GPU: ours, torch's and Triton's.

    python bench/gpu/block_scaled_hopper.py --out bench/results/h100_block_scaled.json
    python bench/gpu/block_scaled_hopper.py --out part.json --limit 240 --rows 64 --rows 512

The layers are DeepSeek-V3's. Contenders:

    ours        HopperMatmul with the schedule that it chooses
    ours NAME   HopperMatmul with another schedule, by the pins that differ
    torch       torch._scaled_mm
    triton      bench/gpu/triton_block_scaled.py, its configuration tuned for each size

The error of each against float64 is written beside its time: the largest one and the root of the mean square, both
relative to the root mean square of C. Each call of a graph has operands of its own, which together exceed the L2 cache.
Graphs take turns (`orders.measured_in_turns` has the same protocol for one set of operands). A contender that fails has
an error instead of a time. A problem that breaks or hangs the process ends it; the next run goes on after that problem,
for a run leaves out the problems that its file has.
"""

from __future__ import annotations

import itertools
import json
import math
import multiprocessing
import os
import random
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import typer
from torch import Tensor

from blackwell_matmul import Epilogue, HopperMatmul, compile
from blackwell_matmul.base.errors import BlackwellMatmulError
from blackwell_matmul.hardware.gpus import GPUS, Gpu
from blackwell_matmul.harness.bench import bench_machine
from blackwell_matmul.harness.bench.contenders import torch_block_scales
from blackwell_matmul.harness.bench.devices import time_us
from blackwell_matmul.harness.reference import scaled_blocks
from blackwell_matmul.problem.form import BLOCK_SCALES, Form, block_scale_shapes
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.scheduling.space import choose

LAYERS = ((2112, 7168), (24576, 1536), (32768, 512), (7168, 16384), (4096, 7168), (7168, 2048))
"""N and K."""

ROWS = (64, 128, 512, 4096)
SCALE = "1x128 128x128"
FORM = Form(epilogue=Epilogue(scale=SCALE))
OURS, TORCH, TRITON = "ours", "torch", "triton"

PINS: tuple[dict[str, int], ...] = (
    {}, {"block_m": 128, "block_n": 128, "cluster_m": 1, "cluster_n": 1, "split_k": 1, "swap_ab": 0},
    {"block_m": 128, "block_n": 128, "neighbours": 1}, {"block_m": 128, "block_n": 128, "cluster_m": 2, "cluster_n": 1},
    {"block_m": 128, "block_n": 128, "cluster_m": 4}, {"block_m": 128, "block_n": 128, "cluster_m": 2, "cluster_n": 2},
    {"block_m": 128, "block_n": 128, "cluster_n": 2}, {"block_m": 128, "split_k": 2}, {"block_m": 128, "split_k": 4},
    {"block_m": 128, "block_n": 96}, {"block_m": 128, "block_n": 112}, {"block_m": 128, "block_n": 64},
    {"block_m": 192, "block_n": 128}, {"block_m": 192, "block_n": 112}, {"block_m": 192, "block_n": 80},
    {"block_m": 192, "block_n": 64}, {"block_m": 64, "split_k": 1, "swap_ab": 0}, {"block_m": 64, "split_k": 2},
    {"block_m": 64, "split_k": 4}, {"block_m": 64, "block_n": 128, "swap_ab": 0}, {"swap_ab": 1},
)  # fmt: skip
"""Pins of the schedules that take part; equal schedules take part once."""

HANGS_S = 60.0
"""Longest time of a problem, in seconds."""

L2_TIMES, MOST_SETS, TURNS, TURN_US = 3, 16, 7, 12e3


class Set(NamedTuple):
    """Operands of a call: a[m, k], b[n, k], scales as a kernel takes them, and c."""

    a: Tensor
    b: Tensor
    scale_a: Tensor
    scale_b: Tensor
    c: Tensor


def schedules(job: tuple[Problem, Gpu]) -> dict[str, dict[str, int]]:
    """Return the schedules of a problem, by name."""
    found = dict[str, dict[str, int]]()
    for pins in PINS:
        try:
            chosen = choose(HopperMatmul, job[0], job[1], pins).as_dict()
        except BlackwellMatmulError:
            continue
        if chosen not in found.values():
            found[" ".join([OURS, *(f"{name}={value}" for name, value in pins.items())])] = chosen
    return found


def arguments(problem: Problem, made: Set) -> tuple[Any, ...]:
    return (problem.m, problem.n, problem.k, made.a, made.b, made.c, 0, 0, made.scale_a, made.scale_b, 1)


def empty(problem: Problem, device: str) -> Set:
    """Return operands without values."""
    m, n, k = problem.m, problem.n, problem.k
    eight = {"device": device, "dtype": torch.float8_e4m3fn}
    scales = (torch.empty(shape, device=device) for shape in block_scale_shapes(SCALE, m, n, k))
    c = torch.empty(m, n, device=device, dtype=torch.bfloat16)
    return Set(torch.empty(m, k, **eight), torch.empty(n, k, **eight), *scales, c)  # type: ignore[arg-type]


def drawn(problem: Problem, device: str) -> Set:
    """Return operands with normal elements, and scales from 2**-4 to 2**0."""
    made = empty(problem, device)
    for each in (made.a, made.b):
        each.copy_(torch.randn(each.shape, device=device) * 16)
    for each in (made.scale_a, made.scale_b):
        each.copy_(torch.exp2(-4 * torch.rand(each.shape, device=device)))
    return made


def compiled(job: tuple[Problem, dict[str, int]]) -> str:
    """Compile a schedule into the cache; return why it does not compile, or ""."""
    problem, schedule = job
    try:
        compile(HopperMatmul(form=FORM, **schedule), *arguments(problem, empty(problem, "cpu")))
    except Exception as error:
        return f"{schedule}: {type(error).__name__}: {error}"
    return ""


def planned(problems: Sequence[Problem], gpu: Gpu) -> dict[Problem, dict[str, dict[str, int]]]:
    """Return the schedules of each problem, compiled into the cache on all cores."""
    with ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        plan = dict(zip(problems, pool.map(schedules, [(problem, gpu) for problem in problems])))
        jobs = {str(each): (problem, each) for problem, found in plan.items() for each in found.values()}
        for failure in filter(None, pool.map(compiled, jobs.values())):
            print(failure, flush=True)
    return plan


def exact(made: Set) -> Tensor:
    """Return the product of the scaled operands in float64."""
    rows_a, rows_b = BLOCK_SCALES[SCALE]
    return scaled_blocks(made.a, made.scale_a, rows_a) @ scaled_blocks(made.b, made.scale_b, rows_b).T


def errors(c: Tensor, right: Tensor) -> dict[str, float]:
    """Return the largest error and the root of the mean square, over the root mean square of C."""
    size, apart = right.square().mean().sqrt(), c.double() - right
    found = {"max": apart.abs().max() / size, "rms": apart.square().mean().sqrt() / size}
    return {name: float(f"{float(each):.4g}") for name, each in found.items()}


def calls_of_torch(sets: Sequence[Set]) -> list[Callable[[], Tensor]]:
    def call(made: Set) -> Tensor:
        left, right = torch_block_scales(SCALE, made.a, made.b, made.scale_a, made.scale_b)
        return torch._scaled_mm(made.a, made.b.T, left, right, out_dtype=torch.bfloat16, use_fast_accum=False)

    return [lambda made=made: call(made) for made in sets]  # type: ignore[misc]


def calls_of_triton(sets: Sequence[Set]) -> list[Callable[[], None]]:
    from triton_block_scaled import product

    return [lambda made=made: product(*made) for made in sets]  # type: ignore[misc]


def calls_of_ours(problem: Problem, schedule: dict[str, int], sets: Sequence[Set]) -> list[Callable[[], Any]]:
    kernel = HopperMatmul(form=FORM, **schedule)
    return [lambda made=made: kernel(*arguments(problem, made)) for made in sets]  # type: ignore[misc]


def contenders(
    problem: Problem, found: Mapping[str, dict[str, int]], sets: Sequence[Set]
) -> Iterator[tuple[str, Callable[[], list[Callable[[], Any]]]]]:
    """Yield what makes the calls of each contender, by name."""
    yield TORCH, lambda: calls_of_torch(sets)
    yield TRITON, lambda: calls_of_triton(sets)
    for name, schedule in found.items():
        yield name, lambda schedule=schedule: calls_of_ours(problem, schedule, sets)  # type: ignore[misc]


def graph_of(calls: Iterable[Callable[[], Any]]) -> torch.cuda.CUDAGraph:
    calls = list(calls)
    for call in calls:  # whatever a first call does
        call()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls:
            call()
    return graph


def measured_in_turns(graphs: Mapping[str, torch.cuda.CUDAGraph]) -> dict[str, float]:
    """Return the median time of each graph, in us; each turn has an order of its own."""
    dice = random.Random(0)
    times = {name: max(1, int(TURN_US / time_us(graph.replay))) for name, graph in graphs.items()}
    turns = [dice.sample(list(graphs), len(graphs)) for _ in range(TURNS)]
    took = [{name: time_us(graphs[name].replay, times[name]) / times[name] for name in order} for order in turns]
    return {name: statistics.median(turn[name] for turn in took) for name in graphs}


def row(problem: Problem, found: Mapping[str, dict[str, int]]) -> dict[str, Any]:
    """Return times in us and errors of all contenders on one problem."""
    l2_bytes = torch.cuda.get_device_properties(0).L2_cache_size
    sets_wanted = math.ceil(L2_TIMES * l2_bytes / problem.bytes) + 1
    sets = [drawn(problem, "cuda") for _ in range(min(MOST_SETS, sets_wanted))]
    right, far, failed, graphs = exact(sets[0]), dict[str, Any](), dict[str, str](), {}
    for name, make in contenders(problem, found, sets):
        try:
            calls = make()
            sets[0].c.fill_(math.nan)
            result = calls[0]()
            torch.cuda.synchronize()
            far[name] = errors(result if isinstance(result, Tensor) else sets[0].c, right)
            graphs[name] = graph_of(calls)
        except Exception as error:
            failed[name] = f"{type(error).__name__}: {' '.join(str(error).split())[:400]}"
            torch.cuda.synchronize()  # raises again if the GPU has stopped working for this process
    us = {name: round(each / len(sets), 2) for name, each in measured_in_turns(graphs).items()}
    return {"us": us, "errors": far, "schedules": found, "failed": failed, "sets": len(sets)}


def summary(measured: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, float]]:
    """Return the time of torch and of Triton over ours, chosen and best, in the geometric mean; and the same by M."""
    found: dict[str, dict[str, list[float]]] = {}
    for name, each in measured.items():
        us = each.get("us", {})
        for other, which in itertools.product((TORCH, TRITON), ("chosen", "best")):
            ours = us.get(OURS) if which == "chosen" else min(of_ours(us), default=(None, ""))[0]
            for kind in ("all", f"M={name.split('x')[0]}") if other in us and ours else ():
                found.setdefault(f"{other} over ours, {which}", {}).setdefault(kind, []).append(us[other] / ours)
    return {
        what: {kind: round(statistics.geometric_mean(ratios), 4) for kind, ratios in kinds.items()}
        for what, kinds in found.items()
    }


def of_ours(us: Mapping[str, float]) -> list[tuple[float, str]]:
    """Return the times and the names of our schedules."""
    return [(took, name) for name, took in us.items() if name.startswith(OURS)]


def shown(name: str, each: Mapping[str, Any]) -> str:
    """Return a line: microseconds of torch, Triton, ours as chosen and the best of ours, and the errors."""
    us, far = each.get("us", {}), each.get("errors", {})
    times = " ".join(f"{called} {us.get(called)}" for called in (TORCH, TRITON, OURS))
    rms = [far.get(called, {}).get("rms") for called in (TORCH, TRITON, OURS)]
    best = min(of_ours(us), default=None)
    return f"{name}: {times} best {best}; rms errors {rms} {each.get('failed') or each.get('error', '')}"


def main(
    out: Annotated[Path, typer.Option(help="The JSON file to write")],
    limit: Annotated[float, typer.Option(help="Seconds")] = 400.0,
    rows: Annotated[list[int] | None, typer.Option(help="Numbers of rows of A; all unless given")] = None,
    ahead: Annotated[bool, typer.Option("--ahead", help="Compile for an H100 and stop; needs no GPU")] = False,
) -> None:
    """Compile, check, time, print and write."""
    end = time.monotonic() + limit
    problems = [Problem(m, n, k, "e4m3", FORM) for m in rows or ROWS for n, k in LAYERS]
    plan = planned(problems, GPUS["H100"] if ahead else bench_machine.gpu_at_hand())
    print(f"{sum(map(len, plan.values()))} schedules of {len(plan)} problems", flush=True)
    if ahead:
        return
    known = json.loads(out.read_text()) if out.exists() else {"problems": {}}
    command = f"python bench/gpu/block_scaled_hopper.py --out bench/results/{out.name}"
    record: dict[str, Any] = {"command": command, "gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    record |= {"cuda": torch.version.cuda, "scale": SCALE, "problems": known["problems"]}
    for problem, found in plan.items():
        name = f"{problem.m}x{problem.n}x{problem.k}"
        if name in record["problems"] or time.monotonic() > end:
            continue
        record["problems"][name] = {"error": "the process ended"}
        out.write_text(json.dumps(record, indent=1) + "\n")
        watch = threading.Timer(HANGS_S, os._exit, [3])
        watch.start()
        try:
            record["problems"][name] = row(problem, found)
        except torch.OutOfMemoryError as error:
            record["problems"][name] = {"error": f"{type(error).__name__}: {error}"}
        watch.cancel()
        torch.cuda.empty_cache()
        print(shown(name, record["problems"][name]), flush=True)
        record["summary"] = summary(record["problems"])
        out.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record.get("summary"), indent=1), flush=True)


if __name__ == "__main__":
    typer.run(main)
