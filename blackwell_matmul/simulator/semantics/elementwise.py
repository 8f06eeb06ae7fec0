"""Register tensors: making, moving, casting and combining them, element by element, inside each thread."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import numpy as np

from blackwell_matmul.base.errors import UnsupportedError
from blackwell_matmul.simulator.arithmetic import Undefined, conversion
from blackwell_matmul.simulator.description import FREE, Access, Again, Effect, Space, Time, Unit, describe
from blackwell_matmul.simulator.expressions import free_variables, vector_function
from blackwell_matmul.simulator.lowering.context import LoweringContext, poisoned, report_undefined
from blackwell_matmul.simulator.machine.cta import Warp
from blackwell_matmul.simulator.machine.deferred import Patch, Sum
from blackwell_matmul.simulator.machine.registers import WARP, broadcast_index, local_index, numbers, pick, spread
from blackwell_matmul.simulator.scaled_values import packed_fp4
from blackwell_matmul.simulator.types import convert, element, from_bits, to_bits

_IN_OUT = (Effect("src", Space.REGISTER, Access.READ), Effect("dst", Space.REGISTER, Access.WRITE))
_FACTS: dict[str, Any] = {
    "ptx": "State Spaces / Register State Space",
    "effects": _IN_OUT,
    "again": Again.VALUES,
    "carries": True,
}


@describe("AllocateRegisterInst", name="register_tensor", time=FREE, **_FACTS)
def allocate_register(inst: Any, context: LoweringContext) -> Any:
    tensor, item = inst.output, element(inst.output.dtype)
    shape = (WARP, tensor.layout.local_size)
    if inst.init is None:
        return lambda warp: poisoned(shape, item)
    free = free_variables(inst.init, inst.axes)
    context.scalars(free)
    layouts, function = context.layouts(tensor), _watched(context, [*inst.axes, *free], inst.init, inst.output.dtype)

    def run(warp: Warp, values: tuple[Any, ...]) -> np.ndarray:
        layout = layouts[warp.index]
        out = poisoned(shape, item)
        out[layout.lane : layout.lane + layout.lanes] = function(warp, *layout.coords, *values)
        return out

    return run


@describe("AssignInst", name="assign", time=FREE, **_FACTS)
def assign(inst: Any, context: LoweringContext) -> Any:
    context.use(*inst.inputs)

    def run(warp: Warp, dst: np.ndarray, src: np.ndarray | Sum) -> None:
        if not isinstance(src, Sum):  # a Sum is added to dst at its next use
            dst[...] = src

    return run


@describe("CastInst", name="cast", time=Time(Unit.ARITHMETIC, "cast_cycles"), **_FACTS)
def cast(inst: Any, context: LoweringContext) -> Any:
    context.use(inst.inputs[0])
    source, target, seen = element(inst.inputs[0].dtype), element(inst.output.dtype), list[Undefined]()
    context.carry = lambda warp, arguments, origins: spread(numbers(origins), target.dtype)
    return _reporting(context, conversion(source, target, seen.append), seen)


@describe(
    "PackE2m1Inst",
    name="e2m1x2",
    **{**_FACTS, "ptx": "cvt.rn.satfinite.e2m1x2.f32"},
    time=Time(Unit.ARITHMETIC, "cast_cycles"),
)
def pack_e2m1(inst: Any, context: LoweringContext) -> Any:
    """Lower the conversion; a thread's elements are neighbours in pairs."""
    context.use(inst.inputs[0])

    def carry(warp: Warp, arguments: tuple[Any, ...], origins: np.ndarray) -> np.ndarray:
        each = numbers(origins)
        return spread(np.maximum(each[:, 0::2], each[:, 1::2]), np.dtype(np.uint8))

    context.carry = carry
    return lambda warp, x: packed_fp4(x)


def _watched(context: LoweringContext, args: Sequence[Any], body: Any, dtype: Any) -> Callable[..., Any]:
    """Return `body`, cast to the type, as a function of the warp and arrays that reports undefined arithmetic."""
    from tilus.hidet.ir.expr import cast as cast_to

    seen: list[Undefined] = []
    try:
        function = vector_function(args, cast_to(body, dtype), seen.append)
    except UnsupportedError as error:
        raise UnsupportedError(f"{error} ({context.location})") from error
    return _reporting(context, function, seen)


def _reporting(context: LoweringContext, function: Callable[..., Any], seen: list[Undefined]) -> Callable[..., Any]:
    location = context.location

    def call(warp: Warp, *arrays: Any) -> Any:
        result = function(*arrays)
        if seen:
            for code in dict.fromkeys(seen):
                report_undefined(warp, code, location)
            seen.clear()
        return result

    return call


def _combine(
    inst: Any,
    context: LoweringContext,
    function: Callable[..., Any],
    numbers_of: Callable[..., np.ndarray] = lambda values, each: functools.reduce(np.maximum, each),
    variables: Sequence[Any] = (),
) -> Any:
    """Lower an elementwise function of the warp, of register tensors that broadcast to the output's shape, and of
    scalar variables. numbers_of(operands, their numbers): the unwritten values on which the result depends
    (unwritten.py)."""
    context.use(*inst.inputs)
    context.scalars(variables)
    item, group, out = element(inst.output.dtype), context.group, inst.output.layout
    indices: dict[int, tuple[np.ndarray | None, ...]] = {}

    def align(warp: Warp, operands: Iterable[np.ndarray]) -> list[np.ndarray]:
        if warp.index not in indices:
            indices[warp.index] = tuple(broadcast_index(out, t.layout, group, warp.index) for t in inst.inputs)
        return [pick(x, index) for x, index in zip(operands, indices[warp.index], strict=True)]

    def run(warp: Warp, *operands: Any) -> np.ndarray:
        return np.asarray(function(warp, *align(warp, operands[:-1]), *operands[-1]))

    def carry(warp: Warp, operands: tuple[Any, ...], *origins: Any) -> np.ndarray:
        return spread(numbers_of(align(warp, operands[:-1]), align(warp, map(numbers, origins[:-1]))), item.dtype)

    context.carry = carry
    return run


@describe(
    "ElementwiseUnaryBaseInst", "ElementwiseBinaryBaseInst", name="elementwise",
    time=Time(Unit.ARITHMETIC, "cast_cycles"), **_FACTS,
)  # fmt: skip
def pointwise(inst: Any, context: LoweringContext) -> Any:
    from tilus.hidet.ir.expr import Var

    args = [Var(f"x{i}", type=t.dtype) for i, t in enumerate(inst.inputs)]
    body = inst.f_compute(*args)
    free = free_variables(body, args)
    return _combine(inst, context, _watched(context, [*args, *free], body, inst.output.dtype), variables=free)


@describe("WhereInst", name="where", time=FREE, **_FACTS)
def where(inst: Any, context: LoweringContext) -> Any:
    context.by_value = True
    item, (_, yes, no) = element(inst.output.dtype), (element(t.dtype) for t in inst.inputs)

    def chosen(warp: Warp, c: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
        return np.where(c.astype(bool), convert(x, yes, item), convert(y, no, item))

    def numbers_of(values: Sequence[np.ndarray], each: Sequence[np.ndarray]) -> np.ndarray:
        return np.maximum(each[0], np.where(values[0].astype(bool), each[1], each[2]))

    return _combine(inst, context, chosen, numbers_of)


def _regather(
    inst: Any, context: LoweringContext, source_of: Callable[[Sequence[np.ndarray]], Sequence[np.ndarray]]
) -> Any:
    """Lower a gather inside each thread, from the source elements that `source_of` returns."""
    source, target = inst.inputs[0], inst.output
    context.use(source)
    layouts = context.layouts(target)

    def run(warp: Warp, x: np.ndarray) -> np.ndarray:
        layout = layouts[warp.index]
        index = np.zeros((WARP, layout.local_size), np.int64)
        index[layout.lane : layout.lane + layout.lanes] = local_index(source.layout, source_of(layout.coords))
        return np.take_along_axis(x, index, axis=1)

    return run


@describe("RepeatInst", name="repeat", time=FREE, **_FACTS)
def repeat(inst: Any, context: LoweringContext) -> Any:
    """Lower repeat(): the tile is repeated, so indices wrap."""
    shape = inst.inputs[0].shape
    repeats = [a // b for a, b in zip(inst.output.shape, shape, strict=True)]
    return _regather(inst, context, lambda coords: [c // r for c, r in zip(coords, repeats, strict=True)])


@describe("RepeatInterleaveInst", name="repeat_interleave", time=FREE, **_FACTS)
def repeat_interleave(inst: Any, context: LoweringContext) -> Any:
    shape = inst.inputs[0].shape
    return _regather(inst, context, lambda coords: [c % s for c, s in zip(coords, shape, strict=True)])


@describe("SqueezeInst", "UnsqueezeInst", "TransposeInst", name="reshape_registers", time=FREE, **_FACTS)
def rename(inst: Any, context: LoweringContext) -> Any:
    """Lower instructions that keep the registers and change only their names."""
    context.use(inst.inputs[0])
    if not context.deferrable(inst.output):
        return lambda warp, x: x.copy()
    return lambda warp, x: x.seen((1, 0)) if isinstance(x, Patch) else x.copy()


@describe("ViewInst", name="view", shares=True, time=FREE, **_FACTS)
def view(inst: Any, context: LoweringContext) -> Any:
    """Lower a view of the same bits in another type and layout, an alias of the thread's registers."""
    context.use(inst.inputs[0])
    source, target = element(inst.inputs[0].dtype), element(inst.output.dtype)
    size = inst.output.layout.local_size
    context.scalar(inst.local_offset)

    def run(warp: Warp, x: np.ndarray, offset: int) -> np.ndarray:
        used = -(-size * target.nbits // source.nbits)
        part = x[:, offset : offset + used]
        if source.name == target.name:
            return part
        if not source.packed and not target.packed:
            return part.view(target.dtype)
        return from_bits(to_bits(part, source)[:, : size * target.nbits], target)

    def carry(warp: Warp, arguments: tuple[Any, ...], origins: np.ndarray, offset: int) -> np.ndarray:
        part = origins[:, offset : offset + -(-size * target.nbits // source.nbits)]
        if not source.packed and not target.packed:
            return part.view(f"u{target.dtype.itemsize}")
        bits = np.repeat(numbers(part), source.nbits, axis=1)[:, : size * target.nbits]
        return spread(bits.reshape(WARP, size, target.nbits).max(axis=2), target.dtype)

    context.carry = carry
    return run


@describe("SliceRegisterInst", name="slice_register", time=FREE, **_FACTS)
def slice_register(inst: Any, context: LoweringContext) -> Any:
    """Lower as generated code does: thread t takes the element at offsets + its index in the output's layout."""
    source, target = inst.inputs[0], inst.output
    context.use(source)
    context.scalars(inst.offsets)
    dims = range(len(source.shape)) if inst.dims is None else inst.dims
    layouts, location, name = context.layouts(target), context.location, context.name(source, "register tensor")

    plans: dict[tuple[int, tuple[int, ...]], np.ndarray | slice] = {}

    def plan(warp: Warp, offsets: tuple[int, ...]) -> np.ndarray | slice:
        layout = layouts[warp.index]
        position = _moved(offsets, dims, layout.coords)
        _check_register_bounds(warp, position, source, name, location)
        index = np.zeros((WARP, layout.local_size), np.int64)
        index[layout.lane : layout.lane + layout.lanes] = local_index(source.layout, position)
        column = int(index[layout.lane, 0])
        uniform = layout.local_size == 1 and (index[layout.lane : layout.lane + layout.lanes] == column).all()
        return slice(column, column + 1) if uniform else index

    def run(warp: Warp, x: np.ndarray, offsets: tuple[int, ...]) -> np.ndarray:
        key = (warp.index, offsets)
        if key not in plans:
            plans[key] = plan(warp, offsets)
        index = plans[key]
        if isinstance(index, slice):
            return x[:, index].copy() if x.flags.writeable else x[:, index]
        return np.take_along_axis(x, index, axis=1)

    return run


def _moved(offsets: Sequence[int], dims: Any, coords: Sequence[np.ndarray]) -> list[np.ndarray]:
    position = [np.asarray(o) for o in offsets]
    for coord, dim in zip(coords, sorted(dims), strict=True):
        position[dim] = position[dim] + coord
    return position


def _check_register_bounds(warp: Warp, position: list[np.ndarray], tensor: Any, name: str, location: Any) -> None:
    for dim, (index, extent) in enumerate(zip(position, tensor.shape, strict=True)):
        if index.min() < 0 or index.max() >= extent:
            bad = int(index.min()) if index.min() < 0 else int(index.max())
            message = f"index {bad} of dimension {dim} leaves {name}, a register tensor of shape {tuple(tensor.shape)}"
            raise warp.cta.stop("out-of-bounds", message, location)


@describe("SliceAssignInst", name="slice_assign", time=FREE, **_FACTS)
def slice_assign(inst: Any, context: LoweringContext) -> Any:
    """Lower as generated code does: a thread writes to its own registers, which the frontend has checked."""
    dst, src = inst.inputs
    context.use(*inst.inputs)
    context.scalars(inst.offsets)
    dims = range(len(dst.shape)) if inst.dims is None else inst.dims
    layouts, location, name = context.layouts(src), context.location, context.name(dst, "register tensor")

    def run(warp: Warp, target: np.ndarray, x: np.ndarray, offsets: tuple[int, ...]) -> None:
        layout = layouts[warp.index]
        position = _moved(offsets, dims, layout.coords)
        _check_register_bounds(warp, position, dst, name, location)
        lanes = np.arange(layout.lane, layout.lane + layout.lanes)[:, None]
        target[lanes, local_index(dst.layout, position)] = x[layout.lane : layout.lane + layout.lanes]

    return run
