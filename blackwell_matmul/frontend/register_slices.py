"""Slices of register tensors that tilus 0.2.0 reads from the wrong place.

For element l of a slice its code generation asks where element l of the *whole* tensor is, and adds the offsets
(`SliceRegisterInstEmitter._emit_default`). That is the same place only if the slice's elements come first in a thread's
registers: for leading dimensions, as a rule. Otherwise the kernel computes with the wrong registers, without a word:
seen on an H200 with the strips of a wgmma accumulator of 128 rows. Removable when the emitter asks the slice's layout.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

from tilus.ir.inst import Instruction
from tilus.ir.instructions import SliceRegisterInst
from tilus.ir.layout import RegisterLayout


def misread(insts: list[Instruction]) -> Iterator[SliceRegisterInst]:
    """The slices among these instructions whose generated code reads other registers than they name."""
    return (inst for inst in insts if isinstance(inst, SliceRegisterInst) and not _reads_right(inst))


def _reads_right(inst: SliceRegisterInst) -> bool:
    whole, part = inst.register_input.layout, inst.register_output.layout
    dims = range(len(whole.shape)) if inst.dims is None else inst.dims
    return not dims or _same_place(_modes(part), _modes(whole), tuple(dims))


Modes = tuple[tuple[int, ...], ...]
"""What a layout is made of; tilus hashes the layout itself by its address."""


def _modes(layout: RegisterLayout) -> Modes:
    return layout.shape, layout.mode_shape, layout.spatial_modes, layout.local_modes


@lru_cache(maxsize=1024)
def _same_place(part_modes: Modes, whole_modes: Modes, dims: tuple[int, ...]) -> bool:
    """The slices of a tile differ in their offsets alone, so that one answer, which takes milliseconds, serves all."""
    part, whole = RegisterLayout(*part_modes), RegisterLayout(*whole_modes)
    return all(
        _indices(part, local, thread) == [_indices(whole, local, thread)[dim] for dim in dims]
        for thread in {0, 1, part.spatial_size - 1}
        for local in range(part.local_size)
    )


def _indices(layout: RegisterLayout, local: int, thread: int) -> list[int]:
    return [int(index) for index in layout.get_global(local_index=local, spatial_index=thread)]
