"""A deadlock, explained: which lines of the program could have ended each wait, who executes them, where these warps
are now, and the cycle of waits when there is one.

What signals a barrier is read from the program, by the descriptions' signals, because in a deadlock it did not happen.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from blackwell_matmul.frontend.program import Location, Program
from blackwell_matmul.simulator.engine import Agent
from blackwell_matmul.simulator.findings import Finding, Severity
from blackwell_matmul.simulator.machine.barrier import Mbarrier, barriers_of, mapped
from blackwell_matmul.simulator.machine.cta import Cluster, Cta, Warp, number, spell
from blackwell_matmul.simulator.machine.operation import AsyncOperation
from blackwell_matmul.simulator.machine.registers import ThreadGroup
from blackwell_matmul.simulator.order.announcements import Announcements

BARRIER_OPERANDS = ("barrier", "mbarrier", "semaphore")
"""The attribute of tilus's instructions that holds the address of an mbarrier, or of a semaphore."""

COMMIT = "tcgen05.commit"
WHAT = {"arrive": "arrivals on", "complete_tx": "bytes for", "expect_tx": "announcements of bytes on"}
Barriers = frozenset[int]
"""Addresses of mbarriers, of which one is meant; those of another CTA with its rank (`mapped`)."""


@dataclass(frozen=True)
class Signaller:
    """A line of the program that tells one of some barriers something, or waits for one. kinds: as in `Signal` and in
    `Wait`. ranks: the CTAs of its cluster whose barriers it tells, as a mask (-1 where that is not known); None: its
    own."""

    name: str
    kinds: frozenset[str]
    barriers: Barriers
    warps: range
    location: Location | None
    ranks: int | None

    def who_tells(self, barrier: Mbarrier) -> list[Warp]:
        """The warps that execute it and mean this barrier, or one at the same address of another CTA."""
        return [cta.warps[index] for cta in self._telling(barrier) for index in self.warps]

    def leaves_out(self, barrier: Mbarrier) -> bool:
        """A commit that tells the same barrier of other CTAs alone."""
        alone = self.ranks is None or not self.ranks >> barrier.cta.rank & 1
        return self.name == COMMIT and alone and barrier.address in self.barriers and len(barrier.cta.cluster.ctas) > 1

    def misses(self, barrier: Mbarrier) -> str:
        told = "its own CTA's barrier alone" if self.ranks is None else f"those in the mask {self.ranks:#b} alone"
        mask = 1 << len(barrier.cta.cluster.ctas)
        return f"{self.name} at {self.location} tells {told}; with multicast_mask={mask - 1:#b} it tells every CTA's"

    def _telling(self, barrier: Mbarrier) -> list[Cta]:
        if mapped(barrier.address, barrier.cta.rank) in self.barriers:
            return barrier.cta.cluster.ctas
        if barrier.address not in self.barriers:
            return []
        if self.ranks is None:
            return [barrier.cta]
        return barrier.cta.cluster.ctas if self.ranks >> barrier.cta.rank & 1 else []


@dataclass
class _Walk:
    """Follows barriers through slices, items and scalar variables; `signallers` is the harvest."""

    program: Program
    tensors: dict[int, Barriers] = field(default_factory=dict)
    variables: dict[int, Barriers] = field(default_factory=dict)
    signallers: list[Signaller] = field(default_factory=list)

    def visit(self, node: Any, group: ThreadGroup) -> None:
        from blackwell_matmul.frontend.recording import children

        kind = type(node).__name__
        if kind == "ThreadGroupStmt":
            group = ThreadGroup(group.begin + max(node.thread_begin, 0), node.num_threads)
        elif kind.endswith("Inst"):
            self._instruction(node, kind, group)
        else:
            self._bind(node)
        for child in children(node):
            self.visit(child, group)

    def _bind(self, stmt: Any) -> None:
        if hasattr(stmt, "bind_vars"):
            for var, value in zip(stmt.bind_vars, stmt.bind_values, strict=True):
                self._set(var, self._meant_by(value))
        elif hasattr(stmt, "tensor") and hasattr(stmt, "var"):
            self._set(stmt.var, self.tensors.get(id(stmt.tensor), frozenset()))
        elif hasattr(stmt, "var"):
            self._set(stmt.var, self._meant_by(getattr(stmt, "init", getattr(stmt, "value", None))))

    def _set(self, var: Any, barriers: Barriers) -> None:
        if barriers:
            self.variables[id(var)] = self.variables.get(id(var), frozenset()) | barriers

    def _meant_by(self, expression: Any) -> Barriers:
        from blackwell_matmul.simulator.expressions import free_variables

        if expression is None or isinstance(expression, (bool, int, float, str)):
            return frozenset()
        found = [self.variables.get(id(var), frozenset()) for var in free_variables(expression)]
        return frozenset().union(*found)

    def _instruction(self, inst: Any, kind: str, group: ThreadGroup) -> None:
        from blackwell_matmul.simulator.semantics import description_of

        if kind == "AllocBarrierInst" and inst in self.program.barriers:
            first = self.program.barriers[inst]
            self.tensors[id(inst.output)] = frozenset(first + 8 * i for i in range(len(inst.counts)))
        elif kind == "SliceRegisterInst":
            self._slice(inst)
        elif kind == "MapSharedAddrInst":
            self.tensors[id(inst.output)] = self._mapped(inst)
        elif kind == "AssignInst":
            moved = self.tensors.get(id(inst.inputs[1]), frozenset())
            self.tensors[id(inst.inputs[0])] = self.tensors.get(id(inst.inputs[0]), frozenset()) | moved
        operand = next((getattr(inst, name) for name in BARRIER_OPERANDS if hasattr(inst, name)), None)
        location = self.program.location_of(inst)
        if operand is not None:
            description, _ = description_of(inst, str(location))
            kinds = frozenset[str]([*(signal.kind for signal in description.signals), *description.awaited])
            name = description.name
            meant, ranks = self._meant_by(operand), _ranks(inst)
            self.signallers.append(Signaller(name, kinds, meant, group.warps, location, ranks))

    def _slice(self, inst: Any) -> None:
        whole = sorted(self.tensors.get(id(inst.inputs[0]), ()))
        if whole:
            index = _constant(inst.offsets[0])
            picked = whole if index is None or not 0 <= index < len(whole) else whole[index : index + 1]
            self.tensors[id(inst.output)] = frozenset(picked) | self.tensors.get(id(inst.output), frozenset())

    def _mapped(self, inst: Any) -> Barriers:
        ctas, rank = math.prod(map(int, self.program.tile.metadata.cluster_blocks)), _constant(inst.target_rank)
        ranks = range(ctas) if rank is None else (rank,)
        return frozenset(mapped(each, to) for each in self.tensors.get(id(inst.inputs[0]), ()) for to in ranks)


def _ranks(inst: Any) -> int | None:
    """See `Signaller.ranks`."""
    rank = _constant(getattr(inst, "target_rank", None))
    if hasattr(inst, "target_rank"):
        return -1 if rank is None else 1 << rank
    mask = getattr(inst, "multicast", getattr(inst, "multicast_mask", None))
    known = _constant(mask)
    if known is False or mask is None:
        return None
    return -1 if known is None or known is True else known


def _constant(expression: Any) -> int | None:
    value = getattr(expression, "value", expression)
    return value if isinstance(value, int) else None


def signallers(program: Program) -> list[Signaller]:
    """Every line that tells a barrier something, or waits for one, in program order."""
    walk = _Walk(program)
    for _ in range(2):  # a loop may use what it assigns further down
        walk.signallers.clear()
        walk.visit(program.tile.body, ThreadGroup(0, program.tile.metadata.num_warps * 32))
    return [each for each in walk.signallers if each.kinds]


# --- the explanation


def deadlock(
    program: Program,
    cluster: Cluster,
    stuck: Sequence[Agent],
    in_flight: Sequence[AsyncOperation],
    announced: Announcements,
) -> Finding:
    """These warps of the cluster wait for ever. in_flight: its operations that have not completed. announced: has
    heard the run."""
    stuck = sorted(stuck, key=_likely_cause)
    first, cta = stuck[0].wait, stuck[0].warp.cta
    assert first is not None
    made = first.barrier.location if first.barrier is not None else None
    text = _explain(stuck, [f"{op.name} ({op.location}){_unannounced(op)}" for op in in_flight], announced)
    for each in [barrier for cta in cluster.ctas for barrier in barriers_of(cta)]:
        if each.tx_bytes < 0 and each is not first.barrier:
            text += f"; {each} has got {-each.tx_bytes} bytes that nobody announced"
    notes = _notes(program, stuck)
    return Finding("deadlock", Severity.ERROR, text, cta.position, first.location, made, fatal=True, notes=notes)


def _likely_cause(agent: Agent) -> tuple[int, int, int]:
    """Where to look first: a barrier that lacks bytes, then other barriers, then threads that wait for threads."""
    barrier = agent.wait.barrier if agent.wait is not None else None
    return 2 if barrier is None else int(barrier.tx_bytes == 0), agent.warp.cta.rank, agent.warp.index


def _explain(waiting: Sequence[Agent], others: list[str], announced: Announcements) -> str:
    """Who waits, where, for what, and what is missing; `others` are the cluster's operations still in flight."""
    lines: dict[tuple[str, str], list[int]] = {}
    for agent in waiting:
        assert agent.wait is not None
        where = f"at {agent.wait.location} " if agent.wait.location else ""
        barrier = agent.wait.barrier
        bytes_ = f": {announced.balance(barrier)}" if barrier is not None and barrier.tx_bytes else ""
        key = agent.warp.cta.among_others, f"{where}for {agent.wait.why()}{bytes_}"
        lines.setdefault(key, []).append(agent.warp.index)
    waits = "; ".join(f"{_warps(who, cta)} {why}" for (cta, why), who in lines.items())
    rest = f"; in flight, but telling none of these barriers: {', '.join(others[:3])}" if others else ""
    return f"{waits}; nobody is left who could deliver it{rest}"


def _warps(indices: list[int], cta: str) -> str:
    indices = sorted(indices)
    if len(indices) == 1:
        return f"warp {indices[0]}{cta} waits"
    return f"warps {', '.join(map(str, indices))}{cta} wait"


def _unannounced(op: AsyncOperation) -> str:
    """Where a copy will bring bytes that no expect_tx announced."""
    if op.agent != "TMA" or op.barrier is None or op.barrier.tx_bytes > 0:
        return ""
    return f", which tells {op.barrier.name}, where nobody has announced bytes"


Waits = Mapping[Warp, Agent]


def _notes(program: Program, stuck: Sequence[Agent]) -> tuple[str, ...]:
    """For each barrier that is waited for, who could have ended the wait; then the cycle."""
    found = signallers(program)
    waits = {agent.warp: agent for agent in stuck}
    barriers = dict.fromkeys(a.wait.barrier for a in stuck if a.wait is not None and a.wait.barrier is not None)
    notes = [note for barrier in barriers for note in _barrier_notes(barrier, found, waits)]
    cycle = _cycle(found, waits)
    return (*notes, *([_spell_cycle(cycle, waits)] if cycle else []))


def lacking(barrier: Mbarrier) -> list[str]:
    """The kinds of signal that its phase lacks."""
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
            who = tuple(each.who_tells(barrier)) if kind in each.kinds else ()
            if who:
                groups.setdefault((each.name, who), []).append(str(each.location))
        come = [f"{name} at {', '.join(at)} by {_whereabouts(warps, waits)}" for (name, warps), at in groups.items()]
        what = f"{WHAT[kind]} {barrier}"
        yield f"{what} come from {'; '.join(come)}" if come else f"no line of the kernel makes {what}"
        yield from (each.misses(barrier) for each in found if kind in each.kinds and each.leaves_out(barrier))


def _whereabouts(warps: Sequence[Warp], waits: Waits) -> str:
    """`warp 1, which has returned`; `warps 0, 1, which wait themselves`."""
    waiting = [warp for warp in warps if warp in waits]
    who = spell(warps)
    one = len(warps) == 1
    if not waiting:
        return f"{who}, which {'has' if one else 'have'} returned"
    if len(waiting) == len(warps):
        return f"{who}, which {'waits itself' if one else 'wait themselves'}"
    return f"{who}, of which {spell(waiting)} {'waits' if len(waiting) == 1 else 'wait'} and the rest returned"


def _wanted(agent: Agent, found: list[Signaller]) -> list[Warp]:
    """The warps that could end this wait."""
    wait = agent.wait
    assert wait is not None
    if wait.meeting is not None:
        absent = wait.meeting.needed - wait.meeting.brought.keys()
        return [agent.warp.cta.warps[each] if isinstance(each, int) else each for each in absent]
    if wait.barrier is None:
        return []
    kinds = set(lacking(wait.barrier))
    telling = (each for each in found if each.kinds & kinds)
    return [warp for each in telling for warp in each.who_tells(wait.barrier)]


def _cycle(found: list[Signaller], waits: Waits) -> list[Warp]:
    """Warps each of which waits for the next, and the last for the first; the shortest such ring of two or more."""
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
"""A bound on the search, far above what a CTA's 32 warps have."""


def _spell_cycle(cycle: list[Warp], waits: Waits) -> str:
    steps = []
    for warp, after in zip(cycle, [*cycle[1:], cycle[0]]):
        wait = waits[warp].wait
        assert wait is not None
        what = wait.barrier.name if wait.barrier is not None else "a sync"
        steps.append(f"{spell([warp])} waits for {what} at {wait.location}, which needs {spell([after])}")
    return f"they wait for each other: {'; '.join(steps)}"
