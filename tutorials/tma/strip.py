"""y = x, a strip of tiles for each CTA, one after the other through the same shared memory. It has a fault."""

from tilus import float16, int32, uint32, void_p
from tilus.utils import cdiv

from blackwell_matmul import Script


class CopyStrip(Script):
    """Exercise 5 of the first lesson: `check` finds the fault."""

    def __init__(self, rows: int = 64, columns: int = 64):
        super().__init__()
        self.rows = rows
        self.columns = columns

    def __call__(self, m: int32, n: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = [cdiv(m, self.rows)]
        self.attrs.warps = 4
        row: int32 = self.rows * self.blockIdx.x
        g_x = self.global_view(x_ptr, dtype=float16, shape=[m, n])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[m, n])
        tile = self.shared_tensor(dtype=float16, shape=[self.rows, self.columns])
        arrived = self.mbarrier.alloc(counts=1)
        phase: uint32 = 0
        self.sync()  # every warp sees the initialised barrier

        for column in range(0, n, self.columns):
            with self.single_warp():
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(arrived, transaction_bytes=tile.nbytes)
                self.tma.global_to_shared(src=g_x, dst=tile, offsets=[row, column], mbarrier=arrived)
            self.mbarrier.wait(arrived, phase=phase)
            self.store_global(g_y, self.load_shared(tile), offsets=[row, column])
            # Threads read through the generic proxy, TMA writes through the async proxy: each reader fences, then sync.
            self.fence.proxy_async(space="shared")
            self.sync()
