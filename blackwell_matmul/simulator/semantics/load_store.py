"""Loads and stores between registers and shared or global memory (ld, st: generic proxy, done at issue)."""

from __future__ import annotations

from typing import Any

import numpy as np

from blackwell_matmul.simulator.description import Access, Again, Effect, Space, Time, Unit, describe
from blackwell_matmul.simulator.lowering.context import LoweringContext
from blackwell_matmul.simulator.machine.cta import Warp
from blackwell_matmul.simulator.machine.deferred import Patch
from blackwell_matmul.simulator.machine.memory import Holders, Region, View
from blackwell_matmul.simulator.machine.registers import WARP, WarpLayout
from blackwell_matmul.simulator.semantics.views import GlobalView, Placement, alignment, record_read, record_write
from blackwell_matmul.simulator.types import element, from_image, to_image


@describe(
    "LoadSharedInst",
    name="load_shared",
    ptx="ld.shared",
    effects=(Effect("src", Space.SHARED, Access.READ), Effect("dst", Space.REGISTER, Access.WRITE)),
    again=Again.VALUES,
    time=Time(Unit.BANKS, "unstage_cycles"),
    mark=True,
)
def load_shared(inst: Any, context: LoweringContext) -> Any:
    layouts, check, item = context.layouts(inst.output), context.touch("src"), element(inst.output.dtype)
    context.use(inst.inputs[0])
    later = context.deferrable(inst.output)

    def run(warp: Warp, view: View) -> np.ndarray | Patch:
        layout = layouts[warp.index]
        check(warp, view.part(layout))
        patch = view.storage.patch(view) if later else None
        if patch is not None:
            return patch
        view.storage.fill()
        return from_image(view.storage.read(layout.load(view.data)), item)

    return run


@describe(
    "StoreSharedInst",
    name="store_shared",
    ptx="st.shared",
    effects=(Effect("src", Space.REGISTER, Access.READ), Effect("dst", Space.SHARED, Access.WRITE)),
    again=Again.VALUES,
    time=Time(Unit.BANKS, "stage_cycles"),
    mark=True,
)
def store_shared(inst: Any, context: LoweringContext) -> Any:
    dst, src = inst.inputs
    layouts, check, item = context.layouts(src), context.touch("dst"), element(src.dtype)
    context.use(dst, src)

    def run(warp: Warp, view: View, registers: np.ndarray) -> None:
        layout = layouts[warp.index]
        check(warp, view.part(layout))
        view.store(layout, to_image(registers, item))

    return run


@describe(
    "LoadGlobalInst",
    name="load_global",
    ptx="ld.global",
    effects=(Effect("src", Space.GLOBAL, Access.READ), Effect("dst", Space.REGISTER, Access.WRITE)),
    again=Again.VALUES,
    time=Time(Unit.LINES),
    mark=True,
)
def load_global(inst: Any, context: LoweringContext) -> Any:
    """Lower a load, which tilus masks by the declared shape: elements outside are zero."""
    layouts, check, item = context.layouts(inst.output), context.touch("src"), element(inst.output.dtype)
    shape, dims, location = tuple(inst.output.shape), tuple(inst.dims), context.location
    require_aligned = alignment(inst, context, item)
    context.use(inst.inputs[0])
    context.place(inst.inputs[0], inst.offsets, dims, shape)

    def run(warp: Warp, view: GlobalView, offsets: tuple[int, ...]) -> np.ndarray:
        layout = layouts[warp.index]
        place = Placement(view, *_clip(layout, offsets, dims, shape))
        record_read(warp, view, place.region(view).box)
        if not place.inside:
            return np.zeros((WARP, layout.local_size), item.dtype)
        place.check_exists(warp, view, "load_global", location)
        require_aligned(warp, view.address)
        check(warp, _region(place, view, layout, offsets, dims))
        lo = tuple(b[0] for b in layout.box)
        tile = np.zeros(tuple(b[1] for b in layout.box), item.dtype) if shape else np.zeros((), item.dtype)
        corner = tuple(slice(s.start + o, s.stop + o) for s, o in zip(place.tile, lo, strict=True))
        tile[corner] = view.storage.read(view.data[place.picks])
        return layout.load(tile)

    return run


def _clip(
    layout: WarpLayout, offsets: tuple[int, ...], dims: tuple[int, ...], shape: tuple[int, ...]
) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    """Return the rectangle that one warp accesses, as (offsets, dims, shape) in the global tensor."""
    moved = list(offsets)
    for i, dim in enumerate(sorted(dims)):
        moved[dim] += layout.box[i][0]
    return tuple(moved), dims, tuple(hi - lo for lo, hi in layout.box)


@describe(
    "StoreGlobalInst",
    name="store_global",
    ptx="st.global",
    effects=(Effect("src", Space.REGISTER, Access.READ), Effect("dst", Space.GLOBAL, Access.WRITE)),
    again=Again.VALUES,
    time=Time(Unit.LINES),
    mark=True,
)
def store_global(inst: Any, context: LoweringContext) -> Any:
    """Lower a store, which tilus masks by the declared shape."""
    dst, src = inst.inputs
    layouts, check, shape, dims = context.layouts(src), context.touch("dst"), tuple(src.shape), tuple(inst.dims)
    location, item = context.location, element(src.dtype)
    require_aligned = alignment(inst, context, item)
    context.use(dst, src)
    context.place(dst, inst.offsets, dims, shape)

    def run(warp: Warp, view: GlobalView, registers: np.ndarray, offsets: tuple[int, ...]) -> None:
        layout = layouts[warp.index]
        place = Placement(view, *_clip(layout, offsets, dims, shape))
        if not place.inside:
            return
        place.check_exists(warp, view, "store_global", location)
        require_aligned(warp, view.address)
        region = _region(place, view, layout, offsets, dims)
        check(warp, region)
        if layout.dense and place.whole and not item.packed:
            lo = tuple(b[0] for b in layout.box)
            base = list(offsets)
            layout.store(_window(view, base, dims, lo, shape), registers)
            record_write(warp, view, region.box)
        else:
            _store_elements(warp, view, layout, registers, offsets, dims, region.box)

    def chosen(warp: Warp, view: GlobalView, registers: np.ndarray, offsets: tuple[int, ...]) -> np.ndarray:
        return _inside(view, layouts[warp.index], offsets, dims)[1]

    context.chosen = chosen

    def _window(
        view: GlobalView, base: list[int], dims: tuple[int, ...], lo: tuple[int, ...], shape: tuple[int, ...]
    ) -> np.ndarray:
        """Return the tile inside the tensor, from the tile's own origin (only the warp's part need exist)."""
        picks: list[Any] = [int(o) for o in base]
        for i, dim in enumerate(sorted(dims)):
            start = base[dim] + lo[i]
            picks[dim] = slice(start, base[dim] + shape[i])
        part = view.data[(*picks, ...)]  # the dots keep a single element an array
        return _Shifted(part, lo)  # type: ignore[return-value]

    return run


class _Shifted:
    """An array with coordinates that start at `origin`."""

    __slots__ = ("array", "origin")

    def __init__(self, array: np.ndarray, origin: tuple[int, ...]) -> None:
        self.array, self.origin = array, origin

    def __getitem__(self, key: tuple[slice, ...]) -> np.ndarray:
        return self.array[tuple(slice(s.start - o, s.stop - o) for s, o in zip(key, self.origin, strict=True))]

    def __setitem__(self, key: tuple[np.ndarray, ...], values: np.ndarray) -> None:
        self.array[tuple(c - o for c, o in zip(key, self.origin, strict=True))] = values


def _store_elements(
    warp: Warp,
    view: GlobalView,
    layout: WarpLayout,
    registers: np.ndarray,
    offsets: tuple[int, ...],
    dims: tuple[int, ...],
    box: Any,
) -> None:
    """Store only the elements inside the declared shape."""
    cells, keep = _inside(view, layout, offsets, dims)
    values = registers[layout.lane : layout.lane + layout.lanes][keep]
    if view.item.packed:
        view.storage.write(view.data[cells], values)
    else:
        view.data[cells] = values
    if layout.dense:
        record_write(warp, view, box)
        return
    record_write(warp, view, box, _in_root(view, cells))


def _inside(
    view: GlobalView, layout: WarpLayout, offsets: tuple[int, ...], dims: tuple[int, ...]
) -> tuple[tuple[np.ndarray, ...], np.ndarray]:
    """Return the indices of a warp's registers inside the declared shape, and a mask of these registers."""
    positions = [np.asarray(o) for o in offsets]
    for i, dim in enumerate(sorted(dims)):
        positions[dim] = offsets[dim] + layout.coords[i]
    keep = np.ones((layout.lanes, layout.local_size), bool)
    for dim, position in enumerate(positions):
        keep &= (position >= 0) & (position < view.declared[dim])
    return tuple(np.broadcast_to(p, keep.shape)[keep] for p in positions), keep


def _in_root(view: View, cells: tuple[np.ndarray, ...]) -> tuple[np.ndarray, ...]:
    """Return coordinates in the storage for coordinates in a view of it."""
    root: list[Any] = [np.full(cells[0].shape if cells else (), b) for b in view.base]
    for dim, cell in zip(view.dims, cells, strict=True):
        root[dim] = view.base[dim] + cell
    return tuple(root)


def _region(
    place: Placement, view: GlobalView, layout: WarpLayout, offsets: tuple[int, ...], dims: tuple[int, ...]
) -> Region:
    """Return a warp's region of global memory: the rectangle inside, or its elements if they do not fill it."""

    def holders() -> Holders:
        cells, kept = _inside(view, layout, offsets, dims)
        numbers = np.asarray(np.ravel_multi_index(_in_root(view, cells), view.storage.shape))
        return numbers, layout.lane + np.nonzero(kept)[0]

    box = place.region(view).box
    return Region(view.storage, box, None if layout.dense else lambda: holders()[0], holders=holders)
