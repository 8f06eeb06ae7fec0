"""Raster order of a grouped GEMM: numbers the tiles of groups of rows. The host does not know the groups' sizes.

An example of ends = 5, 5, 14 with m = 16, block_m = 4 and one column of tiles; each number is a tile:

    group 0    rows  0 to  4    0  1        the last tile has one row
    group 1    no rows
    group 2    rows  5 to 13    2  3  4     a tile begins at any row
    group 3    rows 14 and 15   5           after the last end: zeros in C
"""

import tilus
from tilus import GlobalTensor, int32
from tilus.utils import cdiv


class GroupedRaster(tilus.Class):
    """Group of the calling warp's tile. Each warp calls `find` with ascending tile numbers.

    ends: int32, the end of each of `count` groups. The rows after the last end are one more group. An end that is
    smaller than the end before, or larger than m, is clamped. tiles_n: number of tiles along N in each group.
    """

    def __init__(self, ends: GlobalTensor, count: int32, m: int32, block_m: int, tiles_n: int):
        self.ends = ends
        self.count: int32 = count
        self.m: int32 = m
        self.block_m = block_m
        self.tiles_n = tiles_n
        self.group: int32 = -1
        self.begin: int32 = 0
        self.end: int32 = 0
        self.tiles_m: int32 = 0
        self.first: int32 = 0  # number of the group's first tile, counted over all groups

    def find(self, tile: int32):
        """Advance to the group of a tile; return False if there is no such tile."""
        while self.group <= self.count and tile >= self.first + self.tiles_m * self.tiles_n:
            self.first = self.first + self.tiles_m * self.tiles_n
            self.begin = self.end
            self.group = self.group + 1
            self.end = self.m
            if self.group < self.count:
                self.end = max(self.begin, min(self.ends[self.group].item(), self.m))
            self.tiles_m = cdiv(self.end - self.begin, self.block_m)
        return self.group <= self.count

    def place(self, tile: int32):
        """Return the first row of a tile, and its column in tiles. Consecutive tiles share a tile of w."""
        row: int32 = self.begin + (tile - self.first) % self.tiles_m * self.block_m
        column: int32 = (tile - self.first) // self.tiles_m
        return row, column

    def depth(self, k: int, block_k: int):
        """Return begin and end of the loop along k. Rows after the last group get one k-tile of zeros, outside of k."""
        beyond: int32 = cdiv(k, block_k) * block_k
        k_begin: int32 = beyond if self.group == self.count else 0
        k_end: int32 = k_begin + 1 if self.group == self.count else k
        return k_begin, k_end
