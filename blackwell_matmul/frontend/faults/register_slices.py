"""Slices of register tensors that tilus 0.2.0 reads from the wrong place, or writes there.

tilus's code for a slice moves no value between threads, even where it would have to:

- For element l of a slice it takes the place of element l of the *whole* tensor, and adds the offsets
  (`SliceRegisterInstEmitter._emit_default`). This is right only if the slice's elements come first in a thread's
  registers, usually for leading dimensions. Seen on an H200 with the strips of a wgmma accumulator.
- Only some of the threads may have the element at an index. Still each thread takes one of its own registers, and the
  last one to store it wins: seen on an H200. An assignment writes a register of each thread: `x[3, 2] = 5` sets column
  2 of all rows if each thread has a row.
- An assignment does not check that a thread with an element of the right side also has its place on the left side.

The kernel computes with the wrong registers, without an error. The first is removable when the emitter uses the slice's
layout, the others when tilus refuses them.
"""

from __future__ import annotations

from functools import lru_cache

from tilus.hidet.ir.expr import Constant
from tilus.ir.inst import Instruction
from tilus.ir.instructions import SliceAssignInst, SliceRegisterInst
from tilus.ir.layout import RegisterLayout
from tilus.ir.tensor import RegisterTensor


def fault(inst: Instruction, name: str) -> str | None:
    """Return the fault of a slice and the remedy. name: of the tensor. None if there is no fault or no slice."""
    if not isinstance(inst, (SliceRegisterInst, SliceAssignInst)):
        return None
    whole = inst.inputs[0].as_register_tensor()
    dims = tuple(range(len(whole.shape)) if inst.dims is None else inst.dims)
    spread = _spread(whole.layout, dims)
    if spread is not None:
        return (
            f"this slice of {name} is in some of the threads, and tilus 0.2.0 takes a register of each; give {name} a "
            f"layout in which each thread has all of dimension {spread}, or go through shared memory"
        )
    if isinstance(inst, SliceAssignInst) and not _writes_right(inst, whole, dims):
        return (
            f"tilus 0.2.0 writes to this slice of {name} in other threads than have it; give the right side the layout "
            f"of a slice of {name}"
        )
    if isinstance(inst, SliceRegisterInst) and not _reads_right(inst, whole, dims):
        return (
            f"tilus 0.2.0 reads this slice of {name} from other registers than its own; slice leading dimensions "
            "alone, of a view whose layout has them first"
        )
    return None


def _spread(layout: RegisterLayout, dims: tuple[int, ...]) -> int | None:
    """Return the first dimension in which a single index is taken although the dimension lies over threads; None
    without one."""
    over_threads = {mode for mode in layout.spatial_modes if mode >= 0 and layout.mode_shape[mode] > 1}
    groups = enumerate(layout.grouped_modes)
    return next((dim for dim, modes in groups if dim not in dims and over_threads.intersection(modes)), None)


def _reads_right(inst: SliceRegisterInst, whole: RegisterTensor, dims: tuple[int, ...]) -> bool:
    return not dims or _same_place(modes_of(inst.register_output.layout), modes_of(whole.layout), dims)


def _writes_right(inst: SliceAssignInst, whole: RegisterTensor, dims: tuple[int, ...]) -> bool:
    starts = [inst.offsets[dim] for dim in dims]
    first = tuple(int(start.value) if isinstance(start, Constant) else 0 for start in starts)
    return not dims or _same_threads(
        modes_of(inst.inputs[1].as_register_tensor().layout), modes_of(whole.layout), dims, first
    )


Modes = tuple[tuple[int, ...], ...]
"""The parts of a layout; tilus hashes the layout itself by its address."""


def modes_of(layout: RegisterLayout) -> Modes:
    return layout.shape, layout.mode_shape, layout.spatial_modes, layout.local_modes


@lru_cache(maxsize=1024)
def _same_place(part_modes: Modes, whole_modes: Modes, dims: tuple[int, ...]) -> bool:
    """Return True if a thread's register l has the same element of the slice and of the whole, but for the offsets of
    `dims`. The answer is cached: slices of a tile differ only in their offsets."""
    part, whole = RegisterLayout(*part_modes), RegisterLayout(*whole_modes)
    return all(
        indices_of(part, local, thread) == [indices_of(whole, local, thread)[dim] for dim in dims]
        for thread in {0, 1, part.spatial_size - 1}
        for local in range(part.local_size)
    )


@lru_cache(maxsize=1024)
def _same_threads(part_modes: Modes, whole_modes: Modes, dims: tuple[int, ...], first: tuple[int, ...]) -> bool:
    """Return True if each thread has the same elements of the right side, from `first` on, as of the left side."""
    part, whole = RegisterLayout(*part_modes), RegisterLayout(*whole_modes)
    for thread in {0, 1, part.spatial_size - 1}:
        new = {tuple(map(sum, zip(indices_of(part, local, thread), first))) for local in range(part.local_size)}
        all_ = {tuple(indices_of(whole, local, thread)[dim] for dim in dims) for local in range(whole.local_size)}
        if new != {each for each in all_ if all(a <= i < a + n for i, a, n in zip(each, first, part.shape))}:
            return False
    return True


def indices_of(layout: RegisterLayout, local: int, thread: int) -> list[int]:
    """Return the result of `layout.get_global` for numbers; tilus makes expressions of them, which takes 30 times as
    long."""
    digits: dict[int, int] = {}
    for modes, shape, left in (
        (layout.spatial_modes, layout.spatial_shape, thread),
        (layout.local_modes, layout.local_shape, local),
    ):
        for mode, extent in zip(reversed(modes), reversed(shape)):
            left, digits[mode] = divmod(left, extent)
    found = []
    for group in layout.grouped_modes:
        index = 0
        for mode in group:
            index = index * layout.mode_shape[mode] + digits[mode]
        found.append(index)
    return found
