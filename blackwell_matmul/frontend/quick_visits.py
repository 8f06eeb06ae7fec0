"""tilus's passes, the same visits found sooner: they are most of what a build takes.

`IRFunctor.visit` asks up to forty times what a node is; here, once for each class. Layout inference goes through the
whole function twice for each layout that it finds, down into expressions, which hold neither instructions nor tensors;
here, it passes them by. This module imports tilus at its top: import it after `import_tilus`.
"""

from __future__ import annotations

import functools
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tilus.hidet.ir.expr import Expr
from tilus.hidet.ir.type import BaseType
from tilus.ir import func, inst, layout, prog, stmt, tensor
from tilus.ir.functors.functor import IRFunctor
from tilus.ir.layout.inference import inference
from tilus.ir.tools.rewriter import SimpleRewriter

from blackwell_matmul.frontend.recording import children
from blackwell_matmul.frontend.tilus_compat import lock

_WITH_METHODS_OF_THEIR_OWN = (inst.Instruction, inst.InstructionConfig)
_STATEMENTS = (
    stmt.SeqStmt, stmt.ForStmt, stmt.ThreadGroupStmt, stmt.IfStmt, stmt.WhileStmt, stmt.BreakStmt, stmt.ReturnStmt,
    stmt.DeclareStmt, stmt.LetStmt, stmt.AssignStmt, stmt.EvaluateStmt, stmt.TensorItemPtrStmt,
    stmt.TensorItemValueStmt,
)  # fmt: skip
_TENSORS = (tensor.RegisterTensor, tensor.SharedTensor, tensor.GlobalTensor, tensor.TMemoryTensor)
_LAYOUTS = (layout.RegisterLayout, layout.SharedLayout, layout.GlobalLayout, layout.TMemoryLayout)
_KINDS = (
    stmt.InstStmt, *_WITH_METHODS_OF_THEIR_OWN, prog.Program, func.Function, *_STATEMENTS, Expr, BaseType, *_TENSORS,
    *_LAYOUTS, list, tuple, dict,
)  # fmt: skip
"""In the order in which tilus asks."""


@contextmanager
def quick_visits() -> Iterator[None]:
    """Inside the block, tilus's passes visit as this module says."""
    with lock:
        before = IRFunctor.visit, inference.rewrite
        IRFunctor.visit, inference.rewrite = _visit_of(IRFunctor.visit), _with_tensors
        inference.InstructionCollector.visit = _collect
        try:
            yield
        finally:
            IRFunctor.visit, inference.rewrite = before
            del inference.InstructionCollector.visit


@functools.cache
def _method(functor: type, kind: type) -> str | None:
    """The name of the method that is for nodes of this class; None where tilus has another way."""
    known = next((each for each in _KINDS if issubclass(kind, each)), None)
    own = f"visit_{kind.__name__}"
    if known in _WITH_METHODS_OF_THEIR_OWN and hasattr(functor, own):
        return own
    return known and f"visit_{known.__name__}"


def _visit_of(visit: Any) -> Any:
    def quick_visit(self: Any, node: Any) -> Any:
        kind = node.__class__
        method = _method(self.__class__, kind)
        if method is None:
            return visit(self, node)
        key = id(node) if issubclass(kind, (list, tuple, dict)) else node
        if key in self.memo:
            return self.memo[key]
        made = self.memo[key] = getattr(self, method)(node)
        return made

    return quick_visit


class _TensorRewriter(SimpleRewriter):
    def visit_Expr(self, expr: Expr) -> Expr:
        return expr


def _with_tensors(node: Any, rewrite_map: Any) -> Any:
    """`rewrite` with a map of tensors."""
    return _TensorRewriter(rewrite_map).visit(node)


_COLLECTED = (inst.Instruction, func.Function, stmt.ThreadGroupStmt)


def _collect(self: Any, node: Any) -> None:
    """`InstructionCollector.visit`: statements and instructions."""
    if node in self.memo:
        return
    self.memo[node] = None
    method = next((f"visit_{kind.__name__}" for kind in _COLLECTED if isinstance(node, kind)), None)
    if method:
        getattr(self, method)(node)
    else:
        for child in children(node):
            self.visit(child)
