"""`ClusterOfTiles`: which of a cluster's tiles a CTA computes, and with whom it shares what it loads."""

import tilus
from tilus import RegisterTensor, int32, uint16


class ClusterOfTiles(tilus.Class):
    """m tiles above each other, which need the same tile of B, by n beside each other, which need the same of A. Each
    CTA loads its share of both for all that need them: its mask_a and mask_b, of ranks in the cluster.

    place_m, place_n: which of the tiles is this CTA's, and which of the shares of B, and of A. writers: CTAs that write
    into a stage of one, itself among them.
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
        self.mask_b: uint16 = ((1 << m) - 1) << first_m  # ranks that follow each other
        self.mask_a: uint16 = ((1 << m * n) - 1) // ((1 << m) - 1) << first_n  # each m-th rank

    def tile_at(self, row: int32, column: int32):
        """Where this CTA's tile begins, of a cluster in this row and column of clusters."""
        tile_m: int32 = (row * self.m + self.place_m) * self.tile_m
        tile_n: int32 = (column * self.n + self.place_n) * self.tile_n
        return tile_m, tile_n

    def release(self, empty: RegisterTensor):
        """Tell the CTAs that write into a stage that this warpgroup has read it."""
        # One wgmma is of all four warps: what one of them has waited for has been read by all. What is told is that
        # reads are over, and waiting for their group has made sure of that: an arrival that releases to the whole
        # cluster would wait again, and take a quarter of the kernel's time.
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
