"""Block-scaled products of tcgen05.mma and mma.sync (PTX ISA, "Block Scaling")."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from ptx import run

from blackwell_matmul.base.errors import EmulationError, UnsupportedError
from blackwell_matmul.emulator.instructions.matrices.shapes import shape_of
from blackwell_matmul.emulator.spaces import Undefined

FORMATS = {"e4m3": 0, "e5m2": 1, "e2m3": 3, "e3m2": 4, "e2m1": 5, "packed e2m1": 1}
BITS = {"e2m1": 4, "packed e2m1": 4, "e2m3": 6, "e3m2": 6}
TYPES: dict[str, Any] = {
    "e4m3": ml_dtypes.float8_e4m3fn,
    "e5m2": ml_dtypes.float8_e5m2,
    "e2m3": ml_dtypes.float6_e2m3fn,
    "e3m2": ml_dtypes.float6_e3m2fn,
    "e2m1": ml_dtypes.float4_e2m1fn,
    "packed e2m1": ml_dtypes.float4_e2m1fn,
    "ue8m0": ml_dtypes.float8_e8m0fnu,
    "ue4m3": ml_dtypes.float8_e4m3fn,
}
SHARED = 208 << 10
CP = "tcgen05.cp.cta_group::{group}.32x128b.warpx4 [%r20], %x5;"
ATOM_DESCRIPTOR = 16 >> 4 << 16 | 128 >> 4 << 32 | 1 << 46


@dataclass
class Product:
    """A product of one instruction. ids: of A and B. first: byte of the 128-byte row where K begins, for K of 96."""

    kind: str = "mxf8f6f4"
    size: str = ".block32"
    a: str = "e4m3"
    b: str = "e4m3"
    scale: str = "ue8m0"
    m: int = 128
    n: int = 16
    k: int = 32
    ids: tuple[int, int] = (0, 0)
    group: int = 1
    first: int = 0
    hints: tuple[int, int] = (0, 0)
    before: str = ""
    """Instructions of all threads in front of the copies of the scales."""
    extra: str = ""
    """Instructions of one thread behind the copies of the scales."""
    bits: int = 0
    """Bits of the instruction descriptor that are changed."""
    target: str = "sm_100a"
    continues: bool = True
    data: Any = field(init=False)
    scales: Any = field(init=False)

    def __post_init__(self) -> None:
        random = np.random.default_rng(11)
        bits = [BITS.get(format, 8) for format in (self.a, self.b)]
        self.data = [random.integers(0, 1 << b, (rows, self.k)).astype(np.uint8) for b, rows in zip(bits, self.rows)]
        for raw, format in zip(self.data, (self.a, self.b)):
            raw[~np.isfinite(raw.view(TYPES[format]).astype(float))] = 1
        low, high = (124, 131) if self.scale == "ue8m0" else (0x20, 0x50)
        self.scales = [random.integers(low, high, (rows, self.blocks)).astype(np.uint8) for rows in self.rows]

    @property
    def rows(self) -> tuple[int, int]:
        return self.m, self.n

    @property
    def blocks(self) -> int:
        return self.k // (16 if self.size in (".block16", ".scale_vec::4X") else 32)

    @property
    def idesc(self) -> int:
        types = FORMATS[self.a] << 7 | FORMATS[self.b] << 10
        scales = (self.scale == "ue8m0") << 23 | self.ids[0] << 29 | self.ids[1] << 4
        return (types | scales | self.n >> 3 << 17 | self.m >> 7 << 27 | (self.k == 96) << 31) ^ self.bits

    @property
    def halved(self) -> bool:
        """True if the upper half of N lies in lanes 64 to 127."""
        return self.group == 2 and self.m == 128

    def wanted(self) -> Any:
        wide = []
        for raw, format, scales in zip(self.data, (self.a, self.b), self.scales):
            values = raw.view(TYPES[format]).astype(float)
            factors = scales.view(TYPES[self.scale]).astype(float)
            wide.append(values * factors.repeat(self.k // self.blocks, axis=1))
        return wide[0] @ wide[1].T

    # --- shared memory

    def operand(self, which: int, raw: Any) -> Any:
        """The shared memory of an operand's rows, and its descriptor without an address."""
        packed = packed_bytes(raw, (self.a, self.b)[which])
        if self.k != 96:
            chunks = packed.shape[1] // 16
            image = packed.reshape(-1, 8, chunks, 16).transpose(0, 2, 1, 3).reshape(-1)
            return image, 128 >> 4 << 16 | chunks * 128 >> 4 << 32 | 1 << 46
        image = np.zeros((2, len(raw), 8, 16), np.uint8)
        for chunk in range(3):
            buffer, place = divmod(self.first // 16 + chunk, 8)
            row = np.arange(len(raw))
            image[buffer, row, place ^ row % 8] = packed[:, 16 * chunk : 16 * chunk + 16]
        return image.reshape(-1), 1024 >> 4 << 32 | 1 << 46 | 2 << 61 | int(self.continues) << 52

    def atoms(self, which: int, raw: Any) -> Any:
        """The atoms of an operand's scales: [block of K][rows], 512 bytes each, behind `ids` bytes."""
        rows, first = -(-len(raw) // 128) * 128, self.ids[which]
        columns = -(-(first + self.blocks) // 4) * 4
        wide = np.full((rows, columns), 0xFF, np.uint8)
        wide[: len(raw), first : first + self.blocks] = raw
        return self.halved_atoms(wide) if which and self.halved else self.reordered(wide)

    def halved_atoms(self, wide: Any) -> Any:
        """Atoms of the two halves of N, one behind the other, which one copy brings to lanes of their own."""
        parts = np.zeros((2, 128, wide.shape[1]), np.uint8)
        parts[:, : self.n // 2] = wide[: self.n].reshape(2, self.n // 2, -1)
        return np.concatenate([self.reordered(part) for part in parts]).reshape(1, 1024)

    @staticmethod
    def reordered(wide: Any) -> Any:
        rows, columns = wide.shape
        return wide.reshape(rows // 128, 4, 32, columns // 4, 4).transpose(3, 0, 2, 1, 4).reshape(-1, 512)

    def shared(self, cta: int) -> tuple[Any, list[int], list[str]]:
        """The shared memory of a CTA, the descriptors of A and B, and the copies of scales."""
        halves = [slice(cta * rows // self.group, (cta + 1) * rows // self.group) for rows in self.rows]
        image, at, descriptors, copies = np.zeros(SHARED, np.uint8), 1024, [], []
        for which in range(2):
            found, bits = self.operand(which, self.data[which][halves[which]])
            image[at - 1024 : at - 1024 + found.size] = found
            if self.k == 96:  # the rows go on in the second half
                bits |= (at + found.size // 2) >> 4 << 16
            descriptors.append(bits | (at + self.first) >> 4)
            at += -(-found.size // 1024) * 1024
        for which in range(2):
            rows = self.scales[which][halves[0]] if which == 0 else self.scales[1]
            for place, atom in enumerate(self.atoms(which, rows)):
                image[at - 1024 : at - 1024 + atom.size] = atom
                copy = CP.replace("32x128b.warpx4", "64x128b.warpx2::01_23") if atom.size == 1024 else CP
                column = (256, 320)[which] + 4 * place
                copies.append(f"add.u32 %r20, %r31, {column}; mov.b64 %x5, {at >> 4 | ATOM_DESCRIPTOR};" + copy)
                at += atom.size
        return image, descriptors, copies

    def run(self) -> Any:
        images, descriptors, copies = zip(*(self.shared(cta) for cta in range(self.group)))
        out = np.full((self.group, 128, self.n), -1, np.float32)
        loads = "".join(
            f"add.u32 %r33, %r34, {column}; tcgen05.ld.sync.aligned.32x32b.x8.b32 "
            "{%r0, %r1, %r2, %r3, %r4, %r5, %r6, %r7}, [%r33]; tcgen05.wait::ld.sync.aligned;"
            + "".join(f"st.global.b32 [%x1+{4 * (column + i)}], %r{i};" for i in range(8))
            for column in range(0, self.n // 2 if self.halved else self.n, 8)
        )
        addresses = "".join(
            f"add.u32 %r{25 + which}, %r31, {(256, 320)[which] | self.hints[which] << 30};" for which in range(2)
        )
        commit = "tcgen05.commit.cta_group::{group}.mbarrier::arrive::one.shared::cluster" + (
            ".b64 [%r29];" if self.group == 1 else ".multicast::cluster.b64 [%r29], %h1;"
        )
        body = f"""
            .shared .align 1024 .b8 tile[{SHARED}]; .shared .align 4 .b32 base; .shared .align 8 .b64 bar;
            mov.u32 %r30, tile; mov.u32 %r29, bar; mov.u32 %r28, %cluster_ctarank; mov.b16 %h1, 3;
            setp.lt.u32 %p2, %r39, 32; setp.eq.u32 %p0, %r39, 0; setp.eq.and.u32 %p3, %r28, 0, %p0;
            @%p0 mbarrier.init.shared.b64 [bar], 1;
            @%p2 tcgen05.alloc.cta_group::{{group}}.sync.aligned.shared::cta.b32 [base], 512;
            mov.u32 %r10, %r39; mad.lo.u32 %r11, %r28, {SHARED}, 0; cvt.u64.u32 %x1, %r11; add.s64 %x2, %x10, %x1;
            FILL: mul.lo.u32 %r12, %r10, 16; cvt.u64.u32 %x3, %r12; add.s64 %x3, %x2, %x3; add.u32 %r13, %r30, %r12;
            ld.global.v4.u32 {{{{%r0, %r1, %r2, %r3}}}}, [%x3]; st.shared.v4.u32 [%r13], {{{{%r0, %r1, %r2, %r3}}}};
            add.u32 %r10, %r10, 128; setp.lt.u32 %p4, %r10, {SHARED // 16}; @%p4 bra FILL;
            fence.proxy.async; bar.sync 0; barrier.cluster.arrive; barrier.cluster.wait;
            ld.shared.u32 %r31, [base]; shr.u32 %r35, %r39, 5; shl.b32 %r35, %r35, 21; add.u32 %r34, %r31, %r35;
            setp.eq.u32 %p5, 1, 0; {self.before} @!%p3 bra WAIT;
            {"".join(copies[0])} {addresses} mov.b64 %x6, {descriptors[0][0]}; mov.b64 %x7, {descriptors[0][1]};
            mov.b32 %r27, {self.idesc}; {self.extra}
            tcgen05.mma.cta_group::{{group}}.kind::{self.kind}.block_scale{self.size}
                [%r31], %x6, %x7, %r27, [%r25], [%r26], %p5;
            {commit}
            WAIT: mbarrier.try_wait.parity.shared.b64 %p1, [bar], 0; @!%p1 bra WAIT; tcgen05.fence::after_thread_sync;
            mad.lo.u32 %r14, %r28, 128, %r39; mul.wide.u32 %x1, %r14, {4 * self.n}; add.s64 %x1, %x1, %x11;
            {loads.replace("{", "{{").replace("}", "}}")} barrier.cluster.arrive; barrier.cluster.wait;
            @%p2 tcgen05.dealloc.cta_group::{{group}}.sync.aligned.b32 %r31, 512;"""
        body = body.format(group=self.group)
        run(body, np.concatenate(images), out, block=128, grid=self.group, cluster=self.group, target=self.target)
        return out

    def check(self) -> None:
        out, wanted = self.run(), self.wanted()
        if self.halved:
            half = self.n // 2
            out = np.concatenate([out[:, :64, :half], out[:, 64:, :half]], axis=2)
        np.testing.assert_allclose(out.reshape(-1, self.n), wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())


def packed_bytes(raw: Any, format: str) -> Any:
    """Rows of elements as they lie in shared memory: 4 and 6 bits packed, padded to 16 bytes in 8-bit kinds."""
    if format == "packed e2m1":
        return raw[:, 0::2] | raw[:, 1::2] << 4
    if format in BITS:
        bits = np.unpackbits(raw[..., None], axis=-1, bitorder="little")[..., : BITS[format]]
        packed = np.packbits(bits.reshape(len(raw), raw.shape[1] // 16, -1), axis=-1, bitorder="little")
        return np.pad(packed, ((0, 0), (0, 0), (0, 16 - packed.shape[-1]))).reshape(len(raw), -1)
    return raw


FP4 = {"a": "packed e2m1", "b": "packed e2m1", "k": 64}
NVFP4: dict[str, Any] = FP4 | {"kind": "mxf4nvf4", "size": ".block16", "scale": "ue4m3"}
MXFP4: dict[str, Any] = FP4 | {"kind": "mxf4"}


@pytest.mark.parametrize(
    "how",
    [
        {"n": 8},
        {"n": 136, "size": "", "ids": (1, 3)},
        {"a": "e2m1", "b": "e5m2", "ids": (3, 0)},
        {"a": "e2m3", "b": "e3m2", "n": 24, "size": ".scale_vec::1X"},
        MXFP4 | {"n": 256},
        MXFP4 | {"n": 40, "ids": (2, 0), "size": ""},
        NVFP4 | {"n": 200},
        NVFP4 | {"size": ".block32", "scale": "ue8m0", "ids": (0, 2)},
        NVFP4 | {"size": ".scale_vec::4X", "scale": "ue8m0"},
        {"ids": (2, 1), "hints": (2, 1)},
    ],
    ids=str,
)
def test_a_product_of_one_cta(how: dict[str, Any]) -> None:
    Product(**how).check()


@pytest.mark.parametrize(
    "how",
    [
        {"m": 256, "n": 32, "ids": (2, 1)},
        NVFP4 | {"m": 256, "n": 224},
        MXFP4 | {"m": 128, "n": 48},
        NVFP4 | {"m": 128, "n": 224},
    ],
    ids=str,
)
def test_a_product_of_a_pair(how: dict[str, Any]) -> None:
    """Each CTA has the scales of its half of M, and of all of N. For M = 128, halves of N have lanes of their own."""
    Product(group=2, **how).check()


LONG: dict[str, Any] = {"k": 96, "group": 2, "m": 256, "target": "sm_103a"}


@pytest.mark.slow
@pytest.mark.parametrize("first", [0, 48, 96, 112])
@pytest.mark.parametrize(
    "how",
    [MXFP4 | {"ids": (1, 0), "n": 32}, MXFP4 | {"ids": (2, 3), "n": 160}, NVFP4 | {"ids": (0, 2), "n": 144}],
    ids=str,
)
def test_k_of_96(how: dict[str, Any], first: int) -> None:
    """Rows that pass 128 bytes go on in a second buffer; scales that pass a word go on in the next block of K."""
    Product(**how | LONG, first=first).check()


def test_k_of_96_of_one_cta() -> None:
    """As CUTLASS's SM103_MXF4_ULTRA_SS_VS, although table 39 has pairs of 256 rows alone."""
    Product(**NVFP4 | LONG | {"m": 128, "group": 1, "n": 48}, first=48).check()


BY_ONE_WARP = (
    "add.u32 %r33, %r34, 384; @%p2 tcgen05.st.sync.aligned.32x32b.x1.b32 [%r33], {{%r0}}; "
    "@%p2 tcgen05.wait::st.sync.aligned;"
)
ROWS = f"add.u32 %r20, %r31, 256; mov.b64 %x5, {1024 >> 4 | ATOM_DESCRIPTOR};" + CP.replace(
    "32x128b.warpx4", "128x128b"
)
BEYOND = f"mov.b64 %x5, {0x3FFF | ATOM_DESCRIPTOR};" + CP


@pytest.mark.parametrize(
    ("how", "text"),
    [
        ({"hints": (1, 0)}, "A's scales 0x40000100 says byte 1 in bits 30 and 31, and the instruction descriptor .* 0"),
        ({"extra": "add.u32 %r26, %r26, 0x100000;"}, "the address of B's scales 0x00100140 is of lane 16, not 0"),
        ({"extra": "add.u32 %r26, %r26, 192;"}, "reads scales of B from columns 512 to 512"),
        ({"extra": ROWS}, "reads scales of A from lane 0, column 256, which differ between the four quarters"),
        (
            {"before": BY_ONE_WARP, "extra": "add.u32 %r26, %r26, 64;"},
            "reads scales of B from tensor memory that nothing has written, at lane 1?.*, column 384",
        ),
        ({"extra": BEYOND}, "tcgen05.cp reads up to byte 262,.* of shared memory"),
        ({"extra": "add.u32 %r26, %r26, 64;"}, "reads scales of B from tensor memory that nothing has written"),
        (LONG | MXFP4 | {"k": 96, "target": "sm_100a"}, "are sm_103a's; this PTX is for sm_100a"),
        (MXFP4 | LONG | {"m": 128, "k": 96}, "a product of 128x16 for 2 CTAs; M is 256"),
        (MXFP4 | LONG | {"k": 96, "first": 96, "continues": False}, "passes the row of 128 bytes"),
        ({"n": 16, "bits": 1 << 16 ^ 1 << 17}, "128x24 for 1 CTAs; M is 128 and N one of 16, 32, 48, 64, 80 to 256"),
    ],
)
def test_what_stops(how: dict[str, Any], text: str) -> None:
    with pytest.raises(EmulationError, match=text):
        Product(**how).run()


@pytest.mark.parametrize(
    ("kind", "block", "bits", "text"),
    [
        ("mxf8f6f4", 32, 1 << 31, "0x88800000 has bits [31] set, which kind::mxf8f6f4 reserves"),
        ("mxf8f6f4", 32, 1 | 1 << 3 | 1 << 24, "has bits [0, 3, 24] set"),
        ("mxf8f6f4", 32, 2 << 7, "has formats 2 and 0"),
        ("mxf8f6f4", 32, 1 << 23, "has scales of UE4M3 (bit 23 is 0), which blocks of 16 have"),
        ("mxf4", 32, 1 << 7 | 1 << 10 | 1 << 15, "has bits [15] set, which kind::mxf4 reserves"),
        ("mxf4", 32, 1 << 7 | 5 << 10, "has bits [12] set"),
        ("mxf4nvf4", 32, 1 << 7 | 1 << 10 | 1 << 23, "has scales of UE4M3"),
        ("mxf4nvf4", 32, 1 << 7 | 1 << 10 | 1 << 29, "2 scales of a row of A from byte 1 on and of B from byte 0 on"),
        ("mxf4nvf4", 16, 1 << 7 | 1 << 10 | 2 << 4, "4 scales begin at one of (0,)"),
        ("mxf4nvf4", 16, 1 << 31 | 1 << 7 | 1 << 10 | 1 << 4, "6 scales begin at one of (0, 2)"),
    ],
)
def test_instruction_descriptors_that_stop(kind: str, block: int, bits: int, text: str) -> None:
    with pytest.raises(Undefined) as error:
        shape_of((1 << 23 | 1 << 27) ^ bits, kind, block)
    assert text in str(error.value)


@pytest.mark.parametrize(
    ("bits", "known"),
    [
        (0x08200480, ("packed e2m1", 128, 128, 64, "ue4m3")),
        (0x10400480, ("packed e2m1", 256, 256, 64, "ue4m3")),
        (0x90400480, ("packed e2m1", 256, 256, 96, "ue4m3")),
    ],
)
def test_known_instruction_descriptors(bits: int, known: tuple[Any, ...]) -> None:
    found = shape_of(bits, "mxf4nvf4", 16)
    assert (found.a, found.m, found.n, found.k, found.scale) == known


@pytest.mark.parametrize(
    "opcode", ["mxf4nvf4.block_scale", "mxf8f6f4.block_scale.scale_vec::2X", "mxf4.block_scale.block16", "mxf4"]
)
def test_sizes_of_blocks_that_a_kind_lacks(opcode: str) -> None:
    with pytest.raises(UnsupportedError, match="is not emulated"):
        run(f"tcgen05.mma.cta_group::1.kind::{opcode} [%r0], %x0, %x1, %r1, [%r2], [%r3], %p0;", target="sm_100a")


MMA_SYNC = [
    ("mxf8f6f4", "", "e4m3", "e5m2", "ue8m0", (3, 1), (2, 3)),
    ("mxf8f6f4", ".scale_vec::1X", "e2m1", "e3m2", "ue8m0", (0, 0), (1, 2)),
    ("mxf8f6f4", "", "e2m3", "e2m1", "ue8m0", (1, 1), (0, 0)),
    ("mxf4", "", "packed e2m1", "packed e2m1", "ue8m0", (2, 1), (0, 3)),
    ("mxf4nvf4", ".scale_vec::2X", "packed e2m1", "packed e2m1", "ue8m0", (0, 0), (2, 1)),
    ("mxf4nvf4", ".scale_vec::4X", "packed e2m1", "packed e2m1", "ue4m3", (0, 1), (0, 2)),
]
"""Kind, size, types of A, B and scales, and the byte and thread of A's and of B's scales."""


@pytest.mark.parametrize("case", MMA_SYNC, ids=str)
@pytest.mark.parametrize("in_registers", [False, True])
def test_mma_sync(case: Any, in_registers: bool) -> None:
    """nvcc writes scales in braces and their ids in registers of 16 bits; elements below 8 bits have a byte each."""
    kind, size, a, b, scale, of_a, of_b = case
    made = Product(kind, size, a, b, scale, m=16, n=8, k=64 if kind.startswith("mxf4") else 32)
    words = np.zeros((12, 32), np.uint32)
    data = [
        packed_bytes(raw, format) if made.k == 64 else raw << (2 if format == "e2m1" else 0)
        for raw, format in zip(made.data, (a, b))
    ]
    rows = [np.ascontiguousarray(each).view(np.uint32) for each in data]
    for t in range(32):
        for i in range(4):
            words[i, t] = rows[0][t // 4 + 8 * (i % 2), i // 2 * 4 + t % 4]
        for i in range(2):
            words[4 + i, t] = rows[1][t // 4, i * 4 + t % 4]
    scales = np.full((2, 32, 4), 0xFF, np.uint8)
    for row in range(16):
        scales[0, 4 * (row % 8) + 2 * of_a[1] + row // 8, of_a[0] : of_a[0] + made.blocks] = made.scales[0][row]
    for column in range(8):
        scales[1, 4 * column + of_b[1], of_b[0] : of_b[0] + made.blocks] = made.scales[1][column]
    words[6:8] = scales.view(np.uint32)[:, :, 0]
    ids, setup = [f"{{{byte}, {thread}}}" for byte, thread in (of_a, of_b)], ""
    names = ["%r6", "%r7"]
    if in_registers:
        setup = "".join(f"mov.b16 %h{i}, {value};" for i, value in enumerate((*of_a, *of_b)))
        ids, names = ["{%h0, %h1}", "{%h2, %h3}"], ["{%r6}", "{%r7}"]
    shape = f"m16n8k{made.k}.row.col"
    name = f"kind::{kind}.block_scale{size}"
    order = f"{name}.{shape}" if in_registers else f"{shape}.{name}"  # CUTLASS writes the kind first
    types = ".".join(("f32", a.split()[-1], b.split()[-1], "f32", scale))
    out = np.zeros((4, 32), np.float32)
    run(
        "mul.wide.u32 %x1, %r39, 4; add.s64 %x2, %x1, %x11; add.s64 %x1, %x1, %x10;"
        + "".join(f"ld.global.b32 %r{i}, [%x1+{128 * i}];" for i in range(12))
        + setup
        + f"mma.sync.aligned.{order}.{types} {{%r8, %r9, %r10, %r11}}, "
        f"{{%r0, %r1, %r2, %r3}}, {{%r4, %r5}}, {{%r8, %r9, %r10, %r11}}, {names[0]}, {ids[0]}, {names[1]}, {ids[1]};"
        + "".join(f"st.global.b32 [%x2+{128 * i}], %r{8 + i};" for i in range(4)),
        words,
        out,
        target="sm_120a",
    )
    wanted = made.wanted()
    found = np.array(
        [[out[column % 2 + 2 * (row // 8), row % 8 * 4 + column // 2] for column in range(8)] for row in range(16)]
    )
    np.testing.assert_allclose(found, wanted, rtol=0, atol=1e-6 * np.abs(wanted).max())


@pytest.mark.parametrize(
    ("ids", "text"),
    [
        (("{1, 0}", "{0, 0}"), r"takes 2 scales of A from byte 1 of thread 0; bytes are \(0, 2\) and threads 0 to 1"),
        (("{0, 2}", "{0, 0}"), "of A from byte 0 of thread 2"),
        (("{0, 0}", "{2, 4}"), "of B from byte 2 of thread 4; .* threads 0 to 3"),
    ],
)
def test_ids_of_mma_sync_that_stop(ids: tuple[str, str], text: str) -> None:
    with pytest.raises(EmulationError, match=text):
        run(
            "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0 {%r8, %r9, %r10, %r11}, "
            f"{{%r0, %r1, %r2, %r3}}, {{%r4, %r5}}, {{%r8, %r9, %r10, %r11}}, %r6, {ids[0]}, %r7, {ids[1]};",
            target="sm_120a",
        )
