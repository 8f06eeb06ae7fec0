"""Is the model of time right about the main loop of one CTA? Beside SemiAnalysis's table of a B200; no GPU needed.

    python bench/calibrate/mainloop.py          # the table, and bench/results/b200_mainloop.json
    python bench/calibrate/mainloop.py --fit    # the two latencies that fit it best

The table (tables/cutlass_mainloop_1cta.csv, SemiAnalysisAI/microbench-blackwell at 9a068d8) has CUTLASS's main loop,
one CTA on the whole GPU, SMs at 1.3 GHz, operands of zeros, K = 131072. The kernel beside it (mainloop_kernel.py) does
the same in tilus. Rows: tiles of 128 rows (tilus has no others), 64 and 128 columns of k a tile, two stages and more.
"""

from __future__ import annotations

import csv
import dataclasses
import json
import statistics
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Annotated, NamedTuple

import torch
import typer
from rich.console import Console
from rich.table import Table

from blackwell_matmul.hardware.gpu_figures import GpuFigure, TimeFigures, figures_of
from blackwell_matmul.simulator.simulate import new_simulation, prepare
from blackwell_matmul.simulator.timing.model.one_sm import OneSm
from blackwell_matmul.simulator.timing.model.sm import Conditions

HERE = Path(__file__).resolve().parent
RESULT = HERE.parent / "results" / "b200_mainloop.json"
K, GHZ = 131072, 1.3
TURNS = (24, 56)
"""k-tiles of two runs, of which the difference counts."""


class Row(NamedTuple):
    """ns: of a k-tile, measured."""

    dtype: str
    block_m: int
    block_n: int
    block_k: int
    stages: int
    ns: float

    @property
    def operand_bytes(self) -> int:
        return (self.block_m + self.block_n) * K * (2 if self.dtype == "BF16" else 1)


def rows() -> Iterator[Row]:
    with (HERE / "tables" / "cutlass_mainloop_1cta.csv").open() as file:
        for line in csv.DictReader(file):
            if line["dtype"] in ("BF16", "FP8_E4M3") and line["K"] == str(K):
                m, n, k, stages = (int(line[name]) for name in ("TILE_M", "TILE_N", "TILE_K", "STAGES"))
                if m == 128 and k in (64, 128) and stages >= 2:
                    yield Row(line["dtype"], m, n, k, stages, float(line["time_ms"]) * 1e6 / (K / k))


def predicted_ns(row: Row, figures: TimeFigures) -> float:
    short, long = (_cycles(row, turns, figures) for turns in TURNS)
    return (long - short) / (TURNS[1] - TURNS[0]) / GHZ


def _cycles(row: Row, turns: int, figures: TimeFigures) -> float:
    import tilus

    sys.path.insert(0, str(HERE))
    from mainloop_kernel import MainLoop

    k = turns * row.block_k
    dtype, element = (
        (tilus.bfloat16, torch.bfloat16) if row.dtype == "BF16" else (tilus.float8_e4m3, torch.float8_e4m3fn)
    )
    operands = (torch.empty(extent, k, dtype=element) for extent in (row.block_m, row.block_n))
    schedule = {"dtype": dtype, **{name: getattr(row, name) for name in ("block_m", "block_n", "block_k", "stages")}}
    bound, lowered = prepare(MainLoop, (k, *operands), schedule, "sm_100a")
    simulation = new_simulation(bound, lowered, "timed", 0, checks=False)
    latency = figures.l2_ns if row.operand_bytes <= figures.near_l2_bytes else figures.memory_ns
    conditions = Conditions(figures, GHZ, latency, figures.l2_bytes_per_ns)
    return OneSm(simulation, conditions, [[(0, 0, 0)]], 1, 512).run().cycles


def errors(every: Iterable[Row], figures: TimeFigures) -> list[float]:
    return [predicted_ns(row, figures) / row.ns - 1 for row in every]


def fit(every: list[Row], figures: TimeFigures) -> TimeFigures:
    """The latency of the L2 and of memory with the smallest mean error, each by the rows whose data lies there."""
    for name, here in (
        ("l2_ns", [row for row in every if row.operand_bytes <= figures.near_l2_bytes]),
        ("memory_ns", [row for row in every if row.operand_bytes > figures.near_l2_bytes]),
    ):
        tried = [getattr(figures, name) + step for step in range(-60, 61, 4)]
        made = [dataclasses.replace(figures, **{name: GpuFigure(ns, "derived", "FIT")}) for ns in tried]
        figures = min(made, key=lambda one: statistics.mean(map(abs, errors(here, one))))
    return figures


def main(
    fitting: Annotated[bool, typer.Option("--fit", help="Look for the latencies that fit best.")] = False,
    result: Annotated[Path, typer.Option(help="The file to write.")] = RESULT,
) -> None:
    """Print the table, and write it."""
    figures, every = figures_of("B200"), list(rows())
    if fitting:
        fitted = fit(every, figures)
        print(f"l2_ns {fitted.l2_ns:.0f} (now {figures.l2_ns:.0f}), memory_ns {fitted.memory_ns:.0f}", end="")
        print(f" (now {figures.memory_ns:.0f})")
        return
    off = errors(every, figures)
    shown = Table("type", "tile", "stages", "measured ns", "predicted", "error", title="ns a k-tile, one CTA, B200")
    for row, error in zip(every, off, strict=True):
        tile = f"{row.block_m}x{row.block_n}x{row.block_k}"
        shown.add_row(row.dtype, tile, str(row.stages), f"{row.ns:.1f}", f"{row.ns * (1 + error):.1f}", f"{error:+.1%}")
    mean, worst = statistics.mean(map(abs, off)), max(map(abs, off))
    Console(width=100).print(shown, f"{len(off)} rows: mean error {mean:.1%}, worst {worst:.1%}")
    record = {"command": f"python bench/calibrate/{Path(__file__).name}", "predicted": True, "rows": len(off)}
    record |= {"mean_error": round(mean, 4), "worst_error": round(worst, 4), "figures": _fitted(figures)}
    table = [{**row._asdict(), "ns": round(row.ns, 2), "error": round(e, 4)} for row, e in zip(every, off, strict=True)]
    result.write_text(json.dumps({**record, "table": table}, indent=1) + "\n")


def _fitted(figures: TimeFigures) -> dict[str, float]:
    return {name: float(getattr(figures, name)) for name in ("l2_ns", "memory_ns")}


if __name__ == "__main__":
    typer.run(main)
