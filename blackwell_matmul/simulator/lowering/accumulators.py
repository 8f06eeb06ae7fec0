"""Accumulators in registers with pending products (machine/deferred.py), and checks of their use."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np

from blackwell_matmul.simulator.lowering.context import LoweringContext
from blackwell_matmul.simulator.machine.cta import Cta, Warp
from blackwell_matmul.simulator.machine.deferred import Sum
from blackwell_matmul.simulator.machine.registers import WarpLayout


def root_of(registers: np.ndarray) -> np.ndarray:
    """Return the array that owns the registers; `registers` may be a view of a part of it."""
    return registers if registers.base is None else registers.base


def sum_of(cta: Cta, parts: dict[int, np.ndarray], layouts: Mapping[int, WarpLayout]) -> Sum:
    """Return the sum for this accumulator."""
    first = min(parts)
    known = cta.warps[first].sums.get(id(parts[first]))
    if known is not None and all(known.parts.get(warp) is each for warp, each in parts.items()):
        return known
    made = Sum(layouts, dict(parts), cta.latest)
    made.performed = cta.engine.tell.performed
    if not made.at_once:
        for warp, registers in parts.items():
            settle(cta, warp, registers)
            cta.warps[warp].sums[id(registers)] = made
    return made


def settle(cta: Cta, warp: int, registers: np.ndarray) -> None:
    """Add all pending products before registers are used, for all warps of the warpgroup."""
    found = cta.warps[warp].sums.get(id(registers))
    if found is not None:
        for other, part in found.parts.items():
            cta.warps[other].sums.pop(id(part), None)
        found.flush()


def ordinary_use(context: LoweringContext, name: str, write: bool) -> Callable[[Warp, np.ndarray], None]:
    """Return the check before an instruction uses registers that an asynchronous operation may use (PTX ISA,
    "wgmma.wait_group", "tcgen05.wait": without the wait that covers it, undefined)."""

    def use(warp: Warp, registers: np.ndarray) -> None:
        root = root_of(registers)
        warp.cta.engine.tell.used(warp, context.instruction, root, name, write)
        if warp.sums:
            settle(warp.cta, warp.index, root)

    return use
