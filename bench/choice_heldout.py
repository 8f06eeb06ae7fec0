"""What would the choice lose on problems to which nobody fitted it? No GPU needed; five minutes on a core.

    python bench/choice_heldout.py                  # the tiles that an H200 has measured
    python bench/choice_heldout.py more.json        # with more of them, by bench/tiles.py

The constants of the cost model that were fitted to measured tiles (FITTED) are fitted again, on a grid: to a half of
the problems, drawn at random and scored on the other one, and to all but those of one (n, k), scored on these. Loss:
how much longer the first tile of a list takes than its fastest, in the geometric mean, and where it is most.
"""

from __future__ import annotations

import dataclasses
import itertools
import math
import random
import statistics
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated

import typer

from blackwell_matmul.scheduling import cost_model
from blackwell_matmul_studies.scripts import script
from choice import Row, measured

FILES = ("h200_chosen",)
FITTED: Mapping[str, tuple[float, ...]] = {
    "part_of_a": (0.5, 0.55, 0.6, 0.7),
    "drift_bytes": (2000 * 128, 4000 * 128, 8000 * 128),
    "neighbours_part": (1 / 62, 1 / 58, 1 / 54),
    "zero_row_cycles": (0.5, 1.0, 1.5, 2.0),
    "release_cycles": (500, 1000, 1500),
    "turn_cycles": (10, 20, 30),
}
HALVES = 50
Losses = list[float]
"""The logarithm of each list's loss."""

app = typer.Typer(add_completion=False, help=__doc__.splitlines()[0])


@app.command()
def main(more: Annotated[list[Path] | None, typer.Argument(help="Files of bench/tiles.py.")] = None) -> None:
    sources = [*FILES, *(str(file.resolve().with_suffix("")) for file in more or [])]
    lists = [(source, problem, times) for source in sources for problem, times in measured(source).items()]
    problems = [problem for _, problem, _ in lists]
    grid = [dict(zip(FITTED, values)) for values in itertools.product(*FITTED.values())]
    now = losses({name: getattr(cost_model.FIT, name) for name in FITTED}, lists)
    fits = [losses(constants, lists) for constants in grid]
    best = fitted(fits, range(len(lists)))
    print(f"{len(lists)} lists of {len(set(problems))} problems, {sum(len(times) for *_, times in lists)} tiles")
    print("as it is:", told(now))
    print("fitted to all:", told(fits[best]), grid[best])
    print("a half held out:", told(held_out(fits, halves(problems))))
    print("one (n, k) held out:", told(held_out(fits, weights(problems))))


def losses(constants: Mapping[str, float], lists: Sequence[tuple[str, str, dict[str, float]]]) -> Losses:
    """With these constants of the cost model, which stay."""
    cost_model.FIT = dataclasses.replace(cost_model.FIT, **constants)
    return [loss(*each) for each in lists]


def loss(source: str, problem: str, times: Mapping[str, float]) -> float:
    first = min(times, key=lambda name: cost_model.predicted_cycles(Row(source, problem, name).tile()))
    return math.log(times[first] / min(times.values()))


def fitted(fits: Sequence[Losses], where: Sequence[int]) -> int:
    """The fit that loses least there."""
    return min(range(len(fits)), key=lambda fit: statistics.mean(fits[fit][i] for i in where))


def held_out(fits: Sequence[Losses], parts: Sequence[set[int]]) -> Losses:
    """Of each part, with the fit to all the others."""
    everywhere = set(range(len(fits[0])))
    return [fits[fitted(fits, sorted(everywhere - part))][i] for part in parts for i in sorted(part)]


def halves(problems: Sequence[str]) -> list[set[int]]:
    """Both of each draw; the lists of one problem stay together."""
    dice, names, found = random.Random(1), sorted(set(problems)), []
    for _ in range(HALVES):
        half = set(dice.sample(names, len(names) // 2))
        one = {i for i, problem in enumerate(problems) if problem in half}
        found += [one, set(range(len(problems))) - one]
    return found


def weights(problems: Sequence[str]) -> list[set[int]]:
    of = [problem.split("x", 1)[1] for problem in problems]
    return [{i for i, each in enumerate(of) if each == pair} for pair in sorted(set(of))]


def told(found: Losses) -> str:
    return f"{math.expm1(statistics.mean(found)):.2%}, at most {math.expm1(max(found)):.1%}"


if __name__ == "__main__":
    script(app)
