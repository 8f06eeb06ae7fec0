"""Faults of tilus 0.2.0 in the tile view: wrong code, or none. Each fault has a file, which explains it, and a sentence
with the remedy."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from tilus.hidet.ir.dtypes import int32
from tilus.hidet.ir.expr import Constant
from tilus.hidet.ir.tools import infer_type
from tilus.ir.instructions import DotInst, ReduceInst
from tilus.ir.instructions.generic import AddInst, AllocateRegisterInst, DivInst, ModInst, MulInst, SubInst

from blackwell_matmul.frontend.faults import (
    barrier_slices,
    mma_tiles,
    products,
    raw_copies,
    reductions,
    register_layouts,
    register_slices,
    shared_layouts,
)
from blackwell_matmul.frontend.python.python_operators import holds_more, is_float, is_integer, misfit
from blackwell_matmul.frontend.recording import instructions


def tile_refusals(function: Any) -> Iterator[tuple[Any, str]]:
    """Yield the instructions whose tiles no MMA multiplies, with reasons. Call it before tilus infers layouts of these
    tiles."""
    for inst in instructions(function):
        why = mma_tiles.refusal(inst)
        if why is not None:
            yield inst, why


def refusals(tile: Any, names: Mapping[Any, str]) -> Iterator[tuple[Any, str]]:
    """Yield the instructions with a fault, with reasons. Layout faults come first, because they cause other faults.
    names: of tensors."""
    for inst, tensor, threads in register_layouts.beyond(tile):
        yield inst, _short_layout(tensor, names.get(tensor, "a register tensor"), threads)
    for inst in barrier_slices.stale(tile):
        name = names.get(inst.inputs[0], "a tensor of barriers")
        before = "has the addresses from before the assignment to it in tilus 0.2.0"
        yield inst, f"a slice of {name} {before}; assign to the slice"
    for inst in instructions(tile):
        for rule in (_slice, _dims, _view, _copy, _cut, _combination):
            why = rule(inst, names)
            if why is not None:
                yield inst, why


def _short_layout(tensor: Any, name: str, threads: int) -> str:
    size, ones = tensor.layout.spatial_size, "1, " * len(tensor.shape)
    return (
        f"the layout of {name} is for {size} threads, and with the {threads} that execute this tilus 0.2.0 goes beyond "
        f"{name}; one for {threads} works, such as replicated({ones}num_workers={-(-threads // size)}) * this one, "
        "made in __init__"
    )


def _slice(inst: Any, names: Mapping[Any, str]) -> str | None:
    return register_slices.fault(inst, names.get(inst.inputs[0], "a register tensor")) if inst.inputs else None


def _dims(inst: Any, names: Mapping[Any, str]) -> str | None:
    """Dimensions of a copy or slice in another order, which tilus 0.2.0 does not notice."""
    dims = list(getattr(inst, "dims", None) or ())
    if dims == sorted(set(dims)) or not hasattr(inst, "offsets"):
        return None
    return f"dims is {dims}, and tilus 0.2.0 takes each dimension once, in ascending order; transpose the tile itself"


def _view(inst: Any, names: Mapping[Any, str]) -> str | None:
    if not shared_layouts.apart(inst):
        return None
    whole = names.get(inst.shared_input, "a shared tensor")
    return (
        f"this view of {whole} has another layout than {whole}, which tilus 0.2.0 does not notice: each would look for "
        "the other's elements elsewhere; annotate the view, where it is used, and not the whole"
    )


def _copy(inst: Any, names: Mapping[Any, str]) -> str | None:
    copy = raw_copies.changed(inst)
    if copy is None:
        return None
    source, target = (
        f"{names.get(tensor, 'a tensor')} ({kind.name})"
        for tensor, kind in ((copy.source, copy.source_type), (copy.target, copy.target_type))
    )
    return f"{copy.name} from {source} to {target} copies raw bytes in tilus 0.2.0; {copy.remedy}"


def _cut(inst: Any, names: Mapping[Any, str]) -> str | None:
    """Floats, or wider integers, that go into a tile of integers without a cast, by `out=` or as its
    first values; a constant that a tile does not hold."""
    into: Any = getattr(inst.output, "dtype", None)
    name = names.get(inst.output, "a tile")
    if isinstance(inst, AllocateRegisterInst):
        given = [] if inst.init is None else [infer_type(inst.init)]
        why = misfit(inst.init.value, into) if isinstance(inst.init, Constant) else None
        if why is not None:
            return f"{name} {why}"
    else:
        given = [each.dtype for each in inst.inputs] if isinstance(inst, _ARITHMETIC) else []
    for each in given if is_integer(into) else ():
        if is_float(each) or (holds_more(each, into) and each.nbytes > min(into.nbytes, int32.nbytes)):
            return f"{name} is of {into.name}, which would cut {each.name}; convert that to {into.name} first"
    return None


_ARITHMETIC = (AddInst, SubInst, MulInst, DivInst, ModInst)


def _combination(inst: Any, names: Mapping[Any, str]) -> str | None:
    if isinstance(inst, ReduceInst):
        return reductions.refusal(inst)
    if isinstance(inst, DotInst):
        return products.refusal(inst)
    return mma_tiles.layout_refusal(inst, names.get(inst.inputs[-1], "the accumulator")) if inst.inputs else None
