"""A timeline as a picture for pages."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from html import escape

from blackwell_matmul.simulator.trace.timeline import Timeline, TimelineEvent
from blackwell_matmul.simulator.trace.timeline_style import KINDS, colours, kind_of

WIDTH, LABELS, ROW, TOP, BOTTOM = 1200, 190, 18, 66, 14

TICKS = 8
"""About so many."""

NEAR = 0.4
"""Pixels between neighbours of one kind that become one."""

POINTED = 2
"""Pixels from which on a box says what it is."""

STYLE = (
    "text{font:11px system-ui,sans-serif;fill:var(--text)}.faint{fill:var(--faint)}"
    ".title{font-size:14px;font-weight:600}" + "".join(f".{kind}{{fill:var(--{kind})}}" for kind in KINDS)
)


def as_svg(timeline: Timeline) -> str:
    some = {each.track for each in timeline.events}
    timeline = replace(timeline, tracks=tuple(track for track in timeline.tracks if track in some))
    height = TOP + ROW * len(timeline.tracks) + BOTTOM
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" width="{WIDTH}" height="{height}">',
        f"<style>{colours()}{STYLE}</style>",
        f'<rect width="{WIDTH}" height="{height}" fill="var(--page)"/>',
        _text(10, 20, timeline.title, "title"),
        *_legend(timeline),
        *_axis(timeline, height),
        *_rows(timeline),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def tick_cycles(cycles: float) -> int:
    """1, 2 or 5 times a power of ten, at least one cycle."""
    step = 1
    for factor in (2, 2.5, 2) * 12:
        if cycles / step <= TICKS:
            break
        step = int(step * factor)
    return step


def _x(timeline: Timeline, cycles: float) -> float:
    span = max(timeline.end_cycles - timeline.start_cycles, 1e-9)
    return LABELS + (cycles - timeline.start_cycles) / span * (WIDTH - LABELS - 30)


def _text(x: float, y: float, text: str, style: str = "", anchor: str = "start") -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" class="{style}" text-anchor="{anchor}">{escape(text)}</text>'


def _legend(timeline: Timeline) -> Iterator[str]:
    shown, x = {kind_of(each) for each in timeline.events}, 10.0
    for kind, (name, _, _) in KINDS.items():
        if kind in shown:
            yield f'<rect x="{x}" y="31" width="10" height="10" rx="2" class="{kind}"/>' + _text(
                x + 14, 40, name, "faint"
            )
            x += 34 + 6 * len(name)
    yield _text(WIDTH - 10, 20, f"{timeline.part}; {timeline.ghz:.2f} GHz", "faint", "end")


def _axis(timeline: Timeline, height: int) -> Iterator[str]:
    step = tick_cycles(timeline.end_cycles - timeline.start_cycles)
    at = -(-timeline.start_cycles // step) * step
    while at <= timeline.end_cycles:
        x = _x(timeline, at)
        yield f'<path d="M{x:.1f} {TOP - 4}V{height - BOTTOM}" stroke="var(--rule)"/>'
        yield _text(x, TOP - 8, f"{at:,.0f}", "faint", "middle")
        at += step
    yield _text(10, TOP - 8, "cycles", "faint")


def _rows(timeline: Timeline) -> Iterator[str]:
    for number, track in enumerate(timeline.tracks):
        y = TOP + ROW * number
        yield _text(LABELS - 8, y + 12, track, "", "end")
        events = [each for each in timeline.events if each.track == track]
        for first, last in _joined(timeline, events):
            yield _box(timeline, first, last, y + 2)


def _joined(timeline: Timeline, events: list[TimelineEvent]) -> list[tuple[TimelineEvent, TimelineEvent]]:
    """The first and the last of what becomes one box: neighbours that nobody could tell apart."""
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


def _box(timeline: Timeline, first: TimelineEvent, last: TimelineEvent, y: float) -> str:
    start, end = _x(timeline, first.start_cycles), _x(timeline, last.end_cycles)
    place = f'x="{start:.1f}" y="{y}" width="{max(end - start - 0.3, 0.7):.1f}" height="{ROW - 4}"'
    if end - start < POINTED:
        return f'<rect {place} class="{kind_of(first)}"/>'
    told = f"{first.name}, cycles {first.start_cycles:,.0f} to {last.end_cycles:,.0f}, {first.line}"
    return f'<rect {place} class="{kind_of(first)}"><title>{escape(told)}</title></rect>'
