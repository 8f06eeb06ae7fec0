"""Sums of one instruction, by hand and in both witnesses: cut behind the largest exponent, and cut to float32."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from blackwell_matmul.emulator.instructions.matrices.block_sums import ScaledOperand, block_sum
from blackwell_matmul.simulator import scaled_values

ROWS = 128


def emulated(a: Any, b: Any, scale_a: Any, scale_b: Any, d: Any, kind: str) -> Any:
    element, scale = {"mxfp8": ("e4m3", "ue8m0"), "mxfp4": ("packed e2m1", "ue8m0"), "nvfp4": ("packed e2m1", "ue4m3")}[
        kind
    ]
    return block_sum(ScaledOperand(a, scale_a, element, scale), ScaledOperand(b, scale_b, element, scale), d)


def simulated(a: Any, b: Any, scale_a: Any, scale_b: Any, d: Any, kind: str) -> Any:
    block, step = {"mxfp8": (32, 32), "mxfp4": (32, 64), "nvfp4": (16, 64)}[kind]
    normal = -6 if kind == "mxfp8" else 0
    operands = [
        scaled_values.ScaledRows(values, in_lanes(scales, kind), normal)
        for values, scales in ((a, scale_a), (b, scale_b))
    ]
    return scaled_values.multiply_add(d, *operands, block, step)


def in_lanes(scales: Any, kind: str) -> scaled_values.Scales:
    """Return scales of rows x blocks, up to 4, in the cells of an atom."""
    type = ml_dtypes.float8_e4m3fn if kind == "nvfp4" else ml_dtypes.float8_e8m0fnu
    atom = np.zeros((ROWS, 4), np.uint8)
    atom[: len(scales), : scales.shape[1]] = scales.astype(type).view(np.uint8)
    cells = np.tile(atom.reshape(4, 32, 4).transpose(1, 0, 2).reshape(32, 16), (4, 1))
    return scaled_values.Scales(cells.view(type) if kind == "nvfp4" else cells, 1)


def one(kind: str, terms: list[tuple[float, float]], d: float, scales: tuple[float, float] = (1.0, 1.0)) -> list[float]:
    """Return D plus a few products in both witnesses; all other elements are zero."""
    step, blocks = (32, 1) if kind == "mxfp8" else (64, 2 if kind == "mxfp4" else 4)
    a, b = np.zeros((1, step)), np.zeros((1, step))
    for place, (left, right) in enumerate(terms):
        a[0, place * step // 4], b[0, place * step // 4] = left, right
    factors = [np.full((1, blocks), each) for each in scales]
    old = np.full((1, 1), d, np.float32)
    return [float(how(a, b, *factors, old, kind)[0, 0]) for how in (simulated, emulated)]


@pytest.mark.parametrize(
    ("kind", "terms", "d", "scales", "wanted"),
    [
        # 25 bits behind 2 ** 16: a unit of 2 ** -9, in which 2 ** -10 is lost, of either sign.
        ("mxfp8", [(256.0, 256.0), (2.0**-5, 2.0**-5)], -65536.0, (1, 1), 0.0),
        ("mxfp8", [(256.0, 256.0), (-(2.0**-5), 2.0**-5)], -65536.0, (1, 1), 0.0),
        ("mxfp8", [(256.0, 256.0), (2.0**-4, 2.0**-5)], -65536.0, (1, 1), 2.0**-9),
        # The exponent of a product is the sum of those of its factors: 1.5 * 1.5 has that of 1.
        ("mxfp8", [(1.5, 1.5), (2.0**-9, 2.0**-9)], -2.25, (1, 1), 2.0**-18),
        # D is one of the terms.
        ("mxfp8", [(2.0**-6, 2.0**-6)], 2.0**13, (1, 1), 2.0**13),
        ("mxfp8", [(-(2.0**-6), 2.0**-5)], 2.0**13, (1, 1), 2.0**13 - 2.0**-11),
        # The scales count: with them the second product is beyond the 25 bits no more than before.
        ("mxfp8", [(256.0, 256.0), (2.0**-5, 2.0**-5)], 0.0, (2.0**-100, 2.0**20), 2.0**-64),
        # A sum of more than 24 bits is cut, not rounded.
        ("mxfp8", [(1.75, 2.0**-9)], 2.0**15, (1, 1), 2.0**15),
        ("mxfp8", [(448.0, 1.0), (1.75, 2.0**-6)], 2.0**15, (1, 1), 2.0**15 + 448.0 + 7 * 2.0**-8),
        # 35 bits of fp4 kinds: nothing of 4 groups is lost beside a D of 2 ** 30, and the sum is cut to 24 bits.
        ("mxfp4", [(0.5, 0.5), (6.0, 6.0)], -(2.0**30), (1, 1), -(2.0**30) + 64),
        ("nvfp4", [(6.0, 6.0), (-0.5, 0.5)], 0.0, (448.0, 2.0**-9), 35.75 * 448 * 2.0**-9),
        ("nvfp4", [(0.5, 0.5)], 2.0**33, (1, 1), 2.0**33),
    ],
)
def test_by_hand(
    kind: str, terms: list[tuple[float, float]], d: float, scales: tuple[float, float], wanted: float
) -> None:
    assert one(kind, terms, d, scales) == [wanted, wanted]


@pytest.mark.parametrize("kind", ["mxfp8", "mxfp4", "nvfp4"])
@pytest.mark.parametrize("spread", [0, 12])
def test_both_witnesses_agree_bit_for_bit(kind: str, spread: int) -> None:
    """spread: of the exponents of scales and of D."""
    random = np.random.default_rng(spread)
    step, blocks = (32, 1) if kind == "mxfp8" else (64, 2 if kind == "mxfp4" else 4)
    type = ml_dtypes.float8_e4m3fn if kind == "mxfp8" else ml_dtypes.float4_e2m1fn
    a, b = (random.normal(0, 2, (rows, step)).astype(type).astype(np.float64) for rows in (48, 40))
    high = min(spread, 8) if kind == "nvfp4" else spread
    factors = [np.ldexp(1.0, random.integers(-high, high + 1, (rows, blocks))) for rows in (48, 40)]
    d = np.ldexp(random.normal(size=(48, 40)), random.integers(-spread, spread + 1, (48, 40))).astype(np.float32)
    first, second = (how(a, b, *factors, d, kind) for how in (simulated, emulated))
    assert first.dtype == second.dtype == np.float32 and (first == second).all()
    wide = [each * np.repeat(factor, step // blocks, axis=1) for each, factor in zip((a, b), factors, strict=True)]
    exact = wide[0] @ wide[1].T + d
    size = np.abs(wide[0]) @ np.abs(wide[1]).T + np.abs(d)
    assert (np.abs(first - exact) <= 2.0**-19 * size).all() and (first != exact.astype(np.float32)).any()


@pytest.mark.parametrize("kind", ["mxfp8", "mxfp4"])
def test_nan_infinity_and_overflow(kind: str) -> None:
    assert np.isnan(one(kind, [(1.0, 1.0)], 0.0, (float("nan"), 1.0))).all()
    assert np.isnan(one(kind, [(1.0, 1.0)], float("nan"))).all()
    assert one(kind, [(1.0, 1.0)], float("inf")) == [np.inf, np.inf]
    assert one(kind, [(2.0, 1.0)], 0.0, (2.0**127, 1.0)) == [np.inf, np.inf]
    assert one(kind, [(1.0, 1.0)], 0.0, (2.0**-127, 2.0**-22)) == [2.0**-149, 2.0**-149]
    assert one(kind, [(1.0, 1.0)], 0.0, (2.0**-127, 2.0**-60)) == [0.0, 0.0]
