"""Kinds of tcgen05.mma and mma.sync with block scales, by the types of their operands (PTX ISA, "Block Scaling").

A block is a group of elements along K that share a scale. An MMA reads 32 bytes along K of each row.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from tilus.hidet.ir.dtypes import float8_e4m3, float8_e5m2
from tilus.ir.inst import InstructionError
from tilus.ir.instructions.cuda.mma_dot import AtomicMmaConfig

from blackwell_matmul.lang.byte_types import float4_e2m1x2, float8_e8m0
from blackwell_matmul.problem.block_scaled import ATOM_BLOCKS, ATOM_ROWS, BLOCK_SCALED

STEP_BYTES = 32
"""Bytes along K of a row of A or B that one MMA reads."""

ATOM_COLUMNS = 4
"""Columns of tensor memory, of 32 bits, that an atom of scales takes (PTX ISA, "tcgen05.cp", .32x128b)."""

COLUMN_ROWS = ATOM_ROWS // ATOM_COLUMNS
"""Rows whose scales are in one column of tensor memory: 32, one row for each lane of a warp."""

FRAGMENTS = AtomicMmaConfig.m16n8k32_i8_i32()
"""Layouts of A, B and C of one mma.sync with K in bytes. They are the layouts of 8-bit integers (PTX ISA, "Matrix
Fragments for mma.m16n8k32")."""

PER_BYTE = {float8_e4m3.name: 1, float8_e5m2.name: 1, float4_e2m1x2.name: 2}
"""Elements in a byte, by the type of A or B."""

_NUMBERS = {float8_e4m3.name: 0, float8_e5m2.name: 1, float4_e2m1x2.name: 1}
"""Number of a type in the instruction descriptor (PTX ISA, "Instruction descriptor")."""

_PTX = {float8_e4m3.name: "e4m3", float8_e5m2.name: "e5m2", float4_e2m1x2.name: "e2m1"}
"""Name of a type of A or B in the opcode of mma.sync."""

_KIND_OF = {
    (1, float8_e8m0.name, 32): "mxf8f6f4",
    (2, float8_e8m0.name, 32): "mxf4",
    (2, float8_e8m0.name, 16): "mxf4nvf4",
    (2, float8_e4m3.name, 16): "mxf4nvf4",
}
"""Name of the kind, by the elements in a byte, the type of the scales, and the elements of a block."""


@dataclass(frozen=True)
class Format:
    """Types of block-scaled operands. element, element_b: types of A and of B. scale: type of the scales. block:
    elements along K that share a scale."""

    element: Any
    scale: Any
    block: int
    element_b: Any

    @property
    def per_byte(self) -> int:
        return PER_BYTE[self.element.name]

    def of(self, types: str) -> Format:
        """Return the format with other types of A and B, given as "e4m3 e5m2"; "" returns an equal format."""
        a, b = (_BY_PTX[name] for name in types.split()) if types else (self.element, self.element_b)
        return replace(self, element=a, element_b=b)


_BY_PTX = {"e4m3": float8_e4m3, "e5m2": float8_e5m2}
"""8-bit types by their PTX names."""

_TYPES = {"float8_e4m3fn": float8_e4m3, "float4_e2m1fn_x2": float4_e2m1x2, "float8_e8m0fnu": float8_e8m0}
"""tilus's types, by torch's names."""

FORMATS = {
    name: Format(_TYPES[each.element], _TYPES[each.scale], each.block, _TYPES[each.element])
    for name, each in BLOCK_SCALED.items()
}
"""Formats by name: mxfp8 and mxfp4 of OCP Microscaling Formats, and NVIDIA's nvfp4."""


@dataclass(frozen=True)
class ScaledKind:
    """Kind of an MMA with scales.

    name: PTX's name after `.kind::`. k: elements along K that one MMA reads. block: elements that share a scale.
    scale_type, formats: numbers of the scales' type and of A's and B's types in the instruction descriptor.
    """

    name: str
    k: int
    block: int
    scale_type: int
    formats: tuple[int, int]

    @property
    def scales(self) -> int:
        """Return the number of scales that one MMA reads for each row."""
        return self.k // self.block

    def place(self, step: int) -> tuple[int, int]:
        """Return the index of the atom along K, and of the byte in a row's four, with the scales of the MMA `step`."""
        return divmod(step * self.scales, ATOM_BLOCKS)

    def descriptor(self, m: int, n: int, step: int) -> int:
        """Return the instruction descriptor of the MMA number `step` along K, of M by N (PTX ISA, "Instruction
        descriptor", kind::mxf8f6f4, mxf4*)."""
        _, byte = self.place(step)
        a, b = self.formats
        return byte << 4 | a << 7 | b << 10 | n >> 3 << 17 | self.scale_type << 23 | m >> 7 << 27 | byte << 29

    def opcode(self, cta_group: int) -> str:
        return f"tcgen05.mma.cta_group::{cta_group}.kind::{self.name}.block_scale.block{self.block}"

    def mma_sync(self, a: Any, b: Any) -> str:
        """Return the opcode of mma.sync for types of A and B (PTX ISA, "mma")."""
        scale = "ue8m0" if self.scale_type else "ue4m3"
        return (
            f"mma.sync.aligned.m16n8k{self.k}.row.col.kind::{self.name}.block_scale.scale_vec::{self.scales}X"
            f".f32.{_PTX[a.name]}.{_PTX[b.name]}.f32.{scale}"
        )


def kind_of(a: Any, b: Any, scale: Any, block: int) -> ScaledKind:
    """Return the kind for the types of A, B and both scales; raise InstructionError, with the valid types, for
    others."""
    per_byte = PER_BYTE.get(a.name)
    if per_byte is None or PER_BYTE.get(b.name) != per_byte:
        raise InstructionError(
            f"a product with scales is of {_types(1)} by {_types(1)}, or of {_types(2)} by {_types(2)}; a is {a.name} "
            f"and b is {b.name}"
        )
    name = _KIND_OF.get((per_byte, scale.name, block))
    if name is None:
        scales = ", or ".join(f"of {known} for {size}" for count, known, size in _KIND_OF if count == per_byte)
        raise InstructionError(f"{a.name} has scales {scales} elements; here are scales of {scale.name} for {block}")
    scale_type = int(scale.name == float8_e8m0.name)
    return ScaledKind(name, STEP_BYTES * per_byte, block, scale_type, (_NUMBERS[a.name], _NUMBERS[b.name]))


def _types(per_byte: int) -> str:
    return " or ".join(name for name, count in PER_BYTE.items() if count == per_byte)
