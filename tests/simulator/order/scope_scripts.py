"""Pairs of CTAs of which one tells the other what its threads have read or stored."""

import tilus
from tilus import float16, float32, int32, void_p


class Reads(tilus.Script):
    """CTA 1 reads what TMA has brought to both; then CTA 0 has TMA overwrite it. told, seen: scopes."""

    def __init__(self, told: str, seen: str):
        super().__init__()
        self.told, self.seen = told, seen

    def __call__(self, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 1
        rank: int32 = self.cluster.blockRank
        g_x = self.global_view(x_ptr, dtype=float32, shape=[2, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[2, 32])
        s = self.shared_tensor(dtype=float32, shape=[1, 32])
        full = self.mbarrier.alloc(counts=1)
        free = self.mbarrier.alloc(counts=32)
        self.cluster.sync()
        for i in range(2):
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=128)
            if rank == 0:
                if i == 1:
                    self.mbarrier.wait(free, phase=0, scope=self.seen)
                self.tma.global_to_shared(src=g_x, dst=s, offsets=[i, 0], mbarrier=full, multicast_mask=3)  # write anew
            self.mbarrier.wait(full, phase=i)
            if rank == 1:
                r = self.load_shared(s)  # read it
                self.store_global(g_y, r, offsets=[i, 0])
                self.fence.proxy_async(space="shared")
                if i == 0:
                    self.mbarrier.arrive_and_expect_tx_remote(free, 0, target_rank=0, scope=self.told)
        self.cluster.sync()


class LastMma(tilus.Script):
    """D = 1 + A @ B.T: threads of both CTAs store the ones to tensor memory, and tell the CTA that multiplies."""

    def __init__(self, told: str, seen: str):
        super().__init__()
        self.told, self.seen = told, seen

    def __call__(self, a_ptr: void_p, b_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 4
        rank: int32 = self.cluster.blockRank
        g_a = self.global_view(a_ptr, dtype=float16, shape=[256, 32])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[32, 32])
        g_d = self.global_view(d_ptr, dtype=float32, shape=[256, 32])
        s_a = self.shared_tensor(dtype=float16, shape=[128, 32])
        s_b = self.shared_tensor(dtype=float16, shape=[16, 32])
        ready = self.mbarrier.alloc(counts=256)
        done = self.mbarrier.alloc(counts=1)
        self.cluster.sync()
        t_d = self.tcgen05.alloc(dtype=float32, shape=[128, 32], cta_group=2)
        self.store_shared(s_a, self.load_global(g_a, offsets=[128 * rank, 0], shape=[128, 32]))
        self.store_shared(s_b, self.load_global(g_b, offsets=[16 * rank, 0], shape=[16, 32]))
        self.fence.proxy_async(space="shared")
        self.cluster.sync()
        self.tcgen05.store(t_d, self.register_tensor(dtype=float32, shape=[128, 32], init=1.0))
        self.tcgen05.wait_store()
        self.mbarrier.arrive_and_expect_tx_remote(ready, 0, target_rank=0, scope=self.told)  # their stores
        if rank == 0:
            with self.single_warp(0):
                self.mbarrier.wait(ready, phase=0, scope=self.seen)  # hear
                self.tcgen05.mma(s_a, s_b.transpose(), t_d, enable_input_d=True, cta_group=2)
                self.tcgen05.commit(done, cta_group=2, multicast_mask=3)
        self.mbarrier.wait(done, phase=0)
        r = self.tcgen05.load(t_d)
        self.tcgen05.wait_load()
        self.store_global(g_d, r, offsets=[128 * rank, 0])
        self.cluster.sync()
        self.tcgen05.dealloc(t_d)
