"""What the pictures of the tutorials are drawn on: a white card, its colours and its letters, which are paths."""

from __future__ import annotations

from collections.abc import Sequence

import matplotlib

matplotlib.use("svg")

from matplotlib import pyplot as plt
from matplotlib.patches import FancyBboxPatch, PathPatch, Rectangle
from matplotlib.path import Path

INK, QUIET, LINE, FAINT = "#1f2328", "#57606a", "#d0d7de", "#eef0f3"
WARP, COPY, TENSOR, STORE = "#3b6ea5", "#2c8c7c", "#d9761a", "#7a5ea8"
COPY_LIGHT, COPY_DARK, TENSOR_LIGHT, WAIT = "#bfe0d9", "#1f5f8b", "#e39447", "#f6f7f9"
STYLE = {
    "svg.hashsalt": "blackwell_matmul",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "hatch.linewidth": 0.6,
    "hatch.color": "#b6bec8",
}


class Canvas:
    """A white card of some inches; x to the right, y down."""

    def __init__(self, width: float, height: float, title: str) -> None:
        self.figure = plt.figure(figsize=(width, height))
        self.figure.patch.set_alpha(0)
        self.axes = self.figure.add_axes((0, 0, 1, 1))
        self.axes.set(xlim=(0, width), ylim=(height, 0))
        self.axes.axis("off")
        card = FancyBboxPatch((0.03, 0.03), width - 0.06, height - 0.06, boxstyle="round,pad=0,rounding_size=0.09")
        card.set(facecolor="white", edgecolor=LINE, linewidth=1, zorder=0)
        self.axes.add_patch(card)
        self.text(0.16, 0.24, title, 9.5, INK, weight="bold")

    def text(self, x: float, y: float, text: str, size: float = 7.5, color: str = QUIET, **options: object) -> None:
        """A text that begins at (x, y), or lies around it with ha="center"; y is its middle."""
        self.axes.text(x, y, text, **({"size": size, "color": color, "ha": "left", "va": "center"} | options))

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        color: str,
        text: str = "",
        size: float = 6.5,
        ink: str = "white",
        **options: object,
    ) -> None:
        """A filled box with a text in its middle; options are those of a matplotlib patch."""
        look = {"edgecolor": "white", "linewidth": 0.8} | options
        self.axes.add_patch(Rectangle((x, y), width, height, facecolor=color, **look))
        if text:
            self.text(x + width / 2, y + height / 2, text, size, ink, ha="center")

    def boxes(
        self, spans: Sequence[tuple[float, float]], y: float, height: float, color: str, **options: object
    ) -> None:
        """Many boxes as one path: from left to right, at one height."""
        corners = [[(a, y), (b, y), (b, y + height), (a, y + height), (a, y)] for a, b in spans]
        codes = [Path.MOVETO, Path.LINETO, Path.LINETO, Path.LINETO, Path.CLOSEPOLY] * len(spans)
        if spans:
            path = Path([corner for box in corners for corner in box], codes)
            self.axes.add_patch(PathPatch(path, **({"facecolor": color, "linewidth": 0} | options)))

    def line(
        self, x0: float, y0: float, x1: float, y1: float, color: str = FAINT, width: float = 0.8, dashed=False
    ) -> None:
        self.axes.plot([x0, x1], [y0, y1], color=color, linewidth=width, linestyle=(0, (4, 3)) if dashed else "-")

    def rule(self, x: float, top: float, bottom: float) -> None:
        """A line behind everything else."""
        self.axes.plot([x, x], [top, bottom], color=FAINT, linewidth=0.8, zorder=0.5)

    def triangle(self, x: float, y: float) -> None:
        self.axes.plot([x], [y], "^", color=INK, markersize=4, zorder=5)
