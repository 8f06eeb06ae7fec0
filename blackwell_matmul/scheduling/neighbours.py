"""The schedules beside one: each has one thing changed, and what has to follow it."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

from blackwell_matmul.gpus import Gpu
from blackwell_matmul.problem import Problem, Schedule
from blackwell_matmul.scheduling.cost_model import predicted_cycles
from blackwell_matmul.scheduling.mma import MMA_SPECS, tile_config
from blackwell_matmul.scheduling.rules import can_run
from blackwell_matmul.scheduling.space import SPACE

TILE = ("block_m", "block_n")
CHANGES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (TILE, ()),
    (("consumers",), TILE),  # a tile has the rows that its warpgroups multiply
    *(((name,), ()) for name in ("split_k", "cluster_m", "block_k", "e_block_n", "stages", "group_m")),
)
"""Knobs that are changed, and those that may go with them."""

SLOWER = 1.05
"""Of the predicted cycles, up to which a schedule is worth a try: the closed form is no better than that."""

MOST = 3
"""That are tried; each costs a launch."""


def neighbours(schedule: Schedule, problem: Problem, gpu: Gpu) -> list[Schedule]:
    """Of each change the one that can run with the fewest predicted cycles; these the fewest first."""

    def cycles(each: Schedule) -> int:
        return predicted_cycles(tile_config(each, problem, gpu))

    able = [
        [each for row in _rows(dict(schedule), *change) if (each := _following(schedule, row, problem, gpu))]
        for change in CHANGES
    ]
    best, own = sorted((min(some, key=cycles) for some in able if some), key=cycles), cycles(schedule)
    return [each for each in best if own != cycles(each) <= SLOWER * own][:MOST]


def _rows(has: Mapping[str, int], changed: tuple[str, ...], besides: tuple[str, ...]) -> Iterator[dict[str, int]]:
    """Stages are fewer, which may give a CTA more its room; how many more would do, a run of the same kernel tells."""
    names = [name for name in (*changed, *besides) if name in has]
    offered = {**SPACE, "stages": [each for each in SPACE["stages"] if each < has.get("stages", 0)]}
    for values in itertools.product(*(offered[name] for name in names)):
        row = dict(zip(names, values, strict=True))
        if any(row[name] != has[name] for name in changed if name in has):
            yield row


def _following(schedule: Schedule, row: dict[str, int], problem: Problem, gpu: Gpu) -> Schedule | None:
    """With strips that fill its tile, and with as many of its stages as there is room for."""
    has = {**dict(schedule), **row}
    if not MMA_SPECS[schedule.mma].in_space(has, sorted(schedule.kernel_features)):
        return None
    names = [name for name in ("e_block_n", "stages") if name in has and name not in row]
    for values in itertools.product(*(_up_to(has[name], name) for name in names)):
        changes: dict[str, Any] = {**row, **dict(zip(names, values, strict=True))}
        other = dataclasses.replace(schedule, **changes)
        if can_run(other, problem, gpu):
            return other
    return None


def _up_to(most: int, name: str) -> list[int]:
    return [most, *(each for each in reversed(SPACE[name]) if each < most)]
