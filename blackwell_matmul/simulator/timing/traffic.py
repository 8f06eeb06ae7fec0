"""What a launch takes from memory and from the L2, by the order of its tiles.

The clusters that run side by side are a wave. They go along k together, so that a tile which several of them load comes
from memory once; and from wave to wave the L2 keeps what it has room for. Where a cluster begins, its scan says
(`Lowered.scan`), which is left at its second tile of a tensor: two that begin at the same tile are taken to load the
same ones. What two neighbours load, the L2 gives once.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NamedTuple

from blackwell_matmul.simulator.description import Access, Space
from blackwell_matmul.simulator.lowering.lower import Lowered
from blackwell_matmul.simulator.lowering.scan import Unrepeatable
from blackwell_matmul.simulator.machine.grants import Grants
from blackwell_matmul.simulator.machine.grid import Grid, Position
from blackwell_matmul.simulator.replay.alike import ScannedCta, ScannedWarp

Tile = tuple[int, tuple[int, ...]]
"""The number of a tensor, and where in it."""

NEIGHBOURS = 2
"""SMs with one way to the L2, which get CTAs that follow each other."""

MOST = 4096
"""Clusters that are looked at; the others are taken to be like these."""


@dataclass(frozen=True)
class Traffic:
    """Bytes of a launch. from_memory: read there; written: to it. distinct: of what neighbours ask the L2 for, the part
    that it gives; the rest is the same."""

    from_memory: float
    written: float
    distinct: float = 1.0

    @property
    def total(self) -> float:
        return self.from_memory + self.written


def traffic(lowered: Lowered, grid: Grid, clusters: Sequence[list[Position]], side: int, near_bytes: float) -> Traffic:
    """side: how many clusters run side by side. near_bytes: what the L2 keeps."""
    constant, written = _arguments(lowered, grid)
    try:
        one = _by_one(lowered, grid, clusters[0])
        distinct = _distinct(lowered, grid, clusters[:side], one)
        loaded = 0.0 if constant <= near_bytes else _loaded(lowered, grid, clusters, side, near_bytes, one)
    except Unrepeatable:
        loaded, distinct = 0.0, 1.0
    return Traffic(0 if constant <= near_bytes else max(constant, loaded), written, distinct)


def _arguments(lowered: Lowered, grid: Grid) -> tuple[float, float]:
    """Bytes of the tensors that the program reads alone, and of the others."""
    changed = lowered.written or ()
    every = [(segment.name in changed, segment.nbytes) for segment in grid.memory.segments]
    return sum(size for write, size in every if not write), sum(size for write, size in every if write)


def _distinct(lowered: Lowered, grid: Grid, wave: Sequence[list[Position]], one: ByOne) -> float:
    """The first wave stands for all."""
    ctas = [tiles for cluster in wave for tiles in _begins(lowered, grid, cluster, one)]
    pairs = [set[Tile]().union(*ctas[at : at + NEIGHBOURS]) for at in range(0, len(ctas), NEIGHBOURS)]
    every, given = (sum(_sum(tiles, one.sizes) for tiles in each) for each in (ctas, pairs))
    return given / every if every else 1.0


def _loaded(
    lowered: Lowered, grid: Grid, clusters: Sequence[list[Position]], side: int, near_bytes: float, one: ByOne
) -> float:
    """By all waves. What the one before took is still there, if all of it found room."""
    some, found, before = clusters[:MOST], 0.0, set[Tile]()
    for at in range(0, len(some), side):
        wave = (tiles for cluster in some[at : at + side] for tiles in _begins(lowered, grid, cluster, one))
        tiles = set[Tile]().union(*wave)
        whole = _sum(tiles, one.sizes)
        found += whole if whole > near_bytes else _sum(tiles - before, one.sizes)
        before = tiles
    return found * len(clusters) / len(some)


def _sum(tiles: Iterable[Tile], sizes: dict[int, float]) -> float:
    return sum(sizes[source] for source, _ in tiles)


class _Unkept(list[Any]):
    """A log that nobody reads."""

    def append(self, _: Any) -> None:
        pass


class _First(list[int]):
    """The tiles of one tensor that a warp comes to; the second one ends the scan."""

    def extend(self, place: Iterable[int]) -> None:
        if self:
            raise Unrepeatable
        super().extend(place)


class _Counted(list[int]):
    """How many there are."""

    def extend(self, place: Iterable[int]) -> None:
        self[:] = (self[0] + 1,) if self else (1,)


def _scanned(
    lowered: Lowered, grid: Grid, cluster: list[Position], warps: Iterable[int], kept: Callable[[], list[int]]
) -> Iterator[tuple[int, list[list[int]]]]:
    """What is kept of the tiles of each tensor, for each of these warps."""
    assert lowered.scan is not None
    for rank, position in enumerate(cluster):
        cta = ScannedCta(grid, position, rank)
        for index in warps:
            places = [kept() for _ in lowered.sources]
            with suppress(Unrepeatable):
                lowered.scan(ScannedWarp(cta, index, Grants().foreseen()), _Unkept(), places)
            yield index, places


def _begins(lowered: Lowered, grid: Grid, cluster: list[Position], loaded: ByOne) -> Iterator[set[Tile]]:
    """The first tile of each tensor that each warp loads, by CTA."""
    found = _scanned(lowered, grid, cluster, loaded.warps, _First)
    for _ in cluster:
        warps = itertools.islice(found, len(loaded.warps))
        yield {(source, tuple(places[source])) for _, places in warps for source in loaded.sizes if places[source]}


class ByOne(NamedTuple):
    """Which warps of a CTA load, and the bytes of a tensor for each tile that one begins at, alone or with others."""

    warps: list[int]
    sizes: dict[int, float]


def _by_one(lowered: Lowered, grid: Grid, cluster: list[Position]) -> ByOne:
    """What a cluster does; the others are taken to do the same."""
    if lowered.scan is None:
        raise Unrepeatable
    tiles = _tile_bytes(lowered)
    found = [*_scanned(lowered, grid, cluster, range(lowered.num_warps), _Counted)]
    counts = {source: [places[source][0] for _, places in found if places[source]] for source in tiles}
    warps = sorted({index for index, places in found if any(places[source] for source in tiles)})
    sizes = {source: size * sum(counts[source]) / max(1, len(counts[source])) for source, size in tiles.items()}
    return ByOne(warps, sizes)


def _tile_bytes(lowered: Lowered) -> dict[int, int]:
    """Of the tiles of each tensor that is loaded."""
    from tilus.ir.tensor import GlobalTensor

    sizes: dict[int, int] = {}
    for name, moved in lowered.values.items():
        inst, instruction = lowered.calls[name]
        if moved is None or not _loads(instruction.description):
            continue
        tensor = next(each for each in inst.inputs if isinstance(each, GlobalTensor))
        size = math.prod(moved.extents) * int(tensor.dtype.nbits) // 8
        sizes[moved.source] = max(size, sizes.get(moved.source, 0))
    return sizes


def _loads(description: Any) -> bool:
    return any(e.space is Space.GLOBAL and e.access is Access.READ for e in description.effects)
