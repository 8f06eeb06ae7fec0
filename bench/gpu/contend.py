"""Products while another stream holds SMs, beside torch's: NCCL's gathers on several GPUs, or copies on one.

    torchrun --nproc-per-node 2 bench/gpu/contend.py --out bench/results/h200_contend.json
    python bench/gpu/contend.py --held 24 --out bench/results/h200_held.json

A row has the time of a product alone, and while four gathers of 64 Mi elements a rank run, or four kernels of `--held`
CTAs that copy; each is the median of turns of four calls, in an order of its own for each turn, as the power of one
sets the clock of the next. "ours": `matmul` with its tiles from a queue. "ours, fixed order": after share_gpu(False).
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.distributed as dist
import typer
from kernels.holder import Holder

from blackwell_matmul import matmul, share_gpu

SIZES = (
    (4096, 4096, 4096), (8192, 8192, 8192), (4096, 28672, 8192), (2048, 8192, 8192), (4096, 4096, 14336),
    (8192, 1024, 4096),
)  # fmt: skip
TURNS, CALLS, DISTURBANCES, MOVED = 21, 4, 4, 64 << 20
ROUNDS = 1000
"""Tiles that a CTA of `Holder` copies, in about half a millisecond."""

HEAD_START_CYCLES, DELAY_CYCLES = 2_000_000, 200_000
"""Cycles that both streams wait for the host to queue all calls, and that a product waits for the other stream."""

NAMES = {"torch": None, "ours": True, "ours, fixed order": False}
"""Values of `share_gpu` by the names of a row's times."""


def measured_us(call: Callable[[], Any], side: torch.cuda.Stream, disturb: Callable[[], None] | None) -> float:
    torch.cuda.synchronize()
    if dist.is_initialized():
        dist.barrier()
        torch.cuda.synchronize()
    torch.cuda._sleep(HEAD_START_CYCLES)
    side.wait_stream(torch.cuda.current_stream())
    if disturb is not None:
        with torch.cuda.stream(side):
            for _ in range(DISTURBANCES):
                disturb()
    torch.cuda._sleep(DELAY_CYCLES)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(CALLS):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / CALLS * 1e3


def row_of(size: tuple[int, int, int], side: torch.cuda.Stream, disturb: Callable[[], None]) -> dict[str, Any]:
    m, n, k = size
    a, b = (torch.randn(rows, k, device="cuda", dtype=torch.bfloat16) for rows in (m, n))
    times: dict[str, list[float]] = {}
    dice = random.Random(0)  # all ranks have the same order
    for _ in range(TURNS):
        for name, shared in dice.sample([*NAMES.items()], len(NAMES)):
            call = partial(torch.matmul if name == "torch" else matmul, a, b.T)
            share_gpu(shared)
            call()  # planned as set
            for busy in (False, True):
                us = measured_us(call, side, disturb if busy else None)
                times.setdefault(f"{name}{', disturbed' * busy}", []).append(us)
    medians = {name: round(statistics.median(each), 1) for name, each in times.items()}
    slower = {name: round(medians[f"{name}, disturbed"] / medians[name], 3) for name in NAMES}
    return {"size": size, "us": medians, "times as long": slower}


def holding(ctas: int) -> Callable[[], None]:
    """Return a function that lets CTAs copy for about half a millisecond."""
    x = torch.randn(MOVED, device="cuda", dtype=torch.bfloat16)
    y = torch.empty_like(x)
    return partial(Holder(), ctas, ROUNDS, MOVED, x, y)


def gathering() -> Callable[[], None]:
    """Return a function that gathers."""
    mine = torch.randn(MOVED, device="cuda", dtype=torch.bfloat16)
    whole = mine.new_empty(dist.get_world_size() * MOVED)
    return partial(dist.all_gather_into_tensor, whole, mine)


def main(
    out: Annotated[Path, typer.Option(help="The JSON file to write")],
    held: Annotated[int, typer.Option(help="CTAs that copy on one GPU; 0: gathers of several GPUs")] = 0,
) -> None:
    """Time on all ranks; the first prints and writes."""
    if not held:
        dist.init_process_group("nccl")
    rank = 0 if held else dist.get_rank()
    torch.cuda.set_device(rank)
    torch.manual_seed(0)
    side = torch.cuda.Stream()
    disturb = holding(held) if held else gathering()
    for _ in range(3):
        disturb()
    rows = []
    for size in SIZES:
        rows.append(row_of(size, side, disturb))
        if rank == 0:
            print(rows[-1], flush=True)
    if rank == 0:
        by = "python" if held else f"torchrun --nproc-per-node {dist.get_world_size()}"
        options = f"--held {held} " * (held > 0) + f"--out bench/results/{out.name}"
        about = {"command": f"{by} bench/gpu/contend.py {options}", "gpu": torch.cuda.get_device_name()}
        out.write_text(json.dumps({**about, "torch": torch.__version__, "rows": rows}, indent=1) + "\n")
    if not held:
        dist.destroy_process_group()


if __name__ == "__main__":
    typer.run(main)
