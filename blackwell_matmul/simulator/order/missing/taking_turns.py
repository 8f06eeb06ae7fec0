"""Groups of warps that arrive on an mbarrier in turn, each for a phase of its own, and hand the turn to each other by
other mbarriers: what lets one group go on before its turn."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

from blackwell_matmul.simulator.machine.barrier import Mbarrier, barriers_of
from blackwell_matmul.simulator.machine.cta import Warp, spell
from blackwell_matmul.simulator.machine.registers import WARP
from blackwell_matmul.simulator.order.culprits import ends_too_often, small
from blackwell_matmul.simulator.order.lines import siblings
from blackwell_matmul.simulator.order.missing.conflict import PHASE, Conflict, Missing, passed_before, waits_of

Groups = list[list[Warp]]
"""The warps of each line that arrives on an mbarrier."""


def out_of_turn(c: Conflict, barrier: Mbarrier) -> Missing | None:
    """Return why a phase of the mbarrier ended too early: a wrong turn, or a count; None if no groups take turns."""
    groups = _groups(c, barrier)
    if ends_too_often(barrier, c.order.of(barrier).arrivals, c.lines.roles):
        everybody = {warp for group in groups for warp in group}
        return Missing("arrive", small(barrier, everybody), at_fault=barrier.location)
    turns = [*_turns(c, barrier, groups)]
    if not turns or barrier.expected > WARP * max(map(len, groups)):  # each phase needs several groups
        return None
    wrong = (_not_awaited(c, barrier, each) or _handed_on_early(c, barrier, each) for each in turns)
    return next(filter(None, wrong), None) or _all_first(c, turns) or _same_phase(c, barrier, groups)


def _groups(c: Conflict, barrier: Mbarrier) -> Groups:
    lines = c.lines.roles.signalling(barrier, "arrive")
    return [list(each) for each in dict.fromkeys(tuple(line.warps_for(barrier)) for line in lines)]


def _turns(c: Conflict, barrier: Mbarrier, groups: Groups) -> Iterator[Mbarrier]:
    """Return the mbarriers by which one of the groups hands the turn to another one."""
    roles = c.lines.roles
    for each in barriers_of(barrier.cta):
        giving, taking = roles.arriving(each), roles.waiting(each)
        others = [group for group in groups if not giving & {*group}]
        if len(groups) > 1 and any(giving == {*group} for group in groups) and others:
            if any(taking <= {*group} for group in others):
                yield each


def _not_awaited(c: Conflict, barrier: Mbarrier, turn: Mbarrier) -> Missing | None:
    """Find a turn for which nobody waits, or of which a warp has waited for an old phase."""
    if not c.lines.roles.waiting(turn):
        taking = next(each for each in _groups(c, barrier) if not c.lines.roles.arriving(turn) & {*each})
        before = next(
            each for each in c.lines.roles.lines if "mbarrier" in each.kinds and taking[0].index in each.warps
        )
        advice = f"the missing wait: {turn.remedy} by {spell(taking)} before {before.location}"
        return Missing("wait", advice, at_fault=before.location, lacks=waits_of(turn, taking))
    again = (each for each in c.order.of(turn).waits.values() if each.again)
    return next((passed_before(turn, each) for each in again), None)


def _handed_on_early(c: Conflict, barrier: Mbarrier, turn: Mbarrier) -> Missing | None:
    """Find an arrival that hands the turn on above the arrivals on the mbarrier."""
    for line in c.lines.roles.signalling(turn, "arrive"):
        for last in c.lines.roles.signalling(barrier, "arrive"):
            if {*line.warps} == {*last.warps} and c.lines.leads_to(line.location, last.location):
                what = f"the arrival on {turn} at {line.location} by {spell(line.warps_for(turn))} hands the turn on"
                advice = f"{what} before the arrival on {barrier} at {last.location}: it has to come after that"
                return Missing("arrive", advice, at_fault=line.location)
    return None


def _all_first(c: Conflict, turns: list[Mbarrier]) -> Missing | None:
    """Find two groups that both began without waiting for the other one."""
    waits = [(turn, wait) for turn in turns for wait in c.order.of(turn).waits.values() if wait.started is not None]
    for (one, its), (other, theirs) in itertools.pairwise(waits):
        if one is not other and siblings(one, other):
            both = f"the waits on {one} at {its.started} and on {other} at {theirs.started}"
            advice = f"{both} passed on the phase before the first: the parity of one of the two is wrong"
            return Missing("phase", advice, PHASE, at_fault=theirs.started)
    return None


def _same_phase(c: Conflict, barrier: Mbarrier, groups: Groups) -> Missing | None:
    """Return the waits by which two groups took the same phase of the mbarrier that fills the stage."""
    full = next(
        (each for each in barriers_of(barrier.cta) if c.lines.roles.waiting(each) >= {*groups[0], *groups[1]}), None
    )
    if full is None:
        return None
    line = next(each for each in c.lines.roles.signalling(full, "mbarrier") if groups[0][0] in each.warps_for(full))
    who = " and ".join(spell(group) for group in groups)
    advice = f"{who} have taken one phase of {full} each, by the wait at {line.location}, and one came too early"
    return Missing("phase", f"{advice}: the stage or the parity of that wait is wrong", at_fault=line.location)
