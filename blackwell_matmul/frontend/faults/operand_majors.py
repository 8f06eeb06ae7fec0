"""Operands of wgmma and tcgen05.mma in either order: K-major, or MN-major such as a row-major B[k, n].

tilus 0.2.0 lays out every operand K-major, in whatever order the script declares it. By TMA it loads only tiles of one
box, with rows of 128 bytes. In its wgmma both transpose bits are 0, and its tcgen05.mma refuses an A and a B of
different orders. The instructions take all four combinations (PTX ISA, "wgmma.mma_async": imm-trans-a, imm-trans-b of
16-bit types; "tcgen05: Instruction descriptor": Transpose A, Transpose B). Removable when tilus supports them.

A shared tensor is contiguous along its last dimension. If that is the m of A or the n of B, here called MN-major, an
operand is in spans of up to 128 bytes along m or n. The spans follow each other and are swizzled. TMA loads each span
as one box, and all boxes signal the same mbarrier.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
from tilus.backends.emitters.cuda import cp_async_tensor, wgmma
from tilus.backends.emitters.cuda.tcgen05.mma import TMemoryMmaSSEmitter
from tilus.ir import tools
from tilus.ir.inst import Instruction
from tilus.ir.instructions.cuda.tcgen05 import Tcgen05MmaSSInst
from tilus.ir.instructions.cuda.wgmma import WgmmaMmaSSInst
from tilus.ir.instructions.generic import PermuteSharedInst, ReshapeSharedInst, SliceSharedInst
from tilus.ir.layout.cuda.tcgen05 import smem
from tilus.ir.layout.ops import shared_reshape
from tilus.ir.tensor import SharedTensor
from tilus.transforms import layout_inference

from blackwell_matmul.frontend.faults.tilus_compat import given, mended, replaced

TRANSPOSED_BITS = 16
"""Bits of element types whose MN-major operands both instructions can read."""

SPAN_WIDTHS_BYTES = (128, 64, 32)
"""Widths of rows in bytes that TMA swizzles and the tensor core reads, widest first."""

TMA_ALIGNMENT_BYTES = 128
"""The alignment of a box in shared memory, in bytes (PTX ISA, "cp.async.bulk.tensor")."""


def any_major() -> AbstractContextManager[None]:
    """Give MN-major operands their layouts, load them, and multiply them."""
    return mended(
        (layout_inference, "infer_layout", given(_with_majors)),
        (wgmma.WgmmaMmaSSEmitter, "emit_wgmma", given(_with_transpose_bits)),
        (TMemoryMmaSSEmitter, "check_majorness", given(_of_each_operand)),
        (cp_async_tensor.CopyAsyncTensorGlobalToSharedInstEmitter, "emit", given(_by_boxes)),
    )


# layouts


def _with_majors(infer: Callable[[Any], Any], func: Any) -> Any:
    """Infer layouts with the facts known of each operand before: its order, or the layout that the script gave."""
    made = views(tools.collect(func, types=[Instruction]))
    known = {tensor: layout for tensor, rows in _operands(func) if (layout := _layout(tensor, rows, made))}
    return infer(tools.rewrite(func, {tensor: tensor.with_layout(layout) for tensor, layout in known.items()}))


def views(nodes: Iterable[Any]) -> dict[Any, Any]:
    """Return the instruction that makes each view of a shared tensor, for the views among some nodes of a script."""
    kinds = (SliceSharedInst, PermuteSharedInst, ReshapeSharedInst)
    return {node.output: node for node in nodes if isinstance(node, kinds)}


def _operands(func: Any) -> Iterator[tuple[Any, int]]:
    """Yield each A and B in shared memory without a layout, and the number of its dimension that is m or n."""
    for inst in tools.collect(func, types=[WgmmaMmaSSInst, Tcgen05MmaSSInst]):
        for rows, tensor in enumerate(inst.inputs[:2]):
            if len(tensor.shape) == 2 and tensor.optional_layout is None:
                yield tensor, rows


def _layout(tensor: Any, rows: int, made: Any) -> Any:
    """Return the layout of an operand: the layout given for the viewed tensor, or MN-major; None for K-major, which
    tilus finds."""
    given = _given(tensor, made)
    if given is not None:
        return given
    if tensor.dtype.nbits != TRANSPOSED_BITS or contiguous(tensor, made) != rows:
        return None
    return _mn_major(tensor.shape, rows, tensor.dtype)


def _given(tensor: Any, made: Any) -> Any:
    """Return the layout derived from the viewed tensor's layout; None if the viewed tensor has none."""
    if tensor.optional_layout is not None or tensor not in made:
        return tensor.optional_layout
    inst = made[tensor]
    source = _given(inst.inputs[0], made)
    if source is None:
        return None
    if isinstance(inst, ReshapeSharedInst):
        return shared_reshape(source, tensor.shape)
    if isinstance(inst, PermuteSharedInst):
        return source.permute(dims=inst.dims)
    return source.slice(retain_dims=_retained(inst))


def _retained(inst: Any) -> list[int]:
    return list(range(len(inst.inputs[0].shape))) if inst.dims is None else list(inst.dims)


def contiguous(tensor: Any, made: Any) -> int | None:
    """Return the dimension of a view that is the last dimension of the viewed tensor; None if a slice removes it."""
    if tensor not in made:
        return len(tensor.shape) - 1
    inst = made[tensor]
    source, before = inst.inputs[0], contiguous(inst.inputs[0], made)
    if isinstance(inst, ReshapeSharedInst):
        return len(tensor.shape) - 1 if before == len(source.shape) - 1 else None
    dims = list(inst.dims) if isinstance(inst, PermuteSharedInst) else _retained(inst)
    return None if before is None or before not in dims else dims.index(before)


def _mn_major(shape: tuple[int, int], rows: int, dtype: Any) -> Any:
    """Return the layout with the widest spans that fill the rows; None where no span does."""
    modes = smem.Tcgen05SwizzleMode
    extent, depth = shape[rows], shape[1 - rows]
    for nbytes, mode in zip(SPAN_WIDTHS_BYTES, (modes.B128_SWIZZLE, modes.B64_SWIZZLE, modes.B32_SWIZZLE), strict=True):
        if extent % (nbytes // dtype.nbytes) == 0 and depth % 8 == 0:
            layout = smem.generate_canonical_layout((extent, depth), dtype, "MN", mode).as_shared_layout()
            return layout if rows == 0 else layout.permute(dims=[1, 0])
    return None


# instructions


def _with_transpose_bits(emit: Callable[[Any, Any], None], self: Any, inst: Any) -> None:
    """Emit the same wgmma, with imm-trans-a and imm-trans-b for the operands' layouts."""
    a, b = (operand.as_shared_tensor() for operand in inst.inputs[:2])
    majors = [
        wgmma.canonicalize_shared_layout(*each) for each in ((a.layout, a.dtype), (b.layout.transpose(), b.dtype))
    ]
    bits = [int(found is not None and found.major_kind == "MN") for found in majors]
    multiply = wgmma.wgmma_async
    turned = lambda *args, trans_a, trans_b: multiply(*args, trans_a=bits[0], trans_b=bits[1])  # noqa: E731
    with replaced((wgmma, "wgmma_async", turned)):
        emit(self, inst)


def _of_each_operand(check: Any, a_major_kind: str, b_major_kind: str, type_size: int, swizzle_mode: Any) -> None:
    """Check the operands' orders; 16-bit operands may have any two."""
    if type_size != TRANSPOSED_BITS:
        check(a_major_kind, b_major_kind, type_size, swizzle_mode)


# TMA


def _by_boxes(emit: Callable[[Any, Any], None], self: Any, inst: Any) -> None:
    """Emit a load of a tile in spans, one box for each span."""
    shared = inst.inputs[0].as_shared_tensor()
    starts = spans(shared.layout, shared.dtype.nbits)
    if len(starts) < 2:
        emit(self, inst)
    else:
        _emit_boxes(self, inst, shared, starts)


@functools.cache
def spans(layout: Any, nbits: int) -> tuple[int, ...]:
    """Return the starts of the boxes of a load of such a tile, in elements; a single start where TMA loads the tile at
    once."""
    grid = layout.as_numpy_grid()
    for nbytes in SPAN_WIDTHS_BYTES:
        width = nbytes * 8 // nbits
        if grid.shape[-1] > width and grid.shape[-1] % width == 0:
            parts = np.split(grid, grid.shape[-1] // width, axis=-1)
            starts = tuple(int(part.min()) for part in parts)
            alike = all(np.array_equal(part - start, parts[0]) for part, start in zip(parts, starts, strict=True))
            aligned = all(start * nbits % (8 * TMA_ALIGNMENT_BYTES) == 0 for start in starts)
            if alike and aligned and np.ptp(parts[0]) == parts[0].size - 1:  # each in one piece
                return starts
    return (0,)


def _emit_boxes(self: Any, inst: Any, shared: Any, starts: tuple[int, ...]) -> None:
    """Load each box as tilus does, with one tensor map for all boxes."""
    self.assert_is_warp_aligned(inst, "TMA global to shared is a warp-cooperative instruction")
    width = shared.shape[-1] // len(starts)
    box = (*shared.shape[:-1], width)
    info = self.resolve_global_tensor_info(inst.inputs[1].as_global_tensor(), offsets=inst.offsets, dims=inst.dims)
    address = self.shared_tensor_shared_space_addr[shared]
    one = SharedTensor.create(shared.dtype, shape=box, optional_layout=_first_span(shared.layout, width))
    self.shared_tensor_shared_space_addr[one] = address
    tensor_map = ~self.create_tensor_map(info, self.resolve_shared_tensor_info(one), shared.dtype)
    options = {"mbarrier": inst.mbarrier, "cta_group": inst.cta_group, "cache_policy": inst.cache_policy}
    copy = cp_async_tensor.cp_async_tensor_global_to_shared
    if inst.multicast_mask is not None:
        copy, options["multicast_mask"] = cp_async_tensor.cp_async_tensor_global_to_cluster_shared, inst.multicast_mask
    for number, start in enumerate(starts):
        *outer, inner = inst.offsets
        self.append(
            copy(
                dst=address + start * shared.dtype.nbytes,
                src_tensor_map=tensor_map,
                coords=[inner + number * width, *reversed(outer)],
                predicate=self.contexts.leader_lane_ctx.leader_lane,
                **options,
            )
        )


def _first_span(layout: Any, width: int) -> Any:
    """Return the layout of the first `width` columns."""
    *outer, columns = layout.shape
    cut = shared_reshape(layout, [*outer, columns // width, width])
    return cut.slice(retain_dims=[*range(len(outer)), len(outer) + 1])
