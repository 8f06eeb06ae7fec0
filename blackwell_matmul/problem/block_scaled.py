"""Block-scaled formats: each block of elements along K has a scale (OCP Microscaling Formats; NVIDIA's nvfp4).

Scales lie in atoms of 128 rows and 4 blocks, padded to whole atoms (cuBLAS, "1D Block Scaling Factors Layout"; torch's
`SWIZZLE_32_4_4`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import gcd
from types import MappingProxyType

ATOM_ROWS, ATOM_BLOCKS, ATOM_BYTES = 128, 4, 512
"""Size of an atom of scales: 128 rows, 4 blocks along K, 512 bytes. A scale has one byte."""

STEP_K = 32
"""Divisor of k, in elements. A row then has whole blocks, and a multiple of 16 bytes, which TMA requires."""

LARGEST_E4M3, LARGEST_E2M1, SMALLEST_NORMAL_E4M3 = 448.0, 6.0, 2.0**-6
"""Largest numbers of e4m3 and e2m1, and the smallest normal number of e4m3 (OCP 8-bit Floating Point Specification; OCP
Microscaling Formats v1.0)."""


def atoms_of(rows: int, blocks: int) -> tuple[int, int]:
    """Return the number of atoms along the rows and along K for the scales of rows x blocks."""
    return -(-rows // ATOM_ROWS), -(-blocks // ATOM_BLOCKS)


@dataclass(frozen=True)
class BlockFormat:
    """Types of a block-scaled operand.

    bits: bits of an element. block: number of elements along K that share a scale. element, scale: torch's names of the
    types; a byte has two elements of 4 bits. also: second type that elements may have; "": none.
    """

    bits: int
    block: int
    element: str
    scale: str
    also: str = ""

    @property
    def elements(self) -> tuple[str, ...]:
        """Return torch's names of all types that elements may have."""
        return (self.element, self.also) if self.also else (self.element,)

    @property
    def per_byte(self) -> int:
        return 8 // self.bits

    @property
    def largest(self) -> float:
        """Return the largest number of the format's first element type."""
        return LARGEST_E4M3 if self.bits == 8 else LARGEST_E2M1

    @property
    def atom_k(self) -> int:
        """Return the number of elements along K whose scales are in one atom."""
        return ATOM_BLOCKS * self.block

    def atoms(self, rows: int, k: int) -> tuple[int, int]:
        """Return the number of atoms along the rows and along K."""
        return atoms_of(rows, -(-k // self.block))

    def tile_atoms(self, rows_a: int, rows_b: int, block_k: int) -> tuple[int, int]:
        """Return the number of atoms of A and of B that a k-tile needs.

        rows_a: a multiple of `ATOM_ROWS`. rows_b: any number; B's rows may then begin and end within an atom. block_k:
        a multiple of `atom_k`.
        """
        reach = rows_b + ATOM_ROWS - gcd(rows_b, ATOM_ROWS)
        (down_a, along), (down_b, _) = self.atoms(rows_a, block_k), self.atoms(reach, block_k)
        return down_a * along, down_b * along

    def scales(self, rows: int, k: int) -> int:
        """Return the number of scales of rows x k elements, padding included."""
        down, along = self.atoms(rows, k)
        return ATOM_BYTES * down * along


BLOCK_SCALED: Mapping[str, BlockFormat] = MappingProxyType(
    {
        "mxfp8": BlockFormat(8, 32, "float8_e4m3fn", "float8_e8m0fnu", "float8_e5m2"),
        "mxfp4": BlockFormat(4, 32, "float4_e2m1fn_x2", "float8_e8m0fnu"),
        "nvfp4": BlockFormat(4, 16, "float4_e2m1fn_x2", "float8_e4m3fn"),
    }
)
"""Block-scaled formats by name."""
