"""Operand: A or B in global memory, one matrix or one for each batch, contiguous along k, or along m or n.

The order of the dimensions in global and in shared memory; a line is contiguous:

    K-major              [batch, rows, k]      a line is one row:       k ->
    M-major or N-major   [batch, k, rows]      a line is one k:      rows ->
"""

import tilus
from tilus import GlobalTensor, RegisterTensor, SharedTensor, int32, uint16


def lines(k_major, outer, rows, k):
    """Return the shape of tiles in the order of memory. outer: leading dimensions. rows: one size, or a list."""
    rows = list(rows) if isinstance(rows, (list, tuple)) else [rows]
    return [*outer, *rows, k] if k_major else [*outer, k, *rows]


def strides(k_major, line, between, rows, k):
    """Return the strides of [batch, *lines], in elements.

    line: elements from a line to the next. between: elements from a matrix to the next. 0: packed.
    """
    length, count = (k, rows) if k_major else (rows, k)
    line = line if line else length
    return [between if between else line * count, line, 1]


class Operand(tilus.Class):
    """Tiles of a matrix, loaded by TMA. Shared memory has the same order of dimensions as global memory.

    batched: True if each batch has its own matrix; False if all batches share one. cta_group: 2 if a CTA pair shares
    the mbarriers of the loads, else 1.
    """

    def __init__(self, matrix: GlobalTensor, k_major: bool, batched: bool, cta_group: int):
        self.matrix = matrix
        self.cta_group = cta_group
        self.k_major = k_major
        self.batched = batched

    def load(self, dst: SharedTensor, batch: int32, row: int32, offset_k: int32, mbarrier: RegisterTensor):
        """Load a tile into the shared memory of this CTA."""
        which = batch if self.batched else 0
        self.tma.global_to_shared(
            src=self.matrix,
            dst=dst,
            offsets=[which, row, offset_k] if self.k_major else [which, offset_k, row],
            dims=[1, 2],
            mbarrier=mbarrier,
            cta_group=self.cta_group,
        )

    def multicast(
        self, dst: SharedTensor, batch: int32, row: int32, offset_k: int32, mbarrier: RegisterTensor, mask: uint16
    ):
        """Load a tile into the shared memory of each CTA of the mask, at the same offset."""
        which = batch if self.batched else 0
        self.tma.global_to_shared(
            src=self.matrix,
            dst=dst,
            offsets=[which, row, offset_k] if self.k_major else [which, offset_k, row],
            dims=[1, 2],
            mbarrier=mbarrier,
            multicast_mask=mask,
        )
