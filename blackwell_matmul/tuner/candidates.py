"""Candidate schedules in the order of trial.

A rung's schedules are ordered by predicted cycles (`scheduling.cost_model`). Each further schedule of the same tile
gets a penalty, so that a short budget tries several tiles. Schedules of one tile often differ by effects that the
prediction omits.

The order for a user's script is a heuristic. The busiest SM computes `waves` tiles. A step along k costs its products,
block_m * block_n, and its loads, 64 * (block_m + block_n). The factor is a Hopper SM's: it adds 2048 products of 16-bit
numbers in the cycle in which it loads 64 bytes from the L2.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.one_line import spelled_out
from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.harness.calls.inputs import unfilled
from blackwell_matmul.harness.calls.kernel_call import require_form
from blackwell_matmul.harness.calls.user_kernel import UserKernel, importable
from blackwell_matmul.problem.problem import Problem
from blackwell_matmul.scheduling import space
from blackwell_matmul.scheduling.cost_model import predicted_cycles
from blackwell_matmul.scheduling.mma import tile_config
from blackwell_matmul.scheduling.rules import why_not

RANKING_RULE = "in the order of predicted cycles, several tiles among the first; what a call would choose comes first"
LOAD_COST = 64
SAME_TILE_PENALTY = 0.1
"""Penalty, as a fraction of the cost, for each further schedule of a tile."""

MATMUL_PARAMETERS = ("m", "n", "k", "a", "b", "c")
"""Parameters of a matmul in this order; a script may name them differently."""

Pins = Mapping[str, Any]
T = TypeVar("T")


@dataclass(frozen=True)
class Candidates:
    """Schedules to try. ordered: the likely fastest first. refused: number of schedules that cannot run, by reason."""

    ordered: tuple[Pins, ...]
    refused: Mapping[str, int]

    @property
    def total(self) -> int:
        return len(self.ordered) + sum(self.refused.values())


def candidates(kernel: UserKernel, problem: Problem, gpu: Gpu) -> Candidates:
    """Return the candidates: the schedule space for a rung, tilus's autotune space for other scripts. Raise InputError
    if no schedule can run."""
    require_form(kernel, problem.form, problem.batches)
    if kernel.is_of_the_space:
        return _of_the_space(kernel.script_cls, problem, gpu)
    if len(kernel.parameters) != len(MATMUL_PARAMETERS):
        what = f"{kernel.name} is called with ({', '.join(kernel.parameters)}), and tune takes matmuls alone"
        raise InputError(
            f"{what}, called with ({', '.join(MATMUL_PARAMETERS)}); predict takes any kernel, a schedule at a time."
        )
    rows = [_plain(row) for row in _rows(kernel, problem, gpu)]
    return Candidates(tuple(sorted(rows, key=lambda row: cost(row, problem, gpu))), {})


def _of_the_space(script_cls: Any, problem: Problem, gpu: Gpu) -> Candidates:
    able, refused = [], Counter[str]()
    for schedule in space.projection(script_cls):
        reasons = why_not(schedule, problem, gpu)
        if reasons:
            refused[reasons[0]] += 1
        else:
            able.append(schedule)
    if not able:
        space.choose(script_cls, problem, gpu)  # raises InputError with the reason
    tiles = {schedule: tile_config(schedule, problem, gpu) for schedule in able}
    cycles = {schedule: predicted_cycles(tile) for schedule, tile in tiles.items()}
    able.sort(key=lambda each: space.preference(each, tiles[each], cycles[each]))
    listed = interleaved_by_tile(able, vars, lambda each: space.counted_alike(cycles[each]))
    return Candidates(tuple(schedule.as_dict() for schedule in listed), dict(refused))


TILE_KNOBS = ("block_m", "block_n", "cluster_m", "cluster_n", "split_k", "neighbours", "swap_ab")


def interleaved_by_tile(ranked: Sequence[T], pins: Callable[[T], Pins], cost: Callable[[T], float]) -> list[T]:
    """Return ranked items by cost, with a penalty for each further schedule of the same tile."""
    seen, last, costs = Counter[tuple[Any, ...]](), dict[tuple[Any, ...], float](), []
    for row in ranked:
        tile = tuple(pins(row).get(name) for name in TILE_KNOBS)
        last[tile] = max(last.get(tile, 0.0), cost(row) * (1 + SAME_TILE_PENALTY * seen[tile]))
        costs.append(last[tile])
        seen[tile] += 1
    return [ranked[at] for at in sorted(range(len(ranked)), key=costs.__getitem__)]


def _rows(kernel: UserKernel, problem: Problem, gpu: Gpu) -> Sequence[Pins]:
    from blackwell_matmul.frontend import bind_all

    arguments = (problem.m, problem.n, problem.k, *unfilled(problem))
    with importable(kernel.folder):
        return [bound.init_kwargs for bound in bind_all(kernel.script_cls, arguments, target=gpu.arch)]


def _plain(row: Pins) -> dict[str, Any]:
    """Return the pins that are bool, int or str. Element types belong to the problem."""
    return {name: value for name, value in row.items() if isinstance(value, (bool, int, str))}


def cost(pins: Pins, problem: Problem, gpu: Gpu) -> tuple[int, ...]:
    """Return a sort key, the lowest first: estimated cost; then larger tiles, deeper steps along k, more stages."""
    m, n = (_tile(pins, f"block_{axis}") for axis in "mn")
    tiles = -(-problem.m // m) * -(-problem.n // n)
    waves = -(-tiles // gpu.sm_count)
    rest = (-_tile(pins, name) for name in ("block_k", "stages"))
    return (waves * (m * n + LOAD_COST * (m + n)), -m * n, *rest)


def _tile(pins: Pins, name: str) -> int:
    value = pins.get(name, 1)
    return value if isinstance(value, int) and value > 0 else 1


def spelled(pins: Pins) -> str:
    """Return the pins as the text of the option `--schedule`; raise InputError if a value has a comma."""
    if any("," in str(value) for value in pins.values()):
        raise InputError(f"{dict(pins)} cannot be written as a schedule: a value has a comma.")
    return spelled_out(pins)
