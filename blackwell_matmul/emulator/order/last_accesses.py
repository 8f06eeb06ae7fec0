"""Last accesses to memory: for each unit of bytes, a cell for the last writer, and cells for the readers since then.

A unit has 16 bytes until an access is smaller. Readers of shared and tensor memory have a slot for each warp of the
CTA, and a slot for each warp's asynchronous operations. In a slot the later access replaces the earlier access: an
agent that has observed the later access has also observed the earlier one. Readers of global memory share two slots.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from blackwell_matmul.emulator.lanes import Array


class ByteShadow:
    """Last accesses to a memory, as units x slots. Slot 0 of a unit is the last writer; the other `slots` slots are
    readers.

    shift: log2 of a unit's bytes at first.
    """

    def __init__(self, nbytes: int, slots: int, shift: int = 4) -> None:
        self.shift, self.slots = shift, slots
        self.cells = np.zeros(((nbytes >> shift) + 16, 1 + slots), np.int64)

    def index(self, offsets: Array, nbytes: int) -> tuple[Any, int]:
        """Return the units of accesses, in order, and the number of units per access. A single access gives a slice."""
        if offsets.size == 1:
            start = int(offsets[0])
            self._fit((start | nbytes) & 15)
            return slice(start >> self.shift, start + nbytes >> self.shift), nbytes >> self.shift
        self._fit(int(np.bitwise_or.reduce(offsets) | nbytes) & 15)
        units, per = offsets >> self.shift, nbytes >> self.shift
        if per > 1:
            units = (units[:, None] + np.arange(per)).reshape(-1)
        return units, per

    def _fit(self, low: int) -> None:
        """Split the units until their size divides all addresses and sizes in `low`."""
        while low & (1 << self.shift) - 1:
            self.shift -= 1
            old, self.cells = self.cells, np.zeros((2 * len(self.cells), 1 + self.slots), np.int64)
            used = np.flatnonzero(
                old.any(axis=1)
            )  # only used units are copied: untouched pages of zeros take no memory
            self.cells[2 * used] = self.cells[2 * used + 1] = old[used]

    def write(self, index: Any, word: Any) -> None:
        """Record a writer, and remove the readers before it."""
        self.cells[index] = 0
        self.cells[index, 0] = word

    def place(self, unit: int) -> int:
        """Return the offset of a unit's first byte."""
        return unit << self.shift


def occupied(block: Array) -> tuple[Array, Array, Array]:
    """Return the nonzero cells of units x slots, with unit and slot of each."""
    flat, slots = block.reshape(-1), block.shape[1]
    places = np.flatnonzero(flat)
    return flat[places], places // slots, places % slots


class TensorShadow:
    """Last accesses to tensor memory, as slots x lanes x columns. Slot 0 has the writers. used: reader slots in use."""

    def __init__(self, lanes: int, columns: int, slots: int) -> None:
        self.slots = slots + 1
        self.cells = np.zeros((self.slots, lanes, columns), np.int64)
        self.used: set[int] = set()

    def read(self, index: Any, slot: int, word: int) -> None:
        """Record a reader. slot: index among the reader slots."""
        self.used.add(slot + 1)
        self.cells[slot + 1][index] = word

    def write(self, index: Any, word: int) -> None:
        """Record a writer, and remove the readers before it."""
        for slot in self.used:
            self.cells[slot][index] = 0
        self.cells[0][index] = word
