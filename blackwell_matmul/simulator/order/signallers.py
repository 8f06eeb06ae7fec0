"""The lines of a program that signal mbarriers or wait for them, and those that access on-chip memory.

All is read from the descriptions of the program's instructions. In a deadlock the signal did not happen; in a race the
lines show what the author meant.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

from blackwell_matmul.frontend.program import Location, Program
from blackwell_matmul.simulator.description import Access, Description, Space
from blackwell_matmul.simulator.machine.barrier import Mbarrier, mapped
from blackwell_matmul.simulator.machine.cta import Cta, Warp
from blackwell_matmul.simulator.machine.registers import ThreadGroup

BARRIER_OPERANDS = ("barrier", "mbarrier", "semaphore")
"""The attribute of tilus's instructions that holds the address of an mbarrier, or of a semaphore."""
ON_CHIP_SPACES = {"SharedTensor": Space.SHARED, "TMemoryTensor": Space.TENSOR}
"""The memory on the chip that a tensor of tilus is in, by the name of its class."""

COMMIT = "tcgen05.commit"
Barriers = frozenset[int]
"""Addresses of mbarriers, of which the instruction uses one. Addresses in another CTA include its rank (`mapped`)."""


@dataclass(frozen=True)
class Touch:
    """A line of the program that reads or writes an on-chip tensor. tensor: the whole tensor, if the line uses
    a part."""

    tensor: int
    write: bool
    warps: range
    location: Location | None


@dataclass(frozen=True)
class Signaller:
    """A line of the program that signals an mbarrier or waits for one, or a sync of threads. kinds: as in
    `Signal` and `Wait`. ranks: the CTAs of its cluster whose mbarriers it signals, as a mask (-1 if unknown); None: its
    own CTA."""

    name: str
    kinds: frozenset[str]
    barriers: Barriers
    warps: range
    location: Location | None
    ranks: int | None

    def warps_for(self, barrier: Mbarrier) -> list[Warp]:
        """Return the warps that execute the line for this mbarrier, or for one at the same address of another CTA."""
        return [cta.warps[index] for cta in self._ctas_of(barrier) for index in self.warps]

    def leaves_out(self, barrier: Mbarrier) -> bool:
        """Return True for a commit or a multicast copy that signals the same mbarrier of other CTAs, but not this
        one."""
        alone = self.ranks is None or not self.ranks >> barrier.cta.rank & 1
        whole = self.name == COMMIT or ("complete_tx" in self.kinds and self.ranks is not None)
        return whole and alone and barrier.address in self.barriers and len(barrier.cta.cluster.ctas) > 1

    def misses(self, barrier: Mbarrier) -> str:
        which = "its own CTA's barrier alone" if self.ranks is None else f"those in the mask {self.ranks:#b} alone"
        mask = 1 << len(barrier.cta.cluster.ctas)
        return (
            f"{self.name} at {self.location} signals {which}; with multicast_mask={mask - 1:#b} it signals every CTA's"
        )

    def _ctas_of(self, barrier: Mbarrier) -> list[Cta]:
        if mapped(barrier.address, barrier.cta.rank) in self.barriers:
            return barrier.cta.cluster.ctas
        if barrier.address not in self.barriers:
            return []
        if self.ranks is None:
            return [barrier.cta]
        return barrier.cta.cluster.ctas if self.ranks >> barrier.cta.rank & 1 else []


@dataclass
class _Walk:
    """A walk that follows barriers and tensors through slices, items and scalar variables. wholes: the whole tensor of
    a part, by id. signallers, touches: the result."""

    program: Program
    tensors: dict[int, Barriers] = field(default_factory=dict)
    variables: dict[int, Barriers] = field(default_factory=dict)
    wholes: dict[int, int] = field(default_factory=dict)
    signallers: list[Signaller] = field(default_factory=list)
    touches: list[Touch] = field(default_factory=list)

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
        description, _ = description_of(inst, str(location))
        self._touch(inst, description, group, location)
        if operand is not None or ("threads" in description.awaited and not _inside_warps(inst, kind)):
            kinds = frozenset[str]([*(signal.kind for signal in description.signals), *description.awaited])
            name = description.name
            meant, ranks = self._meant_by(operand), _ranks(inst)
            self.signallers.append(Signaller(name, kinds, meant, group.warps, location, ranks))

    def _touch(self, inst: Any, description: Description, group: ThreadGroup, location: Location | None) -> None:
        """Record the tensors of an instruction. An instruction that writes in a space writes all its tensors there.
        Freeing is no write."""
        on_chip = [each for each in inst.inputs if type(each).__name__ in ON_CHIP_SPACES]
        if on_chip and type(inst.output).__name__ in ON_CHIP_SPACES:
            self.wholes[id(inst.output)] = self.wholes.get(id(on_chip[0]), id(on_chip[0]))
        accesses = {(effect.space, effect.access is Access.WRITE) for effect in description.effects}
        for each in () if description.conflict else on_chip:
            space, whole = ON_CHIP_SPACES[type(each).__name__], self.wholes.get(id(each), id(each))
            if (space, False) in accesses or (space, True) in accesses:
                self.touches.append(Touch(whole, (space, True) in accesses, group.warps, location))

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


def _inside_warps(inst: Any, kind: str) -> bool:
    """Return True for a reduction whose warps do not meet, because each of them has all that it reduces."""
    from tilus.backends.emitters.reduce import ReduceInstEmitter

    return kind == "ReduceInst" and not ReduceInstEmitter.requires_inter_warp_reduction(inst)


def _ranks(inst: Any) -> int | None:
    """Return `Signaller.ranks`."""
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


def lines_of(program: Program) -> tuple[list[Signaller], list[Touch]]:
    """Return two lists in program order: lines that signal mbarriers or wait for them, including syncs, and lines that
    access on-chip memory."""
    walk = _Walk(program)
    for _ in range(2):  # a loop may use what it assigns further down
        walk.signallers.clear()
        walk.touches.clear()
        walk.visit(program.tile.body, ThreadGroup(0, program.threads))
    return [each for each in walk.signallers if each.kinds], walk.touches
