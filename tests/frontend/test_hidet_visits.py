"""Visits that are found sooner are those that hidet finds; what it prints of a whole module is in test_source.py."""

from __future__ import annotations

from typing import Any

import pytest
from tilus.hidet.ir.dtypes import float32, int32
from tilus.hidet.ir.expr import Add, Constant, Var
from tilus.hidet.ir.func import Function
from tilus.hidet.ir.functors import IRRewriter
from tilus.hidet.ir.functors.base_functor import BaseFunctor
from tilus.hidet.ir.functors.expr_functor import ExprFunctor
from tilus.hidet.ir.stmt import BreakStmt, EvaluateStmt, SeqStmt
from tilus.hidet.ir.tools.printer import IRPrinter
from tilus.hidet.ir.type import void
from tilus.utils import py

from blackwell_matmul.frontend.faster import hidet_visits
from blackwell_matmul.frontend.faster.hidet_visits import LatePrinter, quick_hidet_visits

X = Var("x", int32)
NODES = (
    X,
    X + 1,
    X - X,
    Constant(1, int32),
    EvaluateStmt(X),
    SeqStmt([]),
    int32,
    (X,),
    [X],
    {"x": X},
    "x",
    1,
    True,
    None,
)


class Noting(IRRewriter):
    """Notes the name of each method that is called for a node."""

    def __init__(self, use_memo: bool) -> None:
        super().__init__(use_memo=use_memo)
        self.called: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("visit_") and name != "visit_dispatch":
            object.__getattribute__(self, "called").append(name)
        return super().__getattribute__(name)


def called(memo: bool) -> list[str]:
    noting = Noting(memo)
    for node in (*NODES, *NODES):
        noting.visit(node)
    return noting.called


@pytest.mark.parametrize("memo", [True, False])
def test_each_node_gets_the_method_that_it_has(memo: bool) -> None:
    theirs = called(memo)
    with quick_hidet_visits():
        assert called(memo) == called(memo) == theirs
    assert "visit_Add" in theirs and "visit_EvaluateStmt" in theirs


def test_a_functor_with_a_way_of_its_own_keeps_it() -> None:
    class Own(ExprFunctor):
        def visit_dispatch(self, node: Any) -> Any:
            return "own" if isinstance(node, Add) else super().visit_dispatch(node)

        def visit_Var(self, node: Var) -> str:
            return "var"

    with quick_hidet_visits():
        own = Own()
        assert [own.visit(X + 1), own.visit(X)] == ["own", "var"]


def test_statements_that_are_to_come_before_one_do() -> None:
    class Before(IRRewriter):
        def visit_Var(self, node: Var) -> Var:
            self.append_prologue_stmt(BreakStmt())
            return node

    def kinds(node: Any) -> Any:
        return [kinds(each) for each in node.seq] if isinstance(node, SeqStmt) else type(node).__name__

    statements = EvaluateStmt(X), SeqStmt([EvaluateStmt(X + 1), BreakStmt(), EvaluateStmt(X)])
    for memo in (True, False):
        theirs = [kinds(Before(memo).visit(each)) for each in statements]
        with quick_hidet_visits():
            assert [kinds(Before(memo).visit(each)) for each in statements] == theirs
        assert theirs[0] == ["BreakStmt", "EvaluateStmt"]


def test_what_is_compared_by_value_is_as_before() -> None:
    values = (1, 1.0, "x", (1,), X, X + 1, Constant(1, int32), Constant(1.0, float32), [X], None)
    assert [hidet_visits._is_immutable(each) for each in values] == [py._is_immutable(each) for each in values]


def test_lists_are_the_same_as_before() -> None:
    one, other = Constant(1, int32), Constant(1, int32)
    lists: tuple[list[Any], ...] = ([], [X], [X + 1], [one], [other], [1], [1.0], [X, one], [X, other], [[X]])
    pairs: list[tuple[Any, ...]] = [(left, right) for left in lists for right in (*lists, tuple(lists[1]))]
    pairs += [([1, [2]], right, True) for right in ([1, [2]], [1.0, [2]], [1, [3]])]
    theirs = [py.same_list(*each) for each in pairs]
    with quick_hidet_visits():
        assert [py.same_list(*each) for each in pairs] == theirs
    assert {True, False} == set(theirs)


def test_all_is_as_before_after_the_block() -> None:
    before = BaseFunctor.visit, py._is_immutable, py.same_list.__code__
    with pytest.raises(ZeroDivisionError), quick_hidet_visits():
        assert (BaseFunctor.visit, py._is_immutable, py.same_list.__code__) != before
        raise ZeroDivisionError
    assert (BaseFunctor.visit, py._is_immutable, py.same_list.__code__) == before


def test_a_late_printer_gives_the_same_texts() -> None:
    names = [Var("i", int32) for _ in range(3)]
    body = SeqStmt([EvaluateStmt(each + 1) for each in names])
    function = Function("f", names[:1], body, void, "cuda_internal")
    printers = IRPrinter(), LatePrinter()
    for printer in printers:
        assert printer(function) is None or printer is printers[0]
        printer(function)
    theirs, ours = ([str(printer(each + 2)) for each in reversed(names)] for printer in printers)
    assert ours == theirs and len(set(theirs)) == 3
