"""print_tensor and printf."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from blackwell_matmul.simulator.description import Time, Unit, Wait, describe
from blackwell_matmul.simulator.lowering.context import LoweringContext
from blackwell_matmul.simulator.machine.cta import Warp
from blackwell_matmul.simulator.machine.memory import View
from blackwell_matmul.simulator.semantics.tcgen05 import TensorView

_FORMATS = {"float32": "%6.3f", "bfloat16": "%5.3f", "int32": "%5d", "uint32": "%3d", "uint8": "%3d", "int8": "%3d"}
_FORMATS |= {"bool": "%1d"}
_CONVERSION = re.compile(r"%([-+ #0]*\d*(?:\.\d+)?)(?:hh|h|ll|l|j|z|t|L)?([diouxXeEfFgGcsp%])")


def python_format(text: str) -> str:
    """Return a format of C's printf for Python's %: no length modifiers, and pointers as numbers."""
    return _CONVERSION.sub(lambda m: f"%{m[1]}{'#x' if m[2] == 'p' else m[2]}", text)


@describe(
    "PrintTensorInst",
    name="print_tensor",
    ptx="bar{.cta}",
    waits=(Wait("threads"),),
    time=Time(Unit.WARPS, "sync_cycles"),
)
def print_tensor(inst: Any, context: LoweringContext) -> Any:
    tensor = inst.inputs[0]
    context.kind = "steps"
    context.use(tensor)
    context.scalar(inst.cond)
    gather, first, location = context.gather("print_tensor"), context.group.warps.start, context.location
    is_register = type(tensor).__name__.startswith("Register")
    layouts = context.layouts(tensor) if is_register else {}
    default = _FORMATS.get(tensor.dtype.name, "%5.2f" if tensor.dtype.is_float() else "%2d")
    pattern = python_format(inst.fmt) if inst.fmt else default

    def run(warp: Warp, value: Any, cond: Any) -> Any:
        brought = yield from gather(warp, value)
        if not cond or warp.index != first:
            return
        tile = _tile(tensor, layouts, brought, value)
        head = f"{inst.msg}{tensor.dtype.name}{list(tensor.shape)}"
        where = f"[CTA {warp.cta.position}, warp {warp.index}, {location}]"
        warp.cta.grid.printed.append(f"{where} {head}\n{_spell(tile, pattern)}")

    return run


def _tile(tensor: Any, layouts: Any, brought: dict[int, Any], value: Any) -> np.ndarray:
    if isinstance(value, View):
        return value.read()
    if isinstance(value, TensorView):
        return value.cells()
    tile = np.zeros(tuple(tensor.shape), next(iter(brought.values())).dtype)
    for index, registers in brought.items():
        layouts[index].place(registers, tile)
    return tile


def _spell(tile: np.ndarray, pattern: str) -> str:
    as_number = float if any(c in pattern for c in "efgEG") else int
    if tile.ndim == 0:
        return pattern % as_number(tile)
    if tile.ndim == 1:
        return "[" + ", ".join(pattern % as_number(x) for x in tile) + "]"
    return "[" + "\n ".join(_spell(row, pattern) for row in tile) + "]"


@describe(
    "FormatPrintInst", name="printf", ptx="bar{.cta}", waits=(Wait("threads"),), time=Time(Unit.WARPS, "sync_cycles")
)
def printf(inst: Any, context: LoweringContext) -> Any:
    """Print once by the first thread of the group, as the generated code does."""
    context.kind = "steps"
    context.scalar(inst.cond)
    context.scalars(inst.expressions)
    gather, first, location = context.gather("printf"), context.group.warps.start, context.location
    pattern = python_format(inst.fstring)

    def run(warp: Warp, cond: Any, values: tuple[Any, ...]) -> Any:
        yield from gather(warp, None)
        if cond and warp.index == first:
            text = (pattern % values).rstrip("\n")
            warp.cta.grid.printed.append(f"[CTA {warp.cta.position}, warp {warp.index}, {location}] {text}")

    return run
