"""Matrix products of register tensors: mma.sync.

Code generation runs through k one mma.sync at a time (`DotInstEmitter`), and each rounds its sum to the type of the
accumulator. Inside of one, PTX leaves order and precision of the additions open ("at least half precision" for .f16,
PTX ISA, "mma"): here it is a float32 sum.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from blackwell_matmul.simulator.description import Access, Again, Effect, Space, describe
from blackwell_matmul.simulator.machine.cta import Warp
from blackwell_matmul.simulator.machine.registers import WARP, WarpLayout, coordinates
from blackwell_matmul.simulator.semantics.context import LoweringContext
from blackwell_matmul.simulator.types import Element, element

REGISTER_BITS = 32


@describe(
    "DotInst",
    name="dot",
    ptx="mma.sync",
    effects=(
        Effect("a", Space.REGISTER, Access.READ),
        Effect("b", Space.REGISTER, Access.READ),
        Effect("c", Space.REGISTER, Access.READ),
        Effect("d", Space.REGISTER, Access.WRITE),
    ),
    again=Again.VALUES,
)
def dot(inst: Any, context: LoweringContext) -> Any:
    """d = a @ b + c; each warp computes the part of d that it holds, from the parts of a and b that it holds."""
    a, b, c = inst.inputs
    for tensor in (a, b, c):
        context.use(tensor)
    left, right, acc, out = (context.layouts(t) for t in (a, b, c, inst.output))
    item, total_item = element(a.dtype), element(c.dtype)
    parts = _columns(inst) if total_item.is_float else [slice(None)]

    def run(warp: Warp, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        w = warp.index
        tile = np.zeros(out[w].shape, total_item.dtype)
        acc[w].place(z, tile)
        wide_a, wide_b = _operand(left[w], x, item), _operand(right[w], y, item)
        (m0, m1), (n0, n1) = out[w].box
        total = tile[m0:m1, n0:n1]
        with np.errstate(over="ignore", invalid="ignore"):
            for part in parts:
                total[...] = _narrowed(total + wide_a[m0:m1, part] @ wide_b[part, n0:n1], total_item)
        return out[w].load(tile)

    return run


def _columns(inst: Any) -> list[slice | np.ndarray]:
    """For each mma.sync that comes after another, the columns of a, and rows of b, that it multiplies."""
    from tilus.backends.emitters.cuda.mma_dot import DotInstEmitter

    config, (outer_a, *_) = DotInstEmitter.resolve_mma_config(*inst.inputs, inst.output)
    per_register = REGISTER_BITS // inst.inputs[0].dtype.nbits
    across = coordinates(config.la, np.arange(WARP))[1].reshape(WARP, -1, config.vec_k, per_register)
    block = config.la.shape[1]
    found = [k * block + np.unique(across[:, :, v]) for k in range(outer_a.shape[1]) for v in range(config.vec_k)]
    return [slice(c[0], c[-1] + 1) if len(c) == c[-1] + 1 - c[0] else c for c in found]


def _operand(layout: WarpLayout, registers: np.ndarray, item: Element) -> np.ndarray:
    """What the warp holds of an operand; float32, or float64 for integers (exact below 2**53)."""
    wide = np.float32 if item.is_float else np.float64
    tile = np.full(layout.shape, np.nan, wide)
    layout.place(registers.astype(wide), tile)
    return tile


def _narrowed(total: np.ndarray, item: Element) -> np.ndarray:
    """Integers wrap (PTX ISA, mma: without .satfinite)."""
    return total.astype(item.dtype) if item.is_float else total.astype(np.int64).astype(item.dtype)
