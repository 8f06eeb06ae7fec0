"""A timeline as an SVG picture for pages."""

from __future__ import annotations

from html import escape

from blackwell_matmul.base.validation import printable
from blackwell_matmul.simulator.trace.recorded import Recorded
from blackwell_matmul.simulator.trace.timeline_picture import BOTTOM, TOP, WIDTH, Bar, Mark, VerticalLine, picture_of
from blackwell_matmul.simulator.trace.timeline_style import BAR_STYLES, colours

TIMELINE_STYLE = (
    "text{font:11px system-ui,sans-serif;fill:var(--text)}.faint{fill:var(--faint)}"
    ".title{font-size:14px;font-weight:600}" + "".join(f".{kind}{{fill:var(--{kind})}}" for kind in BAR_STYLES)
)


def as_svg(timeline: Recorded) -> str:
    picture = picture_of(timeline)
    size = f'width="{WIDTH}" height="{picture.height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {picture.height}" {size}>',
        f"<style>{colours()}{TIMELINE_STYLE}</style>",
        f'<rect {size} fill="var(--page)"/>',
        *(_element(mark, picture.height) for mark in picture.marks),
        "</svg>",
    ]
    return "\n".join(parts) + "\n"


def _xml(text: str) -> str:
    """Escape text for XML 1.0, which has no control characters, not even as references."""
    return escape(printable(text))


def _element(mark: Mark, height: int) -> str:
    if isinstance(mark, VerticalLine):
        return f'<path d="M{mark.x:.1f} {TOP - 4}V{height - BOTTOM}" stroke="var(--rule)"/>'
    if isinstance(mark, Bar):
        return _bar(mark)
    style = f' class="{mark.style}"' if mark.style else ""
    return f'<text x="{mark.x:.1f}" y="{mark.y:.1f}"{style} text-anchor="{mark.anchor}">{_xml(mark.text)}</text>'


def _bar(bar: Bar) -> str:
    place = f'x="{bar.x:.1f}" y="{bar.y}" width="{bar.width:.1f}" height="{bar.height}" class="{bar.kind}"'
    return f"<rect {place}><title>{_xml(bar.told)}</title></rect>" if bar.told else f"<rect {place}/>"
