"""Matrix products of register tensors: mma.sync, and its SIMT counterpart."""

from __future__ import annotations

from typing import Any

import numpy as np

from blackwell_matmul.simulator.machine import Warp
from blackwell_matmul.simulator.registers import WarpLayout
from blackwell_matmul.simulator.semantics.description import Access, Again, Effect, Space, describe
from blackwell_matmul.simulator.site import Site
from blackwell_matmul.simulator.types import Element, element


@describe(
    "DotInst",
    "SimtDotInst",
    name="dot",
    ptx="mma.sync",
    effects=(
        Effect("a", Space.REGISTER, Access.READ),
        Effect("b", Space.REGISTER, Access.READ),
        Effect("c", Space.REGISTER, Access.READ),
        Effect("d", Space.REGISTER, Access.WRITE),
    ),
    resources=("tensor core",),
    again=Again.VALUES,
)
def dot(inst: Any, site: Site) -> Any:
    """d = a @ b + c; each warp computes the part of d that it holds, from the parts of a and b that it holds."""
    a, b, c = inst.inputs
    for tensor in (a, b, c):
        site.use(tensor)
    left, right, acc, out = (site.layouts(t) for t in (a, b, c, inst.output))
    items = element(a.dtype), element(c.dtype), element(inst.output.dtype)

    def run(warp: Warp, x: np.ndarray, y: np.ndarray, z: np.ndarray) -> np.ndarray:
        w = warp.index
        product = _product(left[w], right[w], out[w], x, y, items[0])
        tile = np.zeros(out[w].shape, items[1].dtype)
        acc[w].place(z, tile)
        total = tile.astype(product.dtype) + product
        return out[w].load(total.astype(items[2].dtype))

    return run


def _product(
    left: WarpLayout, right: WarpLayout, out: WarpLayout, x: np.ndarray, y: np.ndarray, item: Element
) -> np.ndarray:
    """The warp's rectangle of a @ b inside a tile of zeros; float32, or float64 for integers (exact below 2**53)."""
    wide = np.float32 if item.is_float else np.float64
    a, b = np.full(left.shape, np.nan, wide), np.full(right.shape, np.nan, wide)
    left.place(x.astype(wide), a)
    right.place(y.astype(wide), b)
    (m0, m1), (n0, n1) = out.box
    tile = np.zeros(out.shape, wide)
    tile[m0:m1, n0:n1] = a[m0:m1] @ b[:, n0:n1]
    return tile
