"""Calls of Python's functions in a script have Python's value, or are refused; docs/python.md lists them.

Python would compare, order, hash or print the expressions of a kernel in the place of their values: `[n].count(7)` is 0
there. This module imports tilus at its top: import it after `import_tilus`.
"""

from __future__ import annotations

import ast
import functools
import inspect
import re
import types
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from numbers import Number
from typing import Any

from tilus.hidet.ir import primitives
from tilus.hidet.ir.dtypes import boolean, float32, int32
from tilus.hidet.ir.dtypes.promotion import promote_type
from tilus.hidet.ir.expr import Constant, Expr
from tilus.hidet.ir.type import DataType
from tilus.ir.tensor import Tensor

from blackwell_matmul.frontend.messages.raised import Refusal, kind, one_of, spelled
from blackwell_matmul.frontend.messages.wrong_arguments import given_to, wrong_argument
from blackwell_matmul.frontend.python.python_names import PythonNames, Visited
from blackwell_matmul.frontend.python.python_operators import (
    check_integers,
    holds_computed,
    is_float,
    is_integer,
    misfit,
    misfit_of_tile,
    number,
    refused,
    tried,
    truth,
    type_of,
)

_CHANGING = ("append", "extend", "insert", "pop", "remove", "clear", "sort", "reverse", "update", "setdefault", "add")
"""Methods that change a container of Python."""

_OF_OBJECTS = frozenset((
    "append", "callable", "clear", "copy", "dict", "enumerate", "extend", "get", "getattr", "hasattr", "insert",
    "isinstance", "items", "iter", "keys", "len", "list", "next", "pop", "reverse", "reversed", "setdefault", "tuple",
    "type", "update", "values", "zip",
))  # fmt: skip
"""Functions and methods of Python that read no value of a container's elements."""

_OF_KINDS = frozenset(("callable", "getattr", "hasattr", "isinstance", "type"))
"""Functions of Python that ask for the kind of an object. A number of the kernel is another kind of object than in
Python."""

_BY_PLACE = ("get", "insert", "pop", "setdefault")
"""Methods whose first argument is a key or an index."""

_OF_LISTS = frozenset(("dict", "enumerate", "extend", "iter", "len", "list", "next", "reversed", "tuple", "zip"))
"""Functions of Python that iterate over a list."""

_ONCE = ("__import__", "breakpoint", "compile", "eval", "exec", "globals", "input", "locals", "open", "vars")
"""Functions of Python whose effect is not a value of the kernel."""

_INSTEAD: Mapping[str, str] = {
    "abs": "n if n > 0 else -n is the same",
    "all": "`and` joins truths",
    "any": "`or` joins truths",
    "count": "sum([each == n for each in (a, b)]) counts",
    "divmod": "n // m and n % m are the two values",
    "float": "float32(x) converts it",
    "get": "choose, as in a if n > 3 else b",
    "format": "self.printf('%d', n) prints numbers",
    "index": "compare element by element, as in 0 if n == a else 1",
    "int": "int32(x) and float32(x) convert other values",
    "max": "max takes several numbers, without a key",
    "min": "min takes several numbers, without a key",
    "map": "a list in brackets does the same, as in [n + a for a in (1, 2)]",
    "pow": "multiply, as in n * n",
    "remove": "make another list",
    "round": "int32(x + 0.5) rounds a positive number",
    "sort": "max(a, b) and min(a, b) order two numbers",
    "sorted": "max(a, b) and min(a, b) order two numbers",
    "str": "self.printf('%d', n) prints numbers",
}
_OF_TILES: Mapping[str, str] = {
    "abs": "self.abs(x) of floats, and self.where(x < 0, -x, x) of integers, has the absolute value",
    "round": "self.round(x) rounds each element",
    "max": "self.maximum(a, b) is the larger of each two elements, self.max(x, dim=0) the largest of one tile",
    "min": "self.where(a < b, a, b) is the smaller of each two elements, self.min(x, dim=0) the smallest of one tile",
    "sum": "self.sum(x, dim=0) adds the elements of one tile",
}


class PythonCalls(PythonNames):
    """The transpiler of tilus, with Python's own functions."""

    def visit_Call(self, expr: ast.Call) -> Any:
        """Read the function and each argument once, and call."""
        function = self.visit(expr.func)
        if not callable(function) or (
            isinstance(function, Expr) and kind(function) in ("pointer", "number of the kernel")
        ):
            raise refused(expr.func, f"is {one_of(function)}, which cannot be called")
        self._check_container(expr.func, function)
        args = self.elements(expr.args)
        kwargs = self._keywords(expr)
        if function is super:
            return super(*args or (self.lookup("__class__"), self.lookup("self")))
        if _is_of_python(function):
            return self._called(expr, function, args, kwargs)
        if str(getattr(function, "__module__", "")).startswith("tilus.lang.") and inspect.ismethod(function):
            _check_statement(function, args, kwargs)
            _check_shape(expr, kwargs)
        if isinstance(function, DataType) and not function.is_vector():
            if len(args) != 1 or kwargs:
                raise refused(expr, f"has {len(args) + len(kwargs)} arguments, and {function.name} converts one number")
            args = [_fitting(expr, function, each) for each in args]
        return super().visit_Call(_read_call(expr, function, args, kwargs))

    def elements(self, nodes: Sequence[ast.expr]) -> list[Any]:
        """Return the values of a list or of arguments; `*xs` has several, and a generator is gone through at once."""
        found: list[Any] = []
        for node in nodes:
            if isinstance(node, ast.Starred):
                found += self.visit(node.value)
            elif isinstance(node, ast.GeneratorExp):
                found.append(self.process_generator(node.elt, node.generators))
            else:
                found.append(self.visit(node))
        return found

    def visit_GeneratorExp(self, expr: ast.GeneratorExp) -> Any:
        raise refused(expr, "is computed when it is gone through, which a kernel does at once; write it in brackets")

    def _keywords(self, expr: ast.Call) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for each in expr.keywords:
            value = self.visit(each.value)
            found |= value if each.arg is None else {each.arg: value}
        return found

    def _check_container(self, node: ast.expr, function: Any) -> None:
        owner = getattr(function, "__self__", None)
        if not (self.blocks and isinstance(owner, (list, dict, set)) and function.__name__ in _CHANGING):
            return
        if self.blocks != self.made_in_blocks.get(owner, ()):
            raise refused(
                node,
                f"in a loop or a branch changes a Python {kind(owner)} once, while the "
                "kernel is read; have a tensor, or a list that is whole before",
            )

    def _called(self, expr: ast.Call, function: Any, args: list[Any], kwargs: dict[str, Any]) -> Any:
        owner, name = getattr(function, "__self__", None), function.__name__
        if name in _ONCE:
            raise refused(expr, "would be done once, while the kernel is read; do that in __init__")
        if function is sum and args and kwargs.keys() <= {"start"} and len(args) + len(kwargs) <= 2:
            return self._sum(expr, *args, **kwargs)
        single = [kind(each) for each in args if isinstance(each, (Expr, Tensor))]
        if name in _OF_LISTS and single:
            raise refused(expr, f"goes over the values of a list, and here is one {single[0]}")
        if name in _OF_KINDS and holds_computed(args[:1]) and isinstance(args[0], Expr) and not _is_of_tilus(*args[1:]):
            raise refused(
                expr,
                f"asks for the kind of a Python object, and {ast.unparse(expr.args[0])} is a number of the kernel; its "
                "type is that of its first value",
            )
        if name in _OF_OBJECTS and not (name in _BY_PLACE and holds_computed(args[:1])):
            return tried(expr, function, *self.settled(args), **self.settled(kwargs))
        if not holds_computed([owner, args, kwargs]):
            return tried(expr, function, *args, **kwargs)
        if function.__module__ == "math" and all(isinstance(each, (Expr, int, float)) for each in args):
            return super().visit_Call(
                _read_call(
                    expr, function, [each if is_float(type_of(each)) else float32(each) for each in args], kwargs
                )
            )
        values = args[0] if len(args) == 1 and isinstance(args[0], (list, tuple)) else args
        tiles = any(isinstance(each, Tensor) for each in values)
        if function in (max, min) and not kwargs and not tiles and (values is not args or len(args) > 1):
            return _extreme(expr, getattr(primitives, name), values)
        if function is bool and len(args) == 1 and isinstance(args[0], Expr):
            return truth(args[0])
        instead = (tiles and _OF_TILES.get(name)) or _INSTEAD.get(
            name, "compute it of what is known before, as in __init__"
        )
        raise refused(expr, f"asks for values that are known only when the kernel runs; {instead}")

    def _sum(self, expr: ast.Call, items: Any, start: Any = 0) -> Any:
        """Add by the operators of scripts, because tilus's operators of expressions are not Python's."""
        if isinstance(items, (Expr, Tensor)):
            raise refused(expr, f"adds the values of a list, and here is one {kind(items)}; {_OF_TILES['sum']}")
        return functools.reduce(partial(self.binary, expr, ast.Add()), tried(expr, list, items), start)


_PRINTF_PLACES = re.compile(r"%[^a-zA-Z%]*[a-zA-Z]")
"""A place for a value in the text of a printf, from which each %% is left out."""

_IN_32_BITS = ("a", "b", "value")
"""Integers of fast_divmod and of semaphores, which tilus computes with in 32 bits."""

_COMPUTED = ("multicast_mask", "n", "offsets", "target_rank")
"""Integers that tilus declares as constants and accepts as variables."""


def _check_statement(method: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> None:
    """Raise Refusal where a statement of tilus gets a float for an integer, a variable for a constant, or what is no
    value of a kernel in another one's place."""
    given = given_to(method, args, kwargs)
    if given is None:
        return
    why = wrong_argument(method, given, sure=True)
    if why is not None:
        raise Refusal(f"{spelled(method)} {why}")
    if method.__name__ == "printf":
        _check_places(given["fstring"], given.get("args", ()))
    if method.__name__ == "register_tensor" and isinstance(given.get("init"), Expr) and holds_computed([given["init"]]):
        raise Refusal("init is known only when the kernel runs; a function gives it, as in init=lambda i: n")
    if method.__name__ == "clip":
        for why in filter(None, (misfit_of_tile(given[name], given["x"].dtype) for name in ("min", "max"))):
            raise Refusal(f"x of self.clip {why}; convert it")
    for name, known in _integers_of(method.__func__):
        value = given.get(name)
        check_integers(name, value)
        if name in _IN_32_BITS and isinstance(value, (int, Expr)) and type_of(value).nbytes > int32.nbytes:
            raise Refusal(f"{name} is an int32, and here is an int64, which it would cut; int32({name}) converts it")
        if known and holds_computed([value]):
            raise Refusal(
                f"{name} is a value that is known only when the kernel runs, and must be known before; make it a "
                "constant (annotate it with int, not int32)"
            )


def _check_shape(expr: ast.Call, given: Mapping[str, Any]) -> None:
    """Raise Refusal if an extent of a tensor is negative, with the shape as the script writes it."""
    shape = given.get("shape")
    for each in shape if isinstance(shape, (list, tuple)) else ():
        if isinstance(each, int) and each < 0:
            written = next((ast.unparse(word.value) for word in expr.keywords if word.arg == "shape"), "a shape")
            raise Refusal(f"the extent {each} of shape={written} is negative; every extent of a tensor is at least 1")


def _check_places(text: str, values: Sequence[Any]) -> None:
    """Raise Refusal unless a printf has as many values as its format string has placeholders."""
    places = len(_PRINTF_PLACES.findall(text.replace("%%", "")))
    if places != len(values):
        raise Refusal(f"the text of printf has {places} places such as %d, and here are {len(values)} values")


@functools.cache
def _integers_of(method: Any) -> Sequence[tuple[str, bool]]:
    """Return the parameters of a statement that take only integers: name, and True if the value must be known before
    the kernel runs."""
    found = []
    for name, parameter in list(inspect.signature(method).parameters.items())[1:]:
        text = str(parameter.annotation)
        if re.search(r"\bint\b", text) and not re.search(r"float|Callable", text):
            found.append((name, "Expr" not in text and name not in _COMPUTED))
    return found


def _read_call(expr: ast.Call, function: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> ast.Call:
    """Return a call at another call's place in the source, with a function and arguments that have been read
    already."""
    keywords = [ast.keyword(name, Visited(value)) for name, value in kwargs.items()]
    return ast.copy_location(ast.Call(Visited(function), list(map(Visited, args)), keywords), expr)


def _is_of_tilus(*kinds: Any) -> bool:
    """Return True for a class that is none of Python's own, such as RegisterTensor: no number of a kernel has it."""
    return len(kinds) == 1 and isinstance(kinds[0], type) and kinds[0].__module__ != "builtins"


def _is_of_python(function: Any) -> bool:
    if isinstance(function, type):
        return function.__module__ == "builtins" and function is not super
    return isinstance(function, (types.BuiltinFunctionType, types.MethodWrapperType))


def _fitting(expr: ast.Call, into: DataType, value: Any) -> Any:
    """Return the argument of a conversion: a float cut to an integer, as Python's int does, for a type of integers."""
    if not isinstance(value, (Expr, Number)):
        tiles = f"; x.to({into.name}) converts each element, x.item() is the number of one element"
        hint = tiles if isinstance(value, Tensor) else ""
        raise refused(expr, f"converts a number, and here is {one_of(value)}{hint}")
    value = value.value if isinstance(value, Constant) else value
    value = tried(expr, int, value) if isinstance(value, float) and is_integer(into) else value
    if into != boolean and isinstance(value, (int, float)) and (why := misfit(value, into)) is not None:
        raise refused(expr, why)
    return value


def _extreme(node: ast.AST, larger: Callable[[Any, Any], Any], values: Sequence[Any]) -> Any:
    """Return the largest or the smallest of some numbers, in a type that holds all."""
    for each in values:
        if not isinstance(each, (Expr, bool, int, float)):
            raise refused(node, f"compares numbers, and here is {one_of(each)}")
    kinds = [int32 if (each := type_of(value)) == boolean else each for value in values]
    common = functools.reduce(promote_type, kinds)
    common = promote_type(common, int32) if is_integer(common) else common
    same = [value if type_of(value) == common else common(value) for value in map(number, values)]
    return functools.reduce(larger, same)
