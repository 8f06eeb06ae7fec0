"""Listeners that follow the stages of shared memory from a load to its readers, and to the next load."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.description import Access, Effect, Instruction, Space
from blackwell_matmul.simulator.listener import Listener
from blackwell_matmul.simulator.machine.barrier import Mbarrier
from blackwell_matmul.simulator.machine.cta import Cta, Warp
from blackwell_matmul.simulator.machine.memory import Box, Region, Storage, meet
from blackwell_matmul.simulator.machine.operation import AsyncOperation

Place = tuple[Storage, Box]


@dataclass
class Stage:
    """Cycles of a stage's last lap. filled: issue of the load. full: its end. read: the end of its last reader."""

    filled: float
    full: float = 0.0
    read: float = 0.0


class StageWatch(Listener):
    """Measures finished laps of the first SM's stages. Sums over laps: arriving, from the issue of a load to its end;
    held, from there to the end of the last reader; idle, from there to the next load.

    waiting: part of idle for which the loading warp stood at its wait. names: mbarriers of loads, one for each stage.
    multiplied: MMAs read the stages.
    """

    def __init__(self) -> None:
        self.laps, self.arriving, self.held, self.idle, self.waiting = 0, 0.0, 0.0, 0.0, 0.0
        self.names: set[str] = set()
        self.multiplied = False
        self.phases = self.bytes = 0
        self._stages: dict[Place, Stage] = {}
        self._read: dict[AsyncOperation, list[Stage]] = {}
        self._stored: dict[AsyncOperation, list[Stage]] = {}
        self._loads: dict[AsyncOperation, Stage] = {}
        self._stood: dict[Warp, tuple[float, float]] = {}

    @property
    def stages(self) -> int:
        return len(self.names)

    @property
    def stage_bytes(self) -> float:
        return self.bytes / max(1, self.phases)

    @property
    def lap(self) -> tuple[float, float, float]:
        """Mean cycles of a lap: arriving, held and idle."""
        laps = max(1, self.laps)
        return self.arriving / laps, self.held / laps, self.idle / laps

    def issued(self, op: AsyncOperation, warp: Warp, instruction: Instruction, regions: Mapping[str, Region]) -> None:
        if op.cta.rank:
            return
        now, into = warp.cta.engine.time, regions.get("dst")
        if op.barrier is not None and into is not None and "src" in regions:
            self.names.add(op.barrier.name)
            self.bytes += math.prod(end - start for start, end in into.box) * into.storage.item.nbits // 8
            self._loads[op] = self._filled((into.storage, into.box), now, warp)
        elif "a" in regions:
            self._read[op] = self._of(*regions.values())
            self.multiplied |= bool(self._read[op])
        elif "src" in regions:
            self._stored[op] = self._of(regions["src"])

    def waited(self, op: AsyncOperation, warp: Warp, instruction: Instruction, reads: bool) -> None:
        for stage in self._stored.pop(op, ()):
            stage.read = warp.cta.engine.time

    def accessed(self, warp: Warp, instruction: Instruction, effect: Effect, region: Region) -> None:
        if (effect.space, effect.access) == (Space.SHARED, Access.READ) and not warp.cta.rank:
            for stage in self._of(region):
                stage.read = warp.cta.engine.time

    def _of(self, *regions: Region) -> list[Stage]:
        """Return the stages that overlap with these regions."""
        places = [(each.storage, each.box) for each in regions]
        return [
            stage
            for (storage, box), stage in self._stages.items()
            if any(each is storage and meet(read, box) for each, read in places)
        ]

    def stood(self, warp: Warp, location: Location | None, what: str, start: float, end: float) -> None:
        self._stood[warp] = start, end

    def _filled(self, place: Place, now: float, warp: Warp) -> Stage:
        last = self._stages.get(place)
        if last is not None and last.read > last.full:
            self.laps += 1
            self.arriving += last.full - last.filled
            self.held += last.read - last.full
            self.idle += now - last.read
            start, end = self._stood.get(warp, (now, now))
            self.waiting += max(0.0, end - max(start, last.read))
        stage = self._stages[place] = Stage(now)
        return stage

    def completed(self, op: AsyncOperation, put_off: bool) -> None:
        now = op.cta.engine.ended(op)
        if op in self._loads:
            self._loads.pop(op).full = now
        for stage in self._read.pop(op, ()):
            stage.read = now

    def phase_ended(self, barrier: Mbarrier, phase: int) -> None:
        if barrier.name in self.names and not barrier.cta.rank:
            self.phases += 1


class TwiceWatch(Listener):
    """Counts elements that the first SM loads. again: elements that another load brings into the same stage, too.
    apart: elements of `again` that are stored at a second place. lines: lines of those loads."""

    def __init__(self) -> None:
        self.elements = self.again = self.apart = 0
        self.lines: set[Location] = set()
        self._seen: dict[tuple[Cta, str, int, Place], Place] = {}

    @property
    def share(self) -> float:
        return self.again / max(1, self.elements)

    def issued(self, op: AsyncOperation, warp: Warp, instruction: Instruction, regions: Mapping[str, Region]) -> None:
        source, into = regions.get("src"), regions.get("dst")
        if op.cta.rank or op.barrier is None or source is None or into is None:
            return
        count = math.prod(end - start for start, end in source.box)
        load = op.cta, op.barrier.name, op.barrier.phase, (source.storage, source.box)
        place = into.storage, into.box
        self.elements += count
        if self._seen.setdefault(load, place) is not place:
            self.again += count
            self.apart += count * (self._seen[load] != place)
            self.lines |= {instruction.location} if instruction.location else set()
