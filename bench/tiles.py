"""Is the schedule that a rung chooses a good one? Times many tiles on many problems, each beside cuBLAS, on a GPU.

    python bench/tiles.py compile build/tiles                      # anywhere, by any --executor; needs no GPU
    python bench/tiles.py compile build/chosen --best 0            # the chosen schedules alone
    python bench/tiles.py compile build/weak --plan bench/plans/weak.json  # schedules that a file names, by problem
    python bench/tiles.py measure build/tiles --out tiles.json     # on the GPU; goes on where it was broken off
    python bench/tiles.py summary tiles.json                       # what the choice loses

The problems are layers of language models, two small squares, and products of few tiles (FEW), for which the choice is
hardest. Of each problem the tiles that are predicted to be the best take part, each with the clusters and the split
that go with it. Times are medians of a few groups, all tiles of a problem in turns; enough to rank tiles, too few for a
claim about any of them. Groups are long where the power limit tells, and short where a problem takes less than 40 us:
at full power the GPU is at a lower clock, where other tiles win.
"""

from __future__ import annotations

import inspect
import itertools
import json
import math
import re
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import torch
import typer
from rich.progress import track

from blackwell_matmul import compiler
from blackwell_matmul.base.digests import package_digest
from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.harness.bench import bench_machine
from blackwell_matmul.harness.bench.devices import Call, Cuda
from blackwell_matmul.harness.bench.protocol import Settings, measure
from blackwell_matmul.harness.bench.suites import LARGE_M, LAYERS, SMALL_M
from blackwell_matmul.jobs.executors import PROCESSES
from blackwell_matmul.jobs.running_trials import Job, run
from blackwell_matmul.kernels import rung as rung_named
from blackwell_matmul.problem.problem import Problem, Schedule
from blackwell_matmul.scheduling.mma import tile_config
from blackwell_matmul.scheduling.rules import why_not
from blackwell_matmul.scheduling.space import choose, preference, projection
from blackwell_matmul.tuner.candidates import TILE_KNOBS
from blackwell_matmul_studies.interleaved import verdict_on
from blackwell_matmul_studies.scripts import ExecutorOption, died, script

GPU = GPUS["H200"]
SQUARES = (1024, 2048)
FEW_NK = ((2112, 7168), (5120, 2880), (2880, 4096), (4096, 7168), (7168, 2048))
FEW = tuple(itertools.product(FEW_NK, (1, 16, 64, 128, 256, 512)))
"""(n, k) and m."""

BEST = 14
"""Tiles of a problem that take part, besides the chosen one, unless told otherwise."""

BLOCK_K = 64

SHORT_US = 40.0
SETTINGS = Settings(rounds=5, group_us=4_000, warmup_s=0.3)
LONG = Settings(rounds=3, group_us=40_000, warmup_s=0.3)

PLAN = "problems.json"
Plan = dict[str, list[str]]
"""Schedules by problem."""

Tile = tuple[str, str, int, int, Path]
"""Rung, schedule, an n and a k, and where it goes."""

app = typer.Typer(add_completion=False, help=__doc__.splitlines()[0])


def problems() -> Iterator[Problem]:
    """Those with few tiles first."""
    weights = dict.fromkeys((layer.n, layer.k) for layer in LAYERS)
    ms = sorted({*SMALL_M, *LARGE_M}, key=lambda m: (m > 512, m < 128, m))
    yield from (Problem(m, n, k, "bf16") for (n, k), m in FEW)
    yield from (Problem(size, size, size, "bf16") for size in SQUARES)
    yield from (Problem(m, n, k, "bf16") for m in ms for n, k in weights)


def schedules(rung: str, problem: Problem, best: int) -> list[str]:
    """The chosen one first; then of each tile, cluster and split the schedule that is predicted best, the best."""
    cls, chosen = rung_named(rung), choose(rung_named(rung), problem, GPU)
    if not best:
        return [str(chosen)]
    able = [each for each in projection(cls) if each.block_k == BLOCK_K and not why_not(each, problem, GPU)]
    able.sort(key=lambda each: preference(each, tile_config(each, problem, GPU)))
    kinds = {tuple(getattr(each, name) for name in TILE_KNOBS): each for each in reversed(able)}
    others = sorted(kinds.values(), key=able.index)[:best]
    return list(dict.fromkeys(map(str, (chosen, *others))))


@app.command("compile")
def compile_all(
    folder: Path,
    rung: str = "hopper",
    best: int = BEST,
    plan: Annotated[Path | None, typer.Option(help="JSON: schedules by problem.")] = None,
    executor: ExecutorOption = PROCESSES,
) -> None:
    """What `schedules` has for each problem, or a file names; sizes that are no constants share a kernel. The workers
    share the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    taken = read_plan(plan) if plan else planned(rung, best)
    pairs = ((each, text) for each, texts in named_problems(taken) for text in texts)
    kernels = {place(rung, each, text): (text, each.n, each.k) for each, text in pairs}
    jobs = [(rung, *kernel, folder.resolve() / name) for name, kernel in kernels.items()]
    made = run(Job("tiles", jobs, compile_one, named), folder / "compiled.jsonl", executor)
    if lost := died(made):
        raise UnsupportedError(f"{lost[0]['rung']} with {lost[0]['schedule']} ends the process that compiles it.")
    (folder / PLAN).write_text(json.dumps(taken, indent=1), encoding="utf-8")


def planned(rung: str, best: int) -> Plan:
    return {str(problem): schedules(rung, problem, best) for problem in track(list(problems()), "choosing")}


def read_plan(file: Path) -> Plan:
    return dict(json.loads(file.read_text(encoding="utf-8")))


def named_problems(plan: Plan) -> Iterator[tuple[Problem, list[str]]]:
    for name, texts in plan.items():
        size, dtype = name.split()
        yield Problem(*map(int, size.split("x")), dtype), texts


def place(rung: str, problem: Problem, schedule: str) -> str:
    constants = inspect.signature(rung_named(rung).__call__).parameters["n"].annotation is int
    sizes = [f"{problem.n}x{problem.k}"] if constants else []
    return "-".join([*sizes, *re.findall(r"=(\d+)", schedule)])


def named(job: Tile) -> dict[str, Any]:
    rung, text, n, k, folder = job
    return {"rung": rung, "schedule": text, "n": n, "k": k, "folder": folder.name, "code": package_digest()}


def compile_one(job: Tile) -> dict[str, Any]:
    rung, text, n, k, folder = job
    schedule, m = Schedule.parse(text), 128
    tensors = (torch.empty(shape, dtype=torch.bfloat16) for shape in ((m, k), (n, k), (m, n)))
    cls = rung_named(rung)
    bundle = compiler.compile(cls(**schedule.as_dict()), m, n, k, *tensors, target=cls.target)
    replace(bundle, source="", ptx="").save(folder)  # what runs, and no more: hundreds of them travel
    return {}


@app.command("measure")
def measure_all(
    folder: Path,
    out: Path = Path("tiles.json"),
    rung: str = "hopper",
    limit: Annotated[float, typer.Option(help="Seconds.")] = 3600.0,
) -> None:
    """On this machine's GPU, with what `compile` made."""
    end, record = time.monotonic() + limit, read(out)
    record["machine"] = asdict(bench_machine.machine_of(bench_machine.gpu_at_hand()))
    device = Cuda()
    for problem, texts in named_problems(read_plan(folder / PLAN)):
        if str(problem) not in record["us"] and time.monotonic() < end:
            record["us"][str(problem)] = times = measured(folder, rung, problem, texts, device)
            print(
                problem,
                *(f"{name}: {us:.1f}" for name, us in sorted(times.items(), key=lambda item: item[1])[:4]),
                sep="  ",
            )
            out.write_text(json.dumps(record, indent=1), encoding="utf-8")


def read(out: Path) -> dict[str, Any]:
    return dict(json.loads(out.read_text(encoding="utf-8"))) if out.exists() else {"machine": {}, "us": {}}


def measured(folder: Path, rung: str, problem: Problem, texts: Sequence[str], device: Cuda) -> dict[str, float]:
    sets = device.sets(problem)
    calls = {"cublas": cublas, **{text: kernel(folder / place(rung, problem, text)) for text in texts}}
    first = device.group(cublas, sets, SETTINGS.group_us)[0]
    settings = SETTINGS if first() < SHORT_US else LONG
    groups = {
        name: device.group(call, sets, settings.group_us)[0]
        for name, call in calls.items()
        if name == "cublas" or right(call, sets[0])
    }
    timings, _ = measure(groups, settings, time.monotonic, lambda what: None)
    return {name: round(timing.median_us, 3) for name, timing in timings.items()}


def cublas(a: torch.Tensor, b: torch.Tensor, c: torch.Tensor) -> None:
    torch.mm(a, b.T, out=c)


def kernel(place: Path) -> Call:
    from blackwell_matmul.runtime import load

    loaded = load(place)
    if "n" in loaded.bundle.consts:
        return lambda a, b, c: loaded(len(a), a, b, c)
    return lambda a, b, c: loaded(len(a), len(b), a.shape[1], a, b, c)


def right(call: Call, operands: Sequence[torch.Tensor]) -> bool:
    verdict = verdict_on(call, operands)
    if not verdict.ok:
        print(verdict.message)
    return verdict.ok


@app.command("summary")
def summary(file: Path, rung: str = "hopper") -> None:
    """For each M the geometric means: of the chosen tile's time over the fastest one's, and of cuBLAS's over its."""
    record = read(file)
    by_m: dict[int, list[tuple[float, float, float]]] = {}
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
