"""A timeline as a PNG picture; matplotlib is imported only for one."""

from __future__ import annotations

import importlib
import io
from collections import defaultdict
from typing import Any

from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.simulator.trace.recorded import Recorded
from blackwell_matmul.simulator.trace.timeline_picture import (
    BOTTOM,
    TOP,
    WIDTH,
    Bar,
    Picture,
    VerticalLine,
    Words,
    picture_of,
)
from blackwell_matmul.simulator.trace.timeline_style import BAR_STYLES, LIGHT

PIXELS = 2
"""Pixels of the file for each pixel of the picture."""

SIDES = {"start": "left", "middle": "center", "end": "right"}


def as_png(timeline: Recorded) -> bytes:
    """Return a PNG file on a light page."""
    figures, picture = _of_matplotlib("figure"), picture_of(timeline)
    figure = figures.Figure(figsize=(WIDTH / 100, picture.height / 100), facecolor=LIGHT["page"])
    axes = figure.add_axes((0, 0, 1, 1))
    axes.set(xlim=(0, WIDTH), ylim=(picture.height, 0))
    axes.axis("off")
    _draw(axes, picture)
    content = io.BytesIO()
    figure.savefig(content, format="png", dpi=100 * PIXELS)
    return content.getvalue()


def _draw(axes: Any, picture: Picture) -> None:
    collections = _of_matplotlib("collections")
    rules = [each.x for each in picture.marks if isinstance(each, VerticalLine)]
    axes.vlines(rules, TOP - 4, picture.height - BOTTOM, colors=LIGHT["rule"], linewidths=0.7, zorder=0)
    for kind, shapes in _shapes(picture).items():
        axes.add_collection(collections.PolyCollection(shapes, facecolors=BAR_STYLES[kind][1], linewidths=0))
    for each in picture.marks:
        if isinstance(each, Words):
            _write(axes, each)


def _of_matplotlib(name: str) -> Any:
    try:
        return importlib.import_module(f"matplotlib.{name}")
    except ImportError:
        raise UnsupportedError(
            "a .png needs matplotlib, which is not installed; pip install 'blackwell-matmul[png]', or write an .svg."
        ) from None


def _shapes(picture: Picture) -> dict[str, list[list[tuple[float, float]]]]:
    """Return the corners of the boxes, by kind."""
    found: dict[str, list[list[tuple[float, float]]]] = defaultdict(list)
    for each in picture.marks:
        if isinstance(each, Bar):
            right, below = each.x + each.width, each.y + each.height
            found[each.kind].append([(each.x, each.y), (right, each.y), (right, below), (each.x, below)])
    return found


def _write(axes: Any, words: Words) -> None:
    title = words.style == "title"
    look = {"size": 10 if title else 7, "weight": "bold" if title else "normal"}
    axes.text(words.x, words.y, words.text, color=LIGHT["faint" if words.style == "faint" else "text"],
              ha=SIDES[words.anchor], va="baseline", family="DejaVu Sans", **look)  # fmt: skip
