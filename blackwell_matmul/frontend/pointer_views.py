"""The assumptions of a script's views about the tensors behind its pointers.

`global_view` without strides is row-major: the tensor that is passed must lie so (`base.strides`). A script
that gives one of a pointer's views strides takes that tensor as it lies.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilus.hidet.ir.expr import Expr, Var
from tilus.hidet.ir.tools import collect, rewrite
from tilus.hidet.ir.type import PointerType
from tilus.ir.instructions import GlobalViewInst
from tilus.ir.stmt import LetStmt

from blackwell_matmul.frontend.recording import Recorder, walk


def row_major_pointers(function: Any, params: tuple[tuple[str, Any], ...], recorder: Recorder) -> frozenset[str]:
    """The names of the pointers that the script takes without strides, those that it does not view left out."""
    pointers = {id(var): name for name, var in params if isinstance(var.type, PointerType)}
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for view, pointer in _views(function):
        names = {pointers[id(var)] for var in collect(pointer, Var) if id(var) in pointers}
        found[recorder.was_given(view.output, "strides")].update(names)
    return frozenset(found[False] - found[True])


def elements_of_pointers(function: Any, params: tuple[tuple[str, Any], ...]) -> dict[str, str]:
    """Return for each pointer the name of the element type of its views, where all views have the same."""
    pointers = {id(var): name for name, var in params if isinstance(var.type, PointerType)}
    found: dict[str, set[str]] = {}
    for view, pointer in _views(function):
        for var in collect(pointer, Var):
            if id(var) in pointers:
                found.setdefault(pointers[id(var)], set()).add(view.output.dtype.name)
    return {name: element for name, (element, *others) in found.items() if not others}


def _views(function: Any) -> Iterator[tuple[GlobalViewInst, Expr]]:
    """The views with their pointers, in which a name of the script stands for what it was bound to."""
    bound: dict[Var, Expr] = {}
    for node in walk(function.body):
        if isinstance(node, LetStmt):
            for var, value in zip(node.bind_vars, node.bind_values):
                bound[var] = rewrite(value, bound)
        elif isinstance(node, GlobalViewInst):
            yield node, rewrite(node.ptr, bound)
