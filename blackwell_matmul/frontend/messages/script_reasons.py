"""Sentences for errors that tilus raises while it reads a script, with the statement and its names."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator, Mapping
from types import MethodType
from typing import Any

from tilus.hidet.ir.expr import Expr
from tilus.lang.transpiler.common import TilusProgramError

from blackwell_matmul.base.validation import said
from blackwell_matmul.frontend.messages import other_names, phrases
from blackwell_matmul.frontend.messages.raised import Refusal, chain, innermost, plain_reason, spelled
from blackwell_matmul.frontend.messages.wrong_arguments import (
    given_to,
    shown_arguments,
    shown_value,
    words,
    wrong_argument,
)
from blackwell_matmul.frontend.program import Location


def script_reason(error: TilusProgramError) -> str:
    """Return the message. tilus's general phrase is replaced by the message of the exception that caused it."""
    last = chain(error)[-1]
    if re.match(r'Parameter "\w+" expects', str(getattr(last, "msg", ""))):
        return _parameter_reason(error)
    if error.msg.startswith("Internal exception") and last is not error:
        return _cause_reason(error, last)
    if error.msg.startswith("Unexpected assignee"):
        return _assignee_reason(error)
    if error.msg.startswith("Trying to access variable without definition"):
        return _name_reason(error)
    return _call_reason(error, last) or phrases.plain_sentence(str(error.msg))


def script_line(error: TilusProgramError) -> Location | None:
    line = getattr(error.obj, "lineno", None)
    return None if line is None else Location(error.file, error.start_lineno + line - 1)


def _cause_reason(error: TilusProgramError, last: BaseException) -> str:
    if isinstance(last, NotImplementedError) and not said(last):
        return phrases.untranslated(error.obj)
    if isinstance(last, NotImplementedError) and isinstance(last.args[0], tuple):
        return f"a call that returns {len(last.args[0])} values stands alone; give them names, as in `a, _ = ...`"
    if isinstance(last, TilusProgramError):
        return phrases.plain_sentence(str(last.msg))
    return _call_reason(error, last) or plain_reason(last)


# --- assignments

_DECLARED: dict[type, str] = {bool: "boolean", float: "float32"}
"""The type of a kernel's variable for a Python value; int32 for any other."""


def _assignee_reason(error: TilusProgramError) -> str:
    """Return the reason with the name of the variable that cannot be assigned, and its owner. tilus's message has only
    the type."""
    plain = innermost(error, "process_name_assign", "name", "bound_value")
    return (
        _unassignable(error, plain["name"], plain["bound_value"]) if plain else phrases.plain_sentence(str(error.msg))
    )


def _unassignable(error: TilusProgramError, name: str, value: object) -> str:
    if isinstance(value, (list, tuple, dict, set, str)):
        return f"`{name}` is a Python {type(value).__name__}, which is assigned once; give the new value another name"
    declared = _DECLARED.get(type(value), "int32")
    call = innermost(error, "transpile_call", "sig")
    if call is not None and name in call["sig"].parameters:
        own = f"give the new value a name of its own, as in `{name}_1: {declared} = ...`"
        return f"`{name}` is a constant parameter, which is not assigned again; {own}"
    what = f"a Python {type(value).__name__}, which tilus cannot assign again"
    return f"`{name}` is {what}; declare it as a variable of the kernel, as in `{name}: {declared} = ...`"


# --- names

_Block = ast.With | ast.For | ast.While | ast.If


def _name_reason(error: TilusProgramError) -> str:
    """Return the sentence for an unknown name, with the ended block that bound it, if any."""
    method = innermost(error, "transpile_call", "func_def")
    name = getattr(error.obj, "id", None)
    if method is not None and name is not None:
        for block in _ended_blocks(method["func_def"], error.obj, name):
            line = Location(error.file, error.start_lineno + block.lineno - 1).line
            return (
                f"the name `{name}` is bound in the `{type(block).__name__.lower()}` at line {line} and ends with it; "
                "bind it before that block"
            )
    meant = None if name is None else other_names.instead(name)
    return phrases.plain_sentence(str(error.msg)) + (f": {meant}" if meant else "")


def _ended_blocks(method: ast.FunctionDef, use: ast.AST, name: str) -> Iterator[_Block]:
    """Yield the blocks before this use that bind the name: the last block first, inner blocks before outer ones."""
    blocks = [node for node in ast.walk(method) if isinstance(node, _Block)]
    for block in sorted(blocks, key=lambda block: block.lineno, reverse=True):
        inside = list(ast.walk(block))
        bound = [each.id for each in inside if isinstance(each, ast.Name) and isinstance(each.ctx, ast.Store)]
        if use not in inside and name in bound:
            yield block


# --- calls


def _parameter_reason(error: TilusProgramError) -> str:
    """Return which parameter of a script's own method got an argument of the wrong kind, and which kind is right."""
    call = innermost(error, "transpile_call", "param_name", "arg", "annotation")
    assert call is not None
    constant = "; annotate it with int32 or float32 for a number that the kernel computes"
    hint = constant if call["annotation"] in (bool, int, float) and isinstance(call["arg"], Expr) else ""
    takes = f"the parameter {call['param_name']} takes {words(call['annotation'])}"
    return f"{takes}, and here is {shown_value(call['arg'])}{hint}"


def _call_reason(error: TilusProgramError, last: BaseException) -> str | None:
    """Return the sentence for a method called with wrong arguments, or None."""
    call = innermost(error, "visit_Call", "func", "args", "kwargs")
    if call is None or not _is_same_place(error.obj, call["expr"]):
        return None
    if isinstance(last, Refusal):
        return None
    if isinstance(last, TypeError) and "argument" in said(last):
        return _signature_reason(call["func"], said(last))
    return _argument_reason(call, last) if isinstance(call["func"], MethodType) else None


def _signature_reason(function: Any, text: str) -> str | None:
    """Return the sentence for too few, too many or unknown arguments, from Python's own text."""
    if not isinstance(function, (MethodType, type)):
        return None
    trouble = re.sub(r"^[\w.]+\(\)", "", text).strip()
    counts = re.fullmatch(r"takes (?:from \d+ to )?(\d+) positional arguments? but (\d+) (?:was|were) given", trouble)
    if counts:  # Python counts self
        trouble = f"takes {int(counts[1]) - 1} arguments by place, and here are {int(counts[2]) - 1}"
    name = spelled(function) if isinstance(function, MethodType) else function.__name__
    return f"{name}() {trouble}; it takes {', '.join(inspect.signature(function).parameters) or 'no arguments'}"


def _is_same_place(a: Any, b: Any) -> bool:
    places = ("lineno", "col_offset", "end_lineno", "end_col_offset")
    return all(getattr(a, name, None) == getattr(b, name, None) for name in places)


def _argument_reason(call: Mapping[str, Any], last: BaseException) -> str | None:
    """Return which argument is no value of its parameter, and what that takes; all arguments for an error of Python
    without a text of use, else None."""
    given = given_to(call["func"], call["args"], call["kwargs"])
    if given is None:
        return None
    why = wrong_argument(call["func"], given)
    if why is None and (isinstance(last, IndexError) or (isinstance(last, AssertionError) and not said(last))):
        why = f"cannot work with these arguments: {shown_arguments(call['func'], given)}"
    return None if why is None else f"{spelled(call['func'])} {why}"
