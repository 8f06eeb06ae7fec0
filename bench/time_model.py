"""How good is `predict`? Beside the published kernels on a B200, and the measured rungs on an H200; no GPU needed.

    git clone --branch v0.2.0 https://github.com/NVIDIA/tilus
    python bench/time_model.py b200 tilus/examples/blackwell_matmul
    python bench/time_model.py h200
    python bench/time_model.py h100

NVIDIA/tilus publishes samples V0 to V6 with what Nsight Compute says of each at 8192x8192x8192 in fp16. They are
predicted at one schedule each, fixed before the first comparison: 128x256x64 with the most stages; V6 256x256x64 with
five. The rungs of this repository are predicted beside them, at the same schedules. The figures of the model come from
microbenchmarks (gpu_figures.py), none from these kernels; but whoever chose among the sources had seen these totals.

The H200's times are those of results/h200_ladder.json, results/h200_tiles_h7.json and, of G0 on mma.sync,
results/h200_odd.json, of 50 us and more; an H100's are those of results/h100_ladder.json. The figures of both are of
microbenchmarks, too (calibrate/hopper_micro.py), but the clock, which is cuBLAS's, and what the issue of a TMA load
takes; which of an H200's count was seen on a third of its tiles.
"""

from __future__ import annotations

import itertools
import json
import math
import statistics
import sys
import types
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from blackwell_matmul.hardware.gpu_figures import ROW_BYTES
from blackwell_matmul.harness.predicting import predict
from blackwell_matmul.kernels import rung as rung_named
from choice import measured as times_of
from choice import preferred

RESULTS = Path(__file__).parent / "results"
SIZE = (8192, 8192, 8192)
TILE = "block_m=128,block_n=256,block_k=64"
PAIR = "block_m=256,block_n=256,block_k=64"


@dataclass(frozen=True)
class Sample:
    """A published kernel: its time in ms and the SMs' clock in GHz, by Nsight Compute. own: the schedule of the rung
    of this repository that is like it."""

    name: str
    ms: float
    ghz: float
    schedule: str
    own: str

    @property
    def cycles(self) -> float:
        """The busy tensor cores say more of them than the rounded clock: 2MNK / 8192 products a cycle on 148 SMs."""
        return UTILISED_CYCLES / TENSOR[self.name]


UTILISED_CYCLES = 2 * SIZE[0] * SIZE[1] * SIZE[2] / 8192 / 148
TENSOR = dict(zip(("v0", "v1", "v2", "v3", "v4", "v5", "v6"), (0.2324, 0.2102, 0.5755, 0.7935, 0.8319, 0.9399, 0.9606)))
"""For which part of the time the tensor cores are busy, as published."""

SAMPLES = (
    Sample("v0", 2.24, 1.75, TILE, TILE),
    Sample("v1", 2.42, 1.77, f"{TILE},e_block_n=32", f"{TILE},e_block_n=32"),
    Sample("v2", 0.99667, 1.58, f"{TILE},stages=4,e_block_n=16", f"{TILE},stages=4,e_block_n=16"),
    Sample("v3", 0.81376, 1.41, f"{TILE},stages=4,e_block_n=16", f"{TILE},stages=4,e_block_n=16"),
    Sample(
        "v4", 0.77629, 1.40, f"{TILE},stages=4,e_block_n=16,swizzle_size=8", f"{TILE},stages=4,e_block_n=16,group_m=8"
    ),
    Sample(
        "v5", 0.72995, 1.32, f"{TILE},tma_stages=4,mma_stages=2,e_block_n=16,swizzle_size=8",
        f"{TILE},stages=4,e_block_n=16,group_m=8",
    ),
    Sample(
        "v6", 0.68285, 1.38, f"{PAIR},tma_stages=5,mma_stages=2,e_block_n=16,swizzle_size=8",
        f"{PAIR},stages=4,e_block_n=16,group_m=8",
    ),
)  # fmt: skip
"""NVIDIA/tilus at 9a22de0, docs/source/tutorials/matmul-blackwell."""


@dataclass(frozen=True)
class Compared:
    """In millions of cycles. at_clock: predicted at the clock that was measured. own: this repository's rung at the
    same schedule; chosen: at the one that it chooses."""

    name: str
    schedule: str
    published: float
    predicted: float
    error: float
    ghz: float
    at_clock: float
    error_at_clock: float
    memory_gb: float
    bound: str
    own: float
    chosen: float
    explanation: tuple[str, ...]


def compared(folder: Path, sample: Sample) -> Compared:
    kernel, cycles = f"{folder / f'matmul_{sample.name}.py'}:BlackwellMatmul{sample.name.upper()}", sample.cycles / 1e6
    free = predict(kernel, *SIZE, schedule=sample.schedule)
    pinned = predict(kernel, *SIZE, schedule=sample.schedule, ghz=sample.ghz, explained=False)
    own, chosen = (predict(sample.name, *SIZE, schedule=each, explained=False) for each in (sample.own, None))
    mine, there = free.cycles / 1e6, pinned.cycles / 1e6
    numbers = (cycles, mine, mine / cycles - 1, free.ghz, there, there / cycles - 1, free.memory_gb)
    rounded = [round(number, 4) for number in numbers]
    rest = (round(own.cycles / 1e6, 4), round(chosen.cycles / 1e6, 4), free.explanation)
    return Compared(sample.name, sample.schedule, *rounded, free.bound, *rest)


def summary(found: list[Compared]) -> dict[str, object]:
    """order: who is faster than whom is right. slower: so is that V1 is slower than V0."""
    names = [sorted(found, key=lambda each: getattr(each, key)) for key in ("published", "predicted")]
    errors, at_clock = [abs(each.error) for each in found], [abs(each.error_at_clock) for each in found]
    return {
        "mean_error": round(statistics.mean(errors), 4), "worst_error": max(errors),
        "mean_error_at_clock": round(statistics.mean(at_clock), 4), "worst_error_at_clock": max(at_clock),
        "order_right": names[0] == names[1],
    }  # fmt: skip


def b200(
    folder: Annotated[Path, typer.Argument(help="examples/blackwell_matmul of a checkout of NVIDIA/tilus, v0.2.0")],
) -> None:
    """Predict each published sample, print the table, and write it."""
    sys.modules.setdefault("pandas", types.ModuleType("pandas"))  # the samples import it, for tables of their own
    found = [compared(folder, sample) for sample in SAMPLES]
    title = "millions of SM cycles on a B200, 8192x8192x8192 fp16; predicted, but for the first column"
    shown = Table(
        "sample", "published", "predicted", "error", "GHz", "at measured GHz", "error", "held by", "own", "own, chosen",
        title=title,
    )  # fmt: skip
    for each in found:
        cells = (each.name, f"{each.published:.3f}", f"{each.predicted:.3f}", f"{each.error:+.1%}", f"{each.ghz:.2f}")
        more = (f"{each.at_clock:.3f}", f"{each.error_at_clock:+.1%}", each.bound, f"{each.own:.3f}")
        shown.add_row(*cells, *more, f"{each.chosen:.3f}")
    summed = summary(found)
    Console(width=130).print(shown, summed)
    write("time_model", "b200 <checkout>/examples/blackwell_matmul", {**summed, "samples": [asdict(e) for e in found]})


def write(name: str, words: str, record: dict[str, object]) -> None:
    command = f"python bench/{Path(__file__).name} {words}"
    (RESULTS / f"{name}.json").write_text(
        json.dumps({"command": command, "predicted": True, **record}, indent=1) + "\n"
    )


# --- an H200

LEAST_US, CUT_LEAST_US = 50, 10
GROUPS = ("ladder", "tiles", "split k", "chosen", "mma.sync")
RENAMED = {"h4": "h5", "h5": "h6", "h6": "h7"}
"""Rungs by the names that they had when they were measured."""


@dataclass(frozen=True)
class Timed:
    """A rung, a problem and a schedule that were measured, in us. group: what it is one of; cublas_us: the same
    problem by cuBLAS, where it took turns with this."""

    group: str
    rung: str
    problem: str
    schedule: str
    us: float
    cublas_us: float | None = None


def of_bench(group: str, name: str, kind: str, renamed: Mapping[str, str]) -> Iterator[Timed]:
    """What a run of `bench` has timed of the rungs whose names begin with this letter."""
    suites = json.loads((RESULTS / f"{name}.json").read_text())["suites"]
    for row in itertools.chain.from_iterable(suite["rows"] for suite in suites.values()):
        if row["contender"].startswith(kind) and row.get("timing"):
            size = "x".join(str(row["problem"][name]) for name in "mnk")
            schedule = ",".join(f"{name}={value}" for name, value in row["schedule"].items() if name != "sm_count")
            rung = renamed.get(row["contender"], row["contender"])
            yield Timed(group, rung, f"{size} {row['problem']['dtype']}", schedule, row["timing"]["median_us"])


def measured() -> Iterator[Timed]:
    """Of the ladder, of the tiles of one rung, and of those that it chooses."""
    yield from of_bench("ladder", "h200_ladder", "h", RENAMED)
    yield from of_bench("mma.sync", "h200_odd", "g", RENAMED)
    for each in of_tiles("h200_tiles_h7"):
        yield replace(each, group="tiles" if "split_k=1" in each.schedule else "split k")
    chosen = {problem: preferred(problem, times) for problem, times in times_of("h200_chosen").items()}
    yield from (each for each in of_tiles("h200_chosen") if each.schedule == chosen.get(each.problem))


def of_tiles(name: str) -> Iterator[Timed]:
    """What bench/tiles.py has measured."""
    for problem, tiles in json.loads((RESULTS / f"{name}.json").read_text())["us"].items():
        for schedule, us in tiles.items():
            if schedule != "cublas":
                yield Timed("chosen", "hopper", problem, schedule, us, tiles.get("cublas"))


def h200() -> None:
    """Predict each, print the errors by group, and write them."""
    rows = beside(measured(), "H200")
    groups = {group: grouped([row for row in rows if row["group"] == group]) for group in GROUPS}
    groups["without split k"] = grouped([row for row in rows if row["group"] in ("ladder", "tiles")])
    sizes = by_rows([row for row in rows if row["group"] == "chosen"])
    for name, numbers in (*groups.items(), *sizes.items()):
        print(name, numbers)
    write("time_model_h200", "h200", {"gpu": "H200", "groups": groups, "chosen by M": sizes, "rows": rows})


def h100() -> None:
    """The same of the ladder on an H100, of tiles with clusters and without, of C transposed, and of rows that begin
    within lines."""
    rows = beside(of_bench("ladder", "h100_ladder", "h", {}), "H100")
    rungs = {rung: grouped([row for row in rows if row["rung"] == rung]) for rung in sorted({r["rung"] for r in rows})}
    every = {"ladder": grouped(rows), **rungs}
    tiles = beside(in_order(), "H100")
    for group in ("in order", "in clusters"):
        every[group] = grouped([row for row in tiles if row["group"] == group])
    transposed = beside(of_c_transposed(), "H100")
    every["C transposed"] = grouped(transposed)
    cut = beside(of_cut_rows(), "H100", CUT_LEAST_US)
    for group in ("rows by 16 bytes", "rows by 32 bytes", "rows by 64 bytes"):
        every[group] = grouped([row for row in cut if row["group"] == group])
    rows += tiles + transposed + cut
    for name, numbers in every.items():
        print(name, numbers)
    write("time_model_h100", "h100", {"gpu": "H100", "groups": every, "rows": rows})


def in_order() -> Iterator[Timed]:
    """Of every 14th problem of up to 2**36 products and 96 rows or more."""
    sizes = {each.problem: [*map(int, each.problem.split()[0].split("x"))] for each in of_tiles("h100_in_order")}
    some = [problem for problem, size in sizes.items() if size[0] >= 96 and math.prod(size) <= 2**36][::14]
    for each in of_tiles("h100_in_order"):
        if each.problem in some:
            yield replace(each, group="in order" if "neighbours=1" in each.schedule else "in clusters")


def of_c_transposed() -> Iterator[Timed]:
    """Every fourth that is chosen so."""
    chosen = (each for each in of_tiles("h100_swapped_chosen") if "swap_ab=1" in each.schedule and each.us >= LEAST_US)
    yield from (replace(each, group="C transposed") for each in list(chosen)[::4])


def of_cut_rows() -> Iterator[Timed]:
    """Of 159 problems every sixth, with all tiles that were measured."""
    timed = list(of_tiles("h100_cut_rows"))
    some = list(dict.fromkeys(each.problem for each in timed))[::6]
    for each in timed:
        if each.problem in some:
            pitch = 2 * int(each.problem.split()[0].split("x")[2])
            yield replace(each, group=f"rows by {math.gcd(pitch, ROW_BYTES)} bytes")


def beside(timed: Iterable[Timed], gpu: str, least_us: float = LEAST_US) -> list[dict[str, Any]]:
    """What is predicted of those that are long enough."""
    rows = []
    for each in timed:
        if each.us >= least_us:
            size, dtype = each.problem.split()
            m, n, k = map(int, size.split("x"))
            schedule = ",".join([each.schedule, *unsaid(each)])
            took = predict(each.rung, m, n, k, dtype=dtype, schedule=schedule, target=gpu, explained=False).time_us
            rows.append({**asdict(each), "predicted_us": round(took, 2), "error": round(took / each.us - 1, 4)})
    return rows


def unsaid(timed: Timed) -> Iterator[str]:
    """Knobs of the rung that its schedule does not name: no kernel had other values then."""
    for name, value in (("cluster_n", 1), ("neighbours", 2), ("swap_ab", 0)):
        if name in rung_named(timed.rung).knobs and name not in timed.schedule:
            yield f"{name}={value}"


def by_rows(rows: list[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """For each M what cuBLAS takes of the time that was measured, and what is predicted of it, in the geometric
    mean."""
    found: dict[str, dict[str, float]] = {}
    for m in sorted({int(row["problem"].split("x")[0]) for row in rows}):
        mine = [row for row in rows if row["problem"].startswith(f"{m}x")]
        cublas, predicted = (
            round(statistics.geometric_mean(row[name] / row["us"] for row in mine), 4)
            for name in ("cublas_us", "predicted_us")
        )
        found[str(m)] = {"problems": len(mine), "cublas": cublas, "predicted": predicted}
    return found


def grouped(rows: list[dict[str, Any]]) -> dict[str, float]:
    errors = [row["error"] for row in rows]
    return {
        "rows": len(rows), "mean_error": round(statistics.mean(map(abs, errors)), 4),
        "worst_error": max(map(abs, errors)), "mean": round(statistics.mean(errors), 4),
    }  # fmt: skip


app = typer.Typer(add_completion=False, help=__doc__.splitlines()[0])
app.command()(b200)
app.command()(h200)
app.command()(h100)

if __name__ == "__main__":
    app()
