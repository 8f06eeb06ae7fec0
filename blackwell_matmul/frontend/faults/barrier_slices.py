"""Slices of barrier tensors that have got new values by an assignment.

tilus 0.2.0 computes an element of the result of `mbarrier.alloc` from the barriers' addresses
(`SliceRegisterInstEmitter._emit_const_reg`). It does so even if the tensor was assigned other addresses since, such as
those of another CTA. Removable when an assignment makes tilus forget the expression.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilus.ir.instructions import AssignInst, SliceAssignInst, SliceRegisterInst
from tilus.ir.instructions.cuda.mbarrier import AllocBarrierInst

from blackwell_matmul.frontend.recording import instructions


def stale(tile: Any) -> Iterator[Any]:
    """Yield the slices that would use the addresses of before the assignment."""
    insts = instructions(tile)
    computed, assigned = set[int](), set[int]()
    for inst in insts:
        if isinstance(inst, (AssignInst, SliceAssignInst)):
            assigned.add(id(inst.inputs[0]))
        elif isinstance(inst, AllocBarrierInst) or (
            isinstance(inst, SliceRegisterInst) and id(inst.inputs[0]) in computed
        ):
            computed.add(id(inst.output))
    slices = (inst for inst in insts if isinstance(inst, SliceRegisterInst))
    return (inst for inst in slices if id(inst.inputs[0]) in computed & assigned)
