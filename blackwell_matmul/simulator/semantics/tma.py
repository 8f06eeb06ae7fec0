"""Bulk copies: TMA tensor copies and linear bulk copies (async proxy, issued by one elected lane).

A load completes on an mbarrier's tx-count with the bytes of the whole box; parts outside of the tensor are filled with
zeros. A store is tracked in the issuing thread's bulk groups and clipped at the far edge. tilus's linear loads also
announce their bytes (mbarrier.expect_tx), and its linear copies neither fill nor clip.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import Any

import numpy as np

from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.frontend.faults.operand_majors import spans
from blackwell_matmul.frontend.faults.tma_coordinates import misplaced, step_of
from blackwell_matmul.simulator.description import (
    FREE,
    UNKNOWN,
    Access,
    Again,
    Effect,
    ExecutedBy,
    Instruction,
    Proxy,
    Signal,
    Space,
    Time,
    Unit,
    Wait,
    When,
    describe,
)
from blackwell_matmul.simulator.lowering.context import LoweringContext
from blackwell_matmul.simulator.machine.barrier import Mbarrier, barrier_at, barrier_in_cluster
from blackwell_matmul.simulator.machine.cta import Cta, Warp
from blackwell_matmul.simulator.machine.memory import View
from blackwell_matmul.simulator.machine.registers import ThreadGroup
from blackwell_matmul.simulator.semantics.cluster import named
from blackwell_matmul.simulator.semantics.cp_async import copy_in, read_source
from blackwell_matmul.simulator.semantics.pairs import peer_of
from blackwell_matmul.simulator.semantics.views import GlobalView, Placement, record_write
from blackwell_matmul.simulator.types import element, fetched_as_tf32, from_image

_BULK_FAMILY = "bulk"
_BULK_REMEDY = "tma.wait_group by the thread that issued the store"
_LOAD: dict[str, Any] = {
    "lanes": ExecutedBy.ELECTED,
    "effects": (
        Effect("src", Space.GLOBAL, Access.READ, Proxy.ASYNC, When.COMPLETION),
        Effect("dst", Space.SHARED, Access.WRITE, Proxy.ASYNC, When.COMPLETION),
    ),
    "signals": (Signal("complete_tx", When.COMPLETION),),
    "again": Again.VALUES,
    "time": Time(Unit.TMA_LOAD, "tma_issue_cycles"),
    "mark": True,
}
_STORE: dict[str, Any] = {
    "lanes": ExecutedBy.ELECTED,
    "effects": (
        Effect("src", Space.SHARED, Access.READ, Proxy.ASYNC, When.COMPLETION),
        Effect("dst", Space.GLOBAL, Access.WRITE, Proxy.ASYNC, When.COMPLETION),
    ),
    "completes_by": f"tma.commit_group and {_BULK_REMEDY}",
    "again": Again.VALUES,
    "time": Time(Unit.TMA_STORE, "issue_cycles"),
    "mark": True,
}
_MAPPED = "cp.async.bulk.tensor"
_LINEAR: dict[str, Any] = {"ptx": "cp.async.bulk", "approximation": "the first warp of the group makes all of the copy"}
_LINEAR_SIGNALS = Signal("expect_tx"), *_LOAD["signals"]


TMA_ALIGNMENT_BYTES, MAP_BOX_EXTENT, MAP_RANK = 16, 256, 5  # CUDA driver API, cuTensorMapEncodeTiled
MAP_STRIDE_BYTES, MAP_EXTENT = 2**40, 2**32  # the same
BOX_ALIGNMENT_BYTES = 128
"""Bytes of the alignment of a box in shared memory (PTX, "cp.async.bulk.tensor")."""

LINEAR_LOAD = "cp.async.bulk (load)"
LINEAR_BYTES = 16
"""Bytes of the alignment of both ends of a linear copy (PTX, "cp.async.bulk")."""


@functools.cache
def tensor_map_fault(
    address: int, shape: tuple[int, ...], strides: tuple[int, ...], box: tuple[int, ...], span: int = 0
) -> str:
    """Return why the driver refuses a tensor map, or "". strides: in bytes; box: in elements and, last, the element's
    bytes. span: bytes of a row that the swizzle permutes; 0: no swizzle."""
    *extents, size = box
    if not 1 <= len(shape) <= MAP_RANK:
        return f"it has {len(shape)} dimensions, and a tensor map 1 to {MAP_RANK}"
    if not all(1 <= extent <= MAP_EXTENT for extent in shape):
        return f"its shape is {shape}, and a tensor map has extents from 1 to 2**32"
    if address % TMA_ALIGNMENT_BYTES:
        return f"it starts {address % TMA_ALIGNMENT_BYTES} bytes past a multiple of {TMA_ALIGNMENT_BYTES}"
    if strides[-1] != size:
        return f"its last dimension has a stride of {strides[-1]} bytes; TMA wants neighbours, {size} bytes apart"
    odd = [stride for stride in strides[:-1] if stride % TMA_ALIGNMENT_BYTES]
    if odd:
        return f"a stride is {odd[0]} bytes, and TMA needs multiples of {TMA_ALIGNMENT_BYTES}"
    if max(strides) >= MAP_STRIDE_BYTES:
        return f"a stride is {max(strides)} bytes, and TMA has strides below 2**40"
    if max(extents) > MAP_BOX_EXTENT:
        return f"the tile has an extent of {max(extents)}, and a box at most {MAP_BOX_EXTENT}"
    if extents[-1] * size % TMA_ALIGNMENT_BYTES:
        return f"a row of the tile is {extents[-1] * size} bytes, and TMA needs a multiple of {TMA_ALIGNMENT_BYTES}"
    if span and extents[-1] * size > span:
        return f"a row of the tile is {extents[-1] * size} bytes, and its swizzle permutes {span}; take narrower tiles"
    return ""


def _require_map(
    warp: Warp, view: GlobalView, dims: tuple[int, ...], shape: tuple[int, ...], span: int, context: LoweringContext
) -> None:
    """Require a valid tensor map, which the host makes at the launch."""
    storage = view.storage
    if (dims, shape, span) in storage.maps:
        return
    size, rank = storage.item.dtype.itemsize, len(view.declared)
    extents = dict(zip(sorted(dims), shape, strict=True))
    box = (*(extents.get(dim, 1) for dim in range(rank)), size)
    fault = tensor_map_fault(storage.address, storage.declared, storage.data.strides, box, span)
    if fault:
        raise warp.cta.stop("tensor-map", f"TMA cannot address {storage.name}: {fault}", context.location)
    storage.maps.add((dims, shape, span))


def _require_address(warp: Warp, view: View, multiple: int, context: LoweringContext) -> None:
    """Stop the CTA unless a copy's shared-memory address is a multiple of `multiple` bytes."""
    past = view.storage.address_of(view.base) % multiple
    if past:
        where = f"it starts {past} bytes past a multiple of {multiple} in shared memory"
        message = f"TMA cannot address {view.region()}: {where}; give the parts of {view.storage.name} multiples of it"
        raise warp.cta.stop("tensor-map", message, context.location)


def _require_linear(
    context: LoweringContext, warp: Warp, shared: View, view: GlobalView, offsets: tuple[int, ...]
) -> None:
    """Require aligned ends of a copy without a tensor map; tilus makes its pieces multiples of 16 bytes."""
    storage = view.storage
    past = storage.address % LINEAR_BYTES
    if past:
        message = f"a bulk copy cannot address {storage.name}: it starts {past} bytes past a multiple of {LINEAR_BYTES}"
        raise warp.cta.stop("tensor-map", message, context.location)
    _require_address(warp, shared, LINEAR_BYTES, context)


def _require_whole(place: Placement, view: GlobalView, dims: tuple[int, ...], context: LoweringContext) -> None:
    """Require a linear copy that tilus 0.2.0 gets right. It tests only the first element of each piece for bounds, and
    adds tile indices to the first dimensions, whatever `dims` is."""
    name = view.storage.name
    if dims != tuple(range(len(dims))):
        what = f"over dimensions {list(dims)} of {name}; the first ones work"
    elif not place.whole:
        what = f"that reaches beyond the shape {list(view.declared)} of {name}; one that lies inside works"
    else:
        return
    raise UnsupportedError(f"The simulator does not run the linear copy at {context.location}, {what}.")


def _repeat_bytes(shared: Any) -> int:
    """Return the alignment of a box in this shared tensor: the repeat of its swizzle (PTX, "Swizzling Modes")."""
    swizzle = shared.layout.optional_swizzle
    repeat = 0 if swizzle is None else 2 ** (swizzle.base + swizzle.bits + swizzle.shift) * shared.dtype.nbits // 8
    return max(BOX_ALIGNMENT_BYTES, repeat)


def _requirements(tensor: Any, dims: tuple[int, ...], context: LoweringContext, store: bool) -> Callable[..., None]:
    """Return the check, at issue, of a copy between this shared tensor and a box in global memory."""
    swizzle, boxes = tensor.layout.optional_swizzle, 1 if store else len(spans(tensor.layout, tensor.dtype.nbits))
    shape = (*tensor.shape[:-1], tensor.shape[-1] // boxes)
    span = 0 if swizzle is None else min(TMA_ALIGNMENT_BYTES << swizzle.bits, BOX_ALIGNMENT_BYTES)
    step, multiple = step_of(tensor.dtype.nbits), _repeat_bytes(tensor)

    def require(warp: Warp, shared: View, view: GlobalView, offsets: tuple[int, ...]) -> None:
        _require_map(warp, view, dims, shape, span, context)
        _require_address(warp, shared, multiple, context)
        if offsets[-1] % step or (store and min(offsets) < 0):
            message = misplaced(view.storage.name, offsets, view.item.nbits, store)
            raise warp.cta.stop("tma-coordinate", message, context.location)

    return require


@describe("CopyAsyncBulkGlobalToSharedInst", name=LINEAR_LOAD, **_LINEAR, **_LOAD | {"signals": _LINEAR_SIGNALS})
@describe("CopyAsyncTensorGlobalToSharedInst", name=f"{_MAPPED} (load)", ptx=_MAPPED, **_LOAD)
def load(inst: Any, context: LoweringContext) -> Any:
    dst, src = inst.inputs
    shape, item, location = tuple(dst.shape), element(dst.dtype), context.location
    dims = tuple(inst.dims) if inst.dims else tuple(range(len(shape)))
    box_bytes = int(np.prod(shape)) * item.nbits // 8
    box = tuple((0, e) for e in shape)
    mapped, first = "Tensor" in type(inst).__name__, context.group.warps.start
    one_thread = Instruction(context.description, ThreadGroup(context.group.begin, 1), location)
    require = _requirements(dst, dims, context, store=False) if mapped else functools.partial(_require_linear, context)
    rounds = fetched_as_tf32 if mapped and item.name == "tfloat32" else None
    context.use(dst, src)
    context.place(src, inst.offsets, dims, shape, step_of(item.nbits) if mapped else 1)
    context.scalar(inst.mbarrier)
    if getattr(inst, "multicast_mask", None) is not None:
        context.scalar(inst.multicast_mask)

    group = getattr(inst, "cta_group", 1)

    def run(
        warp: Warp, target: View, source: GlobalView, offsets: tuple[int, ...], address: int, mask: int | None = None
    ) -> None:
        if not mapped and warp.index != first:
            return  # the threads of the group share a linear copy; here the first warp makes all of it
        require(warp, target, source, offsets)
        barrier = barrier_at(warp.cta, address, location) if group == 1 else _of_pair(warp, address, context)
        place = Placement(source, offsets, dims, shape)
        if not mapped:
            _require_whole(place, source, dims, context)
        place.check_exists(warp, source, context.description.name, location)
        if mask is None:
            load_into(warp, warp.cta, target, source, place, barrier)
            return
        for cta in named(warp, mask, context):  # into each at the same offset
            load_into(warp, cta, target.in_cta(cta), source, place, _told(barrier, cta, group))

    def load_into(warp: Warp, cta: Cta, target: View, source: GlobalView, place: Placement, barrier: Mbarrier) -> None:
        regions = {"dst": target.region()}
        context.signal(warp, barrier, instruction=one_thread, count_bytes=box_bytes)
        read_source(warp, regions, source, place)

        def complete() -> bool:
            return copy_in(target, regions["dst"], box, source, place, item, rounds)

        context.launch(
            warp, regions, complete, agent="TMA", barrier=barrier, count_bytes=box_bytes, cta=cta
        )  # fmt: skip

    return run


def _of_pair(warp: Warp, address: int, context: LoweringContext) -> Mbarrier:
    """Return the mbarrier of a load with .cta_group::2, which may be in either CTA of the pair (PTX ISA,
    cp.async.bulk.tensor)."""
    peer_of(warp, context)
    barrier = barrier_in_cluster(warp.cta, address, context.location)
    if barrier.cta.rank // 2 != warp.cta.rank // 2:
        message = (
            f"a load for the pair of CTA {warp.cta.position} signals {barrier}, and can signal one of the pair alone"
        )
        raise warp.cta.stop("remote-mbarrier", message, context.location)
    return barrier


def _told(barrier: Mbarrier, cta: Cta, group: int) -> Mbarrier:
    """Return the mbarrier that counts a multicast load's bytes in a CTA: the CTA's own. With .cta_group::2 it is the
    barrier of the even or odd CTA of the CTA's pair, whichever owns the given one in the issuing pair (PTX ISA,
    cp.async.bulk.tensor)."""
    rank = cta.rank if group == 1 else cta.rank & ~1 | barrier.cta.rank & 1
    return barrier.in_cta(cta.cluster.ctas[rank])


@describe("CopyAsyncBulkSharedToGlobalInst", name="cp.async.bulk (store)", **_LINEAR, **_STORE)
@describe("CopyAsyncTensorSharedToGlobalInst", name=f"{_MAPPED} (store)", ptx=_MAPPED, **_STORE)
def store(inst: Any, context: LoweringContext) -> Any:
    dst, src = inst.inputs
    shape, item, location = tuple(src.shape), element(src.dtype), context.location
    dims = tuple(inst.dims) if inst.dims else tuple(range(len(shape)))
    mapped, first = "Tensor" in type(inst).__name__, context.group.warps.start
    lanes = 1 if mapped else math.prod(shape[:-1])  # a linear copy is one by each thread, of a row at most
    require = _requirements(src, dims, context, store=True) if mapped else functools.partial(_require_linear, context)
    context.use(dst, src)
    context.place(dst, inst.offsets, dims, shape, step_of(item.nbits) if mapped else 1)

    def run(warp: Warp, target: GlobalView, source: View, offsets: tuple[int, ...]) -> None:
        if not mapped and warp.index != first:
            return
        require(warp, source, target, offsets)
        place = Placement(target, offsets, dims, shape)
        if not mapped:
            _require_whole(place, target, dims, context)
        place.check_exists(warp, target, context.description.name, location)
        region = place.region(target)
        taken: list[np.ndarray] = []

        def take() -> None:
            if place.inside:
                tile = from_image(np.ascontiguousarray(source.read()[place.tile]), item)
                taken.append(tile if tile.base is None else tile.copy())

        def complete() -> None:
            if place.inside:
                target.data[place.picks] = taken[0]
                record_write(warp, target, region.box)

        regions = {"src": source.region(), "dst": region} if place.inside else {"src": source.region()}
        context.launch(warp, regions, complete, agent="TMA", family=_BULK_FAMILY, read_phase=take, lanes=lanes)

    return run


@describe(
    "CopyAsyncBulkGlobalToClusterSharedInst",
    "CopyAsyncBulkSharedToClusterSharedInst",
    ptx="cp.async.bulk",
    time=UNKNOWN,
)
def bulk_cluster(inst: Any, context: LoweringContext) -> Any:
    raise UnsupportedError(
        f"The simulator does not run the bulk copy into a cluster at {context.location}; tma.global_to_shared with a"
        " multicast_mask reaches the CTAs of a cluster."
    )


@describe(
    "CopyAsyncTensorCommitGroupInst",
    "CopyAsyncBulkCommitGroupInst",
    name="cp.async.bulk.commit_group",
    called="tma.commit_group",
    lanes=ExecutedBy.ELECTED,
    completes_by=_BULK_REMEDY,
    again=Again.NOTHING,
    time=FREE,
)
def commit_group(inst: Any, context: LoweringContext) -> Callable[[Warp], None]:
    return lambda warp: context.commit(warp, _BULK_FAMILY)


_WAIT: dict[str, Any] = {
    "name": "cp.async.bulk.wait_group",
    "called": "tma.wait_group",
    "lanes": ExecutedBy.ELECTED,
    "waits": (Wait("group"), Wait("group.read")),
    "again": Again.NOTHING,
    "time": FREE,
}


@describe("CopyAsyncTensorWaitGroupInst", mark="waits for cp.async.bulk.tensor (store)", **_WAIT)
@describe("CopyAsyncBulkWaitGroupInst", mark="waits for cp.async.bulk (store)", **_WAIT)
def wait_group(inst: Any, context: LoweringContext) -> Any:
    """Wait for all but the newest n bulk groups of the executing thread; with `read`, only for their reads."""
    context.scalar(inst.n)
    end = context.end_reads if getattr(inst, "read", False) else context.end_groups
    return lambda warp, n: end(warp, _BULK_FAMILY, n)
