"""Candidate: a missing wait before the other access, which came first and should come last."""

from __future__ import annotations

from collections.abc import Callable

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.machine.barrier import Mbarrier, barriers_of
from blackwell_matmul.simulator.order.lines import SIGNALS
from blackwell_matmul.simulator.order.missing.conflict import Conflict, Missing, brings_bytes, stands_before
from blackwell_matmul.simulator.order.missing.syncs import can_meet


def has_to_come_last(c: Conflict) -> Missing | None:
    """Find an access that came before a write, although its warps signal nothing afterwards that could let the write
    begin. They lack a wait for a signal that follows the write."""
    here, write, who = c.other_location, c.instruction.location, c.culprit.warp
    if not c.write or (c.operation is not None and c.operation.end_signals) or can_meet(c, c.culprit):
        return None
    together = c.other_instruction.group.warps
    if _signalled(c, together, lambda at: c.lines.follows(here, at)):
        return None
    own = brings_bytes(c.instruction)
    after = _signalled(c, c.instruction.group.warps, lambda at: at == write if own else stands_before(write, at))
    barrier = min(after, key=lambda each: c.lines.roles.rank(each, who), default=None)
    if barrier is None or c.lines.roles.rank(barrier, who) == 2:
        return None
    phase = "" if c.lines.in_loop(here) else f" for phase {_phase(c, barrier)}"
    last = f"{c.other_name} at {here} has to come after that"
    return Missing("wait", f"{last}: the missing wait: {barrier.remedy}{phase} before {here}", at_fault=here)


def _signalled(c: Conflict, warps: range, meant: Callable[[Location | None], bool]) -> list[Mbarrier]:
    """Return the mbarriers on which the warps arrive, or to which they bring bytes, at the lines that are meant."""
    lines = [each for each in c.lines.roles.lines if each.kinds & SIGNALS and {*each.warps} & {*warps}]
    lines = [each for each in lines if meant(each.location)]
    return [each for each in barriers_of(c.warp.cta) if any(line.warps_for(each) for line in lines)]


def _phase(c: Conflict, barrier: Mbarrier) -> int:
    """Return the phase of the mbarrier that the next signal is for. Commits in flight have their signals first."""
    flying = [each for each in c.order.operations.values() if not each.op.done and each.op.barrier is barrier]
    commits = [each for each in flying if each.instruction.description.arrives_later]
    return barrier.phase + len(commits) // barrier.expected
