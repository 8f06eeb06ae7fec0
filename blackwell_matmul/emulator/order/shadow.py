"""Who accessed memory last: a cell for the writer of each unit of bytes, and cells for its readers since then.

A unit has 16 bytes until an access is smaller. Readers of shared and tensor memory have a place for each warp of the
CTA and one for each warp's asynchronous operations, where a later one replaces an earlier one: whoever knows the later
knows the earlier. Readers of global memory share two places.
"""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


class ByteShadow:
    """Cells of a memory by bytes. slots: places for readers. shift: log2 of a unit's bytes to begin with."""

    def __init__(self, nbytes: int, slots: int, shift: int = 4) -> None:
        self.shift, self.slots = shift, slots
        count = (nbytes >> shift) + 16
        self.writer = np.zeros(count, np.int64)
        self.readers = np.zeros((count, slots), np.int64)

    def index(self, offsets: Array, nbytes: int) -> tuple[Any, int]:
        """Return the units of accesses, in their order, and how many each has. Ranges without gaps are a slice."""
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
        """Make units as small as the lowest set bit."""
        while low & (1 << self.shift) - 1:
            self.shift -= 1
            self.writer, self.readers = self.writer.repeat(2), self.readers.repeat(2, axis=0)

    def place(self, unit: int) -> int:
        """Return the first byte of a unit."""
        return unit << self.shift


class TensorShadow:
    """Cells of tensor memory, lanes x columns."""

    def __init__(self, lanes: int, columns: int, slots: int) -> None:
        self.writer = np.zeros((lanes, columns), np.int64)
        self.readers = np.zeros((lanes, columns, slots), np.int64)
