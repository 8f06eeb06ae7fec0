"""Assumptions of a script's views about the tensors that its pointers address: strides, element types, alignment.

`global_view` without strides is row-major, and the passed tensor must be row-major (`base.strides`). If a script gives
strides to one view of a pointer, any strides of that tensor are allowed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilus.hidet.ir.expr import Expr, Var
from tilus.hidet.ir.tools import collect, rewrite
from tilus.hidet.ir.type import PointerType
from tilus.ir.inst import Instruction
from tilus.ir.instructions import GlobalViewInst
from tilus.ir.stmt import LetStmt

from blackwell_matmul.frontend.identity import IdentityMap
from blackwell_matmul.frontend.recording import Recorder, instructions, walk


def row_major_pointers(function: Any, params: tuple[tuple[str, Any], ...], recorder: Recorder) -> frozenset[str]:
    """Return the names of the pointers whose views have no strides; pointers without a view are left out."""
    pointers = {id(var): name for name, var in params if isinstance(var.type, PointerType)}
    found: dict[bool, set[str]] = {True: set(), False: set()}
    for view, pointer in _views(function):
        names = {pointers[id(var)] for var in collect(pointer, Var) if id(var) in pointers}
        found[recorder.was_given(view.output, "strides")].update(names)
    return frozenset(found[False] - found[True])


def elements_of_pointers(function: Any, params: tuple[tuple[str, Any], ...]) -> dict[str, str]:
    """Return, for each pointer, the name of the element type that all its views share; pointers with different views
    are omitted."""
    pointers = {id(var): name for name, var in params if isinstance(var.type, PointerType)}
    found: dict[str, set[str]] = {}
    for view, pointer in _views(function):
        for var in collect(pointer, Var):
            if id(var) in pointers:
                found.setdefault(pointers[id(var)], set()).add(view.output.dtype.name)
    return {name: element for name, (element, *others) in found.items() if not others}


def joined_accesses(function: Any, access_bytes: Mapping[Any, int]) -> Iterator[tuple[Expr, Instruction, int]]:
    """Yield each instruction that accesses several elements at once, with its view's pointer and the bytes at once."""
    pointers = IdentityMap((view.output, pointer) for view, pointer in _views(function))
    for inst in instructions(function):
        views = [tensor for tensor in inst.inputs if tensor in pointers] if access_bytes.get(inst, 1) > 1 else []
        yield from ((pointers[view], inst, access_bytes[inst]) for view in views)


def _views(function: Any) -> Iterator[tuple[GlobalViewInst, Expr]]:
    """Return the views with their pointers; a name of the script is replaced by its value."""
    bound: dict[Var, Expr] = {}
    for node in walk(function.body):
        if isinstance(node, LetStmt):
            for var, value in zip(node.bind_vars, node.bind_values):
                bound[var] = rewrite(value, bound)
        elif isinstance(node, GlobalViewInst):
            yield node, rewrite(node.ptr, bound)
