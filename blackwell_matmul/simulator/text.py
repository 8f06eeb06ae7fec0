"""A `Report` in words: paragraphs, each with a role that a terminal may colour, and the same as plain text.

The layout is decided here: `plain` joins the paragraphs for a log or an assertion; a terminal colours and wraps them.
"""

from __future__ import annotations

import linecache
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from blackwell_matmul.base.validation import near, printable
from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.findings import Event, Finding

AROUND = 2
"""Source lines shown before and after a marked one."""

APART = 3
"""Maximum number of lines between two marked lines in one excerpt."""


@dataclass
class Told:
    """Source lines, and missing edges with their lines, that the report has shown so far."""

    lines: set[Location] = field(default_factory=set)
    edges: set[object] = field(default_factory=set)


Replay = Callable[[int], str]
"""Function of a seed: the command or argument that replays the order."""


@dataclass(frozen=True)
class Paragraph:
    """A paragraph. role: title, good, bad, error, unguaranteed, text, place, code, marked, edge, event, here, label or
    dim.

    A line that is too long continues below, `indent + hanging` columns from the left.
    """

    text: str
    role: str = "text"
    indent: int = 0
    hanging: int = 0


def plain(paragraphs: Iterable[Paragraph]) -> str:
    return "\n".join(f"{' ' * each.indent}{each.text}".rstrip() for each in paragraphs)


# --- a finding


def of_finding(finding: Finding, orders: int, replay: Replay, told: Told) -> Iterator[Paragraph]:
    severity = finding.severity.value
    yield Paragraph(f"{severity} {finding.code}", severity)
    yield from (Paragraph(sentence, indent=2) for sentence in _sentences(finding))
    yield from _excerpts(finding, told)
    yield from _notes(finding)
    edge = (finding.missing or finding.code, finding.other)
    if edge not in told.edges:
        yield from _timeline(finding)
    told.edges.add(edge)
    yield Paragraph("")
    yield Paragraph(_sightings(finding, orders), "dim", 2, 2)
    if finding.seed is not None:
        yield Paragraph(f"replay: {replay(finding.seed)}", "dim", 2, 2)


def _sentences(finding: Finding) -> Iterator[str]:
    """Yield the message without its advice, which is shown elsewhere; a list of waits by item."""
    message = finding.message.removesuffix(f"; {finding.advice}") if finding.advice else finding.message
    parts = message.split("; ") if finding.code == "deadlock" else [message]
    return (f"{_with_lines(part, finding)}." for part in parts)


def _edge(finding: Finding) -> Iterator[Paragraph]:
    """Yield an edge such as `missing wait: mbarrier.wait on full before line 21`."""
    if not finding.advice:
        return
    marker = f"the missing {'wait' if finding.missing == 'commit' else finding.missing}: "
    _, found, what = finding.advice.partition(marker)
    text = f"missing {finding.missing}: {what}" if found and finding.advice.startswith(marker) else finding.advice
    yield Paragraph("")
    yield Paragraph(f"==> {_with_lines(text, finding)}", "edge", 2, 4)
    if finding.at_fault not in (None, finding.location, finding.other):
        yield from _line(finding.at_fault)


def _with_lines(text: str, finding: Finding) -> str:
    """Write `line 21` for full paths in the message; the excerpt has the path."""
    for location in filter(None, (finding.location, finding.other, finding.at_fault)):
        text = re.sub(rf"{re.escape(printable(location.file))}:(?=[0-9])", "line ", text)
    return text


def _notes(finding: Finding) -> Iterator[Paragraph]:
    if finding.notes:
        yield Paragraph("")
    for note in finding.notes:
        head, *rest = _with_lines(note, finding).split("; ")
        yield Paragraph(f"{head}{';' if rest else '.'}", "text", 2, 2)
        yield from (Paragraph(f"{part}{';' if part is not rest[-1] else '.'}", "text", 4, 2) for part in rest)


def _sightings(finding: Finding, all_orders: int) -> str:
    cta = f"CTA ({', '.join(map(str, finding.cta))})" if finding.cta else ""
    seen = f"seen {finding.count} times{', first in ' if cta else ''}{cta}" if finding.count > 1 else f"seen in {cta}"
    orders = f"{len(finding.seeds)} of {all_orders} orders" if all_orders > 1 else ""
    return "; ".join(filter(None, (seen if cta or finding.count > 1 else "", orders))) or "seen once"


# --- source


def _excerpts(finding: Finding, told: Told) -> Iterator[Paragraph]:
    """Yield excerpts of both sides, the earlier access first, and the missing edge; nearby lines share one."""
    location, other = finding.location, finding.other
    here = _agent(finding, 0)
    if location is None:
        yield from _edge(finding)
    elif other is None or other == location:
        yield from _excerpt(location, {location.line: here}, told)
        yield from _edge(finding)
    elif other.file == location.file and abs(other.line - location.line) <= APART:
        yield from _excerpt(location, {location.line: here, other.line: _agent(finding, 1)}, told)
        yield from _edge(finding)
    else:
        yield from _excerpt(other, {other.line: _agent(finding, 1)}, told)
        yield from _edge(finding)
        yield from _excerpt(location, {location.line: here}, told)


def _agent(finding: Finding, side: int) -> str:
    if finding.code == "deadlock":
        return ("the wait", "the barrier that it waits for")[side]
    return finding.agents[side] if len(finding.agents) > side else ""


def _excerpt(location: Location, marked: dict[int, str], told: Told) -> Iterator[Paragraph]:
    """Yield `my_kernel.py:21 (warp 3)` and the lines around it; only marked lines if all were shown before."""
    linecache.checkcache(location.file)
    first, last = min(marked), max(marked)
    places = {Location(location.file, line) for line in marked}
    around = 0 if places <= told.lines else AROUND
    told.lines |= places
    end = min(last + around, len(linecache.getlines(location.file)))
    numbers = list(range(max(1, first - around), end + 1))
    while numbers and not _source(location.file, numbers[-1]).strip():
        numbers.pop()
    yield Paragraph("")
    who = "; ".join(f"{line}: {agent}" if len(marked) > 1 else agent for line, agent in sorted(marked.items()) if agent)
    where = f"{near(location.file)}:{location.line if len(marked) == 1 else f'{first}-{last}'}"
    yield Paragraph(f"{where}{f' ({who})' if who else ''}", "place", 2, 2)
    width = len(str(last + AROUND))
    lines = textwrap.dedent("\n".join(_source(location.file, n) for n in numbers)).split("\n")
    for number, line in zip(numbers, lines):
        mark = ">" if number in marked else " "
        role = "marked" if number in marked else "code"
        yield Paragraph(f"{mark} {number:>{width}} | {line}", role, 2, width + 5)


def _line(location: Location) -> Iterator[Paragraph]:
    """Yield the line at fault alone."""
    yield Paragraph(f"> {location.line} | {_source(location.file, location.line).strip()}", "marked", 6, 4)


def _source(file: str, line: int) -> str:
    return printable(linecache.getline(file, line).rstrip("\r\n").expandtabs(4))


# --- the timeline


VERBS = {
    "issue": ("issues ", "issue "),
    "wait": ("waits for ", "wait for "),
    "resume": ("goes on: ", "go on: "),
    "complete": ("completes ", "complete "),
    "arrive": ("arrives: ", "arrive: "),
}
"""Verbs for one agent and for several."""


def _timeline(finding: Finding) -> Iterator[Paragraph]:
    if not finding.timeline:
        return
    rows = [_row(event, finding) for event in finding.timeline]
    yield Paragraph("")
    cta = ", ".join(map(str, finding.timeline[0].cta))
    yield Paragraph(f"what happened in CTA ({cta}), in the simulator's order:", "label", 2, 2)
    agents, lines = (max(len(row[i]) for row in rows) for i in (0, 1))
    for event, (agent, line, what) in zip(finding.timeline, rows):
        here = event.kind == "finding"
        text = f"{'>' if here else ' '} {line:>{lines}}  {agent:<{agents}}  {what}"
        yield Paragraph(text, "here" if here else "event", 2, lines + agents + 6)


def _row(event: Event, finding: Finding) -> tuple[str, str, str]:
    """Return an event's agent, line and text."""
    line = f"line {event.location.line}" if event.location else ""
    if event.kind == "finding":
        return "", "", f"here: {finding.code}"
    if event.kind == "gap":
        return "", "", f"... {event.what}"
    verb = VERBS.get(event.kind, ("", ""))[event.agent.startswith("warps ")]
    return event.agent, line, f"{verb}{event.what}"
