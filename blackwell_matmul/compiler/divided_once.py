"""`divided_once`: a division before a loop is not repeated in each iteration of the loop.

hidet inlines a variable that is read once, also into a loop (`NaiveLetStmtInlineRewriter`, tilus 0.2.0). NVVM moves
most expressions out of the loop again, but no division by a variable: the divisor could be 0, and waits before the
division, inline assembly, might not end. The rungs H4 to H7 divided to find a tile's position: in every fourth k-tile,
between two TMA loads, and for each strip of C. Without these divisions problems of 12 to 20 us take 5 to 12 % less time
on an H200. Removable when the pass counts reads in all iterations. This module imports tilus at its top: import it
after `import_tilus`.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

from tilus.hidet.ir.expr import Constant, Div, Expr, FloorDiv, Mod, Var
from tilus.hidet.ir.functors import IRVisitor
from tilus.hidet.ir.stmt import ForStmt, LetStmt, WhileStmt
from tilus.hidet.ir.tools import collect
from tilus.hidet.transforms import inline_let_stmt

from blackwell_matmul.frontend.faults.tilus_compat import replaced


class _UsedInLoops(IRVisitor):
    """Collects the variables that are read in a loop and bound outside of the loop."""

    def __init__(self) -> None:
        super().__init__(use_memo=False)
        self.found: set[Var] = set()
        self._depth = 0
        self._bound_at: dict[Var, int] = {}

    def visit_Var(self, var: Var) -> None:
        if self._bound_at.get(var, self._depth) < self._depth:
            self.found.add(var)

    def visit_LetStmt(self, stmt: LetStmt) -> None:
        self._bound_at.update(dict.fromkeys(stmt.bind_vars, self._depth))
        super().visit_LetStmt(stmt)

    def visit_ForStmt(self, stmt: ForStmt) -> None:
        self._inside(super().visit_ForStmt, stmt)

    def visit_WhileStmt(self, stmt: WhileStmt) -> None:
        self._inside(super().visit_WhileStmt, stmt)

    def _inside(self, visit: Any, stmt: Any) -> None:
        self._depth += 1
        visit(stmt)
        self._depth -= 1


class _Inliner(inline_let_stmt.NaiveLetStmtInlineRewriter):
    """hidet's inliner; does not inline divisions that a loop reads."""

    def eliminate(self, node: Any) -> Any:
        used = _UsedInLoops()
        used.visit(node)
        self._used_in_loops = used.found
        return super().eliminate(node)

    def should_inline(self, var: Var, expr: Expr) -> bool:
        kept = var in self._used_in_loops and _divides(expr)
        return not kept and bool(super().should_inline(var, expr))


def _divides(expr: Expr) -> bool:
    """Return True if an expression divides by a variable."""
    return any(not isinstance(each.b, Constant) for each in collect(expr, (Div, FloorDiv, Mod)))


def divided_once() -> AbstractContextManager[None]:
    """Keep divisions by variables outside of loops, in hidet's passes inside the block."""
    return replaced((inline_let_stmt, "NaiveLetStmtInlineRewriter", _Inliner))
