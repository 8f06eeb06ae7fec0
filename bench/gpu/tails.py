"""What rows of B take that are not there: `hopper` with N from one multiple of a tile's columns to the next.

    python bench/gpu/tails.py --out bench/results/h100_tails.json

bf16, with random numbers. The last tile of a row begins where all rows of B are there if what it has too many is whole
strips; for the N in between TMA fills them with zeros. All N of a tile take turns, ten calls at a time from a captured
graph, each turn for about 4 ms; the time is the median of nine turns.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from orders import measured_in_turns

from blackwell_matmul import HopperMatmul

TURNS, TURN_US, STEP = 9, 4e3, 8
CASES = (
    (768, 1440, 3328, 64, 144, 8, 1), (640, 1344, 7552, 64, 112, 10, 1), (1536, 512, 2432, 64, 128, 8, 1),
    (1024, 1920, 4096, 128, 128, 6, 2), (4096, 1936, 4096, 128, 176, 5, 2),
)  # fmt: skip
"""M, the least N, and K; a tile's rows, columns, stages and consumers."""


def measured_us(
    m: int, least: int, k: int, block_m: int, block_n: int, stages: int, consumers: int
) -> dict[str, float]:
    matmul = HopperMatmul(
        block_m=block_m, block_n=block_n, block_k=64, e_block_n=16, stages=stages, consumers=consumers, group_m=4,
        cluster_m=1, split_k=1, neighbours=1,
    )  # fmt: skip
    calls = dict[str, Callable[[], Any]]()
    for n in range(least, least + block_n + 1, STEP):
        a, b = (torch.randn(rows, k, device="cuda").bfloat16() for rows in (m, n))
        c = torch.empty(m, n, device="cuda").bfloat16()
        calls[str(n)] = lambda n=n, a=a, b=b, c=c: matmul(m, n, k, a, b, c)  # type: ignore[misc]
    return measured_in_turns(calls, TURNS, TURN_US)


def main(out: Annotated[Path, typer.Option(help="JSON.")] = Path("tails.json")) -> None:
    found = {f"{case[0]}xNx{case[2]} in tiles of {case[3]}x{case[4]}": measured_us(*case) for case in CASES}
    gpu = torch.cuda.get_device_name()
    command = f"python bench/gpu/tails.py --out bench/results/{out.name}"
    out.write_text(json.dumps({"command": command, "gpu": gpu, "kernel": "hopper", "us by N": found}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
