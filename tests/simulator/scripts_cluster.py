"""Scripts whose CTAs are in clusters."""

import tilus
from tilus import float16, int32, void_p


class Positions(tilus.Script):
    """What each CTA knows of its place: y[cta] = its rank and index in the cluster, and the cluster's extents."""

    def __call__(self, y_ptr: ~int32):
        self.attrs.blocks = [4, 6, 2]
        self.attrs.cluster_blocks = (2, 3, 1)
        self.attrs.warps = 1
        g_y = self.global_view(y_ptr, dtype=int32, shape=[48, 32])
        index = self.cluster.blockIdx
        dim = self.cluster.clusterDim
        place: int32 = index.x + 10 * index.y + 100 * index.z
        shape: int32 = dim.x + 10 * dim.y + 100 * dim.z
        told: int32 = self.cluster.blockRank + 10 * place + 10000 * shape
        cta: int32 = self.blockIdx.x + 4 * (self.blockIdx.y + 6 * self.blockIdx.z)
        row = self.register_tensor(dtype=int32, shape=[1, 32], init=lambda i, j: told)
        self.store_global(g_y, row, offsets=[cta, 0])


class Meet(tilus.Script):
    """The second warp of each CTA returns without having met the others; or, in the CTA of rank 1, it waits for an
    mbarrier that nobody tells."""

    def __init__(self, stuck: bool = False):
        super().__init__()
        self.stuck = stuck

    def __call__(self, y_ptr: ~int32):
        self.attrs.blocks = 4
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 2
        g_y = self.global_view(y_ptr, dtype=int32, shape=[128])
        never = self.mbarrier.alloc(counts=1)
        with self.single_warp(0):
            self.cluster.sync()  # meet
            one = self.register_tensor(dtype=int32, shape=[32], init=1)
            self.store_global(g_y, one, offsets=[32 * self.blockIdx.x])
        with self.single_warp(1):
            if self.stuck and self.cluster.blockRank == 1:
                self.mbarrier.wait(never, phase=0)  # wait


class LateNames(tilus.Script):
    """Names its shared memory and its barrier after the cluster has met: they are there from the start."""

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 1
        rank: int32 = self.cluster.blockRank
        g_x = self.global_view(x_ptr, dtype=float16, shape=[32, 64])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[64, 64])
        self.cluster.sync()
        s = self.shared_tensor(dtype=float16, shape=[2, 16, 64])
        full = self.mbarrier.alloc(counts=1)
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=4096)
        self.tma.global_to_shared(src=g_x, dst=s[rank], offsets=[16 * rank, 0], mbarrier=full, multicast_mask=3)
        self.mbarrier.wait(full, phase=0)
        self.store_global(g_y, self.load_shared(s[0]), offsets=[32 * rank, 0])
        self.store_global(g_y, self.load_shared(s[1]), offsets=[32 * rank + 16, 0])


class Alone(tilus.Script):
    """A cluster of one: multicast to rank 0, a remote arrival at rank `target`, and the cluster's barrier."""

    def __init__(self, target: int = 0, cluster: int = 1):
        super().__init__()
        self.target = target
        self.cluster_ctas = cluster

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 3
        self.attrs.cluster_blocks = self.cluster_ctas
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float16, shape=[96, 64])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[96, 64])
        s = self.shared_tensor(dtype=float16, shape=[32, 64])
        full = self.mbarrier.alloc(counts=1)
        self.cluster.sync()
        row: int32 = 32 * self.blockIdx.x
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx_remote(full, 4096, target_rank=self.target)  # tell
        self.tma.global_to_shared(src=g_x, dst=s, offsets=[row, 0], mbarrier=full, multicast_mask=1)
        self.mbarrier.wait(full, phase=0)
        self.store_global(g_y, self.load_shared(s), offsets=[row, 0])
        self.cluster.sync()


class Overlap(tilus.Script):
    """Every CTA stores the same row, the CTAs of a cluster in turn."""

    def __call__(self, y_ptr: ~int32):
        self.attrs.blocks = 4
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 1
        g_y = self.global_view(y_ptr, dtype=int32, shape=[2, 32])
        one = self.register_tensor(dtype=int32, shape=[1, 32], init=1)
        if self.cluster.blockRank == 0:
            self.store_global(g_y, one, offsets=[self.blockIdx.x // 2, 0])
        self.cluster.sync()
        if self.cluster.blockRank == 1:
            self.store_global(g_y, one + 1, offsets=[self.blockIdx.x // 2, 0])


class Everywhere(tilus.Script):
    """Every CTA of every cluster stores to the same place."""

    def __call__(self, y_ptr: ~int32):
        self.attrs.blocks = 4
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 1
        g_y = self.global_view(y_ptr, dtype=int32, shape=[32])
        if self.cluster.blockRank == 1:
            self.store_global(g_y, self.register_tensor(dtype=int32, shape=[32], init=1), offsets=[0])


class InTurn(tilus.Script):
    """Clusters take turns at a semaphore; the CTA of rank 0 does so for its cluster."""

    def __call__(self, lock_ptr: ~int32, y_ptr: ~int32):
        self.attrs.blocks = 6
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 1
        g_lock = self.global_view(lock_ptr, dtype=int32, shape=[1])
        g_y = self.global_view(y_ptr, dtype=int32, shape=[32])
        turn: int32 = self.blockIdx.x // 2
        if self.cluster.blockRank == 0:
            self.lock_semaphore(g_lock[0].item_ptr(), turn)
            self.store_global(g_y, self.load_global(g_y, offsets=[0], shape=[32]) * 3 + turn, offsets=[0])
            self.sync()
            self.release_semaphore(g_lock[0].item_ptr(), (turn + 1) % 3)
        self.cluster.sync()
