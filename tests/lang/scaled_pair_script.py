"""A product of block-scaled numbers by a pair of CTAs.

Its annotations are read by tilus: no `from __future__ import annotations`.
"""

from tilus import float32, int32, uint32, void_p
from tilus.utils import cdiv

from blackwell_matmul.lang import FORMATS, BlockScaled
from blackwell_matmul.runtime.script import Script


class ScaledPair(Script):
    """C[m, n] = (A scales) @ (B scales).T, a tile of 256 x block_n for each pair, in two stages.

    Each CTA has half of A's and of B's rows, the scales of its half of A and those of all of B. fault: "half of the
    scales" leaves out the peer's scales of B.
    """

    tcgen05 = BlockScaled()

    def __init__(self, dtype: str, block_n: int, block_k: int, fault: str = "", one: bool = False):
        super().__init__()
        self.format, self.block_n, self.block_k, self.fault = FORMATS[dtype], block_n, block_k, fault
        self.loaded, self.one = 1 if fault == "half of the scales" else 2, one
        self.behind = 32 if fault == "inside the accumulator" else 0

    def __call__(
        self, m: int32, n: int32, k: int32,
        a_ptr: void_p, b_ptr: void_p, scale_a_ptr: void_p, scale_b_ptr: void_p, c_ptr: void_p,
    ):  # fmt: skip
        self.attrs.blocks = [2 * cdiv(m, 256), cdiv(n, self.block_n)]
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 4
        rank: int32 = self.cluster.blockRank
        row: int32 = 128 * self.blockIdx.x
        column: int32 = self.block_n * self.blockIdx.y
        element, scale, block = self.format.element, self.format.scale, self.format.block
        k_bytes: int32 = k // self.format.per_byte
        width, atoms, half_n = self.block_k // self.format.per_byte, cdiv(self.block_k, 4 * block), self.block_n // 2
        k_atoms: int32 = cdiv(k, 4 * block)
        g_a = self.global_view(a_ptr, dtype=element, shape=[m, k_bytes])
        g_b = self.global_view(b_ptr, dtype=element, shape=[n, k_bytes])
        g_scale_a = self.global_view(scale_a_ptr, dtype=scale, shape=[cdiv(m, 128), k_atoms, 2, 256])
        g_scale_b = self.global_view(scale_b_ptr, dtype=scale, shape=[cdiv(n, 128), k_atoms, 2, 256])
        g_c = self.global_view(c_ptr, dtype=float32, shape=[m, n])
        s_a = self.shared_tensor(dtype=element, shape=[2, 128, width])
        s_b = self.shared_tensor(dtype=element, shape=[2, half_n, width])
        s_scale_a = self.shared_tensor(dtype=scale, shape=[2, 1, atoms, 2, 256])
        s_scale_b = self.shared_tensor(dtype=scale, shape=[2, cdiv(self.block_n, 128), atoms, 2, 256])
        full = self.mbarrier.alloc(counts=[1, 1])
        empty = self.mbarrier.alloc(counts=[1, 1])
        done = self.mbarrier.alloc(counts=1)
        self.cluster.sync()
        if self.one:
            tiles, begin = cdiv(self.block_n, 128), self.block_n - self.behind
            t_all = self.tcgen05.alloc(dtype=float32, shape=[128, 512], cta_group=2)
            t_acc = self.tcgen05.slice(t_all, [0, 0], [0, 1], [128, self.block_n])
            t_a = self.tcgen05.slice(t_all, [0, begin], [0, 1], [128, 4 * atoms])
            t_b = self.tcgen05.slice(t_all, [0, begin + 4 * atoms], [0, 1], [128, 4 * atoms * tiles])
            t_scale_a = self.tcgen05.view_scales(t_a, scale, rows=128, blocks=4 * atoms)
            t_scale_b = self.tcgen05.view_scales(t_b, scale, rows=self.block_n, blocks=4 * atoms)
        else:
            t_acc = self.tcgen05.alloc(dtype=float32, shape=[128, self.block_n], cta_group=2)
            t_scale_a = self.tcgen05.alloc_scales(scale, rows=128, blocks=4 * atoms, cta_group=2)
            t_scale_b = self.tcgen05.alloc_scales(scale, rows=self.block_n, blocks=4 * atoms, cta_group=2)
        nbytes = s_a.nbytes + s_b.nbytes + s_scale_a.nbytes + s_scale_b.nbytes // 2 * self.loaded  # of both, a stage
        with self.single_warp(1):
            self.tcgen05.relinquish_alloc_permit(cta_group=2)
        with self.single_warp(0):
            stage: int32 = 0
            room: uint32 = 1
            for offset_k in range(0, k, self.block_k):
                self.mbarrier.wait(empty[stage], phase=room)
                barrier = full[stage]
                if rank == 0:
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(barrier, transaction_bytes=nbytes)
                else:
                    barrier = self.cluster.map_shared_addr(barrier, target_rank=0)
                byte: int32 = offset_k // self.format.per_byte
                atom: int32 = offset_k // (4 * block)
                self.tma.global_to_shared(src=g_a, dst=s_a[stage], offsets=[row, byte], mbarrier=barrier, cta_group=2)
                self.tma.global_to_shared(
                    src=g_b, dst=s_b[stage], offsets=[column + half_n * rank, byte], mbarrier=barrier, cta_group=2
                )
                self.tma.global_to_shared(
                    src=g_scale_a, dst=s_scale_a[stage], offsets=[row // 128, atom, 0, 0], mbarrier=barrier, cta_group=2
                )
                if self.fault != "half of the scales" or rank == 0:
                    self.tma.global_to_shared(
                        src=g_scale_b, dst=s_scale_b[stage], offsets=[column // 128, atom, 0, 0], mbarrier=barrier,
                        cta_group=2,
                    )  # fmt: skip
                stage = 1 - stage
                room ^= stage == 0
            for i in range(min(2, cdiv(k, self.block_k))):
                self.mbarrier.wait(empty[stage], phase=room)
                stage = 1 - stage
                room ^= stage == 0
        if rank == 0:
            with self.single_warp(1):
                stage: int32 = 0
                turn: uint32 = 0
                for offset_k in range(0, k, self.block_k):
                    self.mbarrier.wait(full[stage], phase=turn)
                    self.tcgen05.copy_scales(s_scale_a[stage], t_scale_a, cta_group=2)
                    self.tcgen05.copy_scales(s_scale_b[stage], t_scale_b, cta_group=2)
                    self.tcgen05.mma_scaled(
                        s_a[stage], s_b[stage].transpose(), t_acc, t_scale_a, t_scale_b,
                        block=block, enable_input_d=offset_k != 0, cta_group=2,
                    )  # fmt: skip
                    self.tcgen05.commit(empty[stage], cta_group=2, multicast_mask=3)
                    stage = 1 - stage
                    turn ^= stage == 0
                self.tcgen05.commit(done, cta_group=2, multicast_mask=3)
        self.mbarrier.wait(done, phase=0)
        r = self.tcgen05.load(t_acc)
        self.tcgen05.wait_load()
        self.store_global(g_c, r, offsets=[row, column])
        self.cluster.sync()
        if self.one:
            self.tcgen05.dealloc(t_all)
        else:
            self.tcgen05.dealloc(t_scale_b)
            self.tcgen05.dealloc(t_scale_a)
            self.tcgen05.dealloc(t_acc)
