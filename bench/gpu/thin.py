"""Thin and long products, tall and narrow ones, and batches of a short K, beside torch's, on a GPU.

    python bench/gpu/thin.py --out bench/results/h200_thin.json
    python bench/gpu/thin.py --schedules 14 --kind bmm --out bench/results/h200_short_k.json
    python bench/gpu/thin.py --knob stages --kind ring --out bench/results/h200_stages.json
    python bench/gpu/thin.py --knob group_m --kind columns --out bench/results/h200_columns.json
    python bench/gpu/thin.py --knob block_m --kind halves --out bench/results/h200_halves.json
    python bench/gpu/thin.py --schedules 3 --kind eight --out bench/results/h200_three_warpgroups.json

A call is `matmul`, `bmm` or `scaled_mm`, on the same tensors each time. Ten calls are captured in a CUDA graph. Ours
and torch's take turns, and a time is the median of the turns. With --schedules those of `hopper` with the least
predicted time take turns, too; with --knob the chosen one with each value of a knob. Products of the kinds "ring",
"columns", "halves" and "eight" are timed if they are asked for.
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import torch
import typer
from orders import measured_in_turns

import blackwell_matmul as ours
from blackwell_matmul import HopperMatmul
from blackwell_matmul.base.errors import BlackwellMatmulError
from blackwell_matmul.harness.bench import bench_machine
from blackwell_matmul.kernels import rung
from blackwell_matmul.problem.problem import KNOBS, Schedule
from blackwell_matmul.scheduling import rules, space
from blackwell_matmul.scheduling.mma import tile_config

TURNS, TURN_US = 9, 3e3
BF16, FP16, E4M3 = torch.bfloat16, torch.float16, torch.float8_e4m3fn
FIRST = 3000
"""Schedules with the least predicted time among which those of different tiles are taken."""


class Product(NamedTuple):
    """`batches` products C[m, n] = A[m, k] @ B[n, k].T. kind: a product's group, which has a mean."""

    kind: str
    m: int
    n: int
    k: int
    batches: int = 1
    dtype: torch.dtype = BF16

    def __str__(self) -> str:
        batches = f"{self.batches} x " if self.batches > 1 else ""
        return f"{batches}{self.m}x{self.n}x{self.k} {str(self.dtype).removeprefix('torch.')}"


GEMV = (
    (1, 128256, 4096), (4, 151936, 2048), (1, 4096, 4096), (2, 14336, 4096), (4, 4096, 14336), (1, 1024, 4096),
    (3, 8192, 8192), (1, 28672, 8192), (2, 6144, 4096), (1, 2048, 7168), (4, 7168, 2048), (1, 50304, 1024),
    (3, 32000, 2048),
)  # fmt: skip
LONG = (
    (64, 64, 65536), (128, 128, 262144), (16, 64, 16384), (64, 128, 32768), (256, 256, 65536), (32, 256, 28672),
    (8, 512, 16384), (128, 64, 8192), (256, 64, 32768), (48, 96, 50000), (128, 256, 16384), (64, 512, 65536),
)  # fmt: skip
TALL = (
    (5000, 64, 5000), (512, 8, 8192), (8192, 16, 8192), (16384, 64, 2048), (4096, 32, 4096), (20000, 8, 1024),
    (2048, 64, 8192), (3000, 128, 3000), (8192, 64, 1024), (16384, 16, 4096), (65536, 32, 1024), (4096, 96, 2048),
)  # fmt: skip
BATCHED = (
    (64, 2048, 2048, 128), (32, 4096, 4096, 128), (128, 512, 512, 64), (64, 2048, 2048, 64), (64, 1024, 1024, 128),
    (256, 129, 255, 64), (128, 512, 128, 512), (16, 4096, 4096, 64), (96, 1024, 1024, 64), (256, 128, 128, 128),
    (32, 1024, 4096, 128),
)  # fmt: skip
"""Batches, M, N, K."""
RING = ((512, 512, 4096), (3000, 128, 3000), (4096, 32, 4096), (256, 4096, 7168), (64, 7168, 4096), (768, 768, 4096))


COLUMNS = (
    (4096, 64, 4096), (4096, 96, 2048), (3072, 64, 3072), (2048, 128, 2048), (2048, 96, 4096), (12288, 32, 4096),
    (1024, 256, 2048), (1255, 288, 2880), (816, 368, 3328), (512, 512, 2048),
)  # fmt: skip
"""Products of few columns of tiles, whose neighbouring CTAs can share A."""
HALVES = (
    (42, 6912, 1856), (44, 5120, 1344), (52, 3328, 2752), (48, 6144, 2048), (33, 8192, 1024), (40, 5120, 5824),
    (42, 6016, 6208), (38, 128, 6592), (50, 448, 3648), (37, 640, 6400),
)  # fmt: skip
"""Products of fewer rows than wgmma multiplies, and more than half of them."""

EIGHT = (
    (8192, 8192, 8192), (4096, 4096, 4096), (2048, 8192, 8192), (4096, 14336, 4096), (4096, 14336, 8192),
    (4096, 4096, 14336), (8192, 1024, 8192), (1024, 8192, 8192), (6144, 6144, 6144), (3072, 6144, 4096),
    (16384, 2048, 8192), (2048, 2048, 8192), (8192, 8192, 2048), (5120, 5120, 5120), (16384, 4096, 4096),
    (8192, 28672, 4096),
)  # fmt: skip
"""Products of 8 bits, with two and with three warpgroups."""


def products() -> Iterator[Product]:
    yield Product("gemv", 1, 32000, 4096, dtype=FP16)
    for kind, sizes in (("gemv", GEMV), ("long", LONG), ("tall", TALL)):
        yield from (Product(kind, *size) for size in sizes)
    yield from (Product("bmm", m, n, k, batches) for batches, m, n, k in BATCHED)
    for size in ((8192, 8192, 8192), (4096, 4096, 4096), (16, 8192, 4096)):
        yield Product("fp8", *size, dtype=E4M3)


def others() -> Iterator[Product]:
    for kind, sizes in (("ring", RING), ("columns", COLUMNS), ("halves", HALVES)):
        yield from (Product(kind, *size) for size in sizes)
    yield from (Product("eight", *size, dtype=E4M3) for size in EIGHT)
    yield from (Product("ring", *size, dtype=E4M3) for size in ((16, 8192, 4096), (64, 4096, 4096)))


def calls_of(product: Product) -> tuple[dict[str, Callable[[], Any]], tuple[Any, ...]]:
    """Return ours and torch's, and the arguments of a kernel for the same product."""
    batch = (product.batches,) if product.batches > 1 else ()
    a, b = (torch.randn(*batch, rows, product.k, device="cuda").to(product.dtype) for rows in (product.m, product.n))
    eight = product.dtype == E4M3
    c = torch.empty(*batch, product.m, product.n, device="cuda", dtype=BF16 if eight else product.dtype)
    scales = [torch.ones((), device="cuda")] * 2 if eight else [0, 0]
    arguments = product.m, product.n, product.k, a, b, c, 0, 0, *scales, product.batches
    both: tuple[Callable[..., Any], Callable[..., Any]] = ours.bmm if batch else ours.matmul, torch.matmul
    if eight:
        both = partial(ours.scaled_mm, out_dtype=BF16), partial(torch._scaled_mm, out_dtype=BF16)
    operands = (a, b.mT, *scales) if eight else (a, b.mT)
    return {name: partial(each, *operands) for name, each in zip(("ours", "torch"), both, strict=True)}, arguments


def schedules(arguments: tuple[Any, ...], most: int) -> dict[str, Schedule]:
    """Return the preferred schedules, one for each tile and split of K."""
    gpu = bench_machine.gpu_at_hand()
    problem, _ = HopperMatmul.problem_of({}, *arguments)
    able = [each for each in space.projection(rung("hopper")) if rules.can_run(each, problem, gpu)]
    able.sort(key=lambda each: space.preference(each, tile_config(each, problem, gpu)))
    found: dict[tuple[Any, ...], Schedule] = {}
    for each in able[:FIRST]:
        found.setdefault((each.block_m, each.block_n, each.swap_ab, each.split_k), each)
    return {str(each): each for each in list(found.values())[:most]}


def turned(arguments: tuple[Any, ...], knob: str) -> dict[str, Schedule]:
    """Return the chosen schedule with each value of a knob that can run."""
    gpu = bench_machine.gpu_at_hand()
    problem, _ = HopperMatmul.problem_of({}, *arguments)
    chosen = space.choose(rung("hopper"), problem, gpu)
    found = (chosen.with_known({knob: value}) for value in KNOBS[knob].values)
    return {str(each): each for each in found if rules.can_run(each, problem, gpu)}


def measured(product: Product, most: int, knob: str) -> dict[str, Any]:
    calls, arguments = calls_of(product)
    beside = {**(schedules(arguments, most) if most else {}), **(turned(arguments, knob) if knob else {})}
    for name, each in beside.items():
        kernel = HopperMatmul(**each.as_dict())
        calls[name] = partial(kernel, *arguments)
    ours_c, torchs = (calls[name]().float() for name in ("ours", "torch"))
    difference = float((ours_c - torchs).abs().max() / torchs.abs().max())
    us = measured_in_turns(calls, TURNS, TURN_US)
    return {"difference": round(difference, 5), "us": us, "torch_over_ours": round(us["torch"] / us["ours"], 4)}


def write_times(
    script: str, out: Path, sizes: Iterable[tuple[int, int, int]], us_of: Callable[[tuple[int, int, int]], Any]
) -> None:
    """Time each size M, N, K by a function, print, and write. script: the file that calls."""
    us = {}
    for size in sizes:
        us["x".join(map(str, size))] = us_of(size)
        print(size, us["x".join(map(str, size))], flush=True)
    command = f"python bench/gpu/{Path(script).name} --out bench/results/{out.name}"
    about = {"command": command, "gpu": torch.cuda.get_device_name()}
    out.write_text(json.dumps({**about, "us": us}, indent=1) + "\n")


def main(
    out: Annotated[Path, typer.Option(help="The JSON file to write")],
    schedules: Annotated[int, typer.Option(help="Schedules of hopper beside the chosen one")] = 0,
    knob: Annotated[str, typer.Option(help="The chosen schedule with each value of this knob")] = "",
    kind: Annotated[str, typer.Option(help="One kind of products alone")] = "",
) -> None:
    """Time, print, and write."""
    rows = []
    for product in (*products(), *(others() if kind else ())):
        if kind not in ("", product.kind):
            continue
        try:
            row = measured(product, schedules, knob)
        except (RuntimeError, BlackwellMatmulError) as error:
            row = {"error": f"{type(error).__name__}: {error}"}
        rows.append({"kind": product.kind, "product": str(product), **row})
        print(product.kind, product, row.get("torch_over_ours"), row.get("error") or row["us"], flush=True)
    ratios = [(row["kind"], row["torch_over_ours"]) for row in rows if "torch_over_ours" in row]
    means = {
        each: round(statistics.geometric_mean(ratio for name, ratio in ratios if each in ("all", name)), 4)
        for each in ("all", *dict.fromkeys(name for name, _ in ratios))
    }
    print(means, "least", min(ratio for _, ratio in ratios))
    given = {"schedules": schedules, "knob": knob, "kind": kind}
    options = "".join(f"--{name} {value} " for name, value in given.items() if value)
    command = f"python bench/gpu/thin.py {options}--out bench/results/{out.name}"
    about = {"gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
    found = {"command": command, **about, "torch_over_ours": means, "rows": rows}
    out.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    typer.run(main)
