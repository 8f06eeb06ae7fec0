"""Register layouts for fewer threads than execute an instruction.

tilus 0.2.0 asks for no number of threads. It splits the number of a thread by the extents of its layout and takes no
remainder by the first of them, so that the threads beyond the last come to elements beyond the last: they read and
write outside of the tile, and of the tensor. Seen on an H200 with 16 rows over 32 threads. Removable when tilus asks.
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
"""Each thread does the same to each of its registers, whatever they stand for."""


_COUNTED = (WgmmaMmaSSInst, Tcgen05LoadInst, Tcgen05StoreInst)
"""Instructions with one layout alone: tilus itself refuses other numbers of threads, and replicas do not help."""


def beyond(function: Any) -> list[tuple[Instruction, RegisterTensor, int]]:
    """The operands with such a layout: an instruction, its operand, and how many threads execute it. None where an
    instruction is among them that tilus refuses."""
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
    """A first digit that stands for replicas alone may be any number."""
    return layout.spatial_size < threads and any(mode >= 0 for mode in layout.spatial_modes[:1])
