"""Products of few tiles on Hopper in one launch, and with K divided in two launches, beside torch's, on a GPU.

    python bench/gpu/divisions.py --out bench/results/h200_divisions.json

The divisions are those with the least predicted time. All take turns, ten calls at a time from a captured graph; a time
is the median of the turns. A name has the predicted time in us.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from orders import measured_in_turns
from thin import Product, calls_of, write_times

from blackwell_matmul import Form, HopperMatmul
from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.harness.bench import bench_machine
from blackwell_matmul.kernels import rung
from blackwell_matmul.kernels.products.sum_of_parts import SumOfParts
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.scheduling import cost_model, parts_of_k
from blackwell_matmul.scheduling.mma import tile_config
from blackwell_matmul.scheduling.space import choose

TURNS, TURN_US, MOST = 9, 3e3, 4
SIZES = (
    (4096, 64, 4096), (5000, 64, 5000), (2048, 64, 8192), (4096, 96, 2048), (3000, 128, 3000), (1024, 64, 4096),
    (256, 256, 65536), (256, 64, 32768), (64, 512, 65536), (512, 512, 16384), (1024, 1024, 8192), (512, 1024, 4096),
    (1536, 64, 16384), (2048, 128, 4096), (16, 1024, 16384), (128, 4096, 4096), (768, 768, 4096), (256, 128, 65536),
    (512, 256, 32768), (256, 256, 65000), (2000, 96, 5000), (96, 2000, 5000), (64, 5000, 5000), (128, 128, 262144),
)  # fmt: skip
HELD_OUT = (
    (512, 512, 67408), (192, 128, 75288), (512, 128, 20528), (512, 256, 26776),
    (96, 64, 86232), (384, 512, 93896), (128, 64, 77440), (96, 64, 12864),
    (1500, 96, 7000), (96, 3000, 4200), (128, 1800, 6000), (2600, 64, 5200),
)  # fmt: skip
"""Sizes that the constants of `parts_of_k` were not chosen by; eight were drawn at random."""


def predicted_us(cycles: float, gpu: Gpu) -> float:
    return round(cycles / cost_model.nearest_figures(gpu).clock_ghz / 1e3, 1)


def both(division: parts_of_k.Division, arguments: tuple[Any, ...]) -> Any:
    """Return a call of both launches."""
    m, n, k, a, b, c, *_ = arguments
    line = parts_of_k.divided(Problem(m, n, k, "bf16"), division.parts).c_line
    sums = torch.empty(division.parts, m, line, device="cuda")
    product, total = HopperMatmul(form=Form(divides_k=True), **division.schedule.as_dict()), SumOfParts()

    def call() -> None:
        product(m, n, k, a, b, sums[..., :n], 0, 0, 0, 0, division.parts)
        total(division.parts, m, n, line, sums, c, 0, 0)

    return call


def measured_us(size: tuple[int, int, int], gpu: Gpu) -> dict[str, float]:
    product, problem, kernel = Product("", *size), Problem(*size, "bf16"), rung("hopper")
    calls, arguments = calls_of(product)
    cycles = cost_model.predicted_cycles(tile_config(choose(kernel, problem, gpu), problem, gpu))
    found = {"torch": calls["torch"], f"one launch, {predicted_us(cycles, gpu)}": partial(HopperMatmul(), *arguments)}
    divisions = sorted(parts_of_k._divisions(problem, gpu, kernel.features), key=lambda each: each.cycles)[:MOST]
    for each in divisions:
        tile = f"{each.schedule.block_m}x{each.schedule.block_n}"
        found[f"{tile}, {each.parts} parts, {predicted_us(each.cycles, gpu)}"] = both(each, arguments)
    return measured_in_turns(found, TURNS, TURN_US)


def main(out: Annotated[Path, typer.Option(help="The JSON file to write")]) -> None:
    """Time, print, and write."""
    gpu = bench_machine.gpu_at_hand()
    write_times(__file__, out, SIZES + HELD_OUT, lambda size: measured_us(size, gpu))


if __name__ == "__main__":
    typer.run(main)
