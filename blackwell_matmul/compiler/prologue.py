"""What a kernel does before it first touches memory: there it need not wait for the grid before it in the stream.

A launch has costs that no kernel sees from inside: its CTAs start when those of the grid before it have ended, and then
initialise barriers and meet. With programmatic dependent launch (PTX, "griddepcontrol"; CUDA Programming Guide,
"Programmatic Dependent Launch and Synchronization") they start as soon as there is room. `griddepcontrol.wait` stands
at the end of the prologue: it returns when all grids before have ended and what they wrote can be read. So results are
those of one grid after the other, also over several launches, because every kernel waits, and a grid that waits has not
ended. On an H200 a call takes 0.4 to 1.9 us less (problems of 7 to 43 us in captured graphs, back to back).

In the prologue nothing but the initialisation of barriers can have been written, and that has a fence of its own
(`fence.mbarrier_init`). So a first `cluster.sync` there releases nothing, and its arrival is relaxed: 0.1 to 0.3 us.

This module imports tilus at its top: import it after `import_tilus`.
"""

from __future__ import annotations

from typing import Any

from tilus.hidet.ir.expr import Call, Dereference, TensorElement, TensorSlice
from tilus.hidet.ir.stmt import (
    AsmStmt,
    BlackBoxStmt,
    BufferStoreStmt,
    EvaluateStmt,
    LetStmt,
    ReturnStmt,
    SeqStmt,
    WhileStmt,
)  # fmt: skip
from tilus.hidet.ir.tools import collect
from tilus.hidet.ir.type import TensorType

FIRST_ARCH = 90
"""From compute capability 9.0 on there is `griddepcontrol`, and there are clusters."""

WAIT = "griddepcontrol.launch_dependents; griddepcontrol.wait;"
"""The next grid may start once every CTA of this one is here; this one goes on when those before it have ended."""

RELAXED_SYNC = "barrier.cluster.arrive.relaxed.aligned; barrier.cluster.wait.acquire.aligned;"

_SYNC = "this_cluster.sync"
_HARMLESS = frozenset(
    {
        _SYNC,
        "cuda_syncthreads",
        "cuda_mbarrier_init_shared",
        "cuda_fence_mbarrier_init_cluster",
        "cuda_block_rank_in_cluster",
        "cuda_elect_sync",
        "cuda_cvta_generic_to_shared",
    }
)
"""What a prologue may call, besides `cuda_dynamic_shared_memory_*`, which are addresses."""


def may_start_early(target: str, uses_tcgen05: bool) -> bool:
    """Whether a kernel for this target can be launched so.

    Not one with tensor memory: a CTA of the next grid could allocate what a CTA of this one, on the same SM, has not
    allocated yet; the one would wait for this grid to end, and this grid for the other.
    """
    return int("".join(filter(str.isdigit, target))) >= FIRST_ARCH and not uses_tcgen05


def waiting(body: Any) -> Any:
    """The body of a kernel with `WAIT` at the end of its prologue, the first `cluster.sync` in it relaxed."""
    prologue = _Prologue()
    walked = prologue.walk(body)
    return walked if prologue.ended else SeqStmt([walked, _asm(WAIT)])


class _Prologue:
    """Follows the statements of a kernel from the start to the first that does more than a prologue."""

    def __init__(self) -> None:
        self.ended = False

    def walk(self, stmt: Any) -> Any:
        if self.ended:
            return stmt
        if isinstance(stmt, SeqStmt):
            return SeqStmt([self.walk(each) for each in stmt.seq])
        if isinstance(stmt, LetStmt) and all(map(_is_harmless, stmt.bind_values)):
            return LetStmt(stmt.bind_vars, stmt.bind_values, self.walk(stmt.body))
        if _is_harmless(stmt):
            return _asm(RELAXED_SYNC) if _is_sync(stmt) else stmt
        self.ended = True
        return SeqStmt([_asm(WAIT), stmt])


def _is_harmless(node: Any) -> bool:
    """Whether a statement or an expression stays within the registers of its thread, barriers aside."""
    if collect(node, (AsmStmt, Dereference, ReturnStmt, TensorSlice, WhileStmt)):
        return False
    return (
        all(_is_register(each.base) for each in collect(node, TensorElement))
        and all(_is_register(each.buf) for each in collect(node, BufferStoreStmt))
        and all(_is_comment(each.template_string) for each in collect(node, BlackBoxStmt))
        and all(_may_be_called(each.func_var.name or "") for each in collect(node, Call))
    )


def _is_register(base: Any) -> bool:
    return isinstance(getattr(base, "type", None), TensorType)


def _is_comment(text: str) -> bool:
    return text.startswith(("//", "/*", "__builtin_assume("))


def _may_be_called(name: str) -> bool:
    return name in _HARMLESS or name.startswith("cuda_dynamic_shared_memory_")


def _is_sync(stmt: Any) -> bool:
    return isinstance(stmt, EvaluateStmt) and isinstance(stmt.expr, Call) and stmt.expr.func_var.name == _SYNC


def _asm(template: str) -> Any:
    return AsmStmt(template, [], [], True, True)
