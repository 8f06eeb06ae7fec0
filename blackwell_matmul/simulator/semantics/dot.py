"""Matrix products of register tensors: mma.sync.

Code generation runs through k one mma.sync at a time (`DotInstEmitter`), and each rounds its sum to the type of the
accumulator. PTX leaves order and precision of the additions inside one open ("at least half precision" for .f16, PTX
ISA, "mma"): here it is a float32 sum.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from blackwell_matmul.simulator import scaled_values
from blackwell_matmul.simulator.description import Access, Again, Effect, Space, Time, Unit, describe
from blackwell_matmul.simulator.lowering.accumulators import settle, sum_of
from blackwell_matmul.simulator.lowering.context import LoweringContext
from blackwell_matmul.simulator.machine.cta import Warp
from blackwell_matmul.simulator.machine.deferred import Patch, Sum
from blackwell_matmul.simulator.machine.registers import WARP, Gather, WarpLayout, coordinates
from blackwell_matmul.simulator.types import Element, element

REGISTER_BITS = 32

OPERANDS = tuple(Effect(name, Space.REGISTER, Access.READ) for name in "abc")
RESULT = Effect("d", Space.REGISTER, Access.WRITE)
"""Effects of d = a @ b + c."""


@describe(
    "DotInst",
    name="dot",
    ptx="mma.sync",
    effects=(*OPERANDS, RESULT),
    again=Again.VALUES,
    time=Time(Unit.MMA_SYNC, "mma_sync_latency_cycles"),
    mark=True,
)
def dot(inst: Any, context: LoweringContext) -> Any:
    """Lower d = a @ b + c: each warp computes its part of d from its parts of a and b."""
    a, b, c = inst.inputs
    context.use(a, b, c)
    left, right, acc, out = (context.layouts(t) for t in (a, b, c, inst.output))
    item, total_item = element(a.dtype), element(c.dtype)
    wide = np.float32 if item.is_float else np.float64  # exact for integers below 2**53
    parts = _columns(inst) if total_item.is_float else [slice(None)]
    held = functools.cache(lambda w: _held(left[w], right[w], acc[w], out[w]))
    later = context.deferrable(inst.output)

    def run(warp: Warp, x: Any, y: Any, z: np.ndarray) -> np.ndarray | Sum:
        if later:
            if isinstance(x, Patch) and isinstance(y, Patch):
                return _put_off(warp, acc, x, y, z)
            settle(warp.cta, warp.index, z)
            x, y = _loaded(left[warp.index], x), _loaded(right[warp.index], y)
        of_a, of_b, of_c = held(warp.index)
        rows, columns, total = of_a(x.astype(wide), np.nan), of_b(y.astype(wide), np.nan), of_c(z, 0)
        for part in parts:
            _add(total, rows[:, part] @ columns[part], total_item)
        return out[warp.index].registers(total)

    return run


def _put_off(warp: Warp, layouts: Mapping[int, WarpLayout], a: Patch, b: Patch, registers: np.ndarray) -> Sum:
    total = sum_of(warp.cta, {warp.index: registers}, layouts)
    total.defer(a, b)
    return total


def _loaded(layout: WarpLayout, x: np.ndarray | Patch) -> np.ndarray:
    return layout.load(x.values()) if isinstance(x, Patch) else x


def _held(left: WarpLayout, right: WarpLayout, acc: WarpLayout, out: WarpLayout) -> Sequence[Gather]:
    """Return functions that gather the rows of a, the columns of b and the part of c for a warp's part of d."""
    rows, columns = out.lines
    k = np.arange(left.shape[1])
    return left.block((rows, k)), right.block((k, columns)), acc.block((rows, columns))


# --- with block scales


@describe(
    "DotScaledInst",
    name="dot_scaled",
    ptx="mma.sync.block_scale",
    effects=(
        *OPERANDS,
        Effect("scale_a", Space.REGISTER, Access.READ),
        Effect("scale_b", Space.REGISTER, Access.READ),
        RESULT,
    ),
    again=Again.VALUES,
    time=Time(Unit.MMA_SYNC, "mma_sync_latency_cycles"),
    mark=True,
)
def dot_scaled(inst: Any, context: LoweringContext) -> Any:
    """Lower d = (a scale_a) @ (b scale_b) + c: one mma.sync after another along K, each of which truncates its sum
    (`scaled_values.multiply_add`)."""
    a, b, c, scale_a, scale_b = inst.inputs
    context.use(*inst.inputs)
    left, right, acc, out = (context.layouts(t) for t in (a, b, c, inst.output))
    scales_left, scales_right = context.layouts(scale_a), context.layouts(scale_b)
    kind, location, name = inst.kind, context.location, context.description.name
    held = functools.cache(lambda w: _held(left[w], right[w], acc[w], out[w]))

    def run(warp: Warp, x: np.ndarray, y: np.ndarray, z: np.ndarray, u: np.ndarray, v: np.ndarray) -> np.ndarray:
        layout, (of_a, of_b, of_c) = out[warp.index], held(warp.index)
        rows, columns = layout.lines
        operands = (
            scaled_values.ScaledRows.of(of_a(x, 0), a.dtype.name, _scales(scales_left[warp.index], u, rows)),
            scaled_values.ScaledRows.of(of_b(y, 0).T, b.dtype.name, _scales(scales_right[warp.index], v, columns)),
        )
        for code, message in scaled_values.faults(*operands, kind.block):
            warp.cta.report(code, f"{name}: {message}", location)
        return layout.registers(scaled_values.multiply_add(of_c(z, 0), *operands, kind.block, kind.k))

    return run


def _scales(layout: WarpLayout, registers: np.ndarray, rows: np.ndarray) -> scaled_values.RowScales:
    """Return the scales of these rows, of registers of atoms [tile][along K][row % 32][row / 32][4]."""
    atoms = layout.block([np.arange(extent) for extent in layout.shape])(registers, 0)
    by_row = atoms.transpose(0, 3, 2, 1, 4).reshape(-1, layout.shape[1] * layout.shape[4])
    return scaled_values.RowScales(by_row[rows])


def _columns(inst: Any) -> list[slice | np.ndarray]:
    """Return, for each mma.sync in order, the columns of a, and rows of b, that it multiplies."""
    from tilus.backends.emitters.cuda.mma_dot import DotInstEmitter

    config, (outer_a, *_) = DotInstEmitter.resolve_mma_config(*inst.inputs, inst.output)
    per_register = REGISTER_BITS // inst.inputs[0].dtype.nbits
    across = coordinates(config.la, np.arange(WARP))[1].reshape(WARP, -1, config.vec_k, per_register)
    block = config.la.shape[1]
    found = [k * block + np.unique(across[:, :, v]) for k in range(outer_a.shape[1]) for v in range(config.vec_k)]
    return [slice(c[0], c[-1] + 1) if len(c) == c[-1] + 1 - c[0] else c for c in found]


def _add(total: np.ndarray, product: np.ndarray, item: Element) -> None:
    """Add, rounded to the type of the accumulator; integers wrap (PTX ISA, mma: without .satfinite)."""
    if item.is_float:
        np.add(total, product, out=total, casting="unsafe")
    else:
        total[...] = (total + product).astype(np.int64).astype(item.dtype)
