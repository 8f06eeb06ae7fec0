"""Bytes of a launch from global memory and from the L2, by the order of its tiles.

The clusters that run side by side are a wave, and so is each round of tiles of persistent clusters. They advance along
k together, so a tile that several of them load comes from memory once. From wave to wave the L2 keeps as much data as
fits. Two loads that begin at the same tile are assumed to load the same data (`loads.py`). The L2 delivers data once
for two neighbouring SMs that load it. It delivers data of several pairs in a GPC fewer times than requested, while the
SMs keep in step.
"""

from __future__ import annotations

import dataclasses
import itertools
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from blackwell_matmul.hardware.gpus import GPC_SMS, NEIGHBOURS
from blackwell_matmul.simulator.lowering.lower import Lowered
from blackwell_matmul.simulator.machine.grid import Grid, Position
from blackwell_matmul.simulator.timing.model.loads import Loads, Tile

ONCE = 1.05
"""Largest ratio of bytes from memory to the bytes of the inputs at which each byte counts as read once."""

MOST_CLUSTERS = 4096
"""Maximum number of scanned clusters; the others are assumed to be equal."""


@dataclass(frozen=True)
class Traffic:
    """Bytes of a launch. from_memory: read; written: stored. distinct: fraction of the requests of neighbours that the
    L2 delivers; the rest are the same data. once: nothing is read from memory twice."""

    from_memory: float
    written: float
    distinct: float = 1.0
    once: bool = False

    def as_reads(self, store_cost: float) -> float:
        """Return the number of read bytes for which memory takes the same time as for these reads and stores."""
        return self.from_memory + store_cost * self.written

    def within(self, asked: float, stored: float) -> Traffic:
        """Return the traffic, limited to the bytes that SMs request and store, because some tensors are accessed only
        in part."""
        return dataclasses.replace(self, from_memory=min(self.from_memory, asked), written=min(self.written, stored))

    def hits(self, asked: float) -> float:
        """Return the bytes of the requests that the L2 has."""
        return max(0.0, asked * self.distinct - self.from_memory)

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
    """Return the traffic of a launch. side: clusters that run side by side. near_bytes: capacity of the L2. joins: as
    of `TimeFigures`, or 0 if SMs are not in step. loads: if they are known."""
    constant, written = _arguments(lowered, grid)
    if constant + written <= near_bytes:
        written = 0.0  # the next launch finds it there
    if loads is None:
        return Traffic(0 if constant <= near_bytes else constant, written)
    waves = _waves(loads, clusters[:MOST_CLUSTERS], side)
    first = [*itertools.islice(waves, loads.looked_at)]
    distinct = _distinct(first, len(clusters[0]), loads, 1 - joins)
    if constant <= near_bytes:
        return Traffic(0, written, distinct)
    found = _loaded(itertools.chain(first, waves), loads, near_bytes) * _left_out(loads)
    return Traffic(max(constant, found), written, distinct, found <= ONCE * constant)


def _arguments(lowered: Lowered, grid: Grid) -> tuple[float, float]:
    """Return the bytes of the tensors that the program only reads, and of the others."""
    changed = lowered.written or ()
    every = [(segment.name in changed, segment.nbytes) for segment in grid.memory.segments]
    return sum(size for write, size in every if not write), sum(size for write, size in every if write)


Wave = list[set[Tile]]
"""Tiles with which each CTA of a wave begins."""


def _waves(loads: Loads, clusters: Sequence[list[Position]], side: int) -> Iterator[Wave]:
    """Yield waves: each round of tiles of the clusters that run side by side, then of the next clusters."""
    for at in range(0, len(clusters), side):
        ctas = [rounds for cluster in clusters[at : at + side] for rounds in loads.begins(cluster)]
        yield from ([rounds[each] for rounds in ctas] for each in range(loads.looked_at))


def _distinct(waves: Iterable[Wave], cluster: int, loads: Loads, power: float) -> float:
    """Return the fraction of requests that the L2 delivers in these waves. cluster: CTAs of a cluster."""
    every = given = 0.0
    for ctas in waves:
        every += sum(_sum(tiles, loads) for tiles in ctas)
        for gpc in _gpcs(ctas, cluster):
            pairs = [set[Tile]().union(*some) for some in _in_a_row(gpc, NEIGHBOURS)]
            askers = Counter(itertools.chain.from_iterable(pairs))
            given += sum(loads.sizes[source] * count**power for (source, _), count in askers.items())
    return given / every if every else 1.0


def _gpcs(ctas: Wave, cluster: int) -> Iterator[Wave]:
    """Group CTAs by GPC: single ones in order, clusters to one GPC after the other (%smid of 132 CTAs on an H100)."""
    if cluster == 1:
        return _in_a_row(ctas, GPC_SMS)
    clusters, gpcs = [*_in_a_row(ctas, cluster)], -(-len(ctas) // GPC_SMS)
    return ([*itertools.chain.from_iterable(clusters[at::gpcs])] for at in range(gpcs))


def _in_a_row(them: Wave, count: int) -> Iterator[Wave]:
    return (them[at : at + count] for at in range(0, len(them), count))


def _loaded(waves: Iterable[Wave], loads: Loads, near_bytes: float) -> float:
    """Return the bytes from memory: each wave reuses the previous one's data if all of them fit the L2."""
    found, before = 0.0, set[Tile]()
    for ctas in waves:
        tiles = set[Tile]().union(*ctas)
        whole = _sum(tiles, loads)
        found += whole if whole > near_bytes else _sum(tiles - before, loads)
        before = tiles
    return found


def _left_out(loads: Loads) -> float:
    """Return the ratio of all tiles to scanned tiles."""
    every = [each.tiles for each in loads.shares]
    return sum(every) / max(1, sum(min(tiles, loads.looked_at) for tiles in every[:MOST_CLUSTERS]))


def _sum(tiles: Iterable[Tile], loads: Loads) -> float:
    return sum(loads.sizes[source] for source, _ in tiles)
