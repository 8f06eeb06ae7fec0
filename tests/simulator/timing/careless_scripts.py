"""A product on wgmma that loads or stores carelessly."""

import tilus
from tilus import float16, float32, int32, uint32, void_p
from tilus.utils import cdiv

from blackwell_matmul.scheduling.wgmma_fragments import accumulator_layout, strip_layout


class Careless(tilus.Script):
    """A comes in two boxes, by one instruction. copies: as often is B loaded, into the same place, or apart: for each
    warpgroup its own. whole: what is stored is waited for to its end."""

    target = "sm_90a"

    def __init__(self, stages: int = 4, copies: int = 1, whole: bool = False, apart: bool = False, block_n: int = 128):
        super().__init__()
        self.stages, self.copies, self.whole, self.apart, self.block_n = stages, copies, whole, apart, block_n
        self.acc_layout, self.strip_layout = accumulator_layout(64, block_n), strip_layout(64, block_n, 32)

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        self.attrs.blocks = [cdiv(m, 128), cdiv(n, self.block_n)]
        self.attrs.warps = 9
        offset_m: int32 = 128 * self.blockIdx.x
        offset_n: int32 = self.block_n * self.blockIdx.y
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        s_a = self.shared_tensor(dtype=float16, shape=[self.stages, 2, 64, 64])
        places = self.copies if self.apart else 1
        s_b = self.shared_tensor(dtype=float16, shape=[self.stages, places, self.block_n, 64])
        s_c = self.shared_tensor(dtype=float16, shape=[2, 64, 32])
        full = self.mbarrier.alloc(counts=[1 for _ in range(self.stages)])
        empty = self.mbarrier.alloc(counts=[2 for _ in range(self.stages)])
        self.sync()
        with self.single_warp(8):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.producer_initial_phase
            for offset_k in range(0, k, 64):
                self.mbarrier.wait(empty[stage], phase=phase)
                with self.single_thread():
                    rows = 128 + self.copies * self.block_n
                    self.mbarrier.arrive_and_expect_tx(full[stage], transaction_bytes=rows * 64 * 2)
                for half in range(2):
                    offsets_a = [offset_m + 64 * half, offset_k]
                    self.tma.global_to_shared(src=g_a, dst=s_a[stage, half], offsets=offsets_a, mbarrier=full[stage])
                for copy in range(self.copies):
                    offsets_b, into = [offset_n, offset_k], s_b[stage, copy if self.apart else 0]
                    self.tma.global_to_shared(src=g_b, dst=into, offsets=offsets_b, mbarrier=full[stage])
                stage = (stage + 1) % self.stages
                phase ^= stage == 0
        self.s_a, self.s_b, self.s_c, self.g_c, self.full, self.empty = s_a, s_b, s_c, g_c, full, empty
        with self.warp_group(0, 4):
            self.consume(0, cdiv(k, 64), offset_m, offset_n)
        with self.warp_group(4, 4):
            self.consume(1, cdiv(k, 64), offset_m, offset_n)

    def consume(self, which: int, k_tiles: int32, offset_m: int32, offset_n: int32):
        stage: int32 = 0
        phase: uint32 = 0
        r_acc = self.register_tensor(dtype=float32, shape=[64, self.block_n], init=0.0)
        for _ in range(k_tiles):
            self.mbarrier.wait(self.full[stage], phase=phase)
            self.wgmma.fence()
            s_b = self.s_b[stage, which if self.apart else 0]
            self.wgmma.mma(self.s_a[stage, which], s_b.transpose(), r_acc)
            self.wgmma.commit_group()
            self.wgmma.wait_group(0)
            with self.single_thread(0):
                self.mbarrier.arrive(self.empty[stage])
            stage = (stage + 1) % self.stages
            phase ^= stage == 0
        self.annotate_layout(r_acc, self.acc_layout)
        r_strips = self.view(r_acc, layout=self.strip_layout)
        for strip in self.range(0, self.block_n // 32, 1, unroll="all"):
            self.store_shared(self.s_c[which], r_strips[0, strip].to(float16))
            self.fence.proxy_async(space="shared")
            self.sync()
            with self.single_warp():
                offsets = [offset_m + which * 64, offset_n + strip * 32]
                self.tma.shared_to_global(self.s_c[which], self.g_c, offsets=offsets)
                self.tma.commit_group()
                if self.whole:
                    self.tma.wait_group(n=0)
                else:
                    self.tma.wait_group(n=0, read=True)
            self.sync()
