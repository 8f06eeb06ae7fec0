"""What ran when in a predicted run of one SM, as plain data, and as Chrome's Trace Event Format has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Self

INSTANT, SLICE, META = "i", "X", "M"


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

    @property
    def title(self) -> str:
        return f"{self.kernel}, {self.gpu}: predicted, not measured"

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
        names = [_meta("process_name", 0, name=self.title)]
        for track, row in rows.items():
            names += [_meta("thread_name", row, name=track), _meta("thread_sort_index", row, sort_index=row)]
        events = [self._chrome_event(each, rows[each.track]) for each in self.events]
        other = {
            "predicted": self.predicted,
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
        return {"name": each.name, "pid": 1, "tid": row, "ts": start / 1e3, **kind, "args": args}


def _meta(what: str, row: int, **args: object) -> dict[str, object]:
    return {"ph": META, "name": what, "pid": 1, "tid": row, "args": args}
