"""C = A @ B.T by TMA and wgmma, one warpgroup, with one group of MMAs in flight while the next is issued; sm_90a."""

from tilus import float16, float32, int32, uint32, void_p
from tilus.ir.layout.ops.shared_ops import shared_row_major
from tilus.utils import cdiv

from blackwell_matmul.runtime.script import Script


class WgmmaPipelined(Script):
    def __init__(self, block_m: int = 128, block_n: int = 128, block_k: int = 64, stages: int = 3):
        super().__init__()
        self.block_m = block_m
        self.block_n = block_n
        self.block_k = block_k
        self.stages = stages

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        self.attrs.blocks = cdiv(m, self.block_m), cdiv(n, self.block_n)
        self.attrs.warps = 4
        offset_m: int32 = self.block_m * self.blockIdx.x
        offset_n: int32 = self.block_n * self.blockIdx.y
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        s_a = self.shared_tensor(dtype=float16, shape=[self.stages, self.block_m, self.block_k])
        s_b = self.shared_tensor(dtype=float16, shape=[self.stages, self.block_n, self.block_k])
        s_c = self.shared_tensor(dtype=float16, shape=[self.block_m, self.block_n])
        self.annotate_layout(s_c, shared_row_major(self.block_m, self.block_n))  # swizzled, a box holds 64 columns
        acc = self.register_tensor(dtype=float32, shape=[self.block_m, self.block_n], init=0.0)
        full = self.mbarrier.alloc(counts=[1 for _ in range(self.stages)])
        tile_bytes = (self.block_m + self.block_n) * self.block_k * float16.nbytes
        phase: uint32 = 0
        self.sync()

        with self.single_warp():
            for i in range(min(self.stages - 1, cdiv(k, self.block_k))):
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full[i], transaction_bytes=tile_bytes)
                first_k = i * self.block_k
                self.tma.global_to_shared(src=g_a, dst=s_a[i], offsets=[offset_m, first_k], mbarrier=full[i])
                self.tma.global_to_shared(src=g_b, dst=s_b[i], offsets=[offset_n, first_k], mbarrier=full[i])

        stage: int32 = 0
        refill: int32 = self.stages - 1
        for offset_k in range(0, k, self.block_k):
            self.mbarrier.wait(full[stage], phase=phase)
            self.wgmma.fence()
            self.wgmma.mma(s_a[stage], s_b[stage].transpose(), acc)
            self.wgmma.commit_group()
            # The MMA of the tile before is over, for all four warps: its stage is free.
            self.wgmma.wait_group(1)
            next_k: int32 = offset_k + (self.stages - 1) * self.block_k
            if next_k < k:
                with self.single_warp():
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(full[refill], transaction_bytes=tile_bytes)
                    self.tma.global_to_shared(
                        src=g_a, dst=s_a[refill], offsets=[offset_m, next_k], mbarrier=full[refill]
                    )
                    self.tma.global_to_shared(
                        src=g_b, dst=s_b[refill], offsets=[offset_n, next_k], mbarrier=full[refill]
                    )
            refill = stage
            stage = (stage + 1) % self.stages
            phase ^= stage == 0
        self.wgmma.wait_group(0)

        self.store_shared(s_c, acc.to(float16))
        self.fence.proxy_async(space="shared")
        self.sync()
        with self.single_warp():
            self.tma.shared_to_global(s_c, g_c, offsets=[offset_m, offset_n])
            self.tma.commit_group()
            self.tma.wait_group(n=0, read=True)
