"""`scaled_mm` in torch's own test cases of its block-scaled recipes: `python bench/scaled_mm_sweep.py`.

Sizes and contents are those of torch's tests (test_scaled_matmul_cuda.py): identities, equal numbers with a block or a
scale changed, normal data. Each is simulated on a CPU in four kinds of scales and three output types; bias and order of
the scales take turns. Nothing here ran on a GPU.

JSON lines, one for each (kind, case, m, n, k, out); what is there is not run again.

    ratio      the largest error relative to that of torch's fp32 product of the dequantised operands, rounded once, on
               the CPU; the limit is 2. Two rows exceed it: mxfp8 to fp32 with k = 1024. The simulated tensor core cuts
               the sum of each instruction to fp32; rounded to nearest there, they have 1.1 and 1.4. `harness.verdict`,
               whose limit counts the cuts, takes both
    exact      whether all values equal the float64 product, which identities and equal numbers have to in fp32
    sqnr_db    signal to noise beside the product of what was quantised, for normal data
"""

from __future__ import annotations

import itertools
import math
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.console import Console
from torch import Tensor
from torch.nn.functional import ScalingType, SwizzleType

from blackwell_matmul import dequantize, quantize, scaled_mm
from blackwell_matmul.jobs.running_trials import Job, run
from blackwell_matmul.problem.block_scaled import BLOCK_SCALED
from blackwell_matmul_studies.scripts import ExecutorOption, judged_rows, script

SIZES = (
    (128, 128, 128), (256, 256, 256), (128, 512, 256), (256, 128, 512), (512, 256, 128), (1023, 48, 64), (31, 64, 1024),
    (45, 1024, 96), (2, 128, 1024), (127, 1024, 96), (1025, 96, 128),
)  # fmt: skip
"""m, n, k."""

KINDS = ("mxfp8", "mxfp4", "nvfp4", "nvfp4 with tensor scales")
CASES = ("identity", "block", "scale", "normal")
OUTPUTS = ("bfloat16", "float16", "float32")
LEAST_DB = {"mxfp8": 22.0, "mxfp4": 15.0, "nvfp4": 15.8}
"""torch's own limits."""

RESULTS = Path(__file__).parent / "results" / "scaled_mm_sweep.jsonl"
FIELDS = ("kind", "case", "m", "n", "k", "out")
Case = tuple[str, str, tuple[int, int, int], str, int]


def cases() -> Iterator[Case]:
    for number, each in enumerate(itertools.product(KINDS, CASES, SIZES, OUTPUTS)):
        yield *each, number


def name(case: Case) -> dict[str, Any]:
    kind, contents, size, out, _ = case
    return dict(zip(FIELDS, (kind, contents, *size, out), strict=True))


def contents(case: str, rows: tuple[int, int], k: int, block: int, seed: int) -> list[Tensor]:
    """Return A and B before they are quantised. 6 has the scale 1 in nvfp4."""
    if case == "normal":
        generator = torch.Generator().manual_seed(seed)
        return [torch.randn(each, k, generator=generator) for each in rows]
    if case == "identity":
        return [6 * torch.eye(each, k) for each in rows]
    made = [torch.full((each, k), 6.0) for each in rows]
    changed = made[seed % 2]
    row, column = changed.shape[0] // 2, (k // block // 2) * block
    changed[row, column : column + block] = 0 if case == "block" else 24
    return made


def measure(case: Case) -> dict[str, Any]:
    """What a line of the result has besides its name."""
    torch.set_num_threads(1)
    kind, which, (m, n, k), out, number = case
    start, dtype, swizzled = time.perf_counter(), getattr(torch, out), number % 3 > 0
    of_format, two_levels = kind.split()[0], " " in kind
    block = BLOCK_SCALED[of_format].block
    values = contents(which, (m, n), k, block, number)
    factors = [each.abs().max() / (448 * 6) if which == "normal" else torch.tensor(0.25) for each in values]
    recipe = ScalingType.BlockWise1x16 if block == 16 else ScalingType.BlockWise1x32
    swizzle, sides, numbers = SwizzleType(int(swizzled)), [], []
    for each, factor in zip(values, factors, strict=True):
        second = factor if two_levels else None
        data, scale = quantize(each, of_format, global_scale=second, swizzled=swizzled)
        numbers.append(dequantize(data, scale, of_format, second, swizzled=swizzled))
        sides.append((data, [scale, factor] if two_levels else scale))
    recipes = [recipe, ScalingType.TensorWise] if two_levels else recipe
    bias = torch.arange(n).remainder(5).to(dtype) if number % 2 else None
    (a, scale_a), (b, scale_b) = sides
    made = scaled_mm(a, b.mT, scale_a, recipes, scale_b, recipes, swizzle, swizzle, bias, dtype, simulate=True)
    exact = numbers[0].double() @ numbers[1].double().T + (0 if bias is None else bias.double())
    torchs = (numbers[0] @ numbers[1].T + (0 if bias is None else bias.float())).to(dtype)
    error, allowed = (float((each.double() - exact).abs().max()) for each in (made, torchs))
    right = error <= 2 * allowed
    row: dict[str, Any] = {"ratio": round(error / allowed, 4) if allowed else float(error > 0), "exact": error == 0}
    if which == "normal":
        signal = values[0].double() @ values[1].double().T + (0 if bias is None else bias.double())
        row["sqnr_db"] = round(10 * math.log10(float(signal.square().sum() / (made - signal).square().sum())), 2)
        right = right and row["sqnr_db"] > LEAST_DB[of_format]
    elif dtype == torch.float32:
        right = row["exact"]
    return {**row, "swizzled": swizzled, "bias": bias is not None, "ok": right,
            "seconds": round(time.perf_counter() - start, 2)}  # fmt: skip


def main(
    executor: ExecutorOption = "processes:2",
    limit_s: Annotated[float, typer.Option(help="start no more cases after this")] = 1e9,
    result: Annotated[Path, typer.Option(help="the file of JSON lines; what it has is not run again")] = RESULTS,
) -> None:
    """Run what the result lacks, and say what is wrong; exit code 1 if anything is."""
    every = sorted(cases(), key=lambda case: case[-1] * 7919 % 1009)  # a part of the job is a sample of the whole
    run(Job("kinds x cases x sizes", every, measure, name), result, executor, time.monotonic() + limit_s)
    raise typer.Exit(report(result))


def report(result: Path) -> int:
    """Sort the file, print the summary."""
    console, (rows, right) = Console(), judged_rows(result, FIELDS)
    for kind in KINDS:
        mine = [row for row in rows if row["kind"] == kind]
        worst = max((row["ratio"] for row in mine), default=0.0)
        noise = min((row["sqnr_db"] for row in mine if "sqnr_db" in row), default=math.nan)
        good = sum(row["ok"] for row in mine)
        console.print(f"{kind}: {good} of {len(mine)} ok, worst error {worst:.2f}x torch's, {noise:.1f} dB (simulated)")
    return int(not right)


if __name__ == "__main__":
    script(main)
