"""What ran when on one SM, predicted or measured, as plain data, and as Chrome's Trace Event Format has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

INSTANT, SLICE, META = "i", "X", "M"

GROUPS = ("predicted", "measured")
"""How the names of tracks begin where both are in one timeline: above and below."""

TITLES = {
    (True, False): "predicted, not measured",
    (False, True): "measured",
    (True, True): "predicted above, measured below",
}
"""By whether it is predicted and whether it is measured."""


@dataclass(frozen=True)
class TimelineEvent:
    """From one cycle to another; both are the same where something merely happens. track: who or what it concerns.
    line: "file.py:12", or "" where no line says it."""

    track: str
    name: str
    start_cycles: float
    end_cycles: float
    line: str = ""
    detail: str = ""


@dataclass(frozen=True)
class BarrierState:
    """What an mbarrier counts from a cycle on: pending of the expected arrivals are missing in this phase, and so many
    bytes. track: the barrier's."""

    track: str
    cycle: float
    phase: int
    pending: int
    expected: int
    tx_bytes: int


@dataclass(frozen=True)
class Recorded:
    """The data of a `Timeline`, which says what it means."""

    kernel: str
    gpu: str
    part: str
    ghz: float
    start_cycles: float
    end_cycles: float
    tracks: tuple[str, ...]
    events: tuple[TimelineEvent, ...]
    sources: Mapping[str, str]
    barriers: tuple[BarrierState, ...] = ()
    predicted: bool = True
    measured: bool = False

    @property
    def title(self) -> str:
        return f"{self.kernel}, {self.gpu}: {TITLES[self.predicted, self.measured]}"

    @property
    def zero(self) -> str:
        """What cycles are counted from: the prediction has what a launch takes before the first CTA starts."""
        return "the launch" if self.predicted else "the start of the first CTA"

    def above(self, below: Recorded) -> Self:
        """This prediction and what was measured of the same kernel, which is moved such that both begin at once: the
        first event of a warp. Each keeps its own cycles; times are by the clock of the prediction."""
        return replace(
            self, gpu=" and ".join(dict.fromkeys((self.gpu, below.gpu))),
            part=f"{self.part}, and {below.part}",
            **_both(self, below, _first(self) - _first(below)), measured=True,
        )  # fmt: skip

    def busy_cycles(self, track: str) -> float:
        """For how long something is on a track."""
        return sum(each.end_cycles - each.start_cycles for each in self.events if each.track == track)

    def between(self, start_cycles: float, end_cycles: float) -> Self:
        """What lies in these cycles, events cut at their ends."""
        start, end = max(start_cycles, self.start_cycles), min(end_cycles, self.end_cycles)
        cut = (
            replace(each, start_cycles=max(start, each.start_cycles), end_cycles=min(end, each.end_cycles))
            for each in self.events
            if each.start_cycles < end and each.end_cycles > start
        )
        states = self._states_between(start, end)
        return replace(self, start_cycles=start, end_cycles=end, events=tuple(cut), barriers=states)

    def _states_between(self, start: float, end: float) -> tuple[BarrierState, ...]:
        """Each barrier's state at the start, and the changes after it."""
        at_start = {each.track: replace(each, cycle=start) for each in self.barriers if each.cycle <= start}
        return (*at_start.values(), *(each for each in self.barriers if start < each.cycle <= end))

    def as_chrome_trace(self) -> dict[str, object]:
        """For ui.perfetto.dev and chrome://tracing: ts and dur in µs, whole ns, so that neighbours do not overlap."""
        rows = {track: number for number, track in enumerate(self.tracks, 1)}
        processes = dict.fromkeys(map(_process, self.tracks))
        told = {1: self.title} if len(processes) < 2 else {1: f"{self.title}: predicted", 2: f"{self.title}: measured"}
        names = [_meta("process_name", process, 0, name=told[process]) for process in processes or (1,)]
        for track, row in rows.items():
            process = _process(track)
            names.append(_meta("thread_name", process, row, name=track))
            names.append(_meta("thread_sort_index", process, row, sort_index=row))
        events = [self._chrome_event(each, rows[each.track]) for each in self.events]
        other = {
            "predicted": self.predicted,
            "measured": self.measured,
            "kernel": self.kernel,
            "gpu": self.gpu,
            "part": self.part,
            "GHz": self.ghz,
        }
        return {"traceEvents": [*names, *events], "displayTimeUnit": "ns", "otherData": other}

    def _chrome_event(self, each: TimelineEvent, row: int) -> dict[str, object]:
        start, end = round(each.start_cycles / self.ghz), round(each.end_cycles / self.ghz)
        kind = {"ph": SLICE, "dur": (end - start) / 1e3} if end > start else {"ph": INSTANT, "s": "t"}
        args = {
            "cycles": [round(each.start_cycles, 1), round(each.end_cycles, 1)], "line": each.line,
            "source": self.sources.get(each.line, ""), "detail": each.detail,
        }  # fmt: skip
        return {"name": each.name, "pid": _process(each.track), "tid": row, "ts": start / 1e3, **kind, "args": args}


def _meta(what: str, process: int, row: int, **args: object) -> dict[str, object]:
    return {"ph": META, "name": what, "pid": process, "tid": row, "args": args}


def _process(track: str) -> int:
    """2 for what was measured beside a prediction; all else is in one group."""
    return 2 if track.startswith(f"{GROUPS[1]}: ") else 1


def _first(each: Recorded) -> float:
    """When the first event of a warp begins."""
    starts = [event.start_cycles for event in each.events if "warp " in event.track]
    return min(starts, default=each.start_cycles)


def _both(above: Recorded, below: Recorded, later: float) -> dict[str, Any]:
    """What a timeline of both has; below: so many cycles later than it says itself."""
    moved = [
        replace(each, start_cycles=each.start_cycles + later, end_cycles=each.end_cycles + later)
        for each in below.events
    ]  # fmt: skip
    groups = [[replace(each, track=f"{group}: {each.track}") for each in events]
              for group, events in zip(GROUPS, (above.events, moved))]  # fmt: skip
    return {
        "tracks": tuple(f"{group}: {track}" for group, each in zip(GROUPS, (above, below)) for track in each.tracks),
        "events": tuple(sorted((*groups[0], *groups[1]), key=lambda each: each.start_cycles)),
        "barriers": tuple(replace(each, track=f"{GROUPS[0]}: {each.track}") for each in above.barriers),
        "start_cycles": min(above.start_cycles, below.start_cycles + later),
        "end_cycles": max(above.end_cycles, below.end_cycles + later),
        "sources": {**below.sources, **above.sources},
    }
