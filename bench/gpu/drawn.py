"""Products drawn at random, through the operations that a user calls, on a GPU: right, the same bits, and ended.

    python bench/gpu/drawn.py --out bench/results/h100_drawn.json --cases 2000
    python bench/gpu/drawn.py --only 17 --out drawn.json          # one case

Of each an operation, its sizes, types, and how operands lie in memory are drawn. Right is at most twice the error of
torch's own in the same types, beside float64; all results are computed REPETITIONS times. Each of several processes
does case after case; what crashes or hangs it costs one case.
"""

from __future__ import annotations

import collections
import itertools
import json
import os
import random
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from torch import Tensor
from torch.nn import functional

import blackwell_matmul as ours
from blackwell_matmul.base.files import write_json
from blackwell_matmul.jobs.worker import TaskOutcome, Worker, WorkerPool
from blackwell_matmul.ops.finished import ACTIVATED
from blackwell_matmul.problem.form import ACTIVATIONS

HERE = Path(__file__).resolve().parent
REPETITIONS = 11
LIMIT_S = 60.0
"""For one case."""

MOST = {"cuda": (2**35, 2**26), "cpu": (2**21, 2**16)}
"""Products, and elements of a matrix; the simulator has no patience."""
Row = dict[str, Any]
Results = tuple[Tensor, ...]


@dataclass(frozen=True)
class Case:
    """ours, torchs: compute the same, which `exact` computes in float64."""

    kind: str
    what: str
    ours: Callable[[], Results]
    torchs: Callable[[], Results]
    exact: Callable[[], Results]


class Draw:
    """Sizes and tensors, of one seed."""

    def __init__(self, number: int, device: str) -> None:
        self.dice, self.device = random.Random(number), device
        self.generator = torch.Generator(device).manual_seed(number)
        self.dtype = self.dice.choice((torch.float16, torch.bfloat16))
        self.products, self.elements = MOST[device]
        self.more = {"simulate": True} if device == "cpu" else {}

    def size(self, most: int, step: int = 1) -> int:
        """From 1 to most: small ones as often as large ones, and whole multiples of 64 among them."""
        value = round(2 ** self.dice.uniform(0, most.bit_length() - 1))
        step = self.dice.choice((step, step, 64 if value > 64 else step))
        return max(step, value // step * step)

    def sizes(self, steps: Sequence[int]) -> tuple[int, int, int]:
        """Of M, N and K, multiples of these steps."""
        while True:
            m, n, k = (self.size(most, step) for most, step in zip((8192, 16384, 16384), steps))
            if m * n * k <= self.products and max(m * n, m * k, n * k) <= self.elements:
                return m, n, k

    def tensor(self, *shape: int, dtype: torch.dtype | None = None) -> Tensor:
        return torch.randn(*shape, generator=self.generator, device=self.device).to(dtype or self.dtype)

    def operand(self, *shape: int) -> Tensor:
        """Contiguous along columns or along rows, whole or a slice of a larger one."""
        *outer, rows, columns = shape
        sliced, along_rows = divmod(self.dice.randrange(4), 2)
        lines, length = (columns, rows) if along_rows else (rows, columns)
        larger = self.tensor(*outer, lines, length + sliced * (8 if along_rows else 16))
        made = larger[..., :length]
        return made.mT if along_rows else made


# --- what is drawn


def matmul(draw: Draw) -> Case:
    m, n, k = draw.sizes(draw.dice.choice(((1, 8, 8), (1, 8, 8), (1, 1, 1))))
    a, b = draw.operand(m, k), draw.operand(k, n)
    return of("matmul", (m, n, k), partial(ours.matmul, **draw.more), torch.matmul, a, b)


def bmm(draw: Draw) -> Case:
    m, n, k = draw.sizes((1, 8, 8))
    batches = draw.dice.randint(1, 9)
    m, n = max(1, m // 4), max(8, n // 32 * 8)
    a, b = draw.operand(batches, m, k), draw.operand(batches, k, n)
    return of("bmm", (batches, m, n, k), partial(ours.bmm, **draw.more), torch.bmm, a, b)


def linear(draw: Draw) -> Case:
    m, n, k = draw.sizes((1, 16, 8))
    x, w = draw.operand(m, k), draw.operand(n, k) / k**0.5
    bias = draw.dice.choice((None, draw.tensor(n)))
    activation = draw.dice.choice(ACTIVATIONS)
    residual = None if activation == "swiglu" else draw.dice.choice((None, draw.tensor(m, n)))

    def mine(x: Tensor, w: Tensor, bias: Tensor | None, residual: Tensor | None) -> Tensor:
        return ours.linear(x, w, bias, activation, residual=residual, **draw.more)

    def torchs(x: Tensor, w: Tensor, bias: Tensor | None, residual: Tensor | None) -> Tensor:
        made = functional.linear(x, w, bias)
        return ACTIVATED[activation](made if residual is None else made + residual)

    return of(f"linear {activation}", (m, n, k), mine, torchs, x, w, bias, residual)


def gradients(draw: Draw) -> Case:
    """Of a linear layer: products whose operands are contiguous along their rows, with M as K."""
    m, n, k = draw.sizes((1, 8, 8))
    x, w, out = draw.tensor(m, k), draw.tensor(n, k), draw.tensor(m, n)

    def by(layer: Callable[..., Tensor]) -> Callable[..., Results]:
        def found(x: Tensor, w: Tensor, out: Tensor) -> Results:
            x, w = x.detach().requires_grad_(), w.detach().requires_grad_()
            return torch.autograd.grad(layer(x, w), (x, w), out)

        return found

    return of("gradients", (m, n, k), by(partial(ours.linear, **draw.more)), by(functional.linear), x, w, out)


def scaled_mm(draw: Draw) -> Case:
    m, n, k = draw.sizes((1, 16, 16))
    a, b = (draw.tensor(rows, k).to(torch.float8_e4m3fn) for rows in (m, n))
    rowwise = draw.dice.random() < 0.5
    scales = [
        torch.rand(shape if rowwise else (), generator=draw.generator, device=draw.device) + 0.1
        for shape in ((m, 1), (1, n))
    ]

    def exact(a: Tensor, b: Tensor, *scales: Tensor) -> Tensor:
        return (a @ b.mT) * scales[0] * scales[1]

    out, fast = draw.dice.choice((torch.bfloat16, torch.bfloat16, torch.float32)), draw.dice.random() < 0.3

    def by(call: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda a, b, *scales: call(a, b.mT, *scales, out_dtype=out, use_fast_accum=fast)

    kind = f"scaled_mm {'rowwise' if rowwise else 'tensor'} {out}{' fast' if fast else ''}"
    return of(
        kind, (m, n, k), by(partial(ours.scaled_mm, **draw.more)), by(torch._scaled_mm), a, b, *scales, exact=exact
    )


def grouped(draw: Draw) -> Case:
    """Groups of any number of rows, some empty, some rows after the last."""
    m, n, k = draw.sizes((8, 8, 8))
    groups, n = draw.dice.randint(1, 12), max(8, n // 32 * 8)
    ends = sorted(draw.dice.randint(0, m) for _ in range(groups))
    x, w = draw.tensor(m, k), draw.tensor(groups, n, k).mT
    offs = torch.tensor(ends, dtype=torch.int32, device=draw.device)

    def exact(x: Tensor, w: Tensor, offs: Tensor) -> Tensor:
        out = torch.zeros(m, n, dtype=x.dtype, device=x.device)
        for which, (first, last) in enumerate(itertools.pairwise((0, *ends))):
            out[first:last] = x[first:last] @ w[which]
        return out

    return of("grouped", (groups, m, n, k), partial(ours.grouped_matmul, **draw.more), exact, x, w, offs)


KINDS = (matmul, matmul, bmm, linear, linear, gradients, scaled_mm, grouped)


def of(
    kind: str, sizes: tuple[int, ...], mine: Callable[..., Any], torchs: Callable[..., Any], *tensors: Tensor | None,
    exact: Callable[..., Any] | None = None,
) -> Case:  # fmt: skip
    """exact: what is called with the tensors in float64, if it is another than torch's."""

    def results(call: Callable[..., Any], given: Sequence[Tensor | None]) -> Results:
        found = call(*given)
        return found if isinstance(found, tuple) else (found,)

    def wide() -> list[Tensor | None]:
        return [each.double() if each is not None and each.is_floating_point() else each for each in tensors]

    lie = " ".join(f"{each.dtype}{list(each.shape)}{list(each.stride())}"[6:] for each in tensors if each is not None)
    return Case(
        kind, f"{'x'.join(map(str, sizes))}: {lie}", lambda: results(mine, tensors),
        lambda: results(torchs, tensors), lambda: results(exact or torchs, wide()),
    )  # fmt: skip


# --- judging


def drawn(number: int, device: str) -> Case:
    draw = Draw(number, device)
    return draw.dice.choice(KINDS)(draw)


def judge(step: Callable[[str], None], number: int, device: str = "cuda") -> Row:
    """The row of a case."""
    case = drawn(number, device)
    row = {"case": number, "kind": case.kind, "what": case.what}
    step(f"{case.kind} {case.what}")
    try:
        found = [case.ours() for _ in range(REPETITIONS if device == "cuda" else 1)]
    except ours.UnsupportedError as error:
        return {**row, "outcome": "refused", "sentence": str(error)}
    most = worst(found[0], case.torchs(), case.exact())
    same = all(torch.equal(bits(one), bits(other)) for each in found[1:] for one, other in zip(each, found[0]))
    outcome = "wrong" if not most <= 2 else "right" if same else "other bits"
    return {**row, "outcome": outcome, "error_over_torchs": round(most, 3)}


def worst(found: Results, torchs: Results, exact: Results) -> float:
    """The largest error over torch's."""
    return max(map(ratio, found, torchs, exact))


def ratio(found: Tensor, torchs: Tensor, exact: Tensor) -> float:
    if not exact.numel():
        return 0.0
    mine, theirs = ((each.double() - exact).abs().max().item() for each in (found, torchs))
    return mine / theirs if theirs else 0.0 if mine == 0 else float("inf")


def bits(tensor: Tensor) -> Tensor:
    return tensor.contiguous().view(torch.uint8)


def row_of(number: int, ended: TaskOutcome) -> Row:
    if ended.result is not None:
        return ended.result
    outcome = "hangs" if ended.timed_out else "error"
    return {"case": number, "outcome": outcome, "what": ended.step, "sentence": ended.refused or ended.failed}


def judged(numbers: Sequence[int], processes: int, until_s: float, task: str = "drawn:judge") -> list[Row]:
    """The rows of the cases, over some processes, begun until the time is up. task: the module and the function that
    judges a number."""
    environment = {"PYTHONPATH": os.pathsep.join([str(HERE), *sys.path])}
    module, count = task.partition(":")[0], min(processes, len(numbers))
    with WorkerPool([Worker(LIMIT_S, module, environment) for _ in range(count)]) as pool:
        outcomes = pool.run(numbers, lambda number: {"do": task, "number": number}, until_s)
        return [row_of(number, outcome) for number, outcome in outcomes]


def main(
    out: Annotated[Path, typer.Option(help="The JSON file to write.")],
    cases: Annotated[int, typer.Option(help="How many.")] = 2000,
    first: Annotated[int, typer.Option(help="The number of the first.")] = 0,
    only: Annotated[int | None, typer.Option(help="One case.")] = None,
    limit_s: Annotated[float, typer.Option(help="Begin none after so long.")] = 3600.0,
    processes: Annotated[int, typer.Option(help="Side by side.")] = max(1, (os.cpu_count() or 2) - 1),
) -> None:
    """Draw, judge and write."""
    numbers = range(first, first + cases) if only is None else [only]
    rows = sorted(judged(numbers, processes, time.monotonic() + limit_s), key=lambda row: row["case"])
    command = f"python bench/gpu/drawn.py --out bench/results/{out.name} --cases {len(numbers)}"
    command += f" --first {first}" if first else ""
    about = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "repetitions": REPETITIONS}
    found = summary(rows)
    write_json(out, {"command": command, **about, **found})
    for row in found["others"]:
        print(json.dumps(row))
    print(found["outcomes"])


def summary(rows: Sequence[Row]) -> Row:
    """How the cases ended, the largest error of each kind, and the rows of those that are not right."""
    errors = collections.defaultdict[str, list[float]](list)
    for row in rows:
        if "error_over_torchs" in row:
            errors[row["kind"]].append(row["error_over_torchs"])
    kinds = {kind: {"cases": len(each), "most_error_over_torchs": max(each)} for kind, each in sorted(errors.items())}
    outcomes = dict(collections.Counter(row["outcome"] for row in rows))
    others = [row for row in rows if row["outcome"] != "right"]
    return {"cases": len(rows), "outcomes": outcomes, "kinds": kinds, "others": others}


if __name__ == "__main__":
    typer.run(main)
