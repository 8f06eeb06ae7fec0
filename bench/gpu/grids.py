"""Grids of 1, 2, 4 and 8 CTAs for each SM of the product for Hopper, and torch, on a GPU that does nothing else.

    python bench/gpu/grids.py --out bench/results/h200_grids.json

A grid has no more CTAs than tiles. All take turns, ten calls at a time from a captured graph; a time is the median of
the turns. bf16, with random numbers.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated

import typer
from orders import measured_in_turns
from thin import Product, calls_of, write_times

from blackwell_matmul import HopperMatmul
from blackwell_matmul.harness.bench import bench_machine

TURNS, TURN_US = 9, 6e3
CTAS_PER_SM = (1, 2, 4, 8)
SIZES = (
    (4096, 4096, 4096), (8192, 8192, 8192), (4096, 28672, 8192), (2048, 8192, 8192), (4096, 4096, 14336),
    (8192, 1024, 4096), (4096, 4096, 2048), (4096, 4096, 1024), (16384, 4096, 512), (1, 128256, 4096),
    (16, 32000, 4096), (64, 128256, 4096), (256, 28672, 4096),
)  # fmt: skip


def measured_us(size: tuple[int, int, int], sm_count: int) -> dict[str, float]:
    calls, arguments = calls_of(Product("", *size))
    grids = {f"{ctas} a SM": partial(HopperMatmul(sm_count=ctas * sm_count), *arguments) for ctas in CTAS_PER_SM}
    return measured_in_turns({"torch": calls["torch"], **grids}, TURNS, TURN_US)


def main(out: Annotated[Path, typer.Option(help="The JSON file to write")]) -> None:
    """Time, print, and write."""
    sm_count = bench_machine.gpu_at_hand().sm_count
    write_times(__file__, out, SIZES, lambda size: measured_us(size, sm_count))


if __name__ == "__main__":
    typer.run(main)
