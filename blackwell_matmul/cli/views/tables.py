"""Tables of all views, without lines and with dim headings."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:
    from rich.console import RenderableType


class Column(NamedTuple):
    """A column. long: "whole" keeps a wide text on one line, "wraps" breaks at spaces, "folds" at any character."""

    heading: str = ""
    justify: Literal["left", "right"] = "left"
    long: Literal["whole", "wraps", "folds"] = "whole"


class TableRow(NamedTuple):
    """Cells of a row, and their common style."""

    cells: Sequence[RenderableType]
    style: str = ""


def numbers(*headings: str) -> list[Column]:
    return [Column(heading, "right") for heading in headings]


def table(
    columns: Iterable[Column],
    rows: Iterable[TableRow],
    padding: tuple[int, int, int, int] = (0, 2, 0, 0),
    show_header: bool = True,
    pad_edge: bool = True,
) -> RenderableType:
    from rich.table import Table

    drawn = Table(box=None, padding=padding, header_style="dim", show_header=show_header, pad_edge=pad_edge)
    for heading, justify, long in columns:
        overflow: Literal["fold", "ellipsis"] = "fold" if long == "folds" else "ellipsis"
        drawn.add_column(heading, justify=justify, no_wrap=long == "whole", overflow=overflow)
    for row in rows:
        drawn.add_row(*row.cells, style=row.style)
    return drawn
