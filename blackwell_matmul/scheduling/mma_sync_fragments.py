"""Register layouts of a tile of C in eight warps, and the same registers viewed as strips.

One mma.sync computes 16 rows and 8 columns (PTX ISA, "Matrix Fragments for mma.m16n8k16": D). Four warps share the rows
and two the columns of a strip. The strips come first in a thread's registers, because tilus 0.2.0 reads other slices
wrong (`frontend/faults/register_slices.py`).
"""

from tilus import RegisterLayout
from tilus.ir.layout.ops import register_layout

from blackwell_matmul.scheduling.mma import MmaSync

WARPS_M, WARPS_N = MmaSync.warps_m, MmaSync.warps_n
MMA_ROWS, MMA_COLUMNS = 16, 8


def accumulator_layout(rows: int, columns: int, strip_columns: int) -> RegisterLayout:
    """Return the layout of a tile: (warp, 16 rows, half, row of 8; strip, warp, 8 columns, lane of 4, pair)."""
    rows_each, columns_each = rows // (WARPS_M * MMA_ROWS), strip_columns // (WARPS_N * MMA_COLUMNS)
    return register_layout(
        shape=[rows, columns],
        mode_shape=[WARPS_M, rows_each, 2, 8, columns // strip_columns, WARPS_N, columns_each, 4, 2],
        spatial_modes=[0, 5, 3, 7],
        local_modes=[4, 1, 6, 2, 8],
    )


def strip_layout(rows: int, columns: int, strip_columns: int) -> RegisterLayout:
    """View the same registers as (strips, rows, strip_columns)."""
    rows_each, columns_each = rows // (WARPS_M * MMA_ROWS), strip_columns // (WARPS_N * MMA_COLUMNS)
    return register_layout(
        shape=[columns // strip_columns, rows, strip_columns],
        mode_shape=[columns // strip_columns, WARPS_M, rows_each, 2, 8, WARPS_N, columns_each, 4, 2],
        spatial_modes=[1, 5, 4, 7],
        local_modes=[0, 2, 6, 3, 8],
    )
