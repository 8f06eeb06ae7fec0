"""Kernels that hand tiles from warps that load to warps that read, correct as they come; see test_handoffs.py."""

import tilus
from tilus import float16, float32, int32, uint32, void_p
from tilus.ir.layout.ops import spatial

ROWS, COLUMNS = 32, 64
ROWS_OF_WARPS = spatial(4, 1).local(8, 1).spatial(1, 32).local(1, 2)
"""A layout of [ROWS, COLUMNS] in which each of four warps has eight neighbouring rows."""


class DoubleBuffer(tilus.Script):
    """The sum of the tiles of x. Every warp copies its part of a tile by cp.async while the tile before is added."""

    def __call__(self, tiles: int32, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float16, shape=[tiles * ROWS, COLUMNS])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[ROWS, COLUMNS])
        s = self.shared_tensor(dtype=float16, shape=[2, ROWS, COLUMNS])
        total = self.register_tensor(dtype=float16, shape=[ROWS, COLUMNS], init=0.0)
        self.annotate_layout(total, ROWS_OF_WARPS)  # cp.async has others: its warps take turns
        self.copy_async(src=g_x, dst=s[0], offsets=[0, 0])  # first copy
        self.copy_async_commit_group()  # first group
        for i in range(tiles):
            if i + 1 < tiles:
                self.copy_async(src=g_x, dst=s[(i + 1) % 2], offsets=[(i + 1) * ROWS, 0])  # next copy
            self.copy_async_commit_group()  # next group
            self.copy_async_wait_group(1)  # wait
            self.sync()  # all have waited
            total += self.load_shared(s[i % 2])  # read
            self.sync()  # all have read
        self.copy_async_wait_group(0)
        self.store_global(g_y, total, offsets=[0, 0])


class TmaToThreads(tilus.Script):
    """y = x + 1. Warp 2 loads tiles by TMA into a ring of two stages, warps 0 and 1 read them."""

    def __call__(self, tiles: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 3
        g_x = self.global_view(x_ptr, dtype=float16, shape=[tiles * ROWS, COLUMNS])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[tiles * ROWS, COLUMNS])
        s = self.shared_tensor(dtype=float16, shape=[2, ROWS, COLUMNS])
        full = self.mbarrier.alloc(counts=[1, 1])
        empty = self.mbarrier.alloc(counts=[64, 64])  # empty
        self.sync()
        with self.single_warp(2):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.producer_initial_phase
            for i in range(tiles):
                self.mbarrier.wait(empty[stage], phase=phase)  # room
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full[stage], transaction_bytes=s[0].nbytes)
                self.tma.global_to_shared(src=g_x, dst=s[stage], offsets=[i * ROWS, 0], mbarrier=full[stage])  # fill
                stage = (stage + 1) % 2
                phase ^= stage == 0  # the loader flips
        with self.thread_group(0, 64):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.consumer_initial_phase
            for j in range(tiles):
                self.mbarrier.wait(full[stage], phase=phase)  # wait
                r = self.load_shared(s[stage])  # read
                self.fence.proxy_async(space="shared")
                self.mbarrier.arrive(empty[stage])  # release
                self.store_global(g_y, r + 1, offsets=[j * ROWS, 0])
                stage = (stage + 1) % 2
                phase ^= stage == 0  # the reader flips


class ThreadsToThreads(tilus.Script):
    """y = 2 x + 1. Warp 0 stores tiles into a ring of two stages, warp 1 reads them."""

    def __call__(self, tiles: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g_x = self.global_view(x_ptr, dtype=float16, shape=[tiles * ROWS, COLUMNS])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[tiles * ROWS, COLUMNS])
        s = self.shared_tensor(dtype=float16, shape=[2, ROWS, COLUMNS])
        full = self.mbarrier.alloc(counts=[32, 32])  # full
        empty = self.mbarrier.alloc(counts=[32, 32])  # empty
        self.sync()
        with self.single_warp(0):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.producer_initial_phase
            for i in range(tiles):
                self.mbarrier.wait(empty[stage], phase=phase)  # room
                self.store_shared(s[stage], self.load_global(g_x, offsets=[i * ROWS, 0], shape=[ROWS, COLUMNS]) * 2)
                self.mbarrier.arrive(full[stage])  # filled
                stage = (stage + 1) % 2
                phase ^= stage == 0  # the writer flips
        with self.single_warp(1):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.consumer_initial_phase
            for j in range(tiles):
                self.mbarrier.wait(full[stage], phase=phase)  # wait
                r = self.load_shared(s[stage])  # read
                self.mbarrier.arrive(empty[stage])  # release
                self.store_global(g_y, r + 1, offsets=[j * ROWS, 0])
                stage = (stage + 1) % 2
                phase ^= stage == 0  # the reader flips


class ThreadsToTensorCore(tilus.Script):
    """D = (2 A) (2 A).T. Warps 4 to 7 store k-tiles of A into a ring of two stages, warp 0 multiplies them."""

    def __call__(self, tiles: int, a_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 8
        g_a = self.global_view(a_ptr, dtype=float16, shape=[128, tiles * 32])
        g_d = self.global_view(d_ptr, dtype=float32, shape=[128, 128])
        s = self.shared_tensor(dtype=float16, shape=[2, 128, 32])
        t_d = self.tcgen05.alloc(dtype=float32, shape=[128, 128])
        full = self.mbarrier.alloc(counts=[128, 128])  # full
        empty = self.mbarrier.alloc(counts=[1, 1])
        done = self.mbarrier.alloc(counts=1)
        self.sync()
        with self.warp_group(4, 4):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.producer_initial_phase
            for i in range(tiles):
                self.mbarrier.wait(empty[stage], phase=phase)  # room
                self.store_shared(s[stage], self.load_global(g_a, offsets=[0, i * 32], shape=[128, 32]) * 2)
                self.fence.proxy_async(space="shared")
                self.mbarrier.arrive(full[stage])  # filled
                stage = (stage + 1) % 2
                phase ^= stage == 0  # the writer flips
        with self.single_warp(0):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.consumer_initial_phase
            for j in range(tiles):
                self.mbarrier.wait(full[stage], phase=phase)  # wait
                self.tcgen05.mma(s[stage], s[stage].transpose(), t_d, enable_input_d=j != 0)
                self.tcgen05.commit(mbarrier=empty[stage])  # release
                stage = (stage + 1) % 2
                phase ^= stage == 0  # the reader flips
            self.tcgen05.commit(mbarrier=done)  # last
        with self.warp_group(0, 4):
            self.mbarrier.wait(done, phase=0)  # sum
            r = self.tcgen05.load(t_d)
            self.tcgen05.wait_load()
            self.store_global(g_d, r, offsets=[0, 0])
        self.sync()
        self.tcgen05.dealloc(t_d)


class ThreadsInBetween(tilus.Script):
    """D = (2 A) A.T. Warp 4 loads k-tiles of A twice, warps 0 to 3 double one in its place, warp 5 multiplies both."""

    def __call__(self, tiles: int, a_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 6
        g_a = self.global_view(a_ptr, dtype=float16, shape=[128, tiles * 32])
        g_d = self.global_view(d_ptr, dtype=float32, shape=[128, 128])
        s_a = self.shared_tensor(dtype=float16, shape=[2, 128, 32])
        s_b = self.shared_tensor(dtype=float16, shape=[2, 128, 32])
        t_d = self.tcgen05.alloc(dtype=float32, shape=[128, 128])
        full = self.mbarrier.alloc(counts=[1, 1])
        doubled = self.mbarrier.alloc(counts=[128, 128])  # doubled
        empty = self.mbarrier.alloc(counts=[1, 1])
        done = self.mbarrier.alloc(counts=1)
        self.sync()
        with self.single_warp(4):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.producer_initial_phase
            for i in range(tiles):
                self.mbarrier.wait(empty[stage], phase=phase)  # room
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full[stage], transaction_bytes=2 * s_a[0].nbytes)  # announce
                self.tma.global_to_shared(src=g_a, dst=s_a[stage], offsets=[0, i * 32], mbarrier=full[stage])  # fill A
                self.tma.global_to_shared(src=g_a, dst=s_b[stage], offsets=[0, i * 32], mbarrier=full[stage])  # fill B
                stage = (stage + 1) % 2
                phase ^= stage == 0  # the loader flips
        with self.single_warp(5):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.consumer_initial_phase
            for j in range(tiles):
                self.mbarrier.wait(doubled[stage], phase=phase)  # both
                self.tcgen05.mma(s_a[stage], s_b[stage].transpose(), t_d, enable_input_d=j != 0)  # mma
                self.tcgen05.commit(mbarrier=empty[stage])  # release
                stage = (stage + 1) % 2
                phase ^= stage == 0  # the reader flips
            self.tcgen05.commit(mbarrier=done)
        with self.warp_group(0, 4):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.consumer_initial_phase
            for j in range(tiles):
                self.mbarrier.wait(full[stage], phase=phase)  # wait
                r = self.load_shared(s_a[stage])  # read
                self.sync()  # all have read
                self.store_shared(s_a[stage], r * 2)  # write
                self.fence.proxy_async(space="shared")  # fence
                self.mbarrier.arrive(doubled[stage])  # filled
                stage = (stage + 1) % 2
                phase ^= stage == 0
            self.mbarrier.wait(done, phase=0)
            r = self.tcgen05.load(t_d)
            self.tcgen05.wait_load()
            self.store_global(g_d, r, offsets=[0, 0])
        self.sync()
        self.tcgen05.dealloc(t_d)


class ThreeInARow(tilus.Script):
    """y = x + 1. Warp 2 loads a tile by TMA, warps 0 and 1 add 1 in another tile, warp 3 stores that. One lane counts
    the tiles on an mbarrier of its own."""

    def __call__(self, tiles: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float16, shape=[tiles * ROWS, COLUMNS])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[tiles * ROWS, COLUMNS])
        s_x = self.shared_tensor(dtype=float16, shape=[ROWS, COLUMNS])
        s_y = self.shared_tensor(dtype=float16, shape=[ROWS, COLUMNS])
        full = self.mbarrier.alloc(counts=1)
        empty = self.mbarrier.alloc(counts=64)
        added = self.mbarrier.alloc(counts=64)
        stored = self.mbarrier.alloc(counts=32)
        counted = self.mbarrier.alloc(counts=1)
        self.sync()
        with self.single_warp(2):
            for i in range(tiles):
                self.mbarrier.wait(empty, phase=i & 1 ^ 1)
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=s_x.nbytes)
                self.tma.global_to_shared(src=g_x, dst=s_x, offsets=[i * ROWS, 0], mbarrier=full)
        with self.single_warp(3):
            for j in range(tiles):
                self.mbarrier.wait(counted, phase=j & 1)
                self.mbarrier.wait(added, phase=j & 1)  # wait
                self.store_global(g_y, self.load_shared(s_y), offsets=[j * ROWS, 0])  # store
                self.mbarrier.arrive(stored)
        with self.thread_group(0, 64):
            for t in range(tiles):
                self.mbarrier.wait(full, phase=t & 1)
                r = self.load_shared(s_x)
                self.fence.proxy_async(space="shared")
                self.mbarrier.arrive(empty)  # release
                self.mbarrier.wait(stored, phase=t & 1 ^ 1)
                self.store_shared(s_y, r + 1)
                self.mbarrier.arrive(added)
                with self.single_thread():
                    self.mbarrier.arrive(counted)


class HalvedBetween(tilus.Script):
    """D = D / 2 + A A.T for each tile A, from D = 0. Warp 4 loads and multiplies, warps 0 to 3 halve D in between."""

    def __call__(self, tiles: int, a_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 5
        g_a = self.global_view(a_ptr, dtype=float16, shape=[128, tiles * 32])
        g_d = self.global_view(d_ptr, dtype=float32, shape=[128, 128])
        s = self.shared_tensor(dtype=float16, shape=[128, 32])
        t_d = self.tcgen05.alloc(dtype=float32, shape=[128, 128])
        full = self.mbarrier.alloc(counts=1)
        summed = self.mbarrier.alloc(counts=1)
        halved = self.mbarrier.alloc(counts=128)
        self.sync()
        with self.single_warp(4):
            phase: uint32 = 0
            for i in range(tiles):
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=s.nbytes)
                self.tma.global_to_shared(src=g_a, dst=s, offsets=[0, i * 32], mbarrier=full)
                self.mbarrier.wait(full, phase=phase)
                self.mbarrier.wait(halved, phase=phase ^ 1)  # halved
                self.tcgen05.mma(s, s.transpose(), t_d, enable_input_d=i != 0)  # mma
                self.tcgen05.commit(mbarrier=summed)
                self.mbarrier.wait(summed, phase=phase)
                phase ^= 1
        with self.warp_group(0, 4):
            phase: uint32 = 0
            for j in range(tiles - 1):
                self.mbarrier.wait(summed, phase=phase)  # sum
                r = self.tcgen05.load(t_d)
                self.tcgen05.wait_load()
                self.tcgen05.store(t_d, r * 0.5)  # half
                self.tcgen05.wait_store()
                self.mbarrier.arrive(halved)  # ready
                phase ^= 1
            self.mbarrier.wait(summed, phase=phase)  # last
            r = self.tcgen05.load(t_d)  # result
            self.tcgen05.wait_load()
            self.store_global(g_d, r, offsets=[0, 0])
        self.sync()
        self.tcgen05.dealloc(t_d)


class HalvesToBoth(tilus.Script):
    """D = A A.T in each of two CTAs. Warp 0 of each loads half of the rows of a k-tile into both, warp 1 multiplies."""

    def __call__(self, tiles: int, a_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 4
        rank = self.cluster.blockRank
        g_a = self.global_view(a_ptr, dtype=float16, shape=[128, tiles * 32])
        g_d = self.global_view(d_ptr, dtype=float32, shape=[256, 128])
        s = self.shared_tensor(dtype=float16, shape=[3, 2, 64, 32])
        t_d = self.tcgen05.alloc(dtype=float32, shape=[128, 128])
        full = self.mbarrier.alloc(counts=[1, 1, 1])  # full
        empty = self.mbarrier.alloc(counts=[2, 2, 2])  # empty
        done = self.mbarrier.alloc(counts=1)
        self.cluster.sync()
        tile_bytes = s[0].nbytes
        with self.single_warp(0):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.producer_initial_phase
            for i in range(tiles):
                self.mbarrier.wait(empty[stage], phase=phase)  # room
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full[stage], transaction_bytes=tile_bytes)  # announce
                half, at, told = s[stage, rank], [rank * 64, i * 32], full[stage]  # half
                self.tma.global_to_shared(src=g_a, dst=half, offsets=at, mbarrier=told, multicast_mask=3)  # fill
                stage = (stage + 1) % 3
                phase ^= stage == 0  # the loader flips
        with self.single_warp(1):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.consumer_initial_phase
            for j in range(tiles):
                self.mbarrier.wait(full[stage], phase=phase)  # wait
                tile = self.reshape_shared(s[stage], [128, 32])
                self.tcgen05.mma(tile, tile.transpose(), t_d, enable_input_d=j != 0)
                self.tcgen05.commit(mbarrier=empty[stage], multicast_mask=3)  # release
                stage = (stage + 1) % 3
                phase ^= stage == 0  # the reader flips
            self.tcgen05.commit(mbarrier=done)
        self.mbarrier.wait(done, phase=0)
        r = self.tcgen05.load(t_d)
        self.tcgen05.wait_load()
        self.store_global(g_d, r, offsets=[rank * 128, 0])
        self.cluster.sync()
        self.tcgen05.dealloc(t_d)


class RefilledByOne(tilus.Script):
    """D = A B.T. Warp 0 fills a ring of two stages, multiplies, and refills a stage that has been read."""

    def __call__(self, tiles: int, a_ptr: void_p, b_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=float16, shape=[128, tiles * 32])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[64, tiles * 32])
        g_d = self.global_view(d_ptr, dtype=float32, shape=[128, 64])
        s_a = self.shared_tensor(dtype=float16, shape=[2, 128, 32])
        s_b = self.shared_tensor(dtype=float16, shape=[2, 64, 32])
        t_d = self.tcgen05.alloc(dtype=float32, shape=[128, 64])
        full = self.mbarrier.alloc(counts=[1, 1])  # full
        done = self.mbarrier.alloc(counts=[1, 1])
        self.sync()
        tile_bytes = s_a[0].nbytes + s_b[0].nbytes
        with self.single_warp(0):
            for i in range(2):
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full[i], transaction_bytes=tile_bytes)  # announce
                self.tma.global_to_shared(src=g_a, dst=s_a[i], offsets=[0, i * 32], mbarrier=full[i])  # first A
                self.tma.global_to_shared(src=g_b, dst=s_b[i], offsets=[0, i * 32], mbarrier=full[i])  # first B
            stage: int32 = 0
            phase: uint32 = self.mbarrier.consumer_initial_phase
            for j in range(tiles):
                self.mbarrier.wait(full[stage], phase=phase)  # wait
                self.tcgen05.mma(s_a[stage], s_b[stage].transpose(), t_d, enable_input_d=j != 0)
                self.tcgen05.commit(mbarrier=done[stage])  # commit
                self.mbarrier.wait(done[stage], phase=phase)  # room
                if j + 2 < tiles:
                    column: int32 = (j + 2) * 32
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(full[stage], transaction_bytes=tile_bytes)  # announce again
                    self.tma.global_to_shared(src=g_a, dst=s_a[stage], offsets=[0, column], mbarrier=full[stage])
                    self.tma.global_to_shared(src=g_b, dst=s_b[stage], offsets=[0, column], mbarrier=full[stage])
                stage = (stage + 1) % 2
                phase ^= stage == 0  # it flips
        self.sync()
        r = self.tcgen05.load(t_d)
        self.tcgen05.wait_load()
        self.store_global(g_d, r, offsets=[0, 0])
        self.sync()
        self.tcgen05.dealloc(t_d)


class PartsInTurn(tilus.Script):
    """The sum of the tiles of x. Each CTA adds a tile, one after the other by a semaphore."""

    def __call__(self, tiles: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = tiles
        self.attrs.warps = 4
        part: int32 = self.blockIdx.x
        g_x = self.global_view(x_ptr, dtype=float16, shape=[tiles * ROWS, COLUMNS])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[ROWS, COLUMNS])
        turns = self.global_tensor(dtype=int32, shape=[1, 2], requires_clean=True)
        turn: ~int32 = turns[0, 1].item_ptr()
        total = self.load_global(g_x, offsets=[part * ROWS, 0], shape=[ROWS, COLUMNS])
        if part > 0:
            self.lock_semaphore(turn, value=part)  # lock
            total = total + self.load_global(g_y, offsets=[0, 0], shape=[ROWS, COLUMNS])
        self.store_global(g_y, total, offsets=[0, 0])  # store
        self.sync()
        self.release_semaphore(turn, value=(part + 1) % tiles)  # release
