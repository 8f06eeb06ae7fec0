"""Small kernels whose time is known on paper."""

import tilus
from tilus import float16, float32, int32, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.parts.ring import Ring


class TwoMultiply(tilus.Script):
    """A CTA of one product, which keeps the right to allocate or gives it up."""

    def __init__(self, gives_up: bool, products: int):
        super().__init__()
        self.gives_up = gives_up
        self.products = products

    def __call__(self, ctas: int, a_ptr: void_p, b_ptr: void_p):
        self.attrs.blocks = ctas
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=float16, shape=[128, 64])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[256, 64])
        s_a = self.shared_tensor(dtype=float16, shape=[128, 64])
        s_b = self.shared_tensor(dtype=float16, shape=[256, 64])
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[128, 256])
        if self.gives_up:
            with self.single_warp():
                self.tcgen05.relinquish_alloc_permit(cta_group=1)
        full = self.mbarrier.alloc(1)
        done = self.mbarrier.alloc(1)
        self.sync()
        with self.single_warp(1):
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=s_a.nbytes + s_b.nbytes)
            self.tma.global_to_shared(src=g_a, dst=s_a, offsets=[0, 0], mbarrier=full)
            self.tma.global_to_shared(src=g_b, dst=s_b, offsets=[0, 0], mbarrier=full)
            self.mbarrier.wait(full, phase=0)
            phase: int32 = 0
            for i in range(self.products):
                self.tcgen05.mma(s_a, s_b.transpose(), t_acc, enable_input_d=i != 0)
                self.tcgen05.commit(mbarrier=done)
                self.mbarrier.wait(done, phase=phase)
                phase ^= 1
        self.sync()
        self.tcgen05.dealloc(t_acc)


class Endless(tilus.Script):
    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        turns: int32 = 0
        while turns < 1:
            turns = turns * 1


class Stays(tilus.Script):
    """CTAs that stay, each with every n-th tile of 128 x 128; after the first round far apart if scattered.
    stores: the warp that loads stores something, too."""

    def __init__(self, ctas: int = 8, stages: int = 4, scattered: bool = False, stores: bool = False):
        super().__init__()
        self.stores = stores
        self.ctas = ctas
        self.stages = stages
        self.scattered = scattered

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        columns = cdiv(n, 128)
        count: int32 = cdiv(m, 128) * columns
        self.attrs.blocks = self.ctas
        self.attrs.warps = 6
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        s_a = self.shared_tensor(dtype=float16, shape=[self.stages, 128, 64])
        s_b = self.shared_tensor(dtype=float16, shape=[self.stages, 128, 64])
        ring = Ring(self.stages)
        sums = Ring(2, empties=128)
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[2, 128, 128])
        self.sync()
        first: int32 = self.blockIdx.x
        with self.single_warp(4):
            for t in range(first, count, self.ctas):
                tile = self.place(t, count)
                for offset_k in range(0, k, 64):
                    ring.wait_empty()
                    stage = ring.stage
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(ring.full(), transaction_bytes=2 * 128 * 64 * 2)
                    offset_m: int32 = tile // columns * 128
                    offset_n: int32 = tile % columns * 128
                    self.tma.global_to_shared(
                        src=g_a, dst=s_a[stage], offsets=[offset_m, offset_k], mbarrier=ring.full()
                    )
                    self.tma.global_to_shared(
                        src=g_b, dst=s_b[stage], offsets=[offset_n, offset_k], mbarrier=ring.full()
                    )
                    ring.advance()
                if self.stores:
                    for part in range(4):
                        self.tma.shared_to_global(s_a[0], g_c, offsets=[part % 2 * 128, part * 64])
                    self.tma.commit_group()
                    self.tma.wait_group(n=0, read=True)
        with self.single_warp(5):
            for _ in range(first, count, self.ctas):
                sums.wait_empty()
                for offset_k in range(0, k, 64):
                    ring.wait_full()
                    stage = ring.stage
                    self.tcgen05.mma(
                        s_a[stage], s_b[stage].transpose(), t_acc[sums.stage], enable_input_d=offset_k != 0
                    )
                    self.tcgen05.commit(mbarrier=ring.empty())
                    ring.advance()
                self.tcgen05.commit(mbarrier=sums.full())
                sums.advance()
        with self.warp_group(0, 4):
            for t in range(first, count, self.ctas):
                tile = self.place(t, count)
                sums.wait_full()
                for strip_n in range(0, 128, 8):
                    t_strip = self.tcgen05.slice(t_acc[sums.stage], [0, strip_n], [0, 1], [128, 8])
                    r_strip = self.tcgen05.load(t_strip)
                    self.tcgen05.wait_load()
                    offsets = [tile // columns * 128, tile % columns * 128 + strip_n]
                    self.store_global(g_c, r_strip.to(float16), offsets=offsets)
                self.mbarrier.arrive(sums.empty())
                sums.advance()
        self.sync()
        self.tcgen05.dealloc(t_acc)

    def place(self, t: int32, count: int32):
        tile: int32 = t
        if self.scattered:
            if t >= self.ctas:
                tile = (t - self.ctas) * 37 % (count - self.ctas) + self.ctas
        return tile
