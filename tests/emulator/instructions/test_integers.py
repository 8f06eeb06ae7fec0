"""Integer, logic, shift, comparison: against Python's own integers, on edge values (PTX ISA, "Integer Arithmetic")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ptx import apply, rows, stored

from blackwell_matmul.base.errors import UnsupportedError

EDGES = {
    bits: [
        0,
        1,
        2,
        3,
        7,
        (1 << bits - 1) - 1,
        1 << bits - 1,
        (1 << bits - 1) + 1,
        (1 << bits) - 2,
        (1 << bits) - 1,
        0x1234_5678_9ABC_DEF0 & (1 << bits) - 1,
    ]
    for bits in (16, 32, 64)
}


def column(type: str, values: list[int] | None = None) -> Any:
    bits = int(type[1:])
    return np.array([value & (1 << bits) - 1 for value in values or EDGES[bits]], f"u{bits // 8}")


def read(value: Any, type: str) -> int:
    """A word as the type's number."""
    bits, number = int(type[1:]), int(value)
    return number - (1 << bits) if type[0] == "s" and number >> bits - 1 else number


def check(
    code: str, oracle: Callable[..., int], out: str, *types: str, values: dict[int, list[int]] | None = None
) -> None:
    """`code` on all combinations of edge values, against `oracle` of Python integers."""
    columns = rows(*[column(type, (values or {}).get(place)) for place, type in enumerate(types)])
    result = apply(code, f"u{int(out[1:]) // 8}", *columns)
    for place, found in enumerate(result):
        given = [read(each[place], type) for each, type in zip(columns, types)]
        wanted = oracle(*given) & (1 << int(out[1:])) - 1
        assert int(found) == wanted, (code, [hex(each) for each in given], hex(int(found)), hex(wanted))


def truncated(a: int, b: int) -> int:
    return abs(a) // abs(b) * (1 if (a < 0) == (b < 0) else -1)


@pytest.mark.parametrize("type", ["s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize(
    ("name", "oracle"),
    [
        ("add", lambda a, b: a + b),
        ("sub", lambda a, b: a - b),
        ("mul.lo", lambda a, b: a * b),
        ("min", min),
        ("max", max),
    ],
)
def test_two_operands_wrap(name: str, oracle: Callable[..., int], type: str) -> None:
    check(f"{name}.{type} %d, %a, %b;", oracle, type, type, type)


@pytest.mark.parametrize("type", ["s16", "u16", "s32", "u32", "s64", "u64"])
def test_the_upper_half_of_a_product(type: str) -> None:
    check(f"mul.hi.{type} %d, %a, %b;", lambda a, b: a * b >> int(type[1:]), type, type, type)


@pytest.mark.parametrize("type", ["s16", "u16", "s32", "u32"])
def test_a_wide_product_with_and_without_a_sum(type: str) -> None:
    wide = f"{type[0]}{2 * int(type[1:])}"
    check(f"mul.wide.{type} %d, %a, %b;", lambda a, b: a * b, wide, type, type)
    few = {0: [0, 1, -1, 1 << int(type[1:]) - 1, -3], 1: [1, -1, 7, (1 << int(type[1:]) - 1) - 1]}
    check(f"mad.wide.{type} %d, %a, %b, %c;", lambda a, b, c: a * b + c, wide, type, type, wide, values=few)


@pytest.mark.parametrize("type", ["s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("half", ["lo", "hi"])
def test_a_product_and_a_sum(half: str, type: str) -> None:
    few = [0, 1, -1, 1 << int(type[1:]) - 1, 12345]
    shift = int(type[1:]) if half == "hi" else 0
    check(
        f"mad.{half}.{type} %d, %a, %b, %c;",
        lambda a, b, c: (a * b >> shift) + c,
        type,
        type,
        type,
        type,
        values=dict.fromkeys(range(3), few),
    )


def test_sums_that_saturate() -> None:
    low, high = -(1 << 31), (1 << 31) - 1
    check("add.sat.s32 %d, %a, %b;", lambda a, b: min(max(a + b, low), high), "s32", "s32", "s32")
    check("sub.sat.s32 %d, %a, %b;", lambda a, b: min(max(a - b, low), high), "s32", "s32", "s32")


@pytest.mark.parametrize("type", ["s16", "u16", "s32", "u32", "s64", "u64"])
def test_division_rounds_to_zero_and_the_remainder_has_the_dividends_sign(type: str) -> None:
    divisors = {1: [value for value in EDGES[int(type[1:])] if value]}
    check(f"div.{type} %d, %a, %b;", truncated, type, type, type, values=divisors)
    check(f"rem.{type} %d, %a, %b;", lambda a, b: a - b * truncated(a, b), type, type, type, values=divisors)


@pytest.mark.parametrize("type", ["s16", "s32", "s64"])
def test_signs(type: str) -> None:
    check(f"neg.{type} %d, %a;", lambda a: -a, type, type)
    check(f"abs.{type} %d, %a;", abs, type, type)


@pytest.mark.parametrize("type", ["b16", "b32", "b64"])
def test_logic(type: str) -> None:
    check(f"and.{type} %d, %a, %b;", lambda a, b: a & b, type, type, type)
    check(f"or.{type} %d, %a, %b;", lambda a, b: a | b, type, type, type)
    check(f"xor.{type} %d, %a, %b;", lambda a, b: a ^ b, type, type, type)
    check(f"not.{type} %d, %a;", lambda a: ~a, type, type)


AMOUNTS = {1: [0, 1, 15, 16, 17, 31, 32, 33, 63, 64, 65, 255, 1 << 31, (1 << 32) - 1]}


@pytest.mark.parametrize("type", ["b16", "b32", "b64"])
def test_left_shifts_clamp(type: str) -> None:
    check(f"shl.{type} %d, %a, %b;", lambda a, b: a << min(b, 64), type, type, "u32", values=AMOUNTS)


@pytest.mark.parametrize("type", ["b16", "b32", "b64", "u16", "u32", "u64", "s16", "s32", "s64"])
def test_right_shifts_clamp_and_keep_the_sign(type: str) -> None:
    check(f"shr.{type} %d, %a, %b;", lambda a, b: a >> min(b, 64), type, type, "u32", values=AMOUNTS)


@pytest.mark.parametrize(("mode", "limit"), [("wrap", lambda c: c & 31), ("clamp", lambda c: min(c, 32))])
def test_funnel_shifts(mode: str, limit: Callable[[int], int]) -> None:
    amounts = {2: AMOUNTS[1]}
    check(
        f"shf.l.{mode}.b32 %d, %a, %b, %c;",
        lambda a, b, c: (b << 32 | a) << limit(c) >> 32,
        "b32",
        "b32",
        "b32",
        "u32",
        values=amounts,
    )
    check(
        f"shf.r.{mode}.b32 %d, %a, %b, %c;",
        lambda a, b, c: (b << 32 | a) >> limit(c),
        "b32",
        "b32",
        "b32",
        "u32",
        values=amounts,
    )


@pytest.mark.parametrize("type", ["u32", "s32", "u64", "s64"])
def test_a_field_of_bits(type: str) -> None:
    """Bit by bit, as the ISA writes it; what lies above the top bit is the sign."""
    top = int(type[1:]) - 1

    def oracle(a: int, b: int, c: int) -> int:
        place, length = b & 255, c & 255
        sign = a >> min(place + length - 1, top) & 1 if type[0] == "s" and length else 0
        bits = [a >> place + i & 1 if i < length and place + i <= top else sign for i in range(top + 1)]
        return sum(bit << i for i, bit in enumerate(bits))

    few = {1: [0, 4, top - 3, top, top + 1, 200, 256], 2: [0, 1, 8, top, top + 1, 255]}
    check(f"bfe.{type} %d, %a, %b, %c;", oracle, type, type, "u32", "u32", values=few)


@pytest.mark.parametrize("type", ["b32", "b64"])
def test_a_field_into_a_word(type: str) -> None:
    top = int(type[1:]) - 1

    def oracle(a: int, b: int, c: int, e: int) -> int:
        place, length = c & 255, e & 255
        for bit in range(min(length, top + 1 - place)):
            b = b & ~(1 << place + bit) | (a >> bit & 1) << place + bit
        return b

    few = {0: [0, -1, 0x1234_5678_9ABC], 1: [0, -1, 0x0F0F_3C3C], 2: [0, 5, top, 99], 3: [0, 1, 9, top + 1, 255]}
    check(f"bfi.{type} %d, %a, %b, %c, %e;", oracle, type, type, type, "u32", "u32", values=few)


def test_masks_of_bits() -> None:
    def oracle(mode: str) -> Callable[[int, int], int]:
        def find(a: int, b: int) -> int:
            if mode == "wrap":
                a, b = a & 31, b & 31
            return sum(1 << bit for bit in range(32) if a <= bit < a + b)

        return find

    few = {0: [0, 1, 31, 32, 33, 1 << 31], 1: [0, 1, 8, 31, 32, 33, -1]}
    for mode in ("clamp", "wrap"):
        check(f"bmsk.{mode}.b32 %d, %a, %b;", oracle(mode), "b32", "u32", "u32", values=few)


@pytest.mark.parametrize("bits", [32, 64])
def test_counts_of_bits(bits: int) -> None:
    type = f"b{bits}"
    check(f"popc.{type} %d, %a;", lambda a: bin(a).count("1"), "u32", type)
    check(f"clz.{type} %d, %a;", lambda a: bits - a.bit_length(), "u32", type)
    check(f"brev.{type} %d, %a;", lambda a: int(f"{a:0{bits}b}"[::-1], 2), type, type)


@pytest.mark.parametrize("type", ["u32", "s32", "u64", "s64"])
def test_the_highest_bit(type: str) -> None:
    bits = int(type[1:])

    def place(a: int) -> int:
        differs = [bit for bit in range(bits) if (a >> bit & 1) != (1 if a < 0 else 0)]
        return max(differs, default=-1)

    check(f"bfind.{type} %d, %a;", place, "u32", type)
    shift = lambda a: -1 if place(a) < 0 else bits - 1 - place(a)
    check(f"bfind.shiftamt.{type} %d, %a;", shift, "u32", type)


@pytest.mark.parametrize("table", [0x00, 0xFF, 0x80, 0xFE, 0x96, 0xE8, 0xCA, 0x1B])
def test_logic_of_three(table: int) -> None:
    def oracle(a: int, b: int, c: int) -> int:
        return sum((table >> ((a >> i & 1) * 4 + (b >> i & 1) * 2 + (c >> i & 1)) & 1) << i for i in range(32))

    few = {key: [4042322160, 3435973836, 2863311530, 305419896] for key in range(3)}
    check(f"lop3.b32 %d, %a, %b, %c, {table:#x};", oracle, "b32", "b32", "b32", "b32", values=few)


def test_bytes_are_picked_with_their_sign() -> None:
    def oracle(a: int, b: int, c: int) -> int:
        picked = [(b << 32 | a) >> 8 * (c >> 4 * i & 7) & 255 for i in range(4)]
        signs = [255 if byte >> 7 else 0 for byte in picked]
        return sum((signs[i] if c >> 4 * i & 8 else picked[i]) << 8 * i for i in range(4))

    few = {0: [0x81_02_83_04], 1: [0xF5_06_F7_08], 2: [0x3210, 0x7654, 0x5140, 0xFEDC, 0xB8A9, 0xFFFF7770]}
    check("prmt.b32 %d, %a, %b, %c;", oracle, "b32", "b32", "b32", "b32", values=few)


@pytest.mark.parametrize("types", ["s32.s32", "u32.u32", "s32.u32", "u32.s32"])
def test_dot_of_bytes(types: str) -> None:
    def parts(word: int, type: str) -> list[int]:
        return [read(word >> 8 * i & 255, type[0] + "8") for i in range(4)]

    a_type, b_type = types.split(".")
    check(
        f"dp4a.{types} %d, %a, %b, %c;",
        lambda a, b, c: sum(x * y for x, y in zip(parts(a, a_type), parts(b, b_type))) + c,
        "u32",
        "b32",
        "b32",
        "b32",
    )


@pytest.mark.parametrize("half", ["lo", "hi"])
@pytest.mark.parametrize("types", ["u32.u32", "s32.u32", "u32.s32", "s32.s32"])
def test_products_of_pairs(half: str, types: str) -> None:
    def parts(word: int, count: int, signed: bool) -> list[int]:
        raw = (word & 0xFFFFFFFF).to_bytes(4, "little")
        size = 4 // count
        return [int.from_bytes(raw[i * size : (i + 1) * size], "little", signed=signed) for i in range(count)]

    a_signed, b_signed = (type == "s32" for type in types.split("."))
    begin = 0 if half == "lo" else 2
    check(
        f"dp2a.{half}.{types} %d, %a, %b, %c;",
        lambda a, b, c: sum(x * y for x, y in zip(parts(a, 2, a_signed), parts(b, 4, b_signed)[begin:])) + c,
        "u32",
        "b32",
        "b32",
        "b32",
    )


def test_differences() -> None:
    check("sad.s32 %d, %a, %b, %c;", lambda a, b, c: c + abs(a - b), "s32", "s32", "s32", "s32")
    check("sad.u32 %d, %a, %b, %c;", lambda a, b, c: c + abs(a - b), "u32", "u32", "u32", "u32")


# --- comparison and selection

COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}


@pytest.mark.parametrize("name", COMPARISONS)
@pytest.mark.parametrize("type", ["s16", "u16", "s32", "u32", "s64", "u64"])
def test_comparison(name: str, type: str) -> None:
    check(
        f"setp.{name}.{type} %p, %a, %b; selp.u32 %d, 1, 0, %p;",
        lambda a, b: int(COMPARISONS[name](a, b)),
        "u32",
        type,
        type,
    )


@pytest.mark.parametrize(("name", "like"), [("lo", "lt"), ("ls", "le"), ("hi", "gt"), ("hs", "ge")])
def test_comparison_of_unsigned_by_its_other_name(name: str, like: str) -> None:
    oracle = lambda a, b: int(COMPARISONS[like](a, b))
    check(f"setp.{name}.u32 %p, %a, %b; selp.u32 %d, 1, 0, %p;", oracle, "u32", "u32", "u32")


@pytest.mark.parametrize("name", ["eq", "ne", "lt", "le", "gt", "ge"])
@pytest.mark.parametrize("unordered", [False, True])
def test_comparison_of_floats_with_nan(name: str, unordered: bool) -> None:
    values = np.array([0.0, -0.0, 1.0, -1.0, np.inf, -np.inf, np.nan], np.float32)
    a, b = rows(values, values)
    found = apply(f"setp.{name}{'u' if unordered else ''}.f32 %p, %a, %b; selp.u32 %d, 1, 0, %p;", np.uint32, a, b)
    wanted = [unordered if x != x or y != y else COMPARISONS[name](x, y) for x, y in zip(a.tolist(), b.tolist())]
    assert found.tolist() == [int(each) for each in wanted]


def test_whether_floats_are_numbers() -> None:
    values = np.array([1.0, np.inf, np.nan], np.float32)
    a, b = rows(values, values)
    none = [x == x and y == y for x, y in zip(a.tolist(), b.tolist())]
    assert apply("setp.num.f32 %p, %a, %b; selp.u32 %d, 1, 0, %p;", np.uint32, a, b).tolist() == none
    assert apply("setp.nan.f32 %p, %a, %b; selp.u32 %d, 1, 0, %p;", np.uint32, a, b).tolist() == [not x for x in none]


@pytest.mark.parametrize(
    ("name", "oracle"), [("and", lambda a, c: a & c), ("or", lambda a, c: a | c), ("xor", lambda a, c: a ^ c)]
)
@pytest.mark.parametrize("negated", ["", "!"])
def test_a_comparison_joined_with_a_predicate(name: str, oracle: Callable[[int, int], int], negated: str) -> None:
    """The second result is the opposite of the comparison, joined in the same way."""
    a, b, c = rows(*[np.array([0, 1], np.uint32)] * 3)
    code = f"setp.ne.u32 %q, %c, 0; setp.lt.{name}.u32 %p|%q, %a, %b, {negated}%q;"
    found = apply(code + "selp.u32 %t, 1, 0, %p; selp.u32 %u, 2, 0, %q; or.b32 %d, %t, %u;", np.uint32, a, b, c)
    third = [int(z) ^ bool(negated) for z in c]
    wanted = [oracle(int(x < y), z) + 2 * oracle(int(not x < y), z) for x, y, z in zip(a, b, third)]
    assert found.tolist() == wanted


def test_a_comparison_into_a_word() -> None:
    check("set.lt.u32.s32 %d, %a, %b;", lambda a, b: -(a < b), "u32", "s32", "s32")
    check("set.lt.f32.s32 %d, %a, %b;", lambda a, b: 0x3F800000 * (a < b), "u32", "s32", "s32")


def test_selection_by_sign() -> None:
    check("slct.u32.s32 %d, %a, %b, %c;", lambda a, b, c: a if c >= 0 else b, "u32", "u32", "u32", "s32")


def test_logic_of_predicates_and_of_constants() -> None:
    a, b = rows(*[np.array([0, 1], np.uint32)] * 2)
    code = "setp.ne.u32 %p, %a, 0; setp.ne.u32 %q, %b, 0; {} selp.u32 %d, 1, 0, %p;"
    for line, oracle in {
        "and.pred %p, %p, %q;": lambda x, y: x & y,
        "or.pred %p, %p, !%q;": lambda x, y: x | (1 - y),
        "xor.pred %p, %p, %q;": lambda x, y: x ^ y,
        "not.pred %p, %q;": lambda x, y: 1 - y,
        "mov.pred %p, %q;": lambda x, y: y,
        "mov.pred %p, -1;": lambda x, y: 1,
        "mov.pred %p, 0;": lambda x, y: 0,
    }.items():
        found = apply(code.format(line), np.uint32, a, b)
        assert found.tolist() == [oracle(int(x), int(y)) for x, y in zip(a, b)], line


def test_a_guard_leaves_the_other_lanes_as_they_are() -> None:
    found = stored("""
        mov.u32 %r0, 7; and.b32 %r1, %r39, 1; setp.eq.u32 %p0, %r1, 1;
        @%p0 add.u32 %r0, %r0, %r39; @!%p0 mul.lo.u32 %r0, %r0, 100;""")
    assert found.tolist() == [7 + lane if lane % 2 else 700 for lane in range(32)]


def test_a_predicate_is_written_in_the_lanes_that_write_it() -> None:
    found = stored("""
        setp.lt.u32 %p1, %r39, 16; setp.lt.u32 %p0, %r39, 4; @%p0 setp.gt.u32 %p1, %r39, 1; selp.u32 %r0, 1, 0, %p1;""")
    assert found.tolist() == [0, 0, 1, 1] + [1] * 12 + [0] * 16


def test_a_narrow_result_widens() -> None:
    a = np.array([0xFFFF8001], np.uint32)
    assert apply("cvt.u16.u32 %d, %a;", np.uint32, a)[0] == 0x8001
    assert apply("mul.wide.s16 %d, %h, %h;".replace("%h", "%a"), np.uint32, a.astype(np.uint16))[0] == 0x7FFF**2


def test_a_mode_that_does_not_exist_is_refused() -> None:
    with pytest.raises(UnsupportedError, match=r"PTX line \d+: .*is not emulated"):
        apply("prmt.b32.f8e %d, %a, %a, %a;", np.uint32, np.zeros(1, np.uint32))


def short(value: int, is_signed: bool) -> int:
    low = value & 0xFFFFFF
    return low - (1 << 24) if is_signed and low >> 23 else low


@pytest.mark.parametrize("type", ["s32", "u32"])
@pytest.mark.parametrize(("half", "shift"), [("lo", 0), ("hi", 16)])
def test_products_of_24_bits(type: str, half: str, shift: int) -> None:
    signed = type[0] == "s"
    oracle = lambda a, b: short(a, signed) * short(b, signed) >> shift
    check(f"mul24.{half}.{type} %d, %a, %b;", oracle, type, type, type)
    few = {place: [0, 1, -1, 0x7FFFFF, 0x800000, 12345] for place in range(3)}
    total = lambda a, b, c: oracle(a, b) + c
    check(f"mad24.{half}.{type} %d, %a, %b, %c;", total, type, type, type, type, values=few)


def test_products_and_sums_that_saturate() -> None:
    low, high = -(1 << 31), (1 << 31) - 1
    few = {place: [0, 1, -1, 0x7FFFFF, 1 << 31, (1 << 31) - 1] for place in range(3)}
    kinds = ["s32"] * 4
    total = lambda a, b, c: min(max((a * b >> 32) + c, low), high)
    check("mad.hi.sat.s32 %d, %a, %b, %c;", total, *kinds, values=few)
    total = lambda a, b, c: min(max((short(a, True) * short(b, True) >> 16) + c, low), high)
    check("mad24.hi.sat.s32 %d, %a, %b, %c;", total, *kinds, values=few)


HALVES = [0, 0x0001FFFF, 0x7FFF8000, 0x80007FFF, 0xFFFF0001, 0x12348765]


@pytest.mark.parametrize(
    ("name", "oracle"),
    [
        ("add.{}", lambda a, b, low, high: a + b),
        ("sub.{}", lambda a, b, low, high: a - b),
        ("min.{}", lambda a, b, low, high: min(a, b)),
        ("max.{}", lambda a, b, low, high: max(a, b)),
        ("add.sat.{}", lambda a, b, low, high: min(max(a + b, low), high)),
        ("sub.sat.{}", lambda a, b, low, high: min(max(a - b, low), high)),
        ("max.relu.{}", lambda a, b, low, high: max(a, b, 0)),
        ("min.relu.{}", lambda a, b, low, high: max(min(a, b), 0)),
    ],
)
@pytest.mark.parametrize("type", ["s16x2", "u16x2", "s8x4", "u8x4"])
def test_packed_integers(type: str, name: str, oracle: Callable[..., int]) -> None:
    kind, count = type.split("x")
    bits, signed = int(kind[1:]), kind[0] == "s"
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if signed else (0, (1 << bits) - 1)

    def packed(a: int, b: int) -> int:
        word = 0
        for place in range(int(count)):
            x, y = (read(value >> bits * place & (1 << bits) - 1, kind) for value in (a, b))
            word |= (oracle(x, y, low, high) & (1 << bits) - 1) << bits * place
        return word

    check(f"{name.format(type)} %d, %a, %b;", packed, *["u32"] * 3, values={0: HALVES, 1: HALVES})


def test_relu_of_an_extreme() -> None:
    for name in ("min.relu.s32", "min.s32.relu"):
        check(f"{name} %d, %a, %b;", lambda a, b: max(min(a, b), 0), "s32", "s32", "s32")


def test_whether_a_word_is_zero() -> None:
    check("cnot.b32 %d, %a;", lambda a: int(a == 0), "u32", "u32")


@pytest.mark.parametrize("type", ["s32", "u32"])
@pytest.mark.parametrize("mode", ["wrap", "clamp"])
def test_a_field_at_the_bottom_is_extended(mode: str, type: str) -> None:
    def oracle(a: int, b: int) -> int:
        length = b & 31 if mode == "wrap" else min(b, 32)
        low = a & (1 << length) - 1
        return low - (1 << length) if type[0] == "s" and length and low >> length - 1 else low

    lengths = {1: [0, 1, 5, 31, 32, 33, 40, 0xFFFFFFFF]}
    check(f"szext.{mode}.{type} %d, %a, %b;", oracle, type, type, "u32", values=lengths)


def test_the_nth_set_bit() -> None:
    def oracle(bits: int, base: int, count: int) -> int:
        if count == 0:
            return base if bits >> base & 1 else -1
        place, left = base, abs(count) - 1
        while 0 <= place < 32:
            if bits >> place & 1:
                if not left:
                    return place
                left -= 1
            place += 1 if count > 0 else -1
        return -1

    values = {0: [0, 1, 0x80000001, 0xF0F0, 0xFFFFFFFF], 1: [0, 4, 16, 31], 2: [0, 1, 2, 5, 32, -1, -2, -33]}
    check("fns.b32 %d, %a, %b, %c;", oracle, "u32", "u32", "u32", "s32", values=values)


@pytest.mark.parametrize(
    ("mode", "bytes"),
    [
        ("f4e", ["3210", "4321", "5432", "6543"]),
        ("b4e", ["5670", "6701", "7012", "0123"]),
        ("rc8", ["0000", "1111", "2222", "3333"]),
        ("ecl", ["3210", "3211", "3222", "3333"]),
        ("ecr", ["0000", "1110", "2210", "3210"]),
        ("rc16", ["1010", "3232", "1010", "3232"]),
    ],
)
def test_modes_of_a_permutation(mode: str, bytes: list[str]) -> None:
    """The bytes that each selector 0 to 3 chooses, the highest first (PTX ISA, "prmt")."""
    source = [0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88]
    found = apply(f"prmt.b32.{mode} %d, 0x44332211, 0x88776655, %a;", np.uint32, np.arange(8, dtype=np.uint32))
    wanted = [int("".join(f"{source[int(digit)]:02x}" for digit in each), 16) for each in bytes]
    assert found.tolist() == wanted * 2


@pytest.mark.parametrize("name", ["or", "and"])
def test_three_way_logic_with_a_predicate(name: str) -> None:
    a, c = rows(*[np.array([0, 6], np.uint32)] * 2)
    code = f"setp.ne.u32 %q, %b, 0; lop3.{name}.b32 %t|%p, %a, 2, 0, 0x30, %q;"
    found = apply(code + "selp.u32 %u, 100, 0, %p; add.u32 %d, %t, %u;", np.uint32, a, c)
    kept = a & np.uint32(0xFFFFFFFD)
    holds = (np.logical_and if name == "and" else np.logical_or)(kept != 0, c != 0)
    assert found.tolist() == (kept + 100 * holds).tolist()
    none = apply(code.replace("%t|%p", "_|%p") + "selp.u32 %d, 1, 0, %p;", np.uint32, a, c)
    assert none.tolist() == holds.tolist()


PAIRS = np.array([0x3C004000, 0x3C003C00, 0x7E003C00, 0x00018001, 0x80000000], np.uint32)
"""Pairs of halves: 2 and 1, 1 and 1, 1 and NaN, two subnormals, 0 and -0."""


@pytest.mark.parametrize("op", ["eq", "ne", "lt", "ge", "equ", "ltu", "num", "nan"])
def test_comparisons_of_pairs(op: str) -> None:
    a, b = rows(PAIRS, PAIRS)
    x, y = (each.view(np.float16).reshape(-1, 2).astype(float) for each in (a, b))
    none = np.isnan(x) | np.isnan(y)
    plain = {"eq": x == y, "ne": (x != y) & ~none, "lt": x < y, "ge": x >= y, "num": ~none, "nan": none}
    holds = plain[op] if op in plain else plain[op[:-1]] | none
    ones = np.where(holds, 0x3C00, 0).astype(np.uint16).view(np.uint32).reshape(-1)
    bits = np.where(holds, 0xFFFF, 0).astype(np.uint16).view(np.uint32).reshape(-1)
    assert apply(f"set.{op}.f16x2.f16x2 %d, %a, %b;", np.uint32, a, b).tolist() == ones.tolist()
    assert apply(f"set.{op}.u32.f16x2 %d, %a, %b;", np.uint32, a, b).tolist() == bits.tolist()
    code = f"setp.{op}.f16x2 %p|%q, %a, %b; selp.u32 %t, 1, 0, %p; selp.u32 %u, 2, 0, %q; or.b32 %d, %t, %u;"
    assert apply(code, np.uint32, a, b).tolist() == (holds[:, 0] + 2 * holds[:, 1]).tolist()


def test_comparisons_into_values_of_each_kind() -> None:
    halves = np.array([0x3C00, 0xC000, 0x7E00], np.uint16)
    a, b = rows(halves, halves)
    less = a.view(np.float16) < b.view(np.float16)
    assert apply("set.lt.f16.f16 %d, %a, %b;", np.uint16, a, b).tolist() == (less * 0x3C00).tolist()
    assert apply("set.lt.s16.f16 %d, %a, %b;", np.uint16, a, b).tolist() == (less * 0xFFFF).tolist()
    assert apply("set.lt.u32.f16 %d, %a, %b;", np.uint32, a, b).tolist() == (less * 0xFFFFFFFF).tolist()
    half = np.array([0x3F80, 0x3E80], np.uint16)
    assert apply("mov.b16 %h, 0x3F00; set.gt.bf16.bf16 %d, %a, %h;", np.uint16, half).tolist() == [0x3F80, 0]
    pair = np.array([0x3F803E80], np.uint32)
    assert apply("mov.b32 %t, 0x3F003F00; set.gt.bf16x2.bf16x2 %d, %a, %t;", np.uint32, pair).tolist() == [0x3F800000]


@pytest.mark.parametrize(("name", "oracle"), [("and", np.logical_and), ("or", np.logical_or), ("xor", np.logical_xor)])
def test_a_comparison_into_a_value_with_a_predicate(name: str, oracle: Any) -> None:
    a, b = rows(*[np.array([0, 1], np.uint32)] * 2)
    code = f"setp.ne.u32 %p, %b, 0; set.eq.{name}.s32.u32 %d, %a, 1, !%p;"
    assert apply(code, np.int32, a, b).tolist() == (-(oracle(a == 1, b == 0).astype(int))).tolist()
    code = f"setp.ne.u32 %p, %b, 0; set.eq.{name}.f16x2.f16x2 %d, %a, 0x3C000001, %p;"
    halves = np.stack([oracle(a == 1, b != 0), oracle(np.zeros_like(a), b != 0)], axis=1)
    assert apply(code, np.uint32, a, b).tolist() == (halves * 0x3C00 @ [1, 1 << 16]).tolist()


def test_subnormals_are_flushed_before_a_comparison() -> None:
    tiny = np.array([1, 0x80000001, 0x3F800000], np.uint32)
    assert apply("set.eq.ftz.u32.f32 %d, %a, 0f00000000;", np.uint32, tiny).tolist() == [0xFFFFFFFF, 0xFFFFFFFF, 0]
    pair = np.array([0x00018001], np.uint32)
    assert apply("set.eq.ftz.f16x2.f16x2 %d, %a, 0;", np.uint32, pair).tolist() == [0x3C003C00]
    found = apply("slct.ftz.u32.f32 %d, 1, 2, %a;", np.uint32, tiny)
    assert found.tolist() == [1, 1, 1] and apply("slct.u32.f32 %d, 1, 2, %a;", np.uint32, tiny).tolist() == [1, 2, 1]


CARRIED = np.array([0, 1, 2, 0x7FFFFFFF, 0x80000000, 0xFFFFFFFE, 0xFFFFFFFF, 12345], np.uint32)


@pytest.mark.parametrize("high", [False, True])
@pytest.mark.parametrize(
    ("low_words", "high_words", "oracle"),
    [
        ("add.cc.u32 %d, %a, %b;", "addc.u32 %d, %a, %b;", lambda a, b: a * (2**32 + 1) + b * (2**32 + 1)),
        ("sub.cc.u32 %d, %a, %b;", "subc.u32 %d, %a, %b;", lambda a, b: a * (2**32 + 1) - b * (2**32 + 1)),
        ("mad.lo.cc.u32 %d, %a, %b, %a;", "madc.hi.u32 %d, %a, %b, %b;", lambda a, b: a * b + a + (b << 32)),
        ("add.cc.s32 %d, %a, %b;", "addc.s32 %d, %a, 0;", lambda a, b: a * (2**32 + 1) + b),
        ("sub.cc.s32 %d, %a, %b;", "subc.cc.s32 %d, %a, %b;", lambda a, b: a * (2**32 + 1) - b * (2**32 + 1)),
        ("sub.cc.u32 %d, %a, %b;", "addc.u32 %d, 0, 0;", lambda a, b: (a - b) % 2**32 + ((a >= b) << 32)),
        ("add.cc.u32 %d, %a, %b;", "subc.u32 %d, %a, 0;", lambda a, b: a + b + (a - 1 << 32)),
    ],
)
def test_a_carry_goes_from_word_to_word(
    low_words: str, high_words: str, oracle: Callable[..., int], high: bool
) -> None:
    a, b = (each.reshape(-1) for each in np.meshgrid(CARRIED, CARRIED))
    found = apply(f"{low_words} {high_words if high else ''}", np.uint32, a, b)
    assert found.tolist() == [oracle(x, y) >> 32 * high & 0xFFFFFFFF for x, y in zip(a.tolist(), b.tolist())]


def test_division_by_zero_is_defined_here() -> None:
    a = np.array([5, 0xFFFFFFFF], np.uint32)
    assert apply("div.s32 %d, %a, 0;", np.uint32, a).tolist() == [0xFFFFFFFF] * 2
    assert apply("rem.u32 %d, %a, 0;", np.uint32, a).tolist() == a.tolist()
    wide = "cvt.u64.u32 %x, %a; rem.{}64 %y, %x, 0; cvt.u32.u64 %d, %y;"
    assert apply(wide.format("u"), np.uint32, a).tolist() == [0xFFFFFFFF] * 2
    assert apply(wide.format("s"), np.uint32, a).tolist() == [0xFFFFFFFF] * 2
