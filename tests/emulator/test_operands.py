"""Matrices in shared memory where descriptors say, each element by itself (PTX ISA, "Canonical Layouts")."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from blackwell_matmul.emulator.operands import descriptor, elements, matrix, product
from blackwell_matmul.emulator.spaces import Memory, Undefined

CODES = {True: {0: 0, 32: 6, 64: 4, 128: 2}, False: {0: 0, 32: 3, 64: 2, 128: 1}}


def bits(start: int, leading: int, stride: int, swizzle: int, blackwell: bool) -> int:
    word = start >> 4 | leading >> 4 << 16 | stride >> 4 << 32
    return word | 1 << 46 | CODES[True][swizzle] << 61 if blackwell else word | CODES[False][swizzle] << 62


def filled() -> Memory:
    data = np.random.default_rng(0).integers(0, 256, 1 << 16, dtype=np.uint8)
    return Memory("shared", 0, data)


def swizzle(address: int, span: int) -> int:
    return address ^ (address >> 7 & max(span // 16 - 1, 0)) << 4


@pytest.mark.parametrize("blackwell", [True, False])
@pytest.mark.parametrize("span", [0, 32, 64, 128])
def test_k_major(span: int, blackwell: bool) -> None:
    """Groups of 8 rows by the stride;
    in a row 16 bytes follow one another, or by the leading offset without swizzle."""
    memory, start, leading, stride = filled(), 2048, 1024, 2048
    found = matrix(memory, descriptor(bits(start, leading, stride, span, blackwell), blackwell), 32, 16, "f16", True)
    values = memory.data.view(np.float16)
    for row in range(32):
        for k in range(16):
            place = row // 8 * stride + row % 8 * (span or 16) + (k // 8 * (16 if span else leading)) + k % 8 * 2
            assert found[row, k].tobytes() == np.float32(values[swizzle(start + place, span) // 2]).tobytes()


@pytest.mark.parametrize("span", [32, 64, 128])
def test_mn_major_with_a_swizzle(span: int) -> None:
    """Rows of k, a span long; further spans by the leading offset, further groups of 8 k by the stride."""
    memory, start, leading, stride = filled(), 1024, 4096, 8 * span
    found = matrix(memory, descriptor(bits(start, leading, stride, span, True), True), 128, 16, "bf16", False)
    values = memory.data.view(ml_dtypes.bfloat16)
    for row in range(128):
        for k in range(16):
            place = row // (span // 2) * leading + k // 8 * stride + k % 8 * span + row % (span // 2) * 2
            assert found[row, k].tobytes() == np.float32(values[swizzle(start + place, span) // 2]).tobytes()


def test_the_start_of_a_swizzled_operand_may_lie_within_a_row() -> None:
    memory = filled()
    whole = matrix(memory, descriptor(bits(1024, 16, 1024, 128, True), True), 8, 64, "f16", True)
    part = matrix(memory, descriptor(bits(1024 + 32, 16, 1024, 128, True), True), 8, 16, "f16", True)
    assert part.tobytes() == np.ascontiguousarray(whole[:, 16:32]).tobytes()


@pytest.mark.parametrize(
    ("word", "blackwell", "text"),
    [
        (bits(0, 16, 16, 128, True) ^ 1 << 46, True, "has 0 in bits 46 to 48, where 1 must be"),
        (bits(0, 16, 16, 128, True) ^ 1 << 47, True, "has 3 in bits 46 to 48"),
        (bits(0, 16, 16, 0, True) | 1 << 61, True, "has swizzle mode 1, which is not emulated"),
        (bits(0, 16, 16, 0, True) | 7 << 61, True, "swizzle mode 7"),
        (bits(0, 16, 16, 128, True) | 1 << 49, True, "base offset"),
        (bits(0, 16, 16, 128, False) | 2 << 49, False, "base offset"),
        (bits(0, 16, 16, 64, True) | 1 << 52, True, "has bit 52 set, and 128-byte swizzle alone has that"),
    ],
)
def test_descriptors_that_stop(word: int, blackwell: bool, text: str) -> None:
    with pytest.raises(Undefined, match=text):
        descriptor(word, blackwell)


def test_reads_outside_and_of_what_nothing_has_written() -> None:
    found = descriptor(bits((1 << 16) - 256, 16, 1024, 128, True), True)
    with pytest.raises(Undefined, match=r"a matrix reads up to byte .* of shared, which has 65,536"):
        matrix(filled(), found, 16, 16, "f16", True)
    memory = Memory("shared", 0, np.zeros(4096, np.uint8), tracked=True)
    memory.mark(0, 1000)
    with pytest.raises(Undefined, match=r"a matrix reads 24 bytes of shared that nothing has written"):
        matrix(memory, descriptor(bits(0, 16, 1024, 128, True), True), 8, 64, "f16", True)


@pytest.mark.parametrize(("format", "kind"), [("e4m3", ml_dtypes.float8_e4m3fn), ("e5m2", ml_dtypes.float8_e5m2)])
def test_bytes_as_floats(format: str, kind: Any) -> None:
    raw = np.arange(256, dtype=np.uint8)
    np.testing.assert_array_equal(elements(raw, format), raw.view(kind).astype(np.float32))


E2M1 = [0, 0.5, 1, 1.5, 2, 3, 4, 6]


def test_small_floats_packed_and_padded() -> None:
    packed = np.array([[0x10, 0x32, 0x54, 0x76, 0x98, 0xBA, 0xDC, 0xFE] * 2], np.uint8)
    wanted = E2M1 + [-each for each in E2M1]
    assert elements(packed, "packed e2m1")[0].tolist() == wanted * 2
    assert elements(packed, "e2m1")[0].tolist() == wanted
    six = np.zeros((1, 16), np.uint8)
    codes = [1, 2, 33, 31] * 4
    six[0, :12] = list(
        b"".join(
            sum(code << 6 * i for i, code in enumerate(codes[j : j + 4])).to_bytes(3, "little") for j in range(0, 16, 4)
        )
    )
    assert elements(six, "e2m3")[0].tolist() == [0.125, 0.25, -0.125, 7.5] * 4
    assert elements(six, "e3m2")[0].tolist() == [0.0625, 0.125, -0.0625, 28.0] * 4


def test_tf32_has_no_low_bits_and_integers_have_signs() -> None:
    assert elements(np.array([[0x3F801FFF]], np.uint32).view(np.uint8), "tf32").tolist() == [[1.0]]
    raw = np.array([0x80, 0x7F, 0xFF], np.uint8)
    assert elements(raw, "s8").tolist() == [-128, 127, -1] and elements(raw, "u8").tolist() == [128, 127, 255]


def test_products() -> None:
    a, b = np.random.default_rng(2).integers(-128, 128, (2, 8, 64)).astype(np.int32)
    assert product(a, b).tolist() == (a.astype(np.int64) @ b.T.astype(np.int64)).tolist()
    assert product(a.astype(np.float32), b.astype(np.float32)).tolist() == product(a, b).tolist()
