"""Is the schedule that a rung chooses a good one? Times many tiles on many problems, each beside cuBLAS, on a GPU.

    python bench/tiles.py compile build/tiles --rung h6            # anywhere, by any --executor; needs no GPU
    python bench/tiles.py measure build/tiles --out tiles.json     # on the GPU; goes on where it was broken off
    python bench/tiles.py summary tiles.json                       # what the choice loses

The problems are the layers of `bench --suite llm` with M from 128 up, and two small squares. Times are medians of a few
groups, all tiles of a problem in turns, each group long enough that the GPU is at the clock that full power leaves it:
below that, other tiles win. Enough to rank tiles, too few for a claim about any of them.
"""

from __future__ import annotations

import itertools
import json
import math
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Any

import torch
import typer

from blackwell_matmul import compiler
from blackwell_matmul.digests import package_digest
from blackwell_matmul.errors import InputError, UnsupportedError
from blackwell_matmul.gpus import GPUS
from blackwell_matmul.harness import check_matmul
from blackwell_matmul.harness.bench import bench_machine
from blackwell_matmul.harness.bench.devices import Call, Cuda
from blackwell_matmul.harness.bench.protocol import Settings, measure
from blackwell_matmul.harness.bench.suites import LARGE_M, LAYERS
from blackwell_matmul.kernels import rung as rung_named
from blackwell_matmul.problem import Problem, Schedule
from blackwell_matmul.scheduling.space import SPACE, choose
from blackwell_matmul.trials.executors import PROCESSES
from blackwell_matmul.trials.running_trials import Job, died, run
from blackwell_matmul.trials.scripts import ExecutorOption, script

TILES = (
    *itertools.product((128,), (256, 224, 192, 160, 128, 96, 64)),
    *itertools.product((64,), (160, 128, 96, 64)),
)
GPU = GPUS["H200"]
SQUARES = (1024, 2048)
SETTINGS = Settings(rounds=3, group_us=40_000, warmup_s=0.3)

Tile = tuple[str, str, int, int, Path]
"""Rung, schedule, n and k, and where it goes."""

app = typer.Typer(add_completion=False, help=__doc__.splitlines()[0])


def weights() -> list[tuple[int, int]]:
    """(n, k) of each."""
    return [*dict.fromkeys((layer.n, layer.k) for layer in LAYERS), *((size, size) for size in SQUARES)]


def problems() -> Iterator[Problem]:
    """The small M first: for them the choice is hardest."""
    yield from (Problem(size, size, size) for size in SQUARES)
    yield from (Problem(m, n, k) for m in LARGE_M for n, k in weights() if n not in SQUARES)


def schedules(rung: str, n: int, k: int) -> list[Schedule]:
    """For each tile and kind of cluster what the rung would add to it; those that cannot run are left out."""
    cls, found = rung_named(rung), []
    shared = [name for name in ("cluster_m", "split_k") if name in cls.knobs]
    for (block_m, block_n), *values in itertools.product(TILES, *(SPACE[name] for name in shared)):
        pins = {"block_m": block_m, "block_n": block_n, **dict(zip(shared, values, strict=True))}
        try:
            found.append(choose(cls, Problem(8192, n, k), GPU, pins))
        except InputError:
            continue
    return found


@app.command("compile")
def compile_all(folder: Path, rung: str = "h6", executor: ExecutorOption = PROCESSES) -> None:
    """Each tile for each pair of n and k; m is no constant. The workers share the folder."""
    jobs = [
        (rung, str(schedule), n, k, folder.resolve() / f"{rung}-{n}x{k}-{number}")
        for n, k in weights()
        for number, schedule in enumerate(schedules(rung, n, k))
    ]
    made = run(Job("tiles", jobs, compile_one, named), folder / "compiled.jsonl", executor)
    if lost := died(made):
        raise UnsupportedError(f"{lost[0]['rung']} with {lost[0]['schedule']} ends the process that compiles it.")


def named(job: Tile) -> dict[str, Any]:
    rung, text, n, k, folder = job
    return {"rung": rung, "schedule": text, "n": n, "k": k, "folder": folder.name, "code": package_digest()}


def compile_one(job: Tile) -> dict[str, Any]:
    rung, text, n, k, folder = job
    schedule, m = Schedule.parse(text), 128
    tensors = (torch.empty(shape, dtype=torch.float16) for shape in ((m, k), (n, k), (m, n)))
    cls = rung_named(rung)
    compiler.compile(cls(**schedule.as_dict()), m, n, k, *tensors, target=cls.target).save(folder)
    (folder / "schedule.txt").write_text(text, encoding="utf-8")
    return {}


@app.command("measure")
def measure_all(
    folder: Path, out: Path = Path("tiles.json"), limit: Annotated[float, typer.Option(help="Seconds.")] = 3600.0
) -> None:
    """On this machine's GPU, with what `compile` made."""
    end, record = time.monotonic() + limit, read(out)
    record["machine"] = asdict(bench_machine.machine_of(bench_machine.gpu_at_hand()))
    device = Cuda()
    for problem in problems():
        if str(problem) not in record["us"] and time.monotonic() < end:
            record["us"][str(problem)] = times = measured(folder, problem, device)
            print(
                problem,
                *(f"{name}: {us:.1f}" for name, us in sorted(times.items(), key=lambda item: item[1])[:4]),
                sep="  ",
            )
            out.write_text(json.dumps(record, indent=1), encoding="utf-8")


def read(out: Path) -> dict[str, Any]:
    return dict(json.loads(out.read_text(encoding="utf-8"))) if out.exists() else {"machine": {}, "us": {}}


def measured(folder: Path, problem: Problem, device: Cuda) -> dict[str, float]:
    sets = device.sets(problem)
    calls = {"cublas": cublas, **dict(kernels(folder, problem))}
    groups = {
        name: device.group(call, sets, SETTINGS.group_us)[0]
        for name, call in calls.items()
        if name == "cublas" or right(call, sets[0])
    }
    timings, _ = measure(groups, SETTINGS, time.monotonic, lambda what: None)
    return {name: timing.median_us for name, timing in timings.items()}


def cublas(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    torch.mm(a, b.T, out=c)


def kernels(folder: Path, problem: Problem) -> Iterator[tuple[str, Call]]:
    from blackwell_matmul.runtime import load

    for place in sorted(folder.glob(f"*-{problem.n}x{problem.k}-*")):
        kernel = load(place)
        yield (
            (place / "schedule.txt").read_text(encoding="utf-8"),
            lambda a, b, c, kernel=kernel: kernel(len(a), a, b, c),
        )


def right(call: Call, operands: Sequence[torch.Tensor]) -> bool:
    a, b, c = operands
    c.fill_(math.nan)
    call(a, b, c)
    verdict = check_matmul(a, b, c)
    if not verdict.ok:
        print(verdict.message)
    return verdict.ok


@app.command("summary")
def summary(file: Path, rung: str = "h6") -> None:
    """For each M the geometric means: of the chosen tile's time over the fastest one's, and of cuBLAS's over its."""
    record, by_m = read(file), {}
    for problem in problems():
        if times := record["us"].get(str(problem)):
            name = str(choose(rung_named(rung), problem, GPU))
            best, cublas_us = min(us for key, us in times.items() if key != "cublas"), times["cublas"]
            if name not in times:
                print(f"{problem}: {name} was not measured")
                continue
            by_m.setdefault(problem.m, []).append((times[name] / best, cublas_us / times[name], cublas_us / best))
    for m, rows in sorted(by_m.items()):
        lost, chosen, best = (math.exp(sum(math.log(row[i]) for row in rows) / len(rows)) for i in range(3))
        print(
            f"M = {m}: {len(rows)} problems, chosen over fastest {lost:.3f}, of cuBLAS {chosen:.3f}, fastest {best:.3f}"
        )


if __name__ == "__main__":
    script(app)
