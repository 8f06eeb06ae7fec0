"""What a person sees of the command line: results, findings, schedules, errors and progress.

Everything is text of `rich`, so that a terminal gets colours and its width, and a file or a pipe gets plain lines, one
for each sentence however long. Nothing here decides anything.
"""

from __future__ import annotations

import re
import sys
import textwrap
import threading
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from blackwell_matmul.validation import near

if TYPE_CHECKING:
    from rich.console import Console, RenderableType
    from rich.text import Text

    from blackwell_matmul.frontend.program import Location
    from blackwell_matmul.harness import Result, ScheduleList, ScheduleRow, ScriptResult
    from blackwell_matmul.simulator.findings import Finding

PROGRESS_AFTER_SECONDS = 2.0
PIPE_COLUMNS = 100_000
"""The width where there is no terminal: no line is broken."""

BEST = 24
"""Of the schedules that can run, so many are shown unless all are asked for."""

Tell = Callable[[int, int], None]
"""Takes how much is done, and of how much."""


def console(stderr: bool = False) -> Console:
    from rich.console import Console

    made = Console(stderr=stderr, highlight=False, markup=False, emoji=False)
    return made if made.is_terminal else Console(
        stderr=stderr, highlight=False, markup=False, emoji=False, width=PIPE_COLUMNS
    )  # fmt: skip


def printable(text: str) -> str:
    """One line that any terminal can show: line ends, control characters and broken encodings become escapes."""
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def complain(sentence: str) -> None:
    """An error, on stderr: one line however long, so that it can be copied and searched for."""
    _on_stderr("error: ", "bold red", printable(sentence))


@contextmanager
def plain_warnings() -> Iterator[None]:
    """Warnings go to stderr as errors do, without the line of code that gives them."""

    def show(message: Warning | str, *_: Any, **__: Any) -> None:
        _on_stderr("warning: ", "bold yellow", printable(" ".join(str(message).split())))

    before, warnings.showwarning = warnings.showwarning, show
    try:
        yield
    finally:
        warnings.showwarning = before


def _on_stderr(label: str, style: str, sentence: str) -> None:
    try:
        from rich.text import Text
    except ImportError:  # which is what the sentence says, then
        print(f"{label}{sentence}", file=sys.stderr)
        return
    console(stderr=True).print(Text.assemble((label, style), sentence), soft_wrap=True)


def rendered(lines: Iterable[RenderableType]) -> str:
    """The text for stdout, without the spaces that fill a terminal's lines."""
    out = console()
    with out.capture() as captured:
        for line in lines:
            out.print(line)
    return "\n".join(line.rstrip() for line in captured.get().rstrip("\n").split("\n"))


def broken(line: str) -> str:
    """Lines of a terminal's width that end at a space or after a comma, as in `block_m=128,block_n=64`."""
    return "\n".join(_AtCommas(width=console().width, replace_whitespace=False).wrap(line))


class _AtCommas(textwrap.TextWrapper):
    wordsep_re = re.compile(r"(\s+|(?<=,)(?=\w))")


# --- progress


@contextmanager
def progress(what: str, quiet: bool) -> Iterator[Tell | None]:
    """On stderr, from the third second on: what is done, how many CTAs of how many, and the time elapsed.

    Gives the function that takes the counts; None when nobody is watching.
    """
    watched = console(stderr=True)
    if quiet or not watched.is_terminal:
        yield None
        return
    from rich.progress import Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn("line"), TextColumn("{task.description}", markup=False), TimeElapsedColumn())
    bar = Progress(*columns, console=watched, transient=True, redirect_stdout=False)
    task = bar.add_task(f"{what}: compiling", total=None)

    def tell(done: int, total: int) -> None:
        state = f"{done} of {total} CTAs simulated" if done < total else "checking"
        bar.update(task, description=f"{what}: {state}")

    timer = threading.Timer(PROGRESS_AFTER_SECONDS, bar.start)
    timer.daemon = True
    timer.start()
    try:
        yield tell
    finally:
        timer.cancel()
        timer.join()
        if bar.live.is_started:
            bar.stop()


@contextmanager
def telling(quiet: bool) -> Iterator[Callable[[str], None]]:
    """On stderr, what is being done: one line that changes on a terminal, a line each elsewhere."""
    watched = console(stderr=True)
    if quiet:
        yield lambda what: None
    elif watched.is_terminal:
        with watched.status("starting") as status:
            yield lambda what: status.update(printable(what))
    else:
        yield lambda what: watched.print(printable(what), soft_wrap=True)


def duration(time_us: float) -> str:
    return f"{time_us:.2f} µs" if time_us < 1000 else f"{time_us / 1000:.3f} ms"


# --- a result


def result_lines(result: Result | ScriptResult) -> Iterator[RenderableType]:
    """The result's one line, then each finding."""
    from rich.text import Text

    line = Text(broken(printable(str(result))))
    line.highlight_words(["correct"], "bold green")
    line.highlight_words(["wrong", "errors found", "error found"], "bold red")
    line.highlight_words(["not checked"], "bold yellow")
    yield line
    for finding in result.findings:
        yield from _finding_lines(finding)


def _finding_lines(finding: Finding) -> Iterator[RenderableType]:
    """What it is and where it was seen, what happened, and the lines of the kernel that took part."""
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
    """`my_kernel.py:21 | self.sync()`."""
    import linecache

    from rich.text import Text

    linecache.checkcache(location.file)
    source = printable(linecache.getline(location.file, location.line).strip())
    where = printable(f"{near(location.file)}:{location.line}")
    return Text.assemble((where, "cyan"), (" | ", "dim"), source) if source else Text(where, "cyan")


# --- schedules


def schedule_lines(listing: ScheduleList, every: bool) -> Iterator[RenderableType]:
    """The schedules that can run, best first, those that cannot by reason, and which one is chosen and why.

    every: a row for each schedule; otherwise the best of those that can run, and rejected ones with the same reasons
    share rows.
    """
    from rich.padding import Padding
    from rich.text import Text

    yield Text(f"{listing.kernel}  {listing.problem} on {listing.gpu}: {len(listing.rows)} schedules", "bold")
    if listing.runnable:
        yield Text(f"\n{len(listing.runnable)} can run", "bold green")
        shown = listing.ranked if every else listing.ranked[:BEST]
        yield _table([[row] for row in shown], FIGURES, marked=shown[0])
        if left := len(listing.ranked) - len(shown):
            yield Text(f"  and {left} more, with more predicted cycles; --all lists them", "dim")
    for reasons, rows in _by_reason(listing.rejected):
        yield Text(f"\n{len(rows)} cannot run", "bold red")
        yield from (Padding(Text(reason), (0, 0, 0, 2)) for reason in reasons)
        yield _table([[row] for row in rows] if every else _merged(rows), LIMITED)
    yield Text(broken(f"\n> chosen: {listing.chosen or 'none'}"), "bold")
    yield from _why(listing)


def _why(listing: ScheduleList) -> Iterator[RenderableType]:
    from rich.padding import Padding
    from rich.text import Text

    from blackwell_matmul.harness.listing import RULE

    for sentence in (listing.why, RULE) if listing.chosen else (listing.why,):
        yield Padding(Text(sentence[0].upper() + sentence[1:]), (0, 0, 0, 2))


def _by_reason(rows: Sequence[ScheduleRow]) -> Iterator[tuple[list[str], list[ScheduleRow]]]:
    """Rejected schedules with the same reasons, numbers aside; a number that differs becomes a range."""
    groups: dict[tuple[str, ...], list[ScheduleRow]] = {}
    for row in rows:
        groups.setdefault(tuple(_NUMBER.sub("#", reason) for reason in row.reasons), []).append(row)
    for group in groups.values():
        yield [_spanning(texts) for texts in zip(*(row.reasons for row in group))], group


def alike(reasons: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Reasons that differ in numbers alone as one, with the numbers as ranges, and how many schedules have it."""
    groups: dict[str, list[str]] = {}
    for reason in reasons:
        groups.setdefault(_NUMBER.sub("#", reason), []).append(reason)
    for group in groups.values():
        yield _spanning(group), sum(reasons[reason] for reason in group)


_NUMBER = re.compile(r"(?<![A-Za-z_0-9])[0-9]+")


def _spanning(texts: Sequence[str]) -> str:
    numbers = zip(*(map(int, _NUMBER.findall(text)) for text in texts))
    spans = iter([_span(values) for values in numbers])
    return _NUMBER.sub(lambda match: next(spans), texts[0])


def _span(values: Iterable[int]) -> str:
    """`64` or `64..256`."""
    found = sorted(set(values))
    return str(found[0]) if len(found) == 1 else f"{found[0]}..{found[-1]}"


def _merged(rows: Sequence[ScheduleRow]) -> list[list[ScheduleRow]]:
    """Rows that differ in one knob become one group, knob by knob: each group is every combination of its values."""
    groups = [[row] for row in rows]
    for knob in [name for name, _ in rows[0].schedule][::-1]:
        together: dict[tuple[object, ...], list[ScheduleRow]] = {}
        for group in groups:
            values = _values(group)
            key = tuple((name, tuple(value)) for name, value in values.items() if name != knob)
            together.setdefault(key, []).extend(group)
        groups = list(together.values())
    return groups


def _values(group: Sequence[ScheduleRow]) -> Mapping[str, list[int]]:
    """The values of each knob in a group, in order."""
    found: dict[str, set[int]] = {}
    for row in group:
        for name, value in row.schedule:
            found.setdefault(name, set()).add(value)
    return {name: sorted(values) for name, values in found.items()}


LIMITED = (("shared", "shared_memory_bytes"), ("columns", "tensor_memory_columns"))
FIGURES = (("CTAs", "ctas"), *LIMITED, ("cycles", "predicted_cycles"))
"""Headings, and what of a row stands under them: how many CTAs, bytes of shared memory and columns of tensor memory of
one, and the predicted cycles of all. LIMITED: what a schedule that cannot run may have too much of."""


def _table(
    groups: Sequence[Sequence[ScheduleRow]],
    figures: Sequence[tuple[str, str]],
    marked: ScheduleRow | None = None,
) -> RenderableType:
    from rich.table import Table

    table = Table(box=None, padding=(0, 1, 0, 0), pad_edge=False, header_style="dim")
    table.add_column("", no_wrap=True)
    figures = [figure for figure in figures if any(getattr(row, figure[1]) for group in groups for row in group)]
    for heading in [*map(_heading, _values(groups[0])), *(heading for heading, _ in figures)]:
        table.add_column(heading, justify="right", overflow="fold")
    for group in groups:
        cells = [",".join(map(str, values)) for values in _values(group).values()]
        spans = [_span(getattr(row, figure) for row in group) for _, figure in figures]
        cells += [span.replace("..", "..\n") if len(cells) > MANY_KNOBS else span for span in spans]
        here = marked is not None and group[0] == marked
        table.add_row(">" if here else "", *cells, style="bold green" if here else "")
    return table


MANY_KNOBS = 8
"""With more, a table that fits 80 columns has room for one number in a cell."""


def _heading(knob: str) -> str:
    """No wider than the values under it: a table with every knob fits 80 columns."""
    return knob.replace("consumers", "con-\nsumers").replace("cluster", "clus-\nter").replace("_", "\n")
