"""Kernels that multiply nothing, and only move and compute what they are given."""

import tilus
from tilus import float16, float32, int32, uint32, void_p
from tilus.ir.layout import SharedLayout
from tilus.ir.layout.ops import local, spatial
from tilus.utils import cdiv


class Copies(tilus.Script):
    """y = x through shared memory, by TMA: each CTA stays and copies every n-th tile of so many rows and 64 columns."""

    def __init__(self, rows: int = 32, stages: int = 8, ctas: int = 592):
        super().__init__()
        self.rows = rows
        self.stages = stages
        self.ctas = ctas

    def __call__(self, m: int32, n: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = self.ctas
        self.attrs.warps = 4
        self.g_x = self.global_view(x_ptr, dtype=float16, shape=[m, n])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[m, n])
        self.places = self.shared_tensor(dtype=float16, shape=[self.stages, self.rows, 64])
        self.full = self.mbarrier.alloc(counts=[1 for _ in range(self.stages)])
        self.sync()
        self.columns = cdiv(n, 64)
        count: int32 = cdiv(m, self.rows) * self.columns
        with self.single_warp():
            next_tile: int32 = self.blockIdx.x
            for stage in range(self.stages):
                self.ask(next_tile, count, stage)
                next_tile += self.ctas
            place: int32 = 0
            phase: uint32 = 0
            for tile in range(self.blockIdx.x, count, self.ctas):
                self.mbarrier.wait(self.full[place], phase=phase)
                at = [tile // self.columns * self.rows, tile % self.columns * 64]
                self.tma.shared_to_global(self.places[place], g_y, offsets=at)
                self.tma.commit_group()
                self.tma.wait_group(n=0, read=True)
                self.ask(next_tile, count, place)
                next_tile += self.ctas
                place = (place + 1) % self.stages
                phase ^= place == 0

    def ask(self, tile: int32, count: int32, place: int32):
        if tile < count:
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(self.full[place], transaction_bytes=self.rows * 128)
            at = [tile // self.columns * self.rows, tile % self.columns * 64]
            self.tma.global_to_shared(src=self.g_x, dst=self.places[place], offsets=at, mbarrier=self.full[place])


class Turns(tilus.Script):
    """y = x.T: each lane stores its part of a row of x as a column of y, far from those of its neighbours, or first
    gives it to others through shared memory, whose rows are so much longer than they need be."""

    def __init__(self, through_shared: bool = True, padding: int = 0):
        super().__init__()
        self.through_shared = through_shared
        self.padding = padding
        self.layout = local(16, 1).spatial(4, 32).local(1, 2)

    def __call__(self, m: int, n: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = [cdiv(m, 64), cdiv(n, 64)]
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float16, shape=[m, n])
        row: int32 = self.blockIdx.x * 64
        column: int32 = self.blockIdx.y * 64
        r_x = self.load_global(g_x, offsets=[row, column], shape=[64, 64])
        self.annotate_layout(r_x, self.layout)
        if self.through_shared:
            g_y = self.global_view(y_ptr, dtype=float16, shape=[n, m])
            s_x = self.shared_tensor(dtype=float16, shape=[64, 64])
            self.annotate_layout(s_x, SharedLayout.create([64, 64], [64, 64], [64 + self.padding, 1], None))
            self.store_shared(s_x, r_x)
            self.sync()
            r_y = self.load_shared(s_x.permute([1, 0]))
            self.annotate_layout(r_y, self.layout)
            self.store_global(g_y, r_y, offsets=[column, row])
        else:
            g_y_turned = self.global_view(y_ptr, dtype=float16, shape=[m, n], strides=[1, m])
            self.store_global(g_y_turned, r_x, offsets=[row, column])


class SumsOfRows(tilus.Script):
    """y[m] = x[m, n].sum(1) by threads that load themselves, 16 rows in a CTA."""

    def __init__(self, columns: int = 256):
        super().__init__()
        self.columns = columns

    def __call__(self, m: int32, n: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = cdiv(m, 16)
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float32, shape=[m, n])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[m, 1])
        row: int32 = self.blockIdx.x * 16
        r_sum = self.register_tensor(dtype=float32, shape=[16, 1], init=0.0)
        for column in range(0, n, self.columns):
            r_x = self.load_global(g_x, offsets=[row, column], shape=[16, self.columns])
            r_sum = r_sum + self.sum(r_x, dim=1, keepdim=True)
        self.store_global(g_y, r_sum, offsets=[row, 0])


class Computes(tilus.Script):
    """y = f(x), a tile of 64 x 64: so many times exp, so many additions, and so many times less the maximum of a row or
    of a column."""

    def __init__(self, exps: int = 0, adds: int = 0, maxima: int = 0, of_columns: bool = False):
        super().__init__()
        self.exps = exps
        self.adds = adds
        self.maxima = maxima
        self.dim = 0 if of_columns else 1
        self.layout = spatial(4, 1).local(16, 1).spatial(1, 32).local(1, 2)

    def __call__(self, m: int32, n: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = [cdiv(m, 64), cdiv(n, 64)]
        self.attrs.warps = 4
        offsets = [self.blockIdx.x * 64, self.blockIdx.y * 64]
        g_x = self.global_view(x_ptr, dtype=float32, shape=[m, n])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[m, n])
        r = self.load_global(g_x, offsets=offsets, shape=[64, 64])
        self.annotate_layout(r, self.layout)
        for _ in self.range(0, self.exps, 1, unroll="all"):
            r = self.exp(r)
        for _ in self.range(0, self.adds, 1, unroll="all"):
            r = r + 1.0
        for _ in self.range(0, self.maxima, 1, unroll="all"):
            r = r - self.max(r, dim=self.dim, keepdim=True)
        self.store_global(g_y, r, offsets=offsets)
