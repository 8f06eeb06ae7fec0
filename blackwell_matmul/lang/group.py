"""Statements for block-scaled data and counters. `BlockScaled`: tilus's tcgen05 instructions, and those with scales.
`BlockScaledWarps`: mma.sync with scales. `Rounded`: arithmetic and conversions with the same bits as torch's.
`Atomics`: counters that all CTAs share. `MaxRegisters`: registers that a warpgroup gives to another."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from tilus.hidet.ir.dtypes import int32
from tilus.hidet.ir.expr import as_expr
from tilus.ir.instructions import ReshapeSharedInst, SliceSharedInst
from tilus.ir.layout import shared_layout
from tilus.ir.layout.ops import shared_row_major
from tilus.ir.tensor import RegisterTensor, SharedTensor, TMemoryTensor
from tilus.lang.instructions import InstructionGroup, Tcgen05InstructionGroup

from blackwell_matmul.lang import misuse
from blackwell_matmul.lang.byte_types import float4_e2m1x2
from blackwell_matmul.lang.instructions import (
    AtomicIncInst,
    DotScaledInst,
    PackE2m1Inst,
    SetMaxRegistersInst,
    Tcgen05CopyScalesInst,
    Tcgen05MmaScaledInst,
    Tcgen05ViewScalesInst,
)
from blackwell_matmul.lang.kinds import COLUMN_ROWS
from blackwell_matmul.lang.rounded import rounded
from blackwell_matmul.problem.block_scaled import ATOM_BYTES, ATOM_ROWS


class BlockScaled(Tcgen05InstructionGroup):
    """The instruction group `self.tcgen05` of a script with block-scaled products.

    Scales lie in atoms of 128 rows and 4 blocks of K, in global and shared memory in torch's order `SWIZZLE_32_4_4`.
    The MMA's kind, its K, and the bytes of its scales follow from the types and shapes of its operands.
    """

    def alloc(self, dtype: Any, shape: Sequence[int], cta_group: int = 1) -> Any:
        """Return a tensor in tensor memory, as tilus's alloc does; raise InstructionError if too few columns are
        left."""
        misuse.room(self._builder, dtype, shape, f"alloc of shape {tuple(shape)}")
        return super().alloc(dtype, shape, cta_group)

    def alloc_scales(self, dtype: Any, rows: int, blocks: int, cta_group: int = 1) -> Any:
        """Allocate columns for an operand's scales, 4 for each atom (PTX ISA, "Block Scaling").

        dtype: float8_e8m0 or float8_e4m3. rows: rows of A or of B; in a CTA pair, each CTA needs the scales of all rows
        of B. blocks: blocks of K in the tile. Returns a tensor of bytes [atoms along K, atoms along rows, 128 lanes,
        16].
        """
        shape = misuse.shape_of_scales(dtype, rows, blocks)
        misuse.room(self._builder, dtype, shape, f"alloc_scales of {rows} rows by {blocks} blocks")
        return super().alloc(dtype, shape, cta_group)

    def view_scales(self, tensor: Any, dtype: Any, rows: int, blocks: int) -> Any:
        """Return allocated columns as a tensor of scales. Other arguments and the result are those of `alloc_scales`.

        tensor: float32 [128, columns], 4 columns for each atom. A slice of the accumulators' allocation saves columns:
        tilus rounds each allocation up to a power of two.
        """
        shape = misuse.shape_of_scales(dtype, rows, blocks)
        misuse.columns_for_scales(tensor, shape)
        scales = TMemoryTensor.create(dtype=dtype, shape=shape)
        self._builder.append(Tcgen05ViewScalesInst(output=scales, inputs=(tensor,)))
        return scales

    def copy_scales(self, src: Any, dst: Any, cta_group: int = 1) -> None:
        """Copy scales from shared to tensor memory, to each of the four quarters of lanes (PTX ISA, "tcgen05.cp":
        .warpx4).

        src: shared tensor [atoms along rows, atoms along K, 2, 256]. dst: scales in tensor memory. cta_group: 2 copies
        in both CTAs of a pair, in each from its own shared memory. The copy is asynchronous. Later MMAs of the same
        warp need no wait; a `commit` tracks when src may be overwritten.
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

        a: [128, k], b: [k, n], both in shared memory and K-major, k in bytes. d: float32 [128, n]. block: elements
        along K that share a scale, 16 or 32. enable_input_d: False overwrites d. first_row: row of scale_b's first atom
        with the scales of b's first row, a multiple of 32. cta_group: 2 for a CTA pair; each CTA has half of b and all
        of scale_b.
        """
        enable_input_d, first_row = as_expr(enable_input_d), as_expr(first_row)
        misuse.product(self._builder, a, b, d, scale_a, scale_b, block, first_row, cta_group)
        inputs = (a, b, d, scale_a, scale_b)
        self._builder.append(Tcgen05MmaScaledInst(None, inputs, block, enable_input_d, first_row, cta_group))


class BlockScaledWarps(InstructionGroup):
    """Block-scaled products of register tensors by mma.sync, on GeForce Blackwell and GB10.

    The line `mma_sync = BlockScaledWarps()` in a script's class adds these instructions. Scales lie in atoms in shared
    memory, as TMA loads them. Each lane loads the scales that PTX assigns to it.
    """

    def load_scales(self, src: Any, rows: int, first_row: Any = 0) -> Any:
        """Load an operand's scales from shared memory into registers, for `dot_scaled`.

        src: shared tensor [atoms along rows, atoms along K, 2, 256]. rows: rows of the operand: all rows of the atoms,
        or 32 or 64 rows of a single atom. first_row: index of the first row in that atom, a multiple of `rows`. Returns
        a register tensor of bytes [atoms along rows, atoms along K, 32, rows of an atom / 32, 4].
        """
        misuse.loaded_scales(src, rows, first_row)
        tiles, atoms = src.shape[:2]
        whole = (tiles, atoms, COLUMN_ROWS, 4, 4)
        view = SharedTensor.create(src.dtype, shape=whole, optional_layout=shared_row_major(*whole))
        self._builder.append(ReshapeSharedInst(output=view, inputs=(src,)))
        return self._builder.load_shared(view if rows >= ATOM_ROWS else self._part(view, rows, first_row))

    def _part(self, view: Any, rows: int, first_row: Any) -> Any:
        """Return rows of an atom as a slice with an explicit layout; tilus 0.2.0 gives a slice the whole's layout."""
        shape, strides = (*view.shape[:3], rows // COLUMN_ROWS, 4), (view.shape[1] * ATOM_BYTES, ATOM_BYTES, 16, 4, 1)
        part = SharedTensor.create(view.dtype, shape=shape, optional_layout=shared_layout(shape, shape, strides))
        offsets = tuple(map(as_expr, (0, 0, 0, as_expr(first_row) // COLUMN_ROWS, 0)))
        self._builder.append(SliceSharedInst(output=part, inputs=(view,), offsets=offsets, dims=(0, 1, 2, 3, 4)))
        return part

    def dot_scaled(self, a: Any, b: Any, c: Any, scale_a: Any, scale_b: Any, *, block: int) -> Any:
        """Multiply with a scale for each block along K: return (a scale_a) (b scale_b) + c (PTX ISA, "mma").

        a: [m, k], b: [k, n], both in registers, k in bytes. c: float32 [m, n] with a layout set by `annotate_layout`.
        scale_a, scale_b: results of `load_scales`. block: elements along K that share a scale, 16 or 32. m and n are
        powers of two, at least 32.
        """
        misuse.dot(self._builder, a, b, c, scale_a, scale_b, block)
        d = RegisterTensor.create(c.dtype, shape=c.shape)
        self._builder.append(DotScaledInst(d, (a, b, c, scale_a, scale_b), block))
        return d


class Rounded(InstructionGroup):
    """Arithmetic and conversions of float32 register tensors, each rounded as IEEE 754 and PTX specify.

    The line `rounded = Rounded()` in a script's class adds these instructions. They keep subnormal numbers. tilus's
    operators flush subnormal numbers to zero, divide approximately, and may fuse a product and a sum.
    """

    def add(self, x: Any, y: Any) -> Any:
        """Return x + y; dimensions of extent 1 broadcast."""
        return self._rounded("add", x, y)

    def mul(self, x: Any, y: Any) -> Any:
        """Return x * y; dimensions of extent 1 broadcast."""
        return self._rounded("mul", x, y)

    def div(self, x: Any, y: Any) -> Any:
        """Return x / y; dimensions of extent 1 broadcast."""
        return self._rounded("div", x, y)

    def _rounded(self, operator: str, x: Any, y: Any) -> Any:
        misuse.float32_registers(operator, x, y)
        return self._builder.elementwise_binary(x, y, f_compute=rounded(operator))

    def ue8m0(self, x: Any, up: bool) -> Any:
        """Return x in e8m0, as an int32 with the byte.

        up: True returns the smallest power of two that is at least x, False the largest that is at most x. Bytes 0 to
        254 are 2^-127 to 2^127; an x outside of this range gets the nearest power (PTX ISA, "cvt"). x: at least 0.
        """
        misuse.float32_registers("ue8m0", x)
        return self._builder.elementwise_unary(x, f_compute=rounded("power_up" if up else "power_down"))

    def magnitude(self, x: Any) -> Any:
        """Return the bits of |x| as an int32. They compare as the magnitudes do; NaN's are the largest."""
        misuse.float32_registers("magnitude", x)
        return self._builder.elementwise_unary(x, f_compute=rounded("magnitude"))

    def e2m1x2(self, x: Any) -> Any:
        """Return x [.., n] in e2m1, two in a byte [.., n / 2], the even element in the low four bits (PTX ISA, "cvt").

        Numbers beyond 6 or -6 become 6 or -6; NaN becomes 6. Each thread must hold groups of eight adjacent elements.
        """
        misuse.float32_registers("e2m1x2", x)
        misuse.eights(x)
        packed = RegisterTensor.create(float4_e2m1x2, shape=[*x.shape[:-1], x.shape[-1] // 2])
        self._builder.append(PackE2m1Inst(output=packed, inputs=(x,)))
        return packed


class Atomics(InstructionGroup):
    """Atomic operations on counters in global memory.

    The line `atomic = Atomics()` in a script's class adds these instructions.
    """

    def inc(self, counter: Any, last: Any) -> Any:
        """Increment a counter, and return its old value as an int32 register tensor [1] (PTX ISA, "atom": .inc).

        counter: address of an int32 in global memory, `g_counter[0].item_ptr()`. last: value after which the counter
        becomes 0. One warp executes the instruction and counts once. The order of all CTAs' counts is not fixed; the
        instruction orders no other access to memory (.relaxed).
        """
        misuse.count(self._builder, counter)
        old = RegisterTensor.create(int32, shape=[1])
        self._builder.append(AtomicIncInst(output=old, inputs=(), counter=as_expr(counter), last=as_expr(last)))
        return old


class MaxRegisters(InstructionGroup):
    """Transfer of registers from warpgroups that need few to those that multiply (PTX ISA, "setmaxnreg").

    The line `setmaxnreg = MaxRegisters()` in a script's class adds these instructions. The threads of a CTA start with
    as many registers each as an SM has for them, a multiple of 8: 168 for 384 threads, and 128 for 512. A whole
    warpgroup executes the instruction, with a count that is a multiple of 8 from 24 to 256.
    """

    def dec(self, count: int) -> None:
        """Keep `count` registers in each thread, and return the others to the CTA's pool."""
        self._set("dec", count)

    def inc(self, count: int) -> None:
        """Wait until the CTA's pool has enough registers, and have `count` in each thread."""
        self._set("inc", count)

    def _set(self, action: str, count: int) -> None:
        misuse.registers(self._builder, action, count)
        self._builder.append(SetMaxRegistersInst(output=None, inputs=(), action=action, count=count))
