"""A product by CTA pairs, and what goes wrong in it when one line is left out."""

import tilus
from tilus import DataType, float16, float32, int32, uint32, void_p
from tilus.utils import cdiv


class PairProduct(tilus.Script):
    """C[m, n] = A[m, k] @ B[n, k].T, one tile for each pair: both CTAs load their half of A's and of B's rows and tell
    the even one, whose warp 1 multiplies for both and tells both what is read and what is done.

    fault: the line that is left out, or wrong.
    """

    def __init__(
        self,
        fault: str = "",
        block_n: int = 32,
        block_k: int = 32,
        dtype: DataType = float16,
        total: DataType = float32,
    ):
        super().__init__()
        self.fault, self.dtype, self.total = fault, dtype, total
        self.block_n, self.block_k = block_n, block_k
        self.half_n = block_n // 2
        self.ctas = 0b01 if fault == "commit tells the even CTA only" else 0b11
        self.pairs_bytes = 1 if fault == "bytes of one CTA" else 2
        self.mma_rank = 1 if fault == "the odd CTA issues" else 0
        self.leaves = {"the odd CTA leaves": 1, "the even CTA leaves": 0, "both leave": 2}.get(fault, -1)
        self.order = "relaxed" if fault == "a relaxed wait" else "acquire"

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        self.attrs.blocks = [2 * cdiv(m, 256), cdiv(n, self.block_n)]
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 4
        rank: int32 = self.cluster.blockRank
        row: int32 = 128 * self.blockIdx.x  # row
        column: int32 = self.block_n * self.blockIdx.y
        g_a = self.global_view(a_ptr, dtype=self.dtype, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=self.dtype, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=self.total, shape=[m, n])
        s_a = self.shared_tensor(dtype=self.dtype, shape=[2, 128, self.block_k])
        s_b = self.shared_tensor(dtype=self.dtype, shape=[2, self.half_n, self.block_k])
        full = self.mbarrier.alloc(counts=[1, 1])  # full
        empty = self.mbarrier.alloc(counts=[1, 1])  # empty
        done = self.mbarrier.alloc(counts=1)  # done
        if self.fault != "no sync at the start":
            self.cluster.sync()
        t_acc = self.tcgen05.alloc(dtype=self.total, shape=[128, self.block_n], cta_group=2)  # alloc
        with self.single_warp(1):
            self.tcgen05.relinquish_alloc_permit(cta_group=2)
        tile_bytes = self.pairs_bytes * (128 + self.half_n) * self.block_k * self.dtype.nbytes
        with self.single_warp(0):
            load_stage: int32 = 0
            room: uint32 = 1
            for offset_k in range(0, k, self.block_k):
                if self.fault != "the loader does not wait":
                    self.mbarrier.wait(empty[load_stage], phase=room)  # room
                barrier = full[load_stage]
                if rank == self.mma_rank:
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(barrier, transaction_bytes=tile_bytes)  # announce
                elif self.fault != "each tells itself":
                    barrier = self.cluster.map_shared_addr(barrier, target_rank=self.mma_rank)
                else:
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(barrier, transaction_bytes=tile_bytes // 2)
                self.tma.global_to_shared(  # load a
                    src=g_a, dst=s_a[load_stage], offsets=[row, offset_k], mbarrier=barrier, cta_group=2
                )
                self.tma.global_to_shared(  # load b
                    src=g_b,
                    dst=s_b[load_stage],
                    offsets=[column + self.half_n * rank, offset_k],
                    mbarrier=barrier,
                    cta_group=2,
                )
                load_stage = 1 - load_stage
                room ^= load_stage == 0
            # The last tiles: when they are read, nothing is under way to this CTA any more.
            if self.fault != "no drain" and self.leaves != rank and self.leaves != 2:
                for i in range(min(2, cdiv(k, self.block_k))):
                    self.mbarrier.wait(empty[load_stage], phase=room)
                    load_stage = 1 - load_stage
                    room ^= load_stage == 0
        if rank == self.mma_rank:
            with self.single_warp(1):
                stage: int32 = 0
                turn: uint32 = 0
                for k_done in range(0, k, self.block_k):  # rounds
                    if self.fault != "the mma does not wait":
                        self.mbarrier.wait(full[stage], phase=turn, sem=self.order)  # wait
                    self.tcgen05.mma(  # mma
                        s_a[stage], s_b[stage].transpose(), t_acc, enable_input_d=k_done != 0, cta_group=2
                    )
                    self.tcgen05.commit(empty[stage], cta_group=2, multicast_mask=self.ctas)  # read
                    stage = 1 - stage
                    turn ^= stage == 0
                if self.fault == "done tells the even CTA only":
                    self.tcgen05.commit(done, cta_group=2)
                else:
                    self.tcgen05.commit(done, cta_group=2, multicast_mask=3)  # everything
        if self.leaves != rank and self.leaves != 2:
            if self.fault != "the epilogue does not wait":
                self.mbarrier.wait(done, phase=0)  # finished
            r = self.tcgen05.load(t_acc)  # load t
            self.tcgen05.wait_load()
            self.store_global(g_c, r, offsets=[row, column])
        if self.fault == "no sync of the pair" or self.leaves >= 0:
            self.sync()
        else:
            self.cluster.sync()  # end
        if self.fault != "one CTA frees" or rank == 0:
            self.tcgen05.dealloc(t_acc)  # dealloc


class PairTiles(tilus.Script):
    """PairProduct, each pair going through several tiles of a row of C: while the epilogue stores one, the even CTA
    multiplies for the next. `free` counts both epilogues."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault
        self.free_count = 1 if fault == "each epilogue tells its own CTA" else 2

    def __call__(self, tiles: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 8
        rank: int32 = self.cluster.blockRank
        g_a = self.global_view(a_ptr, dtype=float16, shape=[256, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[32 * tiles, k])
        g_c = self.global_view(c_ptr, dtype=float32, shape=[256, 32 * tiles])
        s_a = self.shared_tensor(dtype=float16, shape=[2, 128, 32])
        s_b = self.shared_tensor(dtype=float16, shape=[2, 16, 32])
        full = self.mbarrier.alloc(counts=[1, 1])
        empty = self.mbarrier.alloc(counts=[1, 1])
        done = self.mbarrier.alloc(counts=[1, 1])
        free = self.mbarrier.alloc(counts=[self.free_count, self.free_count])  # free
        self.cluster.sync()
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[2, 128, 32], cta_group=2)
        with self.single_warp(0):
            load_stage: int32 = 0
            room: uint32 = 1
            for i in range(tiles):
                for offset_k in range(0, k, 32):
                    self.mbarrier.wait(empty[load_stage], phase=room)
                    barrier = full[load_stage]
                    if rank == 0:
                        with self.single_thread():
                            self.mbarrier.arrive_and_expect_tx(barrier, transaction_bytes=2 * 144 * 32 * 2)
                    else:
                        barrier = self.cluster.map_shared_addr(barrier, target_rank=0)
                    self.tma.global_to_shared(
                        src=g_a, dst=s_a[load_stage], offsets=[128 * rank, offset_k], mbarrier=barrier, cta_group=2
                    )
                    self.tma.global_to_shared(
                        src=g_b,
                        dst=s_b[load_stage],
                        offsets=[32 * i + 16 * rank, offset_k],
                        mbarrier=barrier,
                        cta_group=2,
                    )
                    load_stage = 1 - load_stage
                    room ^= load_stage == 0
        with self.single_warp(1):
            if rank == 0:
                stage: int32 = 0
                turn: uint32 = 0
                for j in range(tiles):
                    self.mbarrier.wait(free[j % 2], phase=1 - j // 2 % 2, scope="cluster")  # room
                    for k_done in range(0, k, 32):
                        self.mbarrier.wait(full[stage], phase=turn)
                        self.tcgen05.mma(  # mma
                            s_a[stage], s_b[stage].transpose(), t_acc[j % 2], enable_input_d=k_done != 0, cta_group=2
                        )
                        self.tcgen05.commit(empty[stage], cta_group=2, multicast_mask=3)
                        stage = 1 - stage
                        turn ^= stage == 0
                    self.tcgen05.commit(done[j % 2], cta_group=2, multicast_mask=3)
        with self.warp_group(warp_begin=4, num_warps=4):
            for m in range(tiles):
                self.mbarrier.wait(done[m % 2], phase=m // 2 % 2)
                r = self.tcgen05.load(t_acc[m % 2])  # load
                self.tcgen05.wait_load()
                self.sync()
                with self.single_thread():
                    if self.fault == "each epilogue tells its own CTA":
                        self.mbarrier.arrive(free[m % 2])  # tell
                    elif self.fault == "a relaxed arrival":
                        self.mbarrier.arrive_and_expect_tx_remote(free[m % 2], 0, target_rank=0, sem="relaxed")
                    else:
                        self.mbarrier.arrive_and_expect_tx_remote(free[m % 2], 0, target_rank=0)
                self.store_global(g_c, r, offsets=[128 * rank, 32 * m])
        self.cluster.sync()
        self.tcgen05.dealloc(t_acc)


class PairRelay(tilus.Script):
    """D = A @ B.T in one step: threads store the operands, and an arrival tells the even CTA of the odd one's."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault
        self.told = "cta" if fault == "an arrival for the CTA" else "cluster"
        self.seen = "cta" if fault == "a wait for the CTA" else "cluster"

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
        full = self.mbarrier.alloc(counts=2)  # full
        done = self.mbarrier.alloc(counts=1)
        self.cluster.sync()
        t_d = self.tcgen05.alloc(dtype=float32, shape=[128, 32], cta_group=2)
        if self.fault != "by cp.async":
            self.store_shared(s_a, self.load_global(g_a, offsets=[128 * rank, 0], shape=[128, 32]))  # store
            self.store_shared(s_b, self.load_global(g_b, offsets=[16 * rank, 0], shape=[16, 32]))
        else:
            self.copy_async(src=g_a, dst=s_a, offsets=[128 * rank, 0])  # copy
            self.copy_async(src=g_b, dst=s_b, offsets=[16 * rank, 0])
            self.copy_async_wait_all()
        if self.fault != "no fence":
            self.fence.proxy_async(space="shared")
        self.sync()
        with self.single_thread():
            if self.fault == "by cp.async":
                self.mbarrier.arrive_and_expect_tx_remote(full, 0, target_rank=0, scope="cta")
            elif self.fault == "a plain arrival":
                self.mbarrier.arrive(self.cluster.map_shared_addr(full, target_rank=0))  # plain
            else:
                self.mbarrier.arrive_and_expect_tx_remote(full, 0, target_rank=0, scope=self.told)  # tell
        if rank == 0:
            with self.single_warp(0):
                self.mbarrier.wait(full, phase=0, scope=self.seen)  # wait
                self.tcgen05.mma(s_a, s_b.transpose(), t_d, enable_input_d=False, cta_group=2)  # mma
                self.tcgen05.commit(done, cta_group=2, multicast_mask=3)
        self.mbarrier.wait(done, phase=0)
        r = self.tcgen05.load(t_d)
        self.tcgen05.wait_load()
        self.store_global(g_d, r, offsets=[128 * rank, 0])
        self.cluster.sync()
        self.tcgen05.dealloc(t_d)


class PairCopies(tilus.Script):
    """Two pairs: each CTA of the first loads a tile into itself and into the CTA of its parity in the second, and tells
    the even CTAs."""

    def __init__(self, target: int = 0, cta_group: int = 2, waits_at: int = 0):
        super().__init__()
        self.target, self.cta_group, self.waits_at = target, cta_group, waits_at

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 4
        self.attrs.cluster_blocks = 4
        self.attrs.warps = 1
        rank: int32 = self.cluster.blockRank
        g_x = self.global_view(x_ptr, dtype=float16, shape=[32, 64])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[64, 64])
        s = self.shared_tensor(dtype=float16, shape=[16, 64])
        full = self.mbarrier.alloc(counts=1)
        self.cluster.sync()
        if rank % 2 == 0:
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=2 * 16 * 64 * 2)
        if rank == 0:
            self.tma.global_to_shared(src=g_x, dst=s, offsets=[0, 0], mbarrier=full, multicast_mask=0b0101, cta_group=2)
        if rank == 1:
            there = self.cluster.map_shared_addr(full, target_rank=self.target)
            if self.cta_group == 2:
                self.tma.global_to_shared(  # load
                    src=g_x, dst=s, offsets=[16, 0], mbarrier=there, multicast_mask=0b1010, cta_group=2
                )
            else:
                self.tma.global_to_shared(src=g_x, dst=s, offsets=[16, 0], mbarrier=there)  # alone
        if rank % 2 == 0:
            self.mbarrier.wait(self.cluster.map_shared_addr(full, target_rank=rank + self.waits_at), phase=0)  # wait
        self.cluster.sync()
        self.store_global(g_y, self.load_shared(s), offsets=[16 * rank, 0])


class MasksOfRank(tilus.Script):
    """y = x x.T in each of two CTAs, and each tells the other alone, by a mask of its rank: first by an arrival, then
    by a commit."""

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 4
        rank = self.cluster.blockRank
        other = 2 >> rank
        g_x = self.global_view(x_ptr, dtype=float16, shape=[128, 16])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[256, 128])
        s = self.shared_tensor(dtype=float16, shape=[128, 16])
        t = self.tcgen05.alloc(dtype=float32, shape=[128, 128])
        told, done = self.mbarrier.alloc(counts=1), self.mbarrier.alloc(counts=1)
        self.store_shared(s, self.load_global(g_x, offsets=[0, 0], shape=[128, 16]))
        self.fence.proxy_async(space="shared")
        self.cluster.sync()
        with self.single_warp():
            self.mbarrier.arrive_and_expect_tx_multicast(told, transaction_bytes=0, multicast_mask=other)
        self.mbarrier.wait(told, phase=0, scope="cluster")
        with self.single_warp():
            self.tcgen05.mma(s, s.transpose(), t, enable_input_d=False)
            self.tcgen05.commit(done, multicast_mask=other)
        self.mbarrier.wait(done, phase=0)
        self.cluster.sync()
        r = self.tcgen05.load(t)
        self.tcgen05.wait_load()
        self.store_global(g_y, r, offsets=[128 * rank, 0])
        self.sync()
        self.tcgen05.dealloc(t)


class WholeMapped(tilus.Script):
    """Both barriers are mapped at once, as registers of two addresses, of which one is taken then."""

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 1
        rank: int32 = self.cluster.blockRank
        g_x = self.global_view(x_ptr, dtype=float16, shape=[32, 64])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[32, 64])
        s = self.shared_tensor(dtype=float16, shape=[16, 64])
        full = self.mbarrier.alloc(counts=[1, 1])
        at_leader = self.cluster.map_shared_addr(full, target_rank=0)
        self.cluster.sync()
        if rank == 0:
            for i in range(2):
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full[i], transaction_bytes=2048)
        self.tma.global_to_shared(src=g_x, dst=s, offsets=[16 * rank, 0], mbarrier=at_leader[rank], cta_group=2)
        if rank == 0:
            self.mbarrier.wait(full[0], phase=0)
            self.mbarrier.wait(full[1], phase=0)
        self.cluster.sync()
        self.store_global(g_y, self.load_shared(s), offsets=[16 * rank, 0])


class PairMemory(tilus.Script):
    """Allocates for pairs, stores to tensor memory and loads from there.

    fault: what is odd about it."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault
        self.cluster_ctas = 1 if fault == "no cluster" else 2

    def __call__(self, y_ptr: ~int32):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = self.cluster_ctas
        self.attrs.warps = 4
        rank: int32 = self.blockIdx.x
        g_y = self.global_view(y_ptr, dtype=int32, shape=[256, 32])
        s = self.shared_tensor(dtype=int32, shape=[128, 32])
        done = self.mbarrier.alloc(counts=1)
        if self.fault != "no sync at the start":
            self.cluster.sync()
        if self.fault == "one CTA allocates":
            if rank == 0:
                t_0 = self.tcgen05.alloc(dtype=int32, shape=[128, 32], cta_group=2)  # alone
                self.tcgen05.dealloc(t_0)
        if self.fault == "gives up before":
            with self.single_warp():
                self.tcgen05.relinquish_alloc_permit(cta_group=2)  # permit
        t = self.tcgen05.alloc(dtype=int32, shape=[128, 512 if self.fault == "too much" else 32], cta_group=2)  # alloc
        if self.fault == "too much":
            t_more = self.tcgen05.alloc(dtype=int32, shape=[128, 32], cta_group=2)  # more
            self.tcgen05.dealloc(t_more)
        else:
            x = self.register_tensor(dtype=int32, shape=[128, 32], init=lambda i, j: 1000 * rank + 32 * i + j)
            self.tcgen05.store(t, x)
            self.tcgen05.wait_store()
            if self.fault == "copies":
                self.store_shared(s, x)
                self.fence.proxy_async(space="shared")
                self.sync()
                with self.single_warp():
                    self.tcgen05.copy(s, t)  # copy
            if self.fault == "commits for one":
                with self.single_warp():
                    self.tcgen05.commit(done)  # commit
            r = self.tcgen05.load(t)
            self.tcgen05.wait_load()
            self.store_global(g_y, r, offsets=[128 * rank, 0])
        self.cluster.sync()
        self.tcgen05.dealloc(t)
        if self.fault == "freed twice":
            self.tcgen05.dealloc(t)


class PairFrees(tilus.Script):
    """Each CTA allocates for the pair and gives back, with a sync of this width in between."""

    def __init__(self, wide: bool):
        super().__init__()
        self.wide = wide

    def __call__(self, y_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 4
        self.cluster.sync()
        t = self.tcgen05.alloc(dtype=float32, shape=[128, 32], cta_group=2)
        if self.wide:
            self.cluster.sync()
        else:
            self.sync()
        self.tcgen05.dealloc(t)  # free
        self.cluster.sync()
