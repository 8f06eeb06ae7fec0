"""The fifth-generation tensor core and its tensor memory (PTX ISA, "TensorCore 5th Generation Instructions").

mma and cp are asynchronous and issued by one lane; commit makes an mbarrier track them. ld and st are asynchronous too,
executed by the whole warp, and end with wait::ld and wait::st. Operations of one kind issued by one thread form a pipe:
they complete in the order of their issue ("tcgen05 Memory Consistency Model, Pipelined Instructions").
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from blackwell_matmul.frontend.program import Location
from blackwell_matmul.simulator import scaled_values
from blackwell_matmul.simulator.description import (
    FREE,
    UNKNOWN,
    Access,
    Again,
    Effect,
    ExecutedBy,
    Proxy,
    Signal,
    Space,
    Time,
    Unit,
    Wait,
    WaitKind,
    When,
    describe,
)
from blackwell_matmul.simulator.engine import Blocked
from blackwell_matmul.simulator.lowering.context import LoweringContext, poisoned
from blackwell_matmul.simulator.machine.barrier import Mbarrier, barrier_in_cluster
from blackwell_matmul.simulator.machine.cta import Cta, Warp
from blackwell_matmul.simulator.machine.memory import Box, Region, View
from blackwell_matmul.simulator.machine.operation import AsyncOperation, groups_of
from blackwell_matmul.simulator.machine.registers import WARP
from blackwell_matmul.simulator.machine.tensor_memory import TENSOR_MEMORY_COLUMNS, Allocation, columns_region
from blackwell_matmul.simulator.semantics.cluster import named
from blackwell_matmul.simulator.semantics.pairs import (
    come_together,
    groups,
    in_one_group,
    pair_of,
    peer_of,
)
from blackwell_matmul.simulator.types import Element, element

COLUMN_BITS = 32


@dataclass(eq=False, repr=False, slots=True)
class TensorView:
    """A tensor in tensor memory: `lanes` from `lane`, and for each leading index a range of columns.

    column: the first 32-bit column. strides: columns between neighbours of each leading dimension.
    """

    cta: Cta
    allocation: Allocation
    item: Element
    shape: tuple[int, ...]
    lane: int
    column: int
    strides: tuple[int, ...] = ()

    @property
    def name(self) -> str:
        return self.allocation.name

    @property
    def columns(self) -> int:
        return math.ceil(self.shape[-1] * self.item.nbits / COLUMN_BITS)

    @property
    def box(self) -> Box:
        """Return the view's lanes and columns as a box."""
        return (self.lane, self.lane + self.shape[-2]), (self.column, self.column + self.columns)

    def half(self, number: int) -> TensorView:
        """Return the first or the second half of the columns of a rank-2 tensor."""
        rows, extent = self.shape
        column = self.column + number * (extent // 2) * self.item.nbits // COLUMN_BITS
        return TensorView(self.cta, self.allocation, self.item, (rows, extent // 2), self.lane, column)

    def flat(self) -> TensorView:
        """Return the tensor with all columns in one dimension. Its parts must be side by side, as scales are."""
        shape = self.shape[-2], math.prod(self.shape[:-2]) * self.shape[-1]
        return TensorView(self.cta, self.allocation, self.item, shape, self.lane, self.column)

    def in_peer(self) -> TensorView:
        """Return the same part of the tensor in the other CTA of the pair."""
        peer, allocation = self.cta.peer, self.allocation.peer
        assert peer is not None and allocation is not None
        return TensorView(peer, allocation, self.item, self.shape, self.lane, self.column, self.strides)

    def cells(self) -> np.ndarray:
        """Return a rank-2 tensor's elements, as a numpy view of up-to-date tensor memory."""
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
        """Return the region of an access at `location` to some rows (None: all)."""
        if not self.allocation.alive:
            message = f"{self.name} is used after it was freed"
            if self.allocation.peer is not None:
                message += f" for both CTAs of the pair; the missing sync: self.cluster.sync() after {location}"
            self.cta.report("tensor-memory-not-allocated", message, location, self.allocation.freed)
        owner = (self.name, (0, self.allocation.begin))
        if rows is None:
            return Region(self.cta.tensor_memory, self.box, owner=owner)
        top, bottom = rows
        return Region(self.cta.tensor_memory, ((self.lane + top, self.lane + bottom), self.box[1]), owner=owner)


def _power_of_two(columns: int) -> int:
    """Return the columns that tcgen05.alloc takes, a power of two from 32 to 512; code generation rounds up."""
    return max(32, 1 << (columns - 1).bit_length())


@describe(
    "Tcgen05AllocInst",
    name="tcgen05.alloc",
    effects=(Effect("dst", Space.TENSOR, Access.ALLOCATE, Proxy.TENSOR_MEMORY),),
    waits=(Wait("threads"),),
    again=Again.NOTHING,
    time=Time(Unit.TENSOR_MEMORY_LOCK, "alloc_cycles"),
    mark=True,
)
def alloc(inst: Any, context: LoweringContext) -> Any:
    """Lower an allocation by one warp, or by one warp of each CTA of a pair. The thread group waits for the
    address."""
    tensor = inst.output
    item, shape, name, location = element(tensor.dtype), tuple(tensor.shape), context.name(tensor), context.location
    run_columns = math.ceil(shape[-1] * item.nbits / COLUMN_BITS)
    total = _power_of_two(math.prod(shape[:-2]) * run_columns)
    strides = tuple(math.prod(shape[i + 1 : -2]) * run_columns for i in range(len(shape) - 2))
    context.kind = "steps"

    purpose = f"the allocation of {name}"

    def run(warp: Warp) -> Any:
        meeting = context.meet(warp, ("alloc", id(inst)))
        if not meeting.over:
            yield Blocked(meeting.complete, lambda: f"the other warps at {purpose}", location, meeting=meeting)
        if inst.cta_group == 2:
            if warp.index == context.group.warps.start:
                warp.cta.engine.tell.pairs(warp, context.instruction, peer_of(warp, context), False)
            meeting = yield from come_together(warp, context, purpose, context.group.warps)
        if meeting.result is None:  # the first warp here
            ctas = (warp.cta,) if inst.cta_group == 1 else (warp.cta, peer_of(warp, context))
            meeting.result = _allocate_in(ctas, total, name, location)
        allocation = meeting.result[warp.cta]
        return TensorView(warp.cta, allocation, item, shape, 0, allocation.begin, strides)

    return in_one_group(inst, context, run)


def _allocate_in(ctas: tuple[Cta, ...], total: int, name: str, location: Location | None) -> dict[Cta, Allocation]:
    """Return allocations of the same columns in each CTA, because a pair has no allocations of its own."""
    made = {cta: _allocate(cta, total, name, location) for cta in ctas}
    for cta, peer in zip(ctas, reversed(ctas)):
        made[cta].peer = None if cta is peer else made[peer]
    return made


def _allocate(cta: Cta, total: int, name: str, location: Location | None) -> Allocation:
    """Return an allocation of columns (PTX ISA, tcgen05.alloc); stop the run if it would block forever."""
    columns = cta.columns
    if columns.relinquished is not None:
        message = f"{name} is allocated after the CTA has given up the right to allocate"
        cta.report("tensor-memory-permit", message, location, columns.relinquished)
    used = bool(columns.allocations)
    allocation = columns.allocate(total, name, location)
    if allocation is None:
        raise cta.stop(
            "tensor-memory-exhausted",
            f"{name} asks for {total} tensor-memory columns and {columns.left} of {TENSOR_MEMORY_COLUMNS} are free",
            location,
        )
    region = columns_region(cta.tensor_memory, allocation)
    if used:
        cta.tensor_memory.poison(region.box)
    cta.engine.tell.allocated(region)
    return allocation


@describe(
    "Tcgen05DeallocInst",
    name="tcgen05.dealloc",
    effects=(Effect("tensor", Space.TENSOR, Access.WRITE, Proxy.TENSOR_MEMORY),),
    waits=(Wait("threads"),),
    conflict="dealloc-in-flight",
    again=Again.NOTHING,
    time=Time(Unit.TENSOR_MEMORY_LOCK, "issue_cycles"),
    mark=True,
)
def dealloc(inst: Any, context: LoweringContext) -> Any:
    """Lower a deallocation of tensor memory by one warp, or by one warp of each CTA of a pair.

    No access to either CTA's columns may be in flight when the first of the two warps executes it (PTX ISA, "Issue
    Granularity": no concurrent accesses from the peer before it; it may block).
    """
    context.use(inst.inputs[0])
    location, access = context.location, context.touch("tensor")

    def free(warp: Warp, view: TensorView) -> None:
        if view.allocation.peer is not None:
            warp.cta.engine.tell.pairs(warp, context.instruction, peer_of(warp, context), True)
        for each in (view, view.in_peer()) if view.allocation.peer is not None else (view,):
            region = columns_region(each.cta.tensor_memory, each.allocation)
            access(warp, region)
            warp.cta.engine.tell.freed(region)
            if each.cta.columns.has(each.allocation):
                each.allocation.end(location)
        if warp.cta.columns.has(view.allocation):
            warp.cta.columns.free(view.allocation, location)
        else:
            message = f"{view.name} is freed twice"
            warp.cta.report("tensor-memory-not-allocated", message, location, view.allocation.freed)

    return _by_first(context, free, f"the deallocation of {context.name(inst.inputs[0])}")


def _by_first(context: LoweringContext, perform: Callable[..., None], purpose: str) -> Callable[..., Any]:
    """Perform it in the group's first warp, which in a kernel for CTA pairs waits for the peer's."""
    first = context.group.warps.start

    def alone(warp: Warp, *operands: Any) -> None:
        if warp.index == first:
            perform(warp, *operands)

    def together(warp: Warp, *operands: Any) -> Iterator[Blocked]:
        if warp.index == first:
            perform(warp, *operands)
            yield from come_together(warp, context, purpose, (first,))

    paired = 2 in groups(context)
    context.kind = "steps" if paired else "plain"
    return together if paired else alone


@describe(
    "Tcgen05RelinquishAllocPermitInst",
    name="tcgen05.relinquish_alloc_permit",
    waits=(Wait("threads"),),
    again=Again.NOTHING,
    time=Time(Unit.TENSOR_MEMORY_LOCK),
)
def relinquish(inst: Any, context: LoweringContext) -> Any:
    location = context.location

    def give_up(warp: Warp) -> None:
        warp.cta.columns.relinquished = location

    return _by_first(context, in_one_group(inst, context, give_up), "tcgen05.relinquish_alloc_permit")


@describe("Tcgen05SliceInst", name="tcgen05.slice", ptx="Tensor Memory Addressing", again=Again.NOTHING, time=FREE)
def slice_tensor(inst: Any, context: LoweringContext) -> Any:
    source, dims, shape = inst.inputs[0], tuple(inst.slice_dims), tuple(inst.output.shape)
    context.use(source)
    context.scalars(inst.offsets)
    location, bits = context.location, source.dtype.nbits

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


@describe("Tcgen05ViewInst", name="tcgen05.view", ptx="Tensor Memory Addressing", again=Again.NOTHING, time=FREE)
def view_tensor(inst: Any, context: LoweringContext) -> Any:
    context.use(inst.inputs[0])
    item, shape = element(inst.output.dtype), tuple(inst.output.shape)
    return lambda warp, v: TensorView(v.cta, v.allocation, item, shape, v.lane, v.column, v.strides)


# loads and stores


@describe(
    "Tcgen05LoadInst",
    name="tcgen05.ld",
    effects=(
        Effect("src", Space.TENSOR, Access.READ, Proxy.TENSOR_MEMORY, When.COMPLETION),
        Effect("dst", Space.REGISTER, Access.WRITE, Proxy.GENERIC, When.COMPLETION),
    ),
    completes_by="tcgen05.wait_load by the same warp",
    again=Again.VALUES,
    time=Time(Unit.TENSOR_MEMORY),
    mark=True,
)
def load(inst: Any, context: LoweringContext) -> Any:
    """Lower a load: the registers hold poison until tcgen05.wait::ld, and then the values."""
    context.use(inst.inputs[0])
    layouts, item, location = context.layouts(inst.output), element(inst.output.dtype), context.location

    def run(warp: Warp, view: TensorView) -> np.ndarray:
        layout = layouts[warp.index]
        out = poisoned((WARP, layout.local_size), item)

        def complete() -> None:
            out[...] = layout.load(view.cells())

        regions = {"src": view.region(location, layout.box[0])}
        family, registers = context.description.name, {warp.index: out}
        context.launch(warp, regions, complete, agent="tensor memory", family=family, registers=registers)
        warp.filling[id(out)] = out
        return out

    return run


@describe(
    "Tcgen05StoreInst",
    name="tcgen05.st",
    effects=(
        Effect("src", Space.REGISTER, Access.READ),
        Effect("dst", Space.TENSOR, Access.WRITE, Proxy.TENSOR_MEMORY, When.COMPLETION),
    ),
    completes_by="tcgen05.wait_store by the same warp",
    again=Again.VALUES,
    time=Time(Unit.TENSOR_MEMORY),
    mark=True,
)
def store(inst: Any, context: LoweringContext) -> Any:
    dst, src = inst.inputs
    context.use(dst, src)
    layouts, location = context.layouts(src), context.location

    def run(warp: Warp, view: TensorView, registers: np.ndarray) -> None:
        layout, values = layouts[warp.index], registers.copy()

        def complete() -> None:
            layout.store(view.cells(), values)

        regions = {"dst": view.region(location, layout.box[0])}
        context.launch(warp, regions, complete, agent="tensor memory", family=context.description.name)

    return run


@describe(
    "Tcgen05WaitInst",
    name="tcgen05.wait",
    waits=(Wait("wait::ld"), Wait("wait::st")),
    again=Again.NOTHING,
    time=FREE,
    mark="waits for tcgen05.ld",
)
def wait(inst: Any, context: LoweringContext) -> Callable[[Warp], None]:
    def end(warp: Warp, kind: WaitKind, family: str) -> None:
        (mine,) = groups_of(warp, family)  # .aligned: all lanes have issued them
        context.end(warp, mine.open, kind)
        mine.open.clear()

    def run(warp: Warp) -> None:
        tell = warp.cta.engine.tell
        tell.waits(warp, context.instruction, "its tcgen05.ld" if inst.wait_load else "its tcgen05.st")
        if inst.wait_load:
            end(warp, "wait::ld", "tcgen05.ld")
            warp.filling.clear()
        if inst.wait_store:
            end(warp, "wait::st", "tcgen05.st")

    return run


# mma


_MMA_REMEDY = "tcgen05.commit to an mbarrier and mbarrier.wait on it"


def _as_float(values: np.ndarray) -> np.ndarray:
    return values if values.dtype == np.float32 else values.astype(np.float32)


def _tf32(values: np.ndarray) -> np.ndarray:
    """Clear the low 13 bits of a tf32 operand, which the tensor core ignores."""
    return (values.view(np.uint32) & np.uint32(0xFFFFE000)).view(np.float32)


def multiply(a: np.ndarray, b: np.ndarray, item: Element) -> np.ndarray:
    """Return a @ b in the accumulator's precision: float32, or exact integers."""
    if not item.is_float:
        return (a.astype(np.float64) @ b.astype(np.float64)).astype(np.int64).astype(np.int32)
    if item.name in ("float32", "tfloat32"):
        a, b = _tf32(np.ascontiguousarray(a)), _tf32(np.ascontiguousarray(b))
    return np.matmul(_as_float(a), _as_float(b))


def products(a: np.ndarray, b: np.ndarray, item: Element, total: Element) -> Iterator[np.ndarray]:
    """Yield the parts of a @ b that are rounded one after the other: each instruction's, if the accumulator is narrower
    than float32. Its k is 32 bytes (PTX ISA, "Matrix Shape"; elements below a byte take one each). The order and
    precision of additions inside one are as little known as for mma.sync (dot.py)."""
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


Part = tuple[View, View, TensorView]
"""A, B and D of a part of a product."""


def multiply_add(parts: Sequence[Part], item: Element, keep: bool) -> bool:
    """Compute D = A @ B (+ D) from shared memory, in parts; products of constant memory are deferred (deferred.py).
    Return True if all parts were deferred, False if none was."""
    patches = [(a.storage.patch(a), b.storage.patch(b)) for a, b, d in parts if d.item.name == "float32"]
    if len(patches) == len(parts) and all(a is not None and b is not None for a, b in patches):
        for (_, _, acc), (a, b) in zip(parts, patches):
            acc.cta.tensor_memory.multiply(acc.box, a, b, keep)
        return True
    for left, right, acc in parts:
        accumulate(acc.cells(), products(left.read(), right.read(), item, acc.item), keep)
    return False


def _pair_parts(left: View, right: View, acc: TensorView, peer: Cta) -> list[Part]:
    """Return a pair's parts (PTX ISA, "tcgen05.mma", M = 256). D's rows are where A's are, the even CTA's first; each
    CTA has the half of B for half of D's columns."""
    both = (left, right, acc), (left.in_cta(peer), right.in_cta(peer), acc.in_peer())
    sides = sorted(both, key=lambda part: part[2].cta.rank)
    return [(a, b, d.half(i)) for a, _, d in sides for i, (_, b, _) in enumerate(sides)]


_PEERS = "the peer's "


def _in_both_ctas(*operands: tuple[str, Space, Access, Proxy]) -> tuple[Effect, ...]:
    """Return the effects at completion on these operands, then on the operands of the peer CTA."""
    return tuple(
        Effect(f"{whose}{name}", space, access, proxy, When.COMPLETION)
        for whose in ("", _PEERS)
        for name, space, access, proxy in operands
    )


_MMA: dict[str, Any] = {
    "name": "tcgen05.mma",
    "lanes": ExecutedBy.ELECTED,
    "completes_by": _MMA_REMEDY,
    "again": Again.VALUES,
}


@describe(
    "Tcgen05MmaSSInst",
    effects=_in_both_ctas(
        ("a", Space.SHARED, Access.READ, Proxy.ASYNC),
        ("b", Space.SHARED, Access.READ, Proxy.ASYNC),
        ("d read", Space.TENSOR, Access.READ, Proxy.TENSOR_MEMORY),
        ("d", Space.TENSOR, Access.WRITE, Proxy.TENSOR_MEMORY),
    ),
    time=Time(Unit.TCGEN05, "issue_cycles"),
    mark=True,
    **_MMA,
)
def mma_ss(inst: Any, context: LoweringContext) -> Any:
    """Lower D = A @ B (+ D): A [m, k] and B [k, n] in shared memory, D [m, n] in tensor memory. For a pair each CTA has
    half of A's and D's rows and of B's columns."""
    a, b, d = inst.inputs
    item, location = element(a.dtype), context.location
    context.use(a, b, d)
    context.scalar(inst.enable_input_d)

    def regions_of(left: View, right: View, acc: TensorView, keep: bool, whose: str = "") -> dict[str, Region]:
        found = {"a": left.region(), "b": right.region(), "d": acc.region(location)}
        if keep:
            found["d read"] = found["d"]
        return {f"{whose}{name}": region for name, region in found.items()}

    def run(warp: Warp, left: View, right: View, acc: TensorView, enable: Any) -> None:
        keep, peer = bool(enable), pair_of(inst, warp, context)
        parts, regions = [(left, right, acc)], regions_of(left, right, acc, keep)
        if peer is not None:
            parts = _pair_parts(left, right, acc, peer)
            regions |= regions_of(left.in_cta(peer), right.in_cta(peer), acc.in_peer(), keep, _PEERS)
        complete = lambda: multiply_add(parts, item, keep)  # noqa: E731
        context.launch(warp, regions, complete, agent="tensor core", pipe=warp.tensor_core, peer=peer)

    return in_one_group(inst, context, run)


@describe(
    "Tcgen05CopyInst",
    name="tcgen05.cp",
    lanes=ExecutedBy.ELECTED,
    effects=(
        Effect("src", Space.SHARED, Access.READ, Proxy.ASYNC, When.COMPLETION),
        Effect("dst", Space.TENSOR, Access.WRITE, Proxy.TENSOR_MEMORY, When.COMPLETION),
    ),
    completes_by=_MMA_REMEDY,
    again=Again.VALUES,
    time=UNKNOWN,
)
def copy(inst: Any, context: LoweringContext) -> Any:
    dst, src = inst.inputs
    context.use(dst, src)
    item, location, first = element(dst.dtype), context.location, context.group.warps.start

    def run(warp: Warp, target: TensorView, source: View) -> None:
        if warp.index != first:
            return  # code generation lets one thread of the group issue it

        def complete() -> None:
            target.cells()[...] = source.read().astype(item.dtype)

        regions = {"src": source.region(), "dst": target.region(location)}
        context.launch(warp, regions, complete, agent="tensor core", pipe=warp.tensor_core)

    return in_one_group(inst, context, run)


@describe("Tcgen05ViewScalesInst", name="tcgen05.view", ptx="Tensor Memory Addressing", again=Again.NOTHING, time=FREE)
def view_scales(inst: Any, context: LoweringContext) -> Any:
    context.use(inst.inputs[0])
    item, shape = element(inst.output.dtype), tuple(inst.output.shape)
    strides = shape[1] * scaled_values.ATOM_COLUMNS, scaled_values.ATOM_COLUMNS
    return lambda warp, v: TensorView(v.cta, v.allocation, item, shape, v.lane, v.column, strides)


@describe(
    "Tcgen05CopyScalesInst",
    name="tcgen05.cp of scales",
    ptx="tcgen05.cp",
    lanes=ExecutedBy.ELECTED,
    effects=_in_both_ctas(
        ("src", Space.SHARED, Access.READ, Proxy.ASYNC),
        ("dst", Space.TENSOR, Access.WRITE, Proxy.TENSOR_MEMORY),
    ),
    completes_by=_MMA_REMEDY,
    again=Again.VALUES,
    time=Time(Unit.TENSOR_COPY, "issue_cycles"),
    mark=True,
    unpromised=True,
    called="tcgen05.copy_scales",
)
def copy_scales(inst: Any, context: LoweringContext) -> Any:
    """Copy atoms of scales from shared to tensor memory; each CTA of a pair copies its own. The copy precedes the
    products of its thread (PTX ISA, "tcgen05 Memory Consistency Model, Pipelined Instructions")."""
    context.use(*inst.inputs)

    def run(warp: Warp, dst: TensorView, src: View) -> None:
        sides, peer = [(dst.flat(), src)], pair_of(inst, warp, context)
        if peer is not None:
            sides.append((sides[0][0].in_peer(), src.in_cta(peer)))

        def complete() -> None:
            for target, source in sides:
                target.cells()[...] = scaled_values.in_tensor_memory(source.read()).astype(target.item.dtype)

        regions: dict[str, Region] = {}
        for whose, (target, source) in zip(("", _PEERS), sides):
            regions |= {f"{whose}src": source.region(), f"{whose}dst": target.region(context.location)}
        context.launch(warp, regions, complete, agent="tensor core", pipe=warp.tensor_core, peer=peer)

    return in_one_group(inst, context, run)


@describe(
    "Tcgen05MmaScaledInst",
    effects=_in_both_ctas(
        ("a", Space.SHARED, Access.READ, Proxy.ASYNC),
        ("b", Space.SHARED, Access.READ, Proxy.ASYNC),
        ("scale_a", Space.TENSOR, Access.READ, Proxy.TENSOR_MEMORY),
        ("scale_b", Space.TENSOR, Access.READ, Proxy.TENSOR_MEMORY),
        ("d read", Space.TENSOR, Access.READ, Proxy.TENSOR_MEMORY),
        ("d", Space.TENSOR, Access.WRITE, Proxy.TENSOR_MEMORY),
    ),
    time=Time(Unit.TCGEN05, "issue_cycles"),
    mark=True,
    called="tcgen05.mma_scaled",
    **_MMA,
)
def mma_scaled(inst: Any, context: LoweringContext) -> Any:
    """Lower D = (A scale_a) @ (B scale_b) (+ D). Each CTA of a pair has half of A, B and D, and the scales of its half
    of A and of all of B (PTX ISA, "Block Scaling")."""
    context.use(*inst.inputs)
    context.scalar(inst.enable_input_d, inst.first_row)
    kind, location = inst.kind, context.location

    def run(
        warp: Warp, a: View, b: View, d: TensorView, scale_a: TensorView, scale_b: TensorView, enable: Any, first: int
    ) -> None:
        keep, sides = bool(enable), [_Scaled(a, b, d, scale_a, scale_b)]
        sides[0].check(warp, first, location)
        peer = pair_of(inst, warp, context)
        if peer is not None:
            sides.append(sides[0].in_peer(peer))

        def complete() -> None:
            ordered = sorted(sides, key=lambda side: side.d.cta.rank)
            right = np.concatenate([side.b.read().T for side in ordered])
            for side in ordered:
                operands = side.operands(right, first)
                for code, message in scaled_values.faults(*operands, kind.block):
                    side.d.cta.report(code, f"{context.description.name}: {message}", location)
                cells = side.d.cells()
                before = cells if keep else np.zeros_like(cells)
                cells[...] = scaled_values.multiply_add(before, *operands, kind.block, kind.k)

        regions: dict[str, Region] = {}
        for whose, side in zip(("", _PEERS), sides):
            regions |= {f"{whose}{name}": region for name, region in side.regions(location, keep).items()}
        context.launch(warp, regions, complete, agent="tensor core", pipe=warp.tensor_core, peer=peer)

    return in_one_group(inst, context, run)


class _Scaled(NamedTuple):
    """The operands of a product with scales in one CTA."""

    a: View
    b: View
    d: TensorView
    scale_a: TensorView
    scale_b: TensorView

    def in_peer(self, peer: Cta) -> _Scaled:
        tensors = (tensor.in_peer() for tensor in (self.d, self.scale_a, self.scale_b))
        return _Scaled(self.a.in_cta(peer), self.b.in_cta(peer), *tensors)

    def check(self, warp: Warp, first: int, location: Location | None) -> None:
        """Stop where the scales of B begin at no column, or end before its rows; report columns that D has as well."""
        last = self.scale_b.shape[1] * scaled_values.ATOM_ROWS - self.d.shape[-1]
        if first % scaled_values.COLUMN_ROWS or not 0 <= first <= last:
            message = f"first_row is {first}; a multiple of {scaled_values.COLUMN_ROWS} up to {last} works"
            raise warp.cta.stop("out-of-bounds", message, location)
        for name, scales in (("scale_a", self.scale_a), ("scale_b", self.scale_b)):
            (begin, end), (lo, hi) = scales.flat().box[1], self.d.box[1]
            if begin < hi and lo < end:
                message = f"{name} lies in columns {begin} to {end - 1}, and d in {lo} to {hi - 1} of tensor memory"
                warp.cta.report("scales-in-accumulator", message, location)

    def operands(self, right: np.ndarray, first: int) -> tuple[scaled_values.ScaledRows, scaled_values.ScaledRows]:
        """Return A and B. right: B's rows of both CTAs. first: of the scales of B."""
        scales = (
            scaled_values.Scales(self.scale_a.flat().cells(), self.scale_a.shape[1]),
            scaled_values.Scales(self.scale_b.flat().cells(), self.scale_b.shape[1], first),
        )
        left, name_a, name_b = self.a.read(), self.a.storage.item.name, self.b.storage.item.name
        return scaled_values.ScaledRows.of(left, name_a, scales[0]), scaled_values.ScaledRows.of(
            right, name_b, scales[1]
        )

    def regions(self, location: Location | None, keep: bool) -> dict[str, Region]:
        found = {"a": self.a.region(), "b": self.b.region(), "d": self.d.region(location)}
        found |= {"d read": found["d"]} if keep else {}
        scales = {"scale_a": self.scale_a, "scale_b": self.scale_b}
        return found | {name: view.flat().region(location) for name, view in scales.items()}


@describe(
    "Tcgen05CommitInst",
    name="tcgen05.commit",
    lanes=ExecutedBy.ELECTED,
    signals=(Signal("arrive", When.COMPLETION),),
    again=Again.NOTHING,
    time=Time(Unit.TCGEN05),
)
def commit(inst: Any, context: LoweringContext) -> Any:
    """Signal the mbarrier when all prior mma and cp of the executing thread are complete; with a mask, the mbarrier at
    this place of each CTA that it names (PTX ISA, tcgen05.commit: .multicast::cluster)."""
    location = context.location
    context.scalar(inst.mbarrier)
    if inst.multicast_mask is not None:
        context.scalar(inst.multicast_mask)

    def run(warp: Warp, address: int, mask: int | None = None) -> None:
        barrier = barrier_in_cluster(warp.cta, address, location)
        covers = tuple(op for op in warp.cta.engine.in_flight(warp.cta) if op.pipe == warp.tensor_core)
        if mask is None:
            tell(warp, barrier, covers)
            return
        for cta in sorted(named(warp, mask, context), key=lambda cta: cta is not warp.cta):  # its own CTA first
            tell(warp, barrier.in_cta(cta), covers)

    def tell(warp: Warp, barrier: Mbarrier, covers: tuple[AsyncOperation, ...]) -> None:
        context.launch(
            warp, {}, lambda: True, agent="tensor core", barrier=barrier, pipe=warp.tensor_core, covers=covers
        )  # fmt: skip

    return in_one_group(inst, context, run)
