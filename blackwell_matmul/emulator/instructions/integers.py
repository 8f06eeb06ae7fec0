"""Integer, logic, comparison and selection (PTX ISA, "Integer Arithmetic", "Logic and Shift", "Comparison")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from blackwell_matmul.emulator.code import Act, Builder, instruction, last_type
from blackwell_matmul.emulator.instructions.carries import with_carry
from blackwell_matmul.emulator.instructions.groups import number_of
from blackwell_matmul.emulator.instructions.special_values import flushed
from blackwell_matmul.emulator.lanes import ALL, LANES, TYPES, WORDS, Array, lanes, mask_of
from blackwell_matmul.emulator.machine import WarpState
from blackwell_matmul.emulator.parser import SIZES_BYTES, Nothing, Statement
from blackwell_matmul.emulator.unknown import Known, Parts, Unknown


def elementwise(build: Builder, each: Statement, function: Callable[..., Any], *types: str) -> Act:
    """Apply `function` to the operands, read as these types; the result has the first type."""
    if len(each.operands) < 2:
        raise Unknown(f"{each.opcode} has too few operands")
    target, word = build.target(each.operands[0]), WORDS[SIZES_BYTES[types[0]]]
    widen = build.fit(each.operands[0], SIZES_BYTES[types[0]])
    sources = each.operands.exactly(len(types))[1:]
    reads = [build.reader(operand, type) for operand, type in zip(sources, types[1:])]

    def act(warp: WarpState, mask: int) -> None:
        value = function(*[read(warp) for read in reads]).view(word)
        warp.set(target, value if widen is None else widen(value), mask)

    return act


def _same(build: Builder, each: Statement, function: Callable[..., Any]) -> Act:
    type = last_type(each)
    return elementwise(build, each, function, *[type] * len(each.operands))


_LOGIC: dict[str, Callable[..., Any]] = {
    "and": np.bitwise_and, "or": np.bitwise_or, "xor": np.bitwise_xor, "not": np.bitwise_not,
}  # fmt: skip


@instruction("and", "or", "xor", "not")
def logic(build: Builder, each: Statement) -> Act:
    """Combine bits or predicates (PTX ISA, "Logic and Shift Instructions")."""
    name = each.opcode.split(".")[0]
    if last_type(each) == "pred":
        return predicates(build, each, name)
    return _same(build, each, _LOGIC[name])


def predicates(build: Builder, each: Statement, name: str) -> Act:
    target = build.target(each.operands[0])
    reads = [build.predicate(operand) for operand in each.operands[1:]]

    def act(warp: WarpState, mask: int) -> None:
        warp.set_predicate(target, _COMBINE[name](*[read(warp) for read in reads]), mask)

    return act


_COMBINE: dict[str, Callable[..., int]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "not": lambda a: a ^ ALL,
    "mov": lambda a: a,
}

# --- arithmetic of integers; of floats in floats.py


def integer_sum(build: Builder, each: Statement) -> Act:
    """Add or subtract with wrapping; .sat of s32 clips."""
    if "cc" in each.modifiers:
        return with_carry(build, each)
    function = np.add if each.opcode.startswith("add") else np.subtract
    if "sat" in each.modifiers:
        wide = lambda a, b: np.clip(function(a.astype(np.int64), b), -(1 << 31), (1 << 31) - 1).astype(np.int32)  # noqa: E731
        return _same(build, each, wide)
    return _same(build, each, function)


def integer_product(build: Builder, each: Statement) -> Act:
    """Multiply with wrapping: mul.lo, mul.hi and mul.wide, and mad, which adds c."""
    type, adds = last_type(each), each.opcode.startswith("mad")
    if "cc" in each.modifiers:
        return with_carry(build, each)
    if "sat" in each.modifiers:
        raise Unknown(f"{each.opcode} is not emulated")
    if "wide" in each.modifiers:
        wide = f"{type[0]}{2 * SIZES_BYTES[type] * 8}"
        cast = TYPES[wide]
        types = [wide, type, type] + [wide] * adds
        return elementwise(build, each, lambda a, b, *c: sum(c, a.astype(cast) * b.astype(cast)), *types)
    if "hi" in each.modifiers:
        return _same(build, each, lambda a, b, *c: sum(c, _high(a, b)))
    return _same(build, each, lambda a, b, *c: sum(c, a * b))


def _high(a: Array, b: Array) -> Array:
    """Return the upper half of the product."""
    bits = a.dtype.itemsize * 8
    if bits < 64:
        wide = np.int64 if a.dtype.kind == "i" else np.uint64
        return (a.astype(wide) * b.astype(wide) >> wide(bits)).astype(a.dtype)
    return np.array([int(x) * int(y) >> 64 for x, y in zip(a, b)], object).astype(a.dtype)


@instruction("div.s16", "div.s32", "div.s64", "div.u16", "div.u32", "div.u64")
def division(build: Builder, each: Statement) -> Act:
    """Divide, rounded towards zero. Division by zero sets all bits, as hardware does; PTX leaves it open."""
    return _same(build, each, _quotient)


@instruction("rem")
def remainder(build: Builder, each: Statement) -> Act:
    """Return the remainder. By zero it is the dividend, or all bits set for 64 bits, as on an H200."""

    def every(a: Array, b: Array) -> Array:
        undefined = ~(a ^ a) if a.dtype.itemsize == 8 else a
        return np.where(b == 0, undefined, a - _quotient(a, b) * b)

    return _same(build, each, every)


def _quotient(a: Array, b: Array) -> Array:
    safe = np.where(b == 0, b.dtype.type(1), b)
    floor = a // safe
    if a.dtype.kind == "i":
        floor += (floor * safe != a) & ((a < 0) != (safe < 0))
    return np.where(b == 0, ~b.dtype.type(0), floor)


@instruction("neg.s16", "neg.s32", "neg.s64")
def negate(build: Builder, each: Statement) -> Act:
    return _same(build, each, np.negative)


@instruction("abs.s16", "abs.s32", "abs.s64")
def absolute(build: Builder, each: Statement) -> Act:
    return _same(build, each, np.abs)


def integer_extreme(build: Builder, each: Statement) -> Act:
    """Take the minimum or maximum; of u16x2 and s16x2, of each half."""
    type, function = last_type(each), np.minimum if each.opcode.startswith("min") else np.maximum
    if not type.endswith("x2"):
        return _same(build, each, function)
    half = TYPES[type.removesuffix("x2")]
    return elementwise(build, each, lambda a, b: function(a.view(half), b.view(half)).view(np.uint32), *["b32"] * 3)


@instruction("sad")
def sum_of_differences(build: Builder, each: Statement) -> Act:
    return _same(build, each, lambda a, b, c: c + np.where(a > b, a - b, b - a))


@instruction("popc")
def population(build: Builder, each: Statement) -> Act:
    return elementwise(build, each, lambda a: np.bitwise_count(a).astype(np.uint32), "u32", last_type(each))


@instruction("clz")
def leading_zeros(build: Builder, each: Statement) -> Act:
    bits = SIZES_BYTES[last_type(each)] * 8
    count = lambda a: np.array([bits - int(x).bit_length() for x in a], np.uint32)  # noqa: E731
    return elementwise(build, each, count, "u32", last_type(each))


@instruction("bfind")
def highest_bit(build: Builder, each: Statement) -> Act:
    """Find the highest set bit (of a negative number: the highest clear one), or its distance from the top."""
    type = last_type(each)
    bits, shift = SIZES_BYTES[type] * 8, "shiftamt" in each.modifiers

    def find(value: int) -> int:
        place = (~value if value < 0 else value).bit_length() - 1
        return 0xFFFFFFFF if place < 0 else bits - 1 - place if shift else place

    return elementwise(build, each, lambda a: np.array([find(int(x)) for x in a], np.uint32), "u32", type)


@instruction("brev")
def reversed_bits(build: Builder, each: Statement) -> Act:
    bits = SIZES_BYTES[last_type(each)] * 8
    return _same(build, each, lambda a: np.array([int(f"{int(x):0{bits}b}"[::-1], 2) for x in a], a.dtype))


@instruction("bfe")
def extract(build: Builder, each: Statement) -> Act:
    """Extract a field of bits, sign-extended for signed types ("Bit Field Extract")."""
    type = last_type(each)
    bits = SIZES_BYTES[type] * 8

    def one(value: int, place: int, length: int) -> int:
        place, length = place & 0xFF, length & 0xFF
        sign = value >> min(place + length - 1, bits - 1) & 1 if type[0] == "s" and length else 0
        field = value >> place & (1 << length) - 1
        return (field | (-1 << length if sign else 0)) & (1 << bits) - 1

    def every(a: Array, b: Array, c: Array) -> Array:
        return np.array([one(int(x), int(y), int(z)) for x, y, z in zip(a, b, c)], WORDS[bits // 8])

    return elementwise(build, each, every, type, type, "u32", "u32")


@instruction("bfi")
def insert(build: Builder, each: Statement) -> Act:
    """Insert a field of a into b: `bfi f, a, b, place, length`."""
    type = last_type(each)

    def every(a: Array, b: Array, c: Array, d: Array) -> Array:
        found = []
        for x, y, place, length in zip(a.tolist(), b.tolist(), c.tolist(), d.tolist()):
            field = (1 << (length & 0xFF)) - 1
            found.append(
                (y & ~(field << (place & 0xFF)) | (x & field) << (place & 0xFF)) & (1 << SIZES_BYTES[type] * 8) - 1
            )
        return np.array(found, a.dtype)

    return elementwise(build, each, every, type, type, type, "u32", "u32")


@instruction("bmsk")
def bit_mask(build: Builder, each: Statement) -> Act:
    """Set b bits from bit a on. .clamp limits both to 32; .wrap takes both modulo 32."""
    short = (lambda x: x & np.uint64(31)) if "wrap" in each.modifiers else (lambda x: np.minimum(x, 32))

    def every(a: Array, b: Array) -> Array:
        place, length = short(a.astype(np.uint64)), short(b.astype(np.uint64))
        return (((np.uint64(1) << length) - np.uint64(1)) << place).astype(np.uint32)

    return elementwise(build, each, every, "u32", "u32", "u32")


@instruction("shl", "shr")
def shift(build: Builder, each: Statement) -> Act:
    """Shift. Beyond the width the result is 0, or the sign for signed right shifts."""
    type = last_type(each)
    bits = SIZES_BYTES[type] * 8
    left = each.opcode.startswith("shl")

    def every(a: Array, b: Array) -> Array:
        amount = np.minimum(b, bits - 1).astype(a.dtype)
        value = a << amount if left else a >> amount
        if type[0] == "s" and not left:
            return value
        over = b >= bits
        return np.where(over, a.dtype.type(0), value) if over.any() else value

    return elementwise(build, each, every, type, type, "u32")


@instruction("shf")
def funnel(build: Builder, each: Statement) -> Act:
    """Shift the 64 bits b:a: `shf.l`, `shf.r`. .wrap takes the amount modulo 32, .clamp limits it to 32."""
    left, wraps = "l" in each.modifiers, "wrap" in each.modifiers

    def every(a: Array, b: Array, c: Array) -> Array:
        amount = (c & np.uint32(31) if wraps else np.minimum(c, 32)).astype(np.uint64)
        value = b.astype(np.uint64) << np.uint64(32) | a
        return ((value << amount >> np.uint64(32)) if left else value >> amount).astype(np.uint32)

    return elementwise(build, each, every, "u32", "u32", "u32", "u32")


@instruction("lop3")
def three_way_logic(build: Builder, each: Statement) -> Act:
    """Combine three operands by a table: bit i is the result for i = 4·a + 2·b + c."""
    if last_type(each) != "b32" or len(each.operands) != 5:
        raise Unknown(f"{each.opcode} with a predicate is not emulated")
    table = number_of(each.operands[4])

    def every(a: Array, b: Array, c: Array) -> Array:
        value = np.zeros(LANES, np.uint32)
        for index in range(8):
            if table >> index & 1:
                value |= (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
        return value

    return elementwise(build, replace(each, operands=Parts(each.operands[:4])), every, *["b32"] * 4)


@instruction("prmt")
def permute(build: Builder, each: Statement) -> Act:
    """Select four of the eight bytes in b:a by the selector's nibbles; a nibble's top bit replicates the sign."""
    if last_type(each) != "b32":
        raise Unknown(f"{each.opcode} is not emulated")

    def every(a: Array, b: Array, c: Array) -> Array:
        words = np.stack([a, b], axis=1).view(np.uint8)
        value = np.zeros((LANES, 4), np.uint8)
        for index in range(4):
            nibble = c >> np.uint32(4 * index) & np.uint32(15)
            byte = words[np.arange(LANES), nibble & 7]
            value[:, index] = np.where(nibble & 8, np.where(byte & 0x80, 0xFF, 0), byte)
        return value.view(np.uint32).reshape(LANES)

    return elementwise(build, each, every, *["b32"] * 4)


@instruction("dp4a")
def dot_of_bytes(build: Builder, each: Statement) -> Act:
    types = each.modifiers[-2:]
    kinds = [np.int8 if type == "s32" else np.uint8 for type in types]

    def every(a: Array, b: Array, c: Array) -> Array:
        x, y = (np.ascontiguousarray(v).view(k).reshape(LANES, 4).astype(np.int64) for v, k in zip((a, b), kinds))
        return ((x * y).sum(axis=1) + c).astype(np.int64).astype(np.uint32)

    return elementwise(build, each, every, "u32", "u32", "u32", "u32" if set(types) == {"u32"} else "s32")


@instruction("dp2a")
def dot_of_pairs(build: Builder, each: Statement) -> Act:
    """Multiply a's two halves by b's lower or upper bytes, and add c ("dp2a")."""
    half, *types = each.modifiers.exactly(3)
    wide, narrow = TYPES[f"{types[0][0]}16"], TYPES[f"{types[1][0]}8"]
    begin = Known(lo=0, hi=2)[half]

    def every(a: Array, b: Array, c: Array) -> Array:
        x = np.ascontiguousarray(a).view(wide).reshape(LANES, 2).astype(np.int64)
        y = np.ascontiguousarray(b).view(narrow).reshape(LANES, 4)[:, begin : begin + 2].astype(np.int64)
        return ((x * y).sum(axis=1) + c).astype(np.int64).astype(np.uint32)

    return elementwise(build, each, every, "u32", "u32", "u32", "u32" if {*types} == {"u32"} else "s32")


# --- comparison and selection

_COMPARE: Known[str, Callable[[Any, Any], Any]] = Known({
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
})  # fmt: skip


def _ordered(name: str) -> Callable[[Any, Any], Any]:
    """Return the comparison of this name. "…u" also holds for NaN; "num" and "nan" test for it."""
    if name == "num":
        return lambda a, b: ~(np.isnan(a) | np.isnan(b))
    if name == "nan":
        return lambda a, b: np.isnan(a) | np.isnan(b)
    if name in _COMPARE:
        plain = _COMPARE[name]
        return (lambda a, b: plain(a, b) & ~(np.isnan(a) | np.isnan(b))) if name == "ne" else plain
    return lambda a, b: _COMPARE[name[:-1]](a, b) | np.isnan(a) | np.isnan(b)


def comparison(name: str, type: str) -> Callable[[Any, Any], Any]:
    return _ordered(name) if "f" in type else _COMPARE[name]


@instruction("setp")
def set_predicate(build: Builder, each: Statement) -> Act:
    """Compare to predicates: `setp.op{.and}{.ftz}.type p|q, a, b{, c}`; q is the opposite ("setp")."""
    type = last_type(each)
    compare, flush = comparison(each.modifiers[0], type), "ftz" in each.modifiers
    combine = next((_COMBINE[word] for word in each.modifiers if word in ("and", "or", "xor")), None)
    one, other = build.pair(each.operands[0])
    targets = build.target(one), build.target(other)
    a, b = (build.reader(operand, type) for operand in each.operands[1:3].exactly(2))
    c = build.predicate(each.operands[3]) if combine else None
    both = not isinstance(other, Nothing)

    def act(warp: WarpState, mask: int) -> None:
        left, right = (flushed(a(warp)), flushed(b(warp))) if flush else (a(warp), b(warp))
        value = mask_of(compare(left, right))
        opposite = value ^ ALL
        if combine is not None and c is not None:
            value, opposite = combine(value, c(warp)), combine(opposite, c(warp))
        warp.set_predicate(targets[0], value, mask)
        if both:
            warp.set_predicate(targets[1], opposite, mask)

    return act


@instruction("set")
def set_value(build: Builder, each: Statement) -> Act:
    """Compare to values: `set.op.dtype.type d, a, b` sets all bits, or 1.0, if the comparison holds."""
    to, type = each.modifiers[-2:].exactly(2)
    compare = comparison(each.modifiers[0], type)
    kind = TYPES[to]
    yes = kind(1) if "f" in to else ~kind(0)
    return elementwise(build, each, lambda a, b: np.where(compare(a, b), yes, kind(0)), to, type, type)


@instruction("selp")
def select(build: Builder, each: Statement) -> Act:
    target, type = build.target(each.operands[0]), last_type(each)
    a, b = (build.source(operand, type) for operand in each.operands[1:3].exactly(2))
    chooses = build.predicate(each.operands[3])

    def act(warp: WarpState, mask: int) -> None:
        chosen, yes, no = chooses(warp), warp.registers[a], warp.registers[b]
        if chosen & mask == mask:
            no = yes
        elif not chosen & mask:
            yes = no
        if yes is None or no is None:
            raise TypeError("NoneType")
        warp.set(target, yes if yes is no else np.where(lanes(chosen), yes, no), mask)

    return act


@instruction("slct")
def select_by_sign(build: Builder, each: Statement) -> Act:
    type, by = each.modifiers[-2:].exactly(2)
    return elementwise(build, each, lambda a, b, c: np.where(c >= 0, a, b), type, type, type, by)
