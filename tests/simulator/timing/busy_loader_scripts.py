"""A product on tcgen05 whose warp that loads may have something else to do."""

import tilus
from tilus import float16, float32, int32, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.parts.ring import Ring


class BusyLoader(tilus.Script):
    """CTAs stay. own: a warp of its own loads; else the first of those that store a tile does, before it stores. sums:
    places for an accumulator."""

    def __init__(self, own: bool = False, sums: int = 2):
        super().__init__()
        self.own, self.sums = own, sums

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        self.tiles_m = cdiv(m, 128)
        tiles: int32 = self.tiles_m * cdiv(n, 256)
        self.attrs.blocks = 148
        self.attrs.warps = 6
        self.g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        self.g_b = self.global_view(b_ptr, dtype=float16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        self.s_a = self.shared_tensor(dtype=float16, shape=[3, 128, 64])
        self.s_b = self.shared_tensor(dtype=float16, shape=[3, 256, 64])
        s_c = self.shared_tensor(dtype=float16, shape=[128, 64])
        self.ring = Ring(3)
        sums = Ring(self.sums, empties=128)
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[self.sums, 128, 256])
        self.sync()
        if self.own:
            with self.single_warp(4):
                for tile in range(self.blockIdx.x, tiles, self.gridDim.x):
                    self.load(tile, k)
        with self.single_warp(5):
            for _ in range(self.blockIdx.x, tiles, self.gridDim.x):
                sums.wait_empty()
                for offset_k in range(0, k, 64):
                    self.ring.wait_full()
                    a, b = self.s_a[self.ring.stage], self.s_b[self.ring.stage].transpose()
                    self.tcgen05.mma(a, b, t_acc[sums.stage], enable_input_d=offset_k != 0)
                    self.tcgen05.commit(mbarrier=self.ring.empty())
                    self.ring.advance()
                self.tcgen05.commit(mbarrier=sums.full())
                sums.advance()
        with self.warp_group(0, 4):
            for tile in range(self.blockIdx.x, tiles, self.gridDim.x):
                if not self.own:
                    with self.single_warp(0):
                        self.load(tile, k)
                sums.wait_full()
                for strip_n in range(0, 256, 64):
                    t_strip = self.tcgen05.slice(t_acc[sums.stage], [0, strip_n], [0, 1], [128, 64])
                    r_strip = self.tcgen05.load(t_strip)
                    self.tcgen05.wait_load()
                    self.store_shared(s_c, r_strip.to(float16))
                    self.fence.proxy_async(space="shared")
                    self.sync()
                    with self.single_warp():
                        offsets_c = [tile % self.tiles_m * 128, tile // self.tiles_m * 256 + strip_n]
                        self.tma.shared_to_global(s_c, g_c, offsets=offsets_c)
                        self.tma.commit_group()
                        self.tma.wait_group(n=0, read=True)
                    self.sync()
                self.mbarrier.arrive(sums.empty())
                sums.advance()
        self.sync()
        self.tcgen05.dealloc(t_acc)

    def load(self, tile: int32, k: int):
        ring = self.ring
        for offset_k in range(0, k, 64):
            ring.wait_empty()
            stage, full = ring.stage, ring.full()
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=384 * 64 * 2)
            offsets_a = [tile % self.tiles_m * 128, offset_k]
            offsets_b = [tile // self.tiles_m * 256, offset_k]
            self.tma.global_to_shared(src=self.g_a, dst=self.s_a[stage], offsets=offsets_a, mbarrier=full)
            self.tma.global_to_shared(src=self.g_b, dst=self.s_b[stage], offsets=offsets_b, mbarrier=full)
            ring.advance()
