"""Conversions against fractions and the bits that the ISA names (PTX ISA, "cvt"), and moves between registers."""

from __future__ import annotations

import itertools
import math
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ptx import apply, rounded, rows, run, stored

from blackwell_matmul.base.errors import InputError, UnsupportedError

TYPES: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
TYPES |= {
    f"{kind}{bits}": np.dtype(f"{'i' if kind == 's' else 'u'}{bits // 8}") for kind in "su" for bits in (8, 16, 32, 64)
}


def word(type: str) -> Any:
    return f"u{np.dtype(TYPES[type]).itemsize}"


def converted(code: str, to: str, source: str, values: Any) -> Any:
    given = np.array(values, TYPES[source])
    return apply(f"{code} %d, %a;", word(to), given.view(word(source))).view(TYPES[to])


HARD = [
    0.0,
    1.0,
    -1.0,
    1 / 3,
    1 + 2.0**-8,
    1 + 2.0**-8 + 2.0**-30,
    1 - 2.0**-12 - 2.0**-40,
    2.0**-140,
    -3 * 2.0**-26,
    65519.0,
    65520.0,
    -1e38,
    3.4028235677973366e38,
    2.0**-24,
    2.0**-25,
]


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize(
    ("to", "source"), [("f16", "f32"), ("bf16", "f32"), ("f16", "f64"), ("bf16", "f64"), ("f32", "f64")]
)
def test_to_narrower_floats(mode: str, to: str, source: str) -> None:
    with np.errstate(over="ignore"):
        values = np.array(HARD).astype(TYPES[source])
    found = converted(f"cvt.{mode}.{to}.{source}", to, source, values)
    wanted = [rounded(Fraction(float(each)), to, mode) if np.isfinite(each) else float(each) for each in values]
    assert found.astype(float).tolist() == wanted


def test_to_wider_floats_is_exact() -> None:
    values = np.array([0, -0.0, 1.5, 2.0**-24, 65504, np.inf, -np.inf], np.float16)
    for to in ("f32", "f64"):
        assert converted(f"cvt.{to}.f16", to, "f16", values).tobytes() == values.astype(TYPES[to]).tobytes()
    assert converted("cvt.f64.f32", "f64", "f32", [0.1]).tolist() == [float(np.float32(0.1))]


@pytest.mark.parametrize(("to", "bits"), [("f16", 0x7FFF), ("bf16", 0x7FFF), ("f32", 0x7FFFFFFF)])
def test_nan_is_the_hardwares(to: str, bits: int) -> None:
    source = "f64" if to == "f32" else "f32"
    assert converted(f"cvt.rn.{to}.{source}", to, source, [np.nan, -np.nan]).view(word(to)).tolist() == [bits] * 2


FLOATS = [
    0.5,
    1.5,
    2.5,
    -0.5,
    -1.5,
    -2.5,
    0.99,
    -0.99,
    300.0,
    -300.0,
    5e9,
    -5e9,
    1e30,
    -1e30,
    math.inf,
    -math.inf,
    2.0**-140,
]


@pytest.mark.parametrize("source", ["f32", "f64", "f16"])
@pytest.mark.parametrize("to", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize(
    ("mode", "function"), [("rni", round), ("rzi", math.trunc), ("rmi", math.floor), ("rpi", math.ceil)]
)
def test_to_integers_stays_at_the_ends(source: str, to: str, mode: str, function: Any) -> None:
    limits = np.iinfo(TYPES[to])
    with np.errstate(over="ignore"):
        values = np.array(FLOATS).astype(TYPES[source])
    found = converted(f"cvt.{mode}.{to}.{source}", to, source, values)
    for value, result in zip(values.astype(float).tolist(), found.tolist()):
        whole = (limits.max if value > 0 else limits.min) if math.isinf(value) else function(value)
        assert result == min(max(whole, limits.min), limits.max), value


@pytest.mark.parametrize(
    ("to", "source", "wanted"),
    [
        ("s32", "f32", 0),
        ("u8", "f32", 0),
        ("s32", "f16", 0),
        ("s64", "f32", -(1 << 63)),
        ("u64", "f32", 1 << 63),
        ("s32", "f64", -(1 << 31)),
        ("u32", "f64", 1 << 31),
    ],
)
def test_nan_to_an_integer(to: str, source: str, wanted: int) -> None:
    """Zero, but from or to 64 bits half of the unsigned range."""
    assert converted(f"cvt.rzi.{to}.{source}", to, source, [np.nan]).tolist() == [wanted]


def test_whole_floats_stay_floats() -> None:
    values = np.array([0.5, 1.5, -2.5, 3e9, np.inf], np.float32)
    assert converted("cvt.rni.f32.f32", "f32", "f32", values).tolist() == [0, 2, -2, 3e9, np.inf]
    assert converted("cvt.rpi.f32.f32", "f32", "f32", values).tolist() == [1, 2, -2, 3e9, np.inf]


INTEGERS = [0, 1, -1, (1 << 24) + 1, (1 << 31) - 1, -(1 << 31), (1 << 24) + (1 << 16) + 1, -(1 << 24) - 1]
LONG = [
    *INTEGERS,
    (1 << 63) - 1,
    -(1 << 63),
    (1 << 53) + 1,
    (1 << 54) + (1 << 30) + 1,
    -(1 << 54) - (1 << 30) - 1,
    (1 << 62) + (1 << 38),
]


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
@pytest.mark.parametrize("to", ["f16", "bf16", "f32"])
@pytest.mark.parametrize("source", ["s32", "u32", "s64", "u64"])
def test_from_integers_is_rounded_once(mode: str, to: str, source: str) -> None:
    bits = int(source[1:])
    given = [each & (1 << bits) - 1 for each in (LONG if bits == 64 else INTEGERS)]
    values = np.array(given, f"u{bits // 8}").view(TYPES[source])
    found = converted(f"cvt.{mode}.{to}.{source}", to, source, values)
    assert found.astype(float).tolist() == [rounded(Fraction(each), to, mode) for each in values.tolist()]


def test_from_narrow_integers() -> None:
    assert converted("cvt.rn.f16.s8", "f16", "s8", [-128, 127, 0]).tolist() == [-128, 127, 0]
    assert converted("cvt.rn.f32.u8", "f32", "u8", [255, 1]).tolist() == [255, 1]
    assert converted("cvt.rn.f64.s64", "f64", "s64", [(1 << 53) + 1]).tolist() == [float(1 << 53)]


@pytest.mark.parametrize("source", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
@pytest.mark.parametrize("to", ["s8", "u8", "s16", "u16", "s32", "u32", "s64", "u64"])
def test_integers_are_cut_extended_or_saturated(to: str, source: str) -> None:
    limits, own = np.iinfo(TYPES[to]), np.iinfo(TYPES[source])
    values = np.array([0, 1, own.min, own.max, own.max - 5, 100], TYPES[source])
    bits = int(to[1:])
    cut = [
        (each & (1 << bits) - 1) - (1 << bits if to[0] == "s" and each >> bits - 1 & 1 else 0)
        for each in values.tolist()
    ]
    assert converted(f"cvt.{to}.{source}", to, source, values).tolist() == cut
    sat = [min(max(each, limits.min), limits.max) for each in values.tolist()]
    assert converted(f"cvt.sat.{to}.{source}", to, source, values).tolist() == sat


def test_a_narrow_integer_fills_a_wide_register_with_its_sign() -> None:
    a = np.array([0x1FF, 0x7F, 0x80], np.uint32)
    assert apply("cvt.s8.s32 %d, %a;", np.uint32, a).tolist() == [0xFFFFFFFF, 0x7F, 0xFFFFFF80]
    assert apply("cvt.u8.u32 %d, %a;", np.uint32, a).tolist() == [0xFF, 0x7F, 0x80]
    assert apply("cvt.s32.s8 %d, %a;", np.uint32, a).tolist() == [0xFFFFFFFF, 0x7F, 0xFFFFFF80]


def test_saturation_and_relu_of_floats() -> None:
    values = [0.5, -0.5, 2.0, np.inf, -np.inf, np.nan, -0.0]
    found = converted("cvt.sat.f32.f32", "f32", "f32", values)
    assert found.tobytes() == np.array([0.5, 0, 1, 1, 0, 0, 0], np.float32).tobytes()
    assert converted("cvt.rn.relu.f16.f32", "f16", "f32", values[:5]).tolist() == [0.5, 0, 2, np.inf, 0]
    assert converted("cvt.rz.relu.bf16.f32", "bf16", "f32", [-1.0, 1.005]).astype(float).tolist() == [0, 1]
    for mode in ("rn", "rz"):
        found = converted(f"cvt.{mode}.satfinite.f16.f32", "f16", "f32", [1e6, -np.inf, np.nan])
        assert found[:2].tolist() == [65504, -65504] and np.isnan(found[2])


def test_subnormals_of_single_precision_are_flushed() -> None:
    tiny = [2.0**-140, -(2.0**-140)]
    assert converted("cvt.ftz.f64.f32", "f64", "f32", tiny).tolist() == [0, 0]
    assert converted("cvt.rpi.ftz.s32.f32", "s32", "f32", tiny).tolist() == [0, 0]
    assert converted("cvt.rn.ftz.f32.f64", "f32", "f64", tiny).tolist() == [0, 0]
    assert converted("cvt.rn.ftz.f16.f32", "f16", "f32", [2.0**-20]).tolist() == [2.0**-20]


@pytest.mark.parametrize(("mode", "wanted"), [("rn", "rn"), ("rz", "rz"), ("rna", "rna")])
def test_tf32_has_ten_bits(mode: str, wanted: str) -> None:
    values = np.array([1 + 2.0**-11, 1 + 3 * 2.0**-11, 1 + 2.0**-11 + 2.0**-20, -1 - 2.0**-11, 1 / 3, -0.0], np.float32)
    found = converted(f"cvt.{mode}.tf32.f32", "f32", "f32", values)
    for value, result in zip(values.tolist(), found.tolist()):
        scale = 2.0 ** (math.floor(math.log2(abs(value))) - 10) if value else 1.0
        ratio = Fraction(value) / Fraction(scale)
        whole = {
            "rz": math.trunc(ratio),
            "rn": round(ratio),
            "rna": int(math.copysign(math.floor(abs(ratio) + Fraction(1, 2)), ratio)),
        }
        assert result == whole[wanted] * scale
    assert converted("cvt.rn.satfinite.relu.tf32.f32", "f32", "f32", [-5.0, 3.4028234e38, np.inf]).view(
        np.uint32
    ).tolist() == [0, 0x7F7FE000, 0x7F7FE000]


# --- pairs


@pytest.mark.parametrize(("to", "kind"), [("f16x2", np.float16), ("bf16x2", ml_dtypes.bfloat16)])
@pytest.mark.parametrize("mode", ["rn", "rz"])
def test_a_pair_has_the_first_in_its_upper_half(to: str, kind: Any, mode: str) -> None:
    with np.errstate(over="ignore"):
        a, b = np.array(HARD, np.float32), np.array(HARD[::-1], np.float32)
    found = (
        apply(f"cvt.{mode}.{to}.f32 %d, %a, %b;", np.uint32, a.view(np.uint32), b.view(np.uint32))
        .view(kind)
        .astype(float)
    )
    wanted = [rounded(Fraction(float(each)), to[:-2], mode) if np.isfinite(each) else float(each) for each in [*b, *a]]
    assert [*found[0::2], *found[1::2]] == wanted


def test_pairs_with_relu_and_satfinite() -> None:
    a, b = np.array([1e6, -1.0, np.nan], np.float32), np.array([-1e6, np.inf, np.inf], np.float32)
    found = apply("cvt.rn.satfinite.f16x2.f32 %d, %a, %b;", np.uint32, a.view(np.uint32), b.view(np.uint32)).view(
        np.float16
    )
    np.testing.assert_array_equal(found, [-65504, 65504, 65504, -1, 65504, np.nan])
    found = apply("cvt.rn.relu.f16x2.f32 %d, %a, %b;", np.uint32, a.view(np.uint32), b.view(np.uint32)).view(np.float16)
    np.testing.assert_array_equal(found, [0, np.inf, np.inf, 0, np.inf, np.nan])


def values_of(exponent: int, mantissa: int, bias: int, codes: int) -> list[float]:
    """The magnitudes of a small format, by code."""
    table = []
    for code in range(codes):
        power, rest = code >> mantissa, code & (1 << mantissa) - 1
        table.append(math.ldexp(rest if power == 0 else rest + (1 << mantissa), max(power, 1) - bias - mantissa))
    return table


SMALL = {
    "e4m3x2": values_of(4, 3, 7, 127),
    "e5m2x2": values_of(5, 2, 15, 124),
    "e2m3x2": values_of(2, 3, 1, 32),
    "e3m2x2": values_of(3, 2, 3, 32),
    "e2m1x2": values_of(2, 1, 1, 8),
}
SIGN = {"e4m3x2": 7, "e5m2x2": 7, "e2m3x2": 5, "e3m2x2": 5, "e2m1x2": 3}


def code_of(value: float, to: str) -> int:
    """The nearest magnitude, ties to an even code, at most the largest; NaN is 0x7f or the largest."""
    table = SMALL[to]
    if math.isnan(value):
        return 0x7F if SIGN[to] == 7 else len(table) - 1
    size = min(abs(value), table[-1])
    code = min(range(len(table)), key=lambda each: (abs(table[each] - size), each & 1))
    return code | (math.copysign(1, value) < 0) << SIGN[to]


@pytest.mark.parametrize("to", SMALL)
def test_narrow_floats_from_pairs_of_32_bits_and_back(to: str) -> None:
    table = SMALL[to]
    values = [
        *table,
        *[(x + y) / 2 for x, y in itertools.pairwise(table)],
        *[(3 * x + y) / 4 for x, y in itertools.pairwise(table)],
        1e30,
    ]
    values += [-each for each in values] + [math.nan, math.inf]
    bits, kind = (4, np.uint8) if to == "e2m1x2" else (8, np.uint16)
    a, b = np.array(values, np.float32), np.array(values[::-1], np.float32)
    found = apply(f"cvt.rn.satfinite.{to}.f32 %d, %a, %b;", kind, a.view(np.uint32), b.view(np.uint32))
    wanted = [code_of(x, to) << bits | code_of(y, to) for x, y in zip(a.tolist(), b.tolist())]
    assert found.tolist() == wanted
    back = apply(f"cvt.rn.f16x2.{to} %d, %a;", np.uint32, found[: 2 * len(table)]).view(np.float16).astype(float)
    half = [[word >> shift & (1 << bits) - 1 for word in wanted[: 2 * len(table)]] for shift in (0, bits)]
    for place, codes in enumerate(half):
        mask = (1 << SIGN[to]) - 1
        for code, result in zip(codes, back[place::2]):
            if code & mask < len(table):
                assert result == table[code & mask] * (-1 if code >> SIGN[to] else 1)


def test_narrow_floats_from_pairs_of_halves_and_relu() -> None:
    pair = np.array([[1.0, -1.0], [0.3, 1000.0]], np.float16)
    found = apply("cvt.rn.satfinite.e4m3x2.f16x2 %d, %a;", np.uint16, pair.view(np.uint32).reshape(-1))
    assert found.tolist() == [
        code_of(-1.0, "e4m3x2") << 8 | code_of(1.0, "e4m3x2"),
        0x7E << 8 | code_of(float(pair[1, 0]), "e4m3x2"),
    ]
    found = apply("cvt.rn.satfinite.relu.e5m2x2.f16x2 %d, %a;", np.uint16, pair.view(np.uint32).reshape(-1))
    assert found.tolist()[0] == code_of(1.0, "e5m2x2")


@pytest.mark.parametrize("mode", ["rz", "rp"])
def test_powers_of_two(mode: str) -> None:
    values = [
        1.0,
        1.5,
        2.0,
        3.9,
        2.0**-127,
        2.0**-126 * 0.6,
        2.0**-149,
        0.0,
        3.4e38,
        2.0**127,
        -4.0,
        math.inf,
        math.nan,
    ]
    found = apply(
        f"cvt.{mode}.satfinite.ue8m0x2.f32 %d, %a, %a;", np.uint16, np.array(values, np.float32).view(np.uint32)
    )
    for value, word in zip(values, found.tolist()):
        size = abs(value)
        if math.isnan(value):
            wanted = 255
        elif size <= 2.0**-127:
            wanted = 0
        else:
            power = 128 if math.isinf(size) else math.frexp(size)[1] - 1
            wanted = min(power + 127 + (mode == "rp" and size not in (2.0**power, math.inf)), 254)
        assert (word & 255, word >> 8) == (wanted, wanted), value


def test_powers_of_two_back() -> None:
    found = apply("cvt.rn.bf16x2.ue8m0x2 %d, %a;", np.uint32, np.array([127 | 130 << 8], np.uint16)).view(
        ml_dtypes.bfloat16
    )
    assert found.astype(float).tolist() == [1.0, 8.0]


@pytest.mark.parametrize("to", ["u16", "s16", "u8", "s8", "u4", "s4", "u2", "s2"])
def test_integers_are_clipped_and_packed(to: str) -> None:
    bits, is_signed = int(to[1:]), to[0] == "s"
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed else (0, (1 << bits) - 1)
    a, b = (
        each.reshape(-1) for each in np.meshgrid(*[np.array([0, 1, -1, 5, -9, 300, -70000, 1 << 20], np.int32)] * 2)
    )
    c = np.full(a.size, 0x12345678, np.uint32)
    code = f"cvt.pack.sat.{to}.s32{'.b32' * (bits < 16)} %d, %a, %b{', %c' * (bits < 16)};"
    found = apply(code, np.uint32, a.view(np.uint32), b.view(np.uint32), c)
    for x, y, word in zip(a.tolist(), b.tolist(), found.tolist()):
        upper, lower = (min(max(each, low), high) & (1 << bits) - 1 for each in (x, y))
        rest = 0x12345678 << 2 * bits if bits < 16 else 0
        assert word == (rest | upper << bits | lower) & 0xFFFFFFFF


@pytest.mark.parametrize(("mode", "wanted"), [("rz", [0, 0]), ("rm", [0, -1024]), ("rp", [1024, 0])])
def test_long_integers_to_double_precision_in_a_direction(mode: str, wanted: list[int]) -> None:
    """Of 2^62 + 1 and its negative, the nearest doubles that are no larger, no smaller, or no further from zero."""
    given = np.array([(1 << 62) + 1, -(1 << 62) - 1], np.int64)
    found = apply(f"cvt.{mode}.f64.s64 %d, %a;", np.float64, given)
    assert found.tolist() == [float((1 << 62) + wanted[0]), float(-(1 << 62) + wanted[1])]


@pytest.mark.parametrize(
    "code",
    [
        "cvt.pack.sat.s3.s32 %d, %a, %a;",
        "cvt.rs.satfinite.e4m3x4.f32 %d, {%a, %a, %a, %a}, %a;",
    ],
)
def test_what_is_not_emulated_is_refused(code: str) -> None:
    with pytest.raises(UnsupportedError):
        apply(code, np.uint32, np.zeros(1, np.uint32))


@pytest.mark.parametrize(("to", "bits"), [("f16", 13), ("bf16", 16)])
def test_rounding_by_random_bits(to: str, bits: int) -> None:
    """Away from zero where the bits that the result lacks, and the random ones, have a carry."""
    random = np.random.default_rng(4)
    values = (random.normal(size=200) * 2.0 ** random.integers(-24, 14, 200)).astype(np.float32)
    values[:6] = [0.0, -0.0, 1.0, -65504.0, 2.0**-14, 3e38]
    chance = random.integers(0, 1 << 32, 200, dtype=np.uint32)
    found = apply(f"cvt.rs.{to}x2.f32 %d, %a, 0f3F800000, %b;", np.uint32, values, chance)
    kind: Any = np.float16 if to == "f16" else ml_dtypes.bfloat16
    assert (found & 0xFFFF == np.array([1], kind).view(np.uint16)[0]).all()
    for x, word, draw in zip(values, (found >> 16).astype(np.uint16).view(kind), chance.tolist()):
        low = rounded(Fraction(float(x)), to, "rz")
        high = rounded(Fraction(float(x)), to, "rm" if x < 0 else "rp")
        if low == high or not np.isfinite(high):
            continue
        part = (Fraction(float(x)) - Fraction(low)) / (Fraction(high) - Fraction(low))
        goes_up = part + Fraction(draw >> 16 & (1 << bits) - 1, 1 << bits) >= 1
        assert float(word) == (high if goes_up else low)
    largest = apply(
        f"cvt.rs.satfinite.{to}x2.f32 %d, %a, %a, %b;", np.uint32, np.float32([3.4e38]), np.uint32([~0 & 0xFFFFFFFF])
    )
    assert largest.view(kind).tolist() == [float(ml_dtypes.finfo(kind).max)] * 2


# --- mov


def test_vectors_of_registers_and_their_elements() -> None:
    found = apply(
        """.reg .v4 .b32 V, W; .reg .v2 .b32 P; mov.v4.b32 V, {%a, %b, 3, %a}; mov.v4.b32 W, V; mov.b64 %x, {W.x, W.y};
        mov.b64 P, %x; add.u32 %t, P.y, W.z; sub.u32 %d, %t, V.r;""",
        np.uint32,
        np.array([5, 7], np.uint32),
        np.array([100, 200], np.uint32),
    )
    assert found.tolist() == [98, 196]
    with pytest.raises(InputError, match="takes 2 registers, and 4 are given"):
        apply(".reg .v4 .b32 V; .reg .v2 .b32 P; mov.v2.b32 P, V;", np.uint32, np.zeros(1, np.uint32))


def test_a_vector_is_loaded_and_stored() -> None:
    given = np.arange(4, dtype=np.uint32)
    run(
        ".reg .v4 .u32 V; ld.global.v4.u32 V, [%x10]; add.u32 V.y, V.w, 10; st.global.v4.u32 [%x10], V;", given, block=1
    )
    assert given.tolist() == [0, 13, 2, 3]


def test_a_wide_register_and_its_parts() -> None:
    a = np.array([0x0123456789ABCDEF], np.uint64)
    assert apply("mov.b64 {%t, %u}, %a; mov.b64 %d, {%u, %t};", np.uint64, a).tolist() == [0x89ABCDEF01234567]
    assert apply(
        "{ .reg .b16 %k<4>; mov.b64 {%k0, %k1, %k2, %k3}, %a; mov.b64 %d, {%k3, %k2, %k1, %k0}; }", np.uint64, a
    ).tolist() == [0xCDEF89AB45670123]
    assert apply("mov.b64 {_, %d}, %a;", np.uint32, a).tolist() == [0x01234567]
    assert apply(
        "mov.b32 {%h, %g}, %d; mov.b32 %d, {%g, %h};".replace("%d;", "%a;", 1), np.uint32, a.astype(np.uint32)
    ).tolist() == [0xCDEF89AB]


def test_immediates_of_each_kind() -> None:
    a = np.zeros(1, np.uint32)
    assert apply("mov.f32 %d, 0f3F800000;", np.float32, a).tolist() == [1.0]
    assert apply("mov.f32 %d, 1.5;", np.float32, a).tolist() == [1.5]
    assert apply("mov.f64 %d, 0d3FF8000000000000;", np.float64, a).tolist() == [1.5]
    assert apply("mov.u32 %d, 0xFFFFFFFF;", np.uint32, a).tolist() == [0xFFFFFFFF]
    assert apply("mov.s32 %d, -5;", np.int32, a).tolist() == [-5]
    assert apply("mov.b64 %d, -1;", np.int64, a).tolist() == [-1]
    assert apply("mov.u32 %d, 017;", np.uint32, a).tolist() == [15]
    assert apply("mov.b32 %d, 4294967295U;", np.uint32, a).tolist() == [0xFFFFFFFF]


def test_special_registers() -> None:
    lane = np.arange(32)
    for name, wanted in {
        "%laneid": lane,
        "%tid.x": lane,
        "%tid.y": 0 * lane,
        "%ntid.x": 0 * lane + 32,
        "%lanemask_eq": 1 << lane,
        "%lanemask_lt": (1 << lane) - 1,
        "%lanemask_le": (2 << lane) - 1,
        "%lanemask_gt": 0xFFFFFFFF & ~((2 << lane) - 1),
        "%lanemask_ge": 0xFFFFFFFF & ~((1 << lane) - 1),
        "WARP_SZ": 0 * lane + 32,
        "%warpid": 0 * lane,
        "%nctaid.z": 0 * lane + 1,
    }.items():
        assert stored(f"mov.u32 %r0, {name};").tolist() == wanted.tolist(), name


def test_a_special_register_that_is_a_predicate() -> None:
    assert set(stored("mov.pred %p0, %is_explicit_cluster; selp.u32 %r0, 3, 4, %p0;").tolist()) == {3}


def test_sizes_of_shared_memory() -> None:
    """Static, dynamic, and reserved by the system."""
    body = ".shared .align 4 .b8 own[48]; mov.u32 %r1, %total_smem_size; mov.u32 %r2, %dynamic_smem_size;"
    more = "mov.u32 %r3, %aggr_smem_size; sub.u32 %r3, %r3, %r1; mad.lo.u32 %r0, %r1, 1000, %r2;"
    found = stored(f"{body} {more} mad.lo.u32 %r0, %r3, 1000000, %r0;", shared_bytes=16)
    assert set(found.tolist()) == {1024 * 1000000 + 64 * 1000 + 16}


def test_the_upper_halves_of_the_clocks() -> None:
    found = stored("mov.u32 %r0, %clock_hi; mov.u32 %r1, %globaltimer_hi; or.b32 %r0, %r0, %r1;")
    low = stored("mov.u32 %r0, %globaltimer_lo;")
    assert set(found.tolist()) == {0} and low[0] > 0


def test_thread_and_block_numbers_of_three_dimensions() -> None:
    found = stored(
        "mov.u32 %r1, %tid.y; mov.u32 %r2, %tid.z; mad.lo.s32 %r0, %r2, 100, %r1; mov.u32 %r39, %laneid;",
        block=(4, 4, 2),
    )
    assert found.tolist() == [100 * (t // 16) + t // 4 % 4 for t in range(32)]
    out = np.zeros((12, 1), np.uint32)
    run(
        """mov.u32 %r1, %ctaid.x; mov.u32 %r2, %ctaid.y; mov.u32 %r3, %ctaid.z; mad.lo.s32 %r4, %r3, 3, %r2;
        mad.lo.s32 %r4, %r4, 2, %r1; mul.wide.u32 %x1, %r4, 4; add.s64 %x1, %x1, %x10; mad.lo.s32 %r5, %r2, 10, %r1;
        mad.lo.s32 %r5, %r3, 100, %r5; st.global.u32 [%x1], %r5;""",
        out,
        grid=(2, 3, 2),
    )
    assert out[:, 0].tolist() == [100 * z + 10 * y + x for z in range(2) for y in range(3) for x in range(2)]


def test_selection_of_a_whole_and_of_part_of_a_warp() -> None:
    a, c = rows(np.array([5, 6], np.uint32), np.array([0, 1], np.uint32))
    assert apply("setp.ne.u32 %p, %b, 0; selp.b32 %d, %a, 9, %p;", np.uint32, a, c).tolist() == [9, 5, 9, 6]
    for chosen, wanted in ((1, 5), (0, 9)):
        code = f"setp.eq.u32 %p, {chosen}, 1; selp.b32 %d, 5, 9, %p;"
        assert apply(code, np.uint32, a).tolist() == [wanted] * 4
