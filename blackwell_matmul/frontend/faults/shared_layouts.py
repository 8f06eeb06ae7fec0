"""Parts or reshaped views of a shared tensor with another layout than the tensor itself.

tilus 0.2.0 gives a slice the layout that an instruction requires first. It does not compare that layout with one that
the tensor already has, by `annotate_layout` or by another slice. Then both address the same memory in different ways,
and a value stored through one is found elsewhere through the other, without an error. Removable when tilus compares
them.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterator, Sequence

import numpy as np
from tilus.ir.inst import Instruction
from tilus.ir.instructions import ReshapeSharedInst, SliceSharedInst
from tilus.ir.layout import SharedLayout

Place = tuple[int, ...]


def apart(inst: Instruction) -> bool:
    """Return True if an instruction makes a view with another layout than its shared tensor."""
    if not isinstance(inst, (ReshapeSharedInst, SliceSharedInst)):
        return False
    whole, view = inst.shared_input.optional_layout, inst.shared_output.optional_layout
    if whole is None or view is None:
        return False
    return _differ(whole, view, _dims(inst, len(whole.shape)) if isinstance(inst, SliceSharedInst) else None)


def _dims(inst: SliceSharedInst, rank: int) -> tuple[int, ...]:
    return tuple(range(rank)) if inst.dims is None else tuple(inst.dims)


@functools.lru_cache(256)
def _differ(whole: SharedLayout, view: SharedLayout, dims: tuple[int, ...] | None) -> bool:
    """Return True if two layouts differ. dims: of a slice; None if all elements are there, in another shape."""
    shape = tuple(whole.shape)
    for place in _places(view.shape):
        inside = _numbered_alike(place, view.shape, shape) if dims is None else _sliced(place, dims, len(shape))
        if offset_in(view, place) != offset_in(whole, inside):
            return True
    return False


def _places(shape: Sequence[int]) -> Iterator[Place]:
    """Return places that distinguish two layouts: the powers of two in each dimension, and the last place. They
    suffice, because a layout is a sum of digits times strides, and a swizzle maps bits of one dimension to another."""
    yield tuple(extent - 1 for extent in shape)
    for dim, extent in enumerate(shape):
        for bit in range((extent - 1).bit_length()):
            yield tuple((1 << bit) * (dim == other) for other in range(len(shape)))


def _sliced(place: Place, dims: tuple[int, ...], rank: int) -> Place:
    found = dict(zip(dims, place, strict=True))
    return tuple(found.get(dim, 0) for dim in range(rank))


def _numbered_alike(place: Place, shape: Sequence[int], other: Sequence[int]) -> Place:
    """Return the index in the other shape with the same row-major offset."""
    return tuple(map(int, np.unravel_index(np.ravel_multi_index(place, tuple(shape)), tuple(other))))


def offset_in(layout: SharedLayout, place: Place) -> int:
    """Return the offset of one element in a shared layout, in elements; much faster than `as_numpy_grid`."""
    swizzle = layout.optional_swizzle
    offset = int(dataclasses.replace(layout, optional_swizzle=None)(*place))
    return offset if swizzle is None else offset ^ offset >> swizzle.shift & (2**swizzle.bits - 1) << swizzle.base
