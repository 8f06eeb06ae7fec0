"""Kernels whose readers hand memory back: by a sync, by arrivals of two groups, by one of another CTA."""

import tilus
from tilus import float32, int32, uint32, void_p
from tilus.ir.layout.ops import spatial

ROWS_OF_WARPS = spatial(2, 1).local(4, 1).spatial(1, 32).local(1, 2)
"""A layout of [8, 64] in which each of two warps has four neighbouring rows."""


class RowsAround(tilus.Script):
    """y = the sum of two blocks of rows that follow each other, out of a ring of four that all warps fill."""

    def __call__(self, blocks: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        slots = 4  # slots
        g_x = self.global_view(x_ptr, dtype=float32, shape=[blocks * 8, 64])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[blocks * 8 - 8, 64])
        s = self.shared_tensor(dtype=float32, shape=[slots, 8, 64])
        for i in self.range(0, 3, 1, unroll="all"):
            self.copy_async(src=g_x, dst=s[i], offsets=[i * 8, 0])
            self.copy_async_commit_group()
        low: int32 = 0
        for block in range(blocks - 1):
            self.copy_async_wait_group(1)
            self.sync()
            y = self.load_shared(s[low]) + self.load_shared(s[(low + 1) % slots])  # read
            self.annotate_layout(y, ROWS_OF_WARPS)  # cp.async has others: its warps take turns
            self.copy_async(src=g_x, dst=s[(low + 3) % slots], offsets=[block * 8 + 24, 0])  # copy
            self.copy_async_commit_group()
            self.store_global(g_y, y, offsets=[block * 8, 0])
            low = (low + 1) % slots
        self.copy_async_wait_all()


class TwoReaders(tilus.Script):
    """y = x less the sums of its rows, twice: warps 0 and 1 read what warp 2 puts in shared memory."""

    def __call__(self, tiles: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 3
        g_x = self.global_view(x_ptr, dtype=float32, shape=[tiles * 16, 64])
        self.g_y = self.global_view(y_ptr, dtype=float32, shape=[2, tiles * 16, 64])
        self.s = self.shared_tensor(dtype=float32, shape=[16, 64])
        self.full = self.mbarrier.alloc(counts=32)
        self.free = self.mbarrier.alloc(counts=64)  # free
        self.sync()
        with self.single_warp(2):
            lap: uint32 = self.mbarrier.producer_initial_phase
            for t in range(tiles):
                rows = self.load_global(g_x, offsets=[t * 16, 0], shape=[16, 64])
                self.mbarrier.wait(self.free, phase=lap)  # room
                self.store_shared(self.s, rows)  # put
                self.mbarrier.arrive(self.full)
                lap ^= 1
        with self.single_warp(0):
            self.take(0, tiles)
        with self.single_warp(1):
            self.take(1, tiles)

    def take(self, which: int, tiles: int):
        phase: uint32 = self.mbarrier.consumer_initial_phase
        for t in range(tiles):
            self.mbarrier.wait(self.full, phase=phase)
            rows = self.load_shared(self.s)  # read
            sums = self.sum(rows, dim=1, keepdim=True)
            self.mbarrier.arrive(self.free)  # hand back
            self.store_global(self.g_y, rows - sums, offsets=[which, t * 16, 0], dims=[1, 2])
            phase ^= 1


class LoadedRows(tilus.Script):
    """y = the rows of x, which a copy brings to two buffers and four warps read."""

    def __call__(self, tiles: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 5
        g_x = self.global_view(x_ptr, dtype=float32, shape=[tiles * 16, 64])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[tiles * 16, 64])
        s = self.shared_tensor(dtype=float32, shape=[2, 16, 64])
        full = self.mbarrier.alloc(counts=[1, 1])
        free = self.mbarrier.alloc(counts=[128, 128])  # free
        self.sync()
        with self.single_warp(4):
            lap: uint32 = self.mbarrier.producer_initial_phase
            for t in range(tiles):
                self.mbarrier.wait(free[t % 2], phase=lap)
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full[t % 2], transaction_bytes=s[0].nbytes)
                self.tma.global_to_shared(src=g_x, dst=s[t % 2], offsets=[t * 16, 0], mbarrier=full[t % 2])
                lap ^= t % 2
        with self.warp_group(0, 4):
            phase: uint32 = self.mbarrier.consumer_initial_phase
            for t in range(tiles):
                self.mbarrier.wait(full[t % 2], phase=phase)
                rows = self.load_shared(s[t % 2])
                self.fence.proxy_async(space="shared")
                self.sync()
                self.mbarrier.arrive(free[t % 2])
                self.store_global(g_y, rows, offsets=[t * 16, 0])
                phase ^= t % 2


class ColumnsRead(tilus.Script):
    """y = x through tensor memory. A warp waits for its readers, and all warps meet before it is freed."""

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 5
        g_x = self.global_view(x_ptr, dtype=int32, shape=[128, 32])
        g_y = self.global_view(y_ptr, dtype=int32, shape=[128, 32])
        t = self.tcgen05.alloc(dtype=int32, shape=[128, 32])
        read = self.mbarrier.alloc(counts=128)
        self.sync()
        with self.single_warp(4):
            self.mbarrier.wait(read, phase=0)
        with self.warp_group(0, 4):
            self.tcgen05.store(t, self.load_global(g_x, offsets=[0, 0], shape=[128, 32]))
            self.tcgen05.wait_store()  # have stored
            r = self.tcgen05.load(t)
            self.tcgen05.wait_load()
            self.mbarrier.arrive(read)
            self.store_global(g_y, r, offsets=[0, 0])
        self.sync()  # all
        self.tcgen05.dealloc(t)  # dealloc


class PassedOn(tilus.Script):
    """y = the sum of x over the CTAs of a cluster so far, which each CTA passes on to the next one."""

    def __call__(self, x_ptr: void_p, sum_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 4
        self.attrs.cluster_blocks = 4
        self.attrs.warps = 1
        rank: int32 = self.cluster.blockRank
        g_x = self.global_view(x_ptr, dtype=int32, shape=[4, 32])
        g_sum = self.global_view(sum_ptr, dtype=int32, shape=[1, 32])
        g_y = self.global_view(y_ptr, dtype=int32, shape=[4, 32])
        token = self.mbarrier.alloc(counts=1)
        self.cluster.sync()
        r = self.load_global(g_x, offsets=[rank, 0], shape=[32], dims=[1])
        if rank > 0:
            self.mbarrier.wait(token, phase=0, scope="cluster")  # wait
            r = r + self.load_global(g_sum, offsets=[0, 0], shape=[32], dims=[1])
        self.store_global(g_y, r, offsets=[rank, 0], dims=[1])
        self.store_global(g_sum, r, offsets=[0, 0], dims=[1])  # store
        self.sync()
        if rank < 3:
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx_remote(token, 0, target_rank=rank + 1, scope="cluster")  # pass on
        self.cluster.sync()
