"""Store of C element by element, from shared memory, for rows that TMA cannot store.

TMA stores rows that are multiples of 16 bytes, at such addresses. Rows of any other length begin anywhere in memory. An
example of columns = 64: the lanes of a warp store 32 neighbours of a row each time.

    thread          0   1   ...   31  |  32  33  ...   63  |  64 ..        96 .. 127
    row             0   0          0  |   1   1         1  |   2            3             then row + 4, + 8, ...
    column          0   1         31  |   0   1        31  |   0 .. 31      0 .. 31       then column + 32
"""

from math import gcd

import tilus
from tilus import GlobalTensor, SharedTensor, int32
from tilus.ir.layout.ops import spatial

from blackwell_matmul.scheduling.tile_config import WARP, WARPGROUP


class ElementStore(tilus.Class):
    """Stores of a warpgroup into C[batches, m, n]. line: elements from row to row of C."""

    def __init__(self, g_c: GlobalTensor, line: int32):
        self.g_c = g_c
        self.line = line

    def store(self, s_rows: SharedTensor, batch: int32, row: int32, column: int32, first_row: int32):
        """Store s_rows[rows, columns] at C[batch, row, column], except rows before first_row.

        rows must be a multiple of 128 threads over gcd(columns, 32). Elements outside of C are not stored.
        """
        rows, columns = s_rows.shape
        across = gcd(columns, WARP)
        down = WARPGROUP // across
        if first_row < self.g_c.shape[1]:
            g_rows = self.global_view(
                self.g_c[batch, first_row, 0].item_ptr(),
                dtype=self.g_c.dtype,
                shape=[self.g_c.shape[1] - first_row, self.g_c.shape[2]],
                strides=[self.line, 1],
            )
            r_rows = self.load_shared(s_rows)
            self.annotate_layout(r_rows, spatial(down, across).local(rows // down, columns // across))
            self.store_global(g_rows, r_rows, offsets=[row - first_row, column])
