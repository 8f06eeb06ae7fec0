"""Floating point: sums and products against fractions, rounded once (PTX ISA, "Floating Point Instructions")."""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ptx import FORMATS, apply, rounded, rows

from blackwell_matmul.base.errors import UnsupportedError

KINDS: dict[str, Any] = {"f16": np.float16, "bf16": ml_dtypes.bfloat16, "f32": np.float32, "f64": np.float64}
WORDS = {2: np.uint16, 4: np.uint32, 8: np.uint64}


def numbers(type: str) -> Any:
    """Finite values of a type: zeros, a subnormal, the ends, ties, and what needs more than one word to add exactly."""
    precision, lowest, highest = FORMATS[type]
    fine = 2.0 ** (1 - precision)
    values = [0.0, -0.0, 1.0, -1.0, 1 + fine, -(1 + fine), 1 - fine / 2, 3.0, fine / 2, fine / 4 * 1.5, 1 / 3, -1e4 / 3]
    values += [math.ldexp(1, lowest), math.ldexp(fine, lowest) * 3, math.ldexp(2 - fine, highest)]
    return np.array(values).astype(KINDS[type])


def bits(values: Any, type: str) -> Any:
    return np.ascontiguousarray(values).astype(KINDS[type]).view(WORDS[np.dtype(KINDS[type]).itemsize])


def check(code: str, oracle: Callable[..., float], type: str, *columns: Any) -> None:
    """Bit for bit, but for what NaN looks like."""
    given = rows(*columns)
    found = apply(code, WORDS[np.dtype(KINDS[type]).itemsize], *[bits(each, type) for each in given]).view(KINDS[type])
    for place, result in enumerate(found):
        values = [float(each[place]) for each in given]
        wanted = np.array(oracle(*values)).astype(KINDS[type])
        same = (np.isnan(wanted) and np.isnan(result)) or wanted.tobytes() == result.tobytes()
        assert same, (code, values, float(result), float(wanted))


def exactly(type: str, mode: str, function: Callable[..., Any], zero: Callable[..., float]) -> Callable[..., float]:
    """The function on fractions, rounded once; `zero`: in floats, for the sign of a zero."""

    def oracle(*values: float) -> float:
        exact = function(*map(Fraction, values))
        return rounded(exact, type, mode) or (math.copysign(0.0, exact) if exact else zero(*values))

    return oracle


SUMS: dict[str, Any] = {"add": lambda a, b: a + b, "sub": lambda a, b: a - b, "mul": lambda a, b: a * b}


@pytest.mark.parametrize("type", KINDS)
@pytest.mark.parametrize("name", SUMS)
def test_sums_and_products_round_to_the_nearest(name: str, type: str) -> None:
    for rounding in ("", ".rn"):
        check(
            f"{name}{rounding}.{type} %d, %a, %b;",
            exactly(type, "rn", SUMS[name], SUMS[name]),
            type,
            *[numbers(type)] * 2,
        )


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
@pytest.mark.parametrize("name", SUMS)
def test_directed_rounding(name: str, mode: str) -> None:
    values = numbers("f32")
    zero = SUMS[name]
    oracle = exactly("f32", mode, SUMS[name], zero)
    a, b = rows(values, values)
    found = apply(f"{name}.{mode}.f32 %d, %a, %b;", np.uint32, bits(a, "f32"), bits(b, "f32")).view(np.float32)
    wanted = [oracle(float(x), float(y)) for x, y in zip(a, b)]
    assert found.tolist() == wanted


@pytest.mark.parametrize("mode", ["rn", "rz", "rm", "rp"])
def test_quotients_roots_and_reciprocals(mode: str) -> None:
    few = np.array([1, 3, 7, 1e-3, 16777215, 2.0**-140, 3.1e38, -10], np.float32)
    check(f"div.{mode}.f32 %d, %a, %b;", lambda a, b: rounded(Fraction(a) / Fraction(b), "f32", mode), "f32", few, few)
    check(f"rcp.{mode}.f32 %d, %a;", lambda a: rounded(1 / Fraction(a), "f32", mode), "f32", few)

    def root(a: float) -> float:
        return rounded(Fraction(math.isqrt(int(Fraction(a) * 4**200)), 2**200), "f32", mode)

    check(f"sqrt.{mode}.f32 %d, %a;", root, "f32", few[:-1])


@pytest.mark.parametrize("type", KINDS)
def test_a_product_and_a_sum_are_rounded_once(type: str) -> None:
    fine = 2.0 ** (1 - FORMATS[type][0])
    values = np.array([1 + fine, 1 - fine, -(1 + fine), 3.0, 1 / 3, fine * fine / 2, -1.0, 0.0, fine**3])
    check(
        f"fma.rn.{type} %d, %a, %b, %c;",
        exactly(type, "rn", lambda a, b, c: a * b + c, lambda a, b, c: a * b + c),
        type,
        *[values.astype(KINDS[type])] * 3,
    )


def test_a_bfloat16_sum_just_beside_a_tie_is_not_rounded_twice() -> None:
    """The product of 1 + 1/16 with itself is a tie; what is added to it is lost in 32 bits."""
    oracle = lambda a, b, c: rounded(Fraction(a) * Fraction(b) + Fraction(c), "bf16")
    check(
        "fma.rn.bf16 %d, %a, %b, %c;", oracle, "bf16", *[np.array([1.0625])] * 2, np.array([2.0**-60, 0.0, -(2.0**-60)])
    )


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
def test_a_product_and_a_sum_with_directed_rounding(mode: str) -> None:
    values = np.array([1 + 2.0**-23, -(1 - 2.0**-24), 3.0, 2.0**-60, 1 / 3], np.float32)
    oracle = exactly("f32", mode, lambda a, b, c: a * b + c, lambda a, b, c: a * b + c)
    check(f"fma.{mode}.f32 %d, %a, %b, %c;", oracle, "f32", *[values] * 3)


SPECIAL = np.array([0.0, -0.0, 1.5, -2.0, np.inf, -np.inf, np.nan, 1e-40, -1e-40], np.float32)


@pytest.mark.parametrize("type", ["f16", "bf16", "f32", "f64"])
@pytest.mark.parametrize("low", [True, False])
@pytest.mark.parametrize("keeps", ["", ".NaN"])
def test_extremes_of_nan_and_of_zeros(type: str, low: bool, keeps: str) -> None:
    if keeps and type == "f64":
        pytest.skip("PTX has no .NaN for f64")

    def oracle(a: float, b: float) -> float:
        if a != a or b != b:
            return math.nan if keeps or (a != a and b != b) else b if a != a else a
        order = sorted([a, b], key=lambda each: (each, math.copysign(1, each)))
        return order[0] if low else order[1]

    check(f"{'min' if low else 'max'}{keeps}.{type} %d, %a, %b;", oracle, type, *[SPECIAL.astype(KINDS[type])] * 2)


def test_an_extreme_of_three() -> None:
    check("max.f32 %d, %a, %b, %c;", max, "f32", *[np.array([1.0, -2.0, 5.0], np.float32)] * 3)


@pytest.mark.parametrize("type", ["f16", "bf16", "f32", "f64"])
def test_signs(type: str) -> None:
    values = SPECIAL.astype(KINDS[type])
    check(f"neg.{type} %d, %a;", lambda a: -a, type, values)
    check(f"abs.{type} %d, %a;", abs, type, values)


def test_the_sign_of_the_first_goes_to_the_second() -> None:
    check("copysign.f32 %d, %a, %b;", lambda a, b: math.copysign(b, a), "f32", SPECIAL[:6], SPECIAL[:6])


def test_infinities_and_nan_in_sums() -> None:
    def oracle(a: float, b: float) -> float:
        return float(np.add(np.float32(a), np.float32(b)))

    with np.errstate(all="ignore"):
        check("add.f32 %d, %a, %b;", oracle, "f32", SPECIAL, SPECIAL)


@pytest.mark.parametrize(("type", "tiny"), [("f32", 2.0**-126), ("f16", 2.0**-14)])
def test_subnormals_are_flushed_before_and_after(type: str, tiny: float) -> None:
    def flush(a: float) -> float:
        return math.copysign(0.0, a) if abs(a) < tiny else a

    values = np.array([tiny, tiny / 2, -tiny / 2, -tiny * 1.5, 0.5, -0.0, 4.0]).astype(KINDS[type])
    check(f"add.ftz.{type} %d, %a, %b;", lambda a, b: flush(flush(a) + flush(b)), type, values, values)
    check(f"mul.ftz.{type} %d, %a, %b;", lambda a, b: flush(flush(a) * flush(b)), type, values, values)
    check(f"mul.{type} %d, %a, %b;", lambda a, b: a * b, type, values[:5], values[4:5])


@pytest.mark.parametrize("type", ["f32", "f16"])
def test_saturation_is_between_zero_and_one_and_nan_is_zero(type: str) -> None:
    def oracle(a: float, b: float) -> float:
        total = a + b
        return 0.0 if total != total or total <= 0 else min(total, 1.0)

    check(f"add.sat.{type} %d, %a, %b;", oracle, type, *[np.array([0, -0.0, 0.25, -0.5, 3, np.inf, np.nan])] * 2)


def test_relu_wherever_it_stands() -> None:
    values = np.array([1.0, -1.0, 0.0, np.nan])
    for words in ("rn.relu", "rn.ftz.relu"):
        check(
            f"fma.{words}.f16 %d, %a, %b, %b;",
            lambda a, b: math.nan if a != a else max(a * b + b, 0.0),
            "f16",
            values,
            np.array([2.0]),
        )


@pytest.mark.parametrize(("type", "part"), [("f16x2", "f16"), ("bf16x2", "bf16"), ("f32x2", "f32")])
def test_pairs_are_two(type: str, part: str) -> None:
    kind = KINDS[part]
    a, b, c = np.random.default_rng(1).normal(size=(3, 64)).astype(kind)
    word = np.uint64 if part == "f32" else np.uint32
    with np.errstate(all="ignore"):
        for name, wanted in {"add.rn": a + b, "mul.rn": a * b}.items():
            found = apply(f"{name}.{type} %d, %a, %b;", word, a.view(word), b.view(word)).view(kind)
            assert found.tobytes() == wanted.astype(kind).tobytes()
    found = apply(f"fma.rn.{type} %d, %a, %b, %c;", word, a.view(word), b.view(word), c.view(word)).view(kind)
    one = apply(f"fma.rn.{part} %d, %a, %b, %c;", *[WORDS[a.itemsize]] * 1, *[bits(each, part) for each in (a, b, c)])
    assert found.tobytes() == one.tobytes()


APPROXIMATE: dict[str, tuple[Callable[[float], float], float]] = {
    "ex2.approx.f32": (lambda a: 2.0**a, 2.0**-22),
    "lg2.approx.f32": (lambda a: math.log2(a), 2.0**-22),
    "rsqrt.approx.f32": (lambda a: a**-0.5, 2.0**-22),
    "rcp.approx.ftz.f32": (lambda a: 1 / a, 2.0**-22),
    "sqrt.approx.f32": (lambda a: a**0.5, 2.0**-22),
    "sin.approx.f32": (math.sin, 2.0**-20),
    "cos.approx.f32": (math.cos, 2.0**-20),
    "tanh.approx.f32": (math.tanh, 2.0**-10),
}


@pytest.mark.parametrize("name", APPROXIMATE)
def test_approximations_are_near(name: str) -> None:
    """The bounds are PTX's own."""
    function, bound = APPROXIMATE[name]
    values = np.array([0.1, 0.5, 1.0, 1.5, 2.0, 3.0], np.float32)
    found = apply(f"{name} %d, %a;", np.float32, values)
    for a, result in zip(values.tolist(), found.tolist()):
        assert abs(result - function(a)) <= bound * max(1.0, abs(function(a)))


def test_approximations_at_the_ends() -> None:
    ends = np.array([0.0, -0.0, np.inf, -np.inf, np.nan], np.float32)
    wanted = {
        "ex2.approx.ftz.f32": [1, 1, np.inf, 0, np.nan],
        "lg2.approx.f32": [-np.inf, -np.inf, np.inf, np.nan, np.nan],
        "rsqrt.approx.f32": [np.inf, -np.inf, 0, np.nan, np.nan],
        "rcp.rn.f32": [np.inf, -np.inf, 0, -0.0, np.nan],
    }
    for name, values in wanted.items():
        np.testing.assert_array_equal(apply(f"{name} %d, %a;", np.float32, ends), np.array(values, np.float32))


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("finite", [1, 1, 1, 1, 0, 0, 0, 1, 1]),
        ("infinite", [0, 0, 0, 0, 1, 1, 0, 0, 0]),
        ("number", [1, 1, 1, 1, 1, 1, 0, 1, 1]),
        ("notanumber", [0, 0, 0, 0, 0, 0, 1, 0, 0]),
        ("normal", [0, 0, 1, 1, 0, 0, 0, 0, 0]),
        ("subnormal", [0, 0, 0, 0, 0, 0, 0, 1, 1]),
    ],
)
def test_tests_of_a_property(name: str, wanted: list[int]) -> None:
    assert apply(f"testp.{name}.f32 %p, %a; selp.u32 %d, 1, 0, %p;", np.uint32, SPECIAL).tolist() == wanted


DOUBLE: dict[str, tuple[int, Callable[..., Any]]] = {
    "add": (2, lambda a, b: a + b),
    "sub": (2, lambda a, b: a - b),
    "mul": (2, lambda a, b: a * b),
    "fma": (3, lambda a, b, c: a * b + c),
}


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
@pytest.mark.parametrize("name", DOUBLE)
def test_directed_rounding_in_double_precision(name: str, mode: str) -> None:
    count, function = DOUBLE[name]
    values = numbers("f64") if count == 2 else numbers("f64")[[0, 1, 2, 3, 4, 8, 10, 11, 12, 14]]

    def zero(*given: float) -> float:
        """A sum of terms with different signs is -0 when rounded down."""
        terms = {"add": given, "sub": (given[0], -given[-1]), "fma": (given[0] * given[1], given[-1])}.get(name)
        if terms is None:
            return given[0] * given[1]
        signs = {math.copysign(1, term) for term in terms}
        return math.copysign(0.0, signs.pop() if len(signs) == 1 else -1 if mode == "rm" else 1)

    letters = ", ".join(f"%{letter}" for letter in "abc"[:count])
    check(f"{name}.{mode}.f64 %d, {letters};", exactly("f64", mode, function, zero), "f64", *[values] * count)


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
def test_directed_quotients_and_roots_in_double_precision(mode: str) -> None:
    values = numbers("f64")
    divisors, roots = values[values != 0], values[values > 0]
    quotient = exactly("f64", mode, lambda a, b: a / b, lambda a, b: a / b)
    check(f"div.{mode}.f64 %d, %a, %b;", quotient, "f64", values, divisors)
    check(f"rcp.{mode}.f64 %d, %a;", exactly("f64", mode, lambda a: 1 / a, lambda a: 0.0), "f64", divisors)
    found = apply(f"sqrt.{mode}.f64 %d, %a;", np.float64, roots)
    for value, root in zip(roots.tolist(), found.tolist()):
        low, high = (Fraction(math.nextafter(root, end)) ** 2 for end in (0.0, math.inf))
        exact, square = Fraction(value), Fraction(root) ** 2
        assert (low < exact <= square) if mode == "rp" else (square <= exact < high), value
    assert apply(f"sqrt.{mode}.f64 %d, %a;", np.float64, np.array([0.0, math.inf])).tolist() == [0.0, math.inf]


@pytest.mark.parametrize("mode", ["rz", "rm", "rp"])
def test_mixed_precision_rounds_in_a_direction(mode: str) -> None:
    halves, words = np.array([1.0, -0.333, 6e-8, 1000.0], np.float16), numbers("f32")
    a, b = rows(halves, words)
    for name, function in (("add", lambda x, y: x + y), ("fma", lambda x, y: x * x + y)):
        operands = "%a, %b" if name == "add" else "%a, %a, %b"
        found = apply(f"{name}.{mode}.f32.f16 %d, {operands};", np.float32, a.view(np.uint16), b.view(np.uint32))
        for x, y, result in zip(a.tolist(), b.tolist(), found.tolist()):
            assert result == rounded(function(Fraction(x), Fraction(y)), "f32", mode), (name, x, y)


def test_coarse_reciprocals_in_double_precision_have_an_upper_word_alone() -> None:
    values = np.array([3.0, -0.7, 1e300, 5e-324])
    upper = lambda each: (each.view(np.uint64) >> np.uint64(32) << np.uint64(32)).view(np.float64)
    found = apply("rcp.approx.ftz.f64 %d, %a;", np.float64, values)
    assert found.tolist() == [*upper(1 / upper(values[:3])).tolist(), math.inf]
    assert apply("rsqrt.approx.f64 %d, %a;", np.float64, np.array([3.0])).tolist() == [1 / math.sqrt(3.0)]
    root = apply("rsqrt.approx.ftz.f64 %d, %a;", np.float64, np.array([3.0]))
    assert root.tolist() == upper(1 / np.sqrt(upper(np.array([3.0])))).tolist()


def test_extremes_of_magnitudes_with_the_product_of_the_signs() -> None:
    a, b = rows(*[np.array([1.0, -2.0, 3.0, -0.5], np.float32)] * 2)
    for name, pick in (("min", np.minimum), ("max", np.maximum)):
        found = apply(f"{name}.xorsign.abs.f32 %d, %a, %b;", np.float32, a, b)
        assert found.tolist() == (pick(abs(a), abs(b)) * np.sign(a) * np.sign(b)).tolist()
    assert apply("max.abs.f32 %d, %a, %b, 0f40000000;", np.float32, a, b).tolist() == [
        max(abs(x), abs(y), 2.0) for x, y in zip(a.tolist(), b.tolist())
    ]


@pytest.mark.parametrize(
    "code",
    [
        "fma.rn.oob.f16 %h, %h, %h, %h;",
        "testp.odd.f32 %p, %a;",
    ],
)
def test_what_is_not_emulated_is_refused(code: str) -> None:
    with pytest.raises(UnsupportedError, match="not emulated"):
        apply(code, np.float32, np.zeros(1, np.float32))
