"""y = x by TMA in both directions: one tile of shared memory, one mbarrier."""

from tilus import float16, int32, void_p
from tilus.utils import cdiv

from blackwell_matmul import Script


class TmaCopy(Script):
    def __init__(self, block: int = 64):
        super().__init__()
        self.block = block

    def __call__(self, m: int32, n: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = cdiv(m, self.block), cdiv(n, self.block)
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float16, shape=[m, n])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[m, n])
        s_x = self.shared_tensor(dtype=float16, shape=[self.block, self.block])
        arrived = self.mbarrier.alloc(counts=1)
        offset_m: int32 = self.block * self.blockIdx.x
        offset_n: int32 = self.block * self.blockIdx.y
        self.sync()
        with self.single_warp():
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(arrived, transaction_bytes=s_x.nbytes)
            self.tma.global_to_shared(src=g_x, dst=s_x, offsets=[offset_m, offset_n], mbarrier=arrived)
            self.mbarrier.wait(arrived, phase=0)
            self.tma.shared_to_global(s_x, g_y, offsets=[offset_m, offset_n])
            self.tma.commit_group()
            self.tma.wait_group(n=0)
