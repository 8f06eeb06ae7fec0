"""Values of products and of their gradients, in the first and in later calls of each kind, on a GPU.

    python bench/gpu/gradients_on_gpu.py --out bench/results/h200_gradients.json
    python bench/gpu/gradients_on_gpu.py --only "linear bf16 mk nk n" --out gradients.json    # kinds with this name

The first call of a kind is checked, planned and compiled. Later calls are launched at their own addresses, as prepared.
Each call has new tensors. The product and all gradients are compared with float64; an error is at most twice torch's in
the same types. A kind's name has the operation, the type, and the operands with their dimensions as they lie in memory:
"nkT" is [k, n], a transposed [n, k]. The sizes are small, as compiling takes most of the time.
"""

from __future__ import annotations

import itertools
import json
import math
import os
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import typer
from drawn import Draw, Row, judged, ratio
from torch import Tensor
from torch.nn import functional

import blackwell_matmul as ours
from blackwell_matmul.base.files import write_json
from blackwell_matmul.ops import ready
from blackwell_matmul.ops.finished import ACTIVATED

CALLS = 3
"""Of each kind."""
MOST = 2.0
"""Of our error over torch's."""
LIMIT_S = 90.0
"""After so long no kind begins."""
TYPES = {"bf16": torch.bfloat16, "fp16": torch.float16}
SIZES = {"square": (256, 256, 256), "odd": (37, 264, 136), "few": (4, 256, 256)}
"""M, N and K; equal ones share kernels. In the simulator they are an eighth."""
BATCHES = {"b": 2, "c": 3}


def linear(
    x: Tensor, w: Tensor, bias: Tensor | None = None, residual: Tensor | None = None, **options: Any
) -> Tensor:  # fmt: skip
    return ours.linear(x, w, bias, residual=residual, **options)


def torchs_linear(
    x: Tensor, w: Tensor, bias: Tensor | None = None, residual: Tensor | None = None, *, beta: float = 1.0,
    activation: str = "none",
) -> Tensor:  # fmt: skip
    made = functional.linear(x, w, bias)
    return ACTIVATED[activation](made if residual is None else made + beta * residual)


def baddbmm(x: Tensor, w: Tensor, kept: Tensor, **options: Any) -> Tensor:
    return ours.baddbmm(kept, x, w, **options)


def torchs_baddbmm(x: Tensor, w: Tensor, kept: Tensor, **options: Any) -> Tensor:
    return torch.baddbmm(kept, x, w, **options)


OPERATIONS: dict[str, tuple[Callable[..., Tensor], Callable[..., Tensor]]] = {
    "matmul": (ours.matmul, torch.matmul),
    "linear": (linear, torchs_linear),
    "bmm": (ours.bmm, torch.bmm),
    "baddbmm": (baddbmm, torchs_baddbmm),
}
"""Ours and torch's."""


class Kind(NamedTuple):
    """Calls that are alike. operands: as in the name; "" is None. frozen: those without gradients, of x and w.

    summed: the gradient of the result is that of a sum, one number expanded to the result's shape.
    """

    operation: str
    dtype: str
    operands: tuple[str, ...]
    frozen: str = ""
    size: str = "square"
    summed: bool = False
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def name(self) -> str:
        frozen, size = [f"frozen {self.frozen}"] * bool(self.frozen), [self.size] * (self.size != "square")
        options = [f"{name}={value}" for name, value in self.options]
        operands = [each or "-" for each in self.operands]
        return " ".join([self.operation, self.dtype, *operands, *frozen, *size, *["sum"] * self.summed, *options])

    def tensors(self, draw: Draw) -> tuple[Tensor | None, ...]:
        """Return new operands; those with gradients require them."""
        sizes = [size if draw.device == "cuda" else max(1, size // 8) for size in SIZES[self.size]]
        dims = BATCHES | dict(zip("mnk", sizes))
        made = list[Tensor | None]()
        for name, dimensions in itertools.zip_longest("xw", self.operands, fillvalue=""):
            if not dimensions:
                made.append(None)
                continue
            each = draw.tensor(*(dims[dim] for dim in dimensions if dim != "T"), dtype=TYPES[self.dtype])
            each = each.mT if dimensions.endswith("T") else each
            made.append(each.requires_grad_(not name or name not in self.frozen))
        return tuple(made)


def kinds() -> Iterator[Kind]:
    for dtype in TYPES:
        for x, w in itertools.product(("mk", "kmT"), ("nk", "knT")):
            turned = {"nk": "nkT", "knT": "kn"}[w]
            yield Kind("linear", dtype, (x, w))
            yield Kind("matmul", dtype, (x, turned))
            yield Kind("bmm", dtype, (x.replace("m", "bm").replace("kbm", "bkm"), "b" + turned))
        yield Kind("linear", dtype, ("mk", "nk", "n"))
        yield Kind("linear", dtype, ("bmk", "nk", "n"))
        for frozen in "xw":
            yield Kind("linear", dtype, ("mk", "nk", "n"), frozen)
            yield Kind("matmul", dtype, ("mk", "nkT"), frozen)
            yield Kind("bmm", dtype, ("bmk", "bkn"), frozen)
        yield Kind("linear", dtype, ("mk", "nk", "n"), "xw")
    of = partial(Kind, dtype="bf16")
    for operands in (("bmk", "kn"), ("bmk", "nkT"), ("bkmT", "kn"), ("cbmk", "cbkn")):
        yield of("matmul", operands=operands)
    yield of("linear", operands=("mk", "nk", "", "mn"))
    yield of("linear", operands=("mk", "nk", "n", "mn"), options=(("beta", 0.5),))
    yield of("linear", operands=("bmk", "nk", "n", "bmn"), options=(("beta", 0.5),))
    for activation in ("gelu", "swiglu"):
        yield of("linear", operands=("mk", "nk", "n"), options=(("activation", activation),))
    for frozen in "xw":
        yield of("linear", operands=("bmk", "nk"), frozen=frozen)
    invariant = (("batch_invariant", True),)
    yield of("matmul", operands=("mk", "nkT"), options=invariant)
    yield of("linear", operands=("bmk", "nk", "n"), options=invariant)
    yield of("linear", operands=("mk", "nk"), frozen="w", options=invariant)
    yield of("matmul", operands=("mk", "nkT"), summed=True)
    yield of("linear", operands=("bmk", "nk", "n"), summed=True)
    yield of("linear", operands=("mk", "nk"), frozen="x", summed=True)
    yield of("bmm", operands=("bmk", "bkn"), summed=True)
    yield of("baddbmm", operands=("bmk", "bkn", "bmn"), options=(("alpha", 0.5), ("beta", 2.0)))
    yield of("baddbmm", operands=("bmk", "bkn", "n"), options=(("alpha", 0.5),))
    for size in ("odd", "few"):
        yield of("linear", operands=("mk", "nk", "n"), size=size)
        yield of("linear", operands=("mk", "nk", "n"), frozen="w", size=size)
        yield of("matmul", operands=("mk", "nkT"), size=size)
        yield of("bmm", operands=("bmk", "bkn"), size=size)


KINDS = tuple(kinds())


def judge(step: Callable[[str], None], number: int, device: str = "cuda") -> Row:
    """Return the row of a kind: the errors of its first call and the largest of later ones, over torch's, by result;
    prepared: the operations whose later calls are launched as prepared."""
    kind = KINDS[number]
    step(kind.name)
    draw, kept = Draw(number, device), list[Any]()
    ready._ready.clear()
    mine, torchs = OPERATIONS[kind.operation]
    options = dict(kind.options)
    exact = partial(torchs, **{name: value for name, value in options.items() if name != "batch_invariant"})
    calls = list[dict[str, float]]()
    for _ in range(CALLS):
        tensors = kind.tensors(draw)
        wide = [None if each is None else each.detach().double().requires_grad_(each.requires_grad) for each in tensors]
        found = results(partial(mine, **options, **draw.more), tensors, kind.summed, draw)
        dz = found.pop("dz")
        theirs, right = (results(exact, each, kind.summed, draw, dz) for each in (tensors, wide))
        calls.append({name: ratio(found[name], theirs[name], right[name]) for name in found})
        kept.append((tensors, found))  # so that the next call has other addresses
    first, *later = calls
    most = {name: max(each[name] for each in later) for name in first}
    wrong = [name for name in first if not all(each[name] <= MOST for each in calls)]
    prepared = sorted({str(each[0]) for each in ready._ready._entries})
    rows = {
        name: {result: _told(error) for result, error in of.items()} for name, of in (("first", first), ("later", most))
    }
    return {
        "case": number,
        "kind": kind.name,
        "outcome": "wrong" if wrong else "right",
        "wrong": wrong,
        **rows,
        "prepared": prepared,
    }


def results(
    call: Callable[..., Tensor], tensors: Sequence[Tensor | None], summed: bool, draw: Draw, dz: Tensor | None = None
) -> dict[str, Tensor]:  # fmt: skip
    """Return the result, the gradients of the operands that require some, and dz, the result's, which is drawn if it is
    not given."""
    made = call(*tensors)
    dz = draw.tensor(*made.shape, dtype=made.dtype) if dz is None else dz.to(made.dtype)
    needing = {
        name: each
        for name, each in zip(("x", "w", "bias", "residual"), tensors)
        if each is not None and each.requires_grad
    }
    outputs, seeds = (made.sum(), None) if summed else (made, dz)
    gradients = torch.autograd.grad(outputs, list(needing.values()), seeds)
    return {"result": made.detach(), **dict(zip(needing, gradients)), "dz": dz}


def _told(error: float) -> float | str:
    """Return an error as JSON has it."""
    return round(error, 3) if math.isfinite(error) else str(error)


def verdict(rows: Sequence[Row], wanted: int) -> str:
    """Return "right" if all kinds are; else how many are not, or have no row."""
    right = sum(row["outcome"] == "right" for row in rows)
    return "right" if right == wanted else f"{wanted - right} of {wanted} kinds are wrong or missing"


def main(
    out: Annotated[Path, typer.Option(help="The JSON file to write.")],
    only: Annotated[str, typer.Option(help="Kinds whose name has this.")] = "",
    limit_s: Annotated[float, typer.Option(help="Begin none after so long.")] = LIMIT_S,
    processes: Annotated[int, typer.Option(help="Side by side.")] = max(1, (os.cpu_count() or 2) - 1),
) -> None:
    """Judge, print and write; exit with 1 if a kind is wrong or missing."""
    begun = time.monotonic()
    numbers = [number for number, kind in enumerate(KINDS) if only in kind.name]
    rows = sorted(judged(numbers, processes, begun + limit_s, "gradients_on_gpu:judge"), key=lambda row: row["case"])
    for row in rows:
        print(*(json.dumps(value) if isinstance(value, dict) else value for value in row.values()))
    command = f"python bench/gpu/gradients_on_gpu.py --out bench/results/{out.name}" + f' --only "{only}"' * bool(only)
    about = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__, "calls": CALLS}
    found = verdict(rows, len(numbers))
    write_json(
        out, {"command": command, **about, "seconds": round(time.monotonic() - begun), "verdict": found, "rows": rows}
    )
    print(found)
    raise typer.Exit(int(found != "right"))


if __name__ == "__main__":
    typer.run(main)
