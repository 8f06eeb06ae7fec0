"""What a model multiplies, beside torch's own operations, on this GPU: values, copies, and times in turn.

    python bench/gpu/products.py --out bench/results/products.json
    python bench/gpu/products.py --suite llm --out bench/results/products_llm.json
    python bench/gpu/products.py --suite odd --out bench/results/products_odd.json

The second one is of layers, attention and mixtures of experts of language models, the third of rows that TMA does not
address. Each case has two calls on the same tensors, ours and torch's. Both are captured in CUDA graphs of several
calls, which are timed in turn, so that a ratio is of one run; those of a kind have a mean. `eager_us` is the CPU time
of a call without a graph.
"""

from __future__ import annotations

import enum
import json
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from product_cases import Case, cases, llm, odd
from rich.console import Console
from rich.table import Table

from blackwell_matmul.base.errors import BlackwellMatmulError
from blackwell_matmul.harness.bench.devices import time_us

CALLS, ROUNDS = 10, 30
"""In a graph; of graphs in turn."""


def judged(case: Case) -> dict[str, Any]:
    """One that fails leaves the others alone."""
    try:
        return {"difference": round(difference(case), 5), **measured(case)}
    except (RuntimeError, BlackwellMatmulError) as error:
        return {"error": f"{type(error).__name__}: {error}"}


def difference(case: Case) -> float:
    """Of the results, in parts of the largest."""
    found, expected = case.ours().float(), case.torchs().float()
    return float((found - expected).abs().max() / expected.abs().max())


def measured(case: Case) -> dict[str, Any]:
    """Medians in us; a backward pass is not captured."""
    calls = {"ours": case.ours, "torch": case.torchs}
    runs = calls if case.backward else {name: _graph(call) for name, call in calls.items()}
    times: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(ROUNDS):
        for name, run in runs.items():
            times[name].append(time_us(run) / (1 if case.backward else CALLS))
    medians = {f"{name}_us": round(statistics.median(each), 2) for name, each in times.items()}
    eager = {f"{name}_eager_us": round(_eager(call), 1) for name, call in calls.items() if not case.backward}
    return {**medians, "ratio": round(medians["torch_us"] / medians["ours_us"], 4), **eager}


def _graph(call: Callable[[], Any]) -> Callable[[], None]:
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(CALLS):
            call()
    return graph.replay


def _eager(call: Callable[[], Any]) -> float:
    """CPU time of a call but the first, with the GPU's queue empty before and long enough not to fill."""
    call()
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(50):
        call()
    took = (time.perf_counter() - start) / 50 * 1e6
    torch.cuda.synchronize()
    return took


def means(rows: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """By kind, geometric, of torch's time over ours."""
    kinds = dict.fromkeys(row["kind"] for row in rows if "ratio" in row)
    return {kind: round(geometric_mean(rows, kind), 4) for kind in kinds}


def geometric_mean(rows: Sequence[Mapping[str, Any]], kind: str) -> float:
    return statistics.geometric_mean(row["ratio"] for row in rows if row["kind"] == kind and "ratio" in row)


class Suite(enum.StrEnum):
    square = "square"
    llm = "llm"
    odd = "odd"

    def cases(self, size: int) -> Iterator[Case]:
        return cases(size, "cuda") if self == Suite.square else {"llm": llm, "odd": odd}[self.value]("cuda")


def main(
    out: Annotated[Path, typer.Option(help="The JSON file to write")],
    size: Annotated[int, typer.Option(help="Of the squares")] = 4096,
    suite: Annotated[
        Suite, typer.Option(help="Squares, products of language models, or rows without TMA")
    ] = Suite.square,
    kinds: Annotated[str, typer.Option(help="Those alone whose kind begins so")] = "",
) -> None:
    """Compare, time, print and write."""
    rows = []
    for case in suite.cases(size):
        if not (case.kind or case.name).startswith(kinds):
            continue
        rows.append({"kind": case.kind or case.name, "case": case.name, **judged(case)})
        print(*rows[-1].values(), flush=True)
    about = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "size": size, "suite": suite.value}
    command = f"python bench/gpu/products.py --suite {suite.value} --out bench/results/{out.name}"
    command += f" --kinds '{kinds}'" if kinds else ""
    mean_of = means(rows)
    found = {"command": command, **about, "torch_over_ours": mean_of, "rows": rows}
    out.write_text(json.dumps(found, indent=1) + "\n")
    Console(width=120).print(table_of(rows, mean_of))


COLUMNS = {
    "kind": "kind", "case": "case", "difference": "difference", "ours_us": "ours, us", "torch_us": "torch, us",
    "ratio": "torch / ours", "ours_eager_us": "eager: ours", "torch_eager_us": "torch",
}  # fmt: skip


def table_of(rows: Sequence[Mapping[str, Any]], mean_of: Mapping[str, float]) -> Table:
    shown = Table(*COLUMNS.values())
    for row in (*rows, *({"kind": kind, "case": "mean", "ratio": mean} for kind, mean in mean_of.items())):
        shown.add_row(*(str(row.get(name, "")) for name in COLUMNS))
    return shown


if __name__ == "__main__":
    typer.run(main)
