"""The report of a deadlock: the lines that could have ended each wait, the warps that execute those lines, the present
place of these warps, and the cycle of waits, if there is one.

The report reads signals from the program's descriptions, because in a deadlock the signals did not happen.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from blackwell_matmul.frontend.program import Program
from blackwell_matmul.simulator.engine import Agent
from blackwell_matmul.simulator.findings import Finding, Severity
from blackwell_matmul.simulator.machine.barrier import Mbarrier, barriers_of
from blackwell_matmul.simulator.machine.cta import Cluster, Warp, number, spell
from blackwell_matmul.simulator.machine.operation import AsyncOperation
from blackwell_matmul.simulator.order.announcements import Announcements
from blackwell_matmul.simulator.order.culprits import culprit_of, scene_of
from blackwell_matmul.simulator.order.lines import ProgramLines, Roles
from blackwell_matmul.simulator.order.signallers import Signaller

WHAT = {"arrive": "arrivals on", "complete_tx": "bytes for", "expect_tx": "announcements of bytes on"}


def deadlock(
    program: Program,
    cluster: Cluster,
    stuck: Sequence[Agent],
    in_flight: Sequence[AsyncOperation],
    announced: Announcements,
) -> Finding:
    """Return the finding that these warps of the cluster wait for ever. in_flight: the cluster's incomplete operations.
    announced: the counts of the run."""
    stuck, lines = sorted(stuck, key=_likely_cause), ProgramLines(program)
    turns = any(each.wait is not None and each.wait.semaphore is not None for each in stuck)
    culprit = None if turns else culprit_of(scene_of(stuck, lines, announced))
    first, cta = stuck[0].wait, stuck[0].warp.cta
    assert first is not None
    text = _explain(stuck, [f"{op.name} ({op.location}){_unannounced(op)}" for op in in_flight], announced, lines.roles)
    missing, at_fault = "", None
    if culprit is not None:
        first, cta = culprit.stuck.wait, culprit.stuck.warp.cta
        text, missing, at_fault = f"{culprit.text}; {text}", culprit.missing, culprit.at_fault
    made = first.barrier.location if first.barrier is not None else None
    for each in [barrier for cta in cluster.ctas for barrier in barriers_of(cta)]:
        if each.tx_bytes < 0 and each is not first.barrier:
            text += f"; {each} has got {-each.tx_bytes} bytes that nobody announced"
    agents = tuple(f"warp {each.warp.index}{each.warp.cta.among_others}" for each in stuck)
    return Finding(
        "deadlock", Severity.ERROR, text, cta.position, first.location, made, fatal=True, missing=missing,
        at_fault=at_fault, agents=agents, notes=_notes(lines.roles.lines, stuck),
    )  # fmt: skip


def _likely_cause(agent: Agent) -> tuple[int, int, int]:
    """Return a sort key of a wait in the report: semaphores, barriers that lack bytes, other barriers, then barriers
    of threads."""
    wait, rank = agent.wait, 3
    if wait is not None and wait.semaphore is not None:
        rank = 0
    elif wait is not None and wait.barrier is not None:
        rank = 1 if wait.barrier.tx_bytes else 2
    return rank, agent.warp.cta.rank, agent.warp.index


def _explain(waiting: Sequence[Agent], others: list[str], announced: Announcements, roles: Roles) -> str:
    """Return text on each waiting warp: its line, its barrier and the missing signal. others: operations in flight of
    the cluster."""
    lines: dict[tuple[str, str], list[int]] = {}
    for agent in waiting:
        assert agent.wait is not None
        where = f"at {agent.wait.location} " if agent.wait.location else ""
        cta, last = agent.warp.cta.among_others, ""
        if agent.wait.semaphore is not None:
            cta, last = f" of CTA {agent.warp.cta.position}", _released(agent.wait.semaphore, announced, roles)
        key = cta, f"{where}for {agent.wait.why()}{last}"
        lines.setdefault(key, []).append(agent.warp.index)
    waits = "; ".join(f"{_warps(who, cta)} {why}" for (cta, why), who in lines.items())
    rest = f"; in flight, but signalling none of these barriers: {', '.join(others[:3])}" if others else ""
    return f"{waits}; nobody is left who could deliver it{rest}"


def _released(semaphore: int, announced: Announcements, roles: Roles) -> str:
    """Return the last store to a semaphore, or the lines that could still store to it."""
    if semaphore in announced.releases:
        warp, instruction = announced.releases[semaphore]
        return f", which {instruction.name} at {instruction.location} by {warp} stored last"
    lines = ", ".join(f"{each.name} at {each.location}" for each in roles.semaphores("release"))
    return f", which no CTA has changed yet ({lines} would)" if lines else ", and no line of the kernel releases one"


def _warps(indices: list[int], cta: str) -> str:
    indices = sorted(indices)
    if len(indices) == 1:
        return f"warp {indices[0]}{cta} waits"
    return f"warps {', '.join(map(str, indices))}{cta} wait"


def _unannounced(op: AsyncOperation) -> str:
    """Return a clause for a copy whose bytes no expect_tx announced; "" for other operations."""
    if op.agent != "TMA" or op.barrier is None or op.barrier.tx_bytes > 0:
        return ""
    return f", which signals {op.barrier.name}, where nobody has announced bytes"


Waits = Mapping[Warp, Agent]


def _notes(found: list[Signaller], stuck: Sequence[Agent]) -> tuple[str, ...]:
    """Return, for each mbarrier in question, the lines that could have ended the wait; then the cycle."""
    waits = {agent.warp: agent for agent in stuck}
    barriers = dict.fromkeys(a.wait.barrier for a in stuck if a.wait is not None and a.wait.barrier is not None)
    notes = [note for barrier in barriers for note in _barrier_notes(barrier, found, waits)]
    cycle = _cycle(found, waits)
    return (*notes, *([_spell_cycle(cycle, waits)] if cycle else []))


def lacking(barrier: Mbarrier) -> list[str]:
    """Return the kinds of signal that the mbarrier's phase lacks."""
    kinds = ["arrive"] if barrier.pending else []
    if barrier.tx_bytes:
        kinds.append("complete_tx" if barrier.tx_bytes > 0 else "expect_tx")
    return kinds


def _barrier_notes(barrier: Mbarrier, found: list[Signaller], waits: Waits) -> Iterator[str]:
    kinds = lacking(barrier)
    if barrier.tx_bytes:  # either side of the count may be the wrong one
        kinds = [kind for kind in kinds if kind == "arrive"] + ["expect_tx", "complete_tx"]
    for kind in kinds:
        groups: dict[tuple[str, tuple[Warp, ...]], list[str]] = {}
        for each in found:
            who = tuple(each.warps_for(barrier)) if kind in each.kinds else ()
            if who:
                groups.setdefault((each.name, who), []).append(str(each.location))
        come = [f"{name} at {', '.join(at)} by {_whereabouts(warps, waits)}" for (name, warps), at in groups.items()]
        what = f"{WHAT[kind]} {barrier}"
        yield f"{what} come from {'; '.join(come)}" if come else f"no line of the kernel makes {what}"
        yield from (each.misses(barrier) for each in found if kind in each.kinds and each.leaves_out(barrier))


def _whereabouts(warps: Sequence[Warp], waits: Waits) -> str:
    """Return `warp 1, which has returned`; `warps 0, 1, which wait themselves`."""
    waiting = [warp for warp in warps if warp in waits]
    who = spell(warps)
    one = len(warps) == 1
    if not waiting:
        return f"{who}, which {'has' if one else 'have'} returned"
    if len(waiting) == len(warps):
        return f"{who}, which {'waits itself' if one else 'wait themselves'}"
    return f"{who}, of which {spell(waiting)} {'waits' if len(waiting) == 1 else 'wait'} and the rest returned"


def _wanted(agent: Agent, found: list[Signaller]) -> list[Warp]:
    """Return the warps that could end this wait."""
    wait = agent.wait
    assert wait is not None
    if wait.meeting is not None:
        absent = wait.meeting.needed - wait.meeting.brought.keys()
        return [agent.warp.cta.warps[each] if isinstance(each, int) else each for each in absent]
    if wait.barrier is None:
        return []
    kinds = set(lacking(wait.barrier))
    signalling = (each for each in found if each.kinds & kinds)
    return [warp for each in signalling for warp in each.warps_for(wait.barrier)]


def _cycle(found: list[Signaller], waits: Waits) -> list[Warp]:
    """Return the shortest cycle of two or more warps in which every warp waits for the next; [] if there is none."""
    wanted = {
        warp: sorted({other for other in _wanted(agent, found) if other in waits and other is not warp}, key=number)
        for warp, agent in waits.items()
    }
    paths = [[warp] for warp in sorted(waits, key=number)]
    for _ in range(len(waits)):
        for path in paths:
            if path[0] in wanted[path[-1]]:
                return path
        paths = [[*path, after] for path in paths for after in wanted[path[-1]] if after not in path][:MAX_PATHS]
    return []


MAX_PATHS = 4096
"""Maximum number of paths in the search, far more than a CTA of 32 warps has."""


def _spell_cycle(cycle: list[Warp], waits: Waits) -> str:
    steps = []
    for warp, after in zip(cycle, [*cycle[1:], cycle[0]]):
        wait = waits[warp].wait
        assert wait is not None
        what = wait.barrier.name if wait.barrier is not None else "a sync"
        steps.append(f"{spell([warp])} waits for {what} at {wait.location}, which needs {spell([after])}")
    return f"they wait for each other: {'; '.join(steps)}"
