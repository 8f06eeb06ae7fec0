"""C = A @ B.T, persistent: one warp loads by TMA, two warpgroups multiply, each half of the tile; sm_90a.

Stages of shared memory go round between them: `full` says that the loads have arrived, `empty` that both warpgroups
have multiplied. The loading warp runs ahead into the next tile.
"""

from tilus import GlobalTensor, RegisterTensor, SharedTensor, float16, float32, int32, uint32, void_p
from tilus.ir.layout.ops.shared_ops import shared_row_major
from tilus.utils import cdiv

from blackwell_matmul.runtime.script import Script


class WgmmaSpecialised(Script):
    def __init__(self, block_n: int = 128, block_k: int = 64, stages: int = 4, num_ctas: int = 132):
        super().__init__()
        self.block_m = 128
        self.half_m = 64
        self.block_n = block_n
        self.block_k = block_k
        self.stages = stages
        self.num_ctas = num_ctas

    def consume(
        self,
        half: int,
        m: int32,
        n: int,
        k: int,
        s_a: SharedTensor,
        s_b: SharedTensor,
        s_c: SharedTensor,
        g_c: GlobalTensor,
        full: RegisterTensor,
        empty: RegisterTensor,
    ):
        """One warpgroup: rows half * 64 and on of each tile."""
        stage: int32 = 0
        phase: uint32 = 0
        tiles_n: int32 = cdiv(n, self.block_n)
        for tile in range(self.blockIdx.x, cdiv(m, self.block_m) * tiles_n, self.num_ctas):
            acc = self.register_tensor(dtype=float32, shape=[self.half_m, self.block_n], init=0.0)
            last: int32 = stage
            for offset_k in range(0, k, self.block_k):
                self.mbarrier.wait(full[stage], phase=phase)
                self.wgmma.fence()
                self.wgmma.mma(s_a[stage, half], s_b[stage].transpose(), acc)
                self.wgmma.commit_group()
                self.wgmma.wait_group(1)
                if offset_k > 0:
                    with self.single_thread():
                        self.mbarrier.arrive(empty[last])
                last = stage
                stage = (stage + 1) % self.stages
                phase ^= stage == 0
            self.wgmma.wait_group(0)
            with self.single_thread():
                self.mbarrier.arrive(empty[last])

            self.store_shared(s_c[half], acc.to(float16))
            self.fence.proxy_async(space="shared")
            self.sync()
            with self.single_warp():
                offset_m: int32 = tile // tiles_n * self.block_m + half * self.half_m
                self.tma.shared_to_global(s_c[half], g_c, offsets=[offset_m, tile % tiles_n * self.block_n])
                self.tma.commit_group()
                self.tma.wait_group(n=0, read=True)
            self.sync()

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        self.attrs.blocks = self.num_ctas
        self.attrs.warps = 9
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        s_a = self.shared_tensor(dtype=float16, shape=[self.stages, 2, self.half_m, self.block_k])
        s_b = self.shared_tensor(dtype=float16, shape=[self.stages, self.block_n, self.block_k])
        s_c = self.shared_tensor(dtype=float16, shape=[2, self.half_m, self.block_n])
        self.annotate_layout(s_c, shared_row_major(2, self.half_m, self.block_n))  # swizzled, a box holds 64 columns
        full = self.mbarrier.alloc(counts=[1 for _ in range(self.stages)])
        empty = self.mbarrier.alloc(counts=[2 for _ in range(self.stages)])
        tile_bytes = (self.block_m + self.block_n) * self.block_k * float16.nbytes
        self.sync()

        with self.single_warp(8):
            stage: int32 = 0
            phase: uint32 = 1  # the stages are empty to begin with: the phase before the first is over
            tiles_n: int32 = cdiv(n, self.block_n)
            for tile in range(self.blockIdx.x, cdiv(m, self.block_m) * tiles_n, self.num_ctas):
                offset_m: int32 = tile // tiles_n * self.block_m
                offset_n: int32 = tile % tiles_n * self.block_n
                for offset_k in range(0, k, self.block_k):
                    self.mbarrier.wait(empty[stage], phase=phase)
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(full[stage], transaction_bytes=tile_bytes)
                    self.tma.global_to_shared(
                        src=g_a, dst=s_a[stage, 0], offsets=[offset_m, offset_k], mbarrier=full[stage]
                    )
                    self.tma.global_to_shared(
                        src=g_a, dst=s_a[stage, 1], offsets=[offset_m + self.half_m, offset_k], mbarrier=full[stage]
                    )
                    self.tma.global_to_shared(
                        src=g_b, dst=s_b[stage], offsets=[offset_n, offset_k], mbarrier=full[stage]
                    )
                    stage = (stage + 1) % self.stages
                    phase ^= stage == 0

        with self.warp_group(0, 4):
            self.consume(0, m, n, k, s_a, s_b, s_c, g_c, full, empty)
        with self.warp_group(4, 4):
            self.consume(1, m, n, k, s_a, s_b, s_c, g_c, full, empty)
