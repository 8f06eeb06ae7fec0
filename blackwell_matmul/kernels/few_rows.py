"""`FewRows`: shared memory of which a tile loads the first rows, as many as it has, and wgmma multiplies 64."""

import tilus
from tilus import SharedTensor
from tilus.ir.layout.ops import auto_local_spatial

from blackwell_matmul.scheduling.mma import Wgmma
from blackwell_matmul.scheduling.tile_config import WARPGROUP


class FewRows(tilus.Class):
    """Parts of `rows` rows, as [tile, part, row, column]. Of each tile one part is loaded; the others are zeros once
    `clear` has been called, by the warpgroup that multiplies, and stay so.
    """

    def __init__(self, s_tiles: SharedTensor, count: int, rows: int, columns: int):
        self.count = count
        self.rows = rows
        self.columns = columns
        self.dtype = s_tiles.dtype
        self.number = max(1, Wgmma.rows // rows)
        self.layout = auto_local_spatial(WARPGROUP, [rows, columns])
        self.parts = self.reshape_shared(s_tiles, [count, self.number, rows, columns])

    def clear(self):
        r_zeros = self.register_tensor(dtype=self.dtype, shape=[self.rows, self.columns], init=0.0)
        self.annotate_layout(r_zeros, self.layout)
        for tile in range(self.count):
            for part in self.range(1, self.number, 1, unroll="all"):
                self.store_shared(self.parts[tile, part], r_zeros)
        self.fence.proxy_async(space="shared")  # wgmma reads through the async proxy, and of all four warps' zeros
        self.sync()
