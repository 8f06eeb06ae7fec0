"""Column vector: one number for each column of C, a bias or a scale.

An example of block_n = 96, loaded by the 128 threads of a warpgroup. gcd(96, 128) = 32 of them load different columns:

    thread      0    1    2  ...   31    32 to 127
    columns     0    1    2  ...   31    the same as threads 0 to 31, three times over
               32   33   34  ...   63
               64   65   66  ...   95
"""

import math

import tilus
from tilus import GlobalTensor, int32
from tilus.ir.layout.ops import replicated

from blackwell_matmul.scheduling.tile_config import WARPGROUP


class ColumnVector(tilus.Class):
    """Row of n elements in global memory, of which each strip of a tile reads a part.

    row: [1, n]. kept: True if the warpgroup loads the tile's part before the MMAs and keeps it in shared memory. Strips
    then need not wait for global memory. False if each strip loads its part from global memory.
    """

    def __init__(self, row: GlobalTensor, block_n: int, strip_n: int, kept: bool):
        self.row = row
        self.kept = kept
        self.block_n = block_n
        threads = math.gcd(block_n, WARPGROUP)  # threads with different columns; the others load the same columns
        same = replicated(1, 1, num_workers=WARPGROUP // threads)
        self.layout = same.local(1, block_n // threads).spatial(1, threads)
        if kept:
            self.s_strips = self.shared_tensor(dtype=row.dtype, shape=[block_n // strip_n, 1, strip_n])

    def load(self, column: int32):
        """Load the part of the tile that begins at this column into registers."""
        self.first = column
        self.r_row = self.load_global(self.row, offsets=[0, column], shape=[1, self.block_n])
        self.annotate_layout(self.r_row, self.layout)

    def store(self):
        """Store the loaded part into shared memory. A sync must follow before `strip` reads it."""
        self.store_shared(self.reshape_shared(self.s_strips, [1, self.block_n]), self.r_row)

    def strip(self, column: int32, columns: int):
        """Return the [1, columns] elements from this column on."""
        if self.kept:
            r_strip = self.load_shared(self.s_strips[(column - self.first) // columns])
        else:
            r_strip = self.load_global(self.row, offsets=[0, column], shape=[1, columns])
        return r_strip
