"""Statements that no kernel here needs, each in a few lines."""

import tilus
from tilus import float32


class Repeats(tilus.Script):
    """y is x beside itself; tilus 0.2.0 finds no layout for it."""

    def __call__(self, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float32, shape=[32, 8])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[32, 16])
        x = self.load_global(g_x, offsets=[0, 0], shape=[32, 8])
        self.store_global(g_y, self.repeat(x, repeats=[1, 2]), offsets=[0, 0])


class ReleaseToProxy(tilus.Script):
    """y is x, by TMA both ways, with the fence that orders reads of a tile before its next load."""

    def __call__(self, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        self.static_assert(32 * float32.nbytes == 128, "a row of the tile is 128 bytes")
        g_x = self.global_view(x_ptr, dtype=float32, shape=[32, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[32, 32])
        s_x = self.shared_tensor(dtype=float32, shape=[32, 32])
        barrier = self.mbarrier.alloc(counts=1)
        self.sync()
        with self.single_warp():
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(barrier, transaction_bytes=s_x.nbytes)
            self.tma.global_to_shared(src=g_x, dst=s_x, offsets=[0, 0], mbarrier=barrier)
        self.mbarrier.wait(barrier, phase=0)
        self.store_global(g_y, self.load_shared(s_x), offsets=[0, 0])
        self.fence.proxy_async_release()
