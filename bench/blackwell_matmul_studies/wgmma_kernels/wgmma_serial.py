"""C = A @ B.T by TMA, an mbarrier and wgmma, one warpgroup; sm_90a alone. Every group is waited for at once."""

from tilus import float16, float32, int32, uint32, void_p
from tilus.utils import cdiv

from blackwell_matmul.runtime.script import Script


class WgmmaMatmul(Script):
    def __init__(self, block_m: int = 128, block_n: int = 128, block_k: int = 64):
        super().__init__()
        self.block_m = block_m
        self.block_n = block_n
        self.block_k = block_k

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        self.attrs.blocks = cdiv(m, self.block_m), cdiv(n, self.block_n)
        self.attrs.warps = 4
        offset_m: int32 = self.block_m * self.blockIdx.x
        offset_n: int32 = self.block_n * self.blockIdx.y
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        s_a = self.shared_tensor(dtype=float16, shape=[self.block_m, self.block_k])
        s_b = self.shared_tensor(dtype=float16, shape=[self.block_n, self.block_k])
        acc = self.register_tensor(dtype=float32, shape=[self.block_m, self.block_n], init=0.0)
        arrived = self.mbarrier.alloc(counts=1)
        phase: uint32 = 0
        self.sync()
        for offset_k in range(0, k, self.block_k):
            with self.single_warp():
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(arrived, transaction_bytes=s_a.nbytes + s_b.nbytes)
                self.tma.global_to_shared(src=g_a, dst=s_a, offsets=[offset_m, offset_k], mbarrier=arrived)
                self.tma.global_to_shared(src=g_b, dst=s_b, offsets=[offset_n, offset_k], mbarrier=arrived)
            self.mbarrier.wait(arrived, phase=phase)
            self.wgmma.fence()
            self.wgmma.mma(s_a, s_b.transpose(), acc)
            self.wgmma.commit_group()
            self.wgmma.wait_group(0)
            self.sync()
            phase ^= 1
        self.store_global(g_c, acc.to(float16), offsets=[offset_m, offset_n])
