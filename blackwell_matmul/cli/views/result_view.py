"""View of `blackwell-matmul run`: the result's line, then each finding."""

from __future__ import annotations

import linecache
from collections.abc import Iterator
from typing import TYPE_CHECKING

from blackwell_matmul.base.validation import near
from blackwell_matmul.cli.views.terminal import broken, printable

if TYPE_CHECKING:
    from rich.console import RenderableType
    from rich.text import Text

    from blackwell_matmul.frontend.program import Location
    from blackwell_matmul.harness import Result, ScriptResult
    from blackwell_matmul.simulator.findings import Finding


def result_lines(result: Result | ScriptResult) -> Iterator[RenderableType]:
    """Yield the result's line, then each finding."""
    from rich.text import Text

    line = Text(broken(printable(str(result))))
    line.highlight_words(["correct"], "bold green")
    line.highlight_words(["wrong", "errors found", "error found"], "bold red")
    line.highlight_words(["not checked"], "bold yellow")
    yield line
    for finding in result.findings:
        yield from _finding_lines(finding)


def _finding_lines(finding: Finding) -> Iterator[RenderableType]:
    """Yield a finding's title and CTA, its message, and the kernel lines involved."""
    from rich.padding import Padding
    from rich.text import Text

    style = "bold red" if finding.severity.value == "error" else "bold yellow"
    yield Text.assemble("  ", (f"{finding.severity.value} {finding.code}", style), f"  {_sightings(finding)}")
    yield Padding(Text(printable(finding.message)), (0, 0, 0, 4))
    for location in dict.fromkeys(filter(None, (finding.at_fault, finding.location, finding.other))):
        yield Padding(_source(location), (0, 0, 0, 4))


def _sightings(finding: Finding) -> str:
    cta = f"CTA ({', '.join(map(str, finding.cta))})" if finding.cta else ""
    if finding.count > 1:
        return f"seen {finding.count} times" + (f", first in {cta}" if cta else "")
    return f"in {cta}" if cta else ""


def _source(location: Location) -> Text:
    """Return a kernel line as text, such as `my_kernel.py:21 | self.sync()`."""
    from rich.text import Text

    linecache.checkcache(location.file)
    where = f"{near(location.file)}:{location.line}"
    return Text.assemble((where, "cyan"), (" | ", "dim"), location.code) if location.code else Text(where, "cyan")
