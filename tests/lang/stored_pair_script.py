"""A block-scaled product of a pair whose threads write the scales of B to shared memory, each CTA its own copy.

Its annotations are read by tilus: no `from __future__ import annotations`.
"""

from tilus import float32, int32, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.parts.ring import Ring
from blackwell_matmul.lang import FORMATS, BlockScaled
from blackwell_matmul.runtime.script import Script


class StoredPair(Script):
    """C[256, 128] = (A scales) @ (B scales).T of mxfp8, k a multiple of 128, in two stages.

    The copy into tensor memory is the even CTA's, for both. So all threads of both CTAs tell the even one that their
    part of the scales is there. fault: "own scales alone" lets each CTA tell itself, "told at the scope of a CTA" lets
    all tell the even one by arrivals that order nothing between CTAs.
    """

    tcgen05 = BlockScaled()

    def __init__(self, fault: str = ""):
        super().__init__()
        self.format = FORMATS["mxfp8"]
        self.alone = fault == "own scales alone"
        self.scope = "cta" if fault == "told at the scope of a CTA" else "cluster"

    def __call__(
        self, m: int32, n: int32, k: int32,
        a_ptr: void_p, b_ptr: void_p, scale_a_ptr: void_p, scale_b_ptr: void_p, c_ptr: void_p,
    ):  # fmt: skip
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 6
        rank: int32 = self.cluster.blockRank
        element, scale = self.format.element, self.format.scale
        k_atoms: int32 = cdiv(k, 128)
        g_a = self.global_view(a_ptr, dtype=element, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=element, shape=[n, k])
        g_scale_a = self.global_view(scale_a_ptr, dtype=scale, shape=[2, k_atoms, 2, 256])
        g_scale_b = self.global_view(scale_b_ptr, dtype=scale, shape=[k_atoms, 2, 256])
        g_c = self.global_view(c_ptr, dtype=float32, shape=[m, n])
        s_a = self.shared_tensor(dtype=element, shape=[2, 128, 128])
        s_b = self.shared_tensor(dtype=element, shape=[2, 64, 128])
        s_scale_a = self.shared_tensor(dtype=scale, shape=[2, 1, 1, 2, 256])
        s_scale_b = self.shared_tensor(dtype=scale, shape=[2, 1, 1, 2, 256])
        ring = Ring(2)
        scales = Ring(2, fills=128 if self.alone else 2 * 128, scope="cta" if self.alone else "cluster")
        done = self.mbarrier.alloc(counts=1)
        self.cluster.sync()
        t_all = self.tcgen05.alloc(dtype=float32, shape=[128, 256], cta_group=2)
        t_acc = self.tcgen05.slice(t_all, [0, 0], [0, 1], [128, 128])
        t_a = self.tcgen05.slice(t_all, [0, 128], [0, 1], [128, 4])
        t_b = self.tcgen05.slice(t_all, [0, 132], [0, 1], [128, 4])
        t_scale_a = self.tcgen05.view_scales(t_a, scale, rows=128, blocks=4)
        t_scale_b = self.tcgen05.view_scales(t_b, scale, rows=128, blocks=4)
        with self.single_warp():
            self.tcgen05.relinquish_alloc_permit(cta_group=2)
        self.sync()

        with self.single_warp(4):
            nbytes = s_a.nbytes + s_b.nbytes + s_scale_a.nbytes  # of both CTAs, a stage
            for offset_k in range(0, k, 128):
                ring.wait_empty()
                full = ring.full()
                if rank == 0:
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=nbytes)
                else:
                    full = self.cluster.map_shared_addr(full, target_rank=0)
                stage = ring.stage
                self.tma.global_to_shared(
                    src=g_a, dst=s_a[stage], offsets=[128 * rank, offset_k], mbarrier=full, cta_group=2
                )
                self.tma.global_to_shared(
                    src=g_b, dst=s_b[stage], offsets=[64 * rank, offset_k], mbarrier=full, cta_group=2
                )
                self.tma.global_to_shared(
                    src=g_scale_a, dst=s_scale_a[stage], offsets=[rank, offset_k // 128, 0, 0], mbarrier=full,
                    cta_group=2,
                )  # fmt: skip
                ring.advance()

        if rank == 0:
            with self.single_warp(5):
                for offset_k in range(0, k, 128):
                    ring.wait_full()
                    scales.wait_full()
                    stage = ring.stage
                    self.tcgen05.copy_scales(s_scale_a[stage], t_scale_a, cta_group=2)
                    self.tcgen05.copy_scales(s_scale_b[stage], t_scale_b, cta_group=2)
                    self.tcgen05.mma_scaled(
                        s_a[stage], s_b[stage].transpose(), t_acc, t_scale_a, t_scale_b,
                        block=32, enable_input_d=offset_k != 0, cta_group=2,
                    )  # fmt: skip
                    self.tcgen05.commit(ring.empty(), cta_group=2, multicast_mask=3)
                    self.tcgen05.commit(scales.empty(), cta_group=2, multicast_mask=3)
                    ring.advance()
                    scales.advance()
                self.tcgen05.commit(done, cta_group=2, multicast_mask=3)

        with self.warp_group(0, 4):
            for offset_k in range(0, k, 128):
                scales.wait_empty()
                stage = scales.stage
                r_scales = self.load_global(g_scale_b, offsets=[offset_k // 128, 0, 0], shape=[1, 2, 256])
                self.store_shared(s_scale_b[stage, 0], r_scales)
                self.fence.proxy_async(space="shared")
                if self.alone:
                    self.mbarrier.arrive(scales.full())
                else:
                    self.mbarrier.arrive_and_expect_tx_remote(
                        scales.full(), transaction_bytes=0, target_rank=0, scope=self.scope
                    )
                scales.advance()
            self.mbarrier.wait(done, phase=0)
            r_c = self.tcgen05.load(t_acc)
            self.tcgen05.wait_load()
            self.store_global(g_c, r_c, offsets=[128 * rank, 0])

        self.cluster.sync()
        self.tcgen05.dealloc(t_all)
