"""Timeline data of one SM, predicted or measured, also in Chrome's Trace Event Format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, Self

INSTANT, SLICE, META = "i", "X", "M"

GROUPS = ("predicted", "measured")
"""Prefixes of track names in a timeline of both: above and below."""

TITLES = {
    (True, False): "predicted, not measured",
    (False, True): "measured",
    (True, True): "predicted above, measured below",
}
"""Titles by (predicted, measured)."""


@dataclass(frozen=True)
class TimelineEvent:
    """An event between two cycles, which are equal for an instant. track: its agent or subject. line: "file.py:12", or
    ""."""

    track: str
    name: str
    start_cycles: float
    end_cycles: float
    line: str = ""
    detail: str = ""


@dataclass(frozen=True)
class BarrierState:
    """State of an mbarrier from a cycle on: pending and expected arrivals of this phase, and pending bytes."""

    track: str
    cycle: float
    phase: int
    pending: int
    expected: int
    tx_bytes: int


@dataclass(frozen=True)
class Recorded:
    """Data of a `Timeline`, whose docstring has the fields."""

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
        """Return the origin of cycles: a prediction includes the launch before the first CTA starts."""
        return "the launch" if self.predicted else "the start of the first CTA"

    def above(self, below: Recorded) -> Self:
        """Return this prediction above a measurement of the same kernel, aligned by the first event of a warp. Each
        keeps its own cycles; times are by the clock of the prediction."""
        return replace(
            self, gpu=" and ".join(dict.fromkeys((self.gpu, below.gpu))),
            part=f"{self.part}, and {below.part}",
            **_both(self, below, _first(self) - _first(below)), measured=True,
        )  # fmt: skip

    def busy_cycles(self, track: str) -> float:
        """Return the busy cycles of a track."""
        return sum(each.end_cycles - each.start_cycles for each in self.events if each.track == track)

    def between(self, start_cycles: float, end_cycles: float) -> Self:
        """Return the part between these cycles; events are cut at its ends."""
        start, end = max(start_cycles, self.start_cycles), min(end_cycles, self.end_cycles)
        cut = (
            replace(each, start_cycles=max(start, each.start_cycles), end_cycles=min(end, each.end_cycles))
            for each in self.events
            if each.start_cycles < end and each.end_cycles > start
        )
        states = self._states_between(start, end)
        return replace(self, start_cycles=start, end_cycles=end, events=tuple(cut), barriers=states)

    def _states_between(self, start: float, end: float) -> tuple[BarrierState, ...]:
        """Return each barrier's state at the start, and its later changes."""
        at_start = {each.track: replace(each, cycle=start) for each in self.barriers if each.cycle <= start}
        return (*at_start.values(), *(each for each in self.barriers if start < each.cycle <= end))

    def as_chrome_trace(self) -> dict[str, object]:
        """Return data for ui.perfetto.dev and chrome://tracing: ts and dur in µs, whole ns, without overlaps."""
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
    """Return 2 for measurements next to a prediction, otherwise 1."""
    return 2 if track.startswith(f"{GROUPS[1]}: ") else 1


def _first(each: Recorded) -> float:
    """Return the start of the first event of a warp."""
    starts = [event.start_cycles for event in each.events if "warp " in event.track]
    return min(starts, default=each.start_cycles)


def _both(above: Recorded, below: Recorded, later: float) -> dict[str, Any]:
    """Return the fields of a timeline of both; `below` is moved by `later` cycles."""
    moved = [
        replace(each, start_cycles=each.start_cycles + later, end_cycles=each.end_cycles + later)
        for each in below.events
    ]
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
