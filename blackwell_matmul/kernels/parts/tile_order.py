"""Orders of tiles: which tile a persistent CTA, or a cluster of CTAs, computes next.

An example of 8 tiles for 3 CTAs. Another kernel holds the SM of CTA 2 until CTA 0 ends:

    FixedOrder    CTA 0:  tiles 0  3  6      TileQueue    CTA 0:  tiles 0  3  5  7
                  CTA 1:  tiles 1  4  7                   CTA 1:  tiles 1  4  6
                  CTA 2:           2  5                   CTA 2:              2
"""

import tilus
from tilus import RegisterTensor, int32

from blackwell_matmul.kernels.parts.ring import Ring
from blackwell_matmul.lang import Atomics


class FixedOrder(tilus.Class):
    """A list of tiles for each team of `ctas` CTAs: one tile of each round, in which all teams compute a tile."""

    def __init__(self, ctas: int):
        self.ctas = ctas

    def first_tile(self):
        """Return the first tile of this CTA."""
        return self.blockIdx.x // self.ctas

    def next_tile(self, tile: int32):
        """Return the tile after `tile`."""
        return tile + self.gridDim.x // self.ctas

    def round_of(self, tile: int32):
        """Return the round of a tile in the fixed order: the number of tiles that its team computes before it."""
        return tile // (self.gridDim.x // self.ctas)


class TileQueue(FixedOrder):
    """A queue of the tiles after the first ones: whichever team asks first computes the next tile.

    One warp of each CTA calls `ask`; `readers` other groups of threads loop over the tiles, as with `FixedOrder`. The
    first CTA of a team takes numbers from a counter in global memory and passes them to the others. It takes the next
    number as soon as all readers have read the one before, a whole tile ahead.
    """

    atomic = Atomics()

    def __init__(self, ctas: int, teams: int, readers: int):
        super().__init__(ctas)
        # The counter, and the number that each team passes on. All are 0 again for the next launch: each team takes
        # numbers until one is beyond the last tile, and with the last of these the counter begins again.
        self.g_numbers = self.global_tensor(dtype=int32, shape=[1 + (teams if ctas > 1 else 0)], requires_clean=True)
        self.s_number = self.shared_tensor(dtype=int32, shape=[1])
        self.number = Ring(1, empties=readers + 1)
        if ctas > 1:
            self.passed = Ring(1, empties=ctas - 1, scope="cluster")

    def first_tile(self):
        """Return the first tile of this CTA. Each group of threads calls this method before `next_tile`."""
        self.number.stage, self.number.phase = 0, 0
        return self.blockIdx.x // self.ctas

    def next_tile(self, tile: int32):
        """Wait for the next number; return its tile."""
        self.number.wait_full()
        following: int32 = self.load_shared(self.s_number).item()
        self.sync()  # every thread has read the number
        with self.single_thread():
            self.mbarrier.arrive(self.number.empty())
        self.number.advance()
        return following + self.gridDim.x // self.ctas

    def ask(self, count: int32):
        """Ask for tiles until none of the `count` tiles is left."""
        tile: int32 = self.first_tile()
        r_number = self.register_tensor(dtype=int32, shape=[1])
        while tile < count:
            self.number.wait_empty()
            if self.ctas == 1:
                self.assign(r_number, self.take(count))
            else:
                self.take_together(r_number, count)
            self.store_shared(self.s_number, r_number)
            self.sync()
            with self.single_thread():
                self.mbarrier.arrive(self.number.full())
            tile = self.next_tile(tile)
        # The first CTA may not exit while another one still signals its barriers.
        if self.ctas > 1:
            if self.cluster.blockRank == 0:
                self.passed.wait_empty()
                r_zero = self.register_tensor(dtype=int32, shape=[1], init=0)
                self.store_global(self.g_numbers, r_zero, offsets=[1 + self.blockIdx.x // self.ctas])

    def take(self, count: int32):
        """Return a number from the counter, in registers."""
        return self.atomic.inc(self.g_numbers[0].item_ptr(), last=count - 1)

    def take_together(self, r_number: RegisterTensor, count: int32):
        """Set `r_number` to the number that the first CTA of the team takes."""
        place = 1 + self.blockIdx.x // self.ctas
        if self.cluster.blockRank == 0:
            self.passed.wait_empty()
            self.assign(r_number, self.take(count))
            self.store_global(self.g_numbers, r_number, offsets=[place])
            self.sync()
            with self.single_thread():
                for rank in range(1, self.ctas):
                    self.mbarrier.arrive_and_expect_tx_remote(self.passed.full(), transaction_bytes=0, target_rank=rank)
        else:
            self.passed.wait_full()
            self.assign(r_number, self.load_global(self.g_numbers, offsets=[place], shape=[1]))
            self.sync()
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx_remote(self.passed.empty(), transaction_bytes=0, target_rank=0)
        self.passed.advance()
