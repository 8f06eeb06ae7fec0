"""Sentences of exceptions, without their place in a script."""

from __future__ import annotations

import difflib
import re
import traceback
from collections.abc import Mapping
from types import MethodType
from typing import Any

from tilus.hidet.ir.expr import Expr
from tilus.hidet.ir.tools import infer_type
from tilus.hidet.ir.type import DataType, PointerType
from tilus.ir.tensor import GlobalTensor, RegisterTensor, SharedTensor, Tensor, TMemoryTensor
from tilus.lang.constructs.state import Class
from tilus.lang.constructs.structs.dim3 import Dim3
from tilus.lang.instructions import InstructionInterface
from tilus.lang.instructions.base import InstructionGroup
from tilus.lang.script import Script

from blackwell_matmul.base.validation import said
from blackwell_matmul.frontend.messages import other_names, phrases


class Refusal(ValueError):
    """A message without its end, in this package's own words; a user sees it unchanged."""


def chain(error: BaseException) -> list[BaseException]:
    """Return the error and its causes, outermost first."""
    errors = [error]
    while errors[-1].__cause__ is not None:
        errors.append(errors[-1].__cause__)
    return errors


def innermost(error: BaseException, function: str, *variables: str) -> Mapping[str, Any] | None:
    """Return the variables of the innermost running call of this function; None if no call has all of these
    variables."""
    frames = [frame for each in chain(error) for frame, _ in traceback.walk_tb(each.__traceback__)]
    for frame in reversed(frames):
        if frame.f_code.co_name == function and all(name in frame.f_locals for name in variables):
            return frame.f_locals
    return None


def plain_reason(error: BaseException) -> str:
    """Return the sentence for an error without a rule of its own."""
    if isinstance(error, Refusal):
        return said(error)
    if isinstance(error, AttributeError) and error.name is not None:
        return _attribute_reason(error)
    beyond = innermost(error, "as_expr", "obj") if isinstance(error, AssertionError) else None
    if beyond is not None:
        return f"{beyond['obj']} is beyond int32, which tilus takes here; int64({beyond['obj']}) is a number of int64"
    text = said(error)
    if text and type(error).__module__ == "builtins" and isinstance(error, (KeyError, TypeError)):
        return phrases.plain_sentence(f"{type(error).__name__}: {text}")
    if text:
        return phrases.plain_sentence(text)
    if isinstance(error, NotImplementedError):
        return phrases.untranslated(None)
    return _failed_assertion(error)


def _attribute_reason(error: AttributeError) -> str:
    """Return which object lacks the attribute, and attributes with similar names."""
    owner = "self" if isinstance(error.obj, Script) else group_name(error.obj) or one_of(error.obj)
    meant = other_names.instead(str(error.name), owner)
    if meant is not None and not isinstance(error.obj, (int, float)):
        return f"{owner} has no {error.name}: {meant}"
    public = [] if isinstance(error.obj, Expr) else [name for name in dir(error.obj) if not name.startswith("_")]
    near = difflib.get_close_matches(str(error.name), public, n=2)
    has = [f"self.{name}" for name, group in vars(InstructionInterface).items() if hasattr(group, str(error.name))]
    if isinstance(error.obj, (int, float)) and has:
        return f"{owner} has no {error.name}; {has[0]} has, unless __init__ keeps something of its own there"
    return f"{owner} has no {error.name}" + (f"; it has {' and '.join(near)}" if near else "")


def group_name(value: object) -> str | None:
    """Return the name of an instruction group in a script, such as `self.tcgen05`; None for other values."""
    return next((f"self.{name}" for name, group in vars(InstructionInterface).items() if group is value), None)


def spelled(method: MethodType) -> str:
    """Return a name as a script writes it: `self.mbarrier.wait`, or `RegisterTensor.to`."""
    owner = method.__self__
    name = type(owner).__name__ if isinstance(owner, Tensor) else group_name(owner) or "self"
    return f"{name}.{method.__name__}"


KINDS: dict[type, str] = {
    RegisterTensor: "register tensor",
    SharedTensor: "shared tensor",
    GlobalTensor: "global tensor",
    TMemoryTensor: "tensor in tensor memory",
    Expr: "number of the kernel",
    DataType: "type",
    Script: "kernel",
    InstructionGroup: "group of statements",
    Dim3: "trio of numbers (.x, .y, .z)",
}


def kind(value: object) -> str:
    """Return the user's word for the kind of a value: shared tensor, float."""
    if isinstance(value, Expr) and isinstance(infer_type(value), PointerType):
        return "pointer"
    if isinstance(value, Class):
        return type(value).__name__
    return next((words for each, words in KINDS.items() if isinstance(value, each)), type(value).__name__)


def one_of(value: object) -> str:
    """Return the kind of a value with its article: a shared tensor, a float, None, Python's int."""
    if isinstance(value, type):
        return f"Python's {value.__name__}"
    return "None" if value is None else phrases.one(kind(value))


def _failed_assertion(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    rule = (frames[-1].line or "").removeprefix("assert ") if frames else ""
    wanted = re.fullmatch(r"isinstance\((\w+), (\w+)\)", rule)
    for each, words in KINDS.items():
        if wanted and wanted[2] == each.__name__:
            (*_, (frame, _)) = traceback.walk_tb(error.__traceback__)
            return f"{one_of(frame.f_locals.get(wanted[1]))} stands where a {words} must"
    return phrases.plain_sentence(f"tilus wants `{rule}`, which does not hold" if rule else type(error).__name__)
