"""View of `blackwell-matmul schedules`: schedules that can run, rejected schedules with reasons, and the choice."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from blackwell_matmul.cli.views.tables import Column, TableRow, table
from blackwell_matmul.cli.views.terminal import broken

if TYPE_CHECKING:
    from rich.console import RenderableType

    from blackwell_matmul.harness import ScheduleList, ScheduleRow

BEST = 24
"""Number of schedules that can run and are shown by default."""


def schedule_lines(listing: ScheduleList, every: bool) -> Iterator[RenderableType]:
    """Yield the schedules that can run, the best first, the rejected schedules by reason, and the choice.

    every: True gives each schedule a row. Otherwise only the best schedules are shown, and rejected schedules with
    equal reasons share rows.
    """
    from rich.padding import Padding
    from rich.text import Text

    yield Text(f"{listing.kernel}  {listing.problem} on {listing.gpu}: {len(listing.rows)} schedules", "bold")
    if listing.runnable:
        yield Text(f"\n{len(listing.runnable)} can run", "bold green")
        shown = listing.ranked if every else listing.ranked[:BEST]
        yield _table([[row] for row in shown], SHOWN_FIGURES, marked=shown[0])
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

    from blackwell_matmul.harness.listing import CHOICE_RULE

    for sentence in (listing.why, CHOICE_RULE) if listing.chosen else (listing.why,):
        yield Padding(Text(sentence[0].upper() + sentence[1:]), (0, 0, 0, 2))


def _by_reason(rows: Sequence[ScheduleRow]) -> Iterator[tuple[list[str], list[ScheduleRow]]]:
    """Yield groups of rejected schedules whose reasons differ in numbers only, each with these reasons. Numbers that
    differ become ranges."""
    groups: dict[tuple[str, ...], list[ScheduleRow]] = {}
    for row in rows:
        groups.setdefault(tuple(_NUMBER.sub("#", reason) for reason in row.reasons), []).append(row)
    for group in groups.values():
        yield [_spanning(texts) for texts in zip(*(row.reasons for row in group))], group


def alike(reasons: Mapping[str, int]) -> Iterator[tuple[str, int]]:
    """Yield each reason with its count. Reasons that differ in numbers only are merged, and their numbers become
    ranges."""
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
    """Return the range of some values, such as `64..256`, or `64` if all are equal."""
    found = sorted(set(values))
    return str(found[0]) if len(found) == 1 else f"{found[0]}..{found[-1]}"


def _merged(rows: Sequence[ScheduleRow]) -> list[list[ScheduleRow]]:
    """Return groups of rows. The rows of a group are all combinations of the group's knob values."""
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
    """Return the values of each knob in a group, ascending."""
    found: dict[str, set[int]] = {}
    for row in group:
        for name, value in row.schedule:
            found.setdefault(name, set()).add(value)
    return {name: sorted(values) for name, values in found.items()}


LIMITED = (("shared", "shared_memory_bytes"), ("columns", "tensor_memory_columns"))
SHOWN_FIGURES = (("CTAs", "ctas"), *LIMITED, ("cycles", "predicted_cycles"))
"""Headings and fields of a row: CTAs, shared bytes and tensor memory columns of one CTA, and predicted cycles of the
kernel. LIMITED: those of a rejected schedule, resources that it may exceed.
"""


def _table(
    groups: Sequence[Sequence[ScheduleRow]],
    figures: Sequence[tuple[str, str]],
    marked: ScheduleRow | None = None,
) -> RenderableType:
    figures = [figure for figure in figures if any(getattr(row, figure[1]) for group in groups for row in group)]
    knobs = list(_values(groups[0]))
    headings = [*(_heading(knob, len(knobs) > MANY_KNOBS) for knob in knobs), *(heading for heading, _ in figures)]
    columns = [Column(), *(Column(heading, "right", "folds") for heading in headings)]
    rows = (_row(group, figures, marked is not None and group[0] == marked) for group in groups)
    return table(columns, rows, padding=(0, 1, 0, 0), pad_edge=False)


MANY_VALUES = 3
"""Maximum number of listed values of a knob. More values are shown as a range."""


def _row(group: Sequence[ScheduleRow], figures: Sequence[tuple[str, str]], marked: bool) -> TableRow:
    knobs = _values(group)
    most = MANY_VALUES - (len(knobs) > MANY_KNOBS)
    cells = [_listed(values, most) for values in knobs.values()]
    spans = [_span(getattr(row, figure) for row in group) for _, figure in figures]
    cells += [span.replace("..", "..\n") if len(cells) > MANY_KNOBS else span for span in spans]
    return TableRow((">" if marked else "", *cells), "bold green" if marked else "")


def _listed(values: Sequence[int], most: int) -> str:
    return _span(values) if len(values) > most else ",".join(map(str, values))


MANY_KNOBS = 8
"""Number of knobs above which cells are kept narrow, so that a table fits 80 columns."""


BROKEN = {
    "stages": "sta-\nges",
    "consumers": "con-\nsum-\ners",
    "group": "gro-\nup",
    "cluster": "cl-\nus-\nter",
    "split": "sp-\nlit",
    "neighbours": "nei-\nghb-\nours",
    "swap": "sw-\nap",
}
"""Headings with line breaks, by the words of a knob's name."""


def _heading(knob: str, many: bool) -> str:
    """Return the heading of a knob, broken to the width of its values, so that all knobs fit 80 columns."""
    for word, parts in [*BROKEN.items(), *([("block", "blo-\nck")] if many else [])]:
        knob = knob.replace(word, parts)
    return knob.replace("_", "\n")
