"""What a launch takes from memory and from the L2, by the order of its tiles.

The clusters that run side by side are a wave, and so is each round of tiles of those that stay. They go along k
together, so that a tile which several of them load comes from memory once; and from wave to wave the L2 keeps what it
has room for. Two that begin at the same tile are taken to load the same one (`loads.py`). What two neighbours load, the
L2 gives once; what several pairs of them in a GPC do, fewer times than they ask, as long as SMs keep in step.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from blackwell_matmul.simulator.lowering.lower import Lowered
from blackwell_matmul.simulator.machine.grid import Grid, Position
from blackwell_matmul.simulator.timing.model.loads import Loads, Tile

NEIGHBOURS = 2
"""SMs with one way to the L2, which get CTAs that follow each other."""

GPC_CTAS = 16
"""On SMs that lie together."""

ONCE = 1.05
"""Of the bytes of what is read alone; with no more from memory, each comes once."""

MOST = 4096
"""Clusters that are looked at; the others are taken to be like these."""


@dataclass(frozen=True)
class Traffic:
    """Bytes of a launch. from_memory: read there; written: to it. distinct: of what neighbours ask the L2 for, the part
    that it gives; the rest is the same. once: nothing is read there again."""

    from_memory: float
    written: float
    distinct: float = 1.0
    once: bool = False

    def as_reads(self, store_cost: float) -> float:
        """Bytes that would take memory as long, were they all read."""
        return self.from_memory + store_cost * self.written

    def within(self, asked: float, stored: float) -> Traffic:
        """No more than SMs ask for, and store: of some tensors only a part is touched."""
        return dataclasses.replace(self, from_memory=min(self.from_memory, asked), written=min(self.written, stored))

    @property
    def total(self) -> float:
        return self.from_memory + self.written


def traffic(
    lowered: Lowered,
    grid: Grid,
    clusters: Sequence[list[Position]],
    side: int,
    near_bytes: float,
    joins: float,
    loads: Loads | None,
) -> Traffic:
    """side: how many clusters run side by side. near_bytes: what the L2 keeps. joins: as of `TimeFigures`, or 0 where
    SMs are not in step. loads: where they are known."""
    constant, written = _arguments(lowered, grid)
    if constant + written <= near_bytes:
        written = 0.0  # the next launch finds it there
    if loads is None:
        return Traffic(0 if constant <= near_bytes else constant, written)
    waves = _waves(loads, clusters[:MOST], side)
    first = [*itertools.islice(waves, loads.looked_at)]
    distinct = _distinct(first, len(clusters[0]), loads, 1 - joins)
    if constant <= near_bytes:
        return Traffic(0, written, distinct)
    found = _loaded(itertools.chain(first, waves), loads, near_bytes) * _left_out(loads)
    return Traffic(max(constant, found), written, distinct, found <= ONCE * constant)


def _arguments(lowered: Lowered, grid: Grid) -> tuple[float, float]:
    """Bytes of the tensors that the program reads alone, and of the others."""
    changed = lowered.written or ()
    every = [(segment.name in changed, segment.nbytes) for segment in grid.memory.segments]
    return sum(size for write, size in every if not write), sum(size for write, size in every if write)


Wave = list[set[Tile]]
"""Where the tiles of each CTA begin."""


def _waves(loads: Loads, clusters: Sequence[list[Position]], side: int) -> Iterator[Wave]:
    """Of those that run side by side, round by round, and then of the next ones."""
    for at in range(0, len(clusters), side):
        ctas = [rounds for cluster in clusters[at : at + side] for rounds in loads.begins(cluster)]
        yield from ([rounds[each] for rounds in ctas] for each in range(loads.looked_at))


def _distinct(waves: Iterable[Wave], cluster: int, loads: Loads, power: float) -> float:
    """These stand for all. cluster: how many CTAs one has."""
    every = given = 0.0
    for ctas in waves:
        every += sum(_sum(tiles, loads) for tiles in ctas)
        for gpc in _gpcs(ctas, cluster):
            pairs = [set[Tile]().union(*some) for some in _in_a_row(gpc, NEIGHBOURS)]
            askers = Counter(itertools.chain.from_iterable(pairs))
            given += sum(loads.sizes[source] * count**power for (source, _), count in askers.items())
    return given / every if every else 1.0


def _gpcs(ctas: Wave, cluster: int) -> Iterator[Wave]:
    """Those that lie together: CTAs without clusters follow each other; clusters are dealt out, one to a GPC in turn
    (%smid of 132 CTAs on an H100)."""
    if cluster == 1:
        return _in_a_row(ctas, GPC_CTAS)
    clusters, gpcs = [*_in_a_row(ctas, cluster)], -(-len(ctas) // GPC_CTAS)
    return ([*itertools.chain.from_iterable(clusters[at::gpcs])] for at in range(gpcs))


def _in_a_row(them: Wave, count: int) -> Iterator[Wave]:
    return (them[at : at + count] for at in range(0, len(them), count))


def _loaded(waves: Iterable[Wave], loads: Loads, near_bytes: float) -> float:
    """What the wave before took is still there, if all of it found room."""
    found, before = 0.0, set[Tile]()
    for ctas in waves:
        tiles = set[Tile]().union(*ctas)
        whole = _sum(tiles, loads)
        found += whole if whole > near_bytes else _sum(tiles - before, loads)
        before = tiles
    return found


def _left_out(loads: Loads) -> float:
    """How many times as many tiles there are as were looked at."""
    every = [each.tiles for each in loads.shares]
    return sum(every) / max(1, sum(min(tiles, loads.looked_at) for tiles in every[:MOST]))


def _sum(tiles: Iterable[Tile], loads: Loads) -> float:
    return sum(loads.sizes[source] for source, _ in tiles)
