"""Video instructions: bytes and halves of words, combined, merged or summed (PTX ISA, "Video Instructions")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from blackwell_matmul.emulator.code import Act, Builder, instruction
from blackwell_matmul.emulator.instructions.integers import COMPARE
from blackwell_matmul.emulator.lanes import TYPES, Array
from blackwell_matmul.emulator.machine import WarpState
from blackwell_matmul.emulator.parser import Negative, Operand, Selected, Statement
from blackwell_matmul.emulator.unknown import Known, Parts, Unknown

Read = Callable[[WarpState], Array]
"""Function that reads an operand in 32 lanes, as integers of 64 bits."""


def _average(a: Array, b: Array) -> Array:
    total = a + b
    return total + (total >= 0) >> 1


_OPERATIONS: dict[str, Callable[[Array, Array], Array]] = {
    "vadd": np.add, "vsub": np.subtract, "vabsdiff": lambda a, b: np.abs(a - b), "vmin": np.minimum,
    "vmax": np.maximum, "vshl": np.left_shift, "vshr": np.right_shift, "vavrg": _average,
}  # fmt: skip

_SECOND: Known[str, Callable[[Array, Array], Array]] = Known(add=np.add, min=np.minimum, max=np.maximum)
"""Secondary operations, which combine a result with c."""


def _types(each: Statement, count: int) -> list[str]:
    return [*Parts(word for word in each.modifiers if word in ("u32", "s32")).exactly(count)]


def _operation(name: str, each: Statement) -> tuple[Callable[[Array, Array], Array], list[str]]:
    """Return the operation, and the types of the result, of a and of b."""
    words = each.modifiers
    types = _types(each, 2 if name == "vset" else 3)
    if name == "vset":
        compare = COMPARE[words.first_of(COMPARE)]
        return lambda a, b: compare(a, b).astype(np.int64), ["u32", *types]
    function = _OPERATIONS[name]
    if name in ("vshl", "vshr"):
        limit = (lambda b: b & 31) if "wrap" in words else (lambda b: np.minimum(b, 32))
        return lambda a, b: function(a, limit(b)), types
    return function, types


def _parted(operand: Operand) -> tuple[Operand, str]:
    """Return an operand's register and its part selector, such as "b0"; "" for the whole register."""
    return (operand.register, operand.part) if isinstance(operand, Selected) else (operand, "")


def _part(build: Builder, operand: Operand, type: str) -> Read:
    """Return a function that reads a word, a half or a byte, zero- or sign-extended by its type."""
    register, part = _parted(operand)
    read, bits = build.reader(register, "b32"), {"": 32, "b": 8, "h": 16}[part[:1]]
    kind, index = TYPES[f"{type[0]}{bits}"], int(part[1:] or 0)
    if index * bits >= 32:
        raise Unknown(f"a part {part} of a register is not emulated")
    return lambda warp: np.ascontiguousarray(read(warp)).view(kind).reshape(-1, 32 // bits)[:, index].astype(np.int64)


def _limits(type: str, bits: int) -> tuple[int, int]:
    return (-(1 << bits - 1), (1 << bits - 1) - 1) if type[0] == "s" else (0, (1 << bits) - 1)


def _low_word(value: Array) -> Array:
    return (value & 0xFFFFFFFF).astype(np.uint32)


@instruction("vadd", "vsub", "vabsdiff", "vmin", "vmax", "vshl", "vshr", "vset")
def scalar(build: Builder, each: Statement) -> Act:
    """Combine parts of two registers: `vadd.dtype.atype.btype{.sat}{.op2} d{.part}, a{.part}, b{.part}{, c}`.

    .op2 combines the result with c; with a part of d, the result replaces this part of c ("vadd, vsub, …", "vshl,
    vshr", "vset").
    """
    name, words = each.opcode.split(".")[0], each.modifiers
    function, (to, *types) = _operation(name, each)
    register, part = _parted(each.operands[0])
    a, b = (_part(build, operand, type) for operand, type in zip(each.operands[1:3].exactly(2), types))
    c = _part(build, each.operands[3], to) if len(each.operands) > 3 else None
    second = next((_SECOND[word] for word in words[1:] if word in _SECOND), None)
    if (second or part) and c is None:
        raise Unknown(f"{each.opcode} without its third operand is not emulated")
    bits = {"": 32, "b": 8, "h": 16}[part[:1]]
    first, limits, target = int(part[1:] or 0) * bits, _limits(to, bits), build.target(register)
    field = (1 << bits) - 1 << first

    def act(warp: WarpState, mask: int) -> None:
        value = function(a(warp), b(warp))
        if "sat" in words:
            value = np.clip(value, *limits)
        if second is not None and c is not None:
            value = second(value, c(warp))
        if part and c is not None:
            value = value << first & field | c(warp) & ~field
        warp.set(target, _low_word(value), mask)

    return act


@instruction("vmad")
def multiply_add(build: Builder, each: Statement) -> Act:
    """Multiply parts, add c: `vmad.dtype.atype.btype{.po}{.sat}{.scale} d, {-}a, {-}b, {-}c`; .po adds 1 ("vmad")."""
    words = each.modifiers
    types = _types(each, 3)
    minus = [isinstance(operand, Negative) for operand in each.operands[1:4].exactly(3)]
    plain = [operand.operand if isinstance(operand, Negative) else operand for operand in each.operands[1:4]]
    turns, is_signed = minus[0] ^ minus[1], "s32" in types[1:] or minus[0] ^ minus[1] or minus[2]
    a, b = _part(build, plain[0], types[1]), _part(build, plain[1], types[2])
    c = _part(build, plain[2], "s32" if is_signed else "u32")
    shift = Known(shr7=7, shr15=15).get(words[-1], 0)
    limits, target = _limits("s32" if is_signed else "u32", 32), build.target(each.operands[0])

    def one(x: int, y: int, z: int) -> int:
        product = -x * y if turns else x * y
        total = product + (-z if minus[2] and not turns else z) + ("po" in words) >> shift
        return min(max(total, limits[0]), limits[1]) if "sat" in words else total

    def act(warp: WarpState, mask: int) -> None:
        rows = zip(a(warp).tolist(), b(warp).tolist(), c(warp).tolist())
        warp.set(target, np.array([one(*row) & 0xFFFFFFFF for row in rows], np.uint32), mask)

    return act


@instruction(*(f"{name}{count}" for name in (*_OPERATIONS, "vset") for count in (2, 4) if name[:3] != "vsh"))
def packed(build: Builder, each: Statement) -> Act:
    """Combine the halves or bytes of two words: `vadd2.dtype.atype.btype{.sat}{.add} d{.mask}, a{.part}, b{.part}, c`.

    Parts select elements of b:a. The results in the mask replace elements of c; .add adds them to c ("vadd2", "vadd4").
    """
    name, count, words = each.opcode.split(".")[0][:-1], int(each.opcode.split(".")[0][-1]), each.modifiers
    function, (to, *types) = _operation(name, each)
    bits = 32 // count
    register, written = _parted(each.operands[0])
    parts = [_parted(operand) for operand in each.operands[1:3].exactly(2)]
    sources = [build.reader(operand, "b32") for operand, _ in parts]
    picks = [_elements(part, begin, count) for (_, part), begin in zip(parts, (0, count))]
    kinds: list[Any] = [TYPES[f"{type[0]}{bits}"] for type in types]
    c = build.reader(each.operands[3], "b32")
    chosen = np.array([not written or str(index) in written[1:] for index in range(count)])
    limits, target, shifts = _limits(to, bits), build.target(register), np.arange(count) * bits

    def act(warp: WarpState, mask: int) -> None:
        both = np.stack([read(warp) for read in sources], axis=1)
        a, b = (both.view(kind)[:, pick].astype(np.int64) for kind, pick in zip(kinds, picks))
        value = function(a, b)
        value = np.clip(value, *limits) if "sat" in words else value
        third = c(warp).astype(np.int64)
        if "add" in words:
            found = third + np.where(chosen, value, 0).sum(axis=1)
        else:
            kept = third[:, None] >> shifts
            found = ((np.where(chosen, value, kept) & (1 << bits) - 1) << shifts).sum(axis=1)
        warp.set(target, _low_word(found), mask)

    return act


def _elements(part: str, begin: int, count: int) -> list[int]:
    """Return the indices of the elements of b:a in a part selector such as h32, the lowest first."""
    chosen = [int(digit) for digit in reversed(part[1:])] or [*range(begin, begin + count)]
    if len(chosen) != count or max(chosen) >= 2 * count:
        raise Unknown(f"a part {part} of two registers is not emulated")
    return chosen
