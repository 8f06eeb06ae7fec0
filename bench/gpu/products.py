"""What a model multiplies, beside torch's own operations, on this GPU: values, copies, and times in turn.

    python bench/gpu/products.py --out bench/results/products.json

Each case has two calls on the same tensors, ours and torch's. Both are captured in CUDA graphs of several calls, which
are timed in turn, so that a ratio is of one run. `eager_us` is the CPU time of a call without a graph.
"""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from rich.table import Table
from torch.nn import functional

import blackwell_matmul as ours
from blackwell_matmul.errors import BlackwellMatmulError

CALLS, ROUNDS = 10, 30
"""In a graph; of graphs in turn."""


@dataclass(frozen=True)
class Case:
    """Two calls that compute the same. backward: whether they take gradients, too."""

    name: str
    ours: Callable[[], Any]
    torchs: Callable[[], Any]
    backward: bool = False


class Swiglu(torch.nn.Module):
    """down(silu(gate) * up), with torch's linear or with ours."""

    def __init__(self, width: int, inner: int, linear: Callable[..., torch.Tensor], **where: Any) -> None:
        super().__init__()
        self.linear = linear
        self.gate, self.up, self.down = (
            torch.nn.Parameter(torch.randn(shape, **where) / shape[1] ** 0.5)
            for shape in ((inner, width), (inner, width), (width, inner))
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear(functional.silu(self.linear(x, self.gate)) * self.linear(x, self.up), self.down)


def cases(size: int, device: str) -> Iterator[Case]:
    """size: 4096 on a GPU; a small one in the simulator."""
    more = {"simulate": True} if device == "cpu" else {}
    where: dict[str, Any] = {"device": device, "dtype": torch.bfloat16}
    m = n = k = size
    x, w, y, bias = (torch.randn(shape, **where) for shape in ((m, k), (n, k), (k, n), (n,)))
    tall = torch.randn(k, m, **where).T
    for name, a, b in (("TN", x, w.T), ("NN", x, y), ("TT", tall, w.T), ("NT", tall, y)):
        yield Case(f"matmul {name}", lambda a=a, b=b: ours.matmul(a, b, **more), lambda a=a, b=b: a @ b)
    yield Case("linear bias", lambda: ours.linear(x, w, bias, **more), lambda: functional.linear(x, w, bias))
    for activation in ("relu", "gelu", "silu"):
        torchs = getattr(functional, activation)
        yield Case(
            f"linear bias {activation}",
            lambda a=activation: ours.linear(x, w, bias, a, **more),
            lambda f=torchs: f(functional.linear(x, w, bias)),
        )
    kept = torch.randn(m, n, **where)
    yield Case("addmm", lambda: ours.linear(x, w, residual=kept, **more), lambda: torch.addmm(kept, x, w.T))
    batches = torch.randn(16, m // 4, k // 4, **where), torch.randn(16, k // 4, n // 4, **where)
    yield Case("bmm of 16", lambda: ours.bmm(*batches, **more), lambda: torch.bmm(*batches))
    yield from _eight_bits(x, w, more)
    yield from _groups(size, where, more)
    yield from _mlp(size, where, more)


def _eight_bits(x: torch.Tensor, w: torch.Tensor, more: dict[str, Any]) -> Iterator[Case]:
    a, b = x.to(torch.float8_e4m3fn), w.to(torch.float8_e4m3fn).T
    one = torch.ones((), device=x.device)
    rows = torch.rand(x.shape[0], 1, device=x.device), torch.rand(1, w.shape[0], device=x.device)
    for name, scales in (("tensor", (one, one)), ("rowwise", rows)):
        yield Case(
            f"scaled_mm {name}",
            lambda s=scales: ours.scaled_mm(a, b, *s, **more),
            lambda s=scales: torch._scaled_mm(a, b, *s, out_dtype=torch.bfloat16),
        )


def _groups(size: int, where: dict[str, Any], more: dict[str, Any]) -> Iterator[Case]:
    rows = size // 8
    x, w = torch.randn(8 * rows, size, **where), torch.randn(8, size, size, **where)
    ends = torch.arange(1, 9, device=where["device"], dtype=torch.int32) * rows
    yield Case(
        "grouped of 8",
        lambda: ours.grouped_matmul(x, w.mT, ends, **more),
        lambda: torch._grouped_mm(x, w.mT, offs=ends),
    )


def _mlp(size: int, where: dict[str, Any], more: dict[str, Any]) -> Iterator[Case]:
    """As in a model of 7 thousand million parameters, at 4096."""
    mine = Swiglu(size, size * 43 // 16, lambda x, w: ours.linear(x, w, **more), **where)
    theirs = Swiglu(size, size * 43 // 16, functional.linear, **where)
    theirs.load_state_dict(mine.state_dict())
    x = torch.randn(size, size, **where)

    def forward(model: torch.nn.Module) -> torch.Tensor:
        with torch.no_grad():
            return model(x)

    def both(model: torch.nn.Module) -> torch.Tensor:
        model.zero_grad()
        out = model(x)
        out.backward(x)
        return model.gate.grad

    yield Case("SwiGLU forward", lambda: forward(mine), lambda: forward(theirs))
    yield Case("SwiGLU with backward", lambda: both(mine), lambda: both(theirs), backward=True)


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
            times[name].append(_timed(run) / (1 if case.backward else CALLS))
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


def _timed(run: Callable[[], Any]) -> float:
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    run()
    end.record()
    end.synchronize()
    return float(begin.elapsed_time(end)) * 1e3


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


def main(
    out: Annotated[Path, typer.Option(help="The JSON file to write")], size: Annotated[int, typer.Option()] = 4096
) -> None:
    """Compare, time, print and write."""
    rows, shown = [], Table("case", "difference", "ours, us", "torch, us", "torch / ours", "eager: ours", "torch")
    for case in cases(size, "cuda"):
        row = {"case": case.name, **judged(case)}
        rows.append(row)
        shown.add_row(*(str(row.get(name, "")) for name in (
            "case", "difference", "ours_us", "torch_us", "ratio", "ours_eager_us", "torch_eager_us",
        )))  # fmt: skip
        if "error" in row:
            print(case.name, row["error"], flush=True)
    Console(width=120).print(shown)
    about = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "size": size}
    command = f"python bench/gpu/products.py --out {out.name}"
    out.write_text(json.dumps({"command": command, **about, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
