"""A listener that records the events of the first SM in a run with a clock.

Tracks: each part of the SM that serves one operation after the other, the warps of its CTAs, by slot, and their
mbarriers. A new CTA gets the slot of one that has left. A phase begins with its first signal.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import replace

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.description import Instruction
from blackwell_matmul.simulator.listener import Listener
from blackwell_matmul.simulator.machine.barrier import Mbarrier
from blackwell_matmul.simulator.machine.cta import Cta, Warp
from blackwell_matmul.simulator.machine.memory import Region
from blackwell_matmul.simulator.machine.operation import AsyncOperation
from blackwell_matmul.simulator.trace.recorded import BarrierState, TimelineEvent
from blackwell_matmul.simulator.trace.timeline import Timeline

WAITS = "waits for "
"""Prefix of the name of an event in which a warp waits."""

FIRST = "slot 0: "


class CycleRecorder(Listener):
    def __init__(self) -> None:
        self.events: list[TimelineEvent] = []
        self.sources: dict[str, str] = {}
        self.parts: dict[str, None] = {}
        self.slots: dict[Cta, int] = {}  # of running CTAs
        self.begun: dict[Cta, float] = {}
        self.states: dict[Mbarrier, list[BarrierState]] = {}  # the last state in each cycle
        self.touched: dict[AsyncOperation, str] = {}
        self.tellers: dict[str, str] = {}  # operation that signals it, by mbarrier name
        self.concerned: dict[Mbarrier, list[float]] = defaultdict(list)  # cycles of signals of open phases

    def started(self, cta: Cta) -> None:
        if cta.rank == 0:
            taken = set(self.slots.values())
            self.slots[cta] = next(slot for slot in range(len(taken) + 1) if slot not in taken)
            self.begun[cta] = cta.engine.time

    def returned(self, warp: Warp) -> None:
        if all(each.returned for each in warp.cta.warps):
            self.slots.pop(warp.cta, None)

    def took(self, warp: Warp, instruction: Instruction, start: float, end: float) -> None:
        if warp.cta in self.slots and end > start:
            self._add(self._warp(warp), instruction.name, start, end, instruction.location, _of(warp.cta))

    def stood(self, warp: Warp, location: Location | None, what: str, start: float, end: float) -> None:
        if warp.cta in self.slots and end > start:
            text = f", signalled by {self.tellers[what]}" if what in self.tellers else ""
            self._add(self._warp(warp), WAITS + what, start, end, location, f"{_of(warp.cta)}{text}")

    def issued(self, op: AsyncOperation, warp: Warp, instruction: Instruction, regions: Mapping[str, Region]) -> None:
        self.touched[op] = ", ".join(dict.fromkeys(map(str, regions.values())))
        if op.barrier is not None:
            self.concerned[op.barrier].append(warp.cta.engine.time)

    def served(self, part: str, sm: int, what: AsyncOperation | Instruction, start: float, end: float) -> None:
        if sm == 0 and end > start:
            self.parts[part] = None
            self._add(part, what.name, start, end, what.location, self._operands(what))

    def completed(self, op: AsyncOperation, put_off: bool) -> None:
        self.touched.pop(op, None)
        if op.barrier is not None:
            self.tellers[op.barrier.name] = op.name

    def announced(self, barrier: Mbarrier, count_bytes: int, location: Location | None) -> None:
        self.concerned[barrier].append(barrier.cta.engine.time)

    def counted(self, barrier: Mbarrier) -> None:
        if barrier.cta not in self.slots:
            return
        track, now = self._in_slot(barrier.cta, barrier.name), barrier.cta.engine.time
        fresh = BarrierState(track, self.begun[barrier.cta], 0, barrier.expected, barrier.expected, 0)
        states = self.states.setdefault(barrier, [fresh])
        if states[-1].cycle == now:
            states.pop()
        states.append(BarrierState(track, now, barrier.phase, barrier.pending, barrier.expected, barrier.tx_bytes))

    def phase_ended(self, barrier: Mbarrier, phase: int) -> None:
        """Record a phase. Signals of warps that run ahead, after this cycle, belong to the next phase."""
        now: float = barrier.cta.engine.time
        told = self.concerned[barrier]
        self.concerned[barrier] = [each for each in told if each > now]
        if barrier.cta in self.slots:
            track, parity = self._in_slot(barrier.cta, barrier.name), f"{_of(barrier.cta)}, parity {phase & 1}"
            self._add(track, f"phase {phase}", min([now, *told]), now, barrier.location, parity)

    def timeline(self, kernel: str, gpu: str, part: str, ghz: float, cycles: float) -> Timeline:
        """Return the timeline. cycles: of the run. With a single slot, names omit the slot."""
        alone = FIRST if all(each.track in self.parts or each.track.startswith(FIRST) for each in self.events) else ""
        found = [replace(each, track=each.track.removeprefix(alone)) for each in self.events]
        slotted = sorted({each.track for each in self.events} - self.parts.keys(), key=_place)
        tracks = (*self.parts, *(track.removeprefix(alone) for track in slotted))
        found.sort(key=lambda each: each.start_cycles)
        every = [replace(each, track=each.track.removeprefix(alone)) for own in self.states.values() for each in own]
        states = tuple(sorted(every, key=lambda each: each.cycle))
        return Timeline(kernel, gpu, part, ghz, 0.0, cycles, tracks, tuple(found), self.sources, states)

    def _add(self, track: str, name: str, start: float, end: float, location: Location | None, detail: str) -> None:
        self.events.append(TimelineEvent(track, name, start, end, self._line(location), detail))

    def _operands(self, what: AsyncOperation | Instruction) -> str:
        if isinstance(what, Instruction):
            return ""
        return ", ".join(filter(None, (_of(what.cta), self.touched.get(what))))

    def _line(self, location: Location | None) -> str:
        if location is None:
            return ""
        if location.short not in self.sources:
            self.sources[location.short] = location.code
        return location.short

    def _warp(self, warp: Warp) -> str:
        return self._in_slot(warp.cta, f"warp {warp.index}")

    def _in_slot(self, cta: Cta, name: str) -> str:
        return f"slot {self.slots[cta]}: {name}"


def _place(track: str) -> tuple[object, ...]:
    """Return a sort key: by slot warps and then mbarriers, by number."""
    slot, name = track.split(": ", 1)
    words = [int(each) if each.isdigit() else each for each in re.split(r"(\d+)", name)]
    return int(slot.removeprefix("slot ")), not name.startswith("warp "), words


def _of(cta: Cta) -> str:
    return f"CTA {cta.position}"
