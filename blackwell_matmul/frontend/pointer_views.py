"""What a script's views assume of the tensors behind its pointers.

`global_view` without strides is row-major: the tensor that is passed must lie so (`blackwell_matmul.strides`). A script
that gives one of a pointer's views strides, of whatever value, takes that tensor as it lies.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilus.hidet.ir.expr import BinaryExpr, Cast, Constant, Expr, Var
from tilus.hidet.ir.tools import collect, rewrite
from tilus.hidet.ir.type import PointerType
from tilus.ir.instructions import GlobalViewInst
from tilus.ir.layout import global_row_major
from tilus.ir.stmt import LetStmt

from blackwell_matmul.frontend.program import Program
from blackwell_matmul.frontend.recording import walk


def row_major_pointers(program: Program) -> frozenset[str]:
    """The names of the pointers that the script takes without strides, those that it does not view left out."""
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for view, pointer in _views(program.tile):
        found[_is_row_major(view.output.layout)].update(_pointers(program, pointer))
    return frozenset(found[True] - found[False])


def _views(function: Any) -> Iterator[tuple[GlobalViewInst, Expr]]:
    """The views with their pointers, in which a name of the script stands for what it was bound to."""
    bound: dict[Var, Expr] = {}
    for node in walk(function.body):
        if isinstance(node, LetStmt):
            for var, value in zip(node.bind_vars, node.bind_values):
                bound[var] = rewrite(value, bound)
        elif isinstance(node, GlobalViewInst):
            yield node, rewrite(node.ptr, bound)


def _pointers(program: Program, pointer: Expr) -> list[str]:
    reads = {id(var) for var in collect(pointer, Var)}
    return [name for name, var in program.params if isinstance(var.type, PointerType) and id(var) in reads]


def _is_row_major(layout: Any) -> bool:
    plain = global_row_major(*layout.shape)
    return _same(layout.offset, rewrite(plain.offset, dict(zip(plain.axes, layout.axes))))


def _same(one: Any, other: Any) -> bool:
    """Whether two expressions are built alike."""
    if one is other or type(one) is not type(other):
        return one is other
    if isinstance(one, Constant):
        return bool(one.value == other.value)
    if isinstance(one, Cast):
        return _same(one.expr, other.expr)
    return isinstance(one, BinaryExpr) and _same(one.a, other.a) and _same(one.b, other.b)
