"""cp.async: copies of 4 to 16 bytes by each thread, generic proxy, tracked in per-thread groups."""

from __future__ import annotations

import functools
from collections.abc import Callable
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
from blackwell_matmul.simulator.machine.memory import Box, Region, View
from blackwell_matmul.simulator.machine.registers import ThreadGroup
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
    "approximation": "a warp copies its rows as one: which lane copies and waits for what is not looked at",
    "again": Again.VALUES,
    "time": Time(Unit.CP_ASYNC),
    "mark": "cp.async",
}


def _part(group: ThreadGroup, warp: int, shape: tuple[int, ...]) -> tuple[Box, tuple[int, ...]]:
    """Return the rectangle of the tile that a warp copies, and its extents: tilus distributes the tile in row-major
    order."""
    index = warp - group.warps.start
    top, bottom = (shape[0] * each // len(group.warps) for each in (index, index + 1))
    return ((top, bottom), *((0, e) for e in shape[1:])), (bottom - top, *shape[1:])


@describe("CopyAsyncInst", **_COPY)
def copy_async(inst: Any, context: LoweringContext) -> Any:
    dst, src = inst.inputs
    shape, item, location, group = tuple(dst.shape), element(dst.dtype), context.location, context.group
    dims = tuple(range(len(shape))) if inst.dims is None else tuple(inst.dims)
    rows, parts = min(dims), dict[int, tuple[Box, tuple[int, ...]]]()
    require_aligned = alignment(inst, context, item)
    context.use(dst, src)
    context.place(src, inst.offsets, dims, shape)

    def run(warp: Warp, target: View, source: GlobalView, offsets: tuple[int, ...]) -> None:
        if warp.index not in parts:
            parts[warp.index] = _part(group, warp.index, shape)
        box, extents = parts[warp.index]
        if extents[0] == 0:
            return
        moved = list(offsets)
        moved[rows] += box[0][0]
        place = Placement(source, tuple(moved), dims, extents)
        place.check_exists(warp, source, "cp.async", location)
        require_aligned(warp, source.address)

        regions = {"dst": target.region(box)}
        read_source(warp, regions, source, place)

        def complete() -> bool:
            return copy_in(target, regions["dst"], box, source, place, item)

        context.launch(warp, regions, complete, agent="cp.async", family=_FAMILY)

    return run


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
) -> bool:
    """Copy the part of a tile that exists, and zeros for the rest (cp.async's ignore-src; TMA's out-of-bound fill).
    rounds: applied to the values. Return True if the copy is deferred."""
    storage, patch = target.storage, None if rounds else _patch(source, place)
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


def read_source(warp: Warp, regions: dict[str, Region], source: GlobalView, place: Placement) -> None:
    """Add a copy's reads of global memory; they cannot conflict if the program does not write it."""
    if not source.storage.segment.constant:
        regions["src"] = place.region(source)
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
