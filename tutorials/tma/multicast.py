"""One tile for a cluster of two CTAs: each CTA loads half of it from global memory, into both."""

from tilus import float16, int32, void_p

from blackwell_matmul import Script


class CopyToBoth(Script):
    """y = x, twice, one below the other; x has 64 rows and 64 columns."""

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = [2]
        self.attrs.warps = 4
        self.attrs.cluster_blocks = (2, 1, 1)
        half: int32 = self.blockIdx.x
        row: int32 = 32 * half
        g_x = self.global_view(x_ptr, dtype=float16, shape=[64, 64])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[128, 64])
        tile = self.shared_tensor(dtype=float16, shape=[2, 32, 64])
        arrived = self.mbarrier.alloc(counts=1)
        self.cluster.sync()  # both CTAs have initialised their barriers

        with self.single_warp():
            with self.single_thread():
                # Each CTA expects the whole tile: its own half and the half that the other sends.
                self.mbarrier.arrive_and_expect_tx(arrived, transaction_bytes=tile.nbytes)
            self.tma.global_to_shared(src=g_x, dst=tile[half], offsets=[row, 0], mbarrier=arrived, multicast_mask=0b11)
        self.mbarrier.wait(arrived, phase=0)

        self.store_global(g_y, self.load_shared(tile[0]), offsets=[64 * half, 0])
        self.store_global(g_y, self.load_shared(tile[1]), offsets=[64 * half + 32, 0])
        self.cluster.sync()  # neither exits while the other may still write to it
