"""A timeline as boxes, rules and words at places in pixels, for any drawing code."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from blackwell_matmul.simulator.trace.recorded import Recorded, TimelineEvent
from blackwell_matmul.simulator.trace.timeline_style import BAR_STYLES, kind_of

WIDTH, LABELS, ROW, TOP, BOTTOM = 1200, 190, 18, 66, 14

TICKS = 8
"""Number of ticks, about."""

NEAR = 0.4
"""Pixels below which neighbours of one kind become one box."""

POINTED = 2
"""Pixels from which on a box has a tooltip."""


@dataclass(frozen=True)
class Bar:
    """A box. told: its tooltip; empty if the box is too narrow."""

    x: float
    y: float
    width: float
    height: float
    kind: str
    told: str = ""


@dataclass(frozen=True)
class VerticalLine:
    """A vertical line from top to bottom."""

    x: float


@dataclass(frozen=True)
class Words:
    """Text. style: "title", "faint" or none. anchor: its end or middle at x."""

    x: float
    y: float
    text: str
    style: str = ""
    anchor: str = "start"


Mark = Bar | VerticalLine | Words


@dataclass(frozen=True)
class Picture:
    """Marks to draw. marks: in drawing order."""

    height: int
    marks: tuple[Mark, ...]


def picture_of(timeline: Recorded) -> Picture:
    some = {each.track for each in timeline.events}
    timeline = replace(timeline, tracks=tuple(track for track in timeline.tracks if track in some))
    height = TOP + ROW * len(timeline.tracks) + BOTTOM
    title = Words(10, 20, timeline.title, "title")
    return Picture(height, (title, *_legend(timeline), *_axis(timeline), *_rows(timeline)))


def tick_cycles(cycles: float) -> int:
    """Return 1, 2 or 5 times a power of ten, at least one cycle."""
    step = 1
    for factor in (2, 2.5, 2) * 12:
        if cycles / step <= TICKS:
            break
        step = int(step * factor)
    return step


def _x(timeline: Recorded, cycles: float) -> float:
    span = max(timeline.end_cycles - timeline.start_cycles, 1e-9)
    return LABELS + (cycles - timeline.start_cycles) / span * (WIDTH - LABELS - 30)


def _legend(timeline: Recorded) -> Iterator[Mark]:
    shown, x = {kind_of(each) for each in timeline.events}, 10.0
    for kind, (name, _, _) in BAR_STYLES.items():
        if kind in shown:
            yield Bar(x, 31, 10, 10, kind)
            yield Words(x + 14, 40, name, "faint")
            x += 34 + 6 * len(name)
    yield Words(WIDTH - 10, 20, f"{timeline.part}; {timeline.ghz:.2f} GHz", "faint", "end")


def _axis(timeline: Recorded) -> Iterator[Mark]:
    step = tick_cycles(timeline.end_cycles - timeline.start_cycles)
    at = -(-timeline.start_cycles // step) * step
    while at <= timeline.end_cycles:
        x = _x(timeline, at)
        yield VerticalLine(x)
        yield Words(x, TOP - 8, f"{at:,.0f}", "faint", "middle")
        at += step
    yield Words(10, TOP - 8, "cycles", "faint")


def _rows(timeline: Recorded) -> Iterator[Mark]:
    for number, track in enumerate(timeline.tracks):
        y = TOP + ROW * number
        yield Words(LABELS - 8, y + 12, track, "", "end")
        events = [each for each in timeline.events if each.track == track]
        for first, last in _joined(timeline, events):
            yield _bar(timeline, first, last, y + 2)


def _joined(timeline: Recorded, events: list[TimelineEvent]) -> list[tuple[TimelineEvent, TimelineEvent]]:
    """Return the first and last event of each box; neighbours that are too close to distinguish are joined."""
    found: list[tuple[TimelineEvent, TimelineEvent]] = []
    for each in events:
        if found and kind_of(found[-1][0]) == kind_of(each):
            first, last = found[-1]
            start, end = _x(timeline, last.start_cycles), _x(timeline, last.end_cycles)
            if end - start < 3 and _x(timeline, each.start_cycles) - end < NEAR:
                found[-1] = first, each
                continue
        found.append((each, each))
    return found


def _bar(timeline: Recorded, first: TimelineEvent, last: TimelineEvent, y: float) -> Bar:
    start, end = _x(timeline, first.start_cycles), _x(timeline, last.end_cycles)
    text = f"{first.name}, cycles {first.start_cycles:,.0f} to {last.end_cycles:,.0f}, {first.line}"
    width = max(end - start - 0.3, 0.7)
    return Bar(start, y, width, ROW - 4, kind_of(first), text if end - start >= POINTED else "")
