"""Matrices in registers: ldmatrix, stmatrix, mma.sync, wgmma (PTX ISA, "Matrix Fragments")."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ptx import run

from blackwell_matmul.base.errors import BlackwellMatmulError
from blackwell_matmul.emulator.emulation_listener import EmulationListener

LOAD_ALL = "".join(f"ld.global.b32 %r{i}, [%x1+{128 * i}];" for i in range(8))
PLACE = "mul.wide.u32 %x1, %r39, 4; add.s64 %x1, %x1, %x10; mul.wide.u32 %x2, %r39, 4; add.s64 %x2, %x2, %x11;"


@pytest.mark.parametrize("count", [1, 2, 4])
@pytest.mark.parametrize("trans", ["", ".trans"])
def test_matrices_of_8_by_8(count: int, trans: str) -> None:
    """Lane t gets row t / 4, elements 2 · (t % 4) and the next; stmatrix puts them back elsewhere."""
    data, out, back = np.arange(256, dtype=np.uint16), np.zeros((count, 32, 2), np.uint16), np.zeros(256, np.uint16)
    registers = ", ".join(f"%r{i}" for i in range(count))
    stores = "".join(f"st.global.b32 [%x2+{128 * i}], %r{i};" for i in range(count))
    run(
        PLACE
        + f"""
        .shared .align 16 .b8 box[1024]; mul.wide.u32 %x3, %r39, 16; add.s64 %x4, %x10, %x3; mov.u32 %r30, box;
        mad.lo.u32 %r31, %r39, 16, %r30;
        ld.global.v4.u32 {{%r1, %r2, %r3, %r4}}, [%x4]; st.shared.v4.u32 [%r31], {{%r1, %r2, %r3, %r4}}; bar.sync 0;
        ldmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 {{{registers}}}, [%r31]; {stores}
        stmatrix.sync.aligned.m8n8.x{count}{trans}.shared.b16 [%r31+512], {{{registers}}}; bar.sync 0;
        setp.ge.u32 %p0, %r39, {8 * count}; @%p0 exit;
        ld.shared.v4.u32 {{%r1, %r2, %r3, %r4}}, [%r31+512]; add.s64 %x5, %x12, %x3;
        st.global.v4.u32 [%x5], {{%r1, %r2, %r3, %r4}};""",
        data,
        out,
        back,
    )
    for index in range(count):
        matrix = data[64 * index :][:64].reshape(8, 8)
        matrix = matrix.T if trans else matrix
        assert out[index].tolist() == [[matrix[t // 4, t % 4 * 2], matrix[t // 4, t % 4 * 2 + 1]] for t in range(32)]
    assert back[: 64 * count].tolist() == data[: 64 * count].tolist()


@pytest.mark.parametrize("count", [1, 2, 4])
def test_columns_of_8_bits_are_stored_as_rows(count: int) -> None:
    """stmatrix of m16n8: lane t has rows t / 4 and t / 4 + 8 of columns 2 · (t % 4) and the next, as accumulators."""
    matrices = np.random.default_rng(0).integers(0, 256, (count, 16, 8), np.uint8)
    lane, part = np.arange(32)[:, None], np.arange(4)
    held = matrices[:, lane // 4 + 8 * (part // 2), 2 * (lane % 4) + part % 2]
    source, back = np.ascontiguousarray(held).view(np.uint32).reshape(count, 32), np.zeros((8 * count, 16), np.uint8)
    registers = ", ".join(f"%r{i}" for i in range(count))
    loads = "".join(f"ld.global.b32 %r{i}, [%x1+{128 * i}];" for i in range(count))
    run(
        PLACE
        + f"""
        .shared .align 16 .b8 box[512]; {loads} mov.u32 %r30, box; mad.lo.u32 %r31, %r39, 16, %r30;
        stmatrix.sync.aligned.m16n8.x{count}.trans.shared.b8 [%r31], {{{registers}}}; bar.sync 0;
        setp.ge.u32 %p0, %r39, {8 * count}; @%p0 exit;
        ld.shared.v4.u32 {{%r1, %r2, %r3, %r4}}, [%r31]; mul.wide.u32 %x3, %r39, 16; add.s64 %x5, %x11, %x3;
        st.global.v4.u32 [%x5], {{%r1, %r2, %r3, %r4}};""",
        source,
        back,
        target="sm_100a",
    )
    assert (back.reshape(count, 8, 16) == matrices.transpose(0, 2, 1)).all()


KINDS: dict[str, Any] = {
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "tf32": np.float32,
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "s8": np.int8,
    "u8": np.uint8,
}


@pytest.mark.parametrize(
    ("k", "a", "b", "d"),
    [
        (16, "f16", "f16", "f32"),
        (8, "f16", "f16", "f32"),
        (16, "bf16", "bf16", "f32"),
        (8, "tf32", "tf32", "f32"),
        (4, "tf32", "tf32", "f32"),
        (32, "e4m3", "e5m2", "f32"),
        (32, "s8", "u8", "s32"),
        (16, "s8", "s8", "s32"),
        (16, "f16", "f16", "f16"),
    ],
)
def test_mma(k: int, a: str, b: str, d: str) -> None:
    """A's register i: row t / 4 + 8 · (i % 2), 32 bits of k from (t % 4) on in block i / 2;
    B's and C's as the ISA draws them."""
    random = np.random.default_rng(3)
    low = 0 if "u8" in (a, b) else -3
    left, right = random.integers(low, 4, (16, k)).astype(KINDS[a]), random.integers(low, 4, (8, k)).astype(KINDS[b])
    kind = {"f32": np.float32, "f16": np.float16, "s32": np.int32}[d]
    start = random.integers(-9, 9, (16, 8)).astype(kind)
    per = 4 // left.itemsize
    count_a, count_b = 16 * k // 32 // per, 8 * k // 32 // per
    words = np.zeros((12, 32), np.uint32)
    for t in range(32):
        for i in range(count_a):
            row, first = t // 4 + 8 * (i % 2), i // 2 * 4 * per + t % 4 * per
            words[i, t] = left[row, first : first + per].view(np.uint32)[0]
        for i in range(count_b):
            first = i * 4 * per + t % 4 * per
            words[4 + i, t] = right[t // 4, first : first + per].view(np.uint32)[0]
    places = [(t // 4 + 8 * (i // 2), t % 4 * 2 + i % 2) for i in range(4) for t in range(32)]
    flat = np.array([start[each] for each in places], kind).reshape(4, 32)
    words[8:] = 0
    words[8 : 8 + (4 if d != "f16" else 2)] = (
        flat.view(np.uint32)
        if d != "f16"
        else np.stack([flat.reshape(2, 2, 32).transpose(0, 2, 1)[i].copy().view(np.uint32)[:, 0] for i in range(2)])
    )
    out, n_c = np.zeros((4, 32), np.uint32), 2 if d == "f16" else 4
    names = [
        ", ".join(f"%r{i}" for i in range(low, low + n)) for low, n in ((20, n_c), (0, count_a), (4, count_b), (8, n_c))
    ]
    stores = "".join(f"st.global.b32 [%x2+{128 * i}], %r{20 + i};" for i in range(n_c))
    loads = LOAD_ALL + "".join(f"ld.global.b32 %r{i}, [%x1+{128 * i}];" for i in range(8, 12))
    sources = f"{a}.{b}.{d}"
    run(
        PLACE
        + loads
        + f"mma.sync.aligned.m16n8k{k}.row.col.{d}.{sources} {{{names[0]}}}, {{{names[1]}}}, {{{names[2]}}}, "
        f"{{{names[3]}}};" + stores,
        words,
        out,
    )
    wanted = left.astype(float) @ right.astype(float).T + start.astype(float)
    found = out if d != "f16" else np.stack([out[i].view(np.float16)[half::2] for i in range(2) for half in range(2)])
    found = found.view(kind).reshape(-1).astype(float)
    assert found.tolist() == [wanted[each] for each in places]


def test_a_matrix_is_transposed_in_registers() -> None:
    data, out = np.arange(64, dtype=np.uint16).reshape(8, 8), np.zeros((32, 2), np.uint16)
    run(
        PLACE
        + """ld.global.b32 %r1, [%x1]; movmatrix.sync.aligned.m8n8.trans.b16 %r2, %r1; st.global.b32 [%x2], %r2;""",
        data,
        out,
    )
    assert out.tolist() == [[data[t % 4 * 2, t // 4], data[t % 4 * 2 + 1, t // 4]] for t in range(32)]


@pytest.mark.parametrize(("m", "k"), [(8, 4), (16, 4), (16, 8), (16, 16)])
def test_mma_of_doubles(m: int, k: int) -> None:
    """A's register i: row t / 4 + 8 · (i % 2) and K from 4 · (i / 2) on, of 8 rows K from 4 · i on, as B."""
    random = np.random.default_rng(6)
    a, b, c = random.normal(size=(m, k)), random.normal(size=(8, k)), random.normal(size=(m, 8))
    of_a, of_b, of_c = m * k // 32, 8 * k // 32, m * 8 // 32
    words = np.zeros((of_a + of_b + of_c, 32))
    for t in range(32):
        for i in range(of_a):
            words[i, t] = a[t // 4 + 8 * (i % 2), i // 2 * 4 + t % 4] if m == 16 else a[t // 4, 4 * i + t % 4]
        for i in range(of_b):
            words[of_a + i, t] = b[t // 4, 4 * i + t % 4]
        for i in range(of_c):
            words[of_a + of_b + i, t] = c[t // 4 + 8 * (i // 2), t % 4 * 2 + i % 2]
    out = np.zeros((of_c, 32))
    names = [
        "{" + ", ".join(f"%d{i}" for i in range(low, low + count)) + "}"
        for low, count in ((20, of_c), (0, of_a), (of_a, of_b), (of_a + of_b, of_c))
    ]
    run(
        ".reg .f64 %d<24>; mul.wide.u32 %x1, %r39, 8; add.s64 %x2, %x1, %x11; add.s64 %x1, %x1, %x10;"
        + "".join(f"ld.global.f64 %d{i}, [%x1+{256 * i}];" for i in range(len(words)))
        + f"mma.sync.aligned.m{m}n8k{k}.row.col.f64.f64.f64.f64 {', '.join(names)};"
        + "".join(f"st.global.f64 [%x2+{256 * i}], %d{20 + i};" for i in range(of_c)),
        words,
        out,
    )
    wanted = a @ b.T + c
    places = [(i, t, t // 4 + 8 * (i // 2), t % 4 * 2 + i % 2) for i in range(of_c) for t in range(32)]
    np.testing.assert_allclose([out[i, t] for i, t, *_ in places], [wanted[r, n] for *_, r, n in places], rtol=1e-12)


def packed(values: Any, bits: int) -> Any:
    """Rows of integers as words of 32 bits, the first in the lowest bits."""
    parts = (values.astype(np.int64) & (1 << bits) - 1).reshape(len(values), -1, 32 // bits)
    return (parts << np.arange(0, 32, bits)).sum(axis=-1).astype(np.uint32)


INTEGERS: list[Any] = [
    (8, 32, "s4", "u4", ""),
    (16, 32, "s4", "s4", ""),
    (16, 64, "u4", "s4", ""),
    (8, 16, "s8", "u8", ""),
    (16, 64, "s4", "s4", ".satfinite"),
    (8, 16, "s8", "s8", ".satfinite"),
    (8, 128, "b1", "b1", ".xor.popc"),
    (16, 128, "b1", "b1", ".and.popc"),
    (16, 256, "b1", "b1", ".xor.popc"),
]


@pytest.mark.parametrize(("m", "k", "a", "b", "operation"), INTEGERS)
def test_mma_of_integers(m: int, k: int, a: str, b: str, operation: str) -> None:
    random, bits = np.random.default_rng(7), int(a[1:])
    low, high = ({"s": -(1 << bits - 1)}.get(each[0], 0) for each in (a, b)), 1 << bits - 1 if bits > 1 else 2
    left, right = (random.integers(start, high, (rows, k)) for start, rows in zip(low, (m, 8)))
    start = random.choice([-(1 << 31), (1 << 31) - 1, 5], (m, 8))
    before, behind = (operation, "") if operation == ".satfinite" else ("", operation)
    of_a, of_b, of_c = m * k * bits // 1024, 8 * k * bits // 1024, m * 8 // 32
    rows, columns = packed(left, bits), packed(right, bits)
    words = np.zeros((of_a + of_b + of_c, 32), np.uint32)
    for t in range(32):
        for i in range(of_a):
            words[i, t] = rows[t // 4 + 8 * (i % 2), i // 2 * 4 + t % 4] if m == 16 else rows[t // 4, t % 4]
        for i in range(of_b):
            words[of_a + i, t] = columns[t // 4, i * 4 + t % 4]
        for i in range(of_c):
            words[of_a + of_b + i, t] = start[t // 4 + 8 * (i // 2), t % 4 * 2 + i % 2] & 0xFFFFFFFF
    out = np.zeros((of_c, 32), np.int32)
    names = [
        "{" + ", ".join(f"%r{i}" for i in range(low, low + count)) + "}"
        for low, count in ((20, of_c), (0, of_a), (of_a, of_b), (of_a + of_b, of_c))
    ]
    run(
        PLACE
        + "".join(f"ld.global.b32 %r{i}, [%x1+{128 * i}];" for i in range(len(words)))
        + f"mma.sync.aligned.m{m}n8k{k}.row.col{before}.s32.{a}.{b}.s32{behind} {', '.join(names)};"
        + "".join(f"st.global.b32 [%x2+{128 * i}], %r{20 + i};" for i in range(of_c)),
        words,
        out,
    )
    if operation == ".xor.popc":
        wanted = (left[:, None] != right[None]).sum(axis=-1) + start
    else:
        wanted = left @ right.T + start
    if operation == ".satfinite":
        wanted = np.clip(wanted, -(1 << 31), (1 << 31) - 1)
    wanted = (wanted + (1 << 31)) % (1 << 32) - (1 << 31)
    for t in range(32):
        for i in range(of_c):
            assert out[i, t] == wanted[t // 4 + 8 * (i // 2), t % 4 * 2 + i % 2]


NARROW = [
    (32, "s8", "mma.sp.sync", 1),
    (64, "u8", "mma.sp::ordered_metadata.sync", 0),
    (64, "e4m3", "mma.sp::ordered_metadata.sync", 0),
    (64, "e4m3", "mma.sync.kind::f8f6f4.sp::ordered_metadata", 0),
    (64, "s4", "mma.sp.sync", 1),
    (128, "u4", "mma.sp::ordered_metadata.sync", 0),
]
"""K, the type of A and B, the instruction, and the lanes of each four that tell where A's elements lie."""


@pytest.mark.parametrize(("k", "type", "opcode", "selector"), NARROW)
def test_mma_of_a_sparse_matrix_of_8_or_4_bits(k: int, type: str, opcode: str, selector: int) -> None:
    """Two of four elements are not zero, of 4 bits two of four pairs; a word tells the places of a row in 32 bytes."""
    random, bits = np.random.default_rng(9), 4 if type[1:] == "4" else 8
    run_length = 2 if bits == 4 else 1
    dense, compressed, places = (
        np.zeros((16, k)),
        np.zeros((16, k // 2), int),
        np.zeros((16, k // 4 // run_length), int),
    )
    for row, place in np.ndindex(places.shape):
        at = sorted(random.choice(4, 2, replace=False).tolist())
        places[row, place] = at[0] | at[1] << 2
        for index, one in enumerate(at):
            for part in range(run_length):
                value = int(random.integers(0, 8))
                dense[row, (4 * place + one) * run_length + part] = value
                compressed[row, (2 * place + index) * run_length + part] = value
    right = random.integers(0, 8, (8, k))

    def packed(rows: Any) -> Any:
        """The rows' words."""
        if type == "e4m3":
            return np.ascontiguousarray(rows.astype(KINDS[type])).view(np.uint32)
        low_first = rows.reshape(len(rows), -1, 32 // bits).astype(np.uint64) << np.arange(0, 32, bits, dtype=np.uint64)
        return low_first.sum(axis=-1).astype(np.uint32)

    a, b = packed(compressed), packed(right)
    told = (places.reshape(16, -1, 8).astype(np.uint64) << np.arange(0, 32, 4, dtype=np.uint64)).sum(axis=-1)
    of_a, of_b, lanes = a.shape[1] * 2 // 4, b.shape[1] // 4, told.shape[1] * 2
    words = np.full((of_a + of_b + 1, 32), 0xDEAD, np.uint32)
    for t in range(32):
        for i in range(of_a):
            words[i, t] = a[t // 4 + 8 * (i % 2), i // 2 * 4 + t % 4]
        for i in range(of_b):
            words[of_a + i, t] = b[t // 4, i * 4 + t % 4]
        if t % 4 // lanes == selector:
            words[-1, t] = told[t // 4 + 8 * (t % 2), t % 4 % lanes // 2]
    out, of_sums = np.zeros((4, 32), np.float32), "f32" if type == "e4m3" else "s32"
    spans = ((0, of_a), (of_a, of_b))
    names = ["{" + ", ".join(f"%r{i}" for i in range(low, low + count)) + "}" for low, count in spans]
    run(
        PLACE
        + "".join(f"ld.global.b32 %r{i}, [%x1+{128 * i}];" for i in range(len(words)))
        + "".join(f"mov.b32 %r{20 + i}, 0;" for i in range(4))
        + f"{opcode}.aligned.m16n8k{k}.row.col.{of_sums}.{type}.{type}.{of_sums} {{%r20, %r21, %r22, %r23}}, "
        f"{', '.join(names)}, {{%r20, %r21, %r22, %r23}}, %r{len(words) - 1}, {selector};"
        + "".join(f"st.global.b32 [%x2+{128 * i}], %r{20 + i};" for i in range(4)),
        words,
        out,
    )
    wanted = dense @ right.T
    for i, t in np.ndindex(4, 32):
        found = out[i, t] if type == "e4m3" else out.view(np.int32)[i, t]
        assert found == wanted[t // 4 + 8 * (i // 2), t % 4 * 2 + i % 2]


SPARSE = [
    (16, "f16", "mma.sp", 2),
    (32, "f16", "mma.sp::ordered_metadata", 1),
    (32, "bf16", "mma.sp", 0),
    (8, "tf32", "mma.sp", 3),
    (16, "tf32", "mma.sp::ordered_metadata", 0),
]
"""K, the type of A and B, the instruction, and the lanes of each four that tell where A's elements lie."""


@pytest.mark.parametrize(("k", "type", "opcode", "selector"), SPARSE)
def test_mma_of_a_sparse_matrix(k: int, type: str, opcode: str, selector: int) -> None:
    """Two of four elements are not zero, of tf32 one of two; 16 bits tell the places in 16 (8) elements of a row."""
    random, kind = np.random.default_rng(9), KINDS[type]
    chunk = 2 if type == "tf32" else 4
    lanes, per = k // chunk // 4, 4 // np.dtype(kind).itemsize
    dense, compressed = np.zeros((16, k // chunk, chunk)), np.zeros((16, k // 2)).astype(kind)
    bits = np.zeros((16, k // chunk), np.uint16)
    for row in range(16):
        for place in range(k // chunk):
            at = sorted(random.choice(chunk, chunk // 2, replace=False).tolist())
            values = random.integers(1, 5, len(at))
            dense[row, place, at] = values
            compressed[row, place * len(at) :][: len(at)] = values
            bits[row, place] = (0b0100, 0b1110)[at[0]] if chunk == 2 else at[0] | at[1] << 2
    right, start = random.integers(-3, 4, (8, k)).astype(kind), random.integers(-9, 9, (16, 8)).astype(np.float32)
    of_a, of_b = 16 * k // 2 // 32 // per, 8 * k // 32 // per
    words = np.full((of_a + of_b + 5, 32), 0xDEAD, np.uint32)
    for t in range(32):
        for i in range(of_a):
            first = i // 2 * 4 * per + t % 4 * per
            words[i, t] = compressed[t // 4 + 8 * (i % 2), first : first + per].view(np.uint32)[0]
        for i in range(of_b):
            words[of_a + i, t] = right[t // 4, i * 4 * per + t % 4 * per :][:per].view(np.uint32)[0]
        for i in range(4):
            words[of_a + of_b + i, t] = start[t // 4 + 8 * (i // 2), t % 4 * 2 + i % 2].view(np.uint32)
        if t % 4 // lanes == selector:
            halves = (bits[t // 4 + 8 * half, t % 4 % lanes * 4 :][:4] << np.arange(0, 16, 4) for half in range(2))
            words[-1, t] = sum(int(half.sum()) << 16 * place for place, half in enumerate(halves))
    out = np.zeros((4, 32), np.float32)
    names = [
        "{" + ", ".join(f"%r{i}" for i in range(low, low + count)) + "}"
        for low, count in ((20, 4), (0, of_a), (of_a, of_b), (of_a + of_b, 4))
    ]
    run(
        PLACE
        + "".join(f"ld.global.b32 %r{i}, [%x1+{128 * i}];" for i in range(len(words)))
        + f"{opcode}.sync.aligned.m16n8k{k}.row.col.f32.{type}.{type}.f32 {', '.join(names)}, %r{len(words) - 1}, "
        f"{hex(selector)};" + "".join(f"st.global.b32 [%x2+{128 * i}], %r{20 + i};" for i in range(4)),
        words,
        out,
    )
    wanted = dense.reshape(16, k) @ right.astype(float).T + start
    for t in range(32):
        for i in range(4):
            assert out[i, t] == wanted[t // 4 + 8 * (i // 2), t % 4 * 2 + i % 2]


@pytest.mark.parametrize(
    ("shape", "type", "bits"),
    [
        ("m8n16.x2", "b8x16.b4x16_p64", 4),
        ("m8n16.x4", "b8x16.b6x16_p32", 6),
        ("m16n16.x1.trans", "b8", 8),
        ("m16n16.x2.trans", "b8x16.b4x16_p64", 4),
    ],
)
def test_matrices_of_bytes(shape: str, type: str, bits: int) -> None:
    """Elements of 4 and 6 bits are packed at the begin of a row, and get a byte each. A lane has four of a row."""
    random = np.random.default_rng(10)
    count, height = int(shape.split(".x")[1][0]), int(shape.split("n")[0][1:])
    values = random.integers(0, 1 << bits, (count, height, 16)).astype(np.uint8)
    parts = np.unpackbits(values[..., None], axis=-1, bitorder="little")[..., :bits].reshape(count, height, -1)
    rows = np.zeros((32, 16), np.uint8)
    rows[: count * height, : 2 * bits] = np.packbits(parts, axis=-1, bitorder="little").reshape(count * height, -1)
    registers = count * height // 8
    out = np.zeros((registers, 32, 4), np.uint8)
    names = ", ".join(f"%r{i}" for i in range(registers))
    run(
        PLACE
        + f"""
        .shared .align 16 .b8 box[512]; mul.wide.u32 %x3, %r39, 16; add.s64 %x4, %x10, %x3; mov.u32 %r30, box;
        mad.lo.u32 %r31, %r39, 16, %r30;
        ld.global.v4.u32 {{%r1, %r2, %r3, %r4}}, [%x4]; st.shared.v4.u32 [%r31], {{%r1, %r2, %r3, %r4}}; bar.sync 0;
        ldmatrix.sync.aligned.{shape}.shared.{type} {{{names}}}, [%r31];"""
        + "".join(f"st.global.b32 [%x2+{128 * i}], %r{i};" for i in range(registers)),
        rows,
        out,
        target="sm_120a",
    )
    for i in range(registers):
        matrix = values[i * 8 // height]
        matrix = (matrix.T if "trans" in shape else matrix)[i * 8 % height :][:8]
        assert out[i].tolist() == [matrix[t // 4, t % 4 * 4 : t % 4 * 4 + 4].tolist() for t in range(32)]


WGMMA = """
    .shared .align 1024 .b8 tile[4096]; mov.u32 %r30, tile; mad.lo.u32 %r31, %r39, 32, %r30;
    mul.wide.u32 %x1, %r39, 32; add.s64 %x1, %x1, %x10;
    ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%x1]; st.shared.v4.u32 [%r31], {%r0, %r1, %r2, %r3};
    ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%x1+16]; st.shared.v4.u32 [%r31+16], {%r0, %r1, %r2, %r3};
    fence.proxy.async; bar.sync 1, 128; shr.u32 %r5, %r30, 4; cvt.u64.u32 %x3, %r5; or.b64 %x3, %x3, DESCRIPTOR;
    add.s64 %x4, %x3, 128;
    mov.f32 %r10, 0f3F800000; mov.f32 %r11, %r10; mov.f32 %r12, %r10; mov.f32 %r13, %r10;
    wgmma.fence.sync.aligned;"""
"""Two tiles of 64 x 16 halves without swizzle, in blocks of 8 x 8."""


STORES = "mul.wide.u32 %x2, %r39, 4; add.s64 %x2, %x2, %x11;" + "".join(
    f"st.global.b32 [%x2+{512 * i}], %r{10 + i};" for i in range(4)
)


def wgmma(body: str, out: Any, **launch: Any) -> Any:
    """Run the body behind WGMMA; return A times B, 64 x 8.

    Blocks of 8 x 8 in 128 bytes in a row: along k by 128 bytes, along the rows by 256.
    """
    random = np.random.default_rng(4)
    a, b = random.integers(-3, 4, (64, 16)).astype(np.float16), random.integers(-3, 4, (64, 16)).astype(np.float16)
    tiles = np.concatenate([each.reshape(8, 8, 2, 8).transpose(0, 2, 1, 3).reshape(-1) for each in (a, b)])
    descriptor = (128 >> 4) << 16 | (256 >> 4) << 32
    run(body.replace("WGMMA", WGMMA.replace("DESCRIPTOR", str(descriptor))), tiles, out, **launch)
    return a.astype(float) @ b[:8].astype(float).T


def in_registers(found: Any) -> Any:
    """Return the registers of each thread, registers x threads, that a result of 64 x 8 has."""
    register, thread = np.arange(4)[:, None], np.arange(128)[None, :]
    row = thread // 32 * 16 + thread % 32 // 4 + 8 * (register // 2)
    return found[row, thread % 4 * 2 + register % 2]


def test_wgmma() -> None:
    out = np.zeros((4, 128), np.float32)
    product = """wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r10, %r11, %r12, %r13}, %x3, %x4, 1, 1, -1, 0, 0;
        wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"""
    found = wgmma("WGMMA" + product + STORES, out, block=128)
    assert (out == in_registers(1 - found)).all()


@pytest.mark.parametrize("listener", [None, EmulationListener()])
def test_a_wait_of_one_warp_ends_the_products_of_its_warpgroup(listener: Any) -> None:
    """The first warp overwrites B behind its own wait; the other warps wait for the products after that."""
    out = np.zeros((4, 128), np.float32)
    product = """wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r10, %r11, %r12, %r13}, %x3, %x4, 1, 1, 1, 0, 0;
        wgmma.commit_group.sync.aligned; setp.ge.u32 %p0, %r39, 32; @%p0 bra REST;
        wgmma.wait_group.sync.aligned 0; mad.lo.u32 %r31, %r39, 16, %r30; mov.u32 %r5, 0;
        st.shared.v4.u32 [%r31+2048], {%r5, %r5, %r5, %r5};
        REST: bar.sync 1, 128; wgmma.wait_group.sync.aligned 0;"""
    found = wgmma("WGMMA" + product + STORES, out, block=128, order="late", listener=listener)
    assert (out == in_registers(1 + found)).all()


@pytest.mark.parametrize("listener", [None, EmulationListener()])
def test_wgmma_of_some_warps_of_a_row_in_a_loop(listener: Any) -> None:
    """A fifth warp of each CTA waits; the same instruction adds three times before the others wait for it."""
    out = np.zeros((2, 4, 128), np.float32)
    loop = """mov.u32 %r20, 0;
        L: wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r10, %r11, %r12, %r13}, %x3, %x4, 1, 1, 1, 0, 0;
        wgmma.commit_group.sync.aligned; add.u32 %r20, %r20, 1; setp.lt.u32 %p1, %r20, 3; @%p1 bra L;
        wgmma.wait_group.sync.aligned 0;"""
    place = "mov.u32 %r21, %ctaid.x; mul.wide.u32 %x5, %r21, 2048; add.s64 %x11, %x11, %x5;"
    body = "setp.ge.u32 %p0, %r39, 128; @%p0 bra END; WGMMA" + loop + place + STORES + "END: bar.sync 0;"
    found = wgmma(body, out, block=160, grid=2, listener=listener)
    assert (out == in_registers(1 + 3 * found)).all()


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32 {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%r6, %r7}, "
            "{%r0, %r1, %r2, %r3};",
            "m8n8k4.row.col.f32.f16.f16.f32 is not emulated",
        ),
        (
            "mov.u32 %r8, 0x44444404; mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r0, %r1, %r2, %r3}, "
            "{%r4, %r5}, {%r6, %r7}, {%r0, %r1, %r2, %r3}, %r8, 0;",
            "the metadata of A has 0b0000, which names no places",
        ),
        (
            "mma.sp.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%r0, %r1, %r2, %r3}, {%r4, %r5}, {%r6, %r7}, "
            "{%r0, %r1, %r2, %r3}, %r8, 4;",
            "selects metadata of lanes 4; there are 0 to 3",
        ),
        (
            "mov.u32 %r8, 0x44444444; mma.sp.sync.aligned.m16n8k64.row.col.s32.s8.s8.s32 {%r0, %r1, %r2, %r3}, "
            "{%r4, %r5, %r6, %r7}, {%r4, %r5, %r6, %r7}, {%r0, %r1, %r2, %r3}, %r8, 1;",
            "selects metadata of lanes 1; there are 0 to 0",
        ),
        ("mov.u32 %r1, 0; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%r1+8];", "no multiple of 16"),
        (
            ".shared .align 16 .b8 box[1024]; mov.u32 %r1, box; ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%r1];",
            "nothing has written",
        ),
        (
            "setp.lt.u32 %p0, %r39, 4; mov.u32 %r1, 0; @%p0 bra L; "
            "ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%r0}, [%r1]; L: bar.warp.sync -1;",
            "deadlock",
        ),
        (
            "mov.b64 %x1, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r0, %r1, %r2, %r3}, %x1, %x1, "
            "0, 1, 1, 0, 0;",
            "a matrix reads .* bytes",
        ),
    ],
)
def test_what_stops(body: str, text: str) -> None:
    with pytest.raises(BlackwellMatmulError, match=text):
        run(body)
