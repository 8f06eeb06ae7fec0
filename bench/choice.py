"""How good is the choice? Schedules in the order of `predicted_cycles`, and of `predict`, beside what an H200 measured;
and the one beside the other on a B200. No GPU needed.

    python bench/choice.py predict                    # an hour on two cores; goes on where it was broken off
    python bench/choice.py score --before 2da2206     # with the cost model of an earlier commit beside it

Measured are results/h200_chosen.json; `predict` ranks its tiles, too, once they were predicted. On a B200 nobody has
measured: there a seeded sample of schedules of each rung is predicted.

The figures of both models are of other measurements (gpu_figures.py); but whoever chose among the sources knew these
rows.
"""

from __future__ import annotations

import dataclasses
import json
import random
import statistics
import subprocess
import types
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import typer
from rich.console import Console
from rich.table import Table

from blackwell_matmul.base.digests import package_digest
from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.hardware.gpus import GPUS
from blackwell_matmul.harness.predicting import predict
from blackwell_matmul.jobs.executors import PROCESSES
from blackwell_matmul.jobs.running_trials import Job, run
from blackwell_matmul.kernels import rung as rung_named
from blackwell_matmul.problem.problem import Problem, Schedule
from blackwell_matmul.scheduling.cost_model import predicted_cycles
from blackwell_matmul.scheduling.mma import tile_config
from blackwell_matmul.scheduling.rules import why_not
from blackwell_matmul.scheduling.space import choose, preference, projection
from blackwell_matmul.scheduling.tile_config import TileConfig
from blackwell_matmul_studies.scripts import ExecutorOption, RowsOption, died, rows_of, script

RESULTS = Path(__file__).parent / "results"
PREDICTED = RESULTS / "choice_predicted.json"
MEASURED = "h200_chosen"
LEAST = 5
"""Schedules of a problem that counts."""

TOPS = (1, 2, 3, 5, 8)
RUNGS = ("v0", "v1", "v2", "v3", "v5", "v6")
SIZES = ((1024, 1024, 1024), (4096, 4096, 4096), (512, 8192, 4096), (8192, 8192, 8192), (4096, 2048, 512))
SAMPLE = 9

app = typer.Typer(add_completion=False, help=__doc__.splitlines()[0])


class Row(NamedTuple):
    """A schedule on a problem. source: the file with its time, which begins with the GPU's name, or the rung."""

    source: str
    problem: str
    schedule: str

    @property
    def rung(self) -> str:
        return self.source if self.source in RUNGS else "hopper"

    @property
    def gpu(self) -> str:
        return "B200" if self.source in RUNGS else self.source.partition("_")[0].upper()

    def tile(self) -> TileConfig:
        cls = rung_named(self.rung)
        schedule = dataclasses.replace(Schedule.parse(self.schedule), mma=cls.mma, features=cls.features)
        return tile_config(schedule, problem_of(self.problem), GPUS[self.gpu])


def problem_of(text: str) -> Problem:
    size, dtype = text.split()
    return Problem(*map(int, size.split("x")), dtype)


THEN = {"cluster_n": 1, "neighbours": 2, "swap_ab": 0}
"""Knobs that a schedule of the product had that does not name them, for no kernel had others."""


def preferred(problem: str, names: Iterable[str]) -> str:
    """Of the schedules of the product that were measured what is chosen, as its file names it."""

    def key(name: str) -> tuple[int, ...]:
        knobs = {**THEN, **dict(Schedule.parse(name))}
        schedule = Schedule(**knobs, mma="wgmma", features=rung_named("hopper").features)
        return preference(schedule, tile_config(schedule, problem_of(problem), GPUS["H200"]))

    return min(names, key=key)


def measured(source: str) -> dict[str, dict[str, float]]:
    """By problem and schedule, in us."""
    times = json.loads((RESULTS / f"{source}.json").read_text())["us"]
    rows = {problem: {name: us for name, us in each.items() if name != "cublas"} for problem, each in times.items()}
    return {problem: each for problem, each in rows.items() if len(each) >= LEAST}


def rows() -> Iterator[Row]:
    """All that are predicted."""
    yield from (Row(MEASURED, problem, each) for problem, times in measured(MEASURED).items() for each in times)
    yield from sample()


def sample() -> Iterator[Row]:
    """Of each rung what it chooses, and others at random."""
    dice = random.Random(1)
    for name in RUNGS:
        for size in SIZES:
            problem, gpu, cls = Problem(*size), GPUS["B200"], rung_named(name)
            able = [each for each in projection(cls) if not why_not(each, problem, gpu)]
            drawn = [choose(cls, problem, gpu), *dice.sample(able, min(SAMPLE, len(able)))]
            yield from (Row(name, str(problem), str(each)) for each in dict.fromkeys(drawn))


# --- predict


@app.command("predict")
def predict_all(executor: ExecutorOption = PROCESSES, rows_file: RowsOption = "") -> None:
    """What has not been."""
    known = read()
    missing = [row for row in rows() if row.schedule not in known.get(row.source, {}).get(row.problem, {})]
    made = run(Job("schedules", missing, predicted, named), rows_of(rows_file, "choice_predicted"), executor)
    for row, found in zip(missing, made, strict=True):
        if lost := died([found]):
            raise UnsupportedError(f"schedule {lost[0]['schedule']} of {lost[0]['problem']} ends its process.")
        known.setdefault(row.source, {}).setdefault(row.problem, {})[row.schedule] = found["us_and_megacycles"]
    write(known)


def named(row: Row) -> dict[str, Any]:
    return {**row._asdict(), "code": package_digest()}


def predicted(row: Row) -> dict[str, Any]:
    problem = problem_of(row.problem)
    found = predict(row.rung, problem, schedule=row.schedule, target=row.gpu)
    return {"us_and_megacycles": [round(found.time_us, 3), round(found.cycles / 1e6, 6)]}


def read() -> dict[str, Any]:
    return dict(json.loads(PREDICTED.read_text())["us_and_megacycles"]) if PREDICTED.exists() else {}


def write(known: dict[str, Any]) -> None:
    record = {"command": "python bench/choice.py predict", "predicted": True, "us_and_megacycles": known}
    PREDICTED.write_text(json.dumps(record, indent=0) + "\n")


# --- score


class Score(NamedTuple):
    """Of an order of schedules, over problems. top: for each of TOPS, what the fastest of so many reaches of the
    fastest of all, in the geometric mean; worst: where it reaches least of it, of five. regret: how much longer the
    first one takes than the fastest of all, in the geometric mean. rank: Spearman's correlation, the mean."""

    problems: int
    schedules: int
    top: tuple[float, ...]
    worst: float
    regret: float
    rank: float


def score(times: dict[str, dict[str, float]], cost: Callable[[str, str], float | None]) -> Score:
    """cost: of a problem and a schedule; None where it is not known, and left out."""
    reached, ranks, count = [], [], 0
    for problem, each in times.items():
        costs = {name: value for name in each if (value := cost(problem, name)) is not None}
        if len(costs) < LEAST:
            continue
        order, best = sorted(costs, key=costs.__getitem__), min(each.values())
        reached.append([best / min(each[name] for name in order[:top]) for top in TOPS])
        ranks.append(spearman([each[name] for name in costs], [*costs.values()]))
        count += len(costs)
    tops = tuple(round(statistics.geometric_mean(column), 4) for column in zip(*reached))
    worst = min(row[TOPS.index(5)] for row in reached)
    return Score(
        len(reached), count, tops, round(worst, 4), round(1 / tops[0] - 1, 4), round(statistics.mean(ranks), 3)
    )


def spearman(one: Sequence[float], other: Sequence[float]) -> float:
    return statistics.correlation(ranks_of(one), ranks_of(other))


def ranks_of(values: Sequence[float]) -> list[float]:
    """Equal ones share theirs."""
    places = sorted(values)
    return [(bisect_left(places, value) + bisect_right(places, value)) / 2 for value in values]


def closed_form(source: str, cycles: Callable[[TileConfig], float]) -> Callable[[str, str], float]:
    return lambda problem, schedule: cycles(Row(source, problem, schedule).tile())


def of_model(known: dict[str, Any], source: str) -> Callable[[str, str], float | None]:
    return lambda problem, schedule: known[source].get(problem, {}).get(schedule, (None,))[0]


def older(revision: str) -> Callable[[TileConfig], float]:
    """The cost model of a commit."""
    path = f"{revision}:blackwell_matmul/scheduling/cost_model.py"
    text = subprocess.run(["git", "show", path], capture_output=True, text=True, check=True).stdout
    module = types.ModuleType("older_cost_model")
    exec(compile(text, path, "exec"), vars(module))
    found: Callable[[TileConfig], float] = module.predicted_cycles
    return found


@app.command("score")
def score_all(before: str = "") -> None:
    """Print the tables, and write them."""
    known, found, times = read(), {}, measured(MEASURED)
    found["predicted_cycles"] = score(times, closed_form(MEASURED, predicted_cycles))
    if MEASURED in known:
        found["predict"] = score(times, of_model(known, MEASURED))
    if before:
        found[f"predicted_cycles at {before}"] = score(times, closed_form(MEASURED, older(before)))
    between = [beside(known, name) for name in RUNGS]
    shown(found, between)
    command = f"python bench/choice.py score{' --before ' * bool(before)}{before}"
    record = {
        "command": command,
        "measured": {name: each._asdict() for name, each in found.items()},
        "b200": between,
        "chosen": chosen(MEASURED),
    }
    (RESULTS / "choice.json").write_text(json.dumps(record, indent=1) + "\n")


def beside(known: dict[str, Any], name: str) -> dict[str, Any]:
    """The closed form beside the model of time, in cycles: over the problems of a rung the rank correlation, the least
    and the most of the one over the other, and the most that the first one loses."""
    ranks, ratios, lost = [], [], []
    for problem, each in known[name].items():
        cycles = [mega * 1e6 for _, mega in each.values()]
        closed = [predicted_cycles(Row(name, problem, schedule).tile()) for schedule in each]
        ranks.append(spearman(cycles, closed))
        ratios += [a / b for a, b in zip(closed, cycles)]
        lost.append(cycles[closed.index(min(closed))] / min(cycles) - 1)
    return {
        "rung": name, "schedules": len(ratios), "rank": round(statistics.mean(ranks), 3),
        "mean_ratio": round(statistics.geometric_mean(ratios), 3), "least": round(min(ratios), 3),
        "most": round(max(ratios), 3), "most_lost": round(max(lost), 4),
    }  # fmt: skip


def chosen(source: str) -> dict[str, Any]:
    """What the choice loses among the schedules that were measured."""
    lost = [times[preferred(problem, times)] / min(times.values()) - 1 for problem, times in measured(source).items()]
    mean = statistics.geometric_mean(1 + each for each in lost) - 1
    return {"problems": len(lost), "regret": round(mean, 4), "worst": round(max(lost), 4)}


def shown(found: dict[str, Score], between: list[dict[str, Any]]) -> None:
    table = Table("order", "problems", "schedules", *(f"best of {top}" for top in TOPS), "worst of 5", "regret", "rank")
    for name, each in found.items():
        tops = (f"{top:.4f}" for top in each.top)
        rest = f"{each.worst:.4f}", f"{each.regret:.2%}", f"{each.rank:.3f}"
        table.add_row(name, str(each.problems), str(each.schedules), *tops, *rest)
    Console(width=150).print(table)
    for each in between:
        print(each)


if __name__ == "__main__":
    script(app)
