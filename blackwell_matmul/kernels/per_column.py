"""`PerColumn`: a bias or a scale, of which there is one for each column of C, in global memory."""

import math

import tilus
from tilus import GlobalTensor, int32
from tilus.ir.layout.ops import replicated

from blackwell_matmul.scheduling.tile_config import WARPGROUP


class PerColumn(tilus.Class):
    """row: [1, n]. A warpgroup that multiplies and finishes keeps a tile's part in shared memory, loaded before the
    products: at their end each strip would wait for it. Where it is not kept, it is loaded when a strip asks."""

    def __init__(self, row: GlobalTensor, block_n: int, strip_n: int, kept: bool):
        self.row = row
        self.kept = kept
        self.block_n = block_n
        threads = math.gcd(block_n, WARPGROUP)  # that load next to each other; the others load the same
        same = replicated(1, 1, num_workers=WARPGROUP // threads)
        self.layout = same.local(1, block_n // threads).spatial(1, threads)
        if kept:
            self.s_strips = self.shared_tensor(dtype=row.dtype, shape=[block_n // strip_n, 1, strip_n])

    def load(self, column: int32):
        """Of the tile whose first column this is, into registers."""
        self.first = column
        self.r_row = self.load_global(self.row, offsets=[0, column], shape=[1, self.block_n])
        self.annotate_layout(self.r_row, self.layout)

    def store(self):
        """To where all threads find it, once they have met."""
        self.store_shared(self.reshape_shared(self.s_strips, [1, self.block_n]), self.r_row)

    def strip(self, column: int32, columns: int):
        """[1, columns], from this column on."""
        if self.kept:
            r_strip = self.load_shared(self.s_strips[(column - self.first) // columns])
        else:
            r_strip = self.load_global(self.row, offsets=[0, column], shape=[1, columns])
        return r_strip
