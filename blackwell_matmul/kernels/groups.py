"""`Groups`: which rows of x a group has, for kernels that go through the tiles of all groups in order."""

import tilus
from tilus import GlobalTensor, int32


class Groups(tilus.Class):
    """Where the calling warp is among the groups. Each warp goes through them by itself, and once.

    Group i has the rows from the end of the one before it up to ends[i]. One more has the rows after the last end: they
    are zeros, see `depth`. Ends that decrease, or lie outside of the m rows, are taken as the nearest that do not.
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
        self.first: int32 = 0  # of its tiles, counted through all groups

    def find(self, tile: int32):
        """Go to the group of a tile that is no earlier than the one before; False: there are no more tiles."""
        while self.group <= self.count and tile >= self.first + self.tiles_m * self.tiles_n:
            self.first = self.first + self.tiles_m * self.tiles_n
            begin: int32 = self.end
            self.group = self.group + 1
            self.end = self.m
            if self.group < self.count:
                self.end = max(begin, min(self.ends[self.group].item(), self.m))
            self.tiles_m = (self.end - begin + self.block_m - 1) // self.block_m
            self.begin = begin
        return self.group <= self.count

    def place(self, tile: int32):
        """The first row of a tile, and its column in tiles. A group's tiles go down its rows first: they share w."""
        row: int32 = self.begin + (tile - self.first) % self.tiles_m * self.block_m
        column: int32 = (tile - self.first) // self.tiles_m
        return row, column

    def depth(self, k: int32):
        """From where to where along k the group's tiles are summed. After the last group: one k-tile beyond k, of
        zeros."""
        k_begin: int32 = k if self.group == self.count else 0
        k_end: int32 = k_begin + 1 if self.group == self.count else k
        return k_begin, k_end
