"""`GroupedTiles`: the order of the tiles that V4 spells out."""

import tilus
from tilus import int32


class GroupedTiles(tilus.Class):
    """tiles_m x tiles_n tiles, which go down the rows of a group, then to the next column."""

    def __init__(self, tiles_m: int32, tiles_n: int, group_m: int):
        self.tiles_m: int32 = tiles_m
        self.tiles_n = tiles_n
        self.group_m = group_m

    def place(self, tile: int32):
        """The row and the column of a tile, in tiles."""
        group_tiles = self.group_m * self.tiles_n
        first_row: int32 = tile // group_tiles * self.group_m
        rows: int32 = min(self.group_m, self.tiles_m - first_row)  # the last group may have fewer
        row: int32 = first_row + tile % group_tiles % rows
        column: int32 = tile % group_tiles // rows
        return row, column
