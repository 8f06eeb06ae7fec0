"""A product whose candidates are not all well, for a tuner to survive: on a GPU, one hangs, one crashes, one is wrong.

blackwell-matmul tune bench/gpu/kernels/faulty.py:FaultyMatmul --size 1024 1024 256 --limit 15
"""

import tilus
from tilus import float16, float32, int32, int64, uint32, void_p
from tilus.utils import cdiv

from blackwell_matmul import Script

RIGHT, WRONG, HANGS, CRASHES = range(4)


@tilus.autotune("fault", [RIGHT, WRONG, HANGS, CRASHES])
@tilus.autotune("block_n", [64, 128])
class FaultyMatmul(Script):
    """C = A @ B.T by TMA and mma.sync. Faults are in the tile that starts at (0, 0) alone, as in life."""

    def __init__(self, fault: int, block_n: int, block_m: int = 64, block_k: int = 64):
        super().__init__()
        self.fault = fault
        self.block_m = block_m
        self.block_n = block_n
        self.block_k = block_k

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: ~float16):
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
        never = self.mbarrier.alloc(counts=1)
        phase: uint32 = 0
        self.sync()
        for offset_k in range(0, k, self.block_k):
            with self.single_warp():
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(arrived, transaction_bytes=s_a.nbytes + s_b.nbytes)
                self.tma.global_to_shared(src=g_a, dst=s_a, offsets=[offset_m, offset_k], mbarrier=arrived)
                self.tma.global_to_shared(src=g_b, dst=s_b, offsets=[offset_n, offset_k], mbarrier=arrived)
            self.mbarrier.wait(arrived, phase=phase)
            acc = self.dot(self.load_shared(s_a), self.load_shared(s_b).transpose(), acc)
            # Read through the generic proxy, overwritten through the async proxy: fence, then all meet.
            self.fence.proxy_async(space="shared")
            self.sync()
            phase ^= 1
        if offset_m == 0 and offset_n == 0:
            if self.fault == 1:
                acc += 1.0
            if self.fault == 2:
                self.mbarrier.wait(never, phase=0)
        if self.fault == 3:
            far: int64 = 1 << 30
            g_far = self.global_view(c_ptr + far * 32768, dtype=float16, shape=[m, n])  # no memory there
            self.store_global(g_far, acc.to(float16), offsets=[offset_m, offset_n])
        self.store_global(g_c, acc.to(float16), offsets=[offset_m, offset_n])
