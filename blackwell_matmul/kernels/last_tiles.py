"""`LastTiles`: where a tile begins, so that the rows of A and of B that it loads are there."""

import tilus
from tilus import GlobalTensor, SharedTensor, int32
from tilus.utils import cdiv

from blackwell_matmul.scheduling.mma import Wgmma
from blackwell_matmul.scheduling.tile_config import LAST_ROWS


class LastTiles(tilus.Class):
    """The last tile of a column begins as far up as it has rows too many, in steps of 16, and the last one of a row as
    far to the left as it has columns too many, where these are whole strips of C: what they have twice, the tiles
    before them store. TMA fills rows that are not there with zeros, and for these a call took up to 1.9 times as long
    where many SMs load at once (bench/results/h100_tails.json)."""

    def __init__(self, m: int32, n: int32, block_m: int, block_n: int, strip_n: int):
        self.rows = min(block_m, Wgmma.rows)  # of a warpgroup
        self.last_m: int32 = cdiv(m, LAST_ROWS) * LAST_ROWS - block_m if m > block_m else 0
        too_many: int32 = cdiv(n, block_n) * block_n - n
        last_n: int32 = n - block_n if n > block_n else 0
        self.last_n: int32 = last_n if too_many % strip_n == 0 else n

    def begin(self, tile_m: int32, tile_n: int32):
        """The first row and column that are computed, of a tile that stores C from these on."""
        return min(tile_m, self.last_m), min(tile_n, self.last_n)

    def store(self, s_strip: SharedTensor, g_c: GlobalTensor, batch: int32, at_m: int32, at_n: int32, tile_m: int32):
        """What a warpgroup has of a strip, from this row and column of C on; but nothing above tile_m."""
        all_rows, columns = s_strip.shape
        if at_m >= tile_m:
            s_rows = self.reshape_shared(s_strip, [all_rows // self.rows, self.rows, columns])
            self.leave(s_rows[0], g_c, batch, at_m, at_n)
        else:
            s_parts = self.reshape_shared(s_strip, [all_rows // LAST_ROWS, LAST_ROWS, columns])
            for part in range(1, self.rows // LAST_ROWS):
                if at_m + part * LAST_ROWS >= tile_m:
                    self.leave(s_parts[part], g_c, batch, at_m + part * LAST_ROWS, at_n)

    def leave(self, s_rows: SharedTensor, g_c: GlobalTensor, batch: int32, at_m: int32, at_n: int32):
        if len(g_c.shape) == 2:
            self.tma.shared_to_global(s_rows, g_c, offsets=[at_m, at_n])
        else:
            self.tma.shared_to_global(s_rows, g_c, offsets=[batch, at_m, at_n], dims=[1, 2])
