"""View of `blackwell-matmul check`: a report's paragraphs, coloured and wrapped."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import RenderableType

    from blackwell_matmul.simulator.text import Paragraph, Replay

FINDING_STYLES = {
    "title": "bold", "good": "bold green", "bad": "bold red", "error": "bold red", "unguaranteed": "bold yellow",
    "place": "cyan", "code": "dim", "marked": "bold", "edge": "bold magenta", "here": "bold red", "label": "dim",
    "dim": "dim",
}  # fmt: skip
"""Terminal styles, by the role of a paragraph. Other roles are plain."""


def replay(
    kernel: str,
    size: Sequence[str] | None,
    dtype: str | None,
    schedule: str,
    target: str | None,
    form: Sequence[str] = (),
) -> Replay:
    """Return a function that returns the command for the order of a seed."""
    words = ["blackwell-matmul", "check", kernel, *(("--size", *size) if size else ())]
    words += ["--dtype", dtype] if dtype else []
    words += ["--schedule", schedule] if schedule else []
    words += ["--target", target] if target is not None else []
    words += form
    return lambda seed: shlex.join([*words, "--seed", str(seed)])


def wrapped(paragraph: Paragraph) -> RenderableType:
    """Return a paragraph for `rich`. Long text wraps with a hanging indent; lines of code are cropped."""
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    text = Text(paragraph.text, FINDING_STYLES.get(paragraph.role, ""))
    indent = (0, 0, 0, paragraph.indent)
    if paragraph.role == "code":
        text.no_wrap, text.overflow = True, "crop"
    if paragraph.role == "code" or not paragraph.hanging:
        return Padding(text, indent)
    grid = Table.grid(padding=0)
    grid.add_column(width=paragraph.hanging, no_wrap=True)
    grid.add_column(overflow="fold")
    grid.add_row(text[: paragraph.hanging], text[paragraph.hanging :])
    return Padding(grid, indent)
