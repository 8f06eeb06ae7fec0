"""`DynamicGroupedTiles`: every tile once, and no group that is left with a row or two."""

import itertools

import pytest
import tilus
import torch
from tilus import int32

from blackwell_matmul import compile, emulate, simulate
from blackwell_matmul.kernels.parts.raster import DynamicGroupedTiles


class Places(tilus.Script):
    """CTA i stores the row and the column of tile i."""

    def __init__(self, group_m: int):
        super().__init__()
        self.group_m = group_m

    def __call__(self, tiles_m: int32, tiles_n: int32, places_ptr: ~int32):
        self.attrs.blocks = tiles_m * tiles_n
        self.attrs.warps = 1
        g_places = self.global_view(places_ptr, dtype=int32, shape=[tiles_m * tiles_n, 2])
        row, column = DynamicGroupedTiles(tiles_m, tiles_n, self.group_m).place(self.blockIdx.x)
        r_row = self.register_tensor(dtype=int32, shape=[1, 1], init=lambda i, j: row)
        r_column = self.register_tensor(dtype=int32, shape=[1, 1], init=lambda i, j: column)
        self.store_global(g_places, r_row, offsets=[self.blockIdx.x, 0])
        self.store_global(g_places, r_column, offsets=[self.blockIdx.x, 1])


GROUPS = [
    (4, 1, [1]), (4, 4, [4]), (4, 5, [5]), (4, 6, [6]), (4, 7, [4, 3]), (4, 9, [4, 5]), (4, 14, [4, 4, 6]),
    (1, 3, [1, 1, 1]), (16, 17, [17]), (16, 25, [16, 9]),
]  # fmt: skip


def places_of(groups: list[int], tiles_n: int) -> list[list[int]]:
    starts = itertools.accumulate(groups, initial=0)
    return [
        [start + row, column] for start, rows in zip(starts, groups) for column in range(tiles_n) for row in range(rows)
    ]


@pytest.mark.slow
@pytest.mark.parametrize(("group_m", "tiles_m", "groups"), GROUPS)
def test_the_order_of_the_tiles(group_m: int, tiles_m: int, groups: list[int]) -> None:
    places = torch.zeros(tiles_m * 3, 2, dtype=torch.int32)
    simulate(Places(group_m), tiles_m, 3, places, target="sm_90a")
    assert places.tolist() == places_of(groups, 3)
    places.zero_()
    emulate(compile(Places(group_m), tiles_m, 3, places, target="sm_90a"), tiles_m, 3, places)
    assert places.tolist() == places_of(groups, 3)
