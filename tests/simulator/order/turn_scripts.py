"""Kernels of Hopper in which two groups of warps take turns, or two rings of stages follow each other."""

import tilus
from tilus import float16, float32, int32, uint32, void_p

ROWS, DEPTH, STAGES = 64, 32, 3


class PingPong(tilus.Script):
    """C = A A0.T for each 64 rows of A, A0 the first of them. Two warpgroups take tiles in turn: each has the main loop
    for itself, and hands it on by an mbarrier. Warp 8 loads."""

    def __call__(self, tiles: int, depth: int, a_ptr: void_p, c_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 9
        self.g_a = self.global_view(a_ptr, dtype=float16, shape=[tiles * ROWS, depth * DEPTH])
        self.g_c = self.global_view(c_ptr, dtype=float32, shape=[tiles * ROWS, ROWS])
        self.s_a = self.shared_tensor(dtype=float16, shape=[STAGES, ROWS, DEPTH])
        self.s_b = self.shared_tensor(dtype=float16, shape=[STAGES, ROWS, DEPTH])
        self.full = self.mbarrier.alloc(counts=[1, 1, 1])
        self.empty = self.mbarrier.alloc(counts=[128, 128, 128])  # empty
        self.turn = self.mbarrier.alloc(counts=[128, 128])  # turn
        self.sync()
        with self.single_warp(8):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.producer_initial_phase
            for t in range(tiles):
                for i in range(depth):
                    self.mbarrier.wait(self.empty[stage], phase=phase)  # room
                    full = self.full[stage]
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=2 * self.s_a[0].nbytes)
                    offsets = [t * ROWS, i * DEPTH]
                    self.tma.global_to_shared(src=self.g_a, dst=self.s_a[stage], offsets=offsets, mbarrier=full)
                    self.tma.global_to_shared(src=self.g_a, dst=self.s_b[stage], offsets=[0, i * DEPTH], mbarrier=full)
                    stage = (stage + 1) % STAGES
                    phase ^= stage == 0
        with self.warp_group(0, 4):
            self.multiply(0, tiles, depth, self.mbarrier.producer_initial_phase)  # first
        with self.warp_group(4, 4):
            self.multiply(1, tiles, depth, self.mbarrier.consumer_initial_phase)  # second

    def multiply(self, which: int, tiles: int, depth: int, start: uint32):
        mine: uint32 = start
        done: int32 = which * depth
        for t in range(which, tiles, 2):
            acc = self.register_tensor(dtype=float32, shape=[ROWS, ROWS], init=0.0)
            self.mbarrier.wait(self.turn[which], phase=mine)  # my turn
            mine ^= 1  # flips
            for _ in range(depth):
                stage: int32 = done % STAGES
                self.mbarrier.wait(self.full[stage], phase=done // STAGES & 1)  # loaded
                self.wgmma.fence()
                self.wgmma.mma(self.s_a[stage], self.s_b[stage].transpose(), acc)
                self.wgmma.commit_group()
                self.wgmma.wait_group(0)
                self.mbarrier.arrive(self.empty[stage])  # release
                done += 1
            self.mbarrier.arrive(self.turn[1 - which])  # your turn
            done += depth  # skip
            self.store_global(self.g_c, acc, offsets=[t * ROWS, 0])


class TwoRings(tilus.Script):
    """y = x + 1. Warp 4 loads rows into a ring of four stages, warps 0 to 3 put sums into a ring of two slots, warp 5
    stores these."""

    def __call__(self, tiles: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 6
        g_x = self.global_view(x_ptr, dtype=float32, shape=[tiles * 16, 64])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[tiles * 16, 64])
        s_x = self.shared_tensor(dtype=float32, shape=[4, 16, 64])
        s_y = self.shared_tensor(dtype=float32, shape=[2, 16, 64])
        full = self.mbarrier.alloc(counts=[1, 1, 1, 1])
        empty = self.mbarrier.alloc(counts=[128, 128, 128, 128])
        ready = self.mbarrier.alloc(counts=[128, 128])
        free = self.mbarrier.alloc(counts=[1, 1])
        self.sync()
        with self.single_warp(4):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.producer_initial_phase
            for t in range(tiles):
                self.mbarrier.wait(empty[stage], phase=phase)  # room
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full[stage], transaction_bytes=s_x[0].nbytes)  # announce
                self.tma.global_to_shared(src=g_x, dst=s_x[stage], offsets=[t * 16, 0], mbarrier=full[stage])  # load
                stage = (stage + 1) % 4  # loader goes on
                phase ^= stage == 0
        with self.warp_group(0, 4):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.consumer_initial_phase
            slot: int32 = 0
            lap: uint32 = self.mbarrier.producer_initial_phase
            for t in range(tiles):
                self.mbarrier.wait(full[stage], phase=phase)  # loaded
                r = self.load_shared(s_x[stage])  # read
                self.fence.proxy_async(space="shared")
                self.mbarrier.arrive(empty[stage])  # release
                self.mbarrier.wait(free[slot], phase=lap)  # slot
                self.store_shared(s_y[slot], r + 1)  # put
                self.fence.proxy_async(space="shared")
                self.mbarrier.arrive(ready[slot])  # hand on
                stage = (stage + 1) % 4  # reader goes on
                phase ^= stage == 0
                slot = (slot + 1) % 2
                lap ^= slot == 0
        with self.single_warp(5):
            slot: int32 = 0
            lap: uint32 = self.mbarrier.consumer_initial_phase
            for t in range(tiles):
                self.mbarrier.wait(ready[slot], phase=lap)  # there
                self.tma.shared_to_global(s_y[slot], g_y, offsets=[t * 16, 0])  # store
                self.tma.commit_group()
                self.tma.wait_group(n=0, read=True)
                with self.single_thread():
                    self.mbarrier.arrive(free[slot])  # hand back
                slot = (slot + 1) % 2
                lap ^= slot == 0


class TilesInTurn(tilus.Script):
    """The sums of three parts of each of three tiles, added up in turn by a semaphore for each tile."""

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = [3, 3]
        self.attrs.warps = 1
        tile: int32 = self.blockIdx.x
        part: int32 = self.blockIdx.y
        g_x = self.global_view(x_ptr, dtype=float32, shape=[9, 64])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[3, 64])
        turns = self.global_tensor(dtype=int32, shape=[3], requires_clean=True)
        turn: ~int32 = turns[tile].item_ptr()  # turn
        total = self.load_global(g_x, offsets=[part * 3 + tile, 0], shape=[1, 64])
        if part > 0:
            self.lock_semaphore(turn, value=part)  # lock
            total = total + self.load_global(g_y, offsets=[tile, 0], shape=[1, 64])  # add
        self.store_global(g_y, total, offsets=[tile, 0])  # store
        self.sync()
        self.release_semaphore(turn, value=(part + 1) % 3)  # release
