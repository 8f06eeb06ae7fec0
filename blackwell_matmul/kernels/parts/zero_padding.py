"""Zero padding: tiles of A with 16 or 32 rows, where a wgmma multiplies 64.

Shared memory of a tile with rows = 16, as wgmma reads it:

    rows  0 to 15    part 0    loaded by TMA, for each k-tile anew
    rows 16 to 31    part 1    zeros, stored once
    rows 32 to 47    part 2    zeros
    rows 48 to 63    part 3    zeros
"""

import tilus
from tilus import SharedTensor
from tilus.ir.layout.ops import auto_local_spatial

from blackwell_matmul.scheduling.mma import Wgmma
from blackwell_matmul.scheduling.tile_config import WARPGROUP

STORED_BYTES = 16
"""Bytes that one st.shared.v4 of a thread stores, at most."""


class ZeroPadding(tilus.Class):
    """View of `count` tiles of 64 rows, s_tiles, as [tile, part, row, column], with parts of `rows` rows."""

    def __init__(self, s_tiles: SharedTensor, count: int, rows: int, columns: int):
        self.count = count
        self.rows = rows
        self.columns = columns
        self.dtype = s_tiles.dtype
        self.number = max(1, Wgmma.rows // rows)
        # Each thread stores 16 bytes at once: stores of single bytes took 0.6 to 0.9 us with 8 stages.
        together = min(STORED_BYTES // self.dtype.nbytes, rows * columns // WARPGROUP)
        self.layout = auto_local_spatial(WARPGROUP, [rows, columns // together]).local(1, together)
        self.parts = self.reshape_shared(s_tiles, [count, self.number, rows, columns])

    def clear(self):
        """Store zeros into all parts except the first part of each tile. The warpgroup that multiplies calls this."""
        r_zeros = self.register_tensor(dtype=self.dtype, shape=[self.rows, self.columns], init=0.0)
        self.annotate_layout(r_zeros, self.layout)
        for tile in range(self.count):
            for part in self.range(1, self.number, 1, unroll="all"):
                self.store_shared(self.parts[tile, part], r_zeros)
        self.fence.proxy_async(space="shared")  # wgmma reads the zeros of all four warps, through the async proxy
        self.sync()
