"""What the order of the tiles is worth: the schedule of `hopper` in each group_m, and cuBLAS, on a GPU.

    python bench/gpu/orders.py --out bench/results/h100_orders.json
    python bench/gpu/orders.py --held-out --out bench/results/h100_orders_heldout.json

The second has 68 problems drawn at random, two of them twice, of those for which `choose` takes groups of
`SQUARE_GROUP`, which was set by the first.

bf16, with random numbers. All take turns, ten calls at a time from a captured graph, each turn for
about 25 ms; the time is the median of eleven turns.
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from blackwell_matmul import HopperMatmul
from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.harness.bench import bench_machine
from blackwell_matmul.harness.bench.devices import time_us
from blackwell_matmul.kernels import rung
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.scheduling.space import SPACE, SQUARE_GROUP, choose

CALLS, TURNS, TURN_US, MOST = 10, 11, 25e3, 40
HELD_OUT, ROWS = 68, (640, 768, 896, 1024, 1280, 1536, 1792, 2048, 2560, 3072, 4096)
MEASURED = Path(__file__).parents[1] / "results" / "h100_chosen.json"
ONE_ROUND = (
    (1024, 2048, 7168), (1024, 2048, 4096), (1536, 1536, 7168), (1024, 1536, 4096), (1024, 1408, 7168),
    (768, 2048, 7168), (2048, 1024, 7168),
)  # fmt: skip
"""Beside those of `MEASURED` with 1024 to 4096 rows, up to 2048x8192x8192."""


def sizes() -> list[tuple[int, int, int]]:
    known = [tuple(map(int, each.split()[0].split("x"))) for each in json.loads(MEASURED.read_text())["us"]]
    found = [(m, n, k) for m, n, k in known if m in (1024, 2048, 4096) and m * n * k <= 2048 * 8192 * 8192]
    return [*dict.fromkeys(found), *ONE_ROUND]


def held_out(gpu: Gpu) -> list[tuple[int, int, int]]:
    drawn, found = random.Random(7), list[tuple[int, int, int]]()
    while len(found) < HELD_OUT:
        size = drawn.choice(ROWS), drawn.randrange(1024, 10240, 128), drawn.randrange(1024, 9216, 256)
        if choose(rung("hopper"), Problem(*size, "bf16"), gpu).group_m == SQUARE_GROUP:
            found.append(size)
    return found


def graph_of(call: Callable[[], Any]) -> torch.cuda.CUDAGraph:
    call()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    return graph


def measured_us(size: tuple[int, int, int], knobs: dict[str, int]) -> dict[str, float]:
    m, n, k = size
    a, b = (torch.randn(rows, k, device="cuda").bfloat16() for rows in (m, n))
    c = torch.empty(m, n, device="cuda").bfloat16()
    calls: dict[str, Callable[[], Any]] = {"cublas": lambda: torch.mm(a, b.t(), out=c)}
    for order in SPACE["group_m"]:
        matmul = HopperMatmul(**knobs | {"group_m": order})
        calls[f"group_m={order}"] = lambda matmul=matmul: matmul(m, n, k, a, b, c)  # type: ignore[misc]
    return measured_in_turns(calls, TURNS, TURN_US)


def measured_in_turns(calls: Mapping[str, Callable[[], Any]], turns: int, turn_us: float) -> dict[str, float]:
    """Medians, in us. Each turn has an order of its own, for one kernel's power sets the next one's clock."""
    graphs, dice = {name: graph_of(call) for name, call in calls.items()}, random.Random(0)
    times = {name: max(1, min(MOST, int(turn_us / time_us(graph.replay)))) for name, graph in graphs.items()}
    orders = [dice.sample(list(graphs), len(graphs)) for _ in range(turns)]
    took = [{name: time_us(graphs[name].replay, times[name]) for name in order} for order in orders]
    return {name: round(statistics.median(turn[name] for turn in took) / times[name] / CALLS, 2) for name in graphs}


def main(
    out: Annotated[Path, typer.Option(help="The JSON file to write")],
    drawn: Annotated[bool, typer.Option("--held-out", help="Problems drawn at random")] = False,
) -> None:
    gpu, found = bench_machine.gpu_at_hand(), dict[str, Any]()
    for size in held_out(gpu) if drawn else sizes():
        schedule = choose(rung("hopper"), Problem(*size, "bf16"), gpu)
        found["x".join(map(str, size))] = {"schedule": str(schedule), "us": measured_us(size, schedule.as_dict())}
        print(size, found["x".join(map(str, size))], flush=True)
    given = "--held-out " * drawn + f"--out bench/results/{out.name}"
    about = {"command": f"python bench/gpu/orders.py {given}"}
    about |= {"gpu": torch.cuda.get_device_name(), "kernel": "hopper", "dtype": "bf16"}
    out.write_text(json.dumps({**about, "problems": found}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
