"""Vectors of small types are cast as their formats say: every code, at every place of a thread's vector."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from emitted_casts import Cells, emitter_on_numbers
from tilus.backends.emitters import cast as emitters
from tilus.hidet.ir import dtypes

from blackwell_matmul.frontend.faults.tilus_compat import exact_casts

UNROLLED = [("cast_ux_to_f16", f"uint{bits}b", size) for bits in (1, 2, 3, 5, 6, 7) for size in (2, 8, 16)]
CASTS = [
    *UNROLLED,
    *(("cast_f6e3m2_to_bf16", "float6_e3m2", size) for size in (4, 8, 16)),
    ("cast_u4_to_f16", "uint4b", 8),
    ("cast_i4_to_f16", "int4b", 8),
    ("cast_u8_to_f16", "uint8", 4),
    ("cast_i8_to_f16", "int8", 4),
]
NAN = 0x7F
"""Of float8_e4m3; with the sign, 0xFF."""


def numbers(kind: Any) -> np.ndarray:
    """What each code of a type stands for."""
    codes = np.arange(1 << kind.nbits)
    if kind.name.startswith("float6"):
        exponent, mantissa = codes >> 2 & 7, codes & 3
        values = np.where(exponent > 0, 4 + mantissa, mantissa) * 2.0 ** (np.maximum(exponent, 1) - 5)
        return np.where(codes & 32, -values, values)
    if kind.name.startswith("float8"):
        return codes.astype(np.uint8).view(ml_dtypes.float8_e4m3fn).astype(np.float64)
    return np.where(codes >= 1 << kind.nbits - 1, codes - (1 << kind.nbits), codes) if kind.name[0] == "i" else codes


def packed(codes: np.ndarray, bits: int) -> np.ndarray:
    """Elements one after the other, the first in the lowest bits, in whole words."""
    number = sum(int(code) << bits * place for place, code in enumerate(codes))
    return np.frombuffer(number.to_bytes((len(codes) * bits + 31) // 32 * 4, "little"), np.uint8).copy()


def wrong(monkeypatch: pytest.MonkeyPatch, method: str, name: str, size: int) -> tuple[set[int], bool]:
    """The places at which some code is cast wrongly, and whether the source stays as it was."""
    kind, values = getattr(dtypes, name), numbers(getattr(dtypes, name))
    bad, kept = set[int](), True
    with monkeypatch.context() as patched:
        emitter = emitter_on_numbers(patched, size)
        out = np.float16 if method.endswith("_f16") else ml_dtypes.bfloat16
        for first in range(1 << kind.nbits):
            codes = (first + 11 * np.arange(size)) % (1 << kind.nbits)
            source, target = packed(codes, kind.nbits), np.zeros(size, out)
            before = source.copy()
            getattr(emitter, method)(Cells(source, kind), Cells(target, dtypes.float16))
            same = np.array_equal(target.astype(np.float64), values[codes], equal_nan=True)
            bad |= set() if same else set(np.flatnonzero(target.astype(np.float64) != values[codes]).tolist())
            kept &= np.array_equal(source, before)
    return bad, kept


@pytest.mark.parametrize(("method", "name", "size"), CASTS)
def test_every_code_at_every_place(monkeypatch: pytest.MonkeyPatch, method: str, name: str, size: int) -> None:
    with exact_casts():
        assert wrong(monkeypatch, method, name, size) == (set(), True)


def test_what_tilus_emits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Elements 5 and 6 of eight; the source of two casts; and nan of fp8."""
    assert wrong(monkeypatch, "cast_f6e3m2_to_bf16", "float6_e3m2", 8) == ({5, 6}, True)
    assert wrong(monkeypatch, "cast_i8_to_f16", "int8", 4) == (set(), False)
    assert wrong(monkeypatch, "cast_i4_to_f16", "int4b", 8) == (set(), False)


@pytest.mark.parametrize("method", ["cast_f8e4m3_to_f16", "cast_f8e4m3_to_bf16"])
def test_nan_of_fp8_is_cast_by_the_instruction(monkeypatch: pytest.MonkeyPatch, method: str) -> None:
    """tilus shifts bits, which is right for all codes but nan; `cast_generic` leaves it to the type of CUDA."""
    places, codes = wrong(monkeypatch, method, "float8_e4m3", 4)[0], wrong_codes(monkeypatch, method)
    assert places == {0, 1, 2, 3} and codes == {NAN, NAN | 128}
    emitter = emitters.NvgpuCastInstEmitter
    with exact_casts():
        assert getattr(emitter, method) is emitter.cast_generic
    assert getattr(emitter, method) is not emitter.cast_generic


def wrong_codes(monkeypatch: pytest.MonkeyPatch, method: str) -> set[int]:
    """The codes of float8_e4m3 whose cast, in the first place, is wrong."""
    values, found = numbers(dtypes.float8_e4m3), set()
    out = np.float16 if method.endswith("_f16") else ml_dtypes.bfloat16
    with monkeypatch.context() as patched:
        emitter = emitter_on_numbers(patched, 4)
        for code in range(256):
            target = np.zeros(4, out)
            source = Cells(packed(np.array([code, 0, 0, 0]), 8), dtypes.float8_e4m3)
            getattr(emitter, method)(source, Cells(target, dtypes.float16))
            if not np.array_equal(target[:1].astype(np.float64), values[code : code + 1], equal_nan=True):
                found.add(code)
    return found
