"""Matrices in registers: ldmatrix, stmatrix, mma.sync, wgmma (PTX ISA, "Matrix Fragments")."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ptx import run

from blackwell_matmul.base.errors import EmulationError

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


WGMMA = """
    .shared .align 1024 .b8 tile[4096]; mov.u32 %r30, tile; mad.lo.u32 %r31, %r39, 32, %r30;
    mul.wide.u32 %x1, %r39, 32; add.s64 %x1, %x1, %x10;
    ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%x1]; st.shared.v4.u32 [%r31], {%r0, %r1, %r2, %r3};
    ld.global.v4.u32 {%r0, %r1, %r2, %r3}, [%x1+16]; st.shared.v4.u32 [%r31+16], {%r0, %r1, %r2, %r3};
    fence.proxy.async; bar.sync 0; shr.u32 %r5, %r30, 4; cvt.u64.u32 %x3, %r5; or.b64 %x3, %x3, DESCRIPTOR;
    add.s64 %x4, %x3, 128;
    mov.f32 %r10, 0f3F800000; mov.f32 %r11, %r10; mov.f32 %r12, %r10; mov.f32 %r13, %r10;
    wgmma.fence.sync.aligned;"""
"""Two tiles of 64 x 16 halves without swizzle, in blocks of 8 x 8."""


def test_wgmma() -> None:
    """A of 64 x 16, B of 8 x 16; blocks of 8 x 8 in 128 bytes in a row: along k by 128 bytes, along the rows by 256."""
    random = np.random.default_rng(4)
    a, b = random.integers(-3, 4, (64, 16)).astype(np.float16), random.integers(-3, 4, (64, 16)).astype(np.float16)
    tiles = np.concatenate([each.reshape(8, 8, 2, 8).transpose(0, 2, 1, 3).reshape(-1) for each in (a, b)])
    descriptor = (128 >> 4) << 16 | (256 >> 4) << 32
    out = np.zeros((4, 128), np.float32)
    stores = "mul.wide.u32 %x2, %r39, 4; add.s64 %x2, %x2, %x11;" + "".join(
        f"st.global.b32 [%x2+{512 * i}], %r{10 + i};" for i in range(4)
    )
    product = """wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%r10, %r11, %r12, %r13}, %x3, %x4, 1, 1, -1, 0, 0;
        wgmma.commit_group.sync.aligned; wgmma.wait_group.sync.aligned 0;"""
    run(WGMMA.replace("DESCRIPTOR", str(descriptor)) + product + stores, tiles, out, block=128)
    wanted = 1 - a.astype(float) @ b[:8].astype(float).T
    for warp in range(4):
        for t in range(32):
            for i in range(4):
                assert out[i, 32 * warp + t] == wanted[16 * warp + t // 4 + 8 * (i // 2), t % 4 * 2 + i % 2]


@pytest.mark.parametrize(
    ("body", "told"),
    [
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
def test_what_stops(body: str, told: str) -> None:
    with pytest.raises(EmulationError, match=told):
        run(body)
