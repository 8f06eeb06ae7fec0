"""`TilesOfAnySize`: `GroupedTiles` where n, too, is known at run time only."""

import tilus
from tilus import int32


class TilesOfAnySize(tilus.Class):
    """`fast_divmod` multiplies by what the host has computed once. tilus 0.2.0 computes that wrongly for some divisors;
    the launch plans of this package do not (`compiler.plan`)."""

    def __init__(self, tiles_m: int32, tiles_n: int32, group_m: int):
        self.tiles_m: int32 = tiles_m
        self.group_tiles: int32 = group_m * tiles_n
        self.group_m = group_m

    def place(self, tile: int32):
        """The row and the column of a tile, in tiles."""
        group, place = self.fast_divmod(tile, self.group_tiles)
        first_row: int32 = group * self.group_m
        rows: int32 = min(self.group_m, self.tiles_m - first_row)  # the last group may have fewer
        row: int32 = first_row + place % rows
        column: int32 = place // rows
        return row, column
