"""`TilesOfAnySize`: `GroupedTiles` where n, too, is known at run time only."""

import tilus
from tilus import int32


class TilesOfAnySize(tilus.Class):
    """`fast_divmod` multiplies by what the host has computed once, as loads wait for the place of the first tile. tilus
    0.2.0 computes that wrongly for some divisors; the launch plans of this package do not (`compiler.plan`)."""

    def __init__(self, tiles_m: int32, tiles_n: int32, group_m: int):
        self.tiles_m: int32 = tiles_m
        self.group_tiles: int32 = group_m * tiles_n
        self.group_m = group_m
        self.last_rows: int32 = (tiles_m - 1) % group_m + 1  # of the last group, which may have fewer

    def place(self, tile: int32):
        """The row and the column of a tile, in tiles."""
        group, place = self.fast_divmod(tile, self.group_tiles)
        column_in_last, row_in_last = self.fast_divmod(place, self.last_rows)
        first_row: int32 = group * self.group_m
        is_last = first_row + self.group_m >= self.tiles_m
        row: int32 = first_row + (row_in_last if is_last else place % self.group_m)
        column: int32 = column_in_last if is_last else place // self.group_m
        return row, column
