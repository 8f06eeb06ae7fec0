"""Products whose sums take many registers of a thread; see timing_scripts.py."""

import tilus
from tilus import float16, float32, int32, void_p
from tilus.utils import cdiv


class OneWarpgroup(tilus.Script):
    """C = A @ B.T in tiles of m x n, which the first of the CTA's warpgroups multiplies."""

    target = "sm_90a"

    def __init__(self, m: int = 128, n: int = 128, warps: int = 4):
        super().__init__()
        self.m, self.n, self.warps = m, n, warps

    def __call__(self, rows: int32, columns: int32, k: int32, a: void_p, b: void_p, c: void_p):
        self.attrs.blocks = [cdiv(rows, self.m), cdiv(columns, self.n)]
        self.attrs.warps = self.warps
        row: int32 = self.m * self.blockIdx.x
        column: int32 = self.n * self.blockIdx.y
        g_a = self.global_view(a, dtype=float16, shape=[rows, k])
        g_b = self.global_view(b, dtype=float16, shape=[columns, k])
        g_c = self.global_view(c, dtype=float32, shape=[rows, columns])
        s_a = self.shared_tensor(dtype=float16, shape=[self.m, 64])
        s_b = self.shared_tensor(dtype=float16, shape=[self.n, 64])
        full = self.mbarrier.alloc(counts=1)
        self.sync()
        with self.warp_group(0, 4):
            sums = self.register_tensor(dtype=float32, shape=[self.m, self.n], init=0.0)
            phase: int32 = 0
            for at in range(0, k, 64):
                with self.single_warp():
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=s_a.nbytes + s_b.nbytes)
                    self.tma.global_to_shared(src=g_a, dst=s_a, offsets=[row, at], mbarrier=full)
                    self.tma.global_to_shared(src=g_b, dst=s_b, offsets=[column, at], mbarrier=full)
                self.mbarrier.wait(full, phase=phase)
                self.wgmma.fence()
                self.wgmma.mma(s_a, s_b.transpose(), sums)  # multiply
                self.wgmma.commit_group()
                self.wgmma.wait_group(0)
                self.sync()
                phase ^= 1
            self.store_global(g_c, sums, offsets=[row, column])


class Warps(tilus.Script):
    """C = A @ B.T in tiles of m x n, by mma.sync."""

    def __init__(self, m: int = 256, n: int = 256, warps: int = 16):
        super().__init__()
        self.m, self.n, self.warps = m, n, warps

    def __call__(self, rows: int32, columns: int, k: int, a: void_p, b: void_p, c: void_p):
        self.attrs.blocks = [cdiv(rows, self.m), cdiv(columns, self.n)]
        self.attrs.warps = self.warps
        row: int32 = self.m * self.blockIdx.x
        column: int32 = self.n * self.blockIdx.y
        g_a = self.global_view(a, dtype=float16, shape=[rows, k])
        g_b = self.global_view(b, dtype=float16, shape=[columns, k])
        g_c = self.global_view(c, dtype=float32, shape=[rows, columns])
        s_a = self.shared_tensor(dtype=float16, shape=[self.m, 32])
        s_b = self.shared_tensor(dtype=float16, shape=[self.n, 32])
        sums = self.register_tensor(dtype=float32, shape=[self.m, self.n], init=0.0)
        for at in range(0, k, 32):
            self.copy_async(g_a, s_a, offsets=[row, at])
            self.copy_async(g_b, s_b, offsets=[column, at])
            self.copy_async_wait_all()
            self.sync()
            self.dot(self.load_shared(s_a), self.load_shared(s_b).transpose(), sums, out=sums)  # multiply
            self.sync()
        self.store_global(g_c, sums, offsets=[row, column])
