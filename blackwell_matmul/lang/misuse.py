"""Checks of this room's instructions while tilus reads the statement. Each check raises InstructionError."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

from tilus.hidet.ir.dtypes import float8_e4m3, float32, int32
from tilus.hidet.ir.expr import Constant, as_expr
from tilus.hidet.ir.tools import infer_type
from tilus.hidet.ir.type import DataType, PointerType
from tilus.ir.inst import InstructionError
from tilus.ir.instructions import AnnotateLayoutInst
from tilus.ir.instructions.cuda.tcgen05 import Tcgen05AllocInst, Tcgen05DeallocInst
from tilus.ir.layout import LayoutOperationError
from tilus.ir.layout.ops import divide
from tilus.ir.stmt import SeqStmt
from tilus.ir.tensor import GlobalTensor, RegisterTensor, SharedTensor, TMemoryTensor

from blackwell_matmul.frontend.faults.mma_tiles import WARPGROUP
from blackwell_matmul.frontend.faults.operand_majors import contiguous, views
from blackwell_matmul.frontend.recording import walk
from blackwell_matmul.lang.byte_types import float8_e8m0
from blackwell_matmul.lang.kinds import (
    ATOM_COLUMNS,
    COLUMN_ROWS,
    FRAGMENTS,
    STEP_BYTES,
    ScaledKind,
    kind_of,
)
from blackwell_matmul.problem.block_scaled import ATOM_BLOCKS, ATOM_BYTES, ATOM_ROWS, atoms_of

LANES, MOST_COLUMNS, FEWEST_COLUMNS = 128, 512, 32
"""Lanes and columns of tensor memory, and the fewest columns of an allocation (PTX ISA, "Tensor Memory",
"tcgen05.alloc")."""

REGISTERS = range(24, 257, 8)
"""Counts that setmaxnreg takes (PTX ISA, "setmaxnreg")."""

TYPES_OF_SCALES = (float8_e8m0, float8_e4m3)
LANE_BYTES = ATOM_BYTES // COLUMN_ROWS
"""Bytes of an atom in a lane of tensor memory. Each quarter of the lanes has a copy of the atom (`.warpx4`)."""

BOX = (2, 256)
"""Shape of an atom in shared memory, in bytes: a dimension of a TMA box has at most 256 elements."""


def require(holds: bool, sentence: str) -> None:
    if not holds:
        raise InstructionError(sentence)


# --- alloc


def shape_of_scales(dtype: Any, rows: Any, blocks: Any) -> tuple[int, int, int, int]:
    """Return the shape of scales in tensor memory: atoms along K, atoms along the rows, lanes, bytes."""
    require(dtype in TYPES_OF_SCALES, f"scales are {_names(TYPES_OF_SCALES)}; dtype is {getattr(dtype, 'name', dtype)}")
    for name, value in (("rows", rows), ("blocks", blocks)):
        require(isinstance(value, int) and value > 0, f"{name} of scales is {value}; it takes a whole number")
    tiles, along_k = atoms_of(rows, blocks)
    return along_k, tiles, LANES, LANE_BYTES


def columns_for_scales(tensor: Any, shape: tuple[int, ...]) -> None:
    wanted = (LANES, math.prod(shape[:2]) * ATOM_COLUMNS)
    fits = isinstance(tensor, TMemoryTensor) and tuple(tensor.shape) == wanted and tensor.dtype == float32
    found = f"{tensor.dtype.name} of shape {tuple(tensor.shape)}" if isinstance(tensor, TMemoryTensor) else "another"
    require(
        fits,
        f"scales of {shape[1] * ATOM_ROWS} rows by {shape[0] * ATOM_BLOCKS} blocks fill {wanted[1]} columns of tensor "
        f"memory, float32 of shape {wanted}; the tensor is {found}",
    )


def room(builder: Any, dtype: Any, shape: Any, what: str) -> None:
    """Refuse an allocation that needs more columns than earlier statements have left.

    tilus itself refuses arguments that describe no tensor.
    """
    if not isinstance(dtype, DataType) or len(shape) < 2 or not all(isinstance(extent, int) for extent in shape):
        return
    columns, left = _columns(dtype, shape), MOST_COLUMNS - sum(_taken(builder).values())
    require(
        columns <= left,
        f"{what} takes {columns} columns of tensor memory, a power of two from {FEWEST_COLUMNS} on, and {left} of "
        f"{MOST_COLUMNS} are left; a narrower accumulator, or scales of fewer blocks or stages, would fit",
    )


def _columns(dtype: Any, shape: Any) -> int:
    """Return the number of columns that tilus allocates, a power of two."""
    columns = math.prod(shape[:-2]) * shape[-1] * dtype.nbits // 32
    return max(FEWEST_COLUMNS, 1 << (int(columns) - 1).bit_length())


def _taken(builder: Any) -> dict[Any, int]:
    """Return the number of columns of each tensor that earlier statements have allocated and not freed."""
    taken: dict[Any, int] = {}
    for inst in _written(builder):
        if isinstance(inst, Tcgen05AllocInst):
            taken[inst.output] = _columns(inst.output.dtype, inst.output.shape)
        elif isinstance(inst, Tcgen05DeallocInst):
            taken.pop(inst.inputs[0], None)
    return taken


def _written(builder: Any) -> Iterator[Any]:
    """Yield the statements and instructions of the script before the current statement."""
    for statements in builder._stack:
        yield from walk(SeqStmt(tuple(statements)))


# --- copy


def copy(builder: Any, src: Any, dst: Any, cta_group: Any) -> None:
    _warp(builder, "copy_scales")
    _group(cta_group)
    _scales("dst", dst)
    require(isinstance(src, SharedTensor), "src of copy_scales must be a shared tensor")
    atoms, tiles = dst.shape[:2]
    wanted = (tiles, atoms, *BOX)
    require(
        tuple(src.shape) == wanted and src.dtype == dst.dtype,
        f"copy_scales into {dst.dtype.name} of {tiles * ATOM_ROWS} rows by {atoms * ATOM_BLOCKS} blocks reads a shared "
        f"tensor of {dst.dtype.name} of shape {wanted}; src is {src.dtype.name} of shape {tuple(src.shape)}",
    )


# --- product


def product(
    builder: Any, a: Any, b: Any, d: Any, scale_a: Any, scale_b: Any, block: Any, first_row: Any, cta_group: Any
) -> None:
    _warp(builder, "mma_scaled")
    _group(cta_group)
    for name, tensor in (("a", a), ("b", b)):
        require(isinstance(tensor, SharedTensor) and len(tensor.shape) == 2, f"{name} must be a 2D shared tensor")
    for name, tensor in (("scale_a", scale_a), ("scale_b", scale_b)):
        _scales(name, tensor)
    _one_type(scale_a, scale_b)
    kind = kind_of(a.dtype, b.dtype, scale_a.dtype, block)
    _k_major(builder, a, b)
    _shapes(kind, a, b, d, cta_group)
    blocks = a.shape[1] // STEP_BYTES * kind.scales
    _enough("scale_a", scale_a, a.shape[0], blocks, "")
    _enough("scale_b", scale_b, _last_row(d.shape[1], first_row), blocks, _of_the_pair(cta_group))


def _warp(builder: Any, name: str) -> None:
    threads = builder.tg_stack.current_num_threads
    require(threads == 32, f"{name} is executed by one warp, in self.single_warp(); here are {threads} threads")


def _group(cta_group: Any) -> None:
    require(cta_group in (1, 2), f"cta_group is {cta_group}; it is 1, or 2 for a pair of CTAs")


def _scales(name: str, tensor: Any) -> None:
    shaped = isinstance(tensor, TMemoryTensor) and len(tensor.shape) == 4
    made = shaped and tuple(tensor.shape[2:]) == (LANES, LANE_BYTES) and tensor.dtype in TYPES_OF_SCALES
    require(made, f"{name} must be scales in tensor memory, as self.tcgen05.alloc_scales gives them")


def _k_major(builder: Any, a: Any, b: Any) -> None:
    """Refuse an operand whose K is not its last dimension in memory, unless the script sets the layout."""
    made = views(_written(builder))
    for name, tensor, k, wanted in (("a", a, 1, "[m, k]"), ("b", b, 0, "[n, k] and .transpose() of it")):
        stored = contiguous(tensor, made)
        require(
            tensor.optional_layout is not None or stored in (k, None),
            f"mma_scaled reads A and B K-major, and {name} is contiguous along its {'mn'[name == 'b']}; give a shared "
            f"tensor of {wanted}",
        )


def _shapes(kind: ScaledKind, a: Any, b: Any, d: Any, cta_group: int) -> None:
    require(isinstance(d, TMemoryTensor) and len(d.shape) == 2, "d must be a 2D tensor in tensor memory")
    require(d.dtype == float32, f"a product with scales accumulates in float32; d is {d.dtype.name}")
    (m, k), (k_of_b, columns), (rows, n) = a.shape, b.shape, d.shape
    require(m == LANES, f"mma_scaled multiplies {LANES} rows of A in each CTA; a has {m}")
    held = "" if cta_group == 1 else ", half of its columns in each CTA"
    require(
        k == k_of_b and rows == m and n == columns * cta_group,
        f"d is (m, n) of a (m, k) and b (k, n){held}; a is {_shape(a)}, b is {_shape(b)} and d is {_shape(d)}",
    )
    step = 8 * cta_group
    require(n % step == 0 and n <= 256, f"n of mma_scaled is a multiple of {step} up to 256; d has {n} columns")
    _whole_steps(kind, k)


def _last_row(n: int, first_row: Any) -> int:
    """Return the end of B's rows in the atoms of its scales. If `first_row` is no constant, return the largest possible
    end."""
    if isinstance(first_row, Constant):
        first = int(first_row.value)
        require(
            first % COLUMN_ROWS == 0 and 0 <= first < ATOM_ROWS,
            f"first_row is {first}; it is a multiple of {COLUMN_ROWS} below {ATOM_ROWS}",
        )
        return first + n
    return n + ATOM_ROWS - math.gcd(n, ATOM_ROWS)


def _enough(name: str, scales: Any, rows: int, blocks: int, why: str) -> None:
    (atoms, tiles), wanted = scales.shape[:2], atoms_of(rows, blocks)
    require(
        atoms >= wanted[1] and tiles >= wanted[0],
        f"{name} has scales of {tiles * ATOM_ROWS} rows by {atoms * ATOM_BLOCKS} blocks, and the product reads {rows} "
        f"by {blocks}{why}; alloc_scales(dtype, rows={rows}, blocks={blocks}) fits",
    )


def _of_the_pair(cta_group: int) -> str:
    """Return the clause of an error that explains why scale_b of a CTA pair needs more rows than b has columns."""
    return ", as each CTA of a pair holds half of B and multiplies all of it" if cta_group == 2 else ""


# --- product of registers


def loaded_scales(src: Any, rows: Any, first_row: Any) -> None:
    found = f"{src.dtype.name} of shape {_shape(src)}" if isinstance(src, SharedTensor) else "another"
    require(
        isinstance(src, SharedTensor) and src.dtype in TYPES_OF_SCALES and tuple(src.shape[2:]) == BOX,
        f"load_scales reads a shared tensor of {_names(TYPES_OF_SCALES)} of shape (atoms along rows, atoms along K, "
        f"{BOX[0]}, {BOX[1]}); src is {found}",
    )
    held = src.shape[0] * ATOM_ROWS
    require(
        rows == held or (held == ATOM_ROWS and rows in (ATOM_ROWS // 4, ATOM_ROWS // 2)),
        f"rows is {rows}; {src.shape[0]} atoms along the rows have {held} rows, of which "
        f"{'32, 64 or ' if held == ATOM_ROWS else ''}all can be loaded",
    )
    first = int(first_row.value) if isinstance(first_row, Constant) else first_row
    require(
        not isinstance(first, int) or (first % rows == 0 and 0 <= first < held),
        f"first_row is {first}; with rows = {rows} it is a multiple of {rows} below {held}",
    )


def dot(builder: Any, a: Any, b: Any, c: Any, scale_a: Any, scale_b: Any, block: Any) -> None:
    for name, tensor in (("a", a), ("b", b), ("c", c)):
        require(isinstance(tensor, RegisterTensor) and len(tensor.shape) == 2, f"{name} must be a 2D register tensor")
    for name, tensor in (("scale_a", scale_a), ("scale_b", scale_b)):
        loaded = isinstance(tensor, RegisterTensor) and len(tensor.shape) == 5 and tensor.dtype in TYPES_OF_SCALES
        require(loaded, f"{name} must be scales in registers, as load_scales gives them")
    _one_type(scale_a, scale_b)
    kind = kind_of(a.dtype, b.dtype, scale_a.dtype, block)
    require(c.dtype == float32, f"a product with scales accumulates in float32; c is {c.dtype.name}")
    (m, k), (k_of_b, n) = a.shape, b.shape
    require(
        k == k_of_b and (m, n) == tuple(c.shape),
        f"c is (m, n) of a (m, k) and b (k, n); a is {_shape(a)}, b is {_shape(b)} and c is {_shape(c)}",
    )
    for name, rows in (("m", m), ("n", n)):
        require(
            rows >= 32 and rows & (rows - 1) == 0, f"{name} of dot_scaled is a power of two from 32 on; it is {rows}"
        )
    _whole_steps(kind, k)
    blocks = k // STEP_BYTES * kind.scales
    for name, scales, rows in (("scale_a", scale_a, m), ("scale_b", scale_b, n)):
        tiles, atoms, _, groups, _ = scales.shape
        held = tiles * groups * COLUMN_ROWS
        require(
            held == rows and atoms * ATOM_BLOCKS >= blocks,
            f"{name} has scales of {held} rows by {atoms * ATOM_BLOCKS} blocks, and the product reads {rows} by "
            f"{blocks}",
        )

    _fragments(builder, c)


def _fragments(builder: Any, c: Any) -> None:
    """Refuse an accumulator whose layout is not mma.sync's. The other operands' layouts follow from this layout."""
    told = [inst.layout for inst in _written(builder) if isinstance(inst, AnnotateLayoutInst) and inst.inputs[0] is c]
    lies = "as mma.sync has it, such as scheduling.mma_sync_fragments.accumulator_layout"
    require(bool(told), f"dot_scaled needs the layout of c: annotate_layout(c, layout) before it, {lies}")
    try:
        divide(told[-1], FRAGMENTS.lc)
    except LayoutOperationError:
        raise InstructionError(f"c of dot_scaled does not lie {lies}; its layout is {told[-1]}") from None


def _one_type(scale_a: Any, scale_b: Any) -> None:
    require(
        scale_a.dtype == scale_b.dtype,
        f"one product has scales of one type; scale_a is {scale_a.dtype.name} and scale_b is {scale_b.dtype.name}",
    )


def _whole_steps(kind: ScaledKind, k: int) -> None:
    require(
        k % STEP_BYTES == 0,
        f"k of kind::{kind.name} is a multiple of {kind.k}; a has {k * kind.k // STEP_BYTES} elements along k",
    )


def _shape(tensor: Any) -> tuple[int, ...]:
    return tuple(map(int, tensor.shape))


def _names(types: Any) -> str:
    return " or ".join(each.name for each in types)


# --- rounded arithmetic


def float32_registers(name: str, *tensors: Any) -> None:
    for tensor in tensors:
        found = f"{tensor.dtype.name}" if isinstance(tensor, RegisterTensor) else "another"
        require(found == float32.name, f"{name} takes register tensors of float32; one is {found}")


def eights(x: Any) -> None:
    require(x.shape[-1] % 8 == 0, f"e2m1x2 packs eights of elements; x has {x.shape[-1]} in its last dimension")


# --- counters


def count(builder: Any, counter: Any) -> None:
    _warp(builder, "atomic.inc")
    tensor = isinstance(counter, (RegisterTensor, SharedTensor, GlobalTensor))
    kind = None if tensor else infer_type(as_expr(counter))
    require(
        isinstance(kind, PointerType) and kind.base_type == int32,
        "counter of atomic.inc is the address of an int32 in global memory, such as g_counter[0].item_ptr()",
    )


# --- registers


def registers(builder: Any, action: str, count: Any) -> None:
    name, threads = f"setmaxnreg.{action}", builder.tg_stack.current_num_threads
    whole = threads % WARPGROUP == 0 and builder.tg_stack.current_thread_begin % WARPGROUP == 0
    require(whole, f"{name} is executed by whole warpgroups of {WARPGROUP} threads; here are {threads}")
    fits = type(count) is int and count in REGISTERS
    require(fits, f"{name} takes a multiple of 8 from {REGISTERS[0]} to {REGISTERS[-1]}, and count is {count!r}")
