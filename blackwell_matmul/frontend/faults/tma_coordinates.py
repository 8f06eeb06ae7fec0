"""Valid start coordinates of a TMA box.

The innermost coordinate must be a multiple of 16 bytes, even if negative (measured on an H200; Triton, Gluon tutorial
04-tma: "The innermost coordinate must be 16-byte aligned"). A store takes no negative coordinate. A load may begin
before its tensor (CUDA Programming Guide, "Using TMA to Transfer Multi-Dimensional Arrays").
"""

from __future__ import annotations

import math
from collections.abc import Sequence

INNERMOST_BYTES = 16


def step_of(nbits: int) -> int:
    """Return the step of the innermost coordinate, in elements of `nbits` bits."""
    return INNERMOST_BYTES * 8 // math.gcd(INNERMOST_BYTES * 8, nbits)


def misplaced(name: str, offsets: Sequence[int | None], nbits: int, store: bool) -> str:
    """Return the fault of a box of the tensor `name` at these coordinates, or "". An offset is None where it is not
    known."""
    verb, other = ("store to", "store_global") if store else ("load of", "load_global")
    places = ", ".join(".." if offset is None else str(offset) for offset in offsets)
    where, step, inner = f"TMA {verb} {name} at [{places}]", step_of(nbits), offsets[-1]
    if inner is not None and inner % step:
        length = f"{inner} elements of {nbits // 8} bytes = {inner * nbits // 8} bytes"
        return (
            f"{where}: its innermost coordinate, {length}, is no multiple of {INNERMOST_BYTES}; move the box to a "
            f"multiple of {step} elements, or use {other}"
        )
    negative = [dim for dim, offset in enumerate(offsets) if store and offset is not None and offset < 0]
    if not negative:
        return ""
    return (
        f"{where}: a store takes no negative coordinate, as that of dimension {negative[0]} is; start the box at 0 or "
        f"later, or use {other}"
    )
