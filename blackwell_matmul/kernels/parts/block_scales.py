"""Block scales: multiplies each sum of 128 products by a scale of A and a scale of B; the results are added in fp32.

A scale belongs to one row of an operand, or to 128 rows that begin at a multiple of 128. An example of 64 x 96 sums
that begin at column 64, with 1x128 scales of A and 128x128 scales of B, in strips of 32 columns:

    columns     64..95   96..127  128..159
    row 0       a0 b0    a0 b0    a0 b1         b0: first scale of B, b1: second one, of the columns from 128 on
    row 1       a1 b0    a1 b0    a1 b1

TMA loads the scales of a k-tile into its stage. In memory, scales of rows are [k / 128, rows], and scales of blocks
[rows / 128, k / 128]. Lines are multiples of 16 bytes (`problem.form.block_scale_shapes`).
"""

import tilus
from tilus import RegisterTensor, boolean, float32, int32, void_p
from tilus.utils import cdiv

from blackwell_matmul.problem.form import PADDED_SCALES, SCALED_K
from blackwell_matmul.scheduling.mma import SCALES_OF_A_LINE
from blackwell_matmul.scheduling.wgmma_fragments import MMA_ROWS, accumulator_layout, strip_layout


class StagedScales(tilus.Class):
    """Scales of one operand in shared memory, for a tile of `length` rows and 128 elements along k in each stage.

    of_blocks: True if 128 rows share a scale. A stage then has a line of scales along k, of which its k-tile needs one.
    """

    def __init__(self, scale_ptr: void_p, rows: int32, k: int32, of_blocks: bool, length: int, stages: int):
        self.of_blocks = of_blocks
        self.length = length
        blocks = cdiv(length - 1, SCALED_K) + 1  # a tile may begin within one
        sizes = [cdiv(rows, SCALED_K), cdiv(k, SCALED_K)] if self.of_blocks else [cdiv(k, SCALED_K), rows]
        line = cdiv(sizes[1], PADDED_SCALES) * PADDED_SCALES
        self.scales = self.global_view(scale_ptr, dtype=float32, shape=[sizes[0], line])
        self.shape = [blocks, SCALES_OF_A_LINE] if self.of_blocks else [1, length]
        self.staged = self.shared_tensor(dtype=float32, shape=[stages, *self.shape])

    def load(self, stage: int32, row: int32, block_k: int32, mbarrier: RegisterTensor):
        """Load a k-tile's scales of the rows from `row` on. block_k: index of the k-tile."""
        line: int32 = block_k // SCALES_OF_A_LINE * SCALES_OF_A_LINE
        offsets = [row // SCALED_K, line] if self.of_blocks else [block_k, row]
        self.tma.global_to_shared(src=self.scales, dst=self.staged[stage], offsets=offsets, mbarrier=mbarrier)


class ScalesOfRows(tilus.Class):
    """Scales of one operand for the sums [1, strips, 64, strip_n] of one warpgroup.

    dim: dimension of the sums along which the operand's rows are. first: index of the warpgroup's first row in the
    tile. length: number of its rows.
    """

    def __init__(self, scales: StagedScales, first: int, length: int, strips: int, dim: int):
        self.of_blocks = scales.of_blocks
        self.first = first
        self.place = first // length
        self.dim = dim
        self.step = 1 if dim == 2 else length // strips
        self.parts = length // self.step  # rows or strips
        of_each = [1, 1, length, 1] if dim == 2 else [1, 1, 1, length]
        of_some = [1, 1, length, 1] if dim == 2 else [1, strips, 1, 1]
        self.shape = of_some if self.of_blocks else of_each
        one = [*scales.shape, 1, 1, 1, 1] if self.of_blocks else [scales.length // length, *of_each]
        self.staged = self.reshape_shared(scales.staged, [scales.staged.shape[0], *one])

    def begin(self, row: int32):
        """Prepare for a tile whose first row is `row`: find the scale of each row."""
        if self.of_blocks:
            self.block: int32 = (row % SCALED_K + self.first) // SCALED_K  # of the warpgroup's first row
            self.behind: int32 = cdiv(SCALED_K - (row + self.first) % SCALED_K, self.step)  # that many share the first
            self.r_is_first = self.register_tensor(
                dtype=boolean,
                shape=self.shape,
                init=lambda i, strip, r, c: (r if self.dim == 2 else strip) < self.behind,
            )

    def read(self, stage: int32, block_k: int32):
        """Return the scales of a stage in registers, in a shape that broadcasts to the sums."""
        if self.of_blocks:
            place: int32 = block_k % SCALES_OF_A_LINE
            r_first = self.load_shared(self.staged[stage, self.block, place])
            # While a zero is used here, ptxas of CUDA 13.0 lets the first wgmma overwrite the sums and writes no zeros.
            r_next = self.register_tensor(dtype=float32, shape=[1, 1, 1, 1], init=0.0)
            if self.behind < self.parts:
                self.assign(r_next, self.load_shared(self.staged[stage, self.block + 1, place]))
            r_scales = self.where(self.r_is_first, r_first, r_next)
        else:
            r_scales = self.load_shared(self.staged[stage, self.place])
        return r_scales


class BlockScales(tilus.Class):
    """Scales of both operands for a warpgroup's 64 rows of sums.

    of_rows: scales of the operand whose rows are rows of the sums. of_columns: scales of the other operand. which:
    number of the warpgroup. strip_n: columns of a strip.
    """

    def __init__(self, of_rows: StagedScales, of_columns: StagedScales, which: int, block_n: int, strip_n: int):
        strips = block_n // strip_n
        self.few = of_columns.of_blocks
        self.of_rows = ScalesOfRows(of_rows, which * MMA_ROWS, MMA_ROWS, 1, 2)
        self.of_columns = ScalesOfRows(of_columns, 0, block_n, strips, 3)
        self.r_rows = self.register_tensor(dtype=float32, shape=[1, strips if self.few else 1, MMA_ROWS, 1])
        if not self.few:
            self.r_columns = self.register_tensor(dtype=float32, shape=[1, 1, 1, block_n])
        self.sums = accumulator_layout(MMA_ROWS, block_n)
        self.strips = strip_layout(MMA_ROWS, block_n, strip_n)

    def begin(self, row: int32, column: int32, first: int32, step: int32):
        """Begin a tile whose first sum is [row, column]. first: index of the first k-tile. step: 1, or -1 for the order
        backwards."""
        self.block_k: int32 = first
        self.step: int32 = step
        self.of_rows.begin(row)
        self.of_columns.begin(column)

    def read(self, stage: int32):
        """Load the scales of a stage into registers. The stage may be overwritten afterwards."""
        if self.few:
            self.assign(self.r_rows, self.of_rows.read(stage, self.block_k) * self.of_columns.read(stage, self.block_k))
        else:
            self.assign(self.r_rows, self.of_rows.read(stage, self.block_k))
            self.assign(self.r_columns, self.of_columns.read(stage, self.block_k))
        self.block_k += self.step
        self.fence.proxy_async(space="shared")  # TMA writes the next scales through the async proxy
        self.sync()

    def scaled(self, r_sums: RegisterTensor):
        """Return the sums times the scales of the last `read`."""
        self.annotate_layout(r_sums, self.sums)
        r_scaled = self.view(r_sums, layout=self.strips) * self.r_rows
        if not self.few:
            r_scaled = r_scaled * self.r_columns
        self.annotate_layout(r_scaled, self.strips)
        return self.view(r_scaled, layout=self.sums)
