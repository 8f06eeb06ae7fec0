"""A product by CTA pairs, and what goes wrong in it when one line is left out."""

import tilus
from tilus import DataType, float16, float32, int32, uint32, void_p
from tilus.utils import cdiv


class PairProduct(tilus.Script):
    """C[m, n] = A[m, k] @ B[n, k].T, one tile for each pair: both CTAs load their half of A's and of B's rows and tell
    the even one, whose warp 1 multiplies for both and tells both what is read and what is done.

    fault: the line that is left out, or wrong.
    """

    def __init__(self, fault: str = "", block_n: int = 32, block_k: int = 32, dtype: DataType = float16):
        super().__init__()
        self.fault, self.dtype = fault, dtype
        self.block_n, self.block_k = block_n, block_k
        self.half_n = block_n // 2
        self.ctas = 0b01 if fault == "commit tells the even CTA only" else 0b11
        self.pairs_bytes = 1 if fault == "bytes of one CTA" else 2
        self.mma_rank = 1 if fault == "the odd CTA issues" else 0

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        self.attrs.blocks = [2 * cdiv(m, 256), cdiv(n, self.block_n)]
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 4
        rank: int32 = self.cluster.blockRank
        row: int32 = 128 * self.blockIdx.x
        column: int32 = self.block_n * self.blockIdx.y
        g_a = self.global_view(a_ptr, dtype=self.dtype, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=self.dtype, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=float32, shape=[m, n])
        s_a = self.shared_tensor(dtype=self.dtype, shape=[2, 128, self.block_k])
        s_b = self.shared_tensor(dtype=self.dtype, shape=[2, self.half_n, self.block_k])
        full = self.mbarrier.alloc(counts=[1, 1])  # full
        empty = self.mbarrier.alloc(counts=[1, 1])  # empty
        done = self.mbarrier.alloc(counts=1)  # done
        if self.fault != "no sync at the start":
            self.cluster.sync()
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[128, self.block_n], cta_group=2)  # alloc
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
            if self.fault != "no drain":
                for i in range(min(2, cdiv(k, self.block_k))):
                    self.mbarrier.wait(empty[load_stage], phase=room)
                    load_stage = 1 - load_stage
                    room ^= load_stage == 0
        if rank == self.mma_rank:
            with self.single_warp(1):
                stage: int32 = 0
                turn: uint32 = 0
                for k_done in range(0, k, self.block_k):
                    if self.fault != "the mma does not wait":
                        self.mbarrier.wait(full[stage], phase=turn)  # wait
                    self.tcgen05.mma(  # mma
                        s_a[stage], s_b[stage].transpose(), t_acc, enable_input_d=k_done != 0, cta_group=2
                    )
                    self.tcgen05.commit(empty[stage], cta_group=2, multicast_mask=self.ctas)  # read
                    stage = 1 - stage
                    turn ^= stage == 0
                if self.fault == "done tells the even CTA only":
                    self.tcgen05.commit(done, cta_group=2)
                else:
                    self.tcgen05.commit(done, cta_group=2, multicast_mask=3)  # done
        if self.fault != "the epilogue does not wait":
            self.mbarrier.wait(done, phase=0)  # finished
        r = self.tcgen05.load(t_acc)  # load t
        self.tcgen05.wait_load()
        self.store_global(g_c, r, offsets=[row, column])
        if self.fault == "no sync of the pair":
            self.sync()
        else:
            self.cluster.sync()
        if self.fault != "one CTA frees" or rank == 0:
            self.tcgen05.dealloc(t_acc)  # dealloc
