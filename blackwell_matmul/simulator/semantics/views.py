"""Tensors and views of them: no data move here."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np

from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.frontend.faults.shared_layouts import offset_in
from blackwell_matmul.frontend.faults.wide_views import MOST_OFFSET, TOO_WIDE, counted_views
from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.description import (
    FREE,
    Access,
    Again,
    Description,
    Effect,
    Instruction,
    Space,
    describe,
)
from blackwell_matmul.simulator.disagreement import disagreement
from blackwell_matmul.simulator.expressions import free_variables, index_function
from blackwell_matmul.simulator.lowering.context import LoweringContext
from blackwell_matmul.simulator.machine.cta import Cta, Warp
from blackwell_matmul.simulator.machine.deferred import SharedStorage
from blackwell_matmul.simulator.machine.global_memory import (
    GlobalStorage,
    GlobalWorkspace,
    Segment,
    ViewKey,
    segment_of,
    share_bytes,
)
from blackwell_matmul.simulator.machine.memory import AliasedStorage, Box, Region, Storage, View
from blackwell_matmul.simulator.machine.registers import ThreadGroup
from blackwell_matmul.simulator.types import Element, element

# shared memory


@describe(
    "AllocateSharedInst",
    ptx="State Spaces / Shared State Space",
    effects=(Effect("dst", Space.SHARED, Access.ALLOCATE),),
    again=Again.NOTHING,
    time=FREE,
)
def allocate_shared(inst: Any, context: LoweringContext) -> Any:
    tensor, name = inst.output, context.name(inst.output, "shared tensor")
    placement = context.program.shared[tensor]
    neighbours = [t for t, p in context.program.shared.items() if t is not tensor and share_bytes(p, placement)]
    key, item, shape = id(inst), element(tensor.dtype), tuple(tensor.shape)

    def make(cta: Cta) -> Storage:
        if neighbours:
            return _aliased(cta, tensor, name, placement.address, context)
        data = np.full(shape, item.poison, item.image)
        storage = SharedStorage(name, item, data)
        storage.performed = cta.engine.tell.performed
        return storage

    @functools.cache
    def address_of(place: tuple[int, ...]) -> int:
        return int(placement.address) + offset_in(tensor.layout, place) * item.nbits // 8

    def in_cta(cta: Cta) -> Storage:
        if key not in cta.shared:
            cta.shared[key] = make(cta)
            cta.shared[key].in_cta, cta.shared[key].address_of = in_cta, address_of
        return cta.shared[key]

    return lambda warp: in_cta(warp.cta).root


def _aliased(cta: Cta, tensor: Any, name: str, address: int, context: LoweringContext) -> AliasedStorage:
    if cta.shared_bytes is None:
        cta.shared_bytes = np.full(
            context.program.dynamic_shared_bytes + 16, 0xFF, np.uint8
        )  # 0xFF…: NaN in every float
    offsets = np.asarray(tensor.layout.as_numpy_grid(), np.int64)
    storage = AliasedStorage(
        name, element(tensor.dtype), np.broadcast_to(offsets, tensor.shape), cta.shared_bytes, address
    )
    relatives = [s for s in cta.shared.values() if isinstance(s, AliasedStorage) and s.meets(storage)]
    storage.family = [storage, *relatives]
    for other in relatives:
        other.family.append(storage)
    return storage


@describe("FreeSharedInst", ptx="State Spaces / Shared State Space", again=Again.NOTHING, time=FREE)
def free_shared(inst: Any, context: LoweringContext) -> Any:
    """Lower a free of the addresses for a later tensor; the bytes stay until the later tensor is written."""
    return None


@describe("SliceSharedInst", "SliceGlobalInst", ptx="Addresses as Operands", again=Again.NOTHING, time=FREE)
def slice_view(inst: Any, context: LoweringContext) -> Any:
    source, shape = inst.inputs[0], tuple(inst.output.shape)
    dims = tuple(range(len(source.shape))) if inst.dims is None else tuple(inst.dims)
    context.use(source)
    context.scalars(inst.offsets)
    context.scalars(shape)
    location = context.location

    def run(warp: Warp, view: View, offsets: tuple[int, ...], extents: tuple[int, ...]) -> View:
        try:
            return view.slice(offsets, dims, extents)
        except IndexError as error:
            message = f"a slice leaves its tensor: {error}"
            if not isinstance(view, GlobalView) or 0 in view.shape:
                raise warp.cta.stop("out-of-bounds", message, location) from None
            warp.cta.report("out-of-bounds", f"{message}; the simulator goes on with the nearest that exists", location)
            return view.slice(view.nearest(offsets), dims, extents)

    return run


@describe("PermuteSharedInst", ptx="Addresses as Operands", again=Again.NOTHING, time=FREE)
def permute_view(inst: Any, context: LoweringContext) -> Any:
    context.use(inst.inputs[0])
    dims = tuple(inst.dims)
    return lambda warp, view: view.permute(dims)


@describe("ReshapeSharedInst", ptx="Addresses as Operands", again=Again.NOTHING, time=FREE)
def reshape_view(inst: Any, context: LoweringContext) -> Any:
    context.use(inst.inputs[0])
    shape, location = tuple(inst.output.shape), context.location

    def run(warp: Warp, view: View) -> View:
        try:
            return view.reshape(shape)
        except ValueError:
            raise UnsupportedError(
                f"The simulator does not join permuted dimensions of {view.storage.name} ({location}): take the parts"
                " one by one, or reshape first and permute then."
            ) from None

    return run


# global memory


class GlobalView(View):
    """A view of global memory with the shape that the kernel declared, which may exceed the memory."""

    __slots__ = ("declared", "image")
    storage: GlobalStorage

    def __init__(self, *args: Any, declared: tuple[int, ...], image: np.ndarray | None) -> None:
        super().__init__(*args)
        self.declared = declared
        self.image = image

    def _slice(self, offsets: tuple[int, ...], dims: tuple[int, ...], shape: tuple[int, ...]) -> View:
        extents = dict(zip(sorted(dims), shape, strict=True))
        picks: list[Any] = []
        for dim, offset in enumerate(offsets):
            if not 0 <= offset < max(self.data.shape[dim], 1):
                raise IndexError(
                    f"{self.storage.name}: index {offset} of dimension {dim}, which has {self.shape[dim]} elements"
                )
            picks.append(slice(offset, offset + extents[dim]) if dim in extents else int(offset))
        base = list(self.base)
        for dim, offset in enumerate(offsets):
            base[self.dims[dim]] += offset
        kept = tuple(self.dims[d] for d in sorted(dims))
        image = None if self.image is None else self.image[(*picks, ...)]
        return GlobalView(self.storage, self.data[(*picks, ...)], tuple(base), kept, declared=shape, image=image)

    @property
    def address(self) -> int:
        """Return the address of the first element."""
        storage = self.storage
        assert isinstance(storage, GlobalStorage)
        elements = sum(b * s for b, s in zip(self.base, storage.key.strides, strict=True))
        return storage.address + elements * storage.item.nbits // 8

    def nearest(self, offsets: tuple[int, ...]) -> tuple[int, ...]:
        """Return the offsets of the nearest slice that exists."""
        return tuple(min(max(offset, 0), extent - 1) for offset, extent in zip(offsets, self.shape, strict=True))


def global_root(storage: GlobalStorage) -> GlobalView:
    rank = len(storage.data.shape)
    dims = tuple(range(rank))
    return GlobalView(storage, storage.data, (0,) * rank, dims, declared=storage.declared, image=storage.image)


def _strides(tensor: Any) -> tuple[list[Any], Callable[..., Any]]:
    """Return variables, and a function of (axes…, variables…) that returns the element offset."""
    layout = tensor.layout
    free = free_variables(layout.offset, layout.axes)
    return free, index_function([*layout.axes, *free], layout.offset)


def _probe(offset: Callable[..., Any], shape: tuple[int, ...], free: tuple[Any, ...]) -> tuple[int, tuple[int, ...]]:
    """Return origin and strides of an affine layout; ValueError for another layout."""
    rank = len(shape)
    origin = int(offset(*(0,) * rank, *free))
    unit = [tuple(int(i == d) for i in range(rank)) for d in range(rank)]
    strides = tuple(int(offset(*u, *free)) - origin for u in unit)
    corner = tuple(max(extent - 1, 0) for extent in shape)
    half = tuple(c // 2 for c in corner)
    for point in (corner, half, tuple(min(3, c) for c in corner)):
        if int(offset(*point, *free)) != origin + sum(p * s for p, s in zip(point, strides, strict=True)):
            raise ValueError("not affine")
    return origin, strides


@describe("GlobalViewInst", ptx="State Spaces / Global State Space", again=Again.NOTHING, time=FREE)
def global_view(inst: Any, context: LoweringContext) -> Any:
    tensor = inst.output
    name, item, location = context.name(tensor, "global tensor"), element(tensor.dtype), context.location
    counted = any(each is inst for each in counted_views(context.program.tile))
    free, offset = _strides(tensor)
    context.scalar(inst.ptr)
    context.scalars(tensor.shape)
    context.scalars(free)

    def run(warp: Warp, address: int, shape: tuple[int, ...], values: tuple[Any, ...]) -> GlobalView:
        cache: dict[Any, GlobalView] = warp.cta.grid.memory.views
        key = (id(inst), address, shape, values)
        if key not in cache:
            cache[key] = make(warp, address, shape, values)
        return cache[key]

    def make(warp: Warp, address: int, shape: tuple[int, ...], values: tuple[Any, ...]) -> GlobalView:
        shape = tuple(max(0, extent) for extent in shape)
        try:
            origin, strides = _probe(offset, shape, values)
        except ValueError:
            raise context.fail(f"the layout of {name} is not strided") from None
        last = origin + sum((extent - 1) * stride for extent, stride in zip(shape, strides, strict=True))
        if counted and last > MOST_OFFSET:
            raise context.fail(f"{name} {TOO_WIDE}")
        if origin * item.nbits % 8:
            raise context.fail(f"{name} starts inside a byte")
        key = ViewKey(address + origin * item.nbits // 8, item, shape, strides, name)
        storage = warp.cta.grid.memory.view(key)
        if storage is None:
            message = (
                f"{name} points to address {address:#x}, which lies in no tensor of this launch;"
                " pass the tensor itself and not its data_ptr(), or name it in simulate(..., memory=[tensor])"
            )
            raise warp.cta.stop("out-of-bounds", message, location)
        return global_root(storage)

    return run


CLEAN, UNCLEARED_BYTE = 0, 0xFF
"""Byte values of a clean and of a used workspace; used floats are NaN."""


@describe(
    "AllocateGlobalInst",
    ptx="State Spaces / Global State Space",
    effects=(Effect("dst", Space.GLOBAL, Access.ALLOCATE),),
    time=FREE,
)
def allocate_global(inst: Any, context: LoweringContext) -> Any:
    """Lower a workspace that all CTAs share. It holds zeros if the script requires a clean workspace."""
    tensor, item = inst.output, element(inst.output.dtype)
    name, location = context.name(tensor, "global workspace"), context.location
    free, offset = _strides(tensor)
    context.scalars(tensor.shape)
    context.scalars(free)

    def run(warp: Warp, shape: tuple[int, ...], values: tuple[Any, ...]) -> GlobalView:
        memory = warp.cta.grid.memory
        key = f"workspace {id(inst)}"
        segment = next((s for s in memory.segments if s.name == key), None)
        _, strides = _probe(offset, shape, values)
        if segment is None:
            size = 1 + sum((e - 1) * s for e, s in zip(shape, strides, strict=True))
            held = np.full(size * item.dtype.itemsize, CLEAN if inst.require_clean else UNCLEARED_BYTE, np.uint8)
            segment = segment_of(key, held.view(item.dtype))
            memory.segments.append(segment)
        storage = memory.view(ViewKey(segment.address, item, shape, strides, name))
        assert storage is not None
        storage.defined = inst.require_clean
        if all(workspace.storage is not storage for workspace in memory.workspaces):
            memory.workspaces.append(GlobalWorkspace(storage, location))
        memory.read.add(segment.address)
        return global_root(storage)

    return run


# where a tile lies inside a global tensor


@functools.cache
def _extents(dims: tuple[int, ...], shape: tuple[int, ...], rank: int) -> tuple[int, ...]:
    """Return the tile's extent in each dimension of the global tensor; 0 in dimensions that the tile lacks."""
    extents = dict(zip(sorted(dims), shape, strict=True))
    return tuple(extents.get(dim, 0) for dim in range(rank))


class Placement:
    """A tile of `shape` over `dims` of a global view at `offsets`: its part inside the tensor, and where that lies.

    inside: some of it exists. whole: all of it does. box: the part inside, in the view's coordinates. extents: the
    tile's, for each dimension of the view; 0 in those that the tile lacks.
    """

    __slots__ = ("box", "extents", "inside", "offsets", "whole")

    def __init__(
        self, view: GlobalView, offsets: tuple[int, ...], dims: tuple[int, ...], shape: tuple[int, ...]
    ) -> None:
        self.offsets, self.extents = offsets, _extents(dims, shape, len(offsets))
        self.inside = self.whole = True
        self.box: Box = self.reach
        for (lo, hi), limit in zip(self.box, view.declared, strict=True):
            if lo < 0 or hi > limit:
                self._clip(view.declared)
                break

    def _clip(self, limits: tuple[int, ...]) -> None:
        inside = [(max(lo, 0), min(hi, limit)) for (lo, hi), limit in zip(self.box, limits, strict=True)]
        self.whole, self.inside = False, all(lo < hi for lo, hi in inside)
        self.box = tuple([(lo, max(lo, hi)) for lo, hi in inside])

    @property
    def reach(self) -> Box:
        """Return the whole tile as a box, in the view's coordinates."""
        return tuple([(o, o + (e or 1)) for o, e in zip(self.offsets, self.extents, strict=True)])

    @property
    def picks(self) -> tuple[Any, ...]:
        """Return the part inside, as an index of the view."""
        return tuple([slice(lo, hi) if extent else lo for (lo, hi), extent in zip(self.box, self.extents, strict=True)])

    @property
    def tile(self) -> tuple[slice, ...]:
        """Return the part inside, as an index of the tile."""
        every = zip(self.box, self.offsets, self.extents, strict=True)
        return tuple([slice(lo - offset, hi - offset) for (lo, hi), offset, extent in every if extent])

    def region(self, view: View) -> Region:
        """Return the storage's region of the part inside."""
        if view.storage.data is view.data:
            return Region(view.storage, self.box)
        root = [(b, b + 1) for b in view.base]
        for dim, (lo, hi) in zip(view.dims, self.box, strict=True):
            root[dim] = (view.base[dim] + lo, view.base[dim] + hi)
        return Region(view.storage, tuple(root))

    def check_exists(self, warp: Warp, view: GlobalView, what: str, location: Location | None) -> None:
        """Stop if the part inside the declared shape exceeds the argument's memory."""
        if view.data.shape == view.declared:
            return
        for dim, (_, hi) in enumerate(self.box):
            if self.inside and hi > view.data.shape[dim]:
                storage = view.storage
                why = disagreement(warp.cta.grid.memory.tensors, storage.key)
                because = f": {why}" if why else ""
                raise warp.cta.stop(
                    "out-of-bounds",
                    f"{what} touches {storage.name} up to index {hi - 1} of dimension {dim}, but the memory of"
                    f" {storage.segment.name} ({storage.segment.nbytes} bytes) ends before it{because}",
                    location,
                )


def record_write(warp: Warp, view: GlobalView, box: Box, elements: tuple[np.ndarray, ...] | None = None) -> None:
    """Record this CTA's write (in root coordinates), to compare CTAs."""
    storage = view.storage
    if storage.constant:
        raise UnsupportedError(
            f"{storage.name} is written by an instruction whose description has no effect that writes global memory."
        )
    warp.cta.grid.memory.record(storage, warp.cta.number, box, elements)


def record_read(warp: Warp, view: GlobalView, box: Box | None = None) -> None:
    """Record this CTA's read; the box (in root coordinates) if the program may also write there."""
    storage, memory = view.storage, warp.cta.grid.memory
    memory.read.add(storage.segment.address)
    if not storage.constant and box is not None:
        memory.record_read(storage, warp.cta.number, box)


# single elements


ITEM = Description("item()", "ld", time=FREE)
_ITEM_READS = {
    "shared": Effect("tensor", Space.SHARED, Access.READ),
    "global": Effect("tensor", Space.GLOBAL, Access.READ),
}


def item_value(tensor: Any, group: ThreadGroup, location: Location | None) -> Callable[[Warp, Any], Any]:
    """Return tensor.item(): one element, on which all active lanes must agree, as scalars belong to the warp."""
    here = Instruction(ITEM, group, location)

    def run(warp: Warp, value: Any) -> Any:
        if isinstance(value, View):
            warp.cta.engine.tell.accessed(warp, here, _ITEM_READS[value.storage.space], value.region())
            if isinstance(value, GlobalView):
                record_read(warp, value, value.region().box)
            return value.read().reshape(-1)[0].item()
        lane, lanes = group.lanes(warp.index)
        cells = value[lane : lane + lanes, 0]
        first = cells[0]
        if lanes > 1 and not (cells == first).all() and not (cells != cells).all():
            raise warp.cta.stop(
                "thread-dependent-scalar",
                f"item() gives {sorted({str(c) for c in cells})[:4]} in the lanes of one warp; the simulator runs a"
                " warp as one agent, and a scalar must be the same in all of its lanes",
                location,
            )
        return first.item()

    return run


def item_address(location: Location | None) -> Callable[[Warp, Any], int]:
    """Return ~tensor[...]: the address of an element of global memory."""

    def run(warp: Warp, value: Any) -> int:
        if not isinstance(value, GlobalView):
            raise warp.cta.stop("unsupported", "only the address of a global element can be taken", location)
        return value.address

    return run


# alignment


def alignment(inst: Any, context: LoweringContext, item: Element) -> Callable[[Warp, int], None]:
    """Return a check of the base address of an instruction: a multiple of the bytes that the compiled code accesses
    together."""
    unit = max(context.program.access_bytes.get(inst, 1), item.nbits // 8)
    name, location = context.instruction.spoken, context.location

    def require(warp: Warp, address: int) -> None:
        if address % unit:
            why = _past(warp.cta.grid.memory.segment_at(address), address, unit)
            message = f"{name} accesses {unit} bytes at once, and {why}"
            raise warp.cta.stop("misaligned-address", message, location)

    return require


def _past(segment: Segment | None, address: int, unit: int) -> str:
    """Return a clause with the tensor that starts between two multiples of the unit, or that is entered between two."""
    past = f"{address % unit} bytes past a multiple of {unit}"
    if segment is None or address == segment.address:
        return f"{'the pointer' if segment is None else segment.name} starts {past}: pass a copy of the tensor"
    into = f"the view starts {address - segment.address} bytes into {segment.name}"
    return f"{into}, {past}: start it at a multiple of {unit} bytes"
