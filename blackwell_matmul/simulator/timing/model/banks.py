"""Shared-memory bank cycles of a warp's own loads and stores.

Words of 4 bytes lie in one of 32 banks after the other. Each bank serves one word a cycle, whichever lanes ask for it
(CUDA C++ Programming Guide, "Shared Memory"). An instruction moves up to 16 bytes of a lane, for as many lanes at a
time as ask for 128 bytes together. ldmatrix and stmatrix move eight rows of 16 bytes at a time, whoever holds them.
Measured in bench/calibrate/tables/h200_micro.csv, "strip".
"""

from __future__ import annotations

import functools
import math
from typing import Any, NamedTuple

import numpy as np

from blackwell_matmul.simulator.description import Instruction
from blackwell_matmul.simulator.lowering.context import layouts_of
from blackwell_matmul.simulator.machine.registers import WARP, WarpLayout

BANKS = 32
WORD_BYTES = 4
MOST_LANE_BYTES = 16
"""Maximum bytes of a lane that one instruction moves."""


class Turns(NamedTuple):
    """Bank cycles of an instruction for all lanes of a warp. least: without bank conflicts."""

    taken: int
    least: int


def turns_of(inst: Any, instruction: Instruction) -> Turns:
    """Return a warp's bank cycles of load_shared or store_shared; its other warps are assumed to be like the first."""
    shared = inst.inputs[0]
    registers = inst.inputs[1] if inst.output is None else inst.output
    layout = layouts_of(registers, instruction.group)[instruction.group.warps[0]]
    return _turns(layout, shared.layout, int(registers.dtype.nbits), _turned(inst, shared, registers))


def _turned(inst: Any, shared: Any, registers: Any) -> bool:
    """Return True if tilus uses ldmatrix.trans or stmatrix.trans, where a lane holds two values of different rows."""
    from tilus.backends.emitters import shared_ldst as tilus

    find = tilus._get_store_matrix_config if inst.output is None else tilus._get_load_matrix_config
    config = find(registers.dtype, registers.layout)
    if config is None or not config.trans:
        return False
    unit = config.ldmatrix_layout if inst.output is not None else config.stmatrix_layout
    contiguous = tilus._check_shared_alignment_and_contiguity
    return bool(contiguous(shared, registers.shape, None, config.nbytes, unit.shape[-1]))


@functools.lru_cache(256)
def _turns(layout: WarpLayout, shared: Any, bits: int, matrices: bool) -> Turns:
    offsets = np.asarray(shared.as_numpy_grid()).reshape(layout.shape)[layout.coords] * bits // 8
    together = 2 if matrices else width(offsets, bits)
    lanes = layout.lanes
    if not matrices:
        lanes = min(lanes, WARP * WORD_BYTES * 8 // max(together * bits, 8 * WORD_BYTES))
    taken = least = 0
    for registers in np.split(offsets, layout.local_size // together, axis=1):
        for first in range(0, layout.lanes, lanes):
            words = np.unique(registers[first : first + lanes] // WORD_BYTES)
            taken += int(np.bincount(words % BANKS).max())
            least += math.ceil(len(words) / BANKS)
    return Turns(taken, least)


def width(offsets: np.ndarray, bits: int) -> int:
    """Return the number of a lane's registers that one instruction moves: contiguous and aligned in shared memory."""
    found = 1
    while offsets.shape[1] % (2 * found) == 0 and 2 * found * bits <= 8 * MOST_LANE_BYTES:
        pairs = offsets.reshape(len(offsets), -1, 2, found)
        beside = (pairs[:, :, 1, 0] - pairs[:, :, 0, 0]) * 8 == found * bits
        if not beside.all() or (pairs[:, :, 0, 0] % (2 * found * bits // 8)).any():
            break
        found *= 2
    return found
