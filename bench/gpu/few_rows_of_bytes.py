"""Products of 8 bits with up to 64 rows in Hopper's schedules, beside torch's, on a GPU.

    python bench/gpu/few_rows_of_bytes.py --out bench/results/h200_few_rows_of_bytes.json

One warpgroup multiplies e4m3, with two sums of a few k-tiles in turn, which fp32 adds up. Schedules differ in columns,
parts of K and stages. All take turns, ten calls at a time from a captured graph; a time is the median of the turns.
"""

from __future__ import annotations

import itertools
from functools import partial
from pathlib import Path
from typing import Annotated

import torch
import typer
from orders import measured_in_turns
from thin import Product, calls_of, write_times

from blackwell_matmul import HopperMatmul, compile_many
from blackwell_matmul.harness.bench import bench_machine
from blackwell_matmul.kernels import rung
from blackwell_matmul.problem.problem import Problem, Schedule
from blackwell_matmul.scheduling import rules
from blackwell_matmul.scheduling.mma import tile_config
from blackwell_matmul.scheduling.space import choose

TURNS, TURN_US = 5, 1e3
LAYERS = (
    (4096, 4096), (8192, 4096), (4096, 8192), (14336, 4096), (4096, 14336), (7168, 2048), (2048, 7168), (6144, 4096),
    (28672, 4096),
)  # fmt: skip
"""N and K, each with 16 and with 64 rows."""

SIZES = [(m, n, k) for (n, k) in LAYERS for m in (16, 64)] + [
    (32, 4096, 8192), (1, 4096, 8192), (8, 8192, 8192), (32, 8192, 8192), (48, 5120, 5120), (64, 1280, 8192),
]  # fmt: skip

ROWS, COLUMNS, PARTS, STAGES = (16, 32, 64), (16, 32, 48, 64, 80, 112, 128), (1, 2, 4), (6, 8, 12)
FEWEST_CTAS, MOST_CTAS = 40, 280


def schedules(problem: Problem) -> list[Schedule]:
    """Return the chosen schedule, and others with the fewest rows that hold the problem's."""
    gpu = bench_machine.gpu_at_hand()
    chosen = choose(rung("hopper"), problem, gpu)
    found = [chosen]
    for columns, parts, stages in itertools.product(COLUMNS, PARTS, STAGES):
        strip = 16 if parts > 1 else 64 if columns == 128 else columns
        one = chosen.with_known({
            "block_m": next(rows for rows in ROWS if rows >= problem.m), "block_n": columns, "block_k": 128,
            "e_block_n": strip, "stages": stages, "consumers": 1, "group_m": 16, "cluster_m": 1, "cluster_n": 1,
            "split_k": parts, "neighbours": 2, "swap_ab": 0,
        })  # fmt: skip
        if columns // strip >= parts and rules.can_run(one, problem, gpu):
            found += [one] if FEWEST_CTAS <= tile_config(one, problem, gpu).ctas <= MOST_CTAS else []
    return list(dict.fromkeys(found))


def measured_us(size: tuple[int, int, int]) -> dict[str, float]:
    calls, arguments = calls_of(Product("", *size, dtype=torch.float8_e4m3fn))
    problem, _ = HopperMatmul.problem_of({}, *arguments)
    found = schedules(problem)
    compile_many(HopperMatmul, *arguments, schedules=found)
    calls |= {str(each): partial(HopperMatmul(**each.as_dict()), *arguments) for each in found}
    return measured_in_turns(calls, TURNS, TURN_US)


def main(out: Annotated[Path, typer.Option(help="The JSON file to write")]) -> None:
    """Time, print, and write."""
    write_times(__file__, out, SIZES, measured_us)


if __name__ == "__main__":
    typer.run(main)
