"""A block-scaled product of pairs with two accumulators that overlap, and what goes wrong in it by one line.

Its annotations are read by tilus: no `from __future__ import annotations`.
"""

from tilus import float32, int32, uint32, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.parts.ring import Ring
from blackwell_matmul.lang import FORMATS, BlockScaled
from blackwell_matmul.runtime.script import Script

STRIP = 16
"""Columns of a strip of the epilogue, and of what the accumulators share."""


class OverlappingSums(Script):
    """C[m, n] = (A scales) @ (B scales).T of mxfp4; each pair computes 256 rows, one tile of 128 columns after another.

    Columns of tensor memory: 0 to 127 and 112 to 239 for the two accumulators, and the scales of a stage behind them.
    The epilogue drains the columns that both have first, and tells it by a barrier of their own. fault: the line that
    is left out, or wrong.
    """

    tcgen05 = BlockScaled()

    def __init__(self, fault: str = "", stages: int = 2):
        super().__init__()
        self.fault, self.stages = fault, stages
        self.format, self.block_n, self.block_k = FORMATS["mxfp4"], 128, 256
        self.copy_group = 1 if fault == "copied by one CTA" else 2
        self.last_first = fault != "drained in order"

    def __call__(
        self, m: int32, n: int32, k: int32,
        a_ptr: void_p, b_ptr: void_p, scale_a_ptr: void_p, scale_b_ptr: void_p, c_ptr: void_p,
    ):  # fmt: skip
        self.attrs.blocks = 2 * cdiv(m, 256)
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 6
        rank: int32 = self.cluster.blockRank
        row: int32 = 128 * self.blockIdx.x
        element, scale, block = self.format.element, self.format.scale, self.format.block
        width, atoms = self.block_k // 2, self.block_k // (4 * block)
        k_bytes: int32 = k // 2
        k_atoms: int32 = cdiv(k, 4 * block)
        g_a = self.global_view(a_ptr, dtype=element, shape=[m, k_bytes])
        g_b = self.global_view(b_ptr, dtype=element, shape=[n, k_bytes])
        g_scale_a = self.global_view(scale_a_ptr, dtype=scale, shape=[cdiv(m, 128), k_atoms, 2, 256])
        g_scale_b = self.global_view(scale_b_ptr, dtype=scale, shape=[cdiv(n, 128), k_atoms, 2, 256])
        g_c = self.global_view(c_ptr, dtype=float32, shape=[m, n])
        s_a = self.shared_tensor(dtype=element, shape=[self.stages, 128, width])
        s_b = self.shared_tensor(dtype=element, shape=[self.stages, 64, width])
        s_scale_a = self.shared_tensor(dtype=scale, shape=[self.stages, 1, atoms, 2, 256])
        s_scale_b = self.shared_tensor(dtype=scale, shape=[self.stages, 1, atoms, 2, 256])
        ring = Ring(self.stages)
        sums = Ring(2, empties=2 * 128, scope="cluster")
        shared_columns = self.mbarrier.alloc(counts=2 * 128)
        self.cluster.sync()
        t_all = self.tcgen05.alloc(dtype=float32, shape=[128, 256], cta_group=2)
        t_scale_a = self.tcgen05.view_scales(
            self.tcgen05.slice(t_all, [0, 240], [0, 1], [128, 8]), scale, rows=128, blocks=4 * atoms
        )
        t_scale_b = self.tcgen05.view_scales(
            self.tcgen05.slice(t_all, [0, 248], [0, 1], [128, 8]), scale, rows=128, blocks=4 * atoms
        )
        with self.single_warp():
            self.tcgen05.relinquish_alloc_permit(cta_group=2)
        self.sync()

        with self.single_warp(4):
            nbytes = 2 * (s_a.nbytes + s_b.nbytes + s_scale_a.nbytes + s_scale_b.nbytes) // self.stages  # of both
            for column in range(0, n, self.block_n):
                for offset_k in range(0, k, self.block_k):
                    ring.wait_empty()
                    full = ring.full()
                    if rank == 0:
                        with self.single_thread():
                            self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=nbytes)
                    else:
                        full = self.cluster.map_shared_addr(full, target_rank=0)
                    stage = ring.stage
                    byte: int32 = offset_k // 2
                    atom: int32 = offset_k // (4 * block)
                    self.tma.global_to_shared(src=g_a, dst=s_a[stage], offsets=[row, byte], mbarrier=full, cta_group=2)
                    self.tma.global_to_shared(
                        src=g_b, dst=s_b[stage], offsets=[column + 64 * rank, byte], mbarrier=full, cta_group=2
                    )
                    self.tma.global_to_shared(
                        src=g_scale_a, dst=s_scale_a[stage], offsets=[row // 128, atom, 0, 0], mbarrier=full,
                        cta_group=2,
                    )  # fmt: skip
                    self.tma.global_to_shared(
                        src=g_scale_b, dst=s_scale_b[stage], offsets=[column // 128, atom, 0, 0], mbarrier=full,
                        cta_group=2,
                    )  # fmt: skip
                    ring.advance()

        if rank == 0:
            with self.single_warp(5):
                turn: uint32 = 1
                begin: int32 = 0
                for column in range(0, n, self.block_n):
                    sums.wait_empty()
                    if self.fault != "no barrier of the shared columns":
                        self.mbarrier.wait(shared_columns, phase=turn, scope="cluster")
                    t_acc = self.tcgen05.slice(t_all, [0, begin], [0, 1], [128, 128])
                    for offset_k in range(0, k, self.block_k):
                        ring.wait_full()
                        stage = ring.stage
                        if self.fault == "freed before the copy":
                            self.tcgen05.commit(ring.empty(), cta_group=2, multicast_mask=3)
                        if self.fault != "copied after the product":
                            self.tcgen05.copy_scales(s_scale_a[stage], t_scale_a, cta_group=self.copy_group)
                            self.tcgen05.copy_scales(s_scale_b[stage], t_scale_b, cta_group=self.copy_group)
                        self.tcgen05.mma_scaled(
                            s_a[stage], s_b[stage].transpose(), t_acc, t_scale_a, t_scale_b,
                            block=block, enable_input_d=offset_k != 0, cta_group=2,
                        )  # fmt: skip
                        if self.fault == "copied after the product":
                            self.tcgen05.copy_scales(s_scale_a[stage], t_scale_a, cta_group=2)
                            self.tcgen05.copy_scales(s_scale_b[stage], t_scale_b, cta_group=2)
                        if self.fault != "freed before the copy":
                            self.tcgen05.commit(ring.empty(), cta_group=2, multicast_mask=3)
                        ring.advance()
                    self.tcgen05.commit(sums.full(), cta_group=2, multicast_mask=3)
                    sums.advance()
                    begin = 128 - STRIP - begin
                    turn ^= 1

        with self.warp_group(0, 4):
            begin: int32 = 0
            for column in range(0, n, self.block_n):
                sums.wait_full()
                for i in range(128 // STRIP):
                    # The first accumulator shares its last columns, the second one its first.
                    strip: int32 = STRIP * i
                    if self.last_first:
                        if begin == 0:
                            strip = 128 - STRIP - STRIP * i
                    r_strip = self.tcgen05.load(self.tcgen05.slice(t_all, [0, begin + strip], [0, 1], [128, STRIP]))
                    self.tcgen05.wait_load()
                    if i == 0:
                        self.mbarrier.arrive_and_expect_tx_remote(
                            shared_columns, transaction_bytes=0, target_rank=0, scope="cluster"
                        )
                    self.store_global(g_c, r_strip, offsets=[row, column + strip])
                self.mbarrier.arrive_and_expect_tx_remote(
                    sums.empty(), transaction_bytes=0, target_rank=0, scope="cluster"
                )
                sums.advance()
                begin = 128 - STRIP - begin

        self.cluster.sync()
        self.tcgen05.dealloc(t_all)
