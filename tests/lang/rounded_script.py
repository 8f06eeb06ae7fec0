"""A script with all statements of `Rounded`, on a tile of 32 x 64 numbers.

Its knobs are read by tilus: no `from __future__ import annotations`.
"""

from tilus import float32, int32, void_p
from tilus.ir.layout.ops import spatial

from blackwell_matmul.lang import Rounded, float4_e2m1x2
from blackwell_matmul.runtime.script import Script


class EveryRounding(Script):
    """Sums, products, quotients, magnitudes, powers up and down, and e2m1 of the products.

    each: neighbours in a thread. x_type, columns: wrong ones are refused.
    """

    rounded = Rounded()

    def __init__(self, each=16, x_type=float32, columns=64):
        super().__init__()
        self.each, self.x_type, self.columns = each, x_type, columns
        self.layout = spatial(32, 4).local(1, each) if each == 16 else spatial(8, 16).local(4, each)

    def __call__(self, x: void_p, y: void_p, results: void_p, bits: void_p, packed: void_p):
        self.attrs.blocks = [1]
        self.attrs.warps = 4
        g_x = self.global_view(x, dtype=self.x_type, shape=[32, self.columns])
        g_y = self.global_view(y, dtype=float32, shape=[32, 1])
        g_results = self.global_view(results, dtype=float32, shape=[3, 32, self.columns])
        g_bits = self.global_view(bits, dtype=int32, shape=[3, 32, self.columns])
        g_packed = self.global_view(packed, dtype=float4_e2m1x2, shape=[32, self.columns // 2])
        r_x = self.load_global(g_x, offsets=[0, 0], shape=[32, self.columns])
        if self.columns == 64:
            self.annotate_layout(r_x, self.layout)
        r_y = self.load_global(g_y, offsets=[0, 0], shape=[32, 1])
        r_product = self.rounded.mul(r_x, r_y)
        self.store_global(g_results, self.rounded.add(r_x, r_y), offsets=[0, 0, 0], dims=[1, 2])
        self.store_global(g_results, r_product, offsets=[1, 0, 0], dims=[1, 2])
        self.store_global(g_results, self.rounded.div(r_x, r_y), offsets=[2, 0, 0], dims=[1, 2])
        r_size = self.rounded.mul(r_x, r_x)
        self.store_global(g_bits, self.rounded.magnitude(r_x), offsets=[0, 0, 0], dims=[1, 2])
        self.store_global(g_bits, self.rounded.ue8m0(r_size, up=True), offsets=[1, 0, 0], dims=[1, 2])
        self.store_global(g_bits, self.rounded.ue8m0(r_size, up=False), offsets=[2, 0, 0], dims=[1, 2])
        self.store_global(g_packed, self.rounded.e2m1x2(r_product), offsets=[0, 0])


class NothingWritten(Script):
    """The conversion of a product of registers that nobody has written."""

    rounded = Rounded()

    def __init__(self):
        super().__init__()
        self.layout = spatial(32, 4).local(1, 16)

    def __call__(self, packed: void_p):
        self.attrs.blocks = [1]
        self.attrs.warps = 4
        g_packed = self.global_view(packed, dtype=float4_e2m1x2, shape=[32, 32])
        r_x = self.register_tensor(dtype=float32, shape=[32, 64])
        self.annotate_layout(r_x, self.layout)
        self.store_global(g_packed, self.rounded.e2m1x2(self.rounded.mul(r_x, r_x)), offsets=[0, 0])
