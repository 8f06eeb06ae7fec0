"""The elements of on-chip memory and of workspaces that have been written."""

from __future__ import annotations

import numpy as np

from blackwell_matmul.simulator.machine.memory import Box, Region, Storage


class Initialised:
    """Written elements of one storage. written: True once every element is written, else a mask. complete: rectangles
    that are written as a whole, so that the mask need not be read again."""

    __slots__ = ("complete", "shape", "written")

    def __init__(self, storage: Storage) -> None:
        self.shape = storage.shape
        self.written: np.ndarray | bool = storage.defined or np.zeros(self.shape, bool)
        self.complete: set[Box] = set()

    def mark(self, region: Region) -> None:
        """Remember that the region was written."""
        if self.written is True or region.box in self.complete:
            return
        mask = self.written
        assert isinstance(mask, np.ndarray)
        if not region.dense:
            mask.reshape(-1)[region.flat()] = True
        else:
            mask[tuple(slice(lo, hi) for lo, hi in region.box)] = True
            self.complete.add(region.box)
        if mask.all():
            self.written = True

    def forget(self, box: Box) -> None:
        """Mark the box as unwritten."""
        if self.written is True:
            self.written = np.ones(self.shape, bool)
        assert isinstance(self.written, np.ndarray)
        self.written[tuple([slice(lo, hi) for lo, hi in box])] = False
        self.complete.clear()

    def lacks(self, region: Region) -> bool:
        """Return True when some element of the region was never written."""
        if self.written is True or region.box in self.complete:
            return False
        mask = self.written
        assert isinstance(mask, np.ndarray)
        if not region.dense:
            return not mask.reshape(-1)[region.flat()].all()
        return not mask[tuple(slice(lo, hi) for lo, hi in region.box)].all()
