"""`TilesOfAnySize`: `GroupedTiles` where n, too, is known at run time only."""

import tilus
from tilus import int32
from tilus.hidet.ir.expr import Expr


def last_group(tiles_m: Expr, group_m: int) -> Expr:
    """Its number; C rounds towards 0."""
    return (tiles_m - group_m // 2 - 1) // group_m


class TilesOfAnySize(tilus.Class):
    """A last group of less than half as many rows as the others, or half as many, would share little: its rows are of
    the group before it.

    `fast_divmod` multiplies by what the host has computed once, as loads wait for the place of the first tile. tilus
    0.2.0 computes that wrongly for some divisors; the launch plans of this package do not (`compiler.plan`)."""

    def __init__(self, tiles_m: int32, tiles_n: int32, group_m: int):
        self.group_m = group_m
        self.group_tiles: int32 = group_m * tiles_n
        self.last: int32 = last_group(tiles_m, group_m)
        self.last_rows: int32 = tiles_m - last_group(tiles_m, group_m) * group_m  # no self.last: the host divides by it

    def place(self, tile: int32):
        """The row and the column of a tile, in tiles."""
        group, place = self.fast_divmod(tile, self.group_tiles)
        last_place: int32 = max(tile - self.last * self.group_tiles, 0)
        column_in_last, row_in_last = self.fast_divmod(last_place, self.last_rows)
        is_last = group >= self.last
        first_row: int32 = min(group, self.last) * self.group_m
        row: int32 = first_row + (row_in_last if is_last else place % self.group_m)
        column: int32 = column_in_last if is_last else place // self.group_m
        return row, column
