"""The order in which findings are reported: a cause first. A finding that follows from a cause says so and gives no
advice.

The rules read only the findings: lines, tensor, missing edge and line at fault. One fault causes many findings. The
clearest evidence is a wrong line, then a missing edge, then an endless wait, then an operation in flight at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.findings import Finding, Severity

NOBODY = "uninitialised-read"
FREE, FREED = "dealloc-in-flight", "tensor-memory-not-allocated"
READ = "read-before-complete"
OVERWRITTEN = "overwritten-in-flight"
OVERRUN = "phase-overrun"
RELAXED = "relaxed-wait"
ENDLESS = ("deadlock", "livelock")
EARLY = "mbarrier-over-arrival"
LEFT_BEHIND = (
    "in-flight-at-exit", "tx-pending-at-exit", "tensor-memory-leak", "never-written", "read-of-another-cta",
    "written-by-two-ctas",
)  # fmt: skip
"""Seen when a CTA, or the whole grid, has ended."""
STEPS = ("wait", "commit", "phase", "arrive", "bytes")
"""The edges by which warps keep in step on mbarriers and groups."""


def in_order(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Return errors first, then causes before their consequences; otherwise in the order of discovery. Of equals a
    count of bytes comes first, unless a count of arrivals is wrong, by which bytes come too early."""
    seen = list(findings)
    counts_arrivals = any(each.missing == "arrive" for each in seen)
    found = sorted(seen, key=lambda each: (_rank(each), each.missing != "bytes" or counts_arrivals))
    for follows in RULES:
        found = [_linked(each, found, follows) for each in found]
    return tuple(sorted(found, key=lambda each: (each.severity is not Severity.ERROR, _rank(each))))


def _rank(finding: Finding) -> int:
    if finding.follows is not None:
        return 5
    if finding.code in ENDLESS:
        return -1 if finding.missing == "arrive" else 3  # a count, or lines of the program, are there to see
    if finding.missing == "wait" and finding.lacks and not _lacks_itself(finding):
        return 1  # the warp that should wait is on the other side: its own finding comes first
    if _elsewhere(finding) or _nowhere(finding):
        return 0
    if finding.code in (*LEFT_BEHIND, EARLY):
        return 4
    if finding.code == OVERRUN or (finding.code == FREE and not finding.tensor):
        return 2  # memory of a peer that may not have allocated it: an access that goes on says more
    return int(finding.missing != "" or finding.code in (NOBODY, FREED))  # 0: a line that is wrong by itself


def _lacks_itself(finding: Finding) -> bool:
    """Return True if only the warp of the finding lacks a wait, and no warp of the other side."""
    return {warp for _, warp in finding.lacks} <= _warps(finding.agents[:1])


def _elsewhere(finding: Finding) -> bool:
    """Return True if the line at fault is known, and is not the line of the finding."""
    return finding.at_fault not in (None, finding.location)


def _nowhere(finding: Finding) -> bool:
    """Return True if the finding's warp waits at no line for the mbarrier that it should wait for."""
    return finding.missing == "wait" and finding.at_fault is not None and finding.at_fault == finding.location


Lines = set[Location | None]
Rule = Callable[[Finding, Finding, Lines], bool]
"""Function of (finding, other finding, lines that read unwritten memory). Returns True if the first finding follows
from the other."""


def _linked(finding: Finding, found: Sequence[Finding], follows: Rule) -> Finding:
    if finding.follows is not None:
        return finding
    early = {each.location for each in found if each.code == NOBODY}
    before = [each is finding for each in found].index(True)
    for cause in found[:before] if follows in (same_line, same_remedy) else found:
        severe = cause.severity is Severity.ERROR or finding.severity is not Severity.ERROR
        explains = cause.follows is None and (cause.missing or cause.at_fault is not None)
        if cause is not finding and explains and severe and follows(finding, cause, early):
            return _following(finding, cause)
    return finding


def _following(finding: Finding, cause: Finding) -> Finding:
    assert cause.location is not None  # an edge is missing before a line
    advice = f"follows from the finding above ({cause.code}, line {cause.location.line})"
    message = finding.message.removesuffix(f"; {finding.advice}") if finding.advice else finding.message
    return replace(finding, message=f"{message}; {advice}", advice=advice, missing="", follows=cause.location)


# the rules


def other_way_round(finding: Finding, cause: Finding, early: Lines) -> bool:
    """Return True for the same two accesses of one tensor, found in both orders because one warp ran ahead.

    Either the read came before the first write, or the write of the next iteration came before the end of the read. A
    write without a next iteration, for which nobody waited, overwrites another line's data: such a write may be the
    fault itself.
    """
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


def wrong_by_itself(finding: Finding, cause: Finding, early: Lines) -> bool:
    """Return True for a read of data that a wrong operation writes, or of memory that no operation writes instead."""
    itself = cause.missing == "" and cause.at_fault == cause.location and finding.tensor == cause.tensor
    return itself and (finding.other == cause.location or finding.code == NOBODY)


def read_without_a_wait(finding: Finding, cause: Finding, early: Lines) -> bool:
    """Return True for memory that is overwritten too early, if its reader does not wait and so arrives too early."""
    nowhere = _nowhere(cause) and cause.code == READ
    again = finding.code in (OVERWRITTEN, "wrong-phase") and finding.location == cause.other
    return nowhere and again and finding.tensor == cause.tensor


def read_too_early(finding: Finding, cause: Finding, early: Lines) -> bool:
    """Return True for a read of unwritten memory, if the cause is the missing edge of the same read of the same
    tensor."""
    same = finding.location in (cause.location, cause.other) and finding.tensor == cause.tensor
    return finding.code == NOBODY and same


def out_of_step(finding: Finding, cause: Finding, early: Lines) -> bool:
    """Return True for a missed phase, an endless wait or an early arrival, if the cause is a fault that lets a warp
    continue too early."""
    step = cause.missing in STEPS or (cause.missing == "sync" and _elsewhere(cause))  # a sync before an arrival
    if cause.code != EARLY and (not step or cause.code in (OVERRUN, *ENDLESS)):
        return False
    if finding.code == EARLY:
        return not _is_wrong(finding)
    return finding.code == OVERRUN or (finding.code in ENDLESS and finding.missing != "arrive")


def _is_wrong(finding: Finding) -> bool:
    """Return True if the count of a barrier is too small for a single arrival."""
    return finding.code == EARLY and finding.at_fault is not None


def _warps(agents: tuple[str, ...]) -> set[str]:
    """Return `warp 3` for `the elected lane of warp 3 of CTA (0, 0, 0)`, of each agent."""
    return {" ".join(agent[agent.find("warp") :].split()[:2]) for agent in agents}


def same_line(finding: Finding, cause: Finding, early: Lines) -> bool:
    """Return True for a later finding with the same line at fault, or on the same tensor and caused by that line."""
    wrong = _elsewhere(cause) and bool(finding.missing) and finding.code != RELAXED
    round_ = finding.location in (cause.other, cause.at_fault) or finding.other == cause.location
    again = finding.in_loop and round_ and finding.tensor == cause.tensor
    same = finding.location == cause.location or finding.other == cause.at_fault or again
    return wrong and (finding.at_fault == cause.at_fault or same)


def same_remedy(finding: Finding, cause: Finding, early: Lines) -> bool:
    """Match a later finding with the same advice, with the same sync between the same lines, or with a wait of the same
    warp for the same mbarrier or ring of mbarriers."""
    same = finding.advice == cause.advice or bool(finding.lacks & cause.lacks)
    return bool(cause.missing and finding.missing and same)


def never_waited_for(finding: Finding, cause: Finding, early: Lines) -> bool:
    """Return True for an operation in flight at the end, or memory freed under an operation, if the cause is the
    missing wait for the operation."""
    left = finding.location if finding.code == "in-flight-at-exit" else finding.other if finding.code == FREE else None
    if left is None or cause.missing not in STEPS or cause.code == FREE:
        return False
    return cause.other == left or (_elsewhere(cause) and (finding.code != FREE or cause.location == left))


def freed_too_early(finding: Finding, cause: Finding, early: Lines) -> bool:
    """Return True for a use of freed tensor memory, or for a peer that may not have allocated it, if the cause is an
    access that the same line does not wait for."""
    same = (finding.location, finding.other) == (cause.other, cause.location)
    peer = finding.code == FREE and not finding.tensor and bool(cause.tensor) and finding.location == cause.location
    return cause.code == FREE and (peer or (finding.code == FREED and same))


def at_once(finding: Finding, cause: Finding, early: Lines) -> bool:
    """Return True for all findings of a barrier, if the cause is a missing arrival: no line arrives on it, or too few
    do."""
    early_ = finding.code == EARLY and not _is_wrong(finding)
    return (
        cause.code in ENDLESS
        and cause.missing == "arrive"
        and (early_ or bool(_warps(finding.agents) & _warps(cause.agents)))
    )


RULES: tuple[Rule, ...] = (
    at_once, wrong_by_itself, read_without_a_wait, other_way_round, read_too_early, same_line, same_remedy, out_of_step,
    never_waited_for, freed_too_early,
)  # fmt: skip
"""Rules in order of application. A finding that follows from another one is never a cause."""
