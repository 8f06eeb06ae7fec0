"""Faster visits of hidet's passes. `BaseFunctor.visit` tests up to sixty types of a node at each visit. Here each class
of functors does this once for each class of nodes. Sums are sorted by their texts, without a text of each function."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

from tilus.hidet.ir.expr import Constant
from tilus.hidet.ir.func import Function
from tilus.hidet.ir.functors.base_functor import BaseFunctor
from tilus.hidet.ir.functors.expr_functor import ExprFunctor
from tilus.hidet.ir.functors.module_functor import ModuleFunctor
from tilus.hidet.ir.functors.stmt_functor import StmtFunctor, StmtRewriter
from tilus.hidet.ir.functors.type_functor import TypeFunctor
from tilus.hidet.ir.stmt import SeqStmt, Stmt
from tilus.hidet.ir.tools.printer import IRPrinter
from tilus.hidet.transforms import simplify_addition_chain
from tilus.utils import py

from blackwell_matmul.frontend.faults.tilus_compat import mended

_BY_CLASS = tuple(
    each.__dict__["visit_dispatch"] for each in (ExprFunctor, StmtFunctor, TypeFunctor, ModuleFunctor, BaseFunctor)
)
"""The dispatches that ask for the class of a node alone, before they call a method."""

_OF_STATEMENTS = frozenset(name for name in dir(StmtFunctor) if name.startswith("visit_") and name.endswith("Stmt"))
_PYTHON = frozenset({str, bool, int, float, complex, type(None)})
_BY_ADDRESS = frozenset({list, dict})
_methods: dict[tuple[type, type], str | None] = {}


def quick_hidet_visits() -> AbstractContextManager[None]:
    """Make hidet's passes visit as this module describes, inside the block."""
    return mended(
        (BaseFunctor, "visit", _visit_of),
        (py, "_is_immutable", lambda _: _is_immutable),
        (simplify_addition_chain, "IRPrinter", lambda _: LatePrinter),
        (py.same_list, "__code__", lambda _: _same_list.__code__),  # its name is in each of hidet's modules
    )


def _visit_of(visit: Callable[[Any, Any], Any]) -> Callable[[Any, Any], Any]:
    def quick_visit(self: Any, node: Any) -> Any:
        kind = node.__class__
        if kind in _PYTHON:
            return self.visit_PyConstant(node)
        try:
            method = _methods[self.__class__, kind]
        except KeyError:
            method = _methods[self.__class__, kind] = _method(self.__class__, node)
        if method is None:
            return visit(self, node)
        memo = self.memo
        key = id(node) if kind in _BY_ADDRESS else node
        if memo is not None and key in memo:
            return memo[key]
        made = getattr(self, method)(node)
        if method in _OF_STATEMENTS and getattr(self, "_prologues", None):
            made = _after_prologue(self, made)
        if memo is not None:
            self.memo[key] = made
        return made

    return quick_visit


def _after_prologue(rewriter: StmtRewriter, made: Stmt) -> Stmt:
    """Return a rewritten statement with the statements that a pass puts before it, as the end of
    `StmtRewriter.visit_dispatch` does."""
    prologue, rewriter._prologues = rewriter._prologues, []
    return SeqStmt([*prologue, *(made.seq if isinstance(made, SeqStmt) else [made])])


class LatePrinter:
    """A printer that prints functions, each once, when the text of an expression is asked for: only the names of the
    variables are needed of their texts, and most functions have no sums to sort."""

    def __init__(self) -> None:
        self._printer, self._functions = IRPrinter(), list[Function]()

    def __call__(self, node: Any) -> Any:
        """Return the text of an expression, None for a function."""
        if isinstance(node, Function):
            self._functions += [] if any(each is node for each in self._functions) else [node]
            return None
        while self._functions:
            self._printer(self._functions.pop(0))
        return self._printer(node)


class _OwnNames:
    """Stand-in for a functor: each method returns its own name."""

    def __getattr__(self, name: str) -> Callable[[Any], str]:
        return lambda node: name


def _method(functor: type, node: Any) -> str | None:
    """Return the name of the visit method for nodes of this class; None if the class alone does not decide."""
    for cls in functor.__mro__:
        dispatch = cls.__dict__.get("visit_dispatch")
        if cls is StmtRewriter:
            continue  # it asks StmtFunctor, which comes after it, and leaves to others what is no statement
        if dispatch is not None and dispatch not in _BY_CLASS:
            return None
        name = NotImplemented if dispatch is None else dispatch(_OwnNames(), node)
        if name is not NotImplemented:
            return str(name)
    return None


def _is_immutable(value: Any) -> bool:
    """Return the result of `tilus.utils.py._is_immutable`, without its imports at each call."""
    kind = value.__class__
    if kind is Constant:
        return not value.type.is_tensor()
    return issubclass(kind, (int, float, str, tuple))


def _same_list(lhs: Any, rhs: Any, use_equal: bool = False) -> bool:
    """Return the result of `tilus.utils.py.same_list`; identical objects are not compared by value."""
    if len(lhs) != len(rhs):
        return False
    for left, right in zip(lhs, rhs):
        if left is right:
            continue
        if not (use_equal or (_is_immutable(left) and _is_immutable(right))) or left != right:
            return False
    return True
