"""Events around a finding: from the other access to this one, and the completion that came too late."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace

from blackwell_matmul.simulator.findings import Event, Finding
from blackwell_matmul.simulator.machine.cta import spell_warps

MOST_ROWS = 10
"""Most rows of a timeline, about; the middle of a longer one is left out."""

HEAD = 3
"""Number of rows before the omission."""

_WARP = re.compile(r"warp ([0-9]+)")


def around(finding: Finding, events: Sequence[Event]) -> tuple[Event, ...]:
    """Return the CTA's events that show how the finding occurs; () if they do not show it."""
    at = next((i for i, event in enumerate(events) if _shows(event, finding)), None)
    if at is None:
        return ()
    start = _start(finding, events, at)
    warps = _warps(*finding.agents)
    shown = [event for event in events[start:at] if _concerns(event, warps)]
    lines = {event.location for event in shown if event.kind != "complete"}
    shown = [event for event in shown if event.kind != "complete" or event.location in lines]
    shown += [events[at], *_too_late(finding, events[at + 1 :])]
    return _shortened(_merged(_without_repeats(shown)))


def _shows(event: Event, finding: Finding) -> bool:
    return event.kind == "finding" and event.what == finding.code and event.location == finding.location


def _start(finding: Finding, events: Sequence[Event], at: int) -> int:
    """Return the index of the other side's last event (an exit has one side), or a few events before the finding."""
    culprit, line = _warps(*finding.agents[1:]), finding.other
    if line is None and finding.code.endswith("-at-exit"):
        line = finding.location
    for i in range(at - 1, -1, -1):
        if line is not None and events[i].location == line and events[i].kind not in ("complete", "finding"):
            if not culprit or _warps(events[i].agent) <= culprit:
                return i
    return max(0, at - 2 * MOST_ROWS)


def _warps(*agents: str) -> set[int]:
    """Return the warps in these names."""
    return {int(number) for agent in agents for number in _WARP.findall(agent)}


def _concerns(event: Event, warps: set[int]) -> bool:
    """Return True if an event concerns these warps (all, if empty), all warps, or asynchronous agents; findings do
    not."""
    if event.kind == "finding":
        return False
    together = event.kind == "resume" and event.what.startswith("sync")
    return together or not warps or _warps(event.agent) <= warps


def _too_late(finding: Finding, events: Sequence[Event]) -> list[Event]:
    """Return the end of the operation that the other side had started."""
    return [event for event in events if event.kind == "complete" and event.location == finding.other][:1]


def _without_repeats(events: Sequence[Event]) -> list[Event]:
    """Return the events without a general issue event that is followed by a more specific one."""
    kept: list[Event] = []
    for event in events:
        before = kept[-1] if kept else None
        if before is not None and event.kind == before.kind == "issue":
            if (before.agent, before.location) == (event.agent, event.location):
                kept.pop()
        kept.append(event)
    return kept


def _merged(events: Sequence[Event]) -> list[Event]:
    """Return the events; equal neighbouring events of several warps are joined."""
    rows: list[list[Event]] = []
    for event in events:
        if rows and _alike(rows[-1][0], event) and all(event.agent != other.agent for other in rows[-1]):
            rows[-1].append(event)
        else:
            rows.append([event])
    return [replace(row[0], agent=_spell([event.agent for event in row])) for row in rows]


def _alike(one: Event, other: Event) -> bool:
    both_warps = _WARP.fullmatch(one.agent) and _WARP.fullmatch(other.agent)
    return bool(both_warps) and (one.kind, one.what, one.location) == (other.kind, other.what, other.location)


def _spell(agents: list[str]) -> str:
    return agents[0] if len(agents) == 1 else spell_warps(sorted(int(agent.split()[1]) for agent in agents))


def _shortened(events: list[Event]) -> tuple[Event, ...]:
    if len(events) <= MOST_ROWS + 2:
        return tuple(events)
    tail = MOST_ROWS - HEAD - 1
    left_out = events[HEAD:-tail]
    gap = replace(left_out[0], agent="", kind="gap", what=f"{len(left_out)} more", location=None)
    return (*events[:HEAD], gap, *events[-tail:])
