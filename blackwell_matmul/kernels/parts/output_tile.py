"""Output tile: the first row and column of a tile at the edge of C, and the store of its strips.

TMA fills rows that do not exist with zeros. If many SMs load at the same time, such calls took up to 1.9 times as long
(bench/results/h100_tails.json). So the last tiles begin at a smaller row or column. An example of m = 200 with
block_m = 128:

    tile 0    computes and stores rows 0 to 127
    tile 1    computes rows 72 to 199, stores rows 128 to 199       last_m = 72, the first row that it computes

The first row is a multiple of 8, the first column a multiple of a strip. The preceding tile stores the overlap.

Rows of C that TMA cannot store are stored element by element (`parts.element_store`).
"""

import tilus
from tilus import GlobalTensor, RegisterTensor, SharedTensor, int32
from tilus.utils import cdiv

from blackwell_matmul.kernels.parts.element_store import ElementStore
from blackwell_matmul.scheduling.tile_config import LAST_ROWS
from blackwell_matmul.scheduling.wgmma_fragments import MMA_ROWS, accumulator_layout, buffer_layout, transposed_layout


class OutputTile(tilus.Class):
    """Tiles of block_m x block_n sums, stored in strips of strip_n columns.

    m, n: size of the computed matrix: C, or its transpose with `swap_ab`. A strip of the transpose is transposed as it
    is written to shared memory (PTX ISA, "stmatrix", .trans). per_column: columns of sums for each column of C.
    """

    def __init__(
        self,
        g_c: GlobalTensor,
        m: int32,
        n: int32,
        block_m: int,
        block_n: int,
        strip_n: int,
        per_column: int,
        swap_ab: bool,
    ):
        self.swap_ab = swap_ab
        self.g_c = g_c
        self.per_column = per_column
        columns = strip_n // per_column
        self.rows, self.columns = (strip_n, MMA_ROWS) if swap_ab else (MMA_ROWS, columns)  # of C, in a strip
        self.stored = min(self.rows, block_n if swap_ab else block_m)
        self.layout = buffer_layout(self.rows, self.columns, g_c.dtype.nbytes)
        self.sum_layout = accumulator_layout(MMA_ROWS, strip_n)
        self.transposed_layout = transposed_layout(MMA_ROWS, strip_n)
        step_m, step_n = (MMA_ROWS, LAST_ROWS) if swap_ab else (LAST_ROWS, strip_n)
        self.last_m: int32 = cdiv(m, step_m) * step_m - block_m if m > block_m else 0
        self.last_n: int32 = cdiv(n, step_n) * step_n - block_n if n > block_n else 0

    def begin(self, tile_m: int32, tile_n: int32):
        """Return the first row and column that a tile computes. tile_m, tile_n: first row and column that it stores."""
        return min(tile_m, self.last_m), min(tile_n, self.last_n)

    def buffers(self, groups: int, number: int):
        """Return shared memory for `number` strips of each of `groups` warpgroups."""
        return self.shared_tensor(dtype=self.g_c.dtype, shape=[groups, number, self.rows, self.columns])

    def put(self, s_strip: SharedTensor, r_strip: RegisterTensor):
        """Store a strip from registers into shared memory, in rows of C."""
        self.annotate_layout(s_strip, self.layout)
        self.store_shared(s_strip, self.transposed(r_strip) if self.swap_ab else r_strip)

    def transposed(self, r: RegisterTensor):
        """Return the transpose of a strip, a view of the same registers."""
        self.annotate_layout(r, self.sum_layout)
        return self.view(r, layout=self.transposed_layout)

    def store(
        self,
        s_strip: SharedTensor,
        batch: int32,
        at_m: int32,
        at_n: int32,
        tile_m: int32,
        tile_n: int32,
    ):
        """Store a strip from shared memory into C by TMA, except elements that the preceding tile stores.

        at_m, at_n: row and column of the strip's first sum. tile_m, tile_n: first row and column that the tile stores.
        """
        row, column = self.of_c(at_m, at_n)
        first_row, first_column = self.of_c(tile_m, tile_n)
        if column >= first_column:
            if row >= first_row:
                s_rows = self.reshape_shared(s_strip, [self.rows // self.stored, self.stored, self.columns])
                self.leave(s_rows[0], batch, row, column)
            else:
                s_parts = self.reshape_shared(s_strip, [self.rows // LAST_ROWS, LAST_ROWS, self.columns])
                for part in range(1, self.stored // LAST_ROWS):
                    if row + part * LAST_ROWS >= first_row:
                        self.leave(s_parts[part], batch, row + part * LAST_ROWS, column)

    def store_elements(
        self,
        elements: ElementStore,
        s_strip: SharedTensor,
        batch: int32,
        at_m: int32,
        at_n: int32,
        tile_m: int32,
        tile_n: int32,
    ):
        """Store the same elements as `store`, by all threads of a warpgroup."""
        row, column = self.of_c(at_m, at_n)
        first_row, first_column = self.of_c(tile_m, tile_n)
        if column >= first_column:
            s_rows = self.reshape_shared(s_strip, [self.rows // self.stored, self.stored, self.columns])
            elements.store(s_rows[0], batch, row, column, first_row)

    def of_c(self, m: int32, n: int32):
        """Return the row and column of C of a sum."""
        return (n, m) if self.swap_ab else (m, n // self.per_column)

    def leave(self, s_rows: SharedTensor, batch: int32, row: int32, column: int32):
        """Store rows from shared memory into C, by TMA."""
        if len(self.g_c.shape) == 2:
            self.tma.shared_to_global(s_rows, self.g_c, offsets=[row, column])
        else:
            self.tma.shared_to_global(s_rows, self.g_c, offsets=[batch, row, column], dims=[1, 2])
