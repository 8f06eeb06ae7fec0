"""The prologue of a kernel, before its first memory access. It need not wait for the preceding grid in the stream.

Without an early start, the CTAs of a grid start when the preceding grid has ended, and then initialise barriers and
meet. With programmatic dependent launch they start as soon as there is room (PTX, "griddepcontrol"; CUDA Programming
Guide, "Programmatic Dependent Launch and Synchronization"). `griddepcontrol.wait` ends the prologue: it returns when
all preceding grids have ended and their writes are visible. Results are those of grids in sequence, also over several
launches: every kernel waits, and a waiting grid has not ended. On an H200 a call takes 0.4 to 1.9 us less (problems of
7 to 43 us in captured graphs, back to back).

The prologue writes nothing but initialised barriers, which have their own fence (`fence.mbarrier_init`). So a first
`cluster.sync` there releases nothing, and its arrival is relaxed, which saves 0.1 to 0.3 us.

Both are instructions of the tile view: the simulator executes them and the compiler compiles them. This module imports
tilus at its top: import it after `import_tilus`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from tilus.backends.emitter import BaseInstEmitter, register_emitter
from tilus.hidet.ir.expr import Call, Dereference, TensorElement, TensorSlice
from tilus.hidet.ir.stmt import AsmStmt
from tilus.hidet.ir.tools import collect
from tilus.ir import instructions as tilus
from tilus.ir.func import Function
from tilus.ir.inst import Instruction
from tilus.ir.stmt import AssignStmt, DeclareStmt, EvaluateStmt, InstStmt, LetStmt, SeqStmt, Stmt

from blackwell_matmul.frontend.recording import instructions

FIRST_ARCH = 90
"""The first compute capability with `griddepcontrol` and with clusters: 9.0."""


@dataclass(frozen=True, eq=False)
class GridDependencyInst(Instruction):
    """Allow the next grid to start once all CTAs of this grid are here, and wait until the preceding grids have
    ended."""

    template = "griddepcontrol.launch_dependents; griddepcontrol.wait;"


@dataclass(frozen=True, eq=False)
class RelaxedClusterSyncInst(Instruction):
    """A `cluster.sync` with a relaxed arrival, for CTAs that wait only for initialised barriers of each other."""

    template = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;"


@register_emitter(GridDependencyInst)
@register_emitter(RelaxedClusterSyncInst)
class _Emitter(BaseInstEmitter):
    def emit(self, inst: Any) -> None:
        self.append(AsmStmt(inst.template, [], [], True, True))


def may_start_early(target: str, function: Function) -> bool:
    """Return True if a kernel for this target can start before the grid before it ends.

    A kernel with tensor memory cannot. A CTA of the next grid could allocate columns that a CTA of this grid, on the
    same SM, has yet to allocate. Each grid would then wait for the other.
    """
    uses_tcgen05 = any(type(inst).__name__.startswith("Tcgen05") for inst in instructions(function))
    return int("".join(filter(str.isdigit, target))) >= FIRST_ARCH and not uses_tcgen05


def is_lone(cluster: Iterable[Any]) -> bool:
    """Return True if a cluster of these extents is one CTA. tilus gives kernels without clusters such a cluster."""
    return all(int(extent) == 1 for extent in cluster)


Rewritten = Callable[[Stmt, Stmt], None]
"""Callback for a replaced statement and its replacement, or for a new statement and its successor."""


def waiting(body: Stmt, rewritten: Rewritten) -> Stmt:
    """Return the body of a kernel with `griddepcontrol` at the end of its prologue, the first `cluster.sync` in it
    relaxed."""
    prologue = _Prologue(rewritten)
    walked = prologue.walk(body)
    return walked if prologue.ended else SeqStmt.create([walked, InstStmt(_new(GridDependencyInst))])


class _Prologue:
    """Follows the statements of a kernel from the start to the first that does more than a prologue."""

    def __init__(self, rewritten: Rewritten) -> None:
        self.ended = False
        self._rewritten = rewritten

    def walk(self, stmt: Stmt) -> Stmt:
        new = stmt if self.ended else self._walked(stmt)
        if new is not stmt:
            self._rewritten(stmt, new)
        return new

    def _walked(self, stmt: Stmt) -> Stmt:
        if isinstance(stmt, SeqStmt):
            return SeqStmt.create([self.walk(each) for each in stmt.seq])
        if isinstance(stmt, LetStmt) and all(map(_is_pure, stmt.bind_values)):
            return LetStmt.create(stmt.bind_vars, stmt.bind_values, self.walk(stmt.body))
        if _is_cluster_sync(stmt):
            return InstStmt(_new(RelaxedClusterSyncInst))
        if _is_harmless(stmt):
            return stmt
        self.ended = True
        wait = InstStmt(_new(GridDependencyInst))
        self._rewritten(stmt, wait)
        return SeqStmt.create([wait, stmt])


def _new(kind: type[Instruction]) -> Instruction:
    return kind(output=None, inputs=())


_HARMLESS = (
    tilus.AllocateGlobalInst, tilus.AllocateRegisterInst, tilus.AllocateSharedInst, tilus.AllocBarrierInst,
    tilus.AnnotateLayoutInst, tilus.GlobalViewInst, tilus.PermuteSharedInst, tilus.ReshapeSharedInst,
    tilus.SyncThreadsInst,
)  # fmt: skip


def _is_harmless(stmt: Stmt) -> bool:
    """Return True if a statement uses the registers of its thread alone; barriers do not count."""
    if isinstance(stmt, InstStmt):
        return isinstance(stmt.inst, _HARMLESS)
    if isinstance(stmt, (DeclareStmt, AssignStmt)):
        value = stmt.init if isinstance(stmt, DeclareStmt) else stmt.value
        return value is None or _is_pure(value)
    return False


_MEMORY = (Dereference, TensorElement, TensorSlice)
_RANK = "cuda_block_rank_in_cluster"


def _is_pure(value: Any) -> bool:
    """Return True if a scalar is computed without a read of memory."""
    return not collect(value, _MEMORY) and all(each.func_var.name == _RANK for each in collect(value, Call))


def _is_cluster_sync(stmt: Stmt) -> bool:
    """Return True for a `cluster.sync`. tilus has an instruction for it, but writes a call."""
    if isinstance(stmt, InstStmt):
        return isinstance(stmt.inst, tilus.ClusterSyncThreadsInst)
    called = getattr(stmt.expr, "func_var", None) if isinstance(stmt, EvaluateStmt) else None
    return called is not None and called.name == "this_cluster.sync"
