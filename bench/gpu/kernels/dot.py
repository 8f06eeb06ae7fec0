"""C = A @ B.T by TMA, an mbarrier and mma.sync, tiles of C in groups of columns: fast_divmod divides by a multiple of
ceil(m / block_m), so that m = 1792 and its like show a wrong multiplier as tiles that nobody writes.
"""

from tilus import float16, float32, int32, uint32, void_p
from tilus.utils import cdiv

from blackwell_matmul import Script


class DotMatmul(Script):
    """n has to be a multiple of group * block_n."""

    def __init__(self, block_m: int = 64, block_n: int = 64, block_k: int = 64, group: int = 4):
        super().__init__()
        self.block_m = block_m
        self.block_n = block_n
        self.block_k = block_k
        self.group = group

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        rows = cdiv(m, self.block_m)
        self.attrs.blocks = rows * cdiv(n, self.block_n)
        self.attrs.warps = 4
        group, place = self.fast_divmod(self.blockIdx.x, rows * self.group)
        row, column = self.fast_divmod(place, self.group)
        offset_m: int32 = row * self.block_m
        offset_n: int32 = (group * self.group + column) * self.block_n

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
            acc = self.dot(self.load_shared(s_a), self.load_shared(s_b).transpose(), acc)
            # Read through the generic proxy, overwritten through the async proxy: fence, then all meet.
            self.fence.proxy_async(space="shared")
            self.sync()
            phase ^= 1
        self.store_global(g_c, acc.to(float16), offsets=[offset_m, offset_n])
