"""Raster order: an order of C's tiles in which CTAs that run at the same time share tiles of A and B in the L2.

The order goes down the rows of a group, then on to the next column. An example of 5 x 3 tiles with group_m = 2; each
number is a tile:

    GroupedTiles        DynamicGroupedTiles

      0   2   4           0   2   4       group 0
      1   3   5           1   3   5
      6   8  10           6   9  12       group 1. In DynamicGroupedTiles, the last group has the remaining row,
      7   9  11           7  10  13       which would share few loads as a group of its own.
     12  13  14           8  11  14
"""

import tilus
from tilus import int32
from tilus.hidet.ir.expr import Expr


class GroupedTiles(tilus.Class):
    """Order of tiles_m x tiles_n tiles for a tiles_n that is constant at compile time."""

    def __init__(self, tiles_m: int32, tiles_n: int, group_m: int):
        self.tiles_m: int32 = tiles_m
        self.tiles_n = tiles_n
        self.group_m = group_m

    def place(self, tile: int32):
        """Return the row and the column of a tile, in tiles."""
        group_tiles = self.group_m * self.tiles_n
        first_row: int32 = tile // group_tiles * self.group_m
        rows: int32 = min(self.group_m, self.tiles_m - first_row)  # the last group may have fewer
        row: int32 = first_row + tile % group_tiles % rows
        column: int32 = tile % group_tiles // rows
        return row, column


def last_group(tiles_m: Expr, group_m: int) -> Expr:
    """Return the index of the last group, for a division that rounds towards 0."""
    return (tiles_m - group_m // 2 - 1) // group_m


class DynamicGroupedTiles(tilus.Class):
    """Order of tiles_m x tiles_n tiles for a tiles_n that is an argument of the launch.

    If the last group would have at most half as many rows as the others, the group before it takes these rows.

    `fast_divmod` multiplies by a number that the host computes, which is faster than a division. The first loads wait
    for its result. For some divisors tilus 0.2.0 computes a wrong number; the launch plans of this package have the
    right number (`compiler.plan`).
    """

    def __init__(self, tiles_m: int32, tiles_n: int32, group_m: int):
        self.group_m = group_m
        self.group_tiles: int32 = group_m * tiles_n
        self.last: int32 = last_group(tiles_m, group_m)
        self.last_rows: int32 = tiles_m - last_group(tiles_m, group_m) * group_m  # no self.last: the host divides by it

    def place(self, tile: int32):
        """Return the row and the column of a tile, in tiles."""
        group, place = self.fast_divmod(tile, self.group_tiles)
        last_place: int32 = max(tile - self.last * self.group_tiles, 0)
        column_in_last, row_in_last = self.fast_divmod(last_place, self.last_rows)
        is_last = group >= self.last
        first_row: int32 = min(group, self.last) * self.group_m
        row: int32 = first_row + (row_in_last if is_last else place % self.group_m)
        column: int32 = column_in_last if is_last else place // self.group_m
        return row, column
