"""`Operand`: A or B in global memory, a matrix for each batch, contiguous along k or along its rows."""

import tilus
from tilus import GlobalTensor, RegisterTensor, SharedTensor, int32, uint16


def lines(k_major, outer, rows, k):
    """The shape of matrices, or of tiles, in the order of memory, after the dimensions `outer`; rows may be several."""
    rows = list(rows) if isinstance(rows, (list, tuple)) else [rows]
    return [*outer, *rows, k] if k_major else [*outer, k, *rows]


def strides(k_major, line, between, rows, k):
    """Of [batch, *lines]: line and between are from a line, and from a matrix, to the next; 0: each follows the one
    before."""
    length, count = (k, rows) if k_major else (rows, k)
    line = line if line else length
    return [between if between else line * count, line, 1]


class Operand(tilus.Class):
    """matrix: [batch, rows, k], or [batch, k, rows] where it is not K-major; tiles of it lie in shared memory in the
    same order. batched: whether there is one for each batch, or one for all.
    cta_group: how many CTAs share the mbarriers that loads tell.
    """

    def __init__(self, matrix: GlobalTensor, k_major: bool, batched: bool, cta_group: int):
        self.matrix = matrix
        self.cta_group = cta_group
        self.k_major = k_major
        self.batched = batched

    def load(self, dst: SharedTensor, batch: int32, row: int32, offset_k: int32, mbarrier: RegisterTensor):
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
        """Into each CTA of the mask, at the same place."""
        which = batch if self.batched else 0
        self.tma.global_to_shared(
            src=self.matrix,
            dst=dst,
            offsets=[which, row, offset_k] if self.k_major else [which, offset_k, row],
            dims=[1, 2],
            mbarrier=mbarrier,
            multicast_mask=mask,
        )
