"""Tensor memory and tcgen05 (PTX ISA, "TensorCore 5th Generation Family")."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from ptx import run

from blackwell_matmul.base.errors import EmulationError, UnsupportedError
from blackwell_matmul.emulator.instructions.matrices.shapes import shape_of, verify
from blackwell_matmul.emulator.spaces import Undefined

ALLOC = """
    .shared .align 4 .b32 base; .shared .align 1024 .b8 tile[16384]; .shared .align 8 .b64 bar; .reg .b32 %z<140>;
    mov.u32 %r30, tile;
    setp.lt.u32 %p2, %r39, 32; setp.eq.u32 %p0, %r39, 0; @%p0 mbarrier.init.shared.b64 [bar], 1;
    shr.u32 %r35, %r39, 5; shl.b32 %r35, %r35, 21;
    @%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [base], {}; bar.sync 0; ld.shared.u32 %r31, [base];
    add.u32 %r34, %r31, %r35;"""
FREE = "bar.sync 0; @%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r31, {};"


def emulated(body: str, *arrays: Any, columns: int = 128, threads: int = 128, **how: Any) -> None:
    run(ALLOC.format(columns) + body + FREE.format(columns), *arrays, block=threads, target="sm_100a", **how)


def names(count: int, first: int = 0) -> str:
    return "{" + ", ".join(f"%z{i}" for i in range(first, first + count)) + "}"


FILL = (
    "".join(f"mad.lo.u32 %z{i}, %r39, 1000, {i};" for i in range(64))
    + f"""
    tcgen05.st.sync.aligned.32x32b.x64.b32 [%r34], {names(64)}; tcgen05.wait::st.sync.aligned;"""
)
"""Lane l of tensor memory holds 1000 · l + column."""

SHAPES: dict[str, Any] = {
    "32x32b.x8": (8, lambda t, i: (t, i)),
    "16x64b.x4": (4, lambda t, i: (t // 4 + t % 2 * 8, 2 * i + t % 4 // 2)),
    "16x128b.x2": (4, lambda t, i: (t // 4 + i % 2 * 8, i // 2 * 4 + t % 4)),
    "16x256b.x2": (8, lambda t, i: (t // 4 + i // 2 % 2 * 8, i // 4 * 8 + t % 4 * 2 + i % 2)),
}


@pytest.mark.parametrize("shape", SHAPES)
def test_which_lane_and_column_a_register_is(shape: str) -> None:
    count, place = SHAPES[shape]
    out = np.zeros((count, 128), np.uint32)
    stores = "mul.wide.u32 %x1, %r39, 4; add.s64 %x1, %x1, %x10;" + "".join(
        f"st.global.u32 [%x1+{512 * i}], %z{70 + i};" for i in range(count)
    )
    load = (
        f"add.u32 %r33, %r34, 5; tcgen05.ld.sync.aligned.{shape}.b32 {names(count, 70)}, [%r33]; "
        "tcgen05.wait::ld.sync.aligned;"
    )
    emulated(FILL + load + stores, out)
    for t in range(128):
        for i in range(count):
            lane, column = place(t % 32, i)
            assert out[i, t] == 1000 * (t // 32 * 32 + lane) + column + 5


@pytest.mark.parametrize("lane", [0, 32, 96])
def test_a_warp_reaches_its_own_lanes_whichever_32_the_address_names(lane: int) -> None:
    out = np.zeros(128, np.uint32)
    emulated(
        f"""tcgen05.st.sync.aligned.32x32b.x1.b32 [%r34], {{%r39}}; tcgen05.wait::st.sync.aligned;
        add.u32 %r33, %r31, {lane << 16}; tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%z0}}, [%r33];
        mul.wide.u32 %x1, %r39, 4; add.s64 %x1, %x1, %x10; st.global.u32 [%x1], %z0;""",
        out,
    )
    assert out.tolist() == list(range(128))


def test_halves_are_packed_and_unpacked() -> None:
    out = np.zeros((2, 128), np.uint32)
    emulated(
        "".join(f"mov.b32 %z{i}, {hex(0x10001 * (i + 1) + 0x100000)};" for i in range(2))
        + """
        tcgen05.st.sync.aligned.32x32b.x2.unpack::16b.b32 [%r34], {%z0, %z1}; tcgen05.wait::st.sync.aligned;
        tcgen05.ld.sync.aligned.32x32b.x2.pack::16b.b32 {%z4, %z5}, [%r34]; add.u32 %r33, %r34, 1;
        tcgen05.ld.sync.aligned.32x32b.x1.b32 {%z6}, [%r33];
        mul.wide.u32 %x1, %r39, 4; add.s64 %x1, %x1, %x10; st.global.u32 [%x1], %z5; st.global.u32 [%x1+512], %z6;""",
        out,
    )
    assert set(out[0].tolist()) == {0x120002} and set(out[1].tolist()) == {0x11}


@pytest.mark.parametrize(("bits", "format"), [(4, "b8x16.b4x16_p64"), (6, "b8x16.b6x16_p32")])
def test_a_copy_that_gives_packed_elements_a_byte_each(bits: int, format: str) -> None:
    values = np.random.default_rng(4).integers(0, 1 << bits, (128, 16)).astype(np.uint8)
    packed = np.unpackbits(values[..., None], axis=-1, bitorder="little")[..., :bits].reshape(128, -1)
    rows, out = np.zeros((128, 16), np.uint8), np.zeros((128, 16), np.uint8)
    rows[:, : 2 * bits] = np.packbits(packed, axis=-1, bitorder="little")
    last = "st.shared.u32 [%r32+8], %r2;" if bits == 6 else ""
    emulated(
        f"""mul.wide.u32 %x1, %r39, 16; add.s64 %x2, %x1, %x11; mad.lo.u32 %r32, %r39, 16, %r30;
        ld.global.v4.u32 {{%r0, %r1, %r2, %r3}}, [%x2]; st.shared.v2.u32 [%r32], {{%r0, %r1}}; {last}
        fence.proxy.async; bar.sync 0; shr.u32 %r5, %r30, 4; cvt.u64.u32 %x3, %r5;
        or.b64 %x3, %x3, {128 >> 4 << 32 | 1 << 46};
        @%p0 tcgen05.cp.cta_group::1.128x128b.{format} [%r31], %x3;
        @%p0 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];
        WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra WAIT; tcgen05.fence::after_thread_sync;
        tcgen05.ld.sync.aligned.32x32b.x4.b32 {names(4)}, [%r34]; tcgen05.wait::ld.sync.aligned;
        add.s64 %x1, %x1, %x10; st.global.v4.u32 [%x1], {names(4)};""",
        out,
        rows,
    )
    assert out.tolist() == values.tolist()


@pytest.mark.parametrize("shape", ["32x128b", "64x128b.warpx4", "128x128b.warpx4"])
def test_copies_that_no_shape_has(shape: str) -> None:
    with pytest.raises(UnsupportedError, match=r"tcgen05.cp of .* is not emulated"):
        emulated(f"@%p0 tcgen05.cp.cta_group::1.{shape} [%r31], %x10;", np.zeros(4, np.uint32))


def idesc(m: int, n: int, **fields: int) -> int:
    return 1 << 4 | n >> 3 << 17 | m >> 4 << 24 | sum(fields.values())


MULTIPLY = """
    mul.wide.u32 %x1, %r39, 64; add.s64 %x1, %x1, %x11; mad.lo.u32 %r32, %r39, 64, %r30;
    ld.global.v4.u32 {{%r0, %r1, %r2, %r3}}, [%x1]; st.shared.v4.u32 [%r32], {{%r0, %r1, %r2, %r3}};
    ld.global.v4.u32 {{%r0, %r1, %r2, %r3}}, [%x1+16]; st.shared.v4.u32 [%r32+16], {{%r0, %r1, %r2, %r3}};
    ld.global.v4.u32 {{%r0, %r1, %r2, %r3}}, [%x1+32]; st.shared.v4.u32 [%r32+32], {{%r0, %r1, %r2, %r3}};
    ld.global.v4.u32 {{%r0, %r1, %r2, %r3}}, [%x1+48]; st.shared.v4.u32 [%r32+48], {{%r0, %r1, %r2, %r3}};
    fence.proxy.async; bar.sync 0; shr.u32 %r5, %r30, 4; cvt.u64.u32 %x3, %r5; or.b64 %x3, %x3, {words};
    add.s64 %x4, %x3, 256; mov.b32 %r6, {idesc};
    setp.eq.u32 %p3, 1, 0; setp.eq.u32 %p4, 1, 1;
    @%p0 tcgen05.mma.cta_group::1.kind::f16 [%r31], %x3, %x4, %r6, %p3;
    @%p0 tcgen05.mma.cta_group::1.kind::f16 [%r31], %x3, %x4, %r6, %p4;
    @%p0 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];
    WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra WAIT; tcgen05.fence::after_thread_sync;"""


def multiplied(m: int, n: int, word: int | None = None, bits: int = 0, multiply: str = MULTIPLY, **how: Any) -> Any:
    """Twice a · b, of 128 x 16 halves each (blocks of 8 x 8), as the lanes of tensor memory hold it."""
    random = np.random.default_rng(5)
    a, b = random.integers(-3, 4, (2, 128, 16)).astype(np.float16)
    tiles = np.concatenate([each.reshape(16, 8, 2, 8).transpose(0, 2, 1, 3).reshape(-1) for each in (a, b)])
    out = np.full((128, 8), -1, np.float32)
    words = 128 >> 4 << 16 | 256 >> 4 << 32 | 1 << 46 if word is None else word
    load = (
        f"tcgen05.ld.sync.aligned.32x32b.x8.b32 {names(8)}, [%r34]; tcgen05.wait::ld.sync.aligned; "
        "mul.wide.u32 %x1, %r39, 32; add.s64 %x1, %x1, %x10;"
    )
    halves = m == 64 and ".ws" not in multiply
    if halves:
        load = "and.b32 %r7, %r39, 16; setp.ne.u32 %p5, %r7, 0;" + load.replace("32x32b.x8", "16x32bx2.x4").replace(
            names(8), names(4)
        ).replace("[%r34]", "[%r34], 4")
    stores = "".join(f"st.global.b32 [%x1+{4 * i}], %z{i};" for i in range(4 if halves else 8))
    emulated(
        multiply.format(words=words, idesc=idesc(*how.pop("shape", (m, n))) | bits) + load + stores, out, tiles, **how
    )
    return 2 * (a[:m].astype(float) @ b[:n].astype(float).T), out


@pytest.mark.parametrize("n", [8, 16, 24])
def test_a_product_of_128_rows_lies_row_by_row(n: int) -> None:
    """N is a multiple of 8 (PTX ISA, "Matrix Shape", table 39)."""
    wanted, out = multiplied(128, n)
    assert out.tolist() == wanted[:, :8].tolist()


def test_a_commit_tracks_what_its_own_thread_has_issued() -> None:
    """The commit of another warp tracks nothing, and may arrive before the products are done."""
    other = MULTIPLY.replace("@%p0 tcgen05.commit", "setp.eq.u32 %p6, %r39, 32; @%p6 tcgen05.commit")
    with pytest.raises(EmulationError, match="nothing has written"):
        multiplied(128, 16, multiply=other, order="products last")
    wanted, out = multiplied(128, 16, order="products last")
    assert out.tolist() == wanted[:, :8].tolist()


def test_a_product_of_64_rows_lies_in_16_lanes_of_each_32() -> None:
    wanted, out = multiplied(64, 8)
    for warp in range(4):
        for t in range(32):
            assert out[32 * warp + t, :4].tolist() == wanted[16 * warp + t % 16, t // 16 * 4 : t // 16 * 4 + 4].tolist()


STATIONARY = MULTIPLY.replace("tcgen05.mma.cta", "tcgen05.mma.ws.cta")


@pytest.mark.parametrize(("m", "n"), [(32, 64), (32, 128), (64, 64), (128, 128)])
def test_parts_of_n_lie_in_lanes_of_their_own_where_b_is_stationary(m: int, n: int) -> None:
    wanted, out = multiplied(m, n, multiply=STATIONARY)
    width = n * m // 128
    for lane in range(128):
        assert out[lane].tolist() == wanted[lane % m, lane // m * width :][:8].tolist()


@pytest.mark.parametrize("m", [32, 64, 128])
def test_each_part_of_n_has_its_own_rows_of_a_in_tensor_memory(m: int) -> None:
    """Lane l holds row l of a; a part of N is multiplied by the rows that lie in its lanes."""
    chunks = "mad.lo.u32 %r8, %r7, 256, %r30; and.b32 %r9, %r39, 7; mad.lo.u32 %r8, %r9, 16, %r8;"
    store = f"""WAIT: shr.u32 %r7, %r39, 3; {chunks} add.u32 %r33, %r34, 160;
        ld.shared.v4.u32 {{{{%z0, %z1, %z2, %z3}}}}, [%r8]; ld.shared.v4.u32 {{{{%z4, %z5, %z6, %z7}}}}, [%r8+128];
        tcgen05.st.sync.aligned.32x32b.x8.b32 [%r33], {{{names(8)}}}; tcgen05.wait::st.sync.aligned; bar.sync 0;
        add.u32 %r9, %r31, 160; @%p0 mbarrier.inval.shared.b64 [bar]; @%p0 mbarrier.init.shared.b64 [bar], 1;
        bar.sync 0; @%p0 tcgen05.mma.ws.cta_group::1.kind::f16 [%r31], [%r9], %x4, %r6, %p3;
        @%p0 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [bar];
        DONE:"""
    body = MULTIPLY.split("@%p0 tcgen05.mma")[0] + store + MULTIPLY.split("WAIT:")[1].replace("WAIT", "DONE")
    wanted, out = multiplied(128, 64, multiply=body.replace("WAIT: ", ""), shape=(m, 64), columns=256)
    width = 64 * m // 128
    for lane in range(128):
        assert (2 * out[lane]).tolist() == wanted[lane, lane // m * width :][:8].tolist()


def test_elements_of_4_bits_in_tensor_memory_are_not_known() -> None:
    body = MULTIPLY.replace("kind::f16 [%r31], %x3,", "kind::f8f6f4 [%r31], [%r31],")
    with pytest.raises(EmulationError, match="a product of e2m1 in tensor memory is not emulated"):
        multiplied(128, 16, bits=5 << 7, multiply=body)


@pytest.mark.parametrize(
    "opcode", ["ws.cta_group::2.kind::f16", "ws.cta_group::1.kind::mxf4.block_scale", "sp.cta_group::1.kind::f16"]
)
def test_forms_that_are_not_emulated(opcode: str) -> None:
    with pytest.raises(UnsupportedError, match="is not emulated"):
        run(f"tcgen05.mma.{opcode} [%r0], %x0, %x1, %r1, [%r2], [%r3], %p0;", target="sm_100a")


def test_a_product_that_is_negated() -> None:
    wanted, out = multiplied(128, 16, bits=1 << 13)
    assert out.tolist() == (-wanted[:, :8]).tolist()


@pytest.mark.parametrize(
    ("m", "n", "bits", "text"),
    [
        (32, 16, 0, "a product of 32x16 for 1 CTAs; M is 64 or 128"),
        (256, 16, 0, "a product of 256x16"),
        (64, 0, 0, "a product of 64x0"),
        (64, 264, 0, "a product of 64x264"),
        (128, 16, 1 << 2, "a product of sparse operands is not emulated"),
        (128, 16, 3 << 7, "has formats 3 and 0; kind::f16 has"),
        (128, 16, 2 << 4, "has accumulator format 3; kind::f16 has"),
        (128, 16, 1 << 23 | 1 << 3, r"has bits \[3, 23\] set, which kind::f16 reserves"),
    ],
)
def test_shapes_and_types_that_stop(m: int, n: int, bits: int, text: str) -> None:
    with pytest.raises(EmulationError, match=r"^PTX line \d+: @%p0 tcgen05.mma.*" + text):
        multiplied(m, n, bits=bits)


@pytest.mark.parametrize(
    ("word", "text"),
    [
        (128 >> 4 << 16 | 256 >> 4 << 32, "has 0 in bits 46 to 48, where 1 must be"),
        (1 << 46 | 1 << 61, "swizzle mode 1"),
    ],
)
def test_descriptors_that_stop(word: int, text: str) -> None:
    with pytest.raises(EmulationError, match=text):
        multiplied(128, 16, word)


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (
            "add.u32 %r33, %r34, 0x100000; tcgen05.ld.sync.aligned.32x32b.x1.b32 {%z0}, [%r33];",
            "reads lanes 16 to 47 of the 32 that a warp reaches",
        ),
        (
            "add.u32 %r33, %r34, 128; tcgen05.ld.sync.aligned.32x32b.x1.b32 {%z0}, [%r33];",
            "reads columns 128 to 128 of tensor memory, not all allocated",
        ),
        (
            "tcgen05.ld.sync.aligned.32x32b.x2.b32 {%z0, %z1}, [%r34];",
            "reads tensor memory that nothing has written, at lane \\d+, column 0",
        ),
        ("@%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [base], 48;", "allocates 48 columns"),
        (
            "@%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [base], 512;",
            "deadlock: .*for 512 free columns of tensor memory",
        ),
        (
            "@%p2 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %r31, 64;",
            r"gives back 64 columns of tensor memory from 0 on; allocated are \{0: 128\}",
        ),
        (
            "@%p2 tcgen05.relinquish_alloc_permit.cta_group::1.sync.aligned; "
            "@%p2 tcgen05.alloc.cta_group::1.sync.aligned.shared::cta.b32 [base], 32;",
            "after the CTA gave up its permit",
        ),
        (
            "@%p0 tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.b64 [%r30];",
            "no mbarrier was initialised",
        ),
        (
            f"add.u32 %r33, %r31, 0x10000; shr.u32 %r5, %r30, 4; cvt.u64.u32 %x3, %r5; "
            f"or.b64 %x3, %x3, {128 >> 4 << 32 | 1 << 46}; "
            "mad.lo.u32 %r32, %r39, 16, %r30; st.shared.v4.u32 [%r32], {%r39, %r39, %r39, %r39}; bar.sync 0; "
            "@%p0 tcgen05.cp.cta_group::1.128x128b [%r33], %x3;",
            "copies to lane 128 of tensor memory, which has 128",
        ),
        (
            f"mov.b32 %z1, {256 >> 4 << 24 | 4 << 17 | 16}; "
            f"@%p0 tcgen05.mma.cta_group::2.kind::f16 [%r31], %x10, %x10, %z1, %p2;",
            "a pair of CTAs in a cluster of 1",
        ),
    ],
)
def test_what_stops(body: str, text: str) -> None:
    with pytest.raises(EmulationError, match=text):
        emulated(body, np.zeros(4, np.uint32))


def test_the_instruction_descriptor() -> None:
    shape = shape_of(1 << 4 | 1 << 7 | 1 << 10 | 1 << 16 | 32 << 17 | 8 << 24, "f16", 0)
    assert (shape.m, shape.n, shape.k, shape.d, shape.a, shape.b, shape.a_k_major, shape.b_k_major) == (
        128,
        256,
        16,
        "f32",
        "bf16",
        "bf16",
        True,
        False,
    )
    scaled = shape_of(1 << 4 | 16 << 17 | 1 << 23 | 1 << 27 | 2 << 29, "mxf8f6f4", 32)
    assert (scaled.m, scaled.n, scaled.k, scaled.scale, scaled.scales, scaled.a) == (
        128,
        128,
        32,
        "ue8m0",
        (2, 1),
        "e4m3",
    )
    with pytest.raises(Undefined, match="kind::i8 has"):
        shape_of(2 << 7, "i8", 0)


@pytest.mark.parametrize(
    ("n", "group", "bits", "fits"),
    [
        (24, 1, 0, True), (32, 1, 0, True), (40, 1, 0, False), (48, 1, 0, True), (16, 2, 0, False), (32, 2, 0, True),
        (8, 1, 1 << 16, False), (16, 1, 1 << 16, True),
    ],
)  # fmt: skip
def test_n_of_integers_and_of_transposed_bytes(n: int, group: int, bits: int, fits: bool) -> None:
    """PTX ISA, table 39, kind::i8: by 16 above 32, of pairs by 32; table 52: of a transposed B by 16."""
    shape = shape_of(idesc(128, n) ^ 3 << 4 | bits, "i8", 0, group)
    assert _raises(lambda: verify(shape)) != fits


def _raises(act: Callable[[], None]) -> bool:
    try:
        act()
    except Undefined:
        return True
    return False
