"""Faster visits of tilus's passes, which take most of the time of a build.

- `IRFunctor.visit` tests up to forty classes for each node. Here the method is found once for each class.
- A pass rebuilds each statement of an instruction, and all statements around it. Here only where it changes something.
- Layout inference rewrites the whole function for each layout that it finds. Here it rewrites the instructions with
  the tensor, and the function once at the end.
- The verifier makes an expression of any two variables that it compares. Here a variable is compared with `is`.
- Listing statements visits their operands too. Here it does not.
- For the lines of a method Python looks for files and tokenizes the rest of one. Here once.

This module imports tilus at its top: import it after `import_tilus`.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any
from weakref import WeakKeyDictionary

from tilus.hidet.ir.expr import Constant, Expr, Var
from tilus.hidet.ir.tools.verifier import IRVerifier
from tilus.hidet.ir.type import BaseType, DataType
from tilus.ir import func, inst, layout, prog, stmt, tensor, tools
from tilus.ir.analyzers import scalar_analyzer
from tilus.ir.functors.functor import IRFunctor, IRRewriter
from tilus.ir.layout.cuda.tcgen05 import smem
from tilus.ir.layout.inference import inference
from tilus.ir.tools.rewriter import SimpleRewriter
from tilus.transforms import layout_inference

from blackwell_matmul.frontend.faults.tilus_compat import mended
from blackwell_matmul.frontend.recording import children, operands
from blackwell_matmul.frontend.source_lines import own_lines

_WITH_METHODS_OF_THEIR_OWN = (inst.Instruction, inst.InstructionConfig)
_STATEMENTS = (
    stmt.SeqStmt, stmt.ForStmt, stmt.ThreadGroupStmt, stmt.IfStmt, stmt.WhileStmt, stmt.BreakStmt, stmt.ReturnStmt,
    stmt.DeclareStmt, stmt.LetStmt, stmt.AssignStmt, stmt.EvaluateStmt, stmt.TensorItemPtrStmt,
    stmt.TensorItemValueStmt,
)  # fmt: skip
_CONSTANTS = (str, int, float, bool, type(None))
_TENSORS = (tensor.RegisterTensor, tensor.SharedTensor, tensor.GlobalTensor, tensor.TMemoryTensor)
_LAYOUTS = (layout.RegisterLayout, layout.SharedLayout, layout.GlobalLayout, layout.TMemoryLayout)
_KINDS = (
    stmt.InstStmt, *_WITH_METHODS_OF_THEIR_OWN, prog.Program, func.Function, *_STATEMENTS, Expr, BaseType, *_TENSORS,
    *_LAYOUTS, list, tuple, dict,
)  # fmt: skip
"""Classes of nodes, in the order in which tilus tests them."""


def quick_visits() -> AbstractContextManager[None]:
    """Make tilus's passes visit as this module describes, inside the block."""
    return mended(
        (IRFunctor, "visit", _visit_of),
        (IRRewriter, "visit_InstStmt", lambda _: _statement),
        (IRRewriter, "visit_Expr", _expression_of),
        (layout_inference, "infer_layout", _infer_by_instructions),
        *((module, "collect", _collect_of) for module in (tools, inference, scalar_analyzer)),
        *((module, "rewrite", _rewrite_of) for module in (tools, layout_inference)),
        (IRVerifier, "defined", lambda _: _defined),
        (inspect, "getsourcefile", lambda _: _source_file),
        (inspect, "getsourcelines", lambda _: _source_lines),
        (smem, "_generate_atom_grid", lambda _: _atom_grid),
    )


_atom_grid = functools.cache(smem._generate_atom_grid)
"""The offsets of a piece of a layout of shared memory: there are few, and an operand of an mma is held against all."""


@functools.cache
def _method(functor: type, kind: type) -> str | None:
    """Return the name of the method for nodes of this class; None if tilus visits them another way."""
    known = next((each for each in _KINDS if issubclass(kind, each)), None)
    own = f"visit_{kind.__name__}"
    if known in _WITH_METHODS_OF_THEIR_OWN and hasattr(functor, own):
        return own
    return known and f"visit_{known.__name__}"


def _visit_of(visit: Any) -> Any:
    def quick_visit(self: Any, node: Any) -> Any:
        kind = node.__class__
        if kind in _CONSTANTS:
            return self.visit_PyConstant(node)
        method = _method(self.__class__, kind)
        if method is None:
            return visit(self, node)
        key = id(node) if issubclass(kind, (list, tuple, dict)) else node
        if key in self.memo:
            return self.memo[key]
        made = self.memo[key] = getattr(self, method)(node)
        return made

    return quick_visit


def _statement(self: Any, statement: stmt.InstStmt) -> stmt.Stmt:
    """Return the result of `IRRewriter.visit_InstStmt`."""
    made = self.visit(statement.inst)
    if isinstance(made, stmt.Stmt):
        return made
    if made is None:
        return stmt.SeqStmt(())
    return statement if made is statement.inst else stmt.InstStmt(made)


def _collect_of(collect: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a `collect` that skips operands when only statements and instructions are collected."""

    def quick_collect(node: Any, types: Any) -> Any:
        types = tuple(types)
        if not isinstance(node, func.Function) or not all(issubclass(each, _WITH_STATEMENTS) for each in types):
            return collect(node, types)
        return [each for each in dict.fromkeys(_ends_first(node.body)) if isinstance(each, types)]

    return quick_collect


_WITH_STATEMENTS = (stmt.Stmt, inst.Instruction)


def _ends_first(statement: Any) -> list[Any]:
    """Return a statement and all statements inside, inner ones first."""
    left, found = [statement], []
    while left:
        found.append(left.pop())
        left += children(found[-1])
    return found[::-1]


def _rewrite_of(rewrite: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    """Return a `rewrite` that visits nothing if there is nothing to replace."""
    return lambda node, rewrite_map: rewrite(node, rewrite_map) if rewrite_map else node


def _expression_of(visit: Any) -> Any:
    """Return a function like `IRRewriter.visit_Expr` that does not memoise an expression which stays itself; `visit`
    has looked in the memo."""

    def quick_expression(self: Any, node: Any) -> Any:
        itself = isinstance(node, Constant) or (isinstance(node, Var) and isinstance(node.type, DataType))
        return node if itself else visit(self, node)

    return quick_expression


class _TensorRewriter(SimpleRewriter):
    def visit_Expr(self, expr: Expr) -> Expr:
        return expr


def _with_tensors(node: Any, rewrite_map: Any) -> Any:
    """Return the result of `rewrite` with a map of tensors."""
    return _TensorRewriter(rewrite_map).visit(node)


def _defined(self: Any, var: Any) -> bool:
    """Return the result of `IRVerifier.defined`."""
    return var.name in self.builtin_names or any(each is var for scope in self.scopes for each in scope)


def _once(find: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return `find` with a cache for functions, whose lines do not change. Other objects, such as frames, are looked
    up each time."""
    found: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()

    def known(method: Any) -> Any:
        function = getattr(method, "__func__", method)
        if not inspect.isfunction(function):
            return find(method)
        if function not in found:
            found[function] = find(function)
        return found[function]

    return known


_source_file, _source_lines = _once(inspect.getsourcefile), _once(own_lines(inspect.getsourcelines))


def _infer_by_instructions(infer: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """Return an `infer_layout` that collects the layouts which it finds, and rewrites the function once with all of
    them. If some are missing, tilus reports the reason."""

    def inferred(function: Any) -> Any:
        known = _Search(function).run()
        return infer(function) if known is None else _with_tensors(function, known)

    return inferred


class _Search:
    """Instructions without a layout, in program order, each with the requirements of tilus's rules on its position.
    known: each tensor of the function with its layout."""

    def __init__(self, function: Any) -> None:
        collector = inference.InstructionCollector()
        collector.visit(function)
        self.open = [
            (each, collector.inst2ctx[each]) for each in collector.instructions if inference.has_missing_layouts(each)
        ]
        self.known: dict[Any, Any] = {}

    def run(self) -> dict[Any, Any] | None:
        """Return `known` when it is complete; None if a layout cannot be found, or is not right."""
        if not all(inference.get_inference_rules(each) for each, _ in self.open):
            return None
        try:
            while found := self.next_layouts():
                self.put(found)
        except Exception:  # a rule's own; tilus comes upon it again
            return None
        return None if self.open else self.known

    def next_layouts(self) -> dict[Any, Any]:
        """Return the layouts from the first rule that finds any, in tilus's order; empty if none does."""
        for each, context, rule in self._in_order():
            if found := rule.inference(context, each):
                return dict(found)
        return {}

    def _in_order(self) -> list[tuple[Any, Any, Any]]:
        """Return the instructions in tilus's order: first those with a known layout, then by rule, then the last of the
        program first."""
        ranked = [
            (not inference.has_inferred_layouts(each), inference.rule2order[rule], -place, each, context, rule)
            for place, (each, context) in enumerate(self.open)
            for rule in inference.get_inference_rules(each)
        ]
        return [entry[3:] for entry in sorted(ranked, key=lambda entry: entry[:3])]

    def put(self, found: dict[Any, Any]) -> None:
        made = {tensor: tensor.with_layout(layout) for tensor, layout in found.items()}
        first = {new: old for old, new in self.known.items()}
        self.known |= {first.get(tensor, tensor): new for tensor, new in made.items()}
        rewritten = [
            (_with_tensors(each, made) if not made.keys().isdisjoint(operands(each)) else each, context)
            for each, context in self.open
        ]
        self.open = [entry for entry in rewritten if inference.has_missing_layouts(entry[0])]
