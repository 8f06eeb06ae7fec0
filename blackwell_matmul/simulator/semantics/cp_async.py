"""cp.async: copies of 4 to 16 bytes by each thread, generic proxy, tracked in per-thread groups."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from blackwell_matmul.simulator.description import (
    FREE,
    Access,
    Again,
    Effect,
    Proxy,
    Space,
    Time,
    Unit,
    Wait,
    When,
    describe,
)
from blackwell_matmul.simulator.lowering.context import LoweringContext
from blackwell_matmul.simulator.machine.cta import Warp
from blackwell_matmul.simulator.machine.deferred import Patch, SharedStorage
from blackwell_matmul.simulator.machine.memory import Box, Holders, Region, View, joined
from blackwell_matmul.simulator.machine.registers import WARP, ThreadGroup
from blackwell_matmul.simulator.semantics.views import GlobalView, Placement, alignment, record_read
from blackwell_matmul.simulator.types import element, to_image

_FAMILY = "cp.async"
_REMEDY = "copy_async_wait_group (or copy_async_wait_all) by the threads that copied"
_COPY: dict[str, Any] = {
    "name": "cp.async",
    "ptx": "Data Movement / Non-bulk copy: cp.async",
    "effects": (
        Effect("src", Space.GLOBAL, Access.READ, Proxy.GENERIC, When.COMPLETION),
        Effect("dst", Space.SHARED, Access.WRITE, Proxy.GENERIC, When.COMPLETION),
    ),
    "completes_by": f"copy_async_commit_group and {_REMEDY}",
    "again": Again.VALUES,
    "time": Time(Unit.CP_ASYNC),
    "mark": "cp.async",
}


@functools.cache
def _parts(group: ThreadGroup, warp: int, shape: tuple[int, ...], dim: int, together: int) -> tuple[Box, ...]:
    """Return the rectangles of a tile that a warp copies. Threads take turns in row-major order of the copies, each of
    which has `together` neighbours along `dim`, as in code generation."""
    copies = tuple(extent // together if each == dim else extent for each, extent in enumerate(shape))
    lane, lanes = group.lanes(warp)
    first, count = warp * WARP + lane - group.begin, math.prod(copies)
    spans: list[list[int]] = []
    for begin in range(first, count, group.count):
        end = min(begin + lanes, count)
        if spans and spans[-1][1] == begin:
            spans[-1][1] = end
        else:
            spans.append([begin, end])
    step = tuple(together if each == dim else 1 for each in range(len(shape)))
    found = (box for begin, end in spans for box in _rectangles(begin, end, copies))
    return tuple(tuple((lo * s, hi * s) for (lo, hi), s in zip(box, step, strict=True)) for box in found)


def _holders(
    target: View, boxes: tuple[Box, ...], warp: int, group: ThreadGroup, shape: tuple[int, ...], dim: int, together: int
) -> Holders:
    """Return the numbers of the elements that a warp copies, and the lane of each."""
    picks = [tuple(slice(lo, hi) for lo, hi in box) for box in boxes]
    copies = np.indices(shape, sparse=True)
    copies = tuple(each // together if i == dim else each for i, each in enumerate(copies))
    extents = tuple(extent // together if i == dim else extent for i, extent in enumerate(shape))
    threads = group.begin + np.ravel_multi_index(np.broadcast_arrays(*copies), extents) % group.count
    numbers = target.numbers()
    held = [(numbers[each].reshape(-1), threads[each].reshape(-1)) for each in picks]
    return np.concatenate([each[0] for each in held]), np.concatenate([each[1] for each in held]) - warp * WARP


def _rectangles(begin: int, end: int, shape: tuple[int, ...]) -> Iterator[Box]:
    """Yield rectangles with the elements `begin` to `end` of a shape, in row-major order."""
    if not shape or begin == end:
        yield from [()] * (end - begin)
        return
    inner = shape[1:]
    size = math.prod(inner)
    whole = -(-begin // size), end // size
    if whole[0] > whole[1]:  # inside of one row
        rows = [(whole[1], begin % size, end % size)]
    else:
        rows = [(whole[0] - 1, begin % size or size, size), (whole[1], 0, end % size)]
    if whole[0] < whole[1]:
        yield (whole, *((0, extent) for extent in inner))
    for row, lo, hi in rows:
        yield from (((row, row + 1), *box) for box in _rectangles(lo, hi, inner))


@describe("CopyAsyncInst", **_COPY)
def copy_async(inst: Any, context: LoweringContext) -> Any:
    dst, src = inst.inputs
    shape, item, location, group = tuple(dst.shape), element(dst.dtype), context.location, context.group
    dims = tuple(range(len(shape))) if inst.dims is None else tuple(inst.dims)
    together = max(context.program.access_bytes.get(inst, 1) * 8 // item.nbits, 1)
    require_aligned = alignment(inst, context, item)
    context.use(dst, src)
    context.place(src, inst.offsets, dims, shape)

    def run(warp: Warp, target: View, source: GlobalView, offsets: tuple[int, ...]) -> None:
        dim = _neighbours(source, sorted(dims), shape, together)
        boxes = _parts(group, warp.index, shape, dim, together)
        if not boxes:
            return
        places = [_place(source, offsets, dims, box) for box in boxes]
        for place in places:
            place.check_exists(warp, source, "cp.async", location)
        require_aligned(warp, source.address)

        holders = functools.partial(_holders, target, boxes, warp.index, group, shape, dim, together)
        regions = {"dst": target.part_of(boxes, holders)}
        read_source(warp, regions, source, *places)

        def complete() -> bool:
            late, put_off = all(place.inside for place in places), False  # all of them, or none: see replay/
            for box, place in zip(boxes, places, strict=True):
                put_off = copy_in(target, target.region(box), box, source, place, item, late=late)
            return put_off

        context.launch(warp, regions, complete, agent="cp.async", family=_FAMILY)

    return run


def _neighbours(source: GlobalView, dims: Sequence[int], shape: tuple[int, ...], together: int) -> int:
    """Return the tile's dimension along which one copy takes several elements: neighbours in global memory."""
    strides = [source.data.strides[dim] for dim in dims]
    fitting = [i for i, extent in enumerate(shape) if extent % together == 0 and extent > 1]
    return min(reversed(fitting), key=lambda i: strides[i], default=len(shape) - 1)


def _place(source: GlobalView, offsets: tuple[int, ...], dims: tuple[int, ...], box: Box) -> Placement:
    """Return the place of a rectangle of the tile."""
    moved = list(offsets)
    for dim, (begin, _) in zip(sorted(dims), box, strict=True):
        moved[dim] += begin
    return Placement(source, tuple(moved), dims, tuple(end - begin for begin, end in box))


@functools.cache
def _axes(extents: tuple[int, ...]) -> tuple[int, ...]:
    """Return the dimensions of a tile."""
    return tuple(dim for dim, extent in enumerate(extents) if extent)


def copy_in(
    target: View,
    region: Region,
    box: Any,
    source: GlobalView,
    place: Placement,
    item: Any,
    rounds: Rounds | None = None,
    late: bool = True,
) -> bool:
    """Copy the part of a tile that exists, and zeros for the rest (cp.async's ignore-src; TMA's out-of-bound fill).
    rounds: applied to the values. late: it may be deferred. Return True if the copy is deferred."""
    storage, patch = target.storage, _patch(source, place) if late and not rounds else None
    if place.inside and patch is not None and isinstance(storage, SharedStorage) and target.index is None:
        storage.hold(region.box, target, box, patch)
        return True
    tile = _block(source, place, item) if place.whole else np.zeros([hi - lo for lo, hi in box], item.image)
    if place.inside and not place.whole:
        tile[place.tile] = _block(source, place, item)
    target.write(rounds(tile) if rounds else tile, box)
    return False


Rounds = Callable[[np.ndarray], np.ndarray]


def _patch(source: GlobalView, place: Placement) -> Patch | None:
    """Return the tile as a rectangle of constant memory that was converted once, or None."""
    if source.image is None:
        return None
    return Patch(source.image, place.reach, _axes(tuple(place.extents)))


def read_source(warp: Warp, regions: dict[str, Region], source: GlobalView, *places: Placement) -> None:
    """Add a copy's reads of global memory; they cannot conflict if the program does not write it."""
    if not source.storage.segment.constant:
        regions["src"] = joined(
            [place.region(source) for place in places if place.inside] or [places[0].region(source)]
        )
        record_read(warp, source, regions["src"].box)


def _block(source: GlobalView, place: Placement, item: Any) -> np.ndarray:
    """Return the part of the tile inside of the tensor, in shared memory's format."""
    if source.image is not None:
        return source.image[place.picks]
    return to_image(np.ascontiguousarray(source.storage.read(source.data[place.picks])), item)


@describe(
    "CopyAsyncCommitGroupInst",
    name="cp.async.commit_group",
    called="copy_async_commit_group",
    completes_by=_REMEDY,
    again=Again.NOTHING,
    time=FREE,
)
def commit_group(inst: Any, context: LoweringContext) -> Callable[[Warp], None]:
    return lambda warp: context.commit(warp, _FAMILY)


@describe(
    "CopyAsyncWaitGroupInst",
    name="cp.async.wait_group",
    called="copy_async_wait_group",
    waits=(Wait("group"),),
    again=Again.NOTHING,
    time=FREE,
    mark="waits for cp.async",
)
def wait_group(inst: Any, context: LoweringContext) -> Any:
    """Wait for all but the newest n groups of the executing threads."""
    context.scalar(inst.n)
    return lambda warp, n: context.end_groups(warp, _FAMILY, int(n))


@describe(
    "CopyAsyncWaitAllInst",
    name="cp.async.wait_all",
    called="copy_async_wait_all",
    waits=(Wait("group"),),
    again=Again.NOTHING,
    time=FREE,
    mark="waits for cp.async",
)
def wait_all(inst: Any, context: LoweringContext) -> Callable[[Warp], None]:
    """Wait for every prior cp.async of the executing threads, committed or not."""
    return lambda warp: context.end_all(warp, _FAMILY)
