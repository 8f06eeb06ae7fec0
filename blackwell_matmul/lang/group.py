"""`BlockScaled`: the tcgen05 instructions of tilus, and those with scales."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilus.hidet.ir.expr import as_expr
from tilus.ir.tensor import TMemoryTensor
from tilus.lang.instructions import Tcgen05InstructionGroup

from blackwell_matmul.lang import misuse
from blackwell_matmul.lang.instructions import Tcgen05CopyScalesInst, Tcgen05MmaScaledInst, Tcgen05ViewScalesInst


class BlockScaled(Tcgen05InstructionGroup):
    """The instruction group `self.tcgen05` of a script with block-scaled products.

    Scales lie in atoms of 128 rows and 4 blocks of K, in global and shared memory as torch's `SWIZZLE_32_4_4` has them.
    What a product can read wrongly follows from types and shapes here: its kind, its K, and the bytes of its scales.
    """

    def alloc(self, dtype: Any, shape: Sequence[int], cta_group: int = 1) -> Any:
        """Allocate as tilus does; a sentence where the columns that are left do not suffice."""
        misuse.room(self._builder, dtype, shape, f"alloc of shape {tuple(shape)}")
        return super().alloc(dtype, shape, cta_group)

    def alloc_scales(self, dtype: Any, rows: int, blocks: int, cta_group: int = 1) -> Any:
        """Allocate columns for the scales of an operand: 4 for each atom (PTX ISA, "Block Scaling").

        dtype: float8_e8m0 or float8_e4m3. rows: rows of A, or of B; of all of B in each CTA of a pair. blocks: blocks
        of K in the tile. Returns a tensor of bytes [atoms along K, atoms along rows, 128 lanes, 16].
        """
        shape = misuse.shape_of_scales(dtype, rows, blocks)
        misuse.room(self._builder, dtype, shape, f"alloc_scales of {rows} rows by {blocks} blocks")
        return super().alloc(dtype, shape, cta_group)

    def view_scales(self, tensor: Any, dtype: Any, rows: int, blocks: int) -> Any:
        """Return columns of an allocation as scales, of which `alloc_scales` tells the arguments and the result.

        tensor: float32 [128, columns], 4 columns for each atom, such as a slice beside the accumulators. One allocation
        serves all: each one is rounded up to a power of two.
        """
        shape = misuse.shape_of_scales(dtype, rows, blocks)
        misuse.columns_for_scales(tensor, shape)
        scales = TMemoryTensor.create(dtype=dtype, shape=shape)
        self._builder.append(Tcgen05ViewScalesInst(output=scales, inputs=(tensor,)))
        return scales

    def copy_scales(self, src: Any, dst: Any, cta_group: int = 1) -> None:
        """Copy scales from shared to tensor memory, four times over the lanes (PTX ISA, "tcgen05.cp": .warpx4).

        src: shared tensor [atoms along rows, atoms along K, 2, 256]. dst: scales in tensor memory. cta_group: 2 copies
        in both CTAs of a pair, in each from its own shared memory. Asynchronous: before products of the same warp
        without a wait; `commit` tells when the shared memory is free.
        """
        misuse.copy(self._builder, src, dst, cta_group)
        self._builder.append(Tcgen05CopyScalesInst(output=None, inputs=(dst, src), cta_group=cta_group))

    def mma_scaled(
        self,
        a: Any,
        b: Any,
        d: Any,
        scale_a: Any,
        scale_b: Any,
        *,
        block: int,
        enable_input_d: Any,
        first_row: Any = 0,
        cta_group: int = 1,
    ) -> None:
        """Multiply with a scale for each block along K: d = (a scale_a) (b scale_b) + d (PTX ISA, "tcgen05.mma").

        a: [128, k] and b: [k, n] in shared memory, K-major, k in bytes. d: float32 [128, n]. block: elements of K with
        one scale, 16 or 32. enable_input_d: False overwrites d. first_row: where the scales of b begin in their first
        atom, a multiple of 32. cta_group: 2 for a pair, each CTA with half of b and all of scale_b.
        """
        enable_input_d, first_row = as_expr(enable_input_d), as_expr(first_row)
        misuse.product(self._builder, a, b, d, scale_a, scale_b, block, first_row, cta_group)
        inputs = (a, b, d, scale_a, scale_b)
        self._builder.append(Tcgen05MmaScaledInst(None, inputs, block, enable_input_d, first_row, cta_group))
