"""A script with one block-scaled product, of whatever types and shapes; it stores nothing.

Its knobs are read by tilus: no `from __future__ import annotations`.
"""

from tilus import float8_e4m3, float32, int32

from blackwell_matmul.lang import BlockScaled, float4_e2m1x2
from blackwell_matmul.runtime.script import Script


class OneProduct(Script):
    """nvfp4 128x128x256 unless a knob says otherwise."""

    tcgen05 = BlockScaled()

    def __init__(
        self,
        a_type=float4_e2m1x2,
        b_type=float4_e2m1x2,
        scale_type=float8_e4m3,
        scale_b_type=float8_e4m3,
        a_shape=(128, 128),
        b_shape=(128, 128),
        transposed=True,
        d_type=float32,
        n=128,
        scale_a_rows=128,
        scale_b_rows=128,
        blocks=16,
        block=16,
        first_row=0,
        cta_group=1,
        copied=None,
        columns_before=0,
    ):
        super().__init__()
        self.a_type, self.b_type, self.d_type = a_type, b_type, d_type
        self.scale_type, self.scale_b_type = scale_type, scale_b_type
        self.a_shape, self.b_shape, self.transposed, self.n = list(a_shape), list(b_shape), transposed, n
        self.scale_a_rows, self.scale_b_rows, self.blocks = scale_a_rows, scale_b_rows, blocks
        self.block, self.first_row, self.cta_group, self.columns_before = block, first_row, cta_group, columns_before
        self.copied = list(copied or (-(-scale_a_rows // 128), -(-blocks // 4), 2, 256))

    def __call__(self, m: int32):
        self.attrs.blocks = [m * self.cta_group]
        self.attrs.cluster_blocks = [self.cta_group, 1, 1]
        self.attrs.warps = 4
        s_a = self.shared_tensor(dtype=self.a_type, shape=self.a_shape)
        s_b = self.shared_tensor(dtype=self.b_type, shape=self.b_shape)
        s_scale = self.shared_tensor(dtype=self.scale_type, shape=self.copied)
        if self.columns_before:
            t_before = self.tcgen05.alloc(dtype=float32, shape=[128, self.columns_before], cta_group=self.cta_group)
        t_acc = self.tcgen05.alloc(dtype=self.d_type, shape=[128, self.n], cta_group=self.cta_group)
        t_scale_a = self.tcgen05.alloc_scales(self.scale_type, self.scale_a_rows, self.blocks, self.cta_group)
        t_scale_b = self.tcgen05.alloc_scales(self.scale_b_type, self.scale_b_rows, self.blocks, self.cta_group)
        with self.single_warp():
            self.tcgen05.copy_scales(s_scale, t_scale_a, cta_group=self.cta_group)
            if self.transposed:
                self.tcgen05.mma_scaled(
                    s_a, s_b.transpose(), t_acc, t_scale_a, t_scale_b,
                    block=self.block, enable_input_d=False, first_row=self.first_row, cta_group=self.cta_group,
                )  # fmt: skip
            else:
                self.tcgen05.mma_scaled(s_a, s_b, t_acc, t_scale_a, t_scale_b, block=self.block, enable_input_d=False)
        self.sync()
        self.tcgen05.dealloc(t_scale_b)
        self.tcgen05.dealloc(t_scale_a)
        self.tcgen05.dealloc(t_acc)
        if self.columns_before:
            self.tcgen05.dealloc(t_before)


class OutsideOfAWarp(OneProduct):
    """Scales that all four warps copy."""

    def __call__(self, m: int32):
        self.attrs.blocks = [m]
        self.attrs.warps = 4
        s_scale = self.shared_tensor(dtype=self.scale_type, shape=[1, 4, 2, 256])
        t_scale = self.tcgen05.alloc_scales(self.scale_type, rows=128, blocks=16)
        self.tcgen05.copy_scales(s_scale, t_scale)
        self.tcgen05.dealloc(t_scale)


class ColumnsAsScales(OneProduct):
    """Columns of an accumulator's allocation as scales: the `n` of them that the knob says."""

    def __call__(self, m: int32):
        self.attrs.blocks = [m]
        self.attrs.warps = 4
        t_all = self.tcgen05.alloc(dtype=self.d_type, shape=[128, 512])
        t_columns = self.tcgen05.slice(t_all, [0, 256], [0, 1], [128, self.n])
        s_scale = self.shared_tensor(dtype=self.scale_type, shape=self.copied)
        t_scale = self.tcgen05.view_scales(t_columns, self.scale_type, self.scale_a_rows, self.blocks)
        with self.single_warp():
            self.tcgen05.copy_scales(s_scale, t_scale)
        self.sync()
        self.tcgen05.dealloc(t_all)
