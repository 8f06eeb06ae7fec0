"""Schedules of the products of groups of rows, in turn with torch's own, on this GPU: groups of equal sizes and others.

    python bench/gpu/grouped_schedules.py --out bench/results/grouped_schedules.json

A row has the median in us of each schedule, captured in CUDA graphs of several calls, and of torch._grouped_mm; `sums`
are the gradients of the weights. All compute the same, which is checked first.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from products import CALLS, ROUNDS, _graph

from blackwell_matmul.harness.bench.devices import time_us
from blackwell_matmul.kernels.experts.hopper import HopperGroupedMatmul
from blackwell_matmul.kernels.experts.hopper_gradient import HopperGroupedGradient

SCHEDULES: Mapping[str, Mapping[str, int]] = {
    "chosen": {},
    "128 columns": {"block_n": 128},
    "64 rows": {"block_m": 64},
    "3 stages": {"stages": 3},
    "128 CTAs": {"sm_count": 128},
}
SUMS: Mapping[str, Mapping[str, int]] = {"chosen": {}, "128 columns": {"block_n": 128}}


@dataclass(frozen=True)
class Groups:
    """x[m, k] and w[groups, n, k], for a group of so many rows each."""

    name: str
    rows: tuple[int, ...]
    n: int
    k: int


def cases(scale: int) -> list[Groups]:
    """scale: 64 for a GPU, 1 for a test."""
    even, wide, small = 8 * scale, 64 * scale, scale
    shares = (3, 17, 1, 8, 0, 12, 5, 18)
    ragged = tuple(scale * each + 5 * (each % 3) for each in shares)
    return [
        Groups("even", (even,) * 8, wide, wide),
        Groups("ragged", ragged, wide, wide),
        Groups("down", (even,) * 8, wide, wide // 2),
        Groups("twice the rows", (2 * even,) * 8, wide, wide),
        Groups("64 small groups", (small,) * 64, wide // 2, wide),
    ]


def calls(case: Groups, device: str) -> Iterator[tuple[str, Callable[[], torch.Tensor]]]:
    """Each contender's; torch's is called "torch"."""
    where: dict[str, Any] = {"device": device, "dtype": torch.bfloat16}
    m, groups = sum(case.rows), len(case.rows)
    x, w = torch.randn(m, case.k, **where), torch.randn(groups, case.n, case.k, **where).mT
    ends = torch.tensor(case.rows, device=device).cumsum(0).to(torch.int32)
    yield "torch", lambda: torch._grouped_mm(x, w, offs=ends)
    for name, pins in SCHEDULES.items():
        c = torch.empty(m, case.n, **where)
        yield name, _launch(HopperGroupedMatmul(**pins), (m, case.n, case.k, groups, x, w, ends, c))


def calls_of_sums(case: Groups, device: str) -> Iterator[tuple[str, Callable[[], torch.Tensor]]]:
    where: dict[str, Any] = {"device": device, "dtype": torch.bfloat16}
    m, groups = sum(case.rows), len(case.rows)
    x, y = torch.randn(m, case.k, **where), torch.randn(m, case.n, **where)
    ends = torch.tensor(case.rows, device=device).cumsum(0).to(torch.int32)
    yield "torch", lambda: torch._grouped_mm(x.mT, y, offs=ends)
    for name, pins in SUMS.items():
        c = torch.empty(groups, case.k, case.n, **where)
        yield name, _launch(HopperGroupedGradient(**pins), (m, case.n, case.k, groups, x, y, ends, c))


def _launch(kernel: Any, args: tuple[Any, ...]) -> Callable[[], torch.Tensor]:
    def run() -> torch.Tensor:
        kernel(*args)
        c: torch.Tensor = args[-1]
        return c

    return run


def difference(found: torch.Tensor, expected: torch.Tensor) -> float:
    """In parts of the largest."""
    return float((found.float() - expected.float()).abs().max() / expected.float().abs().max())


def measured(contenders: Mapping[str, Callable[[], torch.Tensor]]) -> dict[str, float]:
    graphs = {name: _graph(call) for name, call in contenders.items()}
    times: dict[str, list[float]] = {name: [] for name in graphs}
    for _ in range(ROUNDS):
        for name, run in graphs.items():
            times[name].append(time_us(run) / CALLS)
    return {name: round(statistics.median(each), 2) for name, each in times.items()}


def row(kind: str, case: Groups, contenders: Mapping[str, Callable[[], torch.Tensor]]) -> dict[str, Any]:
    """A schedule that fails or differs is left out, with the reason."""
    expected, left_out = contenders["torch"](), {}
    for name, call in contenders.items():
        try:
            off = difference(call(), expected)
            left_out |= {name: f"differs by {off:.3g}"} if not off <= 0.02 else {}
        except Exception as error:
            left_out |= {name: f"{type(error).__name__}: {error}"}
    us = measured({name: call for name, call in contenders.items() if name not in left_out})
    ratios = {name: round(us["torch"] / each, 4) for name, each in us.items()}
    sizes = {"rows": case.rows, "n": case.n, "k": case.k}
    return {"kind": kind, "case": case.name, **sizes, "us": us, "torch / this": ratios, "left_out": left_out}


def main(out: Annotated[Path, typer.Option(help="The JSON file to write")], scale: int = 64) -> None:
    """Check, time, print and write, a case after the other."""
    rows = []
    for case in cases(scale):
        for kind, made in (("product", calls), ("sums", calls_of_sums)):
            rows.append(row(kind, case, dict(made(case, "cuda"))))
            print(rows[-1], flush=True)
            about = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
            out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
