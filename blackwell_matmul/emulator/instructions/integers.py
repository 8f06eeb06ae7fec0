"""Integer, logic, comparison and selection (PTX ISA, "Integer Arithmetic", "Logic and Shift", "Comparison")."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np

from blackwell_matmul.emulator.code import Act, Builder, instruction, last_type, wide
from blackwell_matmul.emulator.instructions.carries import with_carry
from blackwell_matmul.emulator.instructions.groups import number_of
from blackwell_matmul.emulator.instructions.special_values import PACKED, flushed
from blackwell_matmul.emulator.lanes import TYPES, WORDS, Array, lanes, mask_of
from blackwell_matmul.emulator.machine import LaneState
from blackwell_matmul.emulator.parser import SIZES_BYTES, Nothing, Statement
from blackwell_matmul.emulator.unknown import Known, Parts


def elementwise(build: Builder, each: Statement, function: Callable[..., Any], *types: str) -> Act:
    """Apply `function` to the operands. types: type of the result, then of each operand."""
    target, word = build.target(each.operands[0]), WORDS[SIZES_BYTES[types[0]]]
    widen = build.fit(each.operands[0], SIZES_BYTES[types[0]])
    sources = each.operands.exactly(len(types))[1:]
    reads = [build.reader(operand, type) for operand, type in zip(sources, types[1:])]

    @wide
    def act(warp: LaneState, mask: int) -> None:
        value = function(*[read(warp) for read in reads]).view(word)
        warp.set(target, value if widen is None else widen(value), mask)

    return act


def _same(build: Builder, each: Statement, function: Callable[..., Any]) -> Act:
    """Apply `function` to operands of the opcode's last type; to both elements of a packed type such as s16x2."""
    type, _, count = last_type(each).partition("x")
    if not count:
        return elementwise(build, each, function, *[type] * len(each.operands))
    kind = TYPES[type]

    def packed(*values: Array) -> Array:
        return np.ascontiguousarray(function(*[np.ascontiguousarray(v).view(kind) for v in values])).view(np.uint32)

    return elementwise(build, each, packed, *["b32"] * len(each.operands))


def clipped(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function like `function`, whose result is clipped to the operands' type (.sat, up to 32 bits)."""

    def clip(*values: Array) -> Array:
        kind = values[0].dtype
        limits = np.iinfo(kind)
        exact = function(*[value.astype(np.int64) for value in values])
        return np.clip(exact, limits.min, limits.max).astype(kind)

    return clip


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

    @wide
    def act(warp: LaneState, mask: int) -> None:
        warp.set_predicate(target, _COMBINE[name](*[read(warp) for read in reads]), mask)

    return act


_COMBINE: dict[str, Callable[..., Any]] = {
    "and": lambda a, b: a & b,
    "or": lambda a, b: a | b,
    "xor": lambda a, b: a ^ b,
    "not": lambda a: ~a,
    "mov": lambda a: a,
}

# --- arithmetic of integers; of floats in floats.py


def integer_sum(build: Builder, each: Statement) -> Act:
    """Add or subtract modulo the width; .sat clips."""
    if "cc" in each.modifiers:
        return with_carry(build, each)
    function = np.add if each.opcode.startswith("add") else np.subtract
    return _same(build, each, clipped(function) if "sat" in each.modifiers else function)


def integer_product(build: Builder, each: Statement) -> Act:
    """Multiply modulo the width: mul.lo, mul.hi, mul.wide. mad adds c."""
    type, adds = last_type(each), each.opcode.startswith("mad")
    if "cc" in each.modifiers:
        return with_carry(build, each)
    if "sat" in each.modifiers:
        return _same(build, each, clipped(lambda a, b, c: (a * b >> 32) + c))
    if "wide" in each.modifiers:
        wide = f"{type[0]}{2 * SIZES_BYTES[type] * 8}"
        cast = TYPES[wide]
        types = [wide, type, type] + [wide] * adds
        return elementwise(build, each, lambda a, b, *c: sum(c, a.astype(cast) * b.astype(cast)), *types)
    if "hi" in each.modifiers:
        return _same(build, each, lambda a, b, *c: sum(c, _high(a, b)))
    return _same(build, each, lambda a, b, *c: sum(c, a * b))


@instruction("mul24", "mad24")
def short_product(build: Builder, each: Statement) -> Act:
    """Multiply the low 24 bits: .lo returns bits 0 to 31 of the product, .hi bits 16 to 47. mad24 adds c."""
    shift = Known(lo=0, hi=16)[each.modifiers.first_of(("lo", "hi"))]

    def every(a: Array, b: Array, *c: Array) -> Array:
        kind = a.dtype.type
        x, y = ((value << kind(8) >> kind(8)).astype(np.int64) for value in (a, b))
        product = (x * y >> shift).astype(kind).astype(np.int64)
        total = sum(map(np.int64, c), product)
        return (np.clip(total, -(1 << 31), (1 << 31) - 1) if "sat" in each.modifiers else total).astype(kind)

    return _same(build, each, every)


def _high(a: Array, b: Array) -> Array:
    """Return the upper half of the product."""
    bits = a.dtype.itemsize * 8
    if bits < 64:
        wide = np.int64 if a.dtype.kind == "i" else np.uint64
        return (a.astype(wide) * b.astype(wide) >> wide(bits)).astype(a.dtype)
    return np.array([int(x) * int(y) >> 64 for x, y in zip(a, b)], object).astype(a.dtype)


@instruction("rem")
def remainder(build: Builder, each: Statement) -> Act:
    """Return the remainder. For a divisor of 0: the dividend, or all bits set for 64 bits, as on an H200."""

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


_OF_ONE_TYPE: dict[str, Callable[..., Any]] = {
    "div": _quotient, "neg": np.negative, "abs": np.abs, "cnot": lambda a: (a == 0).astype(a.dtype),
    "sad": lambda a, b, c: c + np.where(a > b, a - b, b - a),
}  # fmt: skip


@instruction(
    "div.s16", "div.s32", "div.s64", "div.u16", "div.u32", "div.u64", "neg.s16", "neg.s32", "neg.s64", "neg.s16x2",
    "abs.s16", "abs.s32", "abs.s64", "cnot", "sad",
)  # fmt: skip
def of_one_type(build: Builder, each: Statement) -> Act:
    """Apply the opcode's function. div rounds towards zero. Division by zero, which PTX leaves undefined, sets all
    bits, as hardware does."""
    return _same(build, each, _OF_ONE_TYPE[each.opcode.split(".")[0]])


def integer_extreme(build: Builder, each: Statement) -> Act:
    """Return the minimum or maximum; .relu makes a negative result 0."""
    function = np.minimum if each.opcode.startswith("min") else np.maximum
    if "relu" in each.modifiers:
        return _same(build, each, lambda a, b: np.maximum(function(a, b), a.dtype.type(0)))
    return _same(build, each, function)


@instruction("popc")
def population(build: Builder, each: Statement) -> Act:
    return elementwise(build, each, lambda a: np.bitwise_count(a).astype(np.uint32), "u32", last_type(each))


@instruction("szext")
def extend(build: Builder, each: Statement) -> Act:
    """Extend the low b bits of a by sign, or by zeros ("szext"). .wrap takes b modulo 32; .clamp limits b to 32."""
    wraps = "wrap" in each.modifiers

    def every(a: Array, b: Array) -> Array:
        length = (b & np.uint32(31) if wraps else np.minimum(b, 32)).astype(np.int64)
        low = a.astype(np.int64) & (1 << length) - 1
        sign = (low >> np.maximum(length - 1, 0) & 1) * (a.dtype.kind == "i")
        return (low - (sign << length)).astype(a.dtype)

    return elementwise(build, each, every, last_type(each), last_type(each), "u32")


@instruction("fns")
def nth_set_bit(build: Builder, each: Statement) -> Act:
    """Find the n-th set bit from a base on, upwards or downwards: `fns.b32 d, mask, base, n` ("fns")."""

    def one(bits: int, base: int, count: int) -> int:
        places = range(base, 32) if count > 0 else range(base, -1, -1) if count else [base]
        found = [place for place in places if place < 32 and bits >> place & 1]
        wanted = max(abs(count) - 1, 0)
        return found[wanted] if wanted < len(found) else 0xFFFFFFFF

    def every(*columns: Array) -> Array:
        return np.array([one(*row) for row in zip(*(column.tolist() for column in columns))], np.uint32)

    return elementwise(build, each, every, "u32", "u32", "u32", "s32")


@instruction("clz")
def leading_zeros(build: Builder, each: Statement) -> Act:
    bits = SIZES_BYTES[last_type(each)] * 8
    count = lambda a: np.array([bits - int(x).bit_length() for x in a], np.uint32)  # noqa: E731
    return elementwise(build, each, count, "u32", last_type(each))


@instruction("bfind")
def highest_bit(build: Builder, each: Statement) -> Act:
    """Return the position of the highest bit that differs from the sign, or its distance from the top (.shiftamt)."""
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

    def every(a: Array, b: Array, c: Array) -> Array:
        place, length = (each.astype(np.int64) & 0xFF for each in (b, c))
        field = np.where(place < bits, a, 0 if type[0] == "u" else a >> a.dtype.type(bits - 1))
        field = field >> np.minimum(place, bits - 1).astype(a.dtype)
        above = np.clip(bits - length, 0, bits - 1).astype(a.dtype)
        return np.where(length == 0, a.dtype.type(0), field << above >> above)

    return elementwise(build, each, every, type, type, "u32", "u32")


@instruction("bfi")
def insert(build: Builder, each: Statement) -> Act:
    """Insert the low bits of a into b: `bfi f, a, b, position, length`."""
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
    """Return b bits set from bit a on. .clamp limits both operands to 32; .wrap takes both modulo 32."""
    short = (lambda x: x & np.uint64(31)) if "wrap" in each.modifiers else (lambda x: np.minimum(x, 32))

    def every(a: Array, b: Array) -> Array:
        place, length = short(a.astype(np.uint64)), short(b.astype(np.uint64))
        return (((np.uint64(1) << length) - np.uint64(1)) << place).astype(np.uint32)

    return elementwise(build, each, every, "u32", "u32", "u32")


@instruction("shl", "shr")
def shift(build: Builder, each: Statement) -> Act:
    """Shift. For amounts beyond the width the result is 0; of a signed right shift, the sign."""
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
    """Combine three operands by a table: bit 4·a + 2·b + c of the table is the result.

    `lop3.or.b32 d|p, a, b, c, table, q` also sets p = (d is not 0) or q ("lop3").
    """
    table = number_of(each.operands[4])

    def every(a: Array, b: Array, c: Array) -> Array:
        value = np.zeros_like(a)
        for index in range(8):
            if table >> index & 1:
                value |= (a if index & 4 else ~a) & (b if index & 2 else ~b) & (c if index & 1 else ~c)
        return value

    if len(each.operands) == 5:
        return elementwise(build, replace(each, operands=Parts(each.operands[:4])), every, *["b32"] * 4)
    combine, (word, predicate) = _COMBINE[each.modifiers.first_of(("and", "or"))], build.pair(each.operands[0])
    targets, chooses = (build.target(word), build.target(predicate)), build.predicate(each.operands[5])
    reads = [build.reader(operand, "b32") for operand in each.operands[1:4]]

    @wide
    def act(warp: LaneState, mask: int) -> None:
        value, chosen = every(*[read(warp) for read in reads]), chooses(warp)
        warp.set(targets[0], value, mask)
        warp.set_predicate(targets[1], combine(mask_of(value != 0), chosen), mask)

    return act


_PERMUTED: Known[str, Callable[[Array, int], Array]] = Known({
    "b32": lambda c, index: c >> np.uint32(4 * index),
    "f4e": lambda c, index: (c & 3) + index,
    "b4e": lambda c, index: (c & 3) - index & 7,
    "rc8": lambda c, index: c & 3,
    "ecl": lambda c, index: np.maximum(c & 3, index),
    "ecr": lambda c, index: np.minimum(c & 3, index),
    "rc16": lambda c, index: 2 * (c & 1) + (index & 1),
})  # fmt: skip
"""Index of the byte of b:a that each mode selects for a result byte; without a mode, bit 3 asks for the sign."""


@instruction("prmt")
def permute(build: Builder, each: Statement) -> Act:
    """Select four of the eight bytes of b:a by nibbles or by a mode ("prmt"). A nibble's top bit repeats the sign."""
    selects = _PERMUTED[each.modifiers[-1]]

    def every(a: Array, b: Array, c: Array) -> Array:
        words = np.stack([a, b], axis=1).view(np.uint8)
        value = np.zeros((len(a), 4), np.uint8)
        for index in range(4):
            nibble = selects(c, index) & np.uint32(15)
            byte = words[np.arange(len(a)), nibble & 7]
            value[:, index] = np.where(nibble & 8, np.where(byte & 0x80, 0xFF, 0), byte)
        return value.view(np.uint32).reshape(-1)

    return elementwise(build, each, every, *["b32"] * 4)


@instruction("dp4a")
def dot_of_bytes(build: Builder, each: Statement) -> Act:
    types = each.modifiers[-2:]
    kinds = [np.int8 if type == "s32" else np.uint8 for type in types]

    def every(a: Array, b: Array, c: Array) -> Array:
        x, y = (np.ascontiguousarray(v).view(k).reshape(-1, 4).astype(np.int64) for v, k in zip((a, b), kinds))
        return ((x * y).sum(axis=1) + c).astype(np.int64).astype(np.uint32)

    return elementwise(build, each, every, "u32", "u32", "u32", "u32" if set(types) == {"u32"} else "s32")


@instruction("dp2a")
def dot_of_pairs(build: Builder, each: Statement) -> Act:
    """Multiply the two halves of a by the lower or upper two bytes of b, and add both products to c ("dp2a")."""
    half, *types = each.modifiers.exactly(3)
    long, narrow = TYPES[f"{types[0][0]}16"], TYPES[f"{types[1][0]}8"]
    begin = Known(lo=0, hi=2)[half]

    def every(a: Array, b: Array, c: Array) -> Array:
        x = np.ascontiguousarray(a).view(long).reshape(-1, 2).astype(np.int64)
        y = np.ascontiguousarray(b).view(narrow).reshape(-1, 4)[:, begin : begin + 2].astype(np.int64)
        return ((x * y).sum(axis=1) + c).astype(np.int64).astype(np.uint32)

    return elementwise(build, each, every, "u32", "u32", "u32", "u32" if {*types} == {"u32"} else "s32")


# --- comparison and selection

COMPARE: Known[str, Callable[[Any, Any], Any]] = Known({
    "eq": np.equal, "ne": np.not_equal, "lt": np.less, "le": np.less_equal, "gt": np.greater, "ge": np.greater_equal,
    "lo": np.less, "ls": np.less_equal, "hi": np.greater, "hs": np.greater_equal,
})  # fmt: skip


def _ordered(name: str) -> Callable[[Any, Any], Any]:
    """Return a comparison of floats by name. "ltu" and similar also hold for NaN; "num" and "nan" test for NaN."""
    if name == "num":
        return lambda a, b: ~(np.isnan(a) | np.isnan(b))
    if name == "nan":
        return lambda a, b: np.isnan(a) | np.isnan(b)
    if name in COMPARE:
        plain = COMPARE[name]
        return (lambda a, b: plain(a, b) & ~(np.isnan(a) | np.isnan(b))) if name == "ne" else plain
    return lambda a, b: COMPARE[name[:-1]](a, b) | np.isnan(a) | np.isnan(b)


def comparison(name: str, type: str) -> Callable[[Any, Any], Any]:
    return _ordered(name) if "f" in type else COMPARE[name]


Pick = Callable[[LaneState], Array]


def _compared(build: Builder, each: Statement, type: str) -> Pick:
    """Return a function that compares operands 1 and 2; for a packed type, lanes x 2 booleans."""
    packed = PACKED.get(type)
    compare, flush = comparison(each.modifiers[0], type), "ftz" in each.modifiers
    a, b = (build.reader(operand, "b32" if packed else type) for operand in each.operands[1:3].exactly(2))
    if packed:
        view = lambda value: np.ascontiguousarray(value).view(packed).reshape(len(value), -1)  # noqa: E731
        narrow = (lambda value: flushed(view(value))) if flush else view
        return lambda warp: compare(narrow(a(warp)), narrow(b(warp)))
    if flush:
        return lambda warp: compare(flushed(a(warp)), flushed(b(warp)))
    return lambda warp: compare(a(warp), b(warp))


def _combining(each: Statement) -> Callable[..., Any] | None:
    return next((_COMBINE[word] for word in each.modifiers[1:] if word in ("and", "or", "xor")), None)


@instruction("setp")
def set_predicate(build: Builder, each: Statement) -> Act:
    """Compare and set predicates: `setp.op{.and}{.ftz}.type p|q, a, b{, c}` ("setp").

    q is the negation of p. For packed floats, p is the lower half's result and q the upper half's.
    """
    type, combine = last_type(each), _combining(each)
    compared, is_packed = _compared(build, each, type), type in PACKED
    one, other = build.pair(each.operands[0])
    targets = build.target(one), build.target(other)
    c = build.predicate(each.operands[3]) if combine else None
    both = not isinstance(other, Nothing)

    @wide
    def act(warp: LaneState, mask: int) -> None:
        found = compared(warp)
        value = mask_of(found[:, 0] if is_packed else found)
        opposite = mask_of(found[:, 1]) if is_packed else ~value
        if combine is not None and c is not None:
            value, opposite = combine(value, c(warp)), combine(opposite, c(warp))
        warp.set_predicate(targets[0], value, mask)
        if both:
            warp.set_predicate(targets[1], opposite, mask)

    return act


@instruction("set")
def set_value(build: Builder, each: Statement) -> Act:
    """Compare and set a value: `set.op{.and}{.ftz}.dtype.type d, a, b{, c}`. True is 1.0 for floats, all bits set for
    integers.

    Packed floats have a result for each half ("set").
    """
    to, type = each.modifiers[-2:].exactly(2)
    compared, combine = _compared(build, each, type), _combining(each)
    kind = PACKED.get(to) or (WORDS[np.dtype(PACKED[type]).itemsize] if type in PACKED else TYPES[to])
    yes, no = (kind(1) if "f" in to else ~kind(0)), kind(0)
    c = build.predicate(each.operands[3]) if combine else None
    target, word = build.target(each.operands[0]), WORDS[SIZES_BYTES[to]]
    widen = build.fit(each.operands[0], SIZES_BYTES[to])

    @wide
    def act(warp: LaneState, mask: int) -> None:
        found = compared(warp)
        if combine is not None and c is not None:
            found = np.asarray(combine(found, lanes(c(warp), warp.count).reshape(-1, *[1] * (found.ndim - 1))))
        value = np.where(found, yes, no).view(word).reshape(-1)
        warp.set(target, value if widen is None else widen(value), mask)

    return act


@instruction("selp")
def select(build: Builder, each: Statement) -> Act:
    target, type = build.target(each.operands[0]), last_type(each)
    a, b = (build.source(operand, type) for operand in each.operands[1:3].exactly(2))
    chooses = build.predicate(each.operands[3])

    @wide
    def act(warp: LaneState, mask: int) -> None:
        chosen, yes, no = chooses(warp), warp.registers[a], warp.registers[b]
        if chosen & mask == mask:
            no = yes
        elif not chosen & mask:
            yes = no
        if yes is None or no is None:
            raise TypeError("NoneType")
        warp.set(target, yes if yes is no else np.where(lanes(chosen, warp.count), yes, no), mask)

    return act


@instruction("slct")
def select_by_sign(build: Builder, each: Statement) -> Act:
    """Return a if c is not negative, else b: `slct{.ftz}.dtype.type d, a, b, c`. NaN returns b ("slct")."""
    type, by = each.modifiers[-2:].exactly(2)
    sign = flushed if "ftz" in each.modifiers else lambda c: c
    return elementwise(build, each, lambda a, b, c: np.where(sign(c) >= 0, a, b), type, type, type, by)
