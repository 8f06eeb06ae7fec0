"""Names in a script are bound as Python binds them, or refused; docs/python.md lists each case.

In tilus 0.2.0 a name that is bound to a tile is the tile itself, so `q = x` and then `q = q + 1` changes x. It assigns
the values of `a, b = b, a` in sequence. A tuple keeps an expression of a number and not the value. An assignment to an
object's attribute runs once, even inside a loop or a branch. A lambda's names are looked up where the lambda is
called. This module imports tilus at its top: import it after `import_tilus`.
"""

from __future__ import annotations

import ast
import copy
import inspect
from collections import Counter
from collections.abc import Iterable
from functools import cache
from numbers import Number
from types import CodeType
from typing import Any, NamedTuple

from tilus.hidet.ir.expr import Constant, Expr, Var
from tilus.hidet.ir.tools import collect
from tilus.hidet.ir.type import DataType, PointerType, type_equal
from tilus.hidet.lang.script import eliminate_indent
from tilus.ir.tensor import RegisterTensor, Tensor
from tilus.lang.constructs.state import Class
from tilus.lang.constructs.structs.dim3 import Dim3
from tilus.lang.script import Attributes
from tilus.lang.transpiler import builder
from tilus.lang.transpiler.builder import Scope
from tilus.lang.transpiler.transpiler import LambdaProxy

from blackwell_matmul.frontend.faults.tilus_arithmetic import rounded
from blackwell_matmul.frontend.identity import IdentityMap
from blackwell_matmul.frontend.messages.phrases import one
from blackwell_matmul.frontend.messages.raised import Refusal, kind, one_of
from blackwell_matmul.frontend.python.python_operators import (
    PythonOperators,
    check_integers,
    is_float,
    joins_truths,
    misfit,
    number,
    refused,
    stored,
    type_of,
)


class Frame(NamedTuple):
    """Names of a method that is being read: its parameters, and the names that are bound or changed more than once."""

    parameters: frozenset[str] = frozenset()
    bound_again: frozenset[str] = frozenset()
    changed_again: frozenset[str] = frozenset()


@cache
def frame_of(code: CodeType) -> Frame:
    """Return the names of a function: parameters, reassigned names, and reassigned names including in-place changes.

    `x += 1` reassigns the name of a number, and changes a tile in place.
    """
    source, _ = eliminate_indent(inspect.getsource(code))
    nodes: list[Any] = list(ast.walk(ast.parse(source)))
    parameters = code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]
    names = [node for node in nodes if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)]
    stored = Counter([*parameters, *(node.id for node in names)])
    changed = [node.target for node in nodes if isinstance(node, ast.AugAssign)]
    in_place = Counter(target.id for target in changed if isinstance(target, ast.Name))
    again = [frozenset(name for name, count in each.items() if count > 1) for each in (stored - in_place, stored)]
    return Frame(frozenset(parameters), *again)


class OwningScope(Scope):
    """Scope in which a name gets a tile of its own when it is assigned again."""

    def __init__(self, transpiler: PythonNames) -> None:
        super().__init__()
        self._transpiler = transpiler

    def bind(self, name: str, var_or_value: Any) -> None:
        super().bind(name, self._transpiler.owned(name, var_or_value))


class LexicalLambda(LambdaProxy):
    """Lambda whose names are resolved where it is written."""

    def __init__(self, expr: ast.Lambda, transpiler: PythonNames) -> None:
        super().__init__(expr, transpiler)
        self._scope, self._frame = transpiler.current_scope, transpiler.frames[-1]

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        frames, before = self.translator.frames, builder._current_scope
        builder._current_scope = self._scope
        frames.append(Frame(frozenset(each.arg for each in self.lambda_expr.args.args)))
        try:
            return super().__call__(*args, **kwargs)
        finally:
            frames.pop()
            builder._current_scope = before


class Visited(ast.expr):
    """A value that replaces the expression from which it was evaluated."""

    def __init__(self, value: Any) -> None:
        super().__init__()
        self.value = value


class PythonNames(PythonOperators):
    """tilus's transpiler with Python's names."""

    def __init__(self) -> None:
        super().__init__()
        self.frames: list[Frame] = []
        self.blocks: tuple[object, ...] = ()  # the loops and branches around
        self.made_in_blocks: IdentityMap[tuple[object, ...]] = IdentityMap()  # of a list
        self._made_in: IdentityMap[dict[str, tuple[object, ...]]] = IdentityMap()  # the attributes of an object
        self._changing: IdentityMap[None] = IdentityMap()  # what a name stands for that is assigned again
        self._names: IdentityMap[str] = IdentityMap()  # the last name of a tile; "" of one that a call alone names
        self._homes: IdentityMap[tuple[int, str]] = IdentityMap()  # the object and the attribute that a tile began as

    def visit_Visited(self, node: Visited) -> Any:
        return node.value

    # --- what a name stands for

    def get_external_env(self, func: Any) -> dict[str, Any]:
        """Return the environment without names that the method binds itself: these are local, as in Python."""
        env: dict[str, Any] = super().get_external_env(func)
        for name in (*func.__code__.co_varnames, *func.__code__.co_cellvars):
            env.pop(name, None)
        return env

    def visit_Name(self, expr: ast.Name) -> Any:
        if expr.id == "_" and isinstance(expr.ctx, ast.Load):
            raise Refusal("`_` is for what nobody reads; give it a name that does not begin so")
        if self.lookup(expr.id) is None and self._is_bound(expr.id):
            return None
        return super().visit_Name(expr)

    def _is_bound(self, name: str) -> bool:
        """Return True if a name is bound, also to None; `lookup` returns None for both."""
        scope: Scope | None = self.current_scope
        while scope is not None and name not in scope.name2host_var:
            scope = scope.parent
        return scope is not None

    def visit_Lambda(self, expr: ast.Lambda) -> LambdaProxy:
        return LexicalLambda(expr, self)

    def owned(self, name: str, value: Any) -> Any:
        """Return the value for a new name: the same, or a copy of a tile."""
        frame = self.frames[-1] if self.frames else Frame()
        if isinstance(value, RegisterTensor):
            again = name in frame.bound_again
            if value in self._names and (again or (value in self._changing and name not in frame.parameters)):
                value = self.copied(value)
            self._names[value] = self._names.get(value, "") if name in frame.parameters else name
        else:
            again = isinstance(value, Var) and name in frame.changed_again
        if again:
            self._changing[value] = None
        return value

    def settled(self, value: Any) -> Any:
        """Return the present value of a tuple, list or object; later assignments to names do not change it."""
        if isinstance(value, Expr):
            changes = any(each in self._changing for each in collect(value, Var))
            return self._kept(value) if changes else value
        if isinstance(value, RegisterTensor):
            value = self.copied(value) if value in self._changing else value
            self._names.setdefault(value, "")
        if isinstance(value, dict):
            held = list(value.values())
            settled = self.settled(held)
            return value if settled is held else dict(zip(value, settled, strict=True))
        if not isinstance(value, (list, tuple)):
            return value
        settled = [self.settled(each) for each in value]
        same = all(a is b for a, b in zip(settled, value, strict=True))
        return value if same else type(value)(settled)

    def _kept(self, value: Any) -> Any:
        """Return a copy of the present value, in new registers."""
        if isinstance(value, RegisterTensor):
            return self.copied(value) if value in self._names else value
        if isinstance(value, Expr) and not isinstance(value, Constant):
            return self.declare(type=type_of(value), init=value)
        return type(value)(map(self._kept, value)) if isinstance(value, (list, tuple)) else value

    # --- assignments

    def visit_Assign(self, stmt: ast.Assign) -> None:
        value = self.visit(stmt.value)
        if len(stmt.targets) > 1:
            value = self._kept(value)
        for target in stmt.targets:
            self._assign(target, value)

    def _assign(self, target: ast.expr, value: Any) -> None:
        if not isinstance(target, (ast.Tuple, ast.List)):
            self.process_assign(target, value)
            return
        values = _unpacked(target, value)
        if any(map(self._is_assigned_again, target.elts)):
            values = [self._kept(each) for each in values]
        for each, part in zip(target.elts, values, strict=True):
            self._assign(each, part)

    def _is_assigned_again(self, target: ast.expr) -> bool:
        if isinstance(target, ast.Attribute):
            return isinstance(getattr(self.visit(target.value), target.attr, None), (Expr, Tensor))
        return not isinstance(target, ast.Name) or self.lookup(target.id) is not None

    def visit_AnnAssign(self, stmt: ast.AnnAssign) -> None:
        if stmt.value is None:
            text = ast.unparse(stmt)
            raise Refusal(f"`{text}` declares no variable without its first value; give it one, as in `{text} = 0`")
        super().visit_AnnAssign(stmt)

    def visit_AugAssign(self, stmt: ast.AugAssign) -> None:
        """Change a tile in place; for any other target, do `a = a + b`."""
        target, load = stmt.target, copy.copy(stmt.target)
        load.ctx = ast.Load()
        node = ast.copy_location(ast.BinOp(load, stmt.op, stmt.value), stmt)
        if isinstance(target, ast.Subscript):
            base, index = Visited(self.visit(target.value)), Visited(self.visit(target.slice))
            target = ast.copy_location(ast.Subscript(base, index, ast.Load()), target)
            vars(target)["written"] = stmt.target  # for the sentence of a refusal
            load = target if isinstance(base.value, RegisterTensor) else load
        held, value = self.visit(load), self.visit(stmt.value)
        if isinstance(held, RegisterTensor) and isinstance(target, (ast.Name, ast.Attribute)):
            self._in_place(node, held, value)
            return
        if isinstance(held, Var) and isinstance(value, Tensor):
            raise refused(target, _no_number(value))
        known = value.value if isinstance(value, Constant) else value
        shifts = isinstance(stmt.op, (ast.LShift, ast.RShift))
        if isinstance(held, Var) and isinstance(known, (int, float)) and not shifts and misfit(-known, held.type):
            self.fitting(ast.unparse(stmt.target), held.type, known)  # the sum could fit only of an opposite sign
        self.process_assign(target, self.binary(node, stmt.op, held, value))

    def _in_place(self, node: ast.BinOp, tile: RegisterTensor, value: Any) -> None:
        if joins_truths(node.op, tile, value):
            self.assign_register(output=tile, x=self.binary(node, node.op, tile, value))
            return
        method = self._method(node, node.op, tile.dtype, value)
        if isinstance(value, RegisterTensor) and is_float(value.dtype) and not is_float(tile.dtype):
            what, into = one(value.dtype.name), tile.dtype.name
            where = f"the tile in `{ast.unparse(node)}` is of {into}, which would cut {what}"
            raise Refusal(f"{where}; convert the tile first, as in x.to({value.dtype.name})")
        method(tile, self._tile(node, value, tile), out=tile)

    def process_name_assign(self, name: str, rhs: Any, type_annotation: ast.expr | None = None) -> None:
        if name == "_":
            return
        if rhs is None:
            raise Refusal(f"`{name}` is assigned None, which is no value of a kernel; keep it in an attribute")
        bound = self.lookup(name)
        _check_tile(name, bound, rhs)
        annotated = None if type_annotation is None else self.visit(type_annotation)
        _check_type(name, annotated, bound)
        declared = isinstance(bound, Var) or isinstance(annotated, DataType)
        if isinstance(rhs, Tensor) and declared:
            raise Refusal(f"`{name}` {_no_number(rhs)}")
        if declared and not isinstance(rhs, (Expr, Number)):
            raise Refusal(
                f"`{name}` is a number of the kernel, and {one_of(rhs)} does not go into it; give it another name"
            )
        if isinstance(annotated, PointerType) and isinstance(rhs, Expr) and not type_equal(type_of(rhs), annotated):
            raise Refusal(
                f"`{name}` is annotated with a pointer of another type than its value has; leave the annotation out, "
                "and give global_view the dtype of the elements"
            )
        if isinstance(bound, Var) and isinstance(rhs, (Expr, bool, int, float)):
            rhs = self.fitting(name, bound.type, rhs)
        elif isinstance(annotated, DataType):
            first = self.fitting(name, annotated, rhs)
            self.bind(name, self.declare(type=annotated, init=first, hint=name))
            return
        elif isinstance(rhs, (bool, int, float)) and annotated in (bool, int, float, str):
            _check_class(name, annotated, rhs)
        elif isinstance(rhs, (list, tuple, dict)):
            rhs = self.settled(rhs)
        super().process_name_assign(name, rhs, type_annotation)

    def fitting(self, name: str, into: Any, value: Any) -> Any:
        """Return a number as a value of a variable's type; raise Refusal if it does not fit."""
        if not isinstance(into, DataType):
            return value
        why = misfit(value, into)
        if why is not None:
            raise Refusal(f"`{name}` {why}; convert it, or give it another name")
        if is_float(into) and isinstance(value, (bool, int, float)):
            return rounded(value, into)
        return into(value) if isinstance(value, int) and number(value) is not value else value

    # --- objects

    def process_attribute_assign(self, lhs: ast.Attribute, rhs: Any, type_annotation: ast.expr | None = None) -> None:
        owner = self.visit(lhs.value)
        if isinstance(owner, Attributes):
            _check_attribute(lhs, rhs)
        if isinstance(owner, (Expr, Tensor, DataType, Dim3)):
            raise refused(lhs, f"is assigned, and {one_of(owner)} takes no attribute; give the value a name of its own")
        annotated = None if type_annotation is None else self.visit(type_annotation)
        if isinstance(owner, Class) and isinstance(getattr(owner, lhs.attr, None), (Var, Tensor)):
            _check_type(ast.unparse(lhs), annotated, getattr(owner, lhs.attr))
            self._check_assignable(lhs, owner, rhs)
            super().process_attribute_assign(lhs, rhs, type_annotation)
            return
        self._check_new_attribute(lhs, owner)
        value = self.settled(rhs)
        if isinstance(owner, Class):
            self._make_attribute(owner, lhs, value, type_annotation)
        else:
            super().process_attribute_assign(lhs, self._typed(lhs, annotated, value))
        self._note_attribute(owner, lhs)

    def _typed(self, lhs: ast.Attribute, annotated: Any, value: Any) -> Any:
        """Return a number for an attribute of the kernel, of the annotated type."""
        if not isinstance(annotated, DataType) or not isinstance(value, (Expr, bool, int, float)):
            return value
        value = self.fitting(ast.unparse(lhs), annotated, value)
        return stored(value, annotated) if isinstance(value, Expr) else value

    def _make_attribute(self, owner: Any, lhs: ast.Attribute, value: Any, annotation: ast.expr | None) -> None:
        """Make an attribute a variable under a name that no script has. tilus 0.2.0 binds `self_stage` for
        `self.stage`, which a script may have as well."""
        if isinstance(value, Tensor):
            setattr(owner, lhs.attr, value)
            return
        name = "_".join(self.get_attribute_chain(lhs))
        kind = None if annotation is None else Visited(self.visit(annotation))
        before, builder._current_scope = builder._current_scope, self.scope()
        self.process_name_assign(name, value, kind)
        setattr(owner, lhs.attr, self.lookup(name))
        builder._current_scope = before

    def _note_attribute(self, owner: Any, lhs: ast.Attribute) -> None:
        held, home = getattr(owner, lhs.attr, None), (id(owner), lhs.attr)
        if isinstance(held, Var) and isinstance(owner, Class):
            self._changing[held] = None
        if isinstance(held, RegisterTensor) and self._homes.setdefault(held, home) != home:
            self._names[held] = ast.unparse(lhs)

    def _check_assignable(self, lhs: ast.Attribute, owner: Any, value: Any) -> None:
        held = getattr(owner, lhs.attr)
        _check_tile(ast.unparse(lhs), held, value)
        if isinstance(held, Var) and isinstance(value, (bool, int, float, Expr)):
            self.fitting(ast.unparse(lhs), held.type, value)
        other = self._names.get(held)
        if isinstance(held, RegisterTensor) and (other or self._homes.get(held) != (id(owner), lhs.attr)):
            raise refused(
                lhs,
                f"and {f'`{other}`' if other else 'another object'} have one tile, and an assignment would "
                "change both; name the new value, or write into the tile with out=",
            )

    def _check_new_attribute(self, lhs: ast.Attribute, owner: Any) -> None:
        made_in = self._made_in.setdefault(owner, {})
        if not hasattr(owner, lhs.attr):
            made_in[lhs.attr] = self.blocks
        elif isinstance(owner, Class):
            raise refused(
                lhs,
                "is a Python value, which tilus cannot assign again; make it a variable of the kernel, as in "
                f"`{ast.unparse(lhs)}: int32 = 0`",
            )
        elif made_in.get(lhs.attr, ()) != self.blocks:
            raise refused(
                lhs,
                f"is assigned again in a loop or a branch, which {one_of(owner)} takes once, while the kernel is "
                "read; assign a variable of the kernel there",
            )

    def visit_Attribute(self, expr: ast.Attribute) -> Any:
        owner = self.visit(expr.value)
        if expr.attr.startswith("__") and isinstance(owner, (Expr, Tensor)):
            raise refused(expr, f"is of the object that {one_of(owner)} is in tilus; write the operator, as in n % 2")
        made_in = self._made_in.get(owner, {}).get(expr.attr, ())
        if made_in != self.blocks[: len(made_in)]:
            raise refused(expr, "is made in a loop or a branch that has ended; make it before that")
        return super().visit_Attribute(ast.copy_location(ast.Attribute(Visited(owner), expr.attr, expr.ctx), expr))


def _check_attribute(lhs: ast.Attribute, value: Any) -> None:
    """Raise Refusal unless self.attrs has this attribute, and the value is of integers."""
    names = list(Attributes.__annotations__)
    if lhs.attr not in names:
        raise refused(lhs, f"is assigned, and self.attrs has {', '.join(names)} alone")
    check_integers(ast.unparse(lhs), value)
    if isinstance(value, Tensor) or not isinstance(value, (Expr, Number, list, tuple, type(None))):
        takes = "an integer" if lhs.attr == "warps" else "an integer, or a list of up to three"
        raise refused(lhs, f"takes {takes}, and here is {one_of(value)}")
    if lhs.attr == "warps" and isinstance(value, Expr) and not isinstance(value, Constant):
        raise refused(lhs, "is known only when the kernel runs; make it a constant (annotate it with int, not int32)")


def _check_class(name: str, annotated: Any, value: Any) -> None:
    """Raise Refusal where a number of Python is not of the class in its annotation."""
    if annotated(value) != value:
        raise Refusal(f"`{name}` is annotated with {annotated.__name__}, and {value} is none; leave that out")


def _check_type(name: str, annotated: Any, held: Any) -> None:
    """Raise Refusal if a variable is annotated with another type than its own."""
    if isinstance(held, Var) and isinstance(annotated, DataType) and held.type != annotated:
        raise Refusal(
            f"`{name}` is a variable of {type_of(held).name} and is annotated with {annotated.name}; give the new "
            "variable another name"
        )


def _check_tile(name: str, held: Any, value: Any) -> None:
    """Raise Refusal if the name of a tile is assigned a tile of another type."""
    if isinstance(held, RegisterTensor) and isinstance(value, RegisterTensor) and held.dtype != value.dtype:
        raise Refusal(
            f"`{name}` is a tile of {held.dtype.name} and is assigned one of {value.dtype.name}; convert it with "
            f".to({held.dtype.name}), or give it another name"
        )


def _no_number(value: Tensor) -> str:
    return f"is a scalar variable, and {one_of(value)} does not go into it; x.item() is the number of one element"


def _unpacked(target: ast.Tuple | ast.List, value: Any) -> list[Any]:
    if isinstance(value, (Expr, Tensor)) or not isinstance(value, Iterable):
        raise refused(target, f"takes several values, and here is one {kind(value)}")
    if any(isinstance(each, ast.Starred) for each in target.elts):
        raise refused(target, "has a starred name; give each value a name, or take a slice of a tuple")
    values = list(value)
    if len(values) != len(target.elts):
        raise refused(target, f"takes {len(target.elts)} values, and here are {len(values)}")
    return values
