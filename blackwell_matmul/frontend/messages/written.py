"""Tiles that do not fit each other. tilus accepts them without an error, or refuses them far from the statement.

The check runs for each instruction while the script is read, when its statement is known. A tile of a Hopper's tensor
core fails as a layout, one in tensor memory as its allocation, and a reduced dimension that is gone at the next
assignment.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from tilus.hidet.ir.utils.broadcast_utils import broadcast_shape
from tilus.ir.inst import Instruction
from tilus.ir.instructions import AssignInst, ReduceInst
from tilus.ir.instructions.cuda.cp_async_tensor import (
    CopyAsyncTensorGlobalToSharedInst,
    CopyAsyncTensorSharedToGlobalInst,
)
from tilus.ir.instructions.cuda.tcgen05 import Tcgen05AllocInst, Tcgen05MmaSSInst
from tilus.ir.instructions.cuda.wgmma import WgmmaMmaSSInst
from tilus.ir.instructions.generic import ElementwiseBinaryBaseInst
from tilus.ir.tensor import RegisterTensor

from blackwell_matmul.frontend.faults.tma_coordinates import INNERMOST_BYTES
from blackwell_matmul.frontend.identity import IdentityMap
from blackwell_matmul.frontend.messages.phrases import LANES_ALONE
from blackwell_matmul.frontend.program import Location

TENSOR_MEMORY_LANES = 128


class Statements:
    """Instructions of a script, in its order. name: the script's name of a tensor, or None."""

    def __init__(self, name: Callable[[Any], str | None]) -> None:
        self._name = name
        self._reduced: IdentityMap[ReduceInst] = IdentityMap()
        self._made: IdentityMap[tuple[Instruction, Location]] = IdentityMap()

    def fault(self, inst: Instruction, line: Location) -> str | None:
        """Return the fault of the next instruction, of this line, as a sentence without its period; None if no fault is
        known."""
        if inst.output is not None:
            self._made.setdefault(inst.output, (inst, line))
        self._follow(inst)
        if isinstance(inst, (AssignInst, ElementwiseBinaryBaseInst)):
            return self._assigned(inst)
        if isinstance(inst, (WgmmaMmaSSInst, Tcgen05MmaSSInst)):
            return self._product(inst) if getattr(inst, "cta_group", 1) == 1 else None
        if isinstance(inst, (CopyAsyncTensorGlobalToSharedInst, CopyAsyncTensorSharedToGlobalInst)):
            return self._copy(inst)
        return _allocated(inst) if isinstance(inst, Tcgen05AllocInst) else None

    def _follow(self, inst: Any) -> None:
        """Remember reductions that remove their dimension, and the tensors computed from their results."""
        if isinstance(inst, ReduceInst) and not inst.keepdim:
            self._reduced[inst.output] = inst
        elif isinstance(inst, ElementwiseBinaryBaseInst) and inst.output is not None:
            found = [self._reduced[tensor] for tensor in inst.inputs if tensor in self._reduced]
            if found and inst.output not in self._reduced:
                self._reduced[inst.output] = found[0]

    def _assigned(self, inst: Any) -> str | None:
        """Return the reason if a tile is assigned to one of another shape; else None."""
        if isinstance(inst, AssignInst):
            target, shape = inst.inputs[0], inst.inputs[1].shape
        else:
            target, shape = inst.output, broadcast_shape(*(tensor.shape for tensor in inst.inputs))
        if not isinstance(target, RegisterTensor) or _ints(shape) == _ints(target.shape):
            return None
        name = self._name(target) or "a register tensor"
        at = f" of line {self._made[target][1].line}" if target in self._made else ""
        shapes = f"{name}{at} has shape {_ints(target.shape)} and is assigned {_ints(shape)}"
        return f"{shapes}{self._broadcast(inst)}; {self._remedy(inst)}"

    def _broadcast(self, inst: Any) -> str:
        """Return the shapes that were broadcast to the shape of the assigned value."""
        source = self._made.get(inst.inputs[1], (None,))[0] if isinstance(inst, AssignInst) else inst
        if not isinstance(source, ElementwiseBinaryBaseInst):
            return ""
        parts = [_ints(tensor.shape) for tensor in source.inputs]
        return f", broadcast from {' and '.join(map(str, parts))}" if len(set(parts)) > 1 else ""

    def _remedy(self, inst: Any) -> str:
        found = next((self._reduced[tensor] for tensor in inst.inputs if tensor in self._reduced), None)
        if found is None:
            return "give it another name, or make both of the same shape"
        kept = [1 if dim == found.dim else extent for dim, extent in enumerate(_ints(found.inputs[0].shape))]
        what = self._name(found.output) or f"a {found.op}"
        return f"{what} is without dimension {found.dim}; with keepdim=True it has shape {tuple(kept)}"

    def _product(self, inst: Any) -> str | None:
        """Return the reason if the accumulator's shape is not A's rows by B's columns; else None."""
        a, b, d = (_ints(tensor.shape) for tensor in inst.inputs)
        if len({len(a), len(b), len(d), 2}) > 1 or a[1] != b[0] or d == (a[0], b[1]):
            return None  # tilus's own sentence has the rest
        name = self._name(inst.inputs[2]) or "the accumulator"
        return f"mma multiplies {a} by {b}, which goes into an accumulator of {(a[0], b[1])}, and {name} has shape {d}"

    def _copy(self, inst: Any) -> str | None:
        """Return the reason if TMA cannot copy between these tensors, or the tile has another rank; else None."""
        into, out_of = inst.inputs
        shared, outside = (into, out_of) if isinstance(inst, CopyAsyncTensorGlobalToSharedInst) else (out_of, into)
        tile, whole = self._name(shared) or "the shared tensor", self._name(outside) or "the global tensor"
        if len(inst.offsets) != len(outside.shape):
            counts = f"{len(outside.shape)} dimensions and takes as many offsets, and here are {len(inst.offsets)}"
            return f"{whole} has {counts}"
        rank = len(outside.shape) if inst.dims is None else len(inst.dims)
        if len(shared.shape) == rank:
            return _small_box(tile, shared, whole, isinstance(inst, CopyAsyncTensorGlobalToSharedInst))
        wanted = f"the copy is of a tile with {rank} dimensions of {whole}, and {tile} has shape {_ints(shared.shape)}"
        return f"{wanted}; index it, as in {tile}[i]" if len(shared.shape) > rank else f"{wanted}; say which with dims"


def _small_box(tile: str, shared: Any, whole: str, load: bool) -> str | None:
    """Return the reason why a TMA box is too small, a size that is no multiple of 16 bytes; else None (CUDA Driver
    API, cuTensorMapEncodeTiled: boxDim)."""
    shape = _ints(shared.shape)
    nbits = math.prod(shape) * shared.dtype.nbits
    if nbits % (8 * INNERMOST_BYTES) == 0:
        return None
    verb, others = ("load", "load_global and store_shared") if load else ("store", "load_shared and store_global")
    what = f"{tile} has shape {shape}, {nbits / 8:g} bytes of {shared.dtype.name}"
    rows = f"rows of a multiple of {INNERMOST_BYTES} bytes"
    return f"a TMA {verb} of {whole} copies {rows}, and {what}; {others} copy fewer"


def _allocated(inst: Any) -> str | None:
    """Return the reason if a tile has fewer lanes than tilus has code for; else None."""
    shape = _ints(inst.output.shape)
    if shape[-2] == TENSOR_MEMORY_LANES:
        return None
    return LANES_ALONE.format(f" of {shape}", shape[-2])


def _ints(shape: Any) -> tuple[int, ...]:
    return tuple(map(int, shape))
