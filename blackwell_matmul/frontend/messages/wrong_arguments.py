"""Arguments of a statement compared with the annotations of its parameters.

tilus checks few arguments. A wrong one fails later, inside of tilus, with a sentence of Python.
"""

from __future__ import annotations

import functools
import inspect
import types
import typing
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from numbers import Number
from types import MethodType
from typing import Any

from tilus.hidet.ir.expr import Expr
from tilus.hidet.ir.type import BaseType, DataType
from tilus.ir.layout import GlobalLayout, RegisterLayout, SharedLayout
from tilus.ir.tensor import RegisterTensor, Tensor

from blackwell_matmul.base.validation import shown
from blackwell_matmul.frontend.messages.phrases import one
from blackwell_matmul.frontend.messages.raised import KINDS, kind, one_of

_WORDS: dict[Any, str] = {
    bool: "True or False", int: "an integer", float: "a number", str: "a text", Expr: "a number",
    DataType: "a type (float16, without quotes)", Tensor: "a tensor", RegisterLayout: "a layout",
    SharedLayout: "a layout", GlobalLayout: "a layout", type(None): "None", Callable: "a function",
    **{each: one(words) for each, words in KINDS.items() if issubclass(each, Tensor)},
}  # fmt: skip
"""Words in messages for classes of annotations."""

_NUMBERS: Mapping[Any, tuple[type, ...]] = {**dict.fromkeys((bool, int, float), (Number, Expr)), Expr: (int,)}
"""Numbers that are accepted in place of a class; other rules check them further."""

_OPERATORS = "; operators take numbers, and self.where(x > 0.0, x, 0.0)"
_TILES = {
    **dict.fromkeys(("lhs", "rhs"), _OPERATORS),
    **dict.fromkeys(("x", "src"), "; self.register_tensor(dtype=..., shape=[...], init=1.0) is a tile of one number"),
}
"""Remedies for a number where a tile must be, by the name of the parameter."""


_WIDER = {"counts": Sequence[Expr | int | None] | Expr | int}
"""Annotations of parameters that take more than tilus says: a count of None is the number of threads of the group."""

Given = Mapping[str, Any]


def given_to(method: MethodType, args: Sequence[Any], kwargs: Given) -> Given | None:
    """Return the arguments by name; None if some are missing or too many, which tilus's own sentence tells."""
    with suppress(TypeError):
        return _known(method.__func__)[0].bind(method.__self__, *args, **kwargs).arguments
    return None


def wrong_argument(method: MethodType, given: Given, sure: bool = False) -> str | None:
    """Return a clause on the first argument that its parameter does not accept, and on accepted values; None if all
    fit.

    sure: skip numbers of the kernel, and tensors in place of a number; other messages describe these better.
    """
    wanted = _known(method.__func__)[1]
    wrong = {name: each for name, each in given.items() if name in wanted and not _fits(wanted[name], each, sure)}
    return _reason(wrong, wanted) if wrong else None


def shown_arguments(method: MethodType, given: Given) -> str:
    """Return the arguments by name, a tensor by its kind and rank: `src = a 2D global tensor, offsets = [0, 0]`."""
    return ", ".join(f"{name} = {shown_value(each)}" for name, each in given.items() if each is not method.__self__)


def _reason(wrong: Given, wanted: Given) -> str:
    (name, value), *others = wrong.items()
    takes = f"takes {words(wanted[name])} as {name}"
    for other, instead in others:
        if _fits(wanted[name], instead, True) and _fits(wanted[other], value, True):
            return f"{takes} and {words(wanted[other])} as {other}, and here the two are exchanged"
    hint = _TILES.get(name, "") if wanted[name] is RegisterTensor and isinstance(value, Number) else ""
    return f"{takes}, and here is {shown_value(value)}{hint}"


@functools.cache
def _known(function: Callable[..., Any]) -> tuple[inspect.Signature, Mapping[str, Any]]:
    """Return the signature, and the annotations of parameters that take a single value."""
    signature, hints = inspect.signature(function), dict[str, Any]()
    with suppress(NameError, TypeError):  # a name that only a type checker imports
        hints = typing.get_type_hints(function)
    single = [name for name, each in signature.parameters.items() if each.kind is not each.VAR_POSITIONAL]
    return signature, {name: _WIDER.get(name, hints[name]) for name in single if name in hints}


def _fits(wanted: Any, value: Any, sure: bool) -> bool:
    origin, parts = typing.get_origin(wanted), typing.get_args(wanted)
    if origin in (typing.Union, types.UnionType):
        return any(_fits(each, value, sure) for each in parts)
    if origin is Sequence:
        several = isinstance(value, Sequence) and not isinstance(value, str)
        return several and all(_fits(parts[0], each, sure) for each in value)
    if origin is Callable:
        return callable(value)
    if origin is typing.Literal:
        return value in parts
    if wanted is Any or not isinstance(wanted, type):
        return True
    passed = (*_NUMBERS, RegisterTensor) if isinstance(value, Expr) else _NUMBERS
    if sure and isinstance(value, (Expr, Tensor)) and wanted in passed:
        return True
    return isinstance(value, (wanted, *_NUMBERS.get(wanted, ())))


def words(wanted: Any) -> str:
    """Return the words for an annotation: `a list of integers`, `a register tensor or a number`."""
    origin, parts = typing.get_origin(wanted), typing.get_args(wanted)
    if isinstance(wanted, BaseType):
        return "a number" if isinstance(wanted, DataType) else "a pointer"
    if origin in (typing.Union, types.UnionType):
        known = [each for each in parts if each not in (Expr, type(None))] or parts
        return " or ".join(dict.fromkeys(words(each) for each in known if each is not int or float not in parts))
    if origin is Sequence:
        return f"a list of {'integers' if int in (parts[0], *typing.get_args(parts[0])) else 'values'}"
    if origin is typing.Literal:
        return " or ".join(map(repr, parts))
    return _WORDS.get(origin or wanted, getattr(wanted, "__name__", "another value"))


def shown_value(value: Any) -> str:
    """Return an argument in a few words: a tensor by its kind and rank."""
    if isinstance(value, Tensor):
        return f"a {len(value.shape)}D {kind(value)}"
    if isinstance(value, Sequence) and any(isinstance(each, (Expr, Tensor)) for each in value):
        return f"[{', '.join(map(shown_value, value))}]"
    return one_of(value) if value is None or isinstance(value, (Expr, DataType, type)) else shown(value)
