"""The order in which findings are told: a cause before what follows from it, which says so and gives no advice.

All is decided from what the findings are about: the lines of their accesses, the tensor, the edge that is missing, and
the line at fault. One fault shows at many places; the clearest evidence is a line that is there and wrong, then an
edge that nobody has made, then a wait that never ends, then what is left behind.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.findings import Finding, Severity

NOBODY = "uninitialised-read"
FREED = "tensor-memory-not-allocated"
READ = "read-before-complete"
OVERWRITTEN = "overwritten-in-flight"
OVERRUN = "phase-overrun"
ENDLESS = ("deadlock", "livelock")
EARLY = "mbarrier-over-arrival"
LEFT_BEHIND = (
    "in-flight-at-exit", "tx-pending-at-exit", "tensor-memory-leak", "never-written", "read-of-another-cta",
    "written-by-two-ctas",
)  # fmt: skip
"""Seen when a CTA, or the whole grid, has ended."""


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Errors first; causes before what follows from them; otherwise in the order in which they were found."""
    found = sorted(findings, key=_rank)
    for follows in RULES:
        found = [_linked(each, found, follows) for each in found]
    return tuple(sorted(found, key=lambda each: (each.severity is not Severity.ERROR, _rank(each))))


def _rank(finding: Finding) -> int:
    if finding.follows is not None:
        return 5
    if finding.at_fault not in (None, finding.location):
        return 0
    if finding.code in ENDLESS:
        return 3
    if finding.code in (*LEFT_BEHIND, EARLY):
        return 4
    if finding.code == OVERRUN:
        return 2
    return int(finding.missing != "" or finding.code in (NOBODY, FREED))  # 0: a line that is wrong by itself


Lines = set[Location | None]
Rule = Callable[[Finding, Finding, Lines], bool]
"""(a finding, another one, the lines that read what nobody had written): whether the first follows from the other."""


def _linked(finding: Finding, found: Sequence[Finding], follows: Rule) -> Finding:
    if finding.follows is not None:
        return finding
    early = {each.location for each in found if each.code == NOBODY}
    for cause in found:
        told = cause.severity is Severity.ERROR or finding.severity is not Severity.ERROR
        if cause is not finding and cause.missing and cause.follows is None and told and follows(finding, cause, early):
            return _following(finding, cause)
    return finding


def _following(finding: Finding, cause: Finding) -> Finding:
    assert cause.location is not None  # an edge is missing before a line
    advice = f"follows from the finding above ({cause.code}, line {cause.location.line})"
    message = finding.message.removesuffix(f"; {finding.advice}") if finding.advice else finding.message
    return replace(finding, message=f"{message}; {advice}", advice=advice, missing="", follows=cause.location)


# the rules


def other_way_round(finding: Finding, cause: Finding, early: Lines) -> bool:
    """The same two accesses of one tensor, found in both orders: one of them had run ahead. Either the read, of what
    nobody had written; or the next round's write, before which something did not wait for the read to end, as where
    the read came a phase too early. A write that has no next round and that was not missed overwrites what another line
    wrote: it may be what is wrong."""
    if not finding.missing or finding.tensor != cause.tensor or finding.location == finding.other:
        return False
    if (finding.location, finding.other) != (cause.other, cause.location):
        return False
    if (finding.location in early) is not (cause.location in early):
        return cause.location in early
    if finding.missing == "wait" and cause.missing == "phase":
        return finding.in_loop
    if finding.missing != "sync":
        return False
    if cause.missing != "sync":
        return finding.in_loop
    return cause.code == OVERWRITTEN != finding.code


def read_without_a_wait(finding: Finding, cause: Finding, early: Lines) -> bool:
    """What is written again too early, where who reads it waits nowhere, and so tells too early that it has read."""
    nowhere = cause.missing == "wait" and cause.at_fault == cause.location and cause.code == READ
    again = finding.code in (OVERWRITTEN, "wrong-phase") and finding.location == cause.other
    return nowhere and again and finding.tensor == cause.tensor


def read_too_early(finding: Finding, cause: Finding, early: Lines) -> bool:
    """A read of what nobody had written, and the edge that the same read of the same tensor lacks."""
    same = finding.location in (cause.location, cause.other) and finding.tensor == cause.tensor
    return finding.code == NOBODY and same


def passed_too_early(finding: Finding, cause: Finding, early: Lines) -> bool:
    """A wait that may miss a phase, and that has passed on a wrong one."""
    return finding.code == OVERRUN and cause.missing == "phase" and cause.at_fault == finding.location


def never_waited_for(finding: Finding, cause: Finding, early: Lines) -> bool:
    """An operation that is left in flight, and the wait that it lacks."""
    lacks = cause.missing in ("wait", "commit", "phase", "bytes")
    return finding.code == "in-flight-at-exit" and lacks and cause.other == finding.location


def freed_too_early(finding: Finding, cause: Finding, early: Lines) -> bool:
    """Tensor memory that is used when it was freed, and what lets that use be late."""
    same = (finding.location, finding.other) == (cause.other, cause.location)
    return finding.code == FREED and cause.code == "dealloc-in-flight" and same


RULES: tuple[Rule, ...] = (
    read_without_a_wait, other_way_round, read_too_early, passed_too_early, never_waited_for, freed_too_early,
)  # fmt: skip
"""In turn: what follows from another finding is nobody's cause."""
