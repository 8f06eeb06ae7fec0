"""G0 in several tiles, and with rows that begin within a sector: what it takes on a GPU, beside what is predicted.

    python bench/gpu/mma_sync.py --out bench/results/h100_mma_sync.json

Each is called 20 times in a captured graph; the time is the median of nine replays. fp16, with random numbers.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from blackwell_matmul import GeforceMatmulV0, predict
from blackwell_matmul.harness.bench import bench_machine
from blackwell_matmul.harness.bench.devices import time_us
from blackwell_matmul.problem.problem import Schedule

TURNS, REPLAYS = 20, 9
SQUARE = (4096, 4096, 4096)
KNOBS = ("block_m", "block_n", "block_k", "e_block_n", "stages")
Case = tuple[tuple[int, int, int], dict[str, int]]


def cases() -> Iterator[Case]:
    for k in (1088, 1096, 1104):  # rows of 2176, 2192 and 2208 bytes
        for tile in ((64, 64, 32, 64, 8), (64, 64, 64, 64, 4)):
            yield (2432, 1024, k), dict(zip(KNOBS, tile))
    yield (333, 4096, 4096), dict(zip(KNOBS, (64, 96, 64, 32, 4)))
    yield (896, 4096, 4096), dict(zip(KNOBS, (128, 128, 16, 64, 12)))
    yield (1792, 4096, 4096), dict(zip(KNOBS, (64, 64, 64, 64, 6)))
    yield (2432, 4096, 4096), dict(zip(KNOBS, (128, 160, 64, 32, 6)))
    for tile in (
        (128, 128, 64, 64, 2), (128, 128, 64, 64, 6), (128, 128, 32, 64, 4), (128, 64, 64, 64, 4),
        (64, 128, 64, 64, 4), (64, 64, 64, 64, 4), (64, 64, 64, 64, 2), (64, 64, 32, 64, 4),
    ):  # fmt: skip
        yield SQUARE, dict(zip(KNOBS, tile))


def measured_us(size: tuple[int, int, int], knobs: dict[str, int]) -> float:
    m, n, k = size
    a, b = (torch.randn(rows, k, device="cuda").half() for rows in (m, n))
    c, matmul, graph = torch.empty(m, n, device="cuda").half(), GeforceMatmulV0(**knobs), torch.cuda.CUDAGraph()
    matmul(m, n, k, a, b, c)
    with torch.cuda.graph(graph):
        for _ in range(TURNS):
            matmul(m, n, k, a, b, c)
    return statistics.median(time_us(graph.replay) for _ in range(REPLAYS)) / TURNS


def main(out: Annotated[Path, typer.Option(help="The JSON file to write")]) -> None:
    gpu, found = bench_machine.gpu_at_hand(), list[dict[str, Any]]()
    for size, knobs in cases():
        took, schedule = measured_us(size, knobs), str(Schedule(**knobs))
        theirs = predict("g0", *size, gpu=gpu, dtype="fp16", schedule=schedule, explained=False).time_us
        row = {"problem": "x".join(map(str, size)), "schedule": schedule, "measured_us": round(took, 2)}
        found.append(row | {"predicted_us": round(theirs, 2), "error": round(theirs / took - 1, 4)})
        print(found[-1], flush=True)
    about = {"command": "python bench/gpu/mma_sync.py --out bench/results/h100_mma_sync.json"}
    about |= {"gpu": torch.cuda.get_device_name(), "kernel": "G0", "dtype": "fp16"}
    out.write_text(json.dumps({**about, "rows": found}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
