"""Element types: images, bits and conversions, over every value that they have."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.simulator.types import convert, element_by_name, from_bits, from_image, to_bits, to_image, wrap

NARROW = {
    "float7_e5m1": (5, 1), "float7_e4m2": (4, 2), "float7_e3m3": (3, 3), "float7_e2m4": (2, 4), "float6_e4m1": (4, 1),
    "float6_e3m2": (3, 2), "float6_e2m3": (2, 3), "float5_e3m1": (3, 1), "float5_e2m2": (2, 2), "float4_e2m1": (2, 1),
    "float3_e1m1": (1, 1),
}  # fmt: skip
BITS = {"float32": 32, "float16": 16, "bfloat16": 16, "float8_e4m3": 8, "float8_e5m2": 8, "int32": 32, "int8": 8}


def item(name: str):
    return element_by_name(name, NARROW.get(name, (0, 0))[0] + NARROW[name][1] + 1 if name in NARROW else BITS[name])


def value_of(code: int, exponent: int, mantissa: int) -> float:
    """A number of `exponent` and `mantissa` bits, by the definition of a floating-point format."""
    sign = -1.0 if code >> (exponent + mantissa) else 1.0
    field, digits = code >> mantissa & ((1 << exponent) - 1), code & ((1 << mantissa) - 1)
    bias = (1 << (exponent - 1)) - 1
    if field == 0:
        return sign * digits * 2.0 ** (1 - bias - mantissa)
    return sign * (1 + digits / (1 << mantissa)) * 2.0 ** (field - bias)


@pytest.mark.parametrize("name", NARROW)
def test_every_code_of_a_narrow_float(name: str) -> None:
    exponent, mantissa = NARROW[name]
    kind = item(name)
    codes = np.arange(1 << kind.nbits, dtype=np.uint8)
    bits = (codes[:, None] >> np.arange(kind.nbits) & 1).astype(np.uint8)
    values = from_bits(bits, kind)[:, 0]
    assert values.astype(np.float64).tolist() == [value_of(int(c), exponent, mantissa) for c in codes]
    np.testing.assert_array_equal(to_bits(values[:, None], kind), bits)


@pytest.mark.parametrize("name", NARROW)
def test_rounding_to_a_narrow_float(name: str) -> None:
    """To the nearest, ties to even, for normal numbers; beyond the largest, the largest."""
    exponent, mantissa = NARROW[name]
    kind, half = item(name), 1 << (exponent + mantissa)
    values = np.array([value_of(c, exponent, mantissa) for c in range(half)])
    normal = values[1 << mantissa :]
    tried = np.concatenate([normal, (normal[1:] + normal[:-1]) / 2, normal[:-1] * 0.7 + normal[1:] * 0.3])
    got = convert(tried.astype(np.float32), item("float32"), kind).astype(np.float64)
    gaps = np.abs(values[None, :] - tried.astype(np.float32).astype(np.float64)[:, None])
    best = [min((g, c & 1, c) for c, g in enumerate(row))[2] for row in gaps]
    assert got.tolist() == values[best].tolist()
    huge = convert(np.array([3.4e38, -3.4e38], np.float32), item("float32"), kind).astype(np.float64)
    assert huge.tolist() == [values[-1], -values[-1]]


def test_below_the_normal_numbers_the_generated_code_cuts_off() -> None:
    """0.9 of the smallest subnormal of float4_e2m1 (0.5) is 0, and 0.99 is 0.5 only from 1 - 2**-2 of a normal on."""
    got = convert(np.array([0.3, 0.49, 0.5, 0.74, 0.99], np.float32), item("float32"), item("float4_e2m1"))
    assert got.astype(float).tolist() == [0, 0.5, 0.5, 0.5, 1.0]


@pytest.mark.parametrize("name", ["float16", "bfloat16", "float8_e4m3", "float8_e5m2"])
def test_images_are_exact(name: str) -> None:
    kind = item(name)
    raw = np.arange(1 << kind.nbits, dtype=np.uint16 if kind.nbits == 16 else np.uint8)
    values = raw.view(kind.dtype)
    back = from_image(to_image(values, kind), kind)
    number = ~np.isnan(values.astype(np.float32))
    np.testing.assert_array_equal(back[number].view(raw.dtype), raw[number])
    assert np.isnan(back[~number].astype(np.float32)).all()


@pytest.mark.parametrize(("name", "largest"), [("float8_e4m3", 448.0), ("float8_e5m2", 57344.0)])
def test_eight_bit_floats_saturate(name: str, largest: float) -> None:
    got = convert(np.array([1e9, -1e9, np.inf, np.nan, 1.0], np.float32), item("float32"), item(name)).astype(float)
    assert got[:3].tolist() == [largest, -largest, largest]
    assert np.isnan(got[3])
    assert got[4] == 1.0


@pytest.mark.parametrize("bits", range(1, 8))
@pytest.mark.parametrize("signed", [False, True])
def test_packed_integers(bits: int, signed: bool) -> None:
    kind = element_by_name(f"{'' if signed else 'u'}int{bits}b", bits)
    wide = np.arange(-200, 200)
    low = wide % (1 << bits)
    want = np.where(low >= 1 << (bits - 1), low - (1 << bits), low) if signed else low
    narrow = wrap(wide, kind)
    np.testing.assert_array_equal(narrow, want)
    stream = to_bits(narrow[None, :], kind)
    assert stream.shape == (1, 400 * bits)
    np.testing.assert_array_equal(from_bits(stream, kind), narrow[None, :])


def test_floats_to_integers() -> None:
    values = np.array([1.9, -1.9, 2.5, np.nan, np.inf, -np.inf, 3e9], np.float32)
    got = convert(values, item("float32"), item("int32"))
    top = 2**31 - 1
    assert got.tolist() == [1, -1, 2, 0, top, -top - 1, top]


def test_half_to_bfloat16_goes_through_exact_values() -> None:
    every = np.arange(1 << 16, dtype=np.uint16).view(np.float16)
    every = every[np.isfinite(every)]
    got = convert(every, item("float16"), item("bfloat16"))
    np.testing.assert_array_equal(got, every.astype(np.float32).astype(ml_dtypes.bfloat16))


def test_an_unknown_type_is_named() -> None:
    with pytest.raises(UnsupportedError, match="float9_e9m9"):
        element_by_name("float9_e9m9", 19)
