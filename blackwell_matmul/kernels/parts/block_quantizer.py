"""Block quantiser: float32 in registers to mxfp8, mxfp4 or nvfp4, with the same bits as `quantize` in torch.

The largest magnitude of a block is the largest of the elements' bits, compared as integers. An infinity is larger than
each number, and NaN larger than an infinity. An example of mxfp4, with scales rounded up:

    block           largest     over 6       scale     byte     elements are multiplied by
    numbers         10.0        1.66..       2         128      0.5
    zeros           0.0         0.0          2^-127    0        2^127
    an infinity     inf                      NaN       255      NaN

The scales of a tile are stored into an atom of 128 rows and 4 blocks (`problem.block_scaled`). Row r has four bytes, at
index [r % 32, r // 32] of the atom's shape [32, 4, 4].
"""

import math

import tilus
from tilus import RegisterTensor, boolean, float8_e4m3, float32, int32, uint8, void_p
from tilus.ir.layout.ops import local
from tilus.utils import cdiv

from blackwell_matmul.lang import FORMATS, Rounded
from blackwell_matmul.problem.block_scaled import BLOCK_SCALED, LARGEST_E2M1, LARGEST_E4M3, SMALLEST_NORMAL_E4M3

INFINITY, POWER, NAN = 0x7F800000, 2**23, 0x7FFFFFFF
"""Bits of fp32: infinity, the lowest bit of the exponent, and the NaN that PTX instructions return."""

NAN_E8M0, BIAS_E8M0 = 255, 127


class BlockQuantizer(tilus.Class):
    """Quantiser of matrices [batches, m, k] and their scales, for tiles of 128 rows and `blocks` blocks of one atom.

    dtype: a key of `lang.FORMATS`. scaling: "rceil" or "floor", how e8m0 scales are rounded. two_levels: True if nvfp4
    has a second scale, one float32 at factor_ptr. threads: threads that hold a tile, whole blocks each. across: number
    of threads that share a row.
    """

    rounded = Rounded()

    def __init__(
        self, dtype: str, scaling: str, two_levels: bool, threads: int, across: int, blocks: int,
        batches: int32, m: int32, k: int, scale_ptr: void_p, factor_ptr: void_p,
    ):  # fmt: skip
        self.format = FORMATS[dtype]
        rows, each = threads // across, blocks // across
        places = local(128 // rows, 1, 1).spatial(rows, across, 1)
        self.layout = places.local(1, each, self.format.block)
        self.scale_layout = places.local(1, each, 1)
        lines = rows // 32
        self.atom_layout = local(1, 4 // lines, 1).spatial(1, lines, 1).spatial(32, 1, across).local(1, 1, each)
        self.largest = BLOCK_SCALED[dtype].largest
        self.scaling = scaling
        self.two_levels = two_levels
        self.m: int32 = m
        self.blocks = k // self.format.block  # of a row of the matrix
        self.g_scales = self.global_view(
            scale_ptr, dtype=uint8, shape=[batches, cdiv(m, 128), cdiv(self.blocks, 4), 32, 4, 4]
        )
        if two_levels:
            self.g_factor = self.global_view(factor_ptr, dtype=float32, shape=[1, 1, 1])

    def quantize(self, r: RegisterTensor):
        """Return the quantised elements [rows, blocks, bytes] of r [rows, blocks, block], float32, and the scales
        [rows, blocks, 1], bytes in int32."""
        self.annotate_layout(r, self.layout)
        r_largest = self.max(self.rounded.magnitude(r), dim=2, keepdim=True)
        if self.format.scale == float8_e4m3:
            r_scales, r_reciprocal = self.numbers(r_largest)
        else:
            r_scales, r_reciprocal = self.powers(r_largest)
        r_scaled = self.rounded.mul(r, r_reciprocal)
        # Both conversions round to nearest even, and take numbers beyond the largest one as that one.
        r_data = self.rounded.e2m1x2(r_scaled) if self.format.per_byte == 2 else r_scaled.to(float8_e4m3)
        return r_data, r_scales

    def powers(self, r_largest: RegisterTensor):
        """Return the e8m0 scales of blocks, as bytes in int32, and their reciprocals."""
        r_finite = r_largest < INFINITY
        r_zero = self.register_tensor(dtype=int32, shape=[1, 1, 1], init=0)
        r_bits = self.where(r_finite, r_largest, r_zero)
        if self.scaling == "rceil":
            r_inverse = self.register_tensor(dtype=float32, shape=[1, 1, 1], init=1 / self.largest)
            r_byte = self.rounded.ue8m0(self.rounded.mul(self.number(r_bits), r_inverse), up=True)
        else:
            r_byte = self.rounded.ue8m0(self.number(r_bits), up=False) - int(math.log2(self.largest))
            r_byte = self.maximum(r_byte, r_zero)
        r_nan = self.register_tensor(dtype=int32, shape=[1, 1, 1], init=NAN)
        r_reciprocal = self.where(r_finite, (2 * BIAS_E8M0 - r_byte) * POWER, r_nan)
        r_nan_byte = self.register_tensor(dtype=int32, shape=[1, 1, 1], init=NAN_E8M0)
        return self.where(r_finite, r_byte, r_nan_byte), self.number(r_reciprocal)

    def numbers(self, r_largest: RegisterTensor):
        """Return the e4m3 scales of blocks, as bytes in int32, and the reciprocals of both scales' product."""
        r_six = self.register_tensor(dtype=float32, shape=[1, 1, 1], init=LARGEST_E2M1)
        r_inverse = self.register_tensor(dtype=float32, shape=[1, 1, 1], init=1.0)
        r_exact = self.rounded.div(self.number(r_largest), r_six)
        if self.two_levels:
            r_factor = self.load_global(self.g_factor, offsets=[0, 0, 0], shape=[1, 1, 1])
            r_exact = self.rounded.div(r_exact, r_factor)
            r_inverse = self.rounded.div(r_inverse, r_factor)
        r_nan = self.register_tensor(dtype=int32, shape=[1, 1, 1], init=NAN)
        r_clipped = self.bits(self.clip(r_exact, SMALLEST_NORMAL_E4M3, LARGEST_E4M3))
        r_bits = self.where(r_largest > INFINITY, r_nan, r_clipped)  # clip turns NaN into a number
        r_scale = self.number(r_bits).to(float8_e4m3)
        self.annotate_layout(r_scale, self.scale_layout)
        r_byte = self.view(r_scale, layout=self.scale_layout, dtype=uint8)
        return r_byte.to(int32), self.rounded.div(r_inverse, r_scale.to(float32))

    def number(self, r_bits: RegisterTensor):
        """Return the float32 with these bits. r_bits has one int32 for each block."""
        self.annotate_layout(r_bits, self.scale_layout)
        return self.view(r_bits, layout=self.scale_layout, dtype=float32)

    def bits(self, r: RegisterTensor):
        """Return the bits of r as int32. r has one float32 for each block."""
        self.annotate_layout(r, self.scale_layout)
        return self.view(r, layout=self.scale_layout, dtype=int32)

    def store_scales(self, r_scales: RegisterTensor, batch: int32, row: int32, block: int32):
        """Store the scales [rows, blocks, 1] of the tile that begins at this row and block. Padding gets zeros."""
        rows, blocks, _ = r_scales.shape
        r_row = self.register_tensor(dtype=boolean, shape=[rows, 1, 1], init=lambda i, j, _: row + i < self.m)
        r_column = self.register_tensor(
            dtype=boolean, shape=[1, blocks, 1], init=lambda i, j, _: block + j < self.blocks
        )
        r_zero = self.register_tensor(dtype=int32, shape=[1, 1, 1], init=0)
        r_bytes = self.where(r_row, self.where(r_column, r_scales, r_zero), r_zero).to(uint8)
        self.annotate_layout(r_bytes, self.scale_layout)
        self.store_global(
            self.g_scales,
            self.view(r_bytes, layout=self.atom_layout),
            offsets=[batch, row // 128, block // 4, 0, 0, 0 if blocks == 4 else block % 4],
            dims=[3, 4, 5],
        )
