"""Clusters with the same steps: the first cluster of a kind runs in full, and for later ones only the values are
computed. Without clusters, a CTA counts as one.

A CTA's steps follow from its scalars: loop extents, conditions, instruction operands, and the places of its tiles in
global memory. `Lowered.scan` computes these without executing anything. Two clusters are alike if their steps are
equal, and their tiles correspond: equal tiles are equal in both, with the same clipping and overlaps. Such a cluster
has the same waits in the same order, and its accesses have the same relations, so it has the findings of the first
one. Only its values differ. The first cluster's work on memory and registers is in a `ReplayLog`, in order, and is
repeated on the other cluster's tiles.

A cluster with an error is not replayed, nor is a program that reads a scalar from memory, or whose CTAs interact
beyond their clusters. A cluster's CLC grants are known ahead (cluster_schedule.py). A cluster whose warps do not read
each response once, in order, is not replayed either.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from blackwell_matmul.simulator.cluster_schedule import ScheduledCluster
from blackwell_matmul.simulator.lowering.lower import Lowered
from blackwell_matmul.simulator.lowering.scan import Unrepeatable
from blackwell_matmul.simulator.machine.deferred import Held, Parted, Patch, Product
from blackwell_matmul.simulator.machine.grants import Grants
from blackwell_matmul.simulator.machine.grid import Grid, Position
from blackwell_matmul.simulator.replay.log import NumberedTile, Replayed, ReplayLog, Thread, logging
from blackwell_matmul.simulator.simulation import Simulation

MAX_KINDS = 16
"""Maximum number of logs in memory. A log holds a cluster's memory."""

MAX_MISSED = 64
"""Maximum excess of clusters that could not be replayed over replayed clusters; beyond it replay is given up."""


# --- the steps of a cluster


class ScannedCta:
    """CTA with a position and nothing else, for `scan`."""

    def __init__(self, grid: Grid, position: Position, rank: int) -> None:
        self.grid, self.position, self.rank = grid, position, rank

    def stop(self, *_: Any) -> Unrepeatable:
        return Unrepeatable()

    def report(self, *_: Any, **__: Any) -> None:
        raise Unrepeatable


@dataclass(frozen=True)
class ScannedWarp:
    cta: ScannedCta
    index: int
    responses: Iterator[tuple[int, int, int, int]]


def scanned(grid: Grid, cluster: Sequence[Position], warps: Iterable[int], grants: Grants) -> Iterator[ScannedWarp]:
    """Yield these warps of each CTA of a cluster, for `scan`."""
    for rank, position in enumerate(cluster):
        cta = ScannedCta(grid, position, rank)
        for index in warps:
            yield ScannedWarp(cta, index, grants.foreseen())


class ControlPath:
    """Steps of a cluster.

    key: equal for clusters with the same steps, for any places of their tiles. Equal tiles must correspond, and TMA's
    start at equal offsets modulo 16 bytes. places: for each tensor, offsets of its tiles, in the order of the warps'
    programs. begins: for each tensor, the index of each warp's first tile.
    """

    __slots__ = ("begins", "key", "places")

    def __init__(self, lowered: Lowered, grid: Grid, scheduled: ScheduledCluster) -> None:
        log: list[Any] = []
        lists: list[list[int]] = [[] for _ in lowered.sources]
        ends: dict[Thread, list[int]] = {}
        assert lowered.scan is not None
        for warp in scanned(grid, scheduled.cluster, range(lowered.num_warps), Grants(scheduled.grants)):
            ends[warp.cta.rank, warp.index] = list(map(len, lists))
            lowered.scan(warp, log, lists)
            log.append(None)
        if {*map(type, log)} - {int, bool, type(None)}:  # 0.0 and -0.0 are equal, and not the same
            log = [repr(entry) for entry in log]
        pairs = list(zip(lists, lowered.sources, strict=True))
        self.places = [np.array(n, np.int64).reshape(-1, source.rank) for n, source in pairs]
        ranks = [source.rank for source in lowered.sources]
        self.begins = {thread: [n // r for n, r in zip(each, ranks, strict=True)] for thread, each in ends.items()}
        past = [p[:, -1] % s.multiple for p, s in zip(self.places, lowered.sources, strict=True) if s.rank]
        self.key = tuple(log), tuple(p.tobytes() for p in past), tuple(map(_pattern, self.places))

    def clipped(self, rooms: list[np.ndarray]) -> tuple[bytes, ...]:
        """Return how much of each tile is outside of its tensor. rooms: largest offsets without clipping."""
        every = zip(self.places, rooms, strict=True)
        pairs = [(np.minimum(places, 0), np.maximum(places - room, 0)) for places, room in every]
        return tuple(part.tobytes() if part.any() else b"" for pair in pairs for part in pair)

    def all_of(self, known: dict[tuple[int, Thread], list[tuple[int, ...]]]) -> list[np.ndarray] | None:
        """Return the warps' known values in the order of `places`; None after accesses to other tiles, as by a stop."""
        found = []
        for source, mine in enumerate(self.places):
            seen = [each for thread in self.begins for each in known.get((source, thread), ())]
            found.append(np.array(seen, np.int64).reshape(-1, mine.shape[1]))
        same = all(each.shape == mine.shape for each, mine in zip(found, self.places, strict=True))
        return found if same else None


def _pattern(places: np.ndarray) -> bytes:
    """Return a pattern of equal tiles."""
    if not places.size:
        return b""
    _, first, inverse = np.unique(places, axis=0, return_index=True, return_inverse=True)
    return bytes(first[inverse.reshape(-1)].tobytes())


# --- where the tiles of another cluster are


class Origins:
    """Tiles of a logged cluster. near: by patch id, the numbers of its tiles. changing: tensors that the program may
    write. extents: of each tile. neighbours, parted: products and operand pieces that would be joined if their tiles
    were neighbours."""

    def __init__(self, path: ControlPath, log: ReplayLog, extents: list[np.ndarray], replayed: Replayed) -> None:
        self.path, self.extents, self.changing = path, extents, sorted(log.changing)
        self.neighbours, self.parted = replayed.neighbours, replayed.parted
        self.near: dict[int, tuple[int, np.ndarray]] = {}
        for patch in replayed.patches:
            source = log.source_of(patch)
            lows, highs = np.array(patch.spans, np.int64).reshape(-1, 2).T
            begins = path.places[source]
            meet = (begins < highs) & (lows < begins + extents[source])
            self.near[id(patch)] = source, np.flatnonzero(meet.all(axis=1))


class Displaced:
    """Tiles of another cluster. fits: joined tiles are joined here, and separate ones separate; a product of two
    k-tiles has other bits than the sum of their products. as_one: for each tensor, the common distance of all tiles;
    None: they differ; (): there are none."""

    def __init__(self, origins: Origins, path: ControlPath) -> None:
        self.origins, self.path = origins, path
        self.distances = [mine - first for mine, first in zip(path.places, origins.path.places, strict=True)]
        self.as_one = [tuple(each[:1].ravel().tolist()) if _one(each) else None for each in self.distances]

    def fits(self) -> bool:
        if None not in self.as_one:
            return True
        together = all(_one(self.distances[source][near]) for source, near in self.origins.near.values())
        apart = together and all(map(self._apart, self.origins.changing))
        products, pieces = self.origins.neighbours, self.origins.parted
        return apart and not any(self._joined(*pair) for pair in products) and not any(map(self._whole, pieces))

    def _whole(self, parted: Parted) -> bool:
        first, second = (Held(held.view, (), self.moved(held.patch)) for held in (parted.first, parted.second))
        return first.then(second, parted.dim) is not None

    def _joined(self, first: Product, second: Product) -> bool:
        a, b = self.moved(second.a), self.moved(second.b)
        return self.moved_product(first).extended(a, b)

    def _apart(self, source: int) -> bool:
        """Return True if tiles with different distances are disjoint in both clusters."""
        distances = self.distances[source]
        if self.as_one[source] is not None:
            return True
        groups = np.unique(distances, axis=0, return_inverse=True)[1].reshape(-1)
        extents = self.origins.extents[source]
        return all(
            _disjoint([(p[groups == g].min(0), (p + extents)[groups == g].max(0)) for g in range(groups.max() + 1)])
            for p in (self.path.places[source], self.origins.path.places[source])
        )

    def at(self, place: NumberedTile) -> tuple[int, ...]:
        begin = self.path.begins[place.thread][place.source]
        found: tuple[int, ...] = tuple(self.path.places[place.source][begin + place.number].tolist())
        return found

    def moved(self, patch: Patch) -> Patch:
        source, near = self.origins.near[id(patch)]
        return patch.moved(self.as_one[source] or tuple(self.distances[source][near[0]].tolist()))

    def moved_product(self, product: Product) -> Product:
        return Product(product.cells, self.moved(product.a), self.moved(product.b), product.keep)


def _one(distances: np.ndarray) -> bool:
    return bool((distances == distances[:1]).all())


def _disjoint(boxes: list[tuple[np.ndarray, np.ndarray]]) -> bool:
    return all(
        bool((high <= lo).any() or (hi <= low).any()) for i, (low, high) in enumerate(boxes) for lo, hi in boxes[:i]
    )


# --- the clusters of a grid


class Kind:
    """Clusters with one key.

    rooms: as in `ControlPath.clipped`; None: unknown, so that every cluster runs in full. replayed: first cluster for
    each clipping; None: it cannot be replayed.
    """

    def __init__(self, rooms: list[np.ndarray] | None) -> None:
        self.rooms = rooms
        self.replayed: dict[tuple[bytes, ...], tuple[Origins, Replayed] | None] = {}


class Replays:
    """Runs the clusters of a grid in sequence."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.kinds: dict[Any, Kind] = {}
        self.logs = self.missed = 0
        several = np.prod(simulation.grid.dimensions) > np.prod(simulation.grid.cluster)
        self.looking = bool(several) and simulation.lowered.repeatable and not simulation.listeners

    def run(self, scheduled: ScheduledCluster) -> None:
        """Run a cluster, and then the granted clusters that it did not take over."""
        left: ScheduledCluster | None = scheduled
        while left is not None:
            left = left.left(self.simulation.grid, self._run_one(left))

    def _run_one(self, scheduled: ScheduledCluster) -> int:
        """Run one cluster; return how many clusters it took over."""
        path = self._path(scheduled) if self.looking else None
        if path is None:
            return self._in_full(scheduled)
        kind = self.kinds.get(path.key)
        if kind is None:
            return self._record(scheduled, path, None)
        if kind.rooms is None:
            return self._in_full(scheduled)
        return self._repeat(scheduled, path, kind, kind.rooms)

    def _in_full(self, scheduled: ScheduledCluster) -> int:
        grants = Grants(scheduled.grants)
        self.simulation.run(scheduled.cluster, grants)
        return grants.taken

    def close(self) -> None:
        """Break reference cycles through the kept CTAs, so that their memory is freed immediately."""
        for kind in self.kinds.values():
            for known in kind.replayed.values():
                if known is not None:
                    known[1].close()

    def _repeat(self, scheduled: ScheduledCluster, path: ControlPath, kind: Kind, rooms: list[np.ndarray]) -> int:
        clipped = path.clipped(rooms)
        if clipped not in kind.replayed:
            return self._record(scheduled, path, kind)
        known = kind.replayed[clipped]
        tiles = None if known is None else Displaced(known[0], path)
        if known is None or tiles is None or not tiles.fits():
            return self._in_full(scheduled)
        self.missed -= 1
        return known[1].run(scheduled, tiles)

    def _path(self, scheduled: ScheduledCluster) -> ControlPath | None:
        """Return the steps of a cluster, or None after an error, which its run reports."""
        try:
            return ControlPath(self.simulation.lowered, self.simulation.grid, scheduled)
        except Exception:
            self._miss()
            return None

    def _miss(self) -> None:
        self.missed += 1
        self.looking = self.missed < MAX_MISSED

    def _record(self, scheduled: ScheduledCluster, path: ControlPath, kind: Kind | None) -> int:
        """Run in full, and keep the log for later clusters of the same kind. Return how many clusters it took over."""
        self._miss()
        if self.logs >= MAX_KINDS:
            return self._in_full(scheduled)
        self.logs += 1
        log, lowered, grants = ReplayLog(), self.simulation.lowered, Grants(scheduled.grants)
        before = dict(lowered.counts)
        ctas = self.simulation.run(scheduled.cluster, grants, log, lowered.main_with(logging(log)))
        executed = {name: count - before.get(name, 0) for name, count in lowered.counts.items()}
        rooms, extents = path.all_of(log.rooms), path.all_of(log.extents)
        kind = kind or self.kinds.setdefault(path.key, Kind(rooms))
        kept = None
        if log.usable and grants.in_turn and rooms is not None and extents is not None:
            replayed = Replayed(ctas, log, executed, lowered.counts)
            kept = Origins(path, log, extents, replayed), replayed
        if kind.rooms is not None:
            kind.replayed[path.clipped(kind.rooms)] = kept
        log.close()
        if kept is None:
            for cta in ctas:
                cta.close()
        return grants.taken
