"""Slices of register tensors that tilus 0.2.0 reads from the wrong place.

For element l of a slice its code generation asks where element l of the *whole* tensor is, and adds the offsets
(`SliceRegisterInstEmitter._emit_default`). That is the same place only if the slice's elements come first in a thread's
registers: for leading dimensions, as a rule. Otherwise the kernel computes with the wrong registers, without a word:
seen on an H200 with the strips of a wgmma accumulator of 128 rows. Removable when the emitter asks the slice's layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from tilus.ir.inst import Instruction
from tilus.ir.instructions import SliceRegisterInst


def misread(insts: list[Instruction]) -> Iterator[SliceRegisterInst]:
    """The slices among these instructions whose generated code reads other registers than they name."""
    return (inst for inst in insts if isinstance(inst, SliceRegisterInst) and not _reads_right(inst))


def _reads_right(inst: SliceRegisterInst) -> bool:
    whole, part = inst.register_input.layout, inst.register_output.layout
    dims = range(len(whole.shape)) if inst.dims is None else inst.dims
    if not dims:
        return True
    return all(
        _indices(part, local, thread) == [_indices(whole, local, thread)[dim] for dim in dims]
        for thread in {0, 1, part.spatial_size - 1}
        for local in range(part.local_size)
    )


def _indices(layout: Any, local: int, thread: int) -> list[int]:
    return [int(index) for index in layout.get_global(local_index=local, spatial_index=thread)]
