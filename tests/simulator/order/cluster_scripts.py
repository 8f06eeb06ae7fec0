"""Pairs about the CTAs of a cluster; see thread_scripts.py."""

import tilus
from tilus import float16, float32, int32, uint32, void_p

ROWS, COLUMNS = 32, 64


class SharedRing(tilus.Script):
    """Two CTAs load half of each tile of x into both, by multicast, in a ring of two stages; warp 1 of each adds one
    and stores the tile to its part of y. `full` counts the loader's arrival and the tile's bytes, `empty` both
    readers."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault
        half = ROWS // 2 * COLUMNS * 2
        self.bytes = {"bytes of one half": half, "bytes of three halves": 3 * half}.get(fault, 2 * half)
        self.empty_count = 1 if fault == "empty counts one" else 2
        self.readers = {"tells rank 0 only": 1, "tells a third CTA": 7}.get(fault, 3)
        self.ctas = 5 if fault == "copies to a third CTA" else 3

    def __call__(self, tiles: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 2
        rank: int32 = self.cluster.blockRank
        g_x = self.global_view(x_ptr, dtype=float16, shape=[tiles * ROWS, COLUMNS])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[2 * tiles * ROWS, COLUMNS])
        s = self.shared_tensor(dtype=float16, shape=[2, ROWS, COLUMNS])
        halves = self.reshape_shared(s, [2, 2, ROWS // 2, COLUMNS])
        full = self.mbarrier.alloc(counts=[1, 1])  # full
        empty = self.mbarrier.alloc(counts=[self.empty_count, self.empty_count])  # empty
        if self.fault != "no sync at the start":
            self.cluster.sync()
        with self.single_warp(0):
            phase: uint32 = 1
            for i in range(tiles):
                stage = i % 2
                if self.fault != "the loader does not wait":
                    self.mbarrier.wait(empty[stage], phase=phase, scope="cluster")  # room
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full[stage], transaction_bytes=self.bytes)  # announce
                row = i * ROWS + rank * (ROWS // 2)
                dst = halves[stage, rank]
                if self.fault != "no multicast":
                    self.tma.global_to_shared(  # copy
                        src=g_x, dst=dst, offsets=[row, 0], mbarrier=full[stage], multicast_mask=self.ctas
                    )
                else:
                    self.tma.global_to_shared(src=g_x, dst=dst, offsets=[row, 0], mbarrier=full[stage])
                phase ^= stage == 1
        with self.single_warp(1):
            turn: uint32 = 0
            for j in range(tiles):
                slot = j % 2
                if self.fault == "the reader waits in the first lap":
                    if j < 2:
                        self.mbarrier.wait(full[slot], phase=turn)
                elif self.fault != "the reader does not wait":
                    self.mbarrier.wait(full[slot], phase=turn)  # wait
                tile = self.load_shared(s[slot])  # load
                self.store_global(g_y, tile + 1, offsets=[(rank * tiles + j) * ROWS, 0])
                self.fence.proxy_async(space="shared")
                if self.fault != "no sync before the arrival":
                    self.sync()
                if self.fault == "tells its own CTA only":
                    with self.single_thread():
                        self.mbarrier.arrive(empty[slot], count=2)
                elif self.fault == "tells the other CTA only":
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx_remote(empty[slot], 0, target_rank=1)
                else:
                    self.mbarrier.arrive_and_expect_tx_multicast(empty[slot], 0, multicast_mask=self.readers)  # release
                turn ^= slot == 1
        if self.fault != "no sync at the end":
            self.cluster.sync()


class Neighbour(tilus.Script):
    """Each CTA stores to y, and then the other one to the same place, after the cluster has met."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault

    def __call__(self, y_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 2
        rank: int32 = self.cluster.blockRank
        g_y = self.global_view(y_ptr, dtype=int32, shape=[128])
        mine = self.register_tensor(dtype=int32, shape=[64], init=lambda i: i)
        self.store_global(g_y, mine, offsets=[64 * rank])  # first
        if self.fault == "a sync of the CTA":
            self.sync()
        elif self.fault == "":
            self.cluster.sync()
        self.store_global(g_y, mine + 1, offsets=[64 - 64 * rank])  # second


class Handshake(tilus.Script):
    """The CTA of rank 1 tells the one of rank 0 by a remote arrival; triton-lang/triton 10656 has one CTA at an
    mbarrier and the other at the cluster's barrier."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault

    def __call__(self, y_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 1
        g_y = self.global_view(y_ptr, dtype=int32, shape=[64])
        told = self.mbarrier.alloc(counts=32)  # told
        mine = self.register_tensor(dtype=int32, shape=[32], init=lambda i: i)
        self.cluster.sync()
        if self.cluster.blockRank == 1:
            self.store_global(g_y, mine, offsets=[0])  # store
            if self.fault == "the arrival after the sync":
                self.cluster.sync()  # meet
            sem = "relaxed" if self.fault == "a relaxed arrival" else "release"
            scope = "cta" if self.fault == "an arrival for the CTA" else "cluster"
            self.mbarrier.arrive_and_expect_tx_remote(told, 0, target_rank=0, sem=sem, scope=scope)  # tell
        else:
            if self.fault != "no wait":
                scope = "cta" if self.fault == "a wait of the CTA" else "cluster"
                self.mbarrier.wait(told, phase=0, scope=scope)  # wait
            self.store_global(g_y, self.load_global(g_y, offsets=[0], shape=[32]) + 1, offsets=[32])  # load
            if self.fault == "the arrival after the sync":
                self.cluster.sync()


class SharedOperand(tilus.Script):
    """D = A @ B.T in k-tiles, each CTA its rows; the CTA of rank 0 loads B into both, by multicast, after both tensor
    cores have told it by a multicast commit that the last tile is read."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault
        self.count = 1 if fault == "each tells its own CTA" else 2

    def __call__(self, tiles: int, a_ptr: void_p, b_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 4
        rank: int32 = self.cluster.blockRank
        g_a = self.global_view(a_ptr, dtype=float16, shape=[256, tiles * 32])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[16, tiles * 32])
        g_d = self.global_view(d_ptr, dtype=float32, shape=[256, 16])
        s_a = self.shared_tensor(dtype=float16, shape=[128, 32])
        s_b = self.shared_tensor(dtype=float16, shape=[16, 32])
        t_d = self.tcgen05.alloc(dtype=float32, shape=[128, 16])
        loaded = self.mbarrier.alloc(counts=1)
        free = self.mbarrier.alloc(counts=self.count)  # free
        phase: uint32 = 0
        if self.fault != "no sync at the start":
            self.cluster.sync()
        with self.single_warp(0):
            for i in range(tiles):
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(loaded, transaction_bytes=s_a.nbytes + s_b.nbytes)
                self.tma.global_to_shared(src=g_a, dst=s_a, offsets=[rank * 128, i * 32], mbarrier=loaded)
                if rank == 0:
                    self.tma.global_to_shared(  # copy
                        src=g_b, dst=s_b, offsets=[0, i * 32], mbarrier=loaded, multicast_mask=3
                    )
                self.mbarrier.wait(loaded, phase=phase)
                self.tcgen05.mma(s_a, s_b.transpose(), t_d, enable_input_d=i != 0)  # mma
                if self.fault == "each tells its own CTA":
                    self.tcgen05.commit(mbarrier=free)
                elif self.fault == "tells rank 0":
                    self.tcgen05.commit(mbarrier=free, multicast_mask=1)
                else:
                    self.tcgen05.commit(mbarrier=free, multicast_mask=3)  # commit
                if self.fault == "no wait for the last mma":
                    if i != tiles - 1:
                        self.mbarrier.wait(free, phase=phase)
                else:
                    self.mbarrier.wait(free, phase=phase)  # wait
                phase ^= 1
        self.sync()
        r_d = self.tcgen05.load(t_d)  # load
        self.tcgen05.wait_load()
        self.store_global(g_d, r_d, offsets=[rank * 128, 0])
        self.sync()
        self.tcgen05.dealloc(t_d)
        self.cluster.sync()
