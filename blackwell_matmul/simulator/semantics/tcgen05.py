"""The fifth-generation tensor core and its tensor memory (PTX ISA, "TensorCore 5th Generation Instructions").

mma and cp are asynchronous and issued by one lane; commit makes an mbarrier track them; ld and st are asynchronous
too, executed by the whole warp, and end with wait::ld and wait::st. Operations of one kind issued by one thread form
a pipe: they complete in the order of their issue ("tcgen05 Memory Consistency Model, Pipelined Instructions").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from blackwell_matmul.errors import UnsupportedError
from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator.engine import AsyncOperation, Blocked
from blackwell_matmul.simulator.machine.cta import TENSOR_MEMORY_LANES, Allocation, Cta, Mbarrier, Warp
from blackwell_matmul.simulator.machine.memory import Box, Region, View
from blackwell_matmul.simulator.machine.registers import WARP
from blackwell_matmul.simulator.semantics.cluster import named
from blackwell_matmul.simulator.semantics.description import (
    Access,
    Again,
    Effect,
    Lanes,
    Proxy,
    Signal,
    Space,
    Wait,
    When,
    describe,
)
from blackwell_matmul.simulator.lowering.context import Site, poisoned
from blackwell_matmul.simulator.types import Element, element

COLUMN_BITS = 32


class TensorView:
    """A tensor in tensor memory: `lanes` from `lane`, and for each leading index a run of columns.

    column: the first 32-bit column. strides: columns between neighbours of each leading dimension.
    """

    __slots__ = ("allocation", "column", "cta", "item", "lane", "shape", "strides")

    def __init__(
        self,
        cta: Cta,
        allocation: Allocation,
        item: Element,
        shape: tuple[int, ...],
        lane: int,
        column: int,
        strides: tuple[int, ...],
    ) -> None:
        self.cta, self.allocation, self.item, self.shape = cta, allocation, item, shape
        self.lane, self.column, self.strides = lane, column, strides

    @property
    def name(self) -> str:
        return self.allocation.name

    @property
    def columns(self) -> int:
        return math.ceil(self.shape[-1] * self.item.nbits / COLUMN_BITS)

    @property
    def box(self) -> Box:
        """Its lanes and columns."""
        return (self.lane, self.lane + self.shape[-2]), (self.column, self.column + self.columns)

    def cells(self) -> np.ndarray:
        """A rank-2 tensor's elements, as a numpy view of tensor memory, which is up to date."""
        if self.cta.tensor_memory.products:
            self.cta.tensor_memory.flush(self.box)
        raw = self.cta.tensor_memory.data
        part = raw[self.lane : self.lane + self.shape[-2], self.column : self.column + self.columns]
        if self.item.dtype == raw.dtype:
            return part[:, : self.shape[-1]]
        per_column = COLUMN_BITS // 8 // self.item.dtype.itemsize
        typed = raw.view(self.item.dtype)
        start = self.column * per_column
        return typed[self.lane : self.lane + self.shape[-2], start : start + self.shape[-1]]

    def region(self, location: Location | None, rows: tuple[int, int] | None = None) -> Region:
        """What an access at `location` to some rows (None: all) touches."""
        if not self.allocation.alive:
            message = f"{self.name} is used after it was freed"
            self.cta.report("tensor-memory-not-allocated", message, location, self.allocation.freed)
        owner = (self.name, (0, self.allocation.begin))
        if rows is None:
            return Region(self.cta.tensor_memory, self.box, owner=owner)
        top, bottom = rows
        return Region(self.cta.tensor_memory, ((self.lane + top, self.lane + bottom), self.box[1]), owner=owner)


def _power_of_two(columns: int) -> int:
    """tcgen05.alloc takes a power of two from 32 to 512; code generation rounds up."""
    return max(32, 1 << (columns - 1).bit_length())


@describe(
    "Tcgen05AllocInst",
    name="tcgen05.alloc",
    ptx="tcgen05.alloc",
    effects=(Effect("dst", Space.REGISTER, Access.WRITE),),
    waits=(Wait("threads"),),
    resources=("tensor memory columns",),
    again=Again.NOTHING,
)
def alloc(inst: Any, site: Site) -> Any:
    """One warp allocates; code generation lets the whole thread group wait for the address."""
    if inst.cta_group != 1:
        raise UnsupportedError(
            f"The simulator does not run CTA pairs yet; {site.location} allocates for two, and cta_group 1 works."
        )
    tensor = inst.output
    item, shape, name, location = element(tensor.dtype), tuple(tensor.shape), site.name(tensor), site.location
    run_columns = math.ceil(shape[-1] * item.nbits / COLUMN_BITS)
    total = _power_of_two(math.prod(shape[:-2]) * run_columns)
    strides = tuple(math.prod(shape[i + 1 : -2]) * run_columns for i in range(len(shape) - 2))
    needed = frozenset(site.group.warps)
    site.kind = "steps"

    def run(warp: Warp) -> Any:
        meeting = warp.cta.meet(("alloc", id(inst)), needed, warp.index)
        if meeting.over:
            meeting.result = warp.cta.allocate_columns(total, name, location)
        else:
            why = lambda: f"the other warps at the allocation of {name}"  # noqa: E731
            yield Blocked(meeting.complete, why, location, meeting=meeting)
        allocation = meeting.result
        return TensorView(warp.cta, allocation, item, shape, 0, allocation.begin, strides)

    return run


@describe(
    "Tcgen05DeallocInst",
    name="tcgen05.dealloc",
    ptx="tcgen05.dealloc",
    effects=(Effect("tensor", Space.TENSOR, Access.WRITE, Proxy.TENSOR_MEMORY),),
    resources=("tensor memory columns",),
    conflict="dealloc-in-flight",
    again=Again.NOTHING,
)
def dealloc(inst: Any, site: Site) -> Any:
    """One warp gives the columns back: nobody may still be using them, nor be about to."""
    site.use(inst.inputs[0])
    first, location, effect = site.group.warps.start, site.location, site.description.effects[0]

    def run(warp: Warp, view: TensorView) -> None:
        if warp.index != first:
            return
        whole = (view.allocation.begin, view.allocation.begin + view.allocation.columns)
        if warp.cta.order is not None:
            box = ((0, TENSOR_MEMORY_LANES), whole)
            region = Region(view.cta.tensor_memory, box, owner=(view.name, (0, whole[0])))
            warp.cta.order.access(warp, site, effect, region)
            warp.cta.order.freed(region)
        warp.cta.free(view.allocation, location)

    return run


@describe(
    "Tcgen05RelinquishAllocPermitInst",
    name="tcgen05.relinquish_alloc_permit",
    ptx="tcgen05.relinquish_alloc_permit",
    again=Again.NOTHING,
)
def relinquish(inst: Any, site: Site) -> Any:
    first, location = site.group.warps.start, site.location

    def run(warp: Warp) -> None:
        if warp.index == first:
            warp.cta.relinquished = location

    return run


@describe("Tcgen05SliceInst", name="tcgen05.slice", ptx="Tensor Memory Addressing", again=Again.NOTHING)
def slice_tensor(inst: Any, site: Site) -> Any:
    source, dims, shape = inst.inputs[0], tuple(inst.slice_dims), tuple(inst.output.shape)
    site.use(source)
    site.scalars(inst.offsets)
    location, bits = site.location, source.dtype.nbits

    def run(warp: Warp, view: TensorView, offsets: tuple[int, ...]) -> TensorView:
        _check_slice(warp, view, offsets, dims, shape, location)
        column = view.column + sum(o * s for o, s in zip(offsets[:-2], view.strides, strict=True))
        column += offsets[-1] * bits // COLUMN_BITS
        strides = tuple(view.strides[d] for d in dims[:-2])
        return TensorView(view.cta, view.allocation, view.item, shape, view.lane + offsets[-2], column, strides)

    return run


def _check_slice(
    warp: Warp, view: TensorView, offsets: tuple[int, ...], dims: tuple[int, ...], shape: tuple[int, ...], location: Any
) -> None:
    extents = dict(zip(dims, shape, strict=True))
    for dim, offset in enumerate(offsets):
        end = offset + extents.get(dim, 1)
        if offset < 0 or end > view.shape[dim]:
            message = (
                f"slice {offset}:{end} leaves dimension {dim} of {view.name}, which has {view.shape[dim]} elements"
            )
            raise warp.cta.stop("out-of-bounds", message, location)


@describe("Tcgen05ViewInst", name="tcgen05.view", ptx="Tensor Memory Addressing", again=Again.NOTHING)
def view_tensor(inst: Any, site: Site) -> Any:
    site.use(inst.inputs[0])
    item, shape = element(inst.output.dtype), tuple(inst.output.shape)
    return lambda warp, v: TensorView(v.cta, v.allocation, item, shape, v.lane, v.column, v.strides)


# loads and stores


@describe(
    "Tcgen05LoadInst",
    name="tcgen05.ld",
    ptx="tcgen05.ld",
    effects=(
        Effect("src", Space.TENSOR, Access.READ, Proxy.TENSOR_MEMORY, When.COMPLETION),
        Effect("dst", Space.REGISTER, Access.WRITE, Proxy.GENERIC, When.COMPLETION),
    ),
    resources=("tensor memory port",),
    completes_by="tcgen05.ld",
    again=Again.VALUES,
)
def load(inst: Any, site: Site) -> Any:
    """The registers hold the values after tcgen05.wait::ld, and poison before it."""
    site.use(inst.inputs[0])
    layouts, item, location = site.layouts(inst.output), element(inst.output.dtype), site.location

    def run(warp: Warp, view: TensorView) -> np.ndarray:
        layout = layouts[warp.index]
        out = poisoned((WARP, layout.local_size), item)

        def complete() -> None:
            out[...] = layout.load(view.cells())

        op = site.launch(
            warp, {"src": view.region(location, layout.box[0])}, complete,
            agent="tensor memory", remedy="tcgen05.wait_load by the same warp",
        )  # fmt: skip
        warp.tmem_loads.append(op)
        warp.unready[id(out)] = (out, op)
        return out

    return run


@describe(
    "Tcgen05StoreInst",
    name="tcgen05.st",
    ptx="tcgen05.st",
    effects=(
        Effect("src", Space.REGISTER, Access.READ),
        Effect("dst", Space.TENSOR, Access.WRITE, Proxy.TENSOR_MEMORY, When.COMPLETION),
    ),
    resources=("tensor memory port",),
    completes_by="tcgen05.st",
    again=Again.VALUES,
)
def store(inst: Any, site: Site) -> Any:
    dst, src = inst.inputs
    site.use(dst)
    site.use(src)
    layouts, location = site.layouts(src), site.location

    def run(warp: Warp, view: TensorView, registers: np.ndarray) -> None:
        layout, values = layouts[warp.index], registers.copy()

        def complete() -> None:
            layout.store(view.cells(), values)

        op = site.launch(
            warp, {"dst": view.region(location, layout.box[0])}, complete,
            agent="tensor memory", remedy="tcgen05.wait_store by the same warp",
        )  # fmt: skip
        warp.tmem_stores.append(op)

    return run


@describe(
    "Tcgen05WaitInst",
    name="tcgen05.wait",
    ptx="tcgen05.wait",
    waits=(Wait("tcgen05.ld"), Wait("tcgen05.st")),
    again=Again.NOTHING,
)
def wait(inst: Any, site: Site) -> Callable[[Warp], None]:
    loads, stores = inst.wait_load, inst.wait_store

    location = site.location

    def run(warp: Warp) -> None:
        if warp.cta.detailed:
            warp.event("wait", "its tcgen05.ld" if loads else "its tcgen05.st", location)
        if loads:
            _end(warp, site, warp.tmem_loads)
            warp.unready.clear()
        if stores:
            _end(warp, site, warp.tmem_stores)

    return run


def _end(warp: Warp, site: Site, ops: list[AsyncOperation]) -> None:
    for op in ops:
        warp.cta.engine.finish(op)
        if warp.cta.order is not None:
            warp.cta.order.waited(warp, site, op)
        op.settle()
    ops.clear()


# mma


_MMA_REMEDY = "tcgen05.commit to an mbarrier and mbarrier.wait on it"


def _as_float(values: np.ndarray) -> np.ndarray:
    return values if values.dtype == np.float32 else values.astype(np.float32)


def _tf32(values: np.ndarray) -> np.ndarray:
    """The tensor core ignores the low 13 bits of a tf32 operand."""
    return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def multiply(a: np.ndarray, b: np.ndarray, item: Element) -> np.ndarray:
    """a @ b in the accumulator's precision: float32, or exact integers."""
    if not item.is_float:
        return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64).astype(np.int32)
    if item.name in ("float32", "tfloat32"):
        a, b = _tf32(np.ascontiguousarray(a)), _tf32(np.ascontiguousarray(b))
    return np.matmul(_as_float(a), _as_float(b))


def products(a: np.ndarray, b: np.ndarray, item: Element, total: Element) -> Iterator[np.ndarray]:
    """a @ b in the parts that are rounded one after the other: each instruction's, where the accumulator is narrower
    than float32; its k is 32 bytes (PTX ISA, "Matrix Shape"; elements below a byte take one each). What hardware adds
    inside of one, and how, is as little known as for mma.sync (dot.py)."""
    extent = a.shape[1]
    step = 256 // max(item.nbits, 8) if total.is_float and total.nbits < 32 else extent
    return (multiply(a[:, k : k + step], b[k : k + step], item) for k in range(0, extent, step))


def accumulate(cells: np.ndarray, parts: Iterator[np.ndarray], keep: bool) -> None:
    with np.errstate(over="ignore", invalid="ignore"):
        for product in parts:
            if keep:
                np.add(cells, product, out=cells, casting="unsafe")
            else:
                cells[...] = product
            keep = True


def multiply_add(left: View, right: View, acc: TensorView, item: Element, keep: bool) -> bool:
    """D = A @ B (+ D) from shared memory; tiles of constant memory are multiplied when somebody looks (deferred.py).
    True: that was put off."""
    if acc.item.name == "float32":
        a, b = left.storage.patch(left), right.storage.patch(right)
        if a is not None and b is not None:
            acc.cta.tensor_memory.multiply(acc.box, a, b, keep)
            return True
    accumulate(acc.cells(), products(left.read(), right.read(), item, acc.item), keep)
    return False


def _check_group(inst: Any, site: Site) -> None:
    if inst.cta_group != 1:
        raise UnsupportedError(
            f"The simulator does not run CTA pairs yet; {site.location} uses cta_group 2, and cta_group 1 works."
        )


_MMA: dict[str, Any] = {
    "name": "tcgen05.mma",
    "ptx": "tcgen05.mma",
    "lanes": Lanes.ELECTED,
    "resources": ("tensor core",),
    "completes_by": "mbarrier",
    "again": Again.VALUES,
}


@describe(
    "Tcgen05MmaSSInst",
    effects=(
        Effect("a", Space.SHARED, Access.READ, Proxy.ASYNC, When.COMPLETION),
        Effect("b", Space.SHARED, Access.READ, Proxy.ASYNC, When.COMPLETION),
        Effect("d read", Space.TENSOR, Access.READ, Proxy.TENSOR_MEMORY, When.COMPLETION),
        Effect("d", Space.TENSOR, Access.WRITE, Proxy.TENSOR_MEMORY, When.COMPLETION),
    ),
    **_MMA,
)
def mma_ss(inst: Any, site: Site) -> Any:
    """D = A @ B (+ D): A [m, k] and B [k, n] in shared memory, D [m, n] in tensor memory."""
    _check_group(inst, site)
    a, b, d = inst.inputs
    item, location = element(a.dtype), site.location
    for tensor in (a, b, d):
        site.use(tensor)
    site.scalar(inst.enable_input_d)

    def run(warp: Warp, left: View, right: View, acc: TensorView, enable: Any) -> None:
        keep, region = bool(enable), acc.region(location)

        def complete() -> bool:
            return multiply_add(left, right, acc, item, keep)

        regions = {"a": left.region(), "b": right.region(), "d": region}
        if keep:
            regions["d read"] = region
        site.launch(warp, regions, complete, agent="tensor core", pipe=warp.tensor_core, remedy=_MMA_REMEDY)
        if warp.cta.tracing:
            warp.event("issue", "tcgen05.mma", location)

    return run


@describe(
    "Tcgen05MmaTSInst",
    effects=(
        Effect("a", Space.TENSOR, Access.READ, Proxy.TENSOR_MEMORY, When.COMPLETION),
        Effect("b", Space.SHARED, Access.READ, Proxy.ASYNC, When.COMPLETION),
        Effect("d read", Space.TENSOR, Access.READ, Proxy.TENSOR_MEMORY, When.COMPLETION),
        Effect("d", Space.TENSOR, Access.WRITE, Proxy.TENSOR_MEMORY, When.COMPLETION),
    ),
    **_MMA,
)
def mma_ts(inst: Any, site: Site) -> Any:
    """As mma_ss, with A in tensor memory."""
    _check_group(inst, site)
    a, b, d = inst.inputs
    item, location = element(a.dtype), site.location
    for tensor in (a, b, d):
        site.use(tensor)
    site.scalar(inst.enable_input_d)

    def run(warp: Warp, left: TensorView, right: View, acc: TensorView, enable: Any) -> None:
        keep, region = bool(enable), acc.region(location)

        def complete() -> None:
            accumulate(acc.cells(), products(left.cells(), right.read(), item, acc.item), keep)

        regions = {"a": left.region(location), "b": right.region(), "d": region}
        if keep:
            regions["d read"] = region
        site.launch(warp, regions, complete, agent="tensor core", pipe=warp.tensor_core, remedy=_MMA_REMEDY)

    return run


@describe(
    "Tcgen05CopyInst",
    name="tcgen05.cp",
    ptx="tcgen05.cp",
    lanes=Lanes.ELECTED,
    effects=(
        Effect("src", Space.SHARED, Access.READ, Proxy.ASYNC, When.COMPLETION),
        Effect("dst", Space.TENSOR, Access.WRITE, Proxy.TENSOR_MEMORY, When.COMPLETION),
    ),
    resources=("tensor core",),
    completes_by="mbarrier",
    again=Again.VALUES,
)
def copy(inst: Any, site: Site) -> Any:
    dst, src = inst.inputs
    site.use(dst)
    site.use(src)
    item, location, first = element(dst.dtype), site.location, site.group.warps.start

    def run(warp: Warp, target: TensorView, source: View) -> None:
        if warp.index != first:
            return  # code generation lets one thread of the group issue it

        def complete() -> None:
            target.cells()[...] = source.read().astype(item.dtype)

        regions = {"src": source.region(), "dst": target.region(location)}
        site.launch(warp, regions, complete, agent="tensor core", pipe=warp.tensor_core, remedy=_MMA_REMEDY)

    return run


@describe(
    "Tcgen05CommitInst",
    name="tcgen05.commit",
    ptx="tcgen05.commit",
    lanes=Lanes.ELECTED,
    signals=(Signal("arrive", When.COMPLETION),),
    resources=("tensor core",),
    completes_by="mbarrier",
    again=Again.NOTHING,
)
def commit(inst: Any, site: Site) -> Any:
    """One arrival on the mbarrier when all prior mma and cp of the executing thread are complete; with a mask, on the
    mbarrier at this place of each CTA that it names (PTX ISA, tcgen05.commit: .multicast::cluster)."""
    _check_group(inst, site)
    site.scalar(inst.mbarrier)
    location, mask = site.location, inst.multicast_mask

    def run(warp: Warp, address: int) -> None:
        barrier = warp.cta.barrier_at(address, location)
        covers = tuple(op for op in warp.cta.in_flight if op.pipe == warp.tensor_core)
        if mask is None:
            tell(warp, barrier, covers)
            return
        for cta in sorted(named(warp, int(mask), site), key=lambda cta: cta is not warp.cta):  # its own one first
            tell(warp, barrier.in_cta(cta), covers)

    def tell(warp: Warp, barrier: Mbarrier, covers: tuple[AsyncOperation, ...]) -> None:
        remedy = barrier.remedy
        for op in covers:
            if op.tells is None:
                op.tells, op.during = barrier, barrier.phase
            if op.barrier is None and op.remedy is _MMA_REMEDY:
                op.remedy = remedy
        if warp.cta.tracing:
            warp.event("issue", f"tcgen05.commit to {barrier.name}", location)
        site.launch(
            warp, {}, lambda: True, signal=lambda: barrier.arrive(1, location),
            agent="tensor core", barrier=barrier, pipe=warp.tensor_core, remedy=remedy, covers=covers,
        )  # fmt: skip

    return run
