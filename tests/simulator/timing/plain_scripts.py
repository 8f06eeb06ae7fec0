"""Kernels without products."""

import tilus
from tilus import float16, float32, float64, int32, uint32, void_p
from tilus.utils import cdiv


class Moves(tilus.Script):
    """y = x by TMA, 32 rows of 64 columns at a time, which CTAs that stay take turns with."""

    def __init__(self, stages: int = 1, ctas: int = 148):
        super().__init__()
        self.stages, self.ctas = stages, ctas

    def __call__(self, m: int32, n: int32, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = self.ctas
        self.attrs.warps = 1
        self.g_x = self.global_view(x_ptr, dtype=float16, shape=[m, n])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[m, n])
        self.tile = self.shared_tensor(dtype=float16, shape=[self.stages, 32, 64])
        self.full = self.mbarrier.alloc(counts=[1 for _ in range(self.stages)])
        self.sync()
        rows: int32 = cdiv(m, 32)
        tiles: int32 = rows * cdiv(n, 64)
        ahead: int32 = self.blockIdx.x
        for first in range(self.stages):
            if ahead < tiles:
                self.load(first, ahead % rows * 32, ahead // rows * 64)
            ahead += self.ctas
        stage: int32 = 0
        phase: uint32 = 0
        for each in range(self.blockIdx.x, tiles, self.ctas):
            self.mbarrier.wait(self.full[stage], phase=phase)
            self.tma.shared_to_global(self.tile[stage], g_y, offsets=[each % rows * 32, each // rows * 64])
            self.tma.commit_group()
            self.tma.wait_group(n=0, read=True)
            if ahead < tiles:
                self.load(stage, ahead % rows * 32, ahead // rows * 64)
            ahead += self.ctas
            stage = (stage + 1) % self.stages
            phase ^= stage == 0

    def load(self, stage: int32, offset_m: int32, offset_n: int32):
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(self.full[stage], transaction_bytes=32 * 64 * 2)
        self.tma.global_to_shared(
            src=self.g_x, dst=self.tile[stage], offsets=[offset_m, offset_n], mbarrier=self.full[stage]
        )


class Sums(tilus.Script):
    """Of each row, by threads, `piece` columns of 16 rows at a time."""

    def __init__(self, piece: int = 64):
        super().__init__()
        self.piece = piece

    def __call__(self, m: int32, n: int32, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = cdiv(m, 16)
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float32, shape=[m, n])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[m, 1])
        row: int32 = 16 * self.blockIdx.x
        total = self.register_tensor(dtype=float32, shape=[16, 1], init=0.0)
        for column in range(0, n, self.piece):
            piece = self.load_global(g_x, offsets=[row, column], shape=[16, self.piece])
            total = total + self.sum(piece, dim=1, keepdim=True)
        self.store_global(g_y, total, offsets=[row, 0])


class Scaled(tilus.Script):
    """y = alpha x, 32 rows at a time; below a threshold one CTA does it all."""

    def __call__(self, n: int32, alpha: float32, threshold: float64, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = [cdiv(n, 32)]
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float32, shape=[n, 64])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[n, 64])
        rows: int32 = 1
        if threshold > 0.5:
            rows = n // 32
        for i in range(rows):
            row: int32 = (self.blockIdx.x + i) % (n // 32) * 32
            self.store_global(g_y, self.load_global(g_x, offsets=[row, 0], shape=[32, 64]) * alpha, offsets=[row, 0])
