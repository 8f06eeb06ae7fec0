"""Forms of instructions: modifiers, types, operands, and the required GPU (PTX ISA, "Instruction Set").

ptxas refuses any other form, so the emulator refuses it before the kernel runs. Instructions that the table lacks are
checked when they are built.
"""

from __future__ import annotations

import functools
import re
from pathlib import Path
from typing import Any, NamedTuple

from blackwell_matmul.base.data_files import read
from blackwell_matmul.emulator.parser import (
    SIZES_BYTES,
    Address,
    Negative,
    Not,
    Nothing,
    Number,
    Operand,
    Pair,
    Register,
    Statement,
    Symbol,
    Vector,
)
from blackwell_matmul.emulator.unknown import Malformed, Unknown

_TABLE = Path(__file__).with_name("instruction_forms.toml")
"""File with the forms of all instructions; a comment in the file explains its lines."""


class Slot(NamedTuple):
    """A modifier: one of several words. name: of the type for which the word stands, or "". optional: True if the
    modifier may be absent."""

    words: frozenset[str]
    name: str
    optional: bool


_ANY = Slot(frozenset(["..."]), "", False)


class OpcodeForm(NamedTuple):
    """A form of an opcode, a line of `instruction_forms.toml`. slots: modifiers. operands: kinds of operands. gpu:
    required GPU, "" for any."""

    slots: tuple[Slot, ...]
    operands: tuple[str, ...]
    gpu: str


class Match(NamedTuple):
    """A form that fits an opcode's modifiers. types: the opcode's type for each type name of the form."""

    form: OpcodeForm
    types: dict[str, str]


@functools.cache
def _forms() -> dict[str, list[OpcodeForm]]:
    """Return the forms of each instruction, by the instruction's name."""
    table = read(_TABLE)
    text, words = table["forms"], table["words"]
    for name in sorted(words, key=len, reverse=True):
        text = text.replace(name, words[name])
    found: dict[str, list[OpcodeForm]] = {}
    for line in text.strip().splitlines():
        names, slots, operands, gpu = [*re.split(r"(?<= ):(?: |$)", line), "", ""][:4]
        for name in names.split():
            found.setdefault(name, []).append(
                OpcodeForm(tuple(map(_slot, slots.split())), tuple(operands.split()), gpu.strip())
            )
    return found


def _slot(text: str) -> Slot:
    name, _, words = text.rstrip("?").rpartition("=")
    return Slot(frozenset(words.split(",")), name, text.endswith("?"))


MOST_NAME_WORDS = 5
"""Maximum number of words in an instruction's name: 5, "cp.async.bulk.prefetch.tensor"."""


@functools.lru_cache(maxsize=4096)
def matches(opcode: str) -> tuple[str, tuple[Match, ...]] | None:
    """Return the instruction's name, and the forms that fit the opcode's modifiers. None if the table lacks the
    instruction."""
    words = opcode.split(".")
    for count in range(min(len(words), MOST_NAME_WORDS), 0, -1):
        name = ".".join(words[:count])
        if name in _forms():
            found = ((form, _types(form, words[count:])) for form in _forms()[name])
            return name, tuple(Match(form, types) for form, types in found if types is not None)
    return None


def _types(form: OpcodeForm, words: list[str]) -> dict[str, str] | None:
    """Return the type for each type name if the form has exactly these modifiers; else None."""
    left, types = list(form.slots), dict[str, str]()
    for word in words:
        slot = next((each for each in left if word in each.words), None)
        if slot is None and form.slots[-1:] == (_ANY,):
            continue
        if slot is None:
            return None
        left.remove(slot)
        if slot.name:
            types[slot.name] = word
    return types if all(each.optional or each == _ANY for each in left) else None


NEWEST = 9, 1
"""Newest version of the PTX ISA that the table of forms covers."""


def verify(each: Statement, target: str, version: tuple[int, int] = NEWEST) -> None:
    """Check an instruction's form. Raise Malformed if PTX or the target has no such form. Raise Unknown for an unknown
    modifier; in code of a newer PTX version, for every form that the table lacks."""
    key = each.opcode, target, *map(_shape, each.operands)
    if key not in _PASSED:
        _verify(each, target, version > NEWEST)
        if len(_PASSED) >= MOST_PASSED:
            _PASSED.clear()
        _PASSED.add(key)


MOST_PASSED = 1 << 16
_PASSED: set[tuple[Any, ...]] = set()
"""Forms that have passed the check: opcode, target and shapes of the operands. At most MOST_PASSED are kept."""


def _shape(operand: Operand) -> Any:
    """Return the properties of an operand that decide whether it fits: types and numbers, without register names."""
    if isinstance(operand, Register):
        return operand.type
    if isinstance(operand, Vector):
        return tuple(map(_shape, operand.parts))
    if isinstance(operand, Address):
        return Address, operand.base.type if isinstance(operand.base, Register) else ""
    if isinstance(operand, Number):
        return operand.is_bits, operand.value.__class__, operand.value
    parts = [getattr(operand, name) for name in ("first", "second", "operand") if hasattr(operand, name)]
    return operand.__class__, *map(_shape, parts)


def _verify(each: Statement, target: str, is_newer: bool) -> None:
    known = matches(each.opcode)
    if known is None:
        return
    name, found = known
    if not found:
        raise Unknown(f"{each.opcode} is not emulated") if is_newer else _no_form(name, each)
    complaints = [_complaint(match, each) for match in found]
    if all(complaints):
        raise Malformed(str(complaints[0]))
    nbytes = max((_vector_bytes(match, each) for match in found), default=0)
    if nbytes > 32 or (nbytes > 16 and not _has(target, "100")):
        most = 32 if _has(target, "100") else 16
        raise Malformed(f"{name} of {nbytes} bytes; on {target} a vector has up to {most}")
    needed = [match.form.gpu for match, complaint in zip(found, complaints) if not complaint]
    if not any(_has(target, gpu) for gpu in needed):
        raise Malformed(f"{name} in this form needs sm_{needed[0].strip('=')}, and this PTX is for {target}")


def _vector_bytes(match: Match, each: Statement) -> int:
    """Return the bytes that a lane moves with a vector; 0 without a vector."""
    return each.vector_elements * SIZES_BYTES[match.types["T"]] if each.vector_elements and "T" in match.types else 0


def _no_form(name: str, each: Statement) -> Malformed | Unknown:
    words = {word for forms in _forms().values() for form in forms for slot in form.slots for word in slot.words}
    mine = {word for form in _forms()[name] for slot in form.slots for word in slot.words}
    for word in each.opcode.removeprefix(name).split(".")[1:]:
        if word not in mine:
            return Malformed(f"{name} has no .{word}") if word in words else Unknown(f"{each.opcode} is not emulated")
    return Malformed(f"{each.opcode} is no form of {name}: a modifier is missing, or two exclude each other")


def _has(target: str, gpu: str) -> bool:
    """Return True if a target such as sm_100a has the features of a GPU in the table."""
    number = int(target.removeprefix("sm_").rstrip("af") or 0)
    least = int(gpu.strip("=a") or 0)
    return (number == least if "=" in gpu else number >= least) and ("a" not in gpu or target[-1] in "af")


# --- operands


def _complaint(match: Match, each: Statement) -> str:
    """Return a clause on why the operands do not fit a form; "" if they fit."""
    wanted, given = match.form.operands, each.operands
    if wanted == ("...",):
        return ""
    least = sum(not kind.endswith("?") for kind in wanted)
    if not least <= len(given) <= len(wanted):
        count = f"{least}" if least == len(wanted) else f"{least} to {len(wanted)}"
        return f"{each.opcode.split('.')[0]} takes {count} operands, and {len(given)} are given"
    for place, (kind, operand) in enumerate(zip(wanted, given)):
        told = _unfit(kind.strip("<?"), operand, match, each, place == 0 and kind[0] not in "[<#")
        if told:
            return told
    return ""


def _unfit(kind: str, operand: Operand, match: Match, each: Statement, is_result: bool) -> str:
    first, mark, second = kind.partition("|") if "|" in kind else kind.partition("&")
    if isinstance(operand, Pair) and second:
        return _unfit(first, operand.first, match, each, True) or _unfit(second, operand.second, match, each, True)
    if mark == "&":
        return f"{each.opcode} has two results, d|p"
    if first == ".":
        return ""
    if first in ("[]", "{}", "#", "_", "label") or first.startswith("#="):
        return _unlike(first, operand, each)
    type = {"policy": "b64", "W": _wide(match.types.get("T", ""))}.get(first.rstrip("*"), "")
    type = type or match.types.get(first.rstrip("*"), first.rstrip("*"))
    if first.endswith("{}"):
        return _misfit_whole(match.types["T"], operand, each, is_result)
    count = (each.vector_elements if first.endswith("*") else 0) or 1
    parts = operand.parts if first.endswith("*") and isinstance(operand, Vector) else (operand,)
    if len(parts) != count:
        return f"{each.opcode} takes {count} registers, and {len(parts)} are given"
    return next((told for part in parts if (told := _misfit(type, part, each, is_result, first.endswith("*")))), "")


def _misfit_whole(type: str, operand: Operand, each: Statement, is_result: bool) -> str:
    """Return a clause on why a scalar, or registers that hold one value, do not fit the type; "" if they fit."""
    if not isinstance(operand, Vector):
        return _misfit(type, operand, each, is_result, False)
    size, parts = SIZES_BYTES[type], operand.parts
    sizes = {SIZES_BYTES[part.type] for part in parts if isinstance(part, Register)}
    if len(parts) not in (2, 4) or sizes - {size // len(parts)}:
        return f"a vector of {len(parts)} is no .{type} of {size} bytes: its parts are two or four, and of equal size"
    return ""


def _wide(type: str) -> str:
    return f"{type[0]}{2 * int(type[1:])}" if type[1:].isdigit() else ""


_PREDICATE = "an operand is a predicate where .{} is expected"


def _unlike(kind: str, operand: Operand, each: Statement) -> str:
    """Return a clause on why an operand without a type, such as an address or a label, does not fit; "" if it fits."""
    if kind == "[]" and isinstance(operand, Address):
        base = operand.base
        is_bad = isinstance(base, Register) and base.type[0] not in "bus"
        if not is_bad or not isinstance(base, Register):
            return ""
        return f"a register .{base.type} is no address" if base.type != "pred" else _PREDICATE.format("b64")
    kinds = {"{}": (Vector, Register), "_": (Nothing,), "label": (Symbol,), "[]": ()}.get(kind, (Number,))
    if not isinstance(operand, kinds):
        names = {"[]": "an address", "{}": "a vector", "_": "no result, _,", "label": "a label"}
        return f"{each.opcode} takes {names.get(kind, 'a number')}, where {shown(operand)} is given"
    if kind.startswith("#=") and isinstance(operand, Number):
        low, high, step = (*map(int, kind[2:].split(":")), 0, 0)[:3] if ":" in kind else (int(kind[2:]),) * 2 + (1,)
        if not low <= operand.value <= high or operand.value % (step or 1):
            return (
                f"{each.opcode} takes {kind[2:].replace(':', ' to ', 1).replace(':', ' by ')} and not {operand.value}"
            )
    return ""


def _misfit(type: str, operand: Operand, each: Statement, is_result: bool, may_be_wider: bool) -> str:
    """Return a clause on why a single operand does not fit the type; "" if it fits."""
    if isinstance(operand, Register):
        return _misfit_register(type, operand.type, each, is_result, may_be_wider)
    if isinstance(operand, Nothing):
        return ""
    if is_result:
        return f"the result of {each.opcode} goes to {shown(operand)}, which is no register"
    if isinstance(operand, Not) and type == "pred":
        return _misfit(type, operand.operand, each, False, False)
    if isinstance(operand, Number):
        return _misfit_number(type, operand)
    if isinstance(operand, Symbol) or (isinstance(operand, Address) and isinstance(operand.base, Symbol)):
        return ""
    return f"an operand {shown(operand)} where .{type} is expected"


def _misfit_number(type: str, number: Number) -> str:
    is_float = number.is_bits or isinstance(number.value, float)
    if type in ("f32", "f64", "f16", "bf16") and not is_float:
        return f"{number.value} is no float, which .{type} takes"
    if type[0] in "us" and is_float:
        text = f"the bits {number.value:#x} of a float are" if number.is_bits else f"{number.value} is"
        return f"{text} no integer, which .{type} takes"
    return ""


def _misfit_register(type: str, own: str, each: Statement, is_result: bool, may_be_wider: bool) -> str:
    if (own == "pred") != (type == "pred"):
        other = "is no predicate" if type == "pred" else "is a predicate"
        if is_result:
            return f"the result of {each.opcode} goes to a register .{own}, which {other}"
        return f"an operand of type .{own} is no predicate" if type == "pred" else _PREDICATE.format(type)
    size, mine = SIZES_BYTES[type], SIZES_BYTES[own]
    if mine < size and is_result:
        return f"the result of {each.opcode} does not fit into a register .{own}"
    if mine != size and not (may_be_wider and mine > size):
        return f"an operand has {mine} bytes where .{type} is expected"
    plain = "b" in (type[0], own[0]) or "x2" in type + own or (type[0] in "us") == (own[0] in "us")
    return "" if plain else f"a register .{own} where .{type} is expected"


def shown(operand: Operand) -> str:
    """Return an operand in PTX's syntax, shortened for a message."""
    if isinstance(operand, Register):
        return f"a register .{operand.type}"
    if isinstance(operand, (Number, Symbol)):
        return str(operand.value if isinstance(operand, Number) else operand.name)
    return {Vector: "{...}", Address: "[...]", Pair: "a pair d|p", Not: "!...", Negative: "-..."}.get(
        type(operand), "_"
    )
