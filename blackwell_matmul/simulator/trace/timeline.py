"""What ran when in a predicted run of one SM, as plain data, and as Chrome's Trace Event Format has it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

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
class Timeline:
    """Events of each track by their start; on one track they do not overlap. start_cycles, end_cycles: what is shown,
    counted from the launch. part: which part of the SM's work it is. ghz: the clock. tracks: from top to bottom.
    sources: the text of each line."""

    kernel: str
    gpu: str
    part: str
    ghz: float
    start_cycles: float
    end_cycles: float
    tracks: tuple[str, ...]
    events: tuple[TimelineEvent, ...]
    sources: Mapping[str, str]
    predicted: bool = True

    @property
    def title(self) -> str:
        return f"{self.kernel}, {self.gpu}: predicted, not measured"

    def busy_cycles(self, track: str) -> float:
        """For how long something is on a track."""
        return sum(each.end_cycles - each.start_cycles for each in self.events if each.track == track)

    def between(self, start_cycles: float, end_cycles: float) -> Timeline:
        """What lies in these cycles, events cut at their ends."""
        start, end = max(start_cycles, self.start_cycles), min(end_cycles, self.end_cycles)
        cut = (
            replace(each, start_cycles=max(start, each.start_cycles), end_cycles=min(end, each.end_cycles))
            for each in self.events
            if each.start_cycles < end and each.end_cycles > start
        )
        return replace(self, start_cycles=start, end_cycles=end, events=tuple(cut))

    def as_chrome_trace(self) -> dict[str, object]:
        """For ui.perfetto.dev and chrome://tracing: ts and dur in µs, whole ns, so that neighbours do not overlap."""
        rows = {track: number for number, track in enumerate(self.tracks, 1)}
        names = [_meta("process_name", 0, name=self.title)]
        for track, row in rows.items():
            names += [_meta("thread_name", row, name=track), _meta("thread_sort_index", row, sort_index=row)]
        events = names + [self._chrome_event(each, rows[each.track]) for each in self.events]
        other = {
            "predicted": self.predicted,
            "kernel": self.kernel,
            "gpu": self.gpu,
            "part": self.part,
            "GHz": self.ghz,
        }
        return {"traceEvents": events, "displayTimeUnit": "ns", "otherData": other}

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
