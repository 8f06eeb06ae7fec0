"""Small scripts of many CTAs, most of which do the same as the one before."""

import tilus
from tilus import DataType, float16, float32, int32, void_p

ROWS, COLUMNS = 32, 64


class Relay(tilus.Script):
    """y = x: each CTA takes 32 rows, and a second warp takes them from the first by way of shared memory. The CTA
    numbered `careless` leaves out the sync between the two."""

    def __init__(self, careless: int = -1):
        super().__init__()
        self.careless = careless

    def __call__(self, ctas: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = ctas
        self.attrs.warps = 2
        g_x = self.global_view(x_ptr, dtype=float32, shape=[ctas * ROWS, COLUMNS])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[ctas * ROWS, COLUMNS])
        s = self.shared_tensor(dtype=float32, shape=[ROWS, COLUMNS])
        row: int32 = self.blockIdx.x * ROWS
        with self.single_warp(0):
            self.store_shared(s, self.load_global(g_x, offsets=[row, 0], shape=[ROWS, COLUMNS]))  # store
        if self.blockIdx.x != self.careless:
            self.sync()
        with self.single_warp(1):
            self.store_global(g_y, self.load_shared(s), offsets=[row, 0])  # load


class TwoTiles(tilus.Script):
    """Each of two warps stores one tile, and no sync is between them. The second tile begins `apart` rows below the
    first; in the CTA numbered `close`, 16 rows below, where the two overlap. ordered: there is a sync."""

    def __init__(self, close: int = -1, apart: int = ROWS, ordered: bool = False):
        super().__init__()
        self.close = close
        self.apart = apart
        self.ordered = ordered

    def __call__(self, ctas: int, y_ptr: void_p):
        self.attrs.blocks = ctas
        self.attrs.warps = 2
        g_y = self.global_view(y_ptr, dtype=float32, shape=[ctas * 2 * ROWS, COLUMNS])
        row: int32 = self.blockIdx.x * 2 * ROWS
        apart: int32 = self.apart
        if self.blockIdx.x == self.close:
            apart = ROWS // 2
        with self.single_warp(0):
            ones = self.register_tensor(dtype=float32, shape=[ROWS, COLUMNS], init=1.0)
            self.store_global(g_y, ones, offsets=[row, 0])  # first
        if self.ordered:
            self.sync()
        with self.single_warp(1):
            twos = self.register_tensor(dtype=float32, shape=[ROWS, COLUMNS], init=2.0)
            self.store_global(g_y, twos, offsets=[row + apart, 0])  # second


class Crossing(tilus.Script):
    """Two warps store to one tensor by two views, one from its first tile on, the other from its last one back."""

    def __call__(self, ctas: int, y_ptr: void_p):
        self.attrs.blocks = ctas
        self.attrs.warps = 2
        g_up = self.global_view(y_ptr, dtype=float32, shape=[ctas * ROWS, COLUMNS])
        g_down = self.global_view(y_ptr, dtype=float32, shape=[ctas * ROWS, COLUMNS])
        row: int32 = self.blockIdx.x * ROWS
        last: int32 = (ctas - 1) * ROWS
        values = self.register_tensor(dtype=float32, shape=[ROWS, COLUMNS], init=1.0)
        with self.single_warp(0):
            self.store_global(g_up, values, offsets=[row, 0])
        with self.single_warp(1):
            self.store_global(g_down, values + 1.0, offsets=[last - row, 0])


class SameTile(tilus.Script):
    """Two neighbours store to one tile."""

    def __call__(self, ctas: int, y_ptr: void_p):
        self.attrs.blocks = ctas
        self.attrs.warps = 1
        g_y = self.global_view(y_ptr, dtype=float32, shape=[ctas * ROWS, COLUMNS])
        values = self.register_tensor(dtype=float32, shape=[ROWS, COLUMNS], init=1.0)
        self.store_global(g_y, values, offsets=[self.blockIdx.x // 2 * ROWS, 0])


class Numbered(tilus.Script):
    """Each CTA stores its number: no two do the same."""

    def __call__(self, ctas: int, y_ptr: void_p):
        self.attrs.blocks = ctas
        self.attrs.warps = 1
        g_y = self.global_view(y_ptr, dtype=float32, shape=[ctas * ROWS, COLUMNS])
        number: int32 = self.blockIdx.x
        values = self.register_tensor(dtype=int32, shape=[ROWS, COLUMNS], init=lambda i, j: number).to(float32)
        self.store_global(g_y, values, offsets=[self.blockIdx.x * ROWS, 0])


class Signed(tilus.Script):
    """The first three CTAs store 0.0, the others -0.0."""

    def __call__(self, ctas: int, y_ptr: void_p):
        self.attrs.blocks = ctas
        self.attrs.warps = 1
        g_y = self.global_view(y_ptr, dtype=float32, shape=[ctas * ROWS, COLUMNS])
        distance: int32 = 2 - self.blockIdx.x
        tiny: float32 = distance * 1e-30
        zero: float32 = tiny * 1e-30  # less than float32 can hold
        values = self.register_tensor(dtype=float32, shape=[ROWS, COLUMNS], init=lambda i, j: zero)
        self.store_global(g_y, values, offsets=[self.blockIdx.x * ROWS, 0])


class Turns(tilus.Script):
    """A CTA makes one turn more than the second before it."""

    def __call__(self, ctas: int, y_ptr: void_p):
        self.attrs.blocks = ctas
        self.attrs.warps = 1
        g_y = self.global_view(y_ptr, dtype=float32, shape=[ctas * ROWS, COLUMNS])
        values = self.register_tensor(dtype=float32, shape=[ROWS, COLUMNS], init=0.0)
        for _ in range(self.blockIdx.x // 2):
            values += 1.0
        self.store_global(g_y, values, offsets=[self.blockIdx.x * ROWS, 0])


class Unwritten(tilus.Script):
    """Each CTA stores what it finds in tensor memory and in shared memory, and then writes there."""

    def __call__(self, ctas: int, y_ptr: void_p):
        self.attrs.blocks = ctas
        self.attrs.warps = 4
        g_y = self.global_view(y_ptr, dtype=float32, shape=[ctas * 256, 32])
        s = self.shared_tensor(dtype=float32, shape=[128, 32])
        t = self.tcgen05.alloc(dtype=float32, shape=[128, 32])
        self.sync()
        found = self.tcgen05.load(t)
        self.tcgen05.wait_load()
        self.store_global(g_y, found, offsets=[self.blockIdx.x * 256, 0])
        self.store_global(g_y, self.load_shared(s), offsets=[self.blockIdx.x * 256 + 128, 0])
        self.sync()
        ones = self.register_tensor(dtype=float32, shape=[128, 32], init=1.0)
        self.store_shared(s, ones)
        self.tcgen05.store(t, ones)
        self.tcgen05.wait_store()
        self.sync()
        self.tcgen05.dealloc(t)


class FromMemory(tilus.Script):
    """Each CTA makes as many turns as memory says."""

    def __call__(self, ctas: int, n_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = ctas
        self.attrs.warps = 1
        g_n = self.global_view(n_ptr, dtype=int32, shape=[ctas])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[ctas * ROWS, COLUMNS])
        values = self.register_tensor(dtype=float32, shape=[ROWS, COLUMNS], init=0.0)
        turns: int32 = g_n[self.blockIdx.x].item()
        for _ in range(turns):
            values += 1.0
        self.store_global(g_y, values, offsets=[self.blockIdx.x * ROWS, 0])


class Ring(tilus.Script):
    """y = x[:, reversed tiles], by TMA through a ring of two slots; each CTA has its rows, and its own first tile."""

    def __init__(self, turn: bool = False):
        super().__init__()
        self.turn = turn

    def __call__(self, m: int32, tiles: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = (m + ROWS - 1) // ROWS
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float16, shape=[m, tiles * COLUMNS])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[m, tiles * COLUMNS])
        s = self.shared_tensor(dtype=float16, shape=[2, ROWS, COLUMNS])
        full = self.mbarrier.alloc(counts=[1, 1])
        row: int32 = self.blockIdx.x * ROWS
        first: int32 = self.blockIdx.x % tiles if self.turn else 0
        self.sync()
        for i in range(tiles):
            tile: int32 = (i + first) % tiles
            slot: int32 = i % 2
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full[slot], transaction_bytes=ROWS * COLUMNS * 2)
            self.tma.global_to_shared(src=g_x, dst=s[slot], offsets=[row, tile * COLUMNS], mbarrier=full[slot])
            self.mbarrier.wait(full[slot], phase=i // 2 % 2)
            self.tma.shared_to_global(s[slot], g_y, offsets=[row, (tiles - 1 - tile) * COLUMNS])
            self.tma.commit_group()
            self.tma.wait_group(n=0)
            self.sync()


class Shifted(tilus.Script):
    """Four columns of y are those of x, by TMA, for each CTA; they are `step` columns apart."""

    def __init__(self, step: int):
        super().__init__()
        self.step = step

    def __call__(self, ctas: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = ctas
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float32, shape=[ROWS, 64])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[ROWS, 64])
        s = self.shared_tensor(dtype=float32, shape=[ROWS, 4])
        full = self.mbarrier.alloc(counts=1)
        self.sync()
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=s.nbytes)
        self.tma.global_to_shared(src=g_x, dst=s, offsets=[0, self.blockIdx.x * self.step], mbarrier=full)
        self.mbarrier.wait(full, phase=0)
        self.store_global(g_y, self.load_shared(s), offsets=[0, self.blockIdx.x * self.step])


class Chosen(tilus.Script):
    """y is x where x is not negative, and elsewhere registers that nothing has written; or, filled, 32 rows of x."""

    def __init__(self, filled: bool = False):
        super().__init__()
        self.filled = filled

    def __call__(self, ctas: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = ctas
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float32, shape=[ctas * ROWS, COLUMNS])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[ctas * ROWS, COLUMNS])
        row: int32 = self.blockIdx.x * ROWS
        x = self.load_global(g_x, offsets=[row, 0], shape=[ROWS, COLUMNS])
        y = self.register_tensor(dtype=float32, shape=[ROWS, COLUMNS])
        if self.filled:
            self.assign(y, x)
            self.store_global(g_y, y, offsets=[row, 0])
        else:
            self.store_global(g_y, self.where(x >= 0.0, x, y), offsets=[row, 0])


ROWS_64, WIDTH, STEP = 64, 16, 32


class Apart(tilus.Script):
    """D = A @ B.T over two k-tiles for each CTA, which begin 32 columns apart in CTAs of an even number and twice that
    in the others; with `odd_first` the other way round. fault: what is left out, or done besides."""

    target = "sm_90a"

    def __init__(
        self, acc_dtype: DataType = float32, odd_first: bool = False, fault: str = "", dtype: DataType = float16
    ):
        super().__init__()
        self.dtype = dtype
        self.acc_dtype = acc_dtype
        self.odd_first = odd_first
        self.fault = fault

    def __call__(self, ctas: int, a_ptr: void_p, b_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = ctas
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=self.dtype, shape=[ctas * ROWS_64, 4 * STEP])
        g_b = self.global_view(b_ptr, dtype=self.dtype, shape=[WIDTH, 4 * STEP])
        g_d = self.global_view(d_ptr, dtype=self.acc_dtype, shape=[ctas * ROWS_64, WIDTH])
        s_a = self.shared_tensor(dtype=self.dtype, shape=[ROWS_64, STEP])
        s_b = self.shared_tensor(dtype=self.dtype, shape=[WIDTH, STEP])
        full = self.mbarrier.alloc(counts=1)
        self.sync()
        row: int32 = self.blockIdx.x * ROWS_64
        first: int32 = 1 if self.odd_first else 0
        distance: int32 = (1 + (self.blockIdx.x + first) % 2) * STEP
        acc = self.register_tensor(dtype=self.acc_dtype, shape=[ROWS_64, WIDTH], init=0)
        looked = self.register_tensor(dtype=self.acc_dtype, shape=[ROWS_64, WIDTH], init=0)
        for i in range(2):
            with self.single_warp(0):
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=s_a.nbytes + s_b.nbytes)
                self.tma.global_to_shared(src=g_a, dst=s_a, offsets=[row, i * distance], mbarrier=full)
                self.tma.global_to_shared(src=g_b, dst=s_b, offsets=[0, i * distance], mbarrier=full)
            if self.fault != "no wait":
                self.mbarrier.wait(full, phase=i % 2)
            if self.fault != "no fence" or i == 0:
                self.wgmma.fence()
            self.wgmma.mma(s_a, s_b.transpose(), acc)
            self.wgmma.commit_group()
            self.wgmma.wait_group(0)
            if self.fault == "no fence":
                self.assign(looked, looked + acc)  # look
            self.sync()
        self.store_global(g_d, acc + looked, offsets=[row, 0])


class ApartInTensorMemory(tilus.Script):
    """The same by tcgen05, with 128 rows to a CTA."""

    def __init__(self, odd_first: bool = False):
        super().__init__()
        self.odd_first = odd_first

    def __call__(self, ctas: int, a_ptr: void_p, b_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = ctas
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=float16, shape=[ctas * 128, 4 * STEP])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[WIDTH, 4 * STEP])
        g_d = self.global_view(d_ptr, dtype=float32, shape=[ctas * 128, WIDTH])
        s_a = self.shared_tensor(dtype=float16, shape=[128, STEP])
        s_b = self.shared_tensor(dtype=float16, shape=[WIDTH, STEP])
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[128, WIDTH])
        loaded, done = self.mbarrier.alloc(counts=1), self.mbarrier.alloc(counts=1)
        self.sync()
        row: int32 = self.blockIdx.x * 128
        first: int32 = 1 if self.odd_first else 0
        distance: int32 = (1 + (self.blockIdx.x + first) % 2) * STEP
        for i in range(2):
            with self.single_warp(0):
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(loaded, transaction_bytes=s_a.nbytes + s_b.nbytes)
                self.tma.global_to_shared(src=g_a, dst=s_a, offsets=[row, i * distance], mbarrier=loaded)
                self.tma.global_to_shared(src=g_b, dst=s_b, offsets=[0, i * distance], mbarrier=loaded)
                self.mbarrier.wait(loaded, phase=i % 2)
                self.tcgen05.mma(s_a, s_b.transpose(), t_acc, enable_input_d=i != 0)
                self.tcgen05.commit(mbarrier=done)
                self.mbarrier.wait(done, phase=i % 2)
            self.sync()
        r_acc = self.tcgen05.load(t_acc)
        self.tcgen05.wait_load()
        self.store_global(g_d, r_acc, offsets=[row, 0])
        self.sync()
        self.tcgen05.dealloc(t_acc)


class Halves(tilus.Script):
    """D = A @ B.T, 64 rows for each CTA, that come in two halves: the second begins 32 rows below the first in CTAs of
    an even number, and twice that in the others; with `odd_first` the other way round."""

    target = "sm_90a"

    def __init__(self, odd_first: bool = False):
        super().__init__()
        self.odd_first = odd_first

    def __call__(self, ctas: int, a_ptr: void_p, b_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = ctas
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=float16, shape=[ctas * 128, 4 * STEP])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[WIDTH, 4 * STEP])
        g_d = self.global_view(d_ptr, dtype=float32, shape=[ctas * ROWS_64, WIDTH])
        s_a = self.shared_tensor(dtype=float16, shape=[ROWS_64, 2 * STEP])
        s_b = self.shared_tensor(dtype=float16, shape=[WIDTH, 2 * STEP])
        s_h = self.reshape_shared(s_a, [2, 32, 2 * STEP])
        full = self.mbarrier.alloc(counts=1)
        self.sync()
        row: int32 = self.blockIdx.x * 128
        first: int32 = 1 if self.odd_first else 0
        distance: int32 = (1 + (self.blockIdx.x + first) % 2) * 32
        acc = self.register_tensor(dtype=float32, shape=[ROWS_64, WIDTH], init=0)
        for i in range(2):
            with self.single_warp(0):
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=s_a.nbytes + s_b.nbytes)
                self.tma.global_to_shared(src=g_a, dst=s_h[0], offsets=[row, i * 2 * STEP], mbarrier=full)
                self.tma.global_to_shared(src=g_a, dst=s_h[1], offsets=[row + distance, i * 2 * STEP], mbarrier=full)
                self.tma.global_to_shared(src=g_b, dst=s_b, offsets=[0, i * 2 * STEP], mbarrier=full)
            self.mbarrier.wait(full, phase=i % 2)
            self.wgmma.fence()
            self.wgmma.mma(s_a, s_b.transpose(), acc)
            self.wgmma.commit_group()
            self.wgmma.wait_group(0)
            self.sync()
        self.store_global(g_d, acc, offsets=[self.blockIdx.x * ROWS_64, 0])
