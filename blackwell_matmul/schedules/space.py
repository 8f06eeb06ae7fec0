"""The one autotune space, and which schedule of it is taken when nobody says.

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
from blackwell_matmul.hardware.gpus import Gpu
from blackwell_matmul.problem.problem import C_BYTES, INT32_MAX, KNOBS, Problem, Schedule, as_pins, features_of
from blackwell_matmul.schedules.cost_model import least_cycles, predicted_cycles
from blackwell_matmul.schedules.mma import MMA_SPECS, NARROW, tile_config
from blackwell_matmul.schedules.rules import (
    MAX_CLUSTER_CTAS,
    SAME_BANKS_BYTES,
    SHARE_ROWS,
    fits,
    has_plain_strips,
    require,
    why_no_mma,
    why_not,
)
from blackwell_matmul.schedules.tile_config import (
    SPACE_COLUMNS,
    SPACE_LEAST_ROWS,
    SPACE_ROW_ELEMENTS,
    SWIZZLE_BYTES,
    TileConfig,
    ceil_div,
)

SPACE: Mapping[str, tuple[int, ...]] = MappingProxyType({name: knob.values for name, knob in KNOBS.items()})
"""Every knob with its values, once for all rungs. Not every combination fits into every GPU: ask `why_not`."""


class HasKnobs(Protocol):
    """What a rung's class offers here; `features` and `mma`, too, if it is one of ours."""

    __name__: str
    knobs: Sequence[str]


Rung = type[HasKnobs] | Sequence[str]
"""A rung's class, or the names of knobs."""

Row = Mapping[str, int]
"""Values of knobs, of all or some of them."""


def knobs_of(features: Sequence[str], mma: str) -> tuple[str, ...]:
    """The knobs of a rung with these features."""
    return tuple(name for name, knob in KNOBS.items() if knob.feature in ("", *features) and knob.mma in ("", mma))


def projection(rung: Rung) -> tuple[Schedule, ...]:
    """The part of `SPACE` that a rung (or a sequence of knob names) can choose from, each schedule once, in order.

    Without what no problem and no GPU could make run: tiles that the rung's mma does not compute, and strips that do
    not fill one. And a split tile is one of few: their order makes no difference, so they have one.
    """
    return _projection(_knobs(rung), *_kind(rung))


def _kind(rung: Rung) -> tuple[str, tuple[str, ...] | None]:
    """The mma and the features of a rung, as a schedule of it has them."""
    blank = Schedule(mma=getattr(rung, "mma", "tcgen05"), features=getattr(rung, "features", None))
    return blank.mma, blank.features


@cache
@uncollected()
def _projection(knobs: tuple[str, ...], mma: str, features: tuple[str, ...] | None) -> tuple[Schedule, ...]:
    """Knobs are turned a few at a time: of the 220,631,040 combinations that H7's have, most are left out before they
    are made."""
    spec, made_of, names = MMA_SPECS[mma], features or features_of(knobs), tuple(dict.fromkeys(knobs))
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
"""What `MmaSpec.in_space` asks for."""

_ASKED_BY_STRIPS = ("e_block_n",)
"""What `_has_strips` asks for besides."""

_ASKED_BY_CLUSTER = ("group_m", "cluster_n", "split_k", "neighbours")
"""What `_fills_its_cluster` asks for besides."""


def _with_each(turned: Sequence[str], knobs: Sequence[str], rows: Sequence[Row]) -> Iterator[Row]:
    """Each row with each combination of values of those knobs that are turned, and that has one purpose."""
    names = [name for name in knobs if name in turned]
    combinations = [dict(zip(names, values)) for values in itertools.product(*(SPACE[name] for name in names))]
    combinations = [values for values in combinations if _has_one_purpose(values)]
    return ({**row, **values} for row in rows for values in combinations)


def _has_one_purpose(row: Row) -> bool:
    """CTAs split a tile, or share A, or come in order without clusters."""
    return (row.get("split_k", 1) > 1) + (row.get("cluster_n", 1) > 1) + (row.get("neighbours") == 1) <= 1


def _has_strips(row: Row, plain: bool) -> bool:
    """Whether strips fill the tile; without a swizzle one does, and what is computed transposed has one way."""
    columns, strip = row.get("block_n", 0), row.get("e_block_n", 1)
    if row.get("swap_ab") and "e_block_n" in row:
        return strip == _transposed_strip(columns, row["consumers"])
    if strip * C_BYTES in SWIZZLE_BYTES or "e_block_n" not in row:
        return columns % strip == 0
    return plain and columns == strip and columns * C_BYTES % SAME_BANKS_BYTES != 0


def _transposed_strip(columns: int, consumers: int) -> int:
    """A few wide strips; one, where 8 columns are all that divides a tile."""
    widest = TRANSPOSED_STRIP if consumers <= 2 else TRANSPOSED_STRIP_OF_THREE
    return max((strip for strip in SPACE["e_block_n"] if strip <= widest and columns % strip == 0), default=columns)


TRANSPOSED_STRIP, TRANSPOSED_STRIP_OF_THREE = 104, 56
"""Rows of C in a strip of what is computed transposed, at most, by up to two warpgroups, and by three: shared memory
holds two for each. With fewer, wider strips a tile takes up to 2 % less, but not where they cost a stage
(h100_swapped.json)."""


def _fills_its_cluster(row: Row) -> bool:
    """Whether there is a strip for each CTA that computes the tile, a share of B for each that reads it, and the order
    of the tiles is one that tells: not where they are few, or small. CTAs come in one order alone without clusters, in
    clusters of four, or that share A, or with C transposed, and where three warpgroups multiply; and these are not
    split, nor is C transposed. Four above each other and several beside each other are what C transposed is in rows."""
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
        tells = cluster_m <= 2 and large and order == last_order and row["block_k"] == SPACE_ROW_ELEMENTS
    elif cluster_m > 2 or (cluster_m > 1 and swapped) or row.get("consumers", 1) > 2:
        tells = split_k == 1 and order == last_order and row["block_k"] >= SPACE_ROW_ELEMENTS
    else:
        tells = (split_k == 1 and large) or order in (None, last_order)
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
    """The schedule to use when nobody pins it, or the best of those that match `pins`: of those that can run, the one
    with the fewest predicted cycles (`cost_model.predicted_cycles`), and of those the largest tile.

    Pins that leave nothing raise InputError.
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
"""Up to each of these numbers of rows those of one step are chosen for alike, as for the most of them: tiles have 16
rows, 32, or a multiple of 64, and of C transposed any multiple of 8. Who serves prompts of any length chooses once for
8 of them, and for 64 where that makes no difference. A step too many can cost a column of tiles: chosen for 80 rows,
68x2640x2424 took 14.2 us, and 9.6 as chosen for 72 (h100_cut_rows.json)."""


def _of_many_m(problem: Problem) -> Problem:
    """Where A is contiguous along M, TMA asks for a multiple of 16 bytes of this very m."""
    if problem.form.a_major == "m" or problem.m > max(STEPS_OF_M):
        return problem
    step = next(step for most, step in STEPS_OF_M.items() if problem.m <= most)
    return dataclasses.replace(problem, m=ceil_div(problem.m, step) * step)


CHOICES_KEPT = 128
"""In this process; each is a walk through thousands of schedules."""


@dataclasses.dataclass(frozen=True)
class _Found:
    """What `matching` gives, known by what it follows from: knobs, mma, features and pins."""

    origin: Hashable
    schedules: Sequence[Schedule] = dataclasses.field(compare=False)


@lru_cache(CHOICES_KEPT)
@uncollected()
def _first_that_runs(found: _Found, problem: Problem, gpu: Gpu) -> Schedule | None:
    if why_no_mma(MMA_SPECS[found.schedules[0].mma], gpu):
        return None  # whichever it is
    kinds = _kinds(found, _Held(problem.element_bytes, problem.c_bytes, problem.form, problem), gpu)
    able = itertools.chain.from_iterable(_contenders(kind, problem, gpu) for kind in kinds)
    in_turn = _by_preference([(schedule, tile_config(schedule, problem, gpu)) for schedule in able])
    return next((schedule for schedule in in_turn if not why_not(schedule, problem, gpu)), None)


def _by_preference(some: Sequence[tuple[Schedule, TileConfig]]) -> Iterator[Schedule]:
    """The preferred ones first. What takes more cycles for certain than those that were asked for is not predicted."""
    waiting = [(_certain(tile), i) for i, (_, tile) in enumerate(some)]
    heapq.heapify(waiting)
    while waiting:
        key, i = heapq.heappop(waiting)
        if len(key) > 2:
            yield some[i][0]
        else:
            heapq.heappush(waiting, (preference(*some[i]), i))


def _certain(tile: TileConfig) -> tuple[int, ...]:
    """What a preference begins with, or less; of wasteful ones, which are seldom asked for, without a look at them."""
    wasteful = _is_wasteful(tile)
    return (wasteful, 0 if wasteful else _log_cycles(least_cycles(tile)))


_all_but_ring_and_order = attrgetter(*(name for name in KNOBS if name not in ("stages", "group_m")))


@dataclasses.dataclass(frozen=True)
class _Held:
    """What a CTA's shared memory holds of a problem, of whatever size."""

    element_bytes: int
    c_bytes: int
    form: Hashable
    problem: Problem = dataclasses.field(compare=False)


@lru_cache(CHOICES_KEPT)
def _kinds(found: _Found, held: _Held, gpu: Gpu) -> tuple[tuple[Schedule, ...], ...]:
    """Those that differ in stages and group_m alone together, most stages first. Of those that shared memory has no
    room for none runs: one of each kind is left."""
    kinds: dict[Any, list[Schedule]] = {}
    for schedule in sorted(found.schedules, key=_stages, reverse=True):
        kinds.setdefault(_all_but_ring_and_order(schedule), []).append(schedule)

    def fitting(kind: list[Schedule]) -> tuple[Schedule, ...]:
        first = bisect_left(kind, True, key=lambda each: fits(tile_config(each, held.problem, gpu)))
        return tuple(kind[first:] or kind[-1:])

    return tuple(map(fitting, kinds.values()))


def _stages(schedule: Schedule) -> int:
    return schedule.stages or 1


def _contenders(kind: Sequence[Schedule], problem: Problem, gpu: Gpu) -> Iterator[Schedule]:
    """Those of a kind to which none of the others is preferred for certain. Of two orders of more rows of tiles than
    there are, which are the same, the larger is. Where a CTA has its SM for itself more stages cost nothing, and are
    preferred as long as k-tiles fill them."""
    tile = tile_config(kind[-1], problem, gpu)
    rows, last_order = ceil_div(tile.problem.m, tile.block_m), max(each.group_m or 1 for each in kind)
    enough = _useful_stages(tile) if "persistent" in tile.features else 1
    most = _stages(kind[0])
    for each in kind:
        order, stages = each.group_m or 1, _stages(each)
        if (order < rows or order == last_order) and (stages == most or enough <= stages < most):
            yield each


RESOLUTION = 0.01
"""What is nearer than this, of the whole, counts as equal: predictions are not that good."""


N_MAJOR_GROUP = 8
"""Rows of tiles in a group that a large product takes 1 to 3 % less with than with 16 where lines of B follow each
other along N, on an H100: more columns of tiles are wanted at once (h100_tune.json)."""

SQUARE_GROUP, SQUARE_COLUMNS = 4, 176
"""Rows of tiles in a group that an H100's SMs share most with, 16 of which lie in a GPC, and the columns of tiles up to
which that pays: of 18 such problems H7 takes 24 % longer in groups of 16 for one, 9 and 12 for two, 11 % less for one,
and as long or up to 4 % longer for the others; wider tiles take up to 6 % less in groups of 16 (h100_orders.json). Of
66 others, drawn at random, it takes 2 % less to 40 % longer in groups of 16, 4.6 % in the geometric mean
(h100_orders_heldout.json)."""


def preference(schedule: Schedule, tile: TileConfig, cycles: float | None = None) -> tuple[int, ...]:
    """What to sort schedules by, best first; of equals those of C as it is come first, then few large tiles, then wide
    strips, stages that k-tiles can fill and large groups, and last small clusters. Tiles of fewer rows than the MMA
    multiplies are for problems of so few rows: of others nobody measured them. cycles: as predicted; None predicts
    them."""
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
    """The same for all cycles that count as equal."""
    return math.exp(RESOLUTION * _log_cycles(cycles))


def _order(tile: TileConfig) -> int:
    """Of equals the order of tiles with most of it is preferred: that whose groups are nearest to what was found
    best."""
    rows, wanted = ceil_div(tile.problem.m, tile.block_m), SPACE["group_m"][-1]
    if tile.problem.form.b_major == "n":
        wanted = N_MAJOR_GROUP
    elif tile.gpu.arch == "sm_90a" and tile.block_n <= SQUARE_COLUMNS and tile.cluster_m * tile.split_k == 1:
        wanted = SQUARE_GROUP
    return -abs(min(tile.group_m, rows) - min(wanted, rows))


def _cluster(tile: TileConfig) -> int:
    """Of equals small clusters are preferred, but with the largest tiles and many rows of them pairs, which take half
    of B out of the L2: 34 such problems take 1.2 % less on an H100, and 2 to 3 % less than alone with k-tiles of 128
    columns (h100_large.json); on an H200 as long, as far as they were measured (h200_tiles_wide.json)."""
    many = ceil_div(tile.problem.m, tile.block_m) >= SPACE["group_m"][-1]
    return -abs(tile.cluster_m - (2 if tile.is_largest and many else 1))


def _clusters(tile: TileConfig) -> int:
    """Of equals CTAs in clusters are preferred, but not where all rows of tiles are in one square: 17 such problems of
    512 rows take 1.6 % less without, in the mean (h100_in_order.json)."""
    return tile.neighbours if ceil_div(tile.problem.m, tile.block_m) > SQUARE_GROUP else -tile.neighbours


def _useful_stages(tile: TileConfig) -> int:
    """Those that k-tiles fill. Where a CTA has tiles to come a ring reaches half into the next one, and no further: of
    32 products of 4096x4096x128 on an H100 three stages are at 1.02 of cuBLAS, two at 0.98 and six at 0.91, and of 64
    of 2048x2048x64 two are the best (h100_bmm_stages.json)."""
    more_to_come = "persistent" in tile.features and tile.ctas > tile.gpu.sm_count
    return ceil_div(tile.k_tiles * 3, 2) if more_to_come else tile.k_tiles


def _is_wasteful(tile: TileConfig) -> bool:
    """Few rows for a problem of more; or a k-tile in several boxes. Half as many of twice the width are half as many
    waits, but a ring has room for half as many, too. That pays where the tile is narrow; others take up to 20 % longer
    on an H200 (h200_tiles_wide.json). The largest, which has time for two k-tiles, is as fast there, but not in
    clusters of two with k-tiles of one box: see `_cluster`."""
    few_rows = tile.cta_m < tile.mma_m and tile.problem.m > tile.block_m
    narrow = tile.consumers == tile.cluster_m == 1 and tile.block_n <= NARROW
    return few_rows or (tile.row_bytes > SWIZZLE_BYTES[0] and not narrow)


def matching(rung: Rung, pins: Mapping[str, object]) -> list[Schedule]:
    """The schedules with the pinned values; a knob or a value that does not exist is refused by name."""
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
    """The values of a knob in a projection."""
    return tuple(sorted({getattr(schedule, name) for schedule in _projection(*space)}))


@lru_cache(CHOICES_KEPT)
def _with_values(wanted: tuple[tuple[str, int | None], ...], *space: Any) -> tuple[Schedule, ...]:
    """Those of a projection: a choice and what is built of it ask for the same ones."""
    return tuple(each for each in _projection(*space) if all(getattr(each, name) == value for name, value in wanted))


def _with_pins(rung: Rung, pins: Mapping[str, Any]) -> list[Schedule]:
    """Where none of the projection has all the pins: those that have most of them, with the others, too. They can run,
    or why_not says what stands in the way."""

    def has(each: Schedule) -> int:
        return sum(getattr(each, name) == value for name, value in pins.items())

    listed = projection(rung) or [Schedule(mma=_kind(rung)[0], features=_kind(rung)[1])]
    most = max(map(has, listed))
    return list(dict.fromkeys(each.with_known(pins) for each in listed if has(each) == most))


def _nothing_runs(rung: Rung, matching: list[Schedule], problem: Problem, gpu: Gpu) -> str:
    """What stops all of them; or, if each has its own trouble, what stops the one that asks for least."""
    listed = [why_not(schedule, problem, gpu) for schedule in matching]
    common = [reason for reason in listed[0] if all(reason in other for other in listed)]
    fewest = min(range(len(listed)), key=lambda i: len(listed[i]))
    why = "; ".join(reason.rstrip(".") for reason in common or listed[fewest]) + "."
    if why_no_mma(MMA_SPECS[matching[0].mma], gpu):
        return f"{_label(rung)} cannot run: {why}"
    if len(matching) == 1:
        return f"{_label(rung)} with {matching[0]} cannot run {problem} on {gpu}: {why}"
    return f"None of {len(matching)} schedules of {_label(rung)} can run {problem} on {gpu}: {why}"


def _label(rung: Rung) -> str:
    return rung.__name__ if isinstance(rung, type) else "this kernel"
