"""Loads of each cluster, by its scan (`Lowered.scan`): how many bytes, and where its tiles begin.

A tile is a series of loads of a warp with equal steps along k, forwards or backwards; another step begins the next
tile. A persistent cluster loads many tiles, one after the other, and another cluster may load fewer.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from operator import sub
from typing import Any, NamedTuple, TypeVar

from blackwell_matmul.simulator.description import Access, Space
from blackwell_matmul.simulator.lowering.lower import Lowered
from blackwell_matmul.simulator.lowering.scan import Unrepeatable
from blackwell_matmul.simulator.machine.grants import Grants
from blackwell_matmul.simulator.machine.grid import Grid, Position
from blackwell_matmul.simulator.replay.alike import scanned

Place = tuple[int, ...]

Tile = tuple[int, Place]
"""Number of a tensor, and a place in it."""

MOST_PLACES = 200_000
"""Most places of loads that are scanned, over all clusters: half a second. Later rounds count as similar."""


ENOUGH = 2
"""Number of equal steps that are taken for steps along k."""

MOST_BOXES = 8
"""Most boxes of one stage's tile."""


@dataclass(frozen=True)
class ClusterLoad:
    """Bytes and tiles that a cluster loads."""

    count_bytes: float
    tiles: int

    def __add__(self, other: ClusterLoad) -> ClusterLoad:
        return ClusterLoad(self.count_bytes + other.count_bytes, self.tiles + other.tiles)


class _Unkept(list[Any]):
    """A log that discards its entries."""

    def append(self, _: Any) -> None:
        pass


class Stride(NamedTuple):
    """Steps of a tensor's places along k: `boxes` adjacent places, then a step."""

    boxes: int
    step: Place


class _Head(list[int]):
    """Collects the first places of a tensor that a warp loads; then the scan ends."""

    def __init__(self) -> None:
        self.places: list[Place] = []

    def extend(self, place: Iterable[int]) -> None:
        self.places.append(tuple(place))
        if len(self.places) > ENOUGH * MOST_BOXES:
            raise Unrepeatable

    def stride(self) -> Stride:
        """Return the stride with the fewest boxes whose first steps are equal."""
        for boxes in range(1, MOST_BOXES + 1):
            some = self.places[: ENOUGH * boxes + 1 : boxes]
            steps = {_step(*pair) for pair in itertools.pairwise(some)}
            if len(steps) == 1 and len(some) > ENOUGH:
                return Stride(boxes, steps.pop())
        return Stride(1, _step(*self.places[:2]) if len(self.places) > 1 else ())


class _Begins(list[int]):
    """Collects where a warp's tiles of one tensor begin, in either direction; one more than `most` ends the scan. seen:
    number of places."""

    def __init__(self, stride: Stride, most: float = math.inf) -> None:
        self.boxes, self.most = stride.boxes, most
        self.steps = stride.step, tuple(-each for each in stride.step)
        self.seen, self.begins = 0, list[Place]()
        self._last: Place = ()

    def extend(self, place: Iterable[int]) -> None:
        self.seen += 1
        if (self.seen - 1) % self.boxes:
            return
        here = tuple(place)
        if self.begins and self.most == 1:
            raise Unrepeatable
        if self.begins and _step(self._last, here) in self.steps:
            self.begins[-1] = min(self.begins[-1], here)
        elif len(self.begins) == self.most:
            raise Unrepeatable
        else:
            self.begins.append(here)
        self._last = here


def _step(before: Place, after: Place) -> Place:
    return tuple(map(sub, after, before))


Kept = TypeVar("Kept", bound=list[int])


class Loads:
    """Loads of a launch; raises Unrepeatable if they depend on data.

    rounds: tiles of a tensor that the first cluster loads; looked_at: how many of them are scanned. sizes: bytes of a
    tile, for the whole k, alone or with other warps. shares: loads of each cluster.
    """

    def __init__(self, lowered: Lowered, grid: Grid, clusters: Sequence[list[Position]]) -> None:
        if lowered.scan is None:
            raise Unrepeatable
        self.lowered, self.grid = lowered, grid
        self.place_bytes = _place_bytes(lowered)
        self.warps: Sequence[int] = range(lowered.num_warps)
        self.strides = self._strides(clusters[0])
        first = [*self._scanned(clusters[0], self._begins)]
        self.sizes = {source: self._size(source, first) for source in self.place_bytes}
        seen = [each[source].seen for each in first for source in self.place_bytes]
        self.rounds = max((len(each[source].begins) for each in first for source in self.place_bytes), default=1)
        self.looked_at = int(min(self.rounds, max(1, MOST_PLACES * self.rounds / max(1, sum(seen) * len(clusters)))))
        self.shares = self._shares(clusters)

    def _strides(self, cluster: list[Position]) -> dict[int, Stride]:
        """Return the stride of each tensor. Later scans skip warps that do not load."""
        found = [*self._scanned(cluster, lambda _: _Head())]
        loads = [any(each[source].places for source in self.place_bytes) for each in found]
        self.warps = [warp for warp in self.warps if any(loads[warp :: len(self.warps)])]
        return {
            source: max((each[source] for each in found), key=lambda head: len(head.places)).stride()
            for source in self.place_bytes
        }

    def _begins(self, source: int, most: float = math.inf) -> _Begins:
        """Return a collector of begins; one for a tensor that is only stored ends no scan."""
        loaded = source in self.strides
        return _Begins(self.strides[source], most) if loaded else _Begins(Stride(1, ()))

    def _size(self, source: int, of_warps: list[list[_Begins]]) -> float:
        places, tiles = sum(warp[source].seen for warp in of_warps), sum(len(warp[source].begins) for warp in of_warps)
        return self.place_bytes[source] * places / max(1, tiles)

    def _share(self, cluster: list[Position]) -> ClusterLoad:
        warps = [*self._scanned(cluster, self._begins)]
        every = sum(size * each[source].seen for each in warps for source, size in self.place_bytes.items())
        tiles = max((len(each[source].begins) for each in warps for source in self.place_bytes), default=0)
        return ClusterLoad(every or 1, tiles or 1)  # a cluster without loads has work, too

    def _shares(self, clusters: Sequence[list[Position]]) -> list[ClusterLoad]:
        """Return the loads of each cluster. Clusters between two equal ones are assumed to be equal as well."""
        found = {at: self._share(clusters[at]) for at in {0, len(clusters) - 1}}

        def between(first: int, last: int) -> None:
            if found[first] == found[last] or last - first < 2:
                found.update((at, found[first]) for at in range(first + 1, last))
                return
            middle = (first + last) // 2
            found[middle] = self._share(clusters[middle])
            between(first, middle)
            between(middle, last)

        between(0, len(clusters) - 1)
        return [found[at] for at in range(len(clusters))]

    def begins(self, cluster: list[Position]) -> Iterator[list[set[Tile]]]:
        """Yield for each CTA, round by round, the tiles that its warps begin to load."""
        found = self._scanned(cluster, partial(self._begins, most=self.looked_at))
        for _ in cluster:
            rounds = [set[Tile]() for _ in range(self.looked_at)]
            for places in itertools.islice(found, len(self.warps)):
                for source in self.place_bytes:
                    for tiles, begin in zip(rounds, places[source].begins, strict=False):
                        tiles.add((source, begin))
            yield rounds

    def _scanned(self, cluster: list[Position], kept: Callable[[int], Kept]) -> Iterator[list[Kept]]:
        """Yield, for each warp of each CTA, the collected places of each tensor, by tensor number."""
        assert self.lowered.scan is not None
        for warp in scanned(self.grid, cluster, self.warps, Grants()):
            places = [kept(source) for source in range(len(self.lowered.sources))]
            lists: list[list[int]] = [*places]
            with suppress(Unrepeatable):
                self.lowered.scan(warp, _Unkept(), lists)
            yield places


def known_loads(lowered: Lowered, grid: Grid, clusters: Sequence[list[Position]]) -> Loads | None:
    with suppress(Unrepeatable):
        return Loads(lowered, grid, clusters)
    return None


def _place_bytes(lowered: Lowered) -> dict[int, int]:
    """Return the bytes of one load, for each tensor that is loaded."""
    from tilus.ir.tensor import GlobalTensor

    sizes: dict[int, int] = {}
    for name, moved in lowered.values.items():
        inst, instruction = lowered.calls[name]
        effects = instruction.description.effects
        if moved is None or not any(e.space is Space.GLOBAL and e.access is Access.READ for e in effects):
            continue
        tensor = next(each for each in inst.inputs if isinstance(each, GlobalTensor))
        size = math.prod(moved.extents) * int(tensor.dtype.nbits) // 8
        sizes[moved.source] = max(size, sizes.get(moved.source, 0))
    return sizes
