"""y = x, tile by tile, through shared memory: three kernels that differ in how a tile gets there."""

from tilus import float16, int32, void_p
from tilus.utils import cdiv

from blackwell_matmul import Script


class CopyByLoads(Script):
    """Global memory -> registers -> shared memory, by every thread."""

    def __init__(self, rows: int = 64, columns: int = 64):
        super().__init__()
        self.rows = rows
        self.columns = columns

    def __call__(self, m: int32, n: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = [cdiv(m, self.rows), cdiv(n, self.columns)]
        self.attrs.warps = 4
        row: int32 = self.rows * self.blockIdx.x
        column: int32 = self.columns * self.blockIdx.y
        g_x = self.global_view(x_ptr, dtype=float16, shape=[m, n])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[m, n])
        tile = self.shared_tensor(dtype=float16, shape=[self.rows, self.columns])

        registers = self.load_global(g_x, offsets=[row, column], shape=[self.rows, self.columns])
        self.store_shared(tile, registers)
        self.sync()  # the tile is there once all threads have stored their part

        self.store_global(g_y, self.load_shared(tile), offsets=[row, column])


class CopyByCpAsync(Script):
    """Global memory -> shared memory, past the registers, in pieces of at most 16 bytes, by every thread."""

    def __init__(self, rows: int = 64, columns: int = 64):
        super().__init__()
        self.rows = rows
        self.columns = columns

    def __call__(self, m: int32, n: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = [cdiv(m, self.rows), cdiv(n, self.columns)]
        self.attrs.warps = 4
        row: int32 = self.rows * self.blockIdx.x
        column: int32 = self.columns * self.blockIdx.y
        g_x = self.global_view(x_ptr, dtype=float16, shape=[m, n])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[m, n])
        tile = self.shared_tensor(dtype=float16, shape=[self.rows, self.columns])

        self.copy_async(src=g_x, dst=tile, offsets=[row, column])
        self.copy_async_wait_all()  # a thread waits for its own copies
        self.sync()  # and then for the others

        self.store_global(g_y, self.load_shared(tile), offsets=[row, column])


class CopyByTma(Script):
    """Global memory -> shared memory, a whole tile, asked for by one thread."""

    def __init__(self, rows: int = 64, columns: int = 64):
        super().__init__()
        self.rows = rows
        self.columns = columns

    def __call__(self, m: int32, n: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = [cdiv(m, self.rows), cdiv(n, self.columns)]
        self.attrs.warps = 4
        row: int32 = self.rows * self.blockIdx.x
        column: int32 = self.columns * self.blockIdx.y
        g_x = self.global_view(x_ptr, dtype=float16, shape=[m, n])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[m, n])
        tile = self.shared_tensor(dtype=float16, shape=[self.rows, self.columns])

        arrived = self.mbarrier.alloc(counts=1)  # a phase needs one arrival, and the bytes that it announces
        self.sync()  # every warp sees the initialised barrier
        with self.single_warp():
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(arrived, transaction_bytes=tile.nbytes)
            self.tma.global_to_shared(src=g_x, dst=tile, offsets=[row, column], mbarrier=arrived)
        self.mbarrier.wait(arrived, phase=0)  # every thread waits; TMA's writes need no fence

        self.store_global(g_y, self.load_shared(tile), offsets=[row, column])
