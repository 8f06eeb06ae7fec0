"""Shapes of tcgen05.mma: the instruction descriptor, its legal values, and D's layout in tensor memory."""

from __future__ import annotations

import functools
from dataclasses import dataclass

import numpy as np

from blackwell_matmul.emulator.lanes import Array
from blackwell_matmul.emulator.operands import ELEMENTS_IN_CHUNK, bit_mask
from blackwell_matmul.emulator.spaces import Undefined
from blackwell_matmul.emulator.unknown import Known

SCALE_BLOCKS: Known[str, Known[str, int]] = Known(
    {
        "mxf8f6f4": Known({"": 32, "scale_vec::1X": 32, "block32": 32}),
        "mxf4": Known({"": 32, "scale_vec::2X": 32, "block32": 32}),
        "mxf4nvf4": Known({"scale_vec::2X": 32, "block32": 32, "scale_vec::4X": 16, "block16": 16}),
    }
)
"""Number of elements along K that share a scale, by kind and qualifier, "" for none (tables 36 and 57)."""


SCALE_IDS = {1: (0, 1, 2, 3), 2: (0, 2), 3: (0, 1, 2, 3), 4: (0,), 6: (0, 2)}
"""Bytes at which a row's scales may begin, by their number (table 37, and "Scale Factor A ID" of tcgen05.mma)."""


@dataclass(frozen=True, eq=False)  # compared by identity, as `shape_of` caches its results
class Shape:
    """Fields of an instruction descriptor of 32 bits (PTX ISA, "Instruction Descriptor"): types, majors, M and N.

    m: over all CTAs. group: number of CTAs. stationary: True for `.ws`. block: elements that share a scale, 0 for none.
    scales: index of the byte that holds the first scale of A and of B.
    """

    m: int
    n: int
    k: int
    d: str
    a: str
    b: str
    a_k_major: bool
    b_k_major: bool
    negate: bool
    saturates: bool
    block: int
    scale: str
    scales: tuple[int, int]
    group: int = 1
    stationary: bool = False

    @property
    def rows(self) -> int:
        """Return the rows of one CTA."""
        return self.m // self.group

    @property
    def stacked(self) -> int:
        """Return the number of parts of N that are in lanes of their own ("Data Path Layout Organization")."""
        return 128 // self.rows if self.stationary or self.group == 2 else 1

    @property
    def skips_lanes(self) -> bool:
        """Return True if a CTA's rows use only the lower 16 of each 32 lanes."""
        return self.rows == 64 and self.stacked == 1


@dataclass(frozen=True)
class MmaKind:
    """A kind of tcgen05.mma. k: K of one instruction. formats: types of A and B by their number in the instruction
    descriptor; accumulators: types of D. reserved: bits of the descriptor that must be zero."""

    k: int
    formats: dict[int, str]
    accumulators: dict[int, str]
    reserved: int


_FLOATS_OF_8_BITS = {0: "e4m3", 1: "e5m2", 3: "e2m3", 4: "e3m2", 5: "e2m1"}
_PACKED, _SCALED = {1: "packed e2m1"}, {0: "f32"}
MMA_KINDS = {
    "f16": MmaKind(16, {0: "f16", 1: "bf16"}, {0: "f16", 1: "f32"}, bit_mask(3, 6, 23, 29)),
    "tf32": MmaKind(8, {2: "tf32"}, {1: "f32"}, bit_mask(3, 6, 23, 29)),
    "i8": MmaKind(32, {0: "u8", 1: "s8"}, {2: "s32"}, bit_mask(6, 13, 14, 23, 29)),
    "f8f6f4": MmaKind(32, _FLOATS_OF_8_BITS, {0: "f16", 1: "f32"}, bit_mask(3, 6, 23, 29)),
    "mxf8f6f4": MmaKind(32, _FLOATS_OF_8_BITS, _SCALED, bit_mask(0, 1, 3, 6, 24, 25, 26, 31)),
    "mxf4": MmaKind(64, _PACKED, _SCALED, bit_mask(0, 1, 3, 6, 12, 15, 16, 24, 25, 26)),
    "mxf4nvf4": MmaKind(64, _PACKED, _SCALED, bit_mask(0, 1, 3, 6, 12, 15, 16, 24, 25, 26)),
}
"""Kinds by name (PTX ISA, "Instruction Descriptor", tables 42 to 44)."""

LONG_K = 96
"""K of the fp4 kinds if bit 31 of the instruction descriptor is set, on sm_103a.

Table 39 allows only CTA pairs with 256 rows. CUTLASS also uses one CTA with 128 rows (`SM103_MXF4_ULTRA_SS_VS`).
"""


@functools.lru_cache(maxsize=256)
def shape_of(bits: int, kind: str, block: int, group: int = 1, stationary: bool = False) -> Shape:
    """Return the fields of an instruction descriptor; raise Undefined for illegal bits. block: elements that share a
    scale, 0 for none."""
    known, scaled = MMA_KINDS[kind], block > 0
    text = f"the instruction descriptor {bits:#010x}"
    if bits >> 2 & 1:
        raise Undefined("a product of sparse operands is not emulated")
    if bits >> 30 and not scaled:
        raise Undefined(f"{text} has a shift of B (bits 30 and 31), which is not emulated")
    if bits & known.reserved:
        wrong = [bit for bit in range(32) if bits & known.reserved & 1 << bit]
        raise Undefined(f"{text} has bits {wrong} set, which kind::{kind} reserves")
    a, b, d = bits >> 7 & 7, bits >> 10 & 7, 0 if scaled else bits >> 4 & 3
    if a not in known.formats or b not in known.formats:
        raise Undefined(f"{text} has formats {a} and {b}; kind::{kind} has {known.formats}")
    if d not in known.accumulators:
        raise Undefined(f"{text} has accumulator format {d}; kind::{kind} has {known.accumulators}")
    found = Shape(
        m=(bits >> 27 & 3) << 7 if scaled else (bits >> 24 & 31) << 4, n=(bits >> 17 & 63) << 3,
        k=LONG_K if scaled and bits >> 31 else known.k, d=known.accumulators[d], a=known.formats[a],
        b=known.formats[b], a_k_major=not bits >> 15 & 1, b_k_major=not bits >> 16 & 1,
        negate=bool((bits >> 13 ^ bits >> 14) & 1), saturates=not scaled and bool(bits >> 3 & 1), block=block,
        scale="ue8m0" if bits >> 23 & 1 else "ue4m3", scales=(bits >> 29 & 3, bits >> 4 & 3), group=group,
        stationary=stationary,
    )  # fmt: skip
    if scaled:
        _verify_scales(found, text)
    return found


def _verify_scales(shape: Shape, text: str) -> None:
    """Check PTX ISA, "Valid combinations of scale_vectorsize with types and MMA-Kind" and "Scale Factor A ID"."""
    if shape.scale == "ue4m3" and shape.block != 16:
        raise Undefined(f"{text} has scales of UE4M3 (bit 23 is 0), which blocks of 16 have; blocks of 32 have UE8M0")
    count = shape.k // shape.block
    if not {*shape.scales} <= {*SCALE_IDS[count]}:
        raise Undefined(
            f"{text} has {count} scales of a row of A from byte {shape.scales[0]} on and of B from byte "
            f"{shape.scales[1]} on; {count} scales begin at one of {SCALE_IDS[count]}"
        )


@functools.lru_cache(maxsize=256)
def verify(shape: Shape) -> None:
    """Check PTX ISA, "Matrix Shape" (table 39), and N of a transposed B of 8 bits (table 52)."""
    group = shape.group
    heights = [32, 64, 128] if shape.stationary else [64 * group, 128 * group]
    if shape.block:
        heights = [height for height in heights if height >= 128 * (group if shape.k == LONG_K else 1)]
    columns = _columns(shape)
    if shape.m not in heights or shape.n not in columns:
        raise Undefined(
            f"a product of {shape.m}x{shape.n} for {group} CTAs; M is {' or '.join(map(str, heights)) or 'none'} "
            f"and N one of {', '.join(map(str, columns[:5]))}{f' to {columns[-1]}' * (len(columns) > 5)}"
        )


def _columns(shape: Shape) -> list[int]:
    if shape.stationary:
        return [64, 128, 256]
    is_transposed_byte = not shape.b_k_major and ELEMENTS_IN_CHUNK[shape.b] == 16
    step = (16 if is_transposed_byte or (shape.d == "s32" and shape.group == 2) else 8) * shape.group
    return [n for n in range(step, 257, step) if shape.d != "s32" or n <= 32 or n % 16 == 0]


def row_lanes(shape: Shape) -> Array:
    """Return the lane of each row of a CTA, for the first part of N."""
    row = np.arange(shape.rows)
    return row // 16 * 32 + row % 16 if shape.skips_lanes else row


@functools.lru_cache(maxsize=256)
def layout(shape: Shape) -> tuple[Array, Array]:
    """Return lane and column of each element of a CTA's rows ("Data path layouts"), as read-only arrays."""
    column, width = np.arange(shape.n)[None, :], shape.n // shape.stacked
    lane = row_lanes(shape)[:, None] + shape.rows * (column // width)
    return lane, column % width + 0 * lane
