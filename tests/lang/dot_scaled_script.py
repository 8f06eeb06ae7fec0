"""A script with one block-scaled product of registers, of whatever types, shapes and layout.

Its knobs are read by tilus: no `from __future__ import annotations`.
"""

from tilus import float8_e4m3, float32, void_p

from blackwell_matmul.lang import BlockScaledWarps, float4_e2m1x2
from blackwell_matmul.runtime.script import Script
from blackwell_matmul.scheduling.mma_sync_fragments import accumulator_layout


class OneDot(Script):
    """nvfp4 128x128x128 in eight warps, unless a knob says otherwise; A and B begin at `first_row` of their scales."""

    target = "sm_120a"
    mma_sync = BlockScaledWarps()

    def __init__(
        self,
        element=float4_e2m1x2,
        b_element=None,
        scale=float8_e4m3,
        scale_b=None,
        block=16,
        m=128,
        n=128,
        k_bytes=64,
        k_bytes_of_b=None,
        c_rows=None,
        atoms=2,
        rows=None,
        first_row=0,
        c_type=float32,
        strip=64,
        layout=True,
        stored=(2, 256),
    ):
        super().__init__()
        self.element, self.b_element, self.block = element, b_element or element, block
        self.scale, self.scale_b, self.c_type = scale, scale_b or scale, c_type
        self.m, self.n, self.k_bytes, self.k_bytes_of_b = m, n, k_bytes, k_bytes_of_b or k_bytes
        self.c_rows, self.atoms, self.rows, self.first_row = c_rows or m, atoms, rows or m, first_row
        self.layout = accumulator_layout(self.c_rows, n, strip) if layout is True else layout
        self.stored = [1, atoms, *stored]

    def __call__(self, k: int, a: void_p, b: void_p, scale_a: void_p, scale_b: void_p, c: void_p):
        self.attrs.blocks = [1]
        self.attrs.warps = 8
        g_a = self.global_view(a, dtype=self.element, shape=[self.m, self.k_bytes])
        g_b = self.global_view(b, dtype=self.b_element, shape=[self.n, self.k_bytes_of_b])
        g_scale_a = self.global_view(scale_a, dtype=self.scale, shape=self.stored)
        g_scale_b = self.global_view(scale_b, dtype=self.scale_b, shape=self.stored)
        g_c = self.global_view(c, dtype=self.c_type, shape=[self.c_rows, self.n])
        s_a = self.shared_tensor(dtype=self.element, shape=[self.m, self.k_bytes])
        s_b = self.shared_tensor(dtype=self.b_element, shape=[self.n, self.k_bytes_of_b])
        s_scale_a = self.shared_tensor(dtype=self.scale, shape=self.stored)
        s_scale_b = self.shared_tensor(dtype=self.scale_b, shape=self.stored)
        loaded = self.mbarrier.alloc(counts=1)
        self.sync()
        with self.single_warp():
            with self.single_thread():
                nbytes = s_a.nbytes + s_b.nbytes + s_scale_a.nbytes + s_scale_b.nbytes
                self.mbarrier.arrive_and_expect_tx(loaded, transaction_bytes=nbytes)
            self.tma.global_to_shared(src=g_a, dst=s_a, offsets=[0, 0], mbarrier=loaded)
            self.tma.global_to_shared(src=g_b, dst=s_b, offsets=[0, 0], mbarrier=loaded)
            self.tma.global_to_shared(src=g_scale_a, dst=s_scale_a, offsets=[0, 0, 0, 0], mbarrier=loaded)
            self.tma.global_to_shared(src=g_scale_b, dst=s_scale_b, offsets=[0, 0, 0, 0], mbarrier=loaded)
        self.mbarrier.wait(loaded, phase=0)
        r_a = self.load_shared(s_a)
        r_b = self.load_shared(s_b)
        r_scale_a = self.mma_sync.load_scales(s_scale_a, rows=self.rows, first_row=self.first_row)
        r_scale_b = self.mma_sync.load_scales(s_scale_b, rows=self.n, first_row=self.first_row)
        r_c = self.register_tensor(dtype=self.c_type, shape=[self.c_rows, self.n], init=0.0)
        if self.layout is not None:
            self.annotate_layout(r_c, self.layout)
        r_d = self.mma_sync.dot_scaled(r_a, r_b.transpose(), r_c, r_scale_a, r_scale_b, block=self.block)
        self.store_global(g_c, r_d, offsets=[0, 0])
