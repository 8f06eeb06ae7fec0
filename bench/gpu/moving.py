"""Kernels that only move and compute: what they take on a GPU, beside what is predicted for it.

    python bench/gpu/moving.py --out bench/results/h100_moving.json

The kernels are those of tests/simulator/timing/moving_scripts.py and plain_scripts.py, on 8192x8192 halves, 8192x4096
floats or 64 MiB of them. Each is called 30 times in a captured graph, on three pairs of tensors in turn, which the L2
has no room for; the time is the median of seven replays.
"""

from __future__ import annotations

import inspect
import json
import statistics
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from blackwell_matmul import predict
from blackwell_matmul.compiler import compile
from blackwell_matmul.harness.bench import bench_machine
from blackwell_matmul.harness.bench.devices import time_us
from blackwell_matmul.runtime import load

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "tests" / "simulator" / "timing"))

from moving_scripts import Computes, Copies, SumsOfRows, Turns
from plain_scripts import Moves

SIDE, SETS, TURNS, REPLAYS = 8192, 3, 10, 7
Case = tuple[type, Mapping[str, Any], Callable[[], tuple[Any, ...]]]


def halves() -> tuple[Any, ...]:
    x = torch.randn(SIDE, SIDE).half().cuda()
    return SIDE, SIDE, x, torch.empty_like(x)


def rows() -> tuple[Any, ...]:
    return SIDE, 4096, torch.randn(SIDE, 4096).cuda(), torch.empty(SIDE, 1).cuda()


def floats() -> tuple[Any, ...]:
    x = torch.rand(4096, 4096).cuda() / 100
    return 4096, 4096, x, torch.empty_like(x)


def cases() -> Iterator[Case]:
    for each in ((32, 8, 132), (32, 8, 528), (64, 4, 264), (32, 2, 132), (32, 1, 132)):
        yield Copies, dict(zip(("rows", "stages", "ctas"), each)), halves
    for stages in (1, 4, 8):
        yield Moves, {"stages": stages, "ctas": 132}, halves
    for given in ({"through_shared": True}, {"through_shared": True, "padding": 1}, {"through_shared": False}):
        yield Turns, given, halves
    for columns in (64, 128, 256, 512):
        yield SumsOfRows, {"columns": columns}, rows
    for work in ({"adds": 1}, {"adds": 32}, {"exps": 8}, {"exps": 32}, {"maxima": 8}, {"maxima": 32}):
        yield Computes, work, floats
    yield Computes, {"maxima": 8, "of_columns": True}, floats


def measured_us(kernel: type, schedule: Mapping[str, Any], arguments: tuple[Any, ...], target: str) -> float:
    loaded = load(compile(kernel(**schedule), *arguments, target=target))
    names = [*inspect.signature(kernel.__call__).parameters][1:]
    given = [place for place, name in enumerate(names) if name not in loaded.bundle.consts]
    sets = [arguments, *((*arguments[:2], *(each.clone() for each in arguments[2:])) for _ in range(SETS - 1))]
    calls = [[each[place] for place in given] for each in sets]
    for call in calls:
        loaded(*call)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for call in calls * TURNS:
            loaded(*call)
    return statistics.median(time_us(graph.replay) for _ in range(REPLAYS)) / (SETS * TURNS)


def main(out: Annotated[Path, typer.Option(help="The JSON file to write")]) -> None:
    gpu, found = bench_machine.gpu_at_hand(), list[dict[str, Any]]()
    for kernel, schedule, made in cases():
        arguments = made()
        took = measured_us(kernel, schedule, arguments, gpu.arch)
        theirs = predict(kernel, *arguments[:2], *(each.cpu() for each in arguments[2:]), schedule=schedule, gpu=gpu)
        row = {"kernel": kernel.__name__, "schedule": schedule, "measured_us": round(took, 2)}
        found.append(row | {"predicted_us": round(theirs.time_us, 2), "bound": theirs.bound})
        print(found[-1], flush=True)
    about = {"command": f"python bench/gpu/moving.py --out {out.name}", "gpu": torch.cuda.get_device_name()}
    out.write_text(json.dumps({**about, "rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
