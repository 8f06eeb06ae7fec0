"""`LastColumns`: where the columns of a tile begin, so that all rows of B that it loads are there."""

import tilus
from tilus import int32
from tilus.utils import cdiv


class LastColumns(tilus.Class):
    """The last tile of a row begins as far to the left as it has columns too many, where these are whole strips of C,
    which the tile before it stores. TMA fills rows of B that are not there with zeros, and for these a call took up to
    1.9 times as long where many SMs load at once (bench/results/h100_tails.json)."""

    def __init__(self, n: int32, block_n: int, strip_n: int):
        self.block_n = block_n
        too_many: int32 = cdiv(n, block_n) * block_n - n
        last: int32 = n - block_n if n > block_n else 0
        self.last: int32 = last if too_many % strip_n == 0 else n

    def first(self, tile: int32) -> int32:
        return min(tile * self.block_n, self.last)
