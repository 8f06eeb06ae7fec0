"""Video instructions against Python's integers, by the pseudo code of PTX ISA, "Video Instructions"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ptx import apply, rows

from blackwell_matmul.base.errors import UnsupportedError

WORDS = np.array([0, 1, 0x01020304, 0x7F80FF01, 0x80000000, 0x7FFFFFFF, 0xFFFFFFFF, 0x8000FFFE], np.uint32)
A, B = rows(WORDS, WORDS)
C = np.full(A.size, 0x89ABCDEF, np.uint32)

OPERATIONS: dict[str, Callable[[int, int], int]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "absdiff": lambda a, b: abs(a - b),
    "min": min,
    "max": max,
}


def piece(word: int, part: str, type: str) -> int:
    """A part of a word, with the sign of its type."""
    bits = {"": 32, "b": 8, "h": 16}[part[:1]]
    return (
        signed(word >> int(part[1:] or 0) * bits, bits)
        if type == "s32"
        else word >> int(part[1:] or 0) * bits & (1 << bits) - 1
    )


def signed(value: int, bits: int) -> int:
    low = value & (1 << bits) - 1
    return low - (1 << bits) if low >> bits - 1 else low


def clamp(value: int, type: str, bits: int) -> int:
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if type == "s32" else (0, (1 << bits) - 1)
    return min(max(value, low), high)


def check(code: str, oracle: Callable[[int, int, int], int]) -> None:
    found = apply(code, np.uint32, A, B, C)
    for a, b, c, word in zip(A.tolist(), B.tolist(), C.tolist(), found.tolist()):
        wanted = oracle(a, b, c) & 0xFFFFFFFF
        assert word == wanted, (code, hex(a), hex(b), hex(c), hex(word), hex(wanted))


@pytest.mark.slow
@pytest.mark.parametrize("types", ["u32.u32.u32", "s32.s32.s32", "s32.u32.s32", "u32.s32.u32"])
@pytest.mark.parametrize("name", OPERATIONS)
def test_two_parts(name: str, types: str) -> None:
    to, one, other = types.split(".")
    for left, right in (("", ""), ("b3", "h1"), ("h0", "b2")):
        dots = ["." * bool(part) + part for part in (left, right)]
        plain = lambda a, b, c: OPERATIONS[name](piece(a, left, one), piece(b, right, other))  # noqa: B023
        check(f"v{name}.{types} %d, %a{dots[0]}, %b{dots[1]};", plain)
        check(f"v{name}.{types}.sat %d, %a{dots[0]}, %b{dots[1]};", lambda a, b, c: clamp(plain(a, b, c), to, 32))  # noqa: B023
        for second, function in (("add", lambda x, y: x + y), ("min", min), ("max", max)):
            combined = lambda a, b, c: function(clamp(plain(a, b, c), to, 32), piece(c, "", to))  # noqa: B023
            check(f"v{name}.{types}.sat.{second} %d, %a{dots[0]}, %b{dots[1]}, %c;", combined)


@pytest.mark.parametrize(("part", "bits", "place"), [("b0", 8, 0), ("b3", 8, 24), ("h0", 16, 0), ("h1", 16, 16)])
@pytest.mark.parametrize("saturates", [False, True])
def test_a_part_of_the_result_is_merged(part: str, bits: int, place: int, saturates: bool) -> None:
    def oracle(a: int, b: int, c: int) -> int:
        value = signed(a, 32) + signed(b, 32)
        value = clamp(value, "s32", bits) if saturates else value
        return c & ~((1 << bits) - 1 << place) | (value & (1 << bits) - 1) << place

    check(f"vadd.s32.s32.s32{'.sat' * saturates} %d.{part}, %a, %b, %c;", oracle)


@pytest.mark.parametrize("mode", ["clamp", "wrap"])
@pytest.mark.parametrize("type", ["u32", "s32"])
def test_shifts(type: str, mode: str) -> None:
    def amount(b: int) -> int:
        return min(b & 0xFF, 32) if mode == "clamp" else b & 31

    check(f"vshl.{type}.{type}.u32.{mode} %d, %a, %b.b0;", lambda a, b, c: piece(a, "", type) << amount(b))
    check(f"vshr.{type}.{type}.u32.{mode} %d, %a, %b.b0;", lambda a, b, c: piece(a, "", type) >> amount(b))
    check(
        f"vshr.{type}.{type}.u32.{mode}.add %d, %a.h1, %b.b0, %c;",
        lambda a, b, c: (piece(a, "h1", type) >> amount(b)) + c,
    )


@pytest.mark.parametrize(
    ("name", "holds"),
    [("eq", lambda a, b: a == b), ("ne", lambda a, b: a != b), ("lt", lambda a, b: a < b), ("ge", lambda a, b: a >= b)],
)
def test_comparisons(name: str, holds: Any) -> None:
    check(f"vset.s32.u32.{name} %d, %a.b0, %b.h0;", lambda a, b, c: holds(piece(a, "b0", "s32"), piece(b, "h0", "u32")))
    check(f"vset.u32.u32.{name}.add %d, %a, %b, %c;", lambda a, b, c: holds(a, b) + c)
    check(f"vset.u32.u32.{name} %d.b1, %a, %b, %c;", lambda a, b, c: c & ~0xFF00 | holds(a, b) << 8)


@pytest.mark.parametrize(("scale", "shift"), [("", 0), (".shr7", 7), (".shr15", 15)])
@pytest.mark.parametrize("saturates", [False, True])
def test_a_product_and_a_sum(saturates: bool, scale: str, shift: int) -> None:
    def oracle(sign: int, part: str, type: str, is_signed: bool, more: int = 0, minus: int = 1) -> Callable[..., int]:
        def every(a: int, b: int, c: int) -> int:
            third = signed(c, 32) if is_signed else c
            total = sign * piece(a, part, type) * piece(b, "", type) + minus * third + more >> shift
            return clamp(total, "s32" if is_signed else "u32", 32) if saturates else total

        return every

    end = ".sat" * saturates + scale
    check(f"vmad.u32.u32.u32{end} %d, %a.h1, %b, %c;", oracle(1, "h1", "u32", False))
    check(f"vmad.s32.s32.s32{end} %d, %a.b3, %b, %c;", oracle(1, "b3", "s32", True))
    check(f"vmad.s32.u32.u32{end} %d, -%a.h0, %b, %c;", oracle(-1, "h0", "u32", True))
    check(f"vmad.s32.u32.u32{end} %d, %a, %b, -%c;", oracle(1, "", "u32", True, minus=-1))
    check(f"vmad.u32.u32.u32.po{end} %d, %a, %b, %c;", oracle(1, "", "u32", False, 1))


def average(a: int, b: int) -> int:
    return (a + b + (a + b >= 0)) >> 1


@pytest.mark.slow
@pytest.mark.parametrize(("count", "first", "other"), [(2, "h03", "h21"), (4, "b7160", "b0444")])
@pytest.mark.parametrize("types", ["u32.u32.u32", "s32.s32.s32", "s32.u32.s32"])
@pytest.mark.parametrize("name", [*OPERATIONS, "avrg"])
def test_halves_and_bytes(name: str, types: str, count: int, first: str, other: str) -> None:
    function = OPERATIONS.get(name, average)
    to, *kinds = types.split(".")
    bits = 32 // count

    def elements(a: int, b: int, part: str, begin: int, kind: str) -> list[int]:
        both = b << 32 | a
        places = [int(digit) for digit in reversed(part[1:])] if part else range(begin, begin + count)
        words = [both >> bits * place & (1 << bits) - 1 for place in places]
        return [signed(word, bits) if kind == "s32" else word for word in words]

    def oracle(
        left: str, right: str, written: list[int], saturates: bool, adds: bool
    ) -> Callable[[int, int, int], int]:
        def every(a: int, b: int, c: int) -> int:
            pairs = zip(elements(a, b, left, 0, kinds[0]), elements(a, b, right, count, kinds[1]))
            values = [function(*pair) for pair in pairs]
            values = [clamp(value, to, bits) for value in values] if saturates else values
            if adds:
                return c + sum(values[place] for place in written)
            for place in written:
                field = (1 << bits) - 1 << bits * place
                c = c & ~field | values[place] << bits * place & field
            return c

        return every

    all_of, some = [*range(count)], ("h1", [1]) if count == 2 else ("b310", [0, 1, 3])
    check(f"v{name}{count}.{types} %d, %a, %b, %c;", oracle("", "", all_of, False, False))
    check(f"v{name}{count}.{types}.sat %d, %a.{first}, %b.{other}, %c;", oracle(first, other, all_of, True, False))
    check(f"v{name}{count}.{types} %d.{some[0]}, %a, %b.{other}, %c;", oracle("", other, some[1], False, False))
    check(f"v{name}{count}.{types}.add %d.{some[0]}, %a, %b, %c;", oracle("", "", some[1], False, True))


def test_comparisons_of_bytes() -> None:
    def below(a: int, b: int) -> list[bool]:
        return [signed(a >> 8 * place, 8) < (b >> 8 * place & 255) for place in range(4)]

    check("vset4.s32.u32.lt.add %d, %a, %b, %c;", lambda a, b, c: c + sum(below(a, b)))
    check("vset4.s32.u32.lt %d, %a, %b, %c;", lambda a, b, c: sum(each << 8 * i for i, each in enumerate(below(a, b))))


@pytest.mark.parametrize(
    "code",
    [
        "vadd.u32.u32.u32.add %d, %a, %b;",
        "vadd.u32.u32.u32 %d.b0, %a, %b;",
        "vadd.u32.u32.u32 %d, %a.b4, %b;",
        "vadd2.u32.u32.u32 %d, %a.h4, %b, %c;",
        "vset.u32.u32.xx %d, %a, %b;",
        "vadd.u32 %d, %a, %b;",
    ],
)
def test_forms_that_do_not_exist_are_refused(code: str) -> None:
    with pytest.raises(UnsupportedError):
        apply(code, np.uint32, A[:1], B[:1], C[:1])
