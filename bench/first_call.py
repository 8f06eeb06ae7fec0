"""How long the first call of a product takes, with an empty cache and with a pack, on a CPU or on a GPU.

    blackwell-matmul compile --pack H100 -o pack.zip
    python bench/first_call.py pack.zip [--out bench/results/first_call.json]
    python bench/first_call.py h200.zip --gpu --out bench/results/h200_first_call.json

With --gpu a time ends when the GPU is done. Without it the driver is the one of the tests, which records launches and
runs nothing (tests/runtime/fake_gpu.py): loading a kernel to a GPU is not in the times. Two processes make the same
calls, one with each cache. The first call of a process is apart, as what it imports and reads once is in it; the others
each have a schedule that the process has not had. CPU seconds are what other work on the machine changes least.
"""

from __future__ import annotations

import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Annotated, Any

import typer

ROOT = Path(__file__).resolve().parents[1]
GPU, CAPABILITY, SMS, SHARED_BYTES = "NVIDIA H100 80GB HBM3", (9, 0), 132, 232448
CALLS = 24
"""Calls of each process, spread over the pack's products."""
CACHE = "BLACKWELL_MATMUL_CACHE"


def first_calls(count: int, gpu: bool) -> list[dict[str, Any]]:
    """Make calls of matmul and linear, each of another product, on a GPU or recorded; return the seconds of each."""
    started = time.perf_counter(), time.process_time()
    import torch

    from blackwell_matmul import linear, matmul

    if gpu:
        torch.zeros(1, device="cuda")  # CUDA's own start
    else:
        _record()
    rows = [{"call": "import", **_since(started)}]
    for m, n, k, bias in _products(count):
        made_on = "cuda" if gpu else "cpu"
        operands = (torch.empty(shape, dtype=torch.bfloat16, device=made_on) for shape in ((m, k), (n, k), (n,)))
        x, w, b = operands if gpu else map(_on_gpu, operands)
        started = time.perf_counter(), time.process_time()
        made = linear(x, w, b) if bias else matmul(x, w.T)
        if gpu:
            torch.cuda.synchronize()
        rows.append({"call": f"{'linear with bias' if bias else 'matmul'} {m}x{n}x{k}", **_since(started)})
        assert made.shape == (m, n)
    return rows


def _since(started: tuple[float, float]) -> dict[str, float]:
    wall, cpu = started
    return {"seconds": round(time.perf_counter() - wall, 3), "cpu_seconds": round(time.process_time() - cpu, 3)}


def _products(count: int) -> list[tuple[int, int, int, bool]]:
    """Return sizes, and whether there is a bias, of products that are spread over a pack's."""
    from blackwell_matmul.tuner.packs import problems

    names = ("matmul", "linear with bias")
    every = [each for each in problems() if each["dtype"] == "bf16" and each["operation"] in names]
    chosen = [every[index * len(every) // count] for index in range(count)]
    return [(each["m"], each["n"], each["k"], each["operation"] == names[1]) for each in chosen]


def _record() -> None:
    """Take the driver that records for an H100's."""
    import pytest
    import torch

    sys.path.insert(0, str(ROOT / "tests" / "runtime"))
    import fake_gpu

    from blackwell_matmul.ops import direct, ready
    from blackwell_matmul.runtime import torch_cuda

    library, reason = fake_gpu.build(Path(tempfile.mkdtemp()))
    if library is None:
        raise SystemExit(reason)
    patch, gpu = pytest.MonkeyPatch(), fake_gpu.FakeGpu(library)
    fake_gpu.install(patch)
    gpu.reset()
    gpu.is_a(GPU, CAPABILITY, SMS, SHARED_BYTES)
    for module in (ready, direct):
        patch.setattr(module, "PLAIN_TYPES", {*direct.PLAIN_TYPES, fake_gpu.OnGpu})
    patch.setattr(torch_cuda, "_fast_empty", torch._C._dynamo.guards._empty_strided_cpu)
    workspace = lambda each, *where: torch.zeros(each.nbytes, dtype=torch.uint8)  # noqa: E731
    patch.setattr(torch_cuda, "empty", workspace)


def _on_gpu(tensor: Any) -> Any:
    from fake_gpu import OnGpu

    return OnGpu.of(tensor)


def in_a_process(folder: Path, count: int, gpu: bool) -> list[dict[str, Any]]:
    """Return the rows of `first_calls` in a process of its own, with a cache in a folder."""
    return output([__file__, "--calls", str(count), *["--gpu"] * gpu], folder)


def output(command: list[str], folder: Path) -> Any:
    """Return the JSON that Python prints, with a cache in a folder. Where it fails it has said why: the script ends."""
    made = subprocess.run([sys.executable, *command], env={**os.environ, CACHE: str(folder)}, stdout=subprocess.PIPE)
    if made.returncode:
        raise SystemExit(made.returncode)
    return json.loads(made.stdout)


def summary(rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the seconds of the first call, and of the others the median and the longest."""
    _, first, *others = rows
    told: dict[str, Any] = {"first_of_a_process": {name: first[name] for name in ("seconds", "cpu_seconds")}}
    for name in ("seconds", "cpu_seconds"):
        found = [row[name] for row in others]
        told[f"{name}_of_others"] = {"median": round(statistics.median(found), 3), "longest": max(found)}
    return told


def _gpu_name() -> str:
    import torch

    return torch.cuda.get_device_name()


def main(
    pack: Annotated[
        Path | None, typer.Argument(exists=True, dir_okay=False, help="For an H100, or this machine's GPU")
    ] = None,
    out: Annotated[Path, typer.Option(help="The JSON file to write")] = ROOT / "bench" / "results" / "first_call.json",
    calls: Annotated[int, typer.Option(help="How many; without a pack they are made here")] = CALLS,
    gpu: Annotated[bool, typer.Option("--gpu", help="Run on this machine's GPU")] = False,
) -> None:
    """Measure, print and write."""
    if pack is None:
        print(json.dumps(first_calls(calls, gpu)))
        return
    with tempfile.TemporaryDirectory() as name:
        empty, filled = Path(name) / "empty", Path(name) / "filled"
        installed = output(["-m", "blackwell_matmul", "compile", "--pack", str(pack), "--json"], filled)
        found = {
            "without a pack": in_a_process(empty, calls, gpu), "with a pack": in_a_process(filled, calls, gpu),
        }  # fmt: skip
    record = {
        "command": f"python bench/first_call.py {pack.name}{' --gpu' * gpu} --out bench/results/{out.name}",
        "measured_on": "a GPU" if gpu else "a CPU, with a driver that records",
        "cpu": platform.processor() or platform.machine(), "cores": os.cpu_count(), "load_average": os.getloadavg(),
        "python": platform.python_version(), "gpu": _gpu_name() if gpu else GPU,
        "pack_kernels": installed["kernels"],
        "pack_bytes": pack.stat().st_size, "summary": {name: summary(rows) for name, rows in found.items()}, **found,
    }  # fmt: skip
    out.write_text(json.dumps(record, indent=1) + "\n")
    print(json.dumps(record["summary"], indent=1))


if __name__ == "__main__":
    typer.run(main)
