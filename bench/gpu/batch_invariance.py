"""Bits of a product's rows with batch_invariant, over the number of rows, and what it costs, on a GPU.

    python bench/gpu/batch_invariance.py --out bench/results/h200_batch_invariance.json

For each layer the product of 4096 rows is computed, then that of its first M rows, for M = 1 to 4096: all M up to 130,
those on either side of powers of two and of tiles, and others drawn at random. The bits of every row must be those of
the whole product's. The same is counted for the default, without batch_invariant, and for torch. Times are of CUDA
graphs that take turns.
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from products import CALLS, _graph
from torch import Tensor

import blackwell_matmul as ours
from blackwell_matmul.harness.bench.devices import time_us

MOST, TIMED_ROWS, ROUNDS = 4096, (1, 4, 16, 64, 128, 256, 1024, 4096), 20
LAYERS = {"4096x4096": (4096, 4096), "1024x4096": (1024, 4096), "28672x8192": (28672, 8192), "256x7168": (256, 7168)}
"""(n, k) by name: square, the keys of grouped attention, a wide layer, a router."""


def rows(drawn: int) -> list[int]:
    """Return the numbers of rows, ascending."""
    powers = [2**i for i in range(8, 13)]
    beside = [m + by for m in (*powers, 192, 320, 384, 1152) for by in (-1, 0, 1, 8)]
    others = random.Random(0).sample(range(131, MOST), drawn)
    return sorted({m for m in (*range(1, 131), *beside, *others) if m <= MOST})


def contenders(w: Tensor) -> dict[str, Callable[[Tensor], Tensor]]:
    return {
        "batch_invariant": lambda x: ours.linear(x, w, batch_invariant=True),
        "default": lambda x: ours.linear(x, w),
        "torch": lambda x: torch.nn.functional.linear(x, w),
    }


def differing(multiply: Callable[[Tensor], Tensor], x: Tensor, every: list[int]) -> list[int]:
    """Return the numbers of rows at which a bit of a row is another than in the whole product."""
    whole = multiply(x).view(torch.int16)
    return [m for m in every if not torch.equal(multiply(x[:m]).view(torch.int16), whole[:m])]


def times(calls: dict[str, Callable[[Tensor], Tensor]], x: Tensor) -> dict[str, float]:
    """Return the medians of each, in us, taken in turns."""
    graphs = {name: _graph(partial(call, x)) for name, call in calls.items()}
    found: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(ROUNDS):
        for name, graph in graphs.items():
            found[name].append(time_us(graph) / CALLS)
    return {name: round(statistics.median(each), 2) for name, each in found.items()}


def layer(n: int, k: int, every: list[int], ours_alone: bool) -> dict[str, Any]:
    torch.manual_seed(0)
    x, w = (torch.randn(shape, device="cuda").bfloat16() for shape in ((MOST, k), (n, k)))
    calls = contenders(w)
    asked = {"batch_invariant": calls["batch_invariant"]} if ours_alone else calls
    other = {name: differing(call, x, every) for name, call in asked.items()}
    return {
        "n": n,
        "k": k,
        "rows": len(every),
        "other_bits": {name: len(each) for name, each in other.items()},
        "at": {name: each[:8] for name, each in other.items()},
        "us": {m: times(calls, x[:m]) for m in TIMED_ROWS},
    }


def main(
    out: Annotated[Path, typer.Option(help="The JSON file to write")],
    drawn: Annotated[int, typer.Option(help="Numbers of rows drawn at random")] = 100,
    ours_alone: Annotated[bool, typer.Option(help="Compare no bits of the default and of torch")] = False,
    only: Annotated[str, typer.Option(help="One layer alone; the file keeps its others")] = "",
) -> None:
    """Compare, time, print and write; exit with 1 if a bit differs with batch_invariant."""
    every = rows(drawn)
    found = json.loads(out.read_text())["layers"] if only and out.exists() else {}
    about = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    command = f"python bench/gpu/batch_invariance.py --drawn {drawn} --out bench/results/{out.name}"
    for name in [only] if only else LAYERS:
        n, k = LAYERS[name]
        found[name] = layer(n, k, every, ours_alone)
        print(name, found[name]["other_bits"], *found[name]["us"].items(), sep="\n  ", flush=True)
        out.write_text(json.dumps({"command": command, **about, "layers": found}, indent=1) + "\n")
    if any(each["other_bits"]["batch_invariant"] for each in found.values()):
        raise typer.Exit(1)


if __name__ == "__main__":
    typer.run(main)
