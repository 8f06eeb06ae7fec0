"""Block scales: each sum of 128 products is multiplied by a scale of A and a scale of B, and then added up in fp32.

A scale belongs to one row of an operand, or to 128 rows that begin at a multiple of 128. An example of 64 x 96 sums
that begin at column 64, with 1x128 scales of A and 128x128 scales of B, in strips of 32 columns:

    columns     64..95   96..127  128..159
    row 0       a0 b0    a0 b0    a0 b1         b0: first scale of B, b1: second one, of the columns from 128 on
    row 1       a1 b0    a1 b0    a1 b1

In memory scales of rows are [k / 128, rows], scales of blocks [rows / 128, k / 128], the latter padded to multiples of
four along k, as torch and cuBLAS have both.
"""

import tilus
from tilus import RegisterTensor, float32, int32, void_p
from tilus.utils import cdiv

from blackwell_matmul.problem.form import PADDED_SCALES, SCALED_K
from blackwell_matmul.scheduling.wgmma_fragments import MMA_ROWS, accumulator_layout, strip_layout


class ScalesOfRows(tilus.Class):
    """Scales of one operand, for one of 128 of k at a time; `dim` is the dimension of its rows in the tile's sums.

    The sums are [1, strips, 64, strip_n]. A strip has one scale if 128 rows of the operand share one.
    """

    def __init__(
        self, scale_ptr: void_p, rows: int32, k: int32, rows_per_scale: int, length: int, strips: int, dim: int
    ):
        self.rows_per_scale = rows_per_scale
        self.dim = dim
        self.step = 1 if dim == 2 else length // strips
        self.shape = [1, 1, length, 1] if dim == 2 else [1, 1, 1, length] if rows_per_scale == 1 else [1, strips, 1, 1]
        blocks_k: int32 = cdiv(k, SCALED_K)
        if rows_per_scale == 1:
            shape = [blocks_k, 1, 1, rows, 1] if dim == 2 else [blocks_k, 1, 1, 1, rows]
        else:
            shape = [cdiv(rows, SCALED_K), cdiv(blocks_k, PADDED_SCALES) * PADDED_SCALES, 1, 1, 1, 1]
        self.scales = self.global_view(scale_ptr, dtype=float32, shape=shape)

    def begin(self, row: int32, block_k: int32):
        """Load the scales of rows from `row` on, for the first 128 of k."""
        self.row: int32 = row
        if self.rows_per_scale == 1:
            self.r_scale = self.loaded(block_k)
        else:
            behind: int32 = cdiv(SCALED_K - row % SCALED_K, self.step)  # rows or strips that the first scale belongs to
            self.r_is_first = self.register_tensor(
                dtype=tilus.boolean,
                shape=self.shape,
                init=lambda i, strip, r, c: (r if self.dim == 2 else strip) < behind,
            )
            self.r_first = self.loaded_block(0, block_k)
            self.r_second = self.loaded_block(1, block_k)

    def loaded(self, block_k: int32):
        """Return a scale for each row."""
        offsets = [block_k, 0, 0, self.row, 0] if self.dim == 2 else [block_k, 0, 0, 0, self.row]
        return self.load_global(self.scales, offsets=offsets, shape=self.shape, dims=[1, 2, 3, 4])

    def loaded_block(self, block: int, block_k: int32):
        """Return the scale of the tile's first 128 rows, or of those after them."""
        offsets = [self.row // SCALED_K + block, block_k, 0, 0, 0, 0]
        return self.load_global(self.scales, offsets=offsets, shape=[1, 1, 1, 1], dims=[2, 3, 4, 5])

    def of_sums(self):
        """Return the scales that were loaded last, which the sums can be multiplied by."""
        if self.rows_per_scale == 1:
            r_scale = self.r_scale
        else:
            r_scale = self.where(self.r_is_first, self.r_first, self.r_second)
        return r_scale

    def load(self, block_k: int32):
        """Load the scales for other 128 of k."""
        if self.rows_per_scale == 1:
            self.assign(self.r_scale, self.loaded(block_k))
        else:
            self.assign(self.r_first, self.loaded_block(0, block_k))
            self.assign(self.r_second, self.loaded_block(1, block_k))


class BlockScales(tilus.Class):
    """Scales of both operands, for a warpgroup's 64 rows of sums, loaded one k-tile of 128 ahead.

    of_rows, of_columns: of the operands whose rows are rows and columns of the sums. strip_n: columns of a strip.
    """

    def __init__(self, of_rows: ScalesOfRows, of_columns: ScalesOfRows, block_n: int, strip_n: int):
        self.of_rows = of_rows
        self.of_columns = of_columns
        self.block_n = block_n
        self.strip_n = strip_n
        self.sums = accumulator_layout(MMA_ROWS, block_n)
        self.strips = strip_layout(MMA_ROWS, block_n, strip_n)

    def begin(self, row: int32, column: int32, first: int32, step: int32):
        """Load the first scales of the sums from [row, column] on. first, step: 128 of k, and which come after it."""
        self.block_k: int32 = first
        self.step: int32 = step
        self.of_rows.begin(row, first)
        self.of_columns.begin(column, first)
        if self.of_columns.rows_per_scale > 1:
            self.r_scale = self.register_tensor(dtype=float32, shape=[1, self.block_n // self.strip_n, MMA_ROWS, 1])

    def advance(self):
        """Multiply the scales while the MMA runs, if they are few, and load the next ones."""
        if self.of_columns.rows_per_scale > 1:
            self.assign(self.r_scale, self.of_rows.of_sums() * self.of_columns.of_sums())
            self.load()

    def load(self):
        """Load the scales for the next 128 of k."""
        self.block_k += self.step
        self.of_rows.load(self.block_k)
        self.of_columns.load(self.block_k)

    def scaled(self, r_sums: RegisterTensor):
        """Return the sums times their scales."""
        self.annotate_layout(r_sums, self.sums)
        r_strips = self.view(r_sums, layout=self.strips)
        if self.of_columns.rows_per_scale > 1:
            r_product = r_strips * self.r_scale
        else:
            r_product = r_strips * self.of_rows.of_sums() * self.of_columns.of_sums()
            self.load()
        self.annotate_layout(r_product, self.strips)
        return self.view(r_product, layout=self.sums)
