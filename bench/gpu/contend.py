"""Products while NCCL gathers on another stream, beside torch's, on several GPUs of one machine.

    torchrun --nproc-per-node 2 bench/gpu/contend.py --out bench/results/h200_contend.json

A row has the time of a product alone, and while four gathers of 64 Mi elements a rank run; each is the median of turns
of four calls. "ours": `matmul` as this process, which has an NCCL group, plans it. "ours, whole GPU": after
share_gpu(False).
"""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import torch
import torch.distributed as dist
import typer

from blackwell_matmul import matmul, share_gpu

SIZES = (
    (4096, 4096, 4096), (8192, 8192, 8192), (4096, 28672, 8192), (2048, 8192, 8192), (4096, 4096, 14336),
    (8192, 1024, 4096),
)  # fmt: skip
TURNS, CALLS, GATHERS, GATHERED = 9, 4, 4, 64 << 20
DELAY_CYCLES = 200_000
"""Cycles that a product waits for the gathers to start."""


def measured_us(call: Callable[[], Any], gather: Callable[[], None] | None) -> float:
    torch.cuda.synchronize()
    dist.barrier()
    torch.cuda.synchronize()
    if gather is not None:
        for _ in range(GATHERS):
            gather()
        torch.cuda._sleep(DELAY_CYCLES)
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    start.record()
    for _ in range(CALLS):
        call()
    end.record()
    torch.cuda.synchronize()
    return start.elapsed_time(end) / CALLS * 1e3


def row_of(size: tuple[int, int, int], gather: Callable[[], None]) -> dict[str, Any]:
    m, n, k = size
    a, b = (torch.randn(rows, k, device="cuda", dtype=torch.bfloat16) for rows in (m, n))

    def as_set(shared: bool | None) -> Callable[[], Any]:
        def call() -> None:
            matmul(a, b.T)

        share_gpu(shared)
        call()  # planned as set
        return call

    times: dict[str, list[float]] = {}
    for _ in range(TURNS):
        for name, shared in (("torch", None), ("ours", None), ("ours, whole GPU", False)):
            call = (lambda: a @ b.T) if name == "torch" else as_set(shared)
            for busy in (False, True):
                times.setdefault(f"{name}{', NCCL works' * busy}", []).append(
                    measured_us(call, gather if busy else None)
                )
    us = {name: round(statistics.median(each), 1) for name, each in times.items()}
    slower = {name: round(us[f"{name}, NCCL works"] / us[name], 3) for name in ("torch", "ours", "ours, whole GPU")}
    return {"size": size, "us": us, "times as long": slower}


def main(out: Annotated[Path, typer.Option(help="The JSON file to write")]) -> None:
    """Time on all ranks; the first prints and writes."""
    dist.init_process_group("nccl")
    torch.cuda.set_device(dist.get_rank())
    torch.manual_seed(0)
    side = torch.cuda.Stream()
    mine = torch.randn(GATHERED, device="cuda", dtype=torch.bfloat16)
    whole = mine.new_empty(dist.get_world_size() * GATHERED)

    def gather() -> None:
        with torch.cuda.stream(side):
            dist.all_gather_into_tensor(whole, mine)

    for _ in range(3):
        gather()
    rows = []
    for size in SIZES:
        rows.append(row_of(size, gather))
        if dist.get_rank() == 0:
            print(rows[-1], flush=True)
    if dist.get_rank() == 0:
        command = (
            f"torchrun --nproc-per-node {dist.get_world_size()} bench/gpu/contend.py --out bench/results/{out.name}"
        )
        about = {"command": command, "gpu": torch.cuda.get_device_name(), "torch": torch.__version__}
        out.write_text(json.dumps({**about, "rows": rows}, indent=1) + "\n")
    dist.destroy_process_group()


if __name__ == "__main__":
    typer.run(main)
