"""Views of global memory whose elements tilus 0.2.0 counts in 32 bits.

TMA has coordinates for each dimension. Every other access computes one element offset, as an int32: it wraps beyond
2**31 - 1 and reaches memory in front of the view. Removable when tilus computes these offsets in 64 bits.
"""

from __future__ import annotations

from typing import Any

from tilus.hidet.ir.tools import rewrite
from tilus.ir.instructions import GlobalViewInst
from tilus.ir.instructions.cuda.cp_async_tensor import (
    CopyAsyncTensorGlobalToSharedInst,
    CopyAsyncTensorSharedToGlobalInst,
)

from blackwell_matmul.frontend.identity import IdentityMap
from blackwell_matmul.frontend.recording import instructions

MOST_OFFSET = 2**31 - 1

TOO_WIDE = "has an element beyond 2**31 - 1, and tilus counts elements in 32 bits; use TMA, or views of parts of it"
"""Clause that says what is wrong with a view; its subject, the view's name, precedes it."""

BY_COORDINATES = (CopyAsyncTensorGlobalToSharedInst, CopyAsyncTensorSharedToGlobalInst)


def counted_views(function: Any) -> list[GlobalViewInst]:
    """Return the views that some instruction accesses, or slices, by an element offset."""
    insts = instructions(function)
    by_offset = (inst for inst in insts if not isinstance(inst, BY_COORDINATES))
    counted = IdentityMap((tensor, True) for inst in by_offset for tensor in inst.inputs)
    return [inst for inst in insts if isinstance(inst, GlobalViewInst) and inst.output in counted]


def last_offset(view: GlobalViewInst) -> Any:
    """Return the offset of the last element of a view, a tilus expression."""
    layout = view.output.layout
    return rewrite(layout.offset, {axis: extent - 1 for axis, extent in zip(layout.axes, layout.shape, strict=True)})
