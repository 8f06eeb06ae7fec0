"""Statements, calls and indices in a script do the same as in Python, or are refused; docs/python.md lists each case.

tilus 0.2.0 drops the `else` of a loop, and computes the calls in a `while` condition once. A `return` in an inlined
method ends the kernel. `xs.append(1)` in a loop runs once. `x[2:6]` is read as the whole dimension. A loop variable
does not replace a variable of the same name. This module imports tilus at its top: import it after `import_tilus`.
"""

from __future__ import annotations

import ast
import copy
import inspect
import operator
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import zip_longest
from typing import Any

from tilus.hidet import ir
from tilus.hidet.ir.expr import Call, Expr, Var, as_expr
from tilus.hidet.ir.tools import collect
from tilus.ir.instructions import AssignInst, SliceAssignInst
from tilus.ir.stmt import AssignStmt, InstStmt, SeqStmt
from tilus.ir.tensor import RegisterTensor, Tensor
from tilus.lang.constructs.loops import RangeLoop
from tilus.lang.transpiler.builder import Scope

from blackwell_matmul.frontend.messages.phrases import one
from blackwell_matmul.frontend.messages.raised import Refusal, kind
from blackwell_matmul.frontend.python.python_calls import PythonCalls
from blackwell_matmul.frontend.python.python_names import Visited, frame_of
from blackwell_matmul.frontend.python.python_operators import (
    holds_computed,
    is_float,
    known,
    misfit_of_tile,
    refused,
    tried,
    type_of,
)

DEEPEST_CALL = 64
"""Maximum depth of inlined methods; a deeper call is taken for an endless recursion."""


def check_undecorated(method: Any) -> None:
    """Refuse anything but a plain `def`: tilus reads the source of the innermost function, without its decorators."""
    function = inspect.unwrap(method)
    if function is not method:
        name = function.__name__
        raise Refusal(f"`{name}` has a decorator, whose own code is not read; leave it out, or do its work in a method")
    if function.__code__.co_name == "<lambda>":
        raise Refusal("a lambda is a method of this class; write it with def, and annotate its parameters")


class PythonTranspiler(PythonCalls):
    """tilus's transpiler, which reads a script as Python does or refuses it."""

    def __init__(self) -> None:
        super().__init__()
        self._read: list[Any] = []  # by the statement so far
        self._held: list[list[Any]] = []  # for each call: what its statement has read before it
        self._calls: list[int] = []  # how much that is

    # --- loops and branches

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """Return a scope for statements that do not run exactly once."""
        before, self.blocks = self.blocks, (*self.blocks, object())
        with self.scope():
            yield
        self.blocks = before

    def visit_For(self, stmt: ast.For) -> None:
        """Evaluate the bounds once, before the loop. A loop variable that the body assigns is a new variable in each
        iteration."""
        self._check_targets(stmt.target)
        loop, read = self.visit(stmt.iter), copy.copy(stmt)
        if isinstance(loop, RangeLoop):
            loop.start, loop.stop, loop.step = map(self.settled, (loop.start, loop.stop, loop.step))
        read.iter = ast.copy_location(Visited(loop), stmt.iter)
        if isinstance(stmt.target, ast.Name) and _assigns(stmt.body, stmt.target.id):
            of_loop = f"{stmt.target.id}_of_loop"
            read.target = ast.copy_location(ast.Name(of_loop, ast.Store()), stmt.target)
            first = ast.Assign([stmt.target], ast.copy_location(ast.Name(of_loop, ast.Load()), stmt.target))
            read.body = [ast.copy_location(first, stmt), *stmt.body]
        with self._inside():
            super().visit_For(read)
        self._visit_else(stmt)

    def visit_While(self, stmt: ast.While) -> None:
        """Evaluate the condition, with all statements that it emits, in each iteration."""
        with self.block():
            test = self.truth(stmt.test)
        before = self.pop_innermost_last()
        emitted = isinstance(before, SeqStmt) and before.seq
        always = known(test)
        condition = test if always is None else as_expr(always)
        with self.while_loop(cond=as_expr(True) if emitted else condition), self._inside():
            if emitted:
                self.append(before)
                with self.if_then(cond=ir.logical_not(condition)):
                    self.brk()
            self._visit_all(stmt.body)
        self._visit_else(stmt)

    def _visit_else(self, stmt: ast.For | ast.While) -> None:
        if stmt.orelse and any(_breaks(stmt.body)):
            raise Refusal(
                "the else of this loop runs unless a break ends it, which tilus has no code for; note the break in a "
                "variable, and ask for it behind the loop"
            )
        self._visit_all(stmt.orelse)

    def _visit_all(self, body: Sequence[ast.stmt]) -> None:
        for stmt in body:
            self.visit(stmt)

    def visit_If(self, stmt: ast.If) -> None:
        condition = self.truth(stmt.test)
        chosen = known(condition)
        if chosen is not None:
            self._visit_all(stmt.body if chosen else stmt.orelse)
            return
        with self.if_then(cond=condition), self._inside():
            self._visit_all(stmt.body)
        if stmt.orelse:
            with self.otherwise(), self._inside():
                self._visit_all(stmt.orelse)

    def visit_With(self, stmt: ast.With) -> None:
        for item in stmt.items:
            self._check_targets(item.optional_vars)
        super().visit_With(stmt)

    def _check_targets(self, target: ast.expr | None) -> None:
        """Refuse a name that is already bound, because it would get its old value back after the block."""
        for node in ast.walk(target) if target is not None else ():
            if isinstance(node, ast.Name) and node.id != "_" and self.lookup(node.id) is not None:
                raise Refusal(
                    f"`{node.id}` is bound already, and would have that value again behind this block; give it another "
                    "name here"
                )

    def visit_Return(self, stmt: ast.Return) -> None:
        if len(self.class_stack) > 1:
            raise Refusal(
                "a return in a block of an inlined method would end the kernel; put the rest of the method under an "
                "if, and return at its end"
            )
        super().visit_Return(stmt)

    def visit_NoneType(self, _: None) -> None:
        """Read a `return` without a value, at the end of a method: None."""

    def visit_Continue(self, stmt: ast.Continue) -> None:
        raise Refusal("tilus has no code for continue; put the rest of the loop's body under an if")

    def visit_Expr(self, expr: ast.Expr) -> None:
        """Read an expression statement: an unused value has no effect, but the call of a primitive has."""
        if isinstance(expr.value, ast.Constant):
            return
        node = ast.copy_location(Visited(self.visit(expr.value)), expr.value)
        if isinstance(node.value, (list, tuple)) or (isinstance(node.value, Expr) and collect(node.value, Call)):
            super().visit_Expr(ast.copy_location(ast.Expr(node), expr))

    # --- calls

    def visit(self, node: Any) -> Any:
        if not isinstance(node, ast.stmt):
            return super().visit(node)
        before, self._read = self._read, []
        try:
            return super().visit(node)
        finally:
            self._read = before

    def visit_Name(self, expr: ast.Name) -> Any:
        return self._noted(super().visit_Name(expr))

    def visit_Attribute(self, expr: ast.Attribute) -> Any:
        return self._noted(super().visit_Attribute(expr))

    def _noted(self, value: Any) -> Any:
        if isinstance(value, (Var, RegisterTensor)):
            self._read.append(value)
        return value

    def visit_List(self, expr: ast.List) -> list[Any]:
        found = self.elements(expr.elts)
        self.made_in_blocks[found] = self.blocks
        return found

    def visit_Tuple(self, expr: ast.Tuple) -> tuple[Any, ...]:
        return tuple(self.elements(expr.elts))

    def visit_Call(self, expr: ast.Call) -> Any:
        self._calls.append(len(self._read))
        try:
            return super().visit_Call(expr)
        finally:
            self._calls.pop()

    def transpile_call(self, method: Any, args: Any, kwargs: Any) -> Any:
        check_undecorated(method)
        self._check_arguments(method, args, kwargs)
        if len(self.frames) > DEEPEST_CALL:
            raise Refusal(f"`{method.__name__}` is inlined into itself, without an end; a loop repeats")
        self.frames.append(frame_of(method.__func__.__code__))
        self._held.append(self._read[: self._calls[-1] if self._calls else 0])
        try:
            return super().transpile_call(method, args, kwargs)
        finally:
            self._held.pop()
            self.frames.pop()

    def _check_arguments(self, method: Any, args: Any, kwargs: Any) -> None:
        """Refuse a number that a parameter would cut: tilus converts to its type, and Python does not."""
        for parameter in inspect.signature(method).parameters.values():
            if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                name = str(parameter).partition(":")[0]
                raise Refusal(f"`{method.__name__}` takes {name}; a method of a kernel has a name for each argument")
        with suppress(TypeError):  # tilus has the sentence for arguments that are missing
            for name, value in inspect.signature(method).bind(*args, **kwargs).arguments.items():
                if _is_number(value):
                    self.fitting(name, method.__annotations__.get(name), value)

    def append(self, inst_or_stmt: Any) -> None:
        super().append(inst_or_stmt)
        changed = _changed(self._stack[-1][-1])
        if changed is not None and any(each is changed for held in self._held for each in held):
            raise Refusal(
                "this changes a value that a statement has read before it calls this method, where Python has the old "
                "one; keep the old value under a name, or call the method in a statement before"
            )

    # --- comprehensions and indices

    def process_generator(self, elt: ast.expr, generators: list[ast.comprehension]) -> list[Any]:
        """Bind the names of a comprehension again in each round: tilus 0.2.0 refuses the second."""
        with self.scope():
            return list(self._rounds(elt, generators))

    def _rounds(self, elt: ast.expr, generators: Sequence[ast.comprehension]) -> Iterator[Any]:
        if not generators:
            yield self.visit(elt)
            return
        for item in self._items(generators[0]):
            self._bind_item(generators[0].target, item)
            if all(self._is_wanted(each) for each in generators[0].ifs):
                yield from self._rounds(elt, generators[1:])

    def _items(self, generator: ast.comprehension) -> Iterator[Any]:
        items = self.visit(generator.iter)
        if isinstance(items, (Expr, Tensor)):
            raise refused(generator.iter, "is no list of values; a comprehension goes over one")
        return iter(items)

    def _is_wanted(self, test: ast.expr) -> bool:
        value = self.truth(test)
        known(value)  # refuses a tile
        return bool(value)

    def _bind_item(self, target: ast.expr, item: Any) -> None:
        if isinstance(target, ast.Name):
            scope = self.current_scope
            for names in (scope.name2var, scope.name2value, scope.name2host_var):
                names.pop(target.id, None)
            Scope.bind(scope, target.id, item)
            return
        if not isinstance(target, (ast.Tuple, ast.List)) or len(target.elts) != len(item):
            raise refused(target, f"does not take the {len(item)} values of an element")
        for each, part in zip(target.elts, item, strict=True):
            self._bind_item(each, part)

    def visit_Subscript(self, expr: ast.Subscript) -> Any:
        base = self.visit(expr.value)
        if isinstance(base, Tensor) or not isinstance(base, (Sequence, Mapping)):
            return super().visit_Subscript(self._at(expr, base))
        key = self.visit(expr.slice)
        parts = [key.start, key.stop, key.step] if isinstance(key, slice) else [key]
        if holds_computed(parts):
            raise refused(
                expr,
                f"has no code: a Python {kind(base)} is indexed by a variable of the kernel, which only tensors are; "
                "choose, as in a if n > 3 else b, or allocate barriers together, as in "
                "full = self.mbarrier.alloc(counts=[1, 1]), and shared tensors with one more dimension",
            )
        return tried(expr, operator.getitem, base, key)

    def process_subscript_assign(self, lhs: ast.Subscript, rhs: Any, type_annotation: ast.expr | None = None) -> None:
        base = self.visit(lhs.value)
        read = self._at(lhs, base)
        if isinstance(base, RegisterTensor) and _is_number(rhs):
            rhs = self._filled(lhs, base, read, rhs)
        super().process_subscript_assign(read, rhs, type_annotation)

    def _filled(self, lhs: ast.Subscript, base: RegisterTensor, read: Any, number: Any) -> RegisterTensor:
        """Return a tile of the shape of the place, with the number everywhere."""
        why = misfit_of_tile(number, base.dtype)
        if why is not None:
            raise Refusal(f"`{ast.unparse(lhs.value)}` {why}; convert it")
        index = read.slice.value
        shape = [extent for extent, part in zip_longest(base.shape, index) if part is None or isinstance(part, slice)]
        return self.allocate_register(dtype=base.dtype, shape=shape, f_init=lambda _: base.dtype(number))

    def _at(self, expr: ast.Subscript, base: Any) -> ast.Subscript:
        """Return the subscript with visited parts, and with an index from the front for each negative one."""
        found = self.visit(expr.slice)
        if isinstance(base, Tensor):
            parts = found if isinstance(found, (list, tuple)) else (found,)
            if len(parts) > len(base.shape):
                raise refused(expr, f"has too many indices for a tensor of shape {tuple(base.shape)}")
            found = tuple(_index(expr, *each) for each in zip(parts, base.shape))
        return ast.copy_location(ast.Subscript(Visited(base), Visited(found), expr.ctx), expr)


def _index(expr: ast.Subscript, index: Any, extent: Any) -> Any:
    """Return an index from the front. extent: of its dimension."""
    if isinstance(index, slice):
        if not _is_whole(index, extent):
            raise refused(
                expr,
                "takes a part of a dimension, and only the whole can be taken, as in x[:, 0]; load the part "
                "by its offsets and shape",
            )
        return slice(None)
    if isinstance(index, bool) or not isinstance(index, (int, Expr)) or is_float(type_of(index)):
        found = type_of(index).name if isinstance(index, Expr) else kind(index)
        raise refused(expr, f"has {one(found)} for an index; an index is : or an integer")
    if isinstance(index, Expr) or not isinstance(extent, int):
        return index if isinstance(index, Expr) or index >= 0 else extent + index
    if not -extent <= index < extent:
        raise refused(expr, f"has the index {index} of a dimension of {extent}")
    return index % extent


def _is_number(value: Any) -> bool:
    return isinstance(value, (Expr, bool, int, float))


def _is_whole(part: slice, extent: Any) -> bool:
    bounds = (part.start, part.stop, part.step)
    if not isinstance(extent, int):
        return bounds == (None, None, None)
    return not any(isinstance(each, Expr) for each in bounds) and part.indices(extent) == (0, extent, 1)


def _changed(stmt: Any) -> Any:
    """Return the variable or the tile that a statement changes."""
    if isinstance(stmt, AssignStmt):
        return stmt.var
    if not isinstance(stmt, InstStmt):
        return None
    inst = stmt.inst
    return inst.inputs[0] if isinstance(inst, (AssignInst, SliceAssignInst)) else inst.output


def _assigns(body: Sequence[ast.stmt], name: str) -> bool:
    nodes = (node for stmt in body for node in ast.walk(stmt))
    return any(isinstance(node, ast.Name) and node.id == name and isinstance(node.ctx, ast.Store) for node in nodes)


def _breaks(body: Sequence[ast.stmt]) -> Iterator[ast.Break]:
    """Yield the breaks that end the loop with this body."""
    for stmt in body:
        if isinstance(stmt, ast.Break):
            yield stmt
        elif isinstance(stmt, (ast.For, ast.While)):
            yield from _breaks(stmt.orelse)
        else:
            for blocks in ("body", "orelse"):
                yield from _breaks(getattr(stmt, blocks, ()))
