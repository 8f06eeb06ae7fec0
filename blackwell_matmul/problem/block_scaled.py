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
"""Rows, blocks of K, and bytes of an atom of scales, one byte a scale."""

STEP_K = 32
"""Divisor of k: a row has whole blocks, and a multiple of 16 bytes for TMA. So has a result that is an operand next."""

LARGEST_E4M3, LARGEST_E2M1, SMALLEST_NORMAL_E4M3 = 448.0, 6.0, 2.0**-6
"""Largest numbers of both types, and the smallest normal one of e4m3 (OCP 8-bit Floating Point Specification; OCP
Microscaling Formats v1.0)."""


@dataclass(frozen=True)
class BlockFormat:
    """Types of a block-scaled operand. bits: of an element. block: elements along K with one scale. element, scale:
    torch's names of the types; two elements of 4 bits are in one byte. also: a type that elements of A or B may have in
    place of it."""

    bits: int
    block: int
    element: str
    scale: str
    also: str = ""

    @property
    def elements(self) -> tuple[str, ...]:
        """Return torch's names of all types of elements."""
        return (self.element, self.also) if self.also else (self.element,)

    @property
    def per_byte(self) -> int:
        return 8 // self.bits

    @property
    def largest(self) -> float:
        """Return the largest element."""
        return LARGEST_E4M3 if self.bits == 8 else LARGEST_E2M1

    @property
    def atom_k(self) -> int:
        """Return the elements along K of an atom."""
        return ATOM_BLOCKS * self.block

    def atoms(self, rows: int, k: int) -> tuple[int, int]:
        """Return the atoms along the rows and along K."""
        return -(-rows // ATOM_ROWS), -(-k // self.atom_k)

    def tile_atoms(self, rows_a: int, rows_b: int, block_k: int) -> tuple[int, int]:
        """Return the atoms of A and of B in a k-tile; a tile of B may begin within an atom, and reaches into one more.

        rows_a: a multiple of `ATOM_ROWS`. block_k: a multiple of `atom_k`.
        """
        reach = rows_b + ATOM_ROWS - gcd(rows_b, ATOM_ROWS)
        (down_a, along), (down_b, _) = self.atoms(rows_a, block_k), self.atoms(reach, block_k)
        return down_a * along, down_b * along

    def scales(self, rows: int, k: int) -> int:
        """Return the number of scales of rows x k elements, those of the padding included."""
        down, along = self.atoms(rows, k)
        return ATOM_BYTES * down * along


BLOCK_SCALED: Mapping[str, BlockFormat] = MappingProxyType(
    {
        "mxfp8": BlockFormat(8, 32, "float8_e4m3fn", "float8_e8m0fnu", "float8_e5m2"),
        "mxfp4": BlockFormat(4, 32, "float4_e2m1fn_x2", "float8_e8m0fnu"),
        "nvfp4": BlockFormat(4, 16, "float4_e2m1fn_x2", "float8_e4m3fn"),
    }
)
"""Formats by name."""
