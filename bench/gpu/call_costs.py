"""CPU time of a call of each operation, beside torch's, on a GPU.

    python bench/gpu/call_costs.py --out bench/results/h200_call_costs.json
    python bench/gpu/call_costs.py --stub --out /tmp/call_costs.json

Ours and torch's take turns within one run. A figure is the median of rounds; a round has calls enough for the clock and
too few to fill the GPU's queue, which is empty before. The operands of a call alternate between several sets, and the
results of a round are kept, so that addresses are new as in a model. The sizes are small: what is measured is the CPU.

The last rows are parts of a call of `linear` of two dimensions: its checks, memory for the result, and the launch.

Compiled calls are compiled anew: torch's cache may have code of another version, which calls the operations otherwise.

--stub: no GPU. CPU tensors pass for an H200's, and a launch calls an empty C function; torch's own figures are then
those of its CPU kernels.
"""

from __future__ import annotations

import itertools
import json
import os
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import typer
from product_cases import Swiglu
from rich.console import Console
from rich.table import Table
from torch import Tensor
from torch.nn import functional

import blackwell_matmul as ours
from blackwell_matmul.ops import ready
from blackwell_matmul.runtime import torch_cuda

SETS, CALLS, ROUNDS = 3, 48, 40
"""Sets of operands; calls in a round, a multiple of them; rounds of each contender."""
AIM = 1.3
"""Most of ours over torch's."""
WIDTH, ROWS = 512, 16
BF16, E4M3 = torch.bfloat16, torch.float8_e4m3fn


class Case(NamedTuple):
    """Two calls that compute the same, on one set of operands each."""

    name: str
    ours: Callable[..., Any]
    torchs: Callable[..., Any]
    operands: Callable[[], tuple[Any, ...]]


def cases(device: str) -> Iterator[Case]:
    """Yield the eager calls."""

    def randn(*shape: int, grad: bool = False) -> Tensor:
        return torch.randn(shape, device=device).to(BF16).requires_grad_(grad)

    def eights() -> tuple[Tensor, Tensor]:
        return randn(ROWS, WIDTH).to(E4M3), randn(WIDTH, WIDTH).to(E4M3)

    def scales(*shapes: tuple[int, ...]) -> Iterator[Tensor]:
        return (torch.ones(shape, device=device) for shape in shapes)

    def of_linear(*outer: int, bias: bool = False, grad: bool = False) -> Callable[[], tuple[Any, ...]]:
        def made() -> tuple[Any, ...]:
            operands = randn(*outer, WIDTH, grad=grad), randn(WIDTH, WIDTH, grad=grad)
            return (*operands, randn(WIDTH, grad=grad)) if bias else operands

        return made

    def times_turned(multiply: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda x, w: multiply(x, w.T)

    def scaled(multiply: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda x, w, a, b: multiply(x, w.T, a, b, out_dtype=BF16)

    products = times_turned(ours.matmul), times_turned(torch.matmul)
    linears = ours.linear, functional.linear
    yield Case("matmul x @ w.T, 2-D", *products, of_linear(ROWS))
    yield Case("matmul x @ w.T, 3-D", *products, of_linear(2, ROWS))
    yield Case("matmul x @ w.T, odd N", *products, lambda: (randn(ROWS, WIDTH), randn(WIDTH - 1, WIDTH)))
    yield Case("matmul x @ w.T, odd K", *products, lambda: (randn(ROWS, WIDTH - 1), randn(WIDTH, WIDTH - 1)))
    rows = ours.matmul, torch.matmul
    yield Case("matmul x @ w, odd N", *rows, lambda: (randn(ROWS, WIDTH), randn(WIDTH, WIDTH - 1)))
    yield Case("linear, 2-D", *linears, of_linear(ROWS))
    yield Case("linear, 3-D", *linears, of_linear(2, ROWS))
    yield Case("linear, bias", *linears, of_linear(ROWS, bias=True))
    yield Case("linear, gradients: forward", *linears, of_linear(ROWS, grad=True))
    yield Case("linear, bias, 3-D, gradients: forward", *linears, of_linear(2, ROWS, bias=True, grad=True))
    yield Case("linear, gradients: both", *map(with_backward, linears), of_linear(ROWS, grad=True))
    both = map(with_backward, linears)
    yield Case("linear, bias, 3-D, gradients: both", *both, of_linear(2, ROWS, bias=True, grad=True))
    yield Case("matmul, gradients: forward", *products, of_linear(ROWS, grad=True))
    yield Case("matmul, gradients: both", *map(with_backward, products), of_linear(ROWS, grad=True))
    scaled_calls = scaled(ours.scaled_mm), scaled(torch._scaled_mm)
    yield Case("scaled_mm, a scale a tensor", *scaled_calls, lambda: (*eights(), *scales((), ())))
    yield Case("scaled_mm, a scale a row", *scaled_calls, lambda: (*eights(), *scales((ROWS, 1), (1, WIDTH))))
    yield Case("bmm", ours.bmm, torch.bmm, lambda: (randn(8, ROWS, 64), randn(8, 64, 64)))
    batched = map(with_backward, (ours.bmm, torch.bmm))
    yield Case("bmm, gradients: both", *batched, lambda: tuple(randn(8, each, 64, grad=True) for each in (ROWS, 64)))
    batches = [(2, 8, ROWS, 64), (2, 8, 64, 64)]
    yield Case("matmul, 4-D", ours.matmul, torch.matmul, lambda: tuple(randn(*shape) for shape in batches))
    ends = torch.tensor([4, 4, 12, 16], dtype=torch.int32, device=device)
    grouped = [lambda x, w, each=each: each(x, w, offs=ends) for each in (ours.grouped_matmul, functional.grouped_mm)]
    yield Case("grouped_matmul", *grouped, lambda: (randn(ROWS, WIDTH), randn(4, WIDTH, WIDTH).mT))


def with_backward(call: Callable[..., Tensor]) -> Callable[..., None]:
    """Return a forward and a backward pass; gradients are set anew."""

    def both(*tensors: Tensor) -> None:
        made = call(*tensors)
        made.backward(made.detach())
        for each in tensors:
            each.grad = None

    return both


def layers(device: str, compiled: bool) -> Iterator[Case]:
    """Yield a SwiGLU MLP of 37 rows, forward and with its backward pass, eager or compiled; and a compiled layer."""
    compile: Callable[[Any], Any] = torch.compile if compiled else lambda module: module
    kind = "compiled" if compiled else "eager"
    modules = [compile(Swiglu(256, 704, each, device=device, dtype=BF16)) for each in (ours.linear, functional.linear)]

    def forward(module: Any) -> Callable[..., Any]:
        def call(x: Tensor) -> Any:
            with torch.no_grad():
                return module(x)

        return call

    def both(module: Any) -> Callable[..., Any]:
        def call(x: Tensor) -> None:
            made = module(x)
            made.backward(made.detach())
            for each in (x, *module.parameters()):
                each.grad = None

        return call

    def rows(grad: bool = False) -> tuple[Tensor]:
        return (torch.randn(37, 256, device=device).to(BF16).requires_grad_(grad),)

    yield Case(f"SwiGLU MLP, {kind}: forward", *map(forward, modules), rows)
    yield Case(f"SwiGLU MLP, {kind}: both", *map(both, modules), lambda: rows(True))


def compiled_linears(device: str) -> Iterator[Case]:
    def operands() -> tuple[Tensor, Tensor]:
        return torch.randn(ROWS, WIDTH, device=device).to(BF16), torch.randn(WIDTH, WIDTH, device=device).to(BF16)

    calls = [torch.compile(lambda x, w, each=each: each(x, w)) for each in (ours.linear, functional.linear)]
    yield Case("linear, compiled", *calls, operands)


def parts(device: str) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the parts of a call of `linear` of a known kind; the last one is a part of the launch."""
    x, w, c = (torch.randn(rows, WIDTH, device=device).to(BF16) for rows in (ROWS, WIDTH, ROWS))
    tensors, kind = (x, w, None, None), ("linear", False, False, "none", 1.0)
    for _ in range(2):
        ours.linear(x, w)
    seen = ready._seen([*kind], tensors)
    assert seen is not None
    plan = ready._ready.get(seen[0])
    assert plan is not None
    launches, gpu = plan._launches, plan._launches.device
    alone, _ = launches._moving[torch_cuda.current_stream(gpu)]._new()
    yield "part: checks", lambda: ready._seen([*kind], tensors)
    yield "part: memory", lambda: torch_cuda.allocated(plan._shape, plan._strides, BF16, gpu)
    yield "part: launch", lambda: launches.at([x.data_ptr(), w.data_ptr(), c.data_ptr()])
    yield "part: the driver's launch", alone


def measured(case: Case, synchronize: Callable[[], None], rounds: int) -> dict[str, Any]:
    """Return the medians in us; one that fails leaves the others alone."""
    sets = [case.operands() for _ in range(SETS)]
    calls = {"ours": case.ours, "torch": case.torchs}
    times: dict[str, list[float]] = {name: [] for name in calls}
    try:
        for _ in range(rounds + 2):
            for name, call in calls.items():
                times[name].append(one_round(call, sets, synchronize))
    except Exception as error:
        return {"case": case.name, "error": f"{type(error).__name__}: {error}"[:300]}
    medians = {name: statistics.median(each[2:]) for name, each in times.items()}
    return {
        "case": case.name,
        **{f"{name}_us": round(each, 2) for name, each in medians.items()},
        "ratio": round(medians["ours"] / medians["torch"], 3),
        "python_calls": python_calls(case.ours, sets[0]),
    }


def one_round(call: Callable[..., Any], sets: list[tuple[Any, ...]], synchronize: Callable[[], None]) -> float:
    kept = []
    synchronize()
    start = time.perf_counter()
    for operands in itertools.islice(itertools.cycle(sets), CALLS):
        kept.append(call(*operands))
    took = time.perf_counter() - start
    synchronize()
    return took / CALLS * 1e6


def python_calls(call: Callable[..., Any], operands: tuple[Any, ...]) -> int:
    """Return how many Python functions one call enters, those of backward passes on this thread included."""
    entered = []
    sys.setprofile(lambda frame, event, arg: entered.append(1) if event == "call" else None)
    try:
        call(*operands)
    finally:
        sys.setprofile(None)
    return len(entered)


def main(
    out: Annotated[Path, typer.Option(help="The JSON file to write")],
    stub: Annotated[bool, typer.Option(help="Without a GPU, to try the script")] = False,
    compiled: Annotated[bool, typer.Option(help="Compiled layers, too")] = True,
    rounds: Annotated[int, typer.Option(help="Of each contender")] = ROUNDS,
    only: Annotated[str, typer.Option(help="Cases whose name has this")] = "",
) -> None:
    """Measure, print and write."""
    begun = time.perf_counter()
    os.environ["TORCHINDUCTOR_FORCE_DISABLE_CACHES"] = "1"
    device, synchronize = "cuda", torch.cuda.synchronize
    if stub:
        import stub_gpu

        device, synchronize = "cpu", lambda: None
        stub_gpu.install()
        torch.set_num_threads(1)
    chosen = [*cases(device), *layers(device, False)]
    if compiled:
        chosen += [*compiled_linears(device), *layers(device, True)]
    rows = []
    for case in chosen:
        if only in case.name:
            rows.append(measured(case, synchronize, rounds))
            print(*rows[-1].values(), flush=True)
    if not only:
        for name, call in parts(device):
            us = statistics.median(one_round(call, [()], synchronize) for _ in range(rounds))
            rows.append({"case": name, "ours_us": round(us, 2)})
    about = {"gpu": "none" if stub else torch.cuda.get_device_name(), "torch": torch.__version__}
    command = f"python bench/gpu/call_costs.py {'--stub ' * stub}--out bench/results/{out.name}"
    out.write_text(json.dumps({"command": command, **about, "aim": AIM, "rows": rows}, indent=1) + "\n")
    Console(width=120).print(table_of(rows))
    print(f"{time.perf_counter() - begun:.0f} s")


def table_of(rows: list[dict[str, Any]]) -> Table:
    names = ("case", "ours_us", "torch_us", "ratio", "python_calls", "error")
    shown = Table(*names, title=f"CPU time of a call; the aim is a ratio of {AIM} or less")
    for row in rows:
        shown.add_row(*(str(row.get(name, "")) for name in names))
    return shown


if __name__ == "__main__":
    typer.run(main)
