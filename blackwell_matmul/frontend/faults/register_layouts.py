"""Register layouts for fewer threads than execute an instruction.

tilus 0.2.0 does not compare the layout with the number of threads. It divides a thread's index by the extents of the
layout, without a remainder by the first extent. So threads beyond the layout access elements outside of the tile and
of the tensor. Seen on an H200 with 16 rows over 32 threads. Removable when tilus compares them.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilus.hidet.ir.expr import Var
from tilus.hidet.ir.tools import collect
from tilus.ir import instructions as tilus
from tilus.ir.inst import Instruction
from tilus.ir.instructions.cuda.tcgen05 import Tcgen05LoadInst, Tcgen05StoreInst
from tilus.ir.instructions.cuda.wgmma import WgmmaMmaSSInst
from tilus.ir.layout import RegisterLayout
from tilus.ir.layout.inference.inference import InstructionCollector
from tilus.ir.tensor import RegisterTensor

from blackwell_matmul.frontend.recording import operands

_BY_REGISTER = (
    tilus.AssignInst,
    tilus.CastInst,
    tilus.ElementwiseUnaryBaseInst,
    tilus.ViewInst,
    tilus.SqueezeInst,
    tilus.UnsqueezeInst,
    tilus.TransposeInst,
)
"""Instructions whose threads do the same to each of their registers, in any layout."""


_COUNTED = (WgmmaMmaSSInst, Tcgen05LoadInst, Tcgen05StoreInst)
"""Instructions with a single valid layout. tilus itself refuses other numbers of threads, and replicas do not help."""


def beyond(function: Any) -> list[tuple[Instruction, RegisterTensor, int]]:
    """Return operands with a layout for too few threads: instruction, operand, and number of threads that execute the
    instruction.

    The list is empty if tilus itself refuses one of the instructions.
    """
    short = list(_short(function))
    return [] if any(isinstance(inst, _COUNTED) for inst, _, _ in short) else short


def _short(function: Any) -> Iterator[tuple[Instruction, RegisterTensor, int]]:
    collector = InstructionCollector()
    collector.visit(function)
    for inst in filter(_asks_for_elements, collector.instructions):
        threads = collector.inst2ctx[inst].num_threads
        for tensor in operands(inst):
            if isinstance(tensor, RegisterTensor) and _ends_before(tensor.layout, threads):
                yield inst, tensor, threads


def _asks_for_elements(inst: Instruction) -> bool:
    if isinstance(inst, tilus.AllocateRegisterInst):
        used = [] if inst.init is None else collect(inst.init, Var)
        return any(var is axis for var in used for axis in inst.axes or ())
    return not isinstance(inst, _BY_REGISTER)


def _ends_before(layout: RegisterLayout, threads: int) -> bool:
    """Return True if the layout has fewer threads than execute, and its first digit selects elements. A digit that only
    selects replicas may have any value."""
    return layout.spatial_size < threads and any(mode >= 0 for mode in layout.spatial_modes[:1])
