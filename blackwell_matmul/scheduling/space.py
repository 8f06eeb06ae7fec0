"""The autotune space of all rungs, and the choice of a schedule that is not pinned.

A rung gets the part of `SPACE` that its knobs span (`BlackwellMatmulV1.knobs`), which follow from its features.
"""

from __future__ import annotations

import dataclasses
import heapq
import itertools
import math
from bisect import bisect_left
from collections.abc import Hashable, Iterator, Mapping, Sequence
from functools import cache, lru_cache
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import Any, Protocol

from blackwell_matmul.base.errors import InputError
from blackwell_matmul.base.processes import uncollected
from blackwell_matmul.base.validation import integer, plain_text, shown
from blackwell_matmul.hardware.gpus import Gpu, with_gpus
from blackwell_matmul.problem.problem import C_BYTES, INT32_MAX, KNOBS, Problem, Schedule, as_pins, features_of
from blackwell_matmul.scheduling.cost_model import MANY_K_TILES, SHALLOW_STAGES, least_cycles, predicted_cycles
from blackwell_matmul.scheduling.mma import NARROW, spec_of, tile_config
from blackwell_matmul.scheduling.rules import (
    MAX_CLUSTER_CTAS,
    PROBLEM_RULES,
    SAME_BANKS_BYTES,
    SHARE_ROWS,
    broken,
    fits,
    has_plain_strips,
    require,
    why_no_mma,
    why_not,
)
from blackwell_matmul.scheduling.tile_config import (
    SPACE_COLUMNS,
    SPACE_LEAST_ROWS,
    SPACE_ROW_ELEMENTS,
    SWIZZLE_BYTES,
    TileConfig,
    ceil_div,
)

SPACE: Mapping[str, tuple[int, ...]] = MappingProxyType({name: knob.values for name, knob in KNOBS.items()})
"""Every knob with its values. Not every combination fits every GPU: `why_not` has the reasons."""


class HasKnobs(Protocol):
    """A rung's class; classes of this package also have `features` and `mma`."""

    __name__: str
    knobs: Sequence[str]


Rung = type[HasKnobs] | Sequence[str]
"""A rung's class, or the names of knobs."""

Row = Mapping[str, int]
"""Values of some or all knobs."""


def knobs_of(features: Sequence[str], mma: str) -> tuple[str, ...]:
    """Return the knobs of a rung with these features."""
    return tuple(name for name, knob in KNOBS.items() if knob.feature in ("", *features) and knob.mma in ("", mma))


def projection(rung: Rung) -> tuple[Schedule, ...]:
    """Return the part of `SPACE` that a rung (or a sequence of knob names) can choose from, each schedule once, in
    order.

    It leaves out schedules that no problem and no GPU could run: tiles that the rung's MMA does not compute, and strips
    that do not fill a tile. Split tiles are few and have one order, as their order makes no difference.
    """
    return _projection(_knobs(rung), *_kind(rung))


def _kind(rung: Rung) -> tuple[str, tuple[str, ...] | None]:
    """Return the mma and the features of a rung, as its schedules have them."""
    blank = Schedule(mma=getattr(rung, "mma", "tcgen05"), features=getattr(rung, "features", None))
    return blank.mma, blank.features


@cache
@uncollected()
def _projection(knobs: tuple[str, ...], mma: str, features: tuple[str, ...] | None) -> tuple[Schedule, ...]:
    """Return the part of the space with these knobs, in order.

    Knobs are turned a few at a time: of the 275,788,800 combinations of `hopper` most are never made.
    """
    made_of, names = features or features_of(knobs), tuple(dict.fromkeys(knobs))
    spec = spec_of(mma, made_of)
    rest = [name for name in names if name not in (*_ASKED_BY_MMA, *_ASKED_BY_STRIPS, *_ASKED_BY_CLUSTER)]
    rows = [row for row in _with_each(_ASKED_BY_MMA, names, [{}]) if spec.in_space(row, made_of)]
    plain = has_plain_strips(spec, made_of)
    rows = [row for row in _with_each(_ASKED_BY_STRIPS, names, rows) if _has_strips(row, plain)]
    rows = [row for row in _with_each(_ASKED_BY_CLUSTER, names, rows) if _fills_its_cluster(row)]
    rows = [*_with_each(rest, names, rows)]
    if names:
        rows.sort(key=itemgetter(*names))
    blank = Schedule(**{name: SPACE[name][0] for name in names}, mma=mma, features=features)
    return tuple(blank.with_known(row) for row in rows)


_ASKED_BY_MMA = ("block_m", "block_n", "block_k", "consumers", "cluster_m", "swap_ab")
"""Knobs that `MmaSpec.in_space` reads."""

_ASKED_BY_STRIPS = ("e_block_n",)
"""Further knobs that `_has_strips` reads."""

_ASKED_BY_CLUSTER = ("group_m", "cluster_n", "split_k", "neighbours")
"""Knobs that `_fills_its_cluster` reads in addition to the cluster's."""


def _with_each(turned: Sequence[str], knobs: Sequence[str], rows: Sequence[Row]) -> Iterator[Row]:
    """Yield each row with all combinations of the knobs in `turned` that have one purpose."""
    names = [name for name in knobs if name in turned]
    combinations = [dict(zip(names, values)) for values in itertools.product(*(SPACE[name] for name in names))]
    combinations = [values for values in combinations if _has_one_purpose(values)]
    return ({**row, **values} for row in rows for values in combinations)


def _has_one_purpose(row: Row) -> bool:
    """Return True if the row does at most one of these: split a tile, share A, order CTAs without clusters."""
    return (row.get("split_k", 1) > 1) + (row.get("cluster_n", 1) > 1) + (row.get("neighbours") == 1) <= 1


def _has_strips(row: Row, plain: bool) -> bool:
    """Return True if strips fill the tile. Without a swizzle one strip does, and C transposed has one width of
    strips."""
    columns, strip = row.get("block_n", 0), row.get("e_block_n", 1)
    if row.get("swap_ab") and "e_block_n" in row:
        return strip == _transposed_strip(columns, row["consumers"])
    if strip * C_BYTES in SWIZZLE_BYTES or "e_block_n" not in row:
        return columns % strip == 0
    return plain and columns == strip and columns * C_BYTES % SAME_BANKS_BYTES != 0


def _transposed_strip(columns: int, consumers: int) -> int:
    """Return the widest strip within the limit; the whole tile if 8 columns are all that divides it."""
    widest = TRANSPOSED_STRIP if consumers <= 2 else TRANSPOSED_STRIP_OF_THREE
    return max((strip for strip in SPACE["e_block_n"] if strip <= widest and columns % strip == 0), default=columns)


TRANSPOSED_STRIP, TRANSPOSED_STRIP_OF_THREE = 104, 56
"""Most rows of C in a strip of C transposed, for up to two warpgroups and for three. Shared memory holds two strips of
each; wider ones could cost a stage (h100_swapped.json)."""


def _fills_its_cluster(row: Row) -> bool:
    """Return True if each CTA of the cluster has a strip and a share of B, and whether the cluster and the order are
    useful.

    Orders of few or small tiles make no difference, so one is left. Small tiles also go along rows of tiles, where
    neighbours share A (h200_columns.json). CTAs in order, three warpgroups, clusters of four,
    clusters that share A and clusters of C transposed have one order. These, and C transposed, are not split. 4xN
    clusters are excluded: swap_ab covers the same shapes.
    """
    split_k, cluster_m, cluster_n = (row.get(name, 1) for name in ("split_k", "cluster_m", "cluster_n"))
    in_order, swapped = row.get("neighbours") == 1, row.get("swap_ab")
    if split_k * cluster_m * cluster_n > MAX_CLUSTER_CTAS:
        return False
    columns, order, last_order = row.get("block_n", 0), row.get("group_m"), SPACE["group_m"][-1]
    large = row.get("block_m", SPACE_LEAST_ROWS) >= SPACE_LEAST_ROWS and columns >= SPACE_COLUMNS[0]
    if in_order:
        wanted = SQUARE_GROUP if columns <= SQUARE_COLUMNS else last_order
        tells = cluster_m == 1 and large and order == wanted
    elif cluster_n > 1:
        deep = row["block_k"] == SPACE_ROW_ELEMENTS or row["consumers"] > 2
        tells = cluster_m <= 2 and large and order == last_order and deep
    elif cluster_m > 2 or (cluster_m > 1 and swapped) or row.get("consumers", 1) > 2:
        tells = split_k == 1 and order == last_order and row["block_k"] >= SPACE_ROW_ELEMENTS
    else:
        along_rows = order == 1 and row.get("neighbours") == 2 and cluster_m == 1 and not swapped
        tells = (split_k == 1 and (large or along_rows)) or order in (None, last_order)
    filled = columns // row.get("e_block_n", 1) >= split_k and columns // SHARE_ROWS % cluster_m == 0
    return tells and filled and not (split_k > 1 and swapped and "neighbours" in row)


def _knobs(rung: Rung) -> tuple[str, ...]:
    names = getattr(rung, "knobs", None) if isinstance(rung, type) else rung
    if not isinstance(names, (tuple, list)):
        raise InputError(f"rung is {shown(rung)}; it must be a class with knobs of the space, or their names.")
    for name in names:
        if plain_text(name) not in SPACE:
            raise InputError(f"knob {shown(name)} is not in the space; its knobs are {', '.join(SPACE)}.")
    return tuple(map(str.__str__, names))


# --- the choice


def choose(rung: Rung, problem: Problem, gpu: Gpu, pins: Mapping[str, object] | None = None) -> Schedule:
    """Return the best schedule for a problem, of all schedules or of those that match `pins`.

    The best has the fewest predicted cycles (`cost_model.predicted_cycles`) of all that can run; of equals, the
    largest tile. InputError if no schedule matches `pins`.
    """
    require(problem=(problem, Problem), gpu=(gpu, Gpu))
    pinned = as_pins(pins)
    found = matching(rung, pinned)
    of_pins = _Found((_knobs(rung), _kind(rung), *pinned.items()), found)
    chosen = _first_that_runs(of_pins, _of_many_m(problem), gpu) or _first_that_runs(of_pins, problem, gpu)
    if chosen is None:
        raise InputError(_nothing_runs(rung, found, problem, gpu))
    return chosen


STEPS_OF_M = {16: 1, 1024: 8, 2048: 16, 4096: 32, INT32_MAX - 64: 64}
"""Step of M, up to each number of rows: all M of a step get the schedule of its largest. Prompts of any length then
need few choices. Too large a step could cost a column of tiles of C transposed (h100_cut_rows.json)."""


def _of_many_m(problem: Problem) -> Problem:
    """Return the problem with M rounded up to its step. With an M-major A, M stays, as TMA's alignment depends on
    it."""
    if problem.form.a_major == "m" or problem.m > max(STEPS_OF_M):
        return problem
    step = next(step for most, step in STEPS_OF_M.items() if problem.m <= most)
    return dataclasses.replace(problem, m=ceil_div(problem.m, step) * step)


CHOICES_KEPT = 128
"""Maximum number of choices that a process caches. A choice takes a walk through thousands of schedules."""


@dataclasses.dataclass(frozen=True)
class _Found:
    """Result of `matching`, with the inputs that determine it as its key: knobs, mma, features and pins."""

    origin: Hashable
    schedules: Sequence[Schedule] = dataclasses.field(compare=False)


@lru_cache(CHOICES_KEPT)
@uncollected()
def _first_that_runs(found: _Found, problem: Problem, gpu: Gpu) -> Schedule | None:
    if broken(PROBLEM_RULES, found.schedules[0], problem, gpu):
        return None  # whichever it is
    kinds = _kinds(found, _Held((problem.element_bits, problem.format), problem.c_bytes, problem.form, problem), gpu)
    in_turn = _by_preference([[*_contenders(kind, problem, gpu)] for kind in kinds], problem, gpu)
    return next((schedule for schedule in in_turn if not why_not(schedule, problem, gpu)), None)


def _by_preference(kinds: Sequence[Sequence[Schedule]], problem: Problem, gpu: Gpu) -> Iterator[Schedule]:
    """Yield the preferred schedules first. kinds: groups that differ in stages and group_m alone, most stages first.

    More stages lower the bound, so the bound of a group's first schedule holds for the group. A schedule gets its own
    bound when the caller reaches its group, and is predicted when the caller reaches that bound.
    """
    waiting = [(_certain(tile_config(kind[0], problem, gpu)), (i, -1)) for i, kind in enumerate(kinds) if kind]
    heapq.heapify(waiting)
    while waiting:
        key, (i, j) = heapq.heappop(waiting)
        if j < 0:
            for place, schedule in enumerate(kinds[i]):
                heapq.heappush(waiting, (_certain(tile_config(schedule, problem, gpu)), (i, place)))
        elif len(key) > 2:
            yield kinds[i][j]
        else:
            heapq.heappush(waiting, (preference(kinds[i][j], tile_config(kinds[i][j], problem, gpu)), (i, j)))


def _certain(tile: TileConfig) -> tuple[int, ...]:
    """Return a lower bound of a preference. Wasteful schedules are not estimated, because callers seldom reach them."""
    wasteful = _is_wasteful(tile)
    return (wasteful, 0 if wasteful else _log_cycles(least_cycles(tile)))


_all_but_ring_and_order = attrgetter(*(name for name in KNOBS if name not in ("stages", "group_m")))


@dataclasses.dataclass(frozen=True)
class _Held:
    """Problem data that determine a CTA's shared memory, whatever the problem's size."""

    element: Hashable
    c_bytes: int
    form: Hashable
    problem: Problem = dataclasses.field(compare=False)


@lru_cache(CHOICES_KEPT)
def _groups(found: _Found) -> tuple[list[Schedule], ...]:
    """Return groups of schedules that differ only in stages and group_m, most stages first."""
    groups: dict[Any, list[Schedule]] = {}
    for schedule in sorted(found.schedules, key=_stages, reverse=True):
        groups.setdefault(_all_but_ring_and_order(schedule), []).append(schedule)
    return tuple(groups.values())


@lru_cache(CHOICES_KEPT)
def _kinds(found: _Found, held: _Held, gpu: Gpu) -> tuple[tuple[Schedule, ...], ...]:
    """Return the schedules of each group that fit shared memory; one schedule remains if none fits."""

    def fitting(kind: list[Schedule]) -> tuple[Schedule, ...]:
        first = bisect_left(kind, True, key=lambda each: fits(tile_config(each, held.problem, gpu)))
        return tuple(kind[first:] or kind[-1:])

    return tuple(map(fitting, _groups(found)))


def _stages(schedule: Schedule) -> int:
    return schedule.stages or 1


def _contenders(kind: Sequence[Schedule], problem: Problem, gpu: Gpu) -> Iterator[Schedule]:
    """Yield the schedules of a group that may be preferred. Orders with more rows than there are tiles are equal: the
    largest stays. If a CTA has its SM for itself, fewer stages than `_useful_stages` are never better."""
    tile = tile_config(kind[-1], problem, gpu)
    rows, last_order = ceil_div(tile.problem.m, tile.block_m), max(each.group_m or 1 for each in kind)
    enough = _useful_stages(tile) if "persistent" in tile.features else 1
    most = _stages(kind[0])
    for each in kind:
        order, stages = each.group_m or 1, _stages(each)
        if (order < rows or order == last_order) and (stages == most or enough <= stages < most):
            yield each


RESOLUTION = 0.01
"""Relative difference of predicted cycles below which schedules count as equal: predictions are no better."""


N_MAJOR_GROUP = 8
"""Rows of tiles in a group, for a large product with an N-major B on an H100 (h100_tune.json)."""

SQUARE_GROUP, SQUARE_COLUMNS = 4, 176
"""Rows of tiles in a group that 16 SMs of a GPC share best, and the widest tile for which such groups pay
(h100_orders.json, h100_orders_heldout.json)."""


def preference(schedule: Schedule, tile: TileConfig, cycles: float | None = None) -> tuple[int, ...]:
    """Return a sort key, best first: fewest cycles, then C not transposed, few large tiles, wide strips, stages that
    k-tiles fill, large groups, and small clusters.

    Tiles of fewer rows than the MMA multiplies come last, except for problems of so few rows. cycles: as predicted;
    None predicts them.
    """
    largest = (
        *(tile.block_m, tile.block_n, tile.block_k, schedule.e_block_n or 0),
        *(min(tile.stages, _useful_stages(tile)), -tile.stages),
        *(_order(tile), _cluster(tile), -tile.split_k, _clusters(tile)),
    )
    log_cycles = _log_cycles(predicted_cycles(tile) if cycles is None else cycles)
    return (_is_wasteful(tile), log_cycles, tile.swap_ab, *(-size for size in largest))


def _log_cycles(cycles: float) -> int:
    return round(math.log(cycles) / RESOLUTION)


def counted_alike(cycles: float) -> float:
    """Return cycles rounded so that nearly equal predictions count as equal."""
    return math.exp(RESOLUTION * _log_cycles(cycles))


def _order(tile: TileConfig) -> int:
    """Return the preference of a raster order among equal tiles; the group size nearest to the best known one comes
    first."""
    rows, wanted = ceil_div(tile.problem.m, tile.block_m), SPACE["group_m"][-1]
    if tile.problem.form.b_major == "n":
        wanted = N_MAJOR_GROUP
    elif tile.gpu.arch == "sm_90a" and tile.block_n <= SQUARE_COLUMNS and tile.cluster_m * tile.split_k == 1:
        wanted = SQUARE_GROUP
    return -abs(min(tile.group_m, rows) - min(wanted, rows))


def _cluster(tile: TileConfig) -> int:
    """Return a sort key of the cluster among equals: single CTAs first, but pairs for many rows of the largest tiles.
    Pairs halve the L2 reads of B (h100_large.json, h200_tiles_wide.json)."""
    many = ceil_div(tile.problem.m, tile.block_m) >= SPACE["group_m"][-1]
    return -abs(tile.cluster_m - (2 if tile.is_largest and many else 1))


def _clusters(tile: TileConfig) -> int:
    """Return the preference for clusters among equals; not if all rows of tiles fit one group (h100_in_order.json)."""
    return tile.neighbours if ceil_div(tile.problem.m, tile.block_m) > SQUARE_GROUP else -tile.neighbours


def _useful_stages(tile: TileConfig) -> int:
    """Return the number of stages that k-tiles fill, or that pay.

    The ring of a persistent CTA with more tiles reaches half into the next tile, and no further
    (h100_bmm_stages.json). With a short K it reaches into several tiles (h200_short_k.json).
    """
    more_to_come = "persistent" in tile.features and tile.ctas > tile.gpu.sm_count
    if more_to_come and tile.asked.k <= SHORT_K:
        return SPACE["stages"][-1]
    if more_to_come:
        return ceil_div(tile.k_tiles * 3, 2)
    return min(tile.k_tiles, SHALLOW_STAGES) if tile.k_tiles < MANY_K_TILES else tile.k_tiles


def _is_wasteful(tile: TileConfig) -> bool:
    """Return True if a tile has few rows for a problem of more, or a k-tile in several boxes that does not pay, or is
    not `SHORT_K_TILE` where K is short. Two boxes halve the waits and the stages, which pays for narrow tiles
    (h200_tiles_wide.json). Wide tiles of half the MMA's rows load fewer rows of zeros (h200_halves.json)."""
    halves = 2 * tile.cta_m == tile.mma_m > tile.problem.m and tile.block_n >= tile.mma_m
    few_rows = tile.cta_m < tile.mma_m and tile.problem.m > tile.block_m and not halves
    narrow = tile.consumers == tile.cluster_m == 1 and tile.block_n <= NARROW
    return few_rows or (tile.row_bytes > SWIZZLE_BYTES[0] and not narrow) or _is_slow_for_short_k(tile)


SHORT_K, SHORT_K_ROUNDS, SHORT_K_TILE = 128, 8, (128, 128, 64, 2)
"""Limits of Hopper products that are bound by storing C: largest K, and fewest tiles of an SM. Their tile: block_m,
block_n, e_block_n and neighbours (h200_short_k.json). The closed form ranks such tiles badly."""


def _is_slow_for_short_k(tile: TileConfig) -> bool:
    if "any_size" not in tile.features or tile.asked.k > SHORT_K:
        return False
    c = tile.asked.batches * tile.asked.m * tile.asked.n
    short = c >= SHORT_K_ROUNDS * tile.gpu.sm_count * math.prod(SHORT_K_TILE[:2])
    return short and (tile.block_m, tile.block_n, tile.e_block_n, tile.neighbours) != SHORT_K_TILE


def matching(rung: Rung, pins: Mapping[str, object]) -> list[Schedule]:
    """Return the schedules with the pinned values; raise InputError for a knob or a value that does not exist."""
    knobs, kind, wanted = _knobs(rung), _kind(rung), {}
    for name, value in pins.items():
        if name not in knobs:
            raise InputError(f"{_label(rung)} has no knob {shown(name)}; its knobs are {', '.join(knobs)}.")
        offered = _offered(name, knobs, *kind)
        wanted[name] = integer(value, 0, INT32_MAX)
        if wanted[name] not in offered:
            can = ", ".join(map(str, offered))
            raise InputError(f"{name} = {shown(value)} is outside of the space; {name} can be {can}.")
    found = list(_with_values(tuple(wanted.items()), knobs, *kind))
    return found or _with_pins(rung, wanted)


@cache
def _offered(name: str, *space: Any) -> tuple[int, ...]:
    """Return the values of a knob in a projection."""
    return tuple(sorted({getattr(schedule, name) for schedule in _projection(*space)}))


@lru_cache(CHOICES_KEPT)
def _with_values(wanted: tuple[tuple[str, int | None], ...], *space: Any) -> tuple[Schedule, ...]:
    """Return the schedules of a projection with these values; cached, as a choice and its build request the same."""
    return tuple(each for each in _projection(*space) if all(getattr(each, name) == value for name, value in wanted))


def _with_pins(rung: Rung, pins: Mapping[str, Any]) -> list[Schedule]:
    """Return the schedules that match most pins, with all pins set; none of the projection has all of them. They can
    run, or `why_not` has a reason."""

    def has(each: Schedule) -> int:
        return sum(getattr(each, name) == value for name, value in pins.items())

    listed = projection(rung) or [Schedule(mma=_kind(rung)[0], features=_kind(rung)[1])]
    most = max(map(has, listed))
    return list(dict.fromkeys(each.with_known(pins) for each in listed if has(each) == most))


def _nothing_runs(rung: Rung, matching: list[Schedule], problem: Problem, gpu: Gpu) -> str:
    """Return why no schedule runs: the reasons that all schedules share, else the reasons of the schedule with the
    fewest."""
    reasons = broken(PROBLEM_RULES, matching[0], problem, gpu) if len(matching) > 1 else []
    why = "; ".join(reason.rstrip(".") for reason in reasons or _common(matching, problem, gpu)) + "."
    if why_no_mma(spec_of(matching[0].mma, matching[0].kernel_features), gpu):
        return f"{_label(rung)} cannot run: {why}"
    if len(matching) == 1:
        return f"{_label(rung)} with {matching[0]} cannot run {problem} on {with_gpus(gpu.arch)}: {why}"
    return f"None of {len(matching)} schedules of {_label(rung)} can run {problem} on {with_gpus(gpu.arch)}: {why}"


def _common(matching: list[Schedule], problem: Problem, gpu: Gpu) -> list[str]:
    """Return the reasons that all schedules share; if there are none, the reasons of the schedule with the fewest."""
    listed = [why_not(schedule, problem, gpu) for schedule in matching]
    return [reason for reason in listed[0] if all(reason in other for other in listed)] or min(listed, key=len)


def _label(rung: Rung) -> str:
    return rung.__name__ if isinstance(rung, type) else "this kernel"
