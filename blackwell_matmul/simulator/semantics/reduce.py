"""Reductions of register tensors along a dimension: the steps of the generated code, in its order, each rounded.

tilus's emitter (`backends/emitters/reduce.py`) starts from an initial value in each thread and takes its registers one
after the other. Then the lanes of a warp exchange values by shfl.down, along the bits of the lane's number that belong
to the dimension, from the lowest. Then warps that hold parts of it take turns at a scratch memory. Every step is an
operation in the type of the result or, in the thread, in the common type of the result and the tile.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import Any

import numpy as np

from blackwell_matmul.frontend.faults.reductions import combining_type, extreme_of_none, reduced_lane_bits
from blackwell_matmul.simulator.arithmetic import floats, integers, nobody
from blackwell_matmul.simulator.description import Time, Unit, describe
from blackwell_matmul.simulator.engine import Blocked
from blackwell_matmul.simulator.lowering.context import LoweringContext
from blackwell_matmul.simulator.machine.cta import Warp
from blackwell_matmul.simulator.machine.registers import WARP
from blackwell_matmul.simulator.semantics.sync import COLLECTIVE
from blackwell_matmul.simulator.types import Element, convert, element

Operation = Callable[[np.ndarray, np.ndarray], np.ndarray]

_LANES = np.arange(WARP)


@describe("ReduceInst", name="reduce", ptx="shfl.sync", time=Time(Unit.SHUFFLES, "cast_cycles"), **COLLECTIVE)
def reduce(inst: Any, context: LoweringContext) -> Any:
    """Reduce along one dimension, inside threads, then lanes, then warps; every thread gets the elements of the result
    that it holds."""
    from tilus.backends.emitters.reduce import ReduceInstEmitter

    context.use(inst.inputs[0])
    inside = _inside_warp(inst)
    if ReduceInstEmitter.requires_inter_warp_reduction(inst):
        return _across_warps(inst, context, inside)
    holders = _LANES & ~sum(1 << bit for bit in reduced_lane_bits(inst))
    return lambda warp, x: inside(x)[holders]


def _inside_warp(inst: Any) -> Callable[[np.ndarray], np.ndarray]:
    """Return a function for each lane's value after the shuffles. Lanes whose reduced bits are 0 have the whole
    sum."""
    source, target = element(inst.inputs[0].dtype), element(inst.output.dtype)
    first, take, combine = _initial(inst, target), _taking(inst, source, target), _operation(inst.op, target)
    order, bits = _register_order(inst), reduced_lane_bits(inst)

    def run(x: np.ndarray) -> np.ndarray:
        total = np.full((WARP, order.shape[1]), first, target.dtype)
        with np.errstate(all="ignore"):
            for registers in order:
                total = take(total, x[:, registers])
            for bit in bits:  # shfl.down by 2^bit in groups of twice that: the upper half gets its own value
                total = combine(total, total[_LANES | 1 << bit])
        return total

    return run


def _register_order(inst: Any) -> np.ndarray:
    """Return a column for each register of the result: the registers of the tile that it combines, in order."""
    layout = inst.inputs[0].layout
    reduced = [i for i, mode in enumerate(layout.local_modes) if mode in layout.grouped_modes[inst.dim]]
    registers = np.arange(layout.local_size).reshape(layout.local_shape)
    return np.moveaxis(registers, reduced, range(len(reduced))).reshape(-1, inst.output.layout.local_size)


def _across_warps(inst: Any, context: LoweringContext, inside: Callable[[np.ndarray], np.ndarray]) -> Any:
    """Lower a reduction across warps: each warp in turn adds scratch memory to its own value and stores it. Then all
    warps load the result."""
    from tilus.backends.emitters.reduce import ReduceInstEmitter

    size, threads = inst.inputs[0].layout.spatial_size, context.group.count
    if size != threads:
        raise context.fail(f"its layout spans {size} threads and {threads} execute it; one over {threads} works")
    warp_shape, warp_kinds, lane_shape, lane_kinds = ReduceInstEmitter.analyze_modes(inst)
    digits = zip(lane_kinds, np.unravel_index(_LANES, lane_shape))
    holders = np.ravel_multi_index([np.where(kind == "spatial", d, 0) for kind, d in digits], lane_shape)
    parts = _parts(context.group.warps, warp_shape, warp_kinds)
    combine, gather = _operation(inst.op, element(inst.output.dtype)), context.gather(f"{inst.op}()")
    context.kind = "steps"

    def run(warp: Warp, x: np.ndarray) -> Generator[Blocked, None, np.ndarray]:
        brought = yield from gather(warp, inside(x))
        first, *others = parts[warp.index]
        total: np.ndarray = brought[first]
        with np.errstate(all="ignore"):
            for other in others:
                total = combine(brought[other], total)
        return total[holders]

    return run


def _parts(warps: range, shape: list[int], kinds: list[str]) -> dict[int, list[int]]:
    """Return, for each warp, the warps that its result combines, in order. Of warps with the same values only the
    first counts."""
    digits = {warp: np.unravel_index(i, shape) for i, warp in enumerate(warps)}
    place = {w: [int(d) for d, kind in zip(ds, kinds) if kind == "spatial"] for w, ds in digits.items()}
    first = [w for w, ds in digits.items() if not any(d for d, kind in zip(ds, kinds) if kind == "replicated")]
    return {warp: [other for other in first if place[other] == place[warp]] for warp in warps}


# single steps


def _initial(inst: Any, target: Element) -> np.ndarray:
    """Return the code's initial value: the result for no elements."""
    if inst.op not in ("max", "min"):
        return np.array(inst.op == "all").astype(target.dtype)
    return np.array(extreme_of_none(inst.op, inst.output.dtype).value).astype(target.dtype)


def _taking(inst: Any, source: Element, target: Element) -> Operation:
    """Return the step inside a thread, which widens both, combines, and narrows."""
    dtype = combining_type(inst)
    assert dtype is not None  # the frontend refuses the others
    common = element(dtype)
    combine = _operation(inst.op, common)
    if source.name == target.name:
        return combine
    return lambda total, x: convert(combine(convert(total, target, common), convert(x, source, common)), common, target)


def _operation(op: str, item: Element) -> Operation:
    """Return one step in an element type."""
    if op == "all":
        return np.logical_and
    if op == "any" or item.name == "bool":  # a sum of two bool is an int, and true unless 0
        return np.logical_or
    kind = {"sum": "Add"}.get(op, op)
    return floats(kind, item) if item.is_float else integers(kind, nobody)
