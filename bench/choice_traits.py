"""What do schedules take beside the closed form where rows begin within lines of the L2, by their traits? Needs no GPU.

    python bench/choice_traits.py        # writes scheduling/fits/unaligned_rows.toml; prints what the choice loses

Measured are schedules of `hopper` of problems whose K is no multiple of 64 (SOURCES). A trait's factor is that of a
regression
of the logarithms of measured over predicted time, in which a problem's mean takes no part; the traits in REFERENCE are
1. Loss: how much longer the first schedule of a problem's takes than its fastest, in the geometric mean; `fitted to
the others` is that of factors which four fifths of the problems give, on the last one.
"""

from __future__ import annotations

import datetime
import json
import math
import random
import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

import numpy as np
import typer
from rich.console import Console
from rich.table import Table

from blackwell_matmul.base.files import write_whole
from blackwell_matmul.scheduling import cost_model
from blackwell_matmul.scheduling.fit import UNALIGNED_ROWS
from blackwell_matmul.scheduling.tile_config import SPACE_ROW_ELEMENTS
from blackwell_matmul_studies.scripts import script
from choice import RESULTS, Row, problem_of

SOURCES = (
    *(("h200_cut_rows", "us"), ("h200_cut_rows", "held_out")),
    *((name, "us") for name in ("h200_clusters", "h100_cut_rows", "h100_rectangles")),
)
"""Files and their parts."""

REFERENCE = ("cluster 1x1", "split 1", "boxes 1", "warpgroups 2", "warpgroups 3")
RIDGE = 1.0
"""As if there were so many schedules more, of each trait, that take what is predicted."""

PARTS = 5

app = typer.Typer(add_completion=False, help=__doc__.splitlines()[0])


class Timed(NamedTuple):
    """A problem's schedules: their traits, what is predicted without them, and measured, in logarithms."""

    gpu: str
    traits: tuple[tuple[str, ...], ...]
    predicted: np.ndarray
    measured: np.ndarray


Factors = Mapping[str, float]
"""By trait, in logarithms."""


def timed() -> Iterator[Timed]:
    """Of each problem with two schedules or more."""
    for file, part in SOURCES:
        for problem, times in json.loads((RESULTS / f"{file}.json").read_text())[part].items():
            us = {Row(file, problem, name): each for name, each in times.items() if "=" in name}
            if problem_of(problem).k % SPACE_ROW_ELEMENTS and len(us) > 1:
                yield of_problem(us)


def of_problem(us: Mapping[Row, float]) -> Timed:
    (gpu,), tiles = {row.gpu for row in us}, [row.tile() for row in us]
    predicted = np.log([cost_model.modelled_cycles(tile) for tile in tiles])
    return Timed(gpu, tuple(map(cost_model.traits, tiles)), predicted, np.log([*us.values()]))


def fitted(problems: Sequence[Timed]) -> Factors:
    names = sorted({trait for each in problems for traits in each.traits for trait in traits} - {*REFERENCE})
    rows = np.vstack([centred(has(each, names)) for each in problems])
    late = np.concatenate([centred(each.measured - each.predicted) for each in problems])
    weights = np.linalg.solve(rows.T @ rows + RIDGE * np.eye(len(names)), rows.T @ late)
    return dict(zip(names, weights.tolist()))


def has(each: Timed, names: Sequence[str]) -> np.ndarray:
    """Schedules by traits."""
    return np.array([[name in traits for name in names] for traits in each.traits], float)


def centred(rows: np.ndarray) -> np.ndarray:
    return rows - rows.mean(axis=0)


def lost(each: Timed, factors: Factors) -> float:
    """By the first one, of the fastest, in logarithms."""
    cost = each.predicted + has(each, list(factors)) @ np.array([*factors.values()])
    return float(each.measured[cost.argmin()] - each.measured.min())


def rounded(factors: Factors) -> dict[str, float]:
    """As the closed form has them."""
    return {name: round(math.exp(each), 3) for name, each in factors.items()}


def as_data(problems: Sequence[Timed], factors: Factors, taken: datetime.date) -> str:
    """Return the file that the closed form reads."""
    gpus = ", ".join(sorted({each.gpu for each in problems}))
    files = ", ".join(dict.fromkeys(f"bench/results/{file}.json" for file, _ in SOURCES))
    lines = [f'"{name}" = {factor}' for name, factor in rounded(factors).items()]
    return "\n".join([HEAD.format(count=len(problems), gpus=gpus, taken=taken, files=files), *lines, ""])


HEAD = """\
# Written by `python bench/choice_traits.py`.

[cut_rows_traits]
unit = "1"
means = "Factors on the predicted cycles, by a schedule's traits, where rows begin within L2 lines; others are 1."
how = "fitted"
source = "a regression over {count} problems"
gpu = "{gpus}"
taken = {taken}
file = "{files}"

[cut_rows_traits.value]"""


def loss(rows: Sequence[float]) -> str:
    return f"{math.expm1(statistics.fmean(rows)):.2%}"


@app.command()
def main() -> None:
    problems = list(timed())
    factors = fitted(problems)
    random.Random(1).shuffle(problems)
    parts = [problems[i::PARTS] for i in range(PARTS)]
    others = [fitted([each for part in parts if part is not last for each in part]) for last in parts]
    table = Table("GPU", "problems", "schedules", "loss without", "with", "fitted to the others")
    for gpu in dict.fromkeys(each.gpu for each in problems):
        mine = [each for each in problems if each.gpu == gpu]
        held_out = [lost(each, other) for part, other in zip(parts, others) for each in part if each.gpu == gpu]
        losses = ([lost(each, {}) for each in mine], [lost(each, factors) for each in mine], held_out)
        table.add_row(gpu, str(len(mine)), str(sum(len(each.traits) for each in mine)), *map(loss, losses))
    Console(width=100).print(table)
    write_whole(UNALIGNED_ROWS, as_data(problems, factors, datetime.date.today()).encode())


if __name__ == "__main__":
    script(app)
