"""Multicast: the CTAs of a cluster compute a rectangle of tiles, and load each tile of A and of B once for all CTAs.

An example of m = 2, n = 4. Each number is the rank of the CTA that computes this tile:

                columns of C ->
    rows         0   2   4   6        mask_a of rank 3: 1, 3, 5, 7, its row of tiles, which needs one tile of A
    of C         1   3   5   7        mask_b of rank 3: 2, 3, its column of tiles, which needs one tile of B

Rank 3 loads the second quarter of the tile of A (place_n = 1), and the second half of the tile of B (place_m = 1). With
split_k, the ranks from m * n on compute the same rectangle for the next part of K.
"""

import tilus
from tilus import RegisterTensor, int32, uint16


class ClusterOfTiles(tilus.Class):
    """Place of this CTA in a rectangle of m x n tiles, and the CTAs that share its loads.

    place_m, place_n: row and column of this CTA's tile, in tiles; also the indices of its shares of B and of A. mask_a,
    mask_b: ranks that receive its shares of A and of B, one bit each. writers: number of CTAs, including this one, that
    write into its stages.
    """

    def __init__(self, m: int, n: int, block_m: int, block_n: int):
        self.m = m
        self.n = n
        self.tiles = m * n
        self.tile_m = block_m
        self.tile_n = block_n
        self.writers = m + n - 1
        self.place_m = self.cluster.blockRank % m
        self.place_n = self.cluster.blockRank // m % n
        first_m, first_n = self.cluster.blockRank - self.place_m, self.cluster.blockRank - self.place_n * m
        self.mask_b: uint16 = ((1 << m) - 1) << first_m  # m consecutive ranks
        self.mask_a: uint16 = ((1 << m * n) - 1) // ((1 << m) - 1) << first_n  # every m-th rank

    def tile_at(self, row: int32, column: int32):
        """Return the first row and column of this CTA's tile. row, column: place of the cluster, in clusters."""
        tile_m: int32 = (row * self.m + self.place_m) * self.tile_m
        tile_n: int32 = (column * self.n + self.place_n) * self.tile_n
        return tile_m, tile_n

    def release(self, empty: RegisterTensor):
        """Arrive at `empty` of each CTA that writes into the stage, to signal that this warpgroup has read it."""
        # Four warps execute a wgmma together: after the wait of one, all have read the stage. The wait for their group
        # has ended the reads, so the scope of a CTA suffices: a release to the whole cluster would wait again, and take
        # a quarter of the kernel's time.
        with self.single_thread(0):
            if self.tiles == 1:
                self.mbarrier.arrive(empty)
            else:
                for other in range(self.m):  # this CTA is one of them
                    rank = self.cluster.blockRank - self.place_m + other
                    self.mbarrier.arrive_and_expect_tx_remote(empty, transaction_bytes=0, target_rank=rank, scope="cta")
                for other in range(1, self.n):
                    first = self.cluster.blockRank - self.place_n * self.m
                    rank = first + (self.place_n + other) % self.n * self.m
                    self.mbarrier.arrive_and_expect_tx_remote(empty, transaction_bytes=0, target_rank=rank, scope="cta")
