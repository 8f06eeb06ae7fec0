"""CTAs that do the same: the first of a kind runs in full, and of the others only the values are computed.

Which steps a CTA takes follows from its scalars: the extents of its loops, its conditions, the operands of its
instructions, and the places of its tiles in global memory. `Lowered.scan` finds them without executing anything. A CTA
whose steps are those of an earlier one, with all places in a tensor moved by one distance and clipped alike at its
edges, meets the same waits in the same order and makes the same accesses relative to each other; so when the first had
no finding, it has none. What is left are its values: the first one's work on memory and registers was written to a
`ReplayLog`, in the order in which it was done, and is done again on the other's tiles.

A CTA with findings is not repeated, nor is a program that reads a scalar from memory, or whose CTAs talk to each other,
as those of a cluster do.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from blackwell_matmul.simulator.lowering.lower import Lowered
from blackwell_matmul.simulator.lowering.scan import Unrepeatable
from blackwell_matmul.simulator.machine.grid import Grid, Position
from blackwell_matmul.simulator.replay.log import Distance, Replayed, ReplayLog, logging
from blackwell_matmul.simulator.simulation import Simulation

MAX_KINDS = 16
"""Logs that are kept; each holds a CTA's memory."""

MAX_MISSED = 64
"""CTAs that were like no earlier one, less those that were, after which nobody looks any more."""


# --- the steps of a CTA


class _ScannedCta:
    """A CTA that only its position is known of, for `scan`."""

    rank = 0

    def __init__(self, grid: Grid, position: Position) -> None:
        self.grid, self.position = grid, position

    def stop(self, *_: Any) -> Unrepeatable:
        return Unrepeatable()

    def report(self, *_: Any, **__: Any) -> None:
        raise Unrepeatable


@dataclass(frozen=True)
class _ScannedWarp:
    cta: _ScannedCta
    index: int


class ControlPath:
    """The steps that a CTA takes. key: equal for CTAs that take the same ones, wherever in global memory; but TMA's
    tiles must be as far past a multiple of 16 bytes.

    places: for each tensor there, the offsets of its tiles, in the order of the warps' programs.
    """

    __slots__ = ("key", "places")

    def __init__(self, lowered: Lowered, grid: Grid, position: Position) -> None:
        cta, log = _ScannedCta(grid, position), list[Any]()
        lists: list[list[int]] = [[] for _ in lowered.sources]
        assert lowered.scan is not None
        for index in range(lowered.num_warps):
            lowered.scan(_ScannedWarp(cta, index), log, lists)
            log.append(None)
        if {*map(type, log)} - {int, bool, type(None)}:  # 0.0 and -0.0 are equal, and not the same
            log = [repr(entry) for entry in log]
        pairs = list(zip(lists, lowered.sources, strict=True))
        self.places = [np.array(n, np.int64).reshape(-1, source.rank) for n, source in pairs]
        past = tuple([n[source.rank - 1] % source.multiple if n else 0 for n, source in pairs])
        self.key = tuple(log), past, tuple([(places - places[:1]).tobytes() for places in self.places])

    def distances(self, other: ControlPath) -> list[Distance]:
        """How far this CTA's tiles lie from the other's, in each tensor."""
        pairs = zip(self.places, other.places, strict=True)
        return [tuple((mine[0] - theirs[0]).tolist()) if len(mine) else () for mine, theirs in pairs]

    def clipped(self, rooms: list[np.ndarray]) -> tuple[bytes, ...]:
        """What of each tile lies outside of its tensor. rooms: the largest offsets at which nothing does."""
        every = zip(self.places, rooms, strict=True)
        pairs = [(np.minimum(places, 0), np.maximum(places - room, 0)) for places, room in every]
        return tuple(part.tobytes() if part.any() else b"" for pair in pairs for part in pair)


# --- the CTAs of a grid


class Kind:
    """CTAs of one key. rooms: see `ControlPath.clipped`; None: not known, and each CTA runs in full. replayed: the
    first CTA by what of its tiles lies outside; None: it had a finding."""

    def __init__(self, rooms: list[np.ndarray] | None) -> None:
        self.rooms = rooms
        self.replayed: dict[tuple[bytes, ...], tuple[ControlPath, Replayed] | None] = {}


class Replays:
    """Runs the clusters of a grid, one after the other; a cluster of several CTAs always in full."""

    def __init__(self, simulation: Simulation) -> None:
        self.simulation = simulation
        self.kinds: dict[Any, Kind] = {}
        self.logs = self.missed = 0
        x, y, z = simulation.grid.dimensions
        alone = simulation.lowered.cluster == (1, 1, 1) and not simulation.listeners
        self.looking = alone and simulation.lowered.scan is not None and x * y * z > 1

    def run(self, cluster: list[Position]) -> None:
        position = cluster[0]
        path = self._path(position) if self.looking else None
        if path is None:
            self.simulation.run(cluster)
            return
        kind = self.kinds.get(path.key)
        if kind is None:
            self._record(position, path, None)
        elif kind.rooms is None:
            self.simulation.run([position])
        else:
            self._run(position, path, kind, kind.rooms)

    def close(self) -> None:
        """Break the cycles through the CTAs that are kept, so that their memory is free now."""
        for kind in self.kinds.values():
            for known in kind.replayed.values():
                if known is not None:
                    known[1].close()

    def _run(self, position: Position, path: ControlPath, kind: Kind, rooms: list[np.ndarray]) -> None:
        clipped = path.clipped(rooms)
        if clipped not in kind.replayed:
            self._record(position, path, kind)
            return
        known = kind.replayed[clipped]
        if known is None:
            self.simulation.run([position])
        else:
            first, replayed = known
            replayed.run(position, path.distances(first))
            self.missed -= 1

    def _path(self, position: Position) -> ControlPath | None:
        """What goes wrong here goes wrong again when the CTA runs, and is reported then."""
        try:
            return ControlPath(self.simulation.lowered, self.simulation.grid, position)
        except Exception:
            self._miss()
            return None

    def _miss(self) -> None:
        self.missed += 1
        self.looking = self.missed < MAX_MISSED

    def _record(self, position: Position, path: ControlPath, kind: Kind | None) -> None:
        """Run in full, and keep what was done for those that do the same."""
        self._miss()
        if self.logs >= MAX_KINDS:
            self.simulation.run([position])
            return
        self.logs += 1
        log, counts = ReplayLog(), self.simulation.lowered.counts
        before = dict(counts)
        (cta,) = self.simulation.run([position], log, self.simulation.lowered.main_with(logging(log)))
        executed = {name: count - before.get(name, 0) for name, count in counts.items()}
        kind = kind or self.kinds.setdefault(path.key, Kind(log.rooms_of(path.places, len(cta.warps))))
        clean = log.usable and kind.rooms is not None and not log.findings
        if kind.rooms is not None:
            kind.replayed[path.clipped(kind.rooms)] = (path, Replayed(cta, log, executed, counts)) if clean else None
        log.close()
        if not clean:
            cta.close()
