"""Neighbours of a schedule: one knob is changed, with the knobs that must follow."""

from __future__ import annotations

import dataclasses
import itertools
import math
from collections.abc import Iterator, Mapping
from typing import Any

from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.problem.problem import Problem, Schedule
from blackwell_matmul.scheduling.cost_model import predicted_cycles
from blackwell_matmul.scheduling.mma import spec_of, tile_config
from blackwell_matmul.scheduling.rules import can_run
from blackwell_matmul.scheduling.space import SPACE

TILE = ("block_m", "block_n")
CHANGES: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = (
    (TILE, ()),
    (("consumers",), TILE),  # a tile has the rows that its warpgroups multiply
    (("swap_ab",), (*TILE, "consumers")),
    *(((name,), ()) for name in ("split_k", "cluster_m", "cluster_n", "block_k", "e_block_n", "stages", "group_m")),
)
"""Knobs to change, each with the knobs that may change with it."""

SLOWER = 1.05
"""Factor on the predicted cycles up to which a schedule is worth a try, given the accuracy of the prediction."""

MOST, MOST_TILES = 3, 2
"""Maximum numbers of changes and of tiles that are tried until one is faster; each costs a launch."""


def knobs_beside(has: Mapping[str, int]) -> list[list[dict[str, int]]]:
    """Return, for each change, other knob values for a user's kernel with knobs of the same names.

    A knob is doubled or halved; a ring of k-tiles keeps its length.
    """
    found = [
        [{name: value} for value in _doubled_or_halved(has[name])] for name in SPACE if name in has and name not in RING
    ]
    if all(name in has for name in RING):
        pairs = itertools.product(*(_doubled_or_halved(has[name]) for name in RING))
        found.append(
            [dict(zip(RING, each)) for each in pairs if math.prod(each) == math.prod(has[name] for name in RING)]
        )
    return [some for some in found if some]


RING = ("block_k", "stages")


def _doubled_or_halved(value: int) -> list[int]:
    return [] if value == 0 else [2 * value, *[value // 2] * (value % 2 == 0)]


def neighbours(schedule: Schedule, problem: Problem, gpu: Gpu) -> list[list[Schedule]]:
    """Return, for each change, the schedules that can run, fewest predicted cycles first."""

    def cycles(each: Schedule) -> int:
        return predicted_cycles(tile_config(each, problem, gpu))

    own, found = cycles(schedule), []
    for changed, besides in CHANGES:
        rows = _rows(dict(schedule), changed, besides)
        able = {each: cycles(each) for row in rows for each in _following(schedule, row, problem, gpu)}
        worth = sorted((each for each in able if own != able[each] <= SLOWER * own), key=able.__getitem__)
        found += [worth[: MOST_TILES if changed == TILE else 1]] if worth else []
    return sorted(found, key=lambda some: cycles(some[0]))[:MOST]


def _rows(has: Mapping[str, int], changed: tuple[str, ...], besides: tuple[str, ...]) -> Iterator[dict[str, int]]:
    """Yield each changed row. Stages only decrease, which may let more CTAs share an SM."""
    names = [name for name in (*changed, *besides) if name in has]
    offered = {**SPACE, "stages": [each for each in SPACE["stages"] if each < has.get("stages", 0)]}
    for values in itertools.product(*(offered[name] for name in names)):
        row = dict(zip(names, values, strict=True))
        if any(row[name] != has[name] for name in changed if name in has):
            yield row


def _following(schedule: Schedule, row: dict[str, int], problem: Problem, gpu: Gpu) -> Iterator[Schedule]:
    """Yield the first schedule that can run, with strips that fill its tile, and with as many stages as before or as
    many bytes of stages."""
    has = {**dict(schedule), **row}
    features = sorted(schedule.kernel_features)
    if not spec_of(schedule.mma, features).in_space(has, features):
        return
    names = [name for name in ("e_block_n", "stages") if name in has and name not in row]
    most = {name: [has[name]] for name in names}
    if "stages" in names:
        most["stages"] += [has["stages"] * _stage_size(dict(schedule)) // _stage_size(has)]
    for starts in itertools.product(*most.values()):
        values = itertools.product(*map(_up_to, names, starts))
        followed: Iterator[dict[str, Any]] = ({**row, **dict(zip(names, each, strict=True))} for each in values)
        others = (dataclasses.replace(schedule, **each) for each in followed)
        yield from itertools.islice((each for each in others if can_run(each, problem, gpu)), 1)


def _stage_size(row: Mapping[str, int]) -> int:
    return (row["block_m"] + row["block_n"]) * row["block_k"]


def _up_to(name: str, most: int) -> list[int]:
    """Return the knob's values up to `most`, the largest first."""
    return [each for each in reversed(SPACE[name]) if each <= most]
