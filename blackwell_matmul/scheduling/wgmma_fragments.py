"""Register layouts of wgmma's accumulator, and the same registers viewed as the strips in which C is stored.

One wgmma computes 64 rows, 16 in each warp of a warpgroup (PTX ISA, "Register Fragments" of wgmma.mma_async: D). A
register tensor cannot be cut into columns, but it can be viewed with the strips as a dimension. Strips and rows are its
first dimensions, because in tilus 0.2.0 a slice of a register tensor begins at a multiple of its size.
"""

from tilus import RegisterLayout, SharedLayout
from tilus.ir.layout.ops import register_layout, shared_row_major, shared_row_major_swizzle

from blackwell_matmul.scheduling.mma import Wgmma
from blackwell_matmul.scheduling.tile_config import SWIZZLE_BYTES

MMA_ROWS = Wgmma.rows


def accumulator_layout(rows: int, columns: int) -> RegisterLayout:
    """Return the layout in which wgmma leaves a tile: (64 rows, warp, half, row of 8, 8 columns, lane of 4, pair)."""
    return register_layout(
        shape=[rows, columns],
        mode_shape=[rows // MMA_ROWS, 4, 2, 8, columns // 8, 4, 2],
        spatial_modes=[1, 3, 5],
        local_modes=[0, 4, 2, 6],
    )


def strip_layout(rows: int, columns: int, strip_columns: int) -> RegisterLayout:
    """View the same registers as (rows / 64, strips, 64, strip_columns)."""
    return register_layout(
        shape=[rows // MMA_ROWS, columns // strip_columns, MMA_ROWS, strip_columns],
        mode_shape=[rows // MMA_ROWS, columns // strip_columns, 4, 2, 8, strip_columns // 8, 4, 2],
        spatial_modes=[2, 4, 6],
        local_modes=[0, 1, 5, 3, 7],
    )


def transposed_layout(rows: int, columns: int) -> RegisterLayout:
    """View the registers of one strip as (columns, rows), which tilus stores by stmatrix.trans."""
    return register_layout(
        shape=[columns, rows],
        mode_shape=[columns // 8, 4, 2, 4, 2, 8],
        spatial_modes=[3, 5, 1],
        local_modes=[0, 4, 2],
    )


def pair_layout(rows: int, columns: int) -> RegisterLayout:
    """View the registers of one strip as (rows, columns / 2, 2)."""
    return register_layout(
        shape=[rows, columns // 2, 2],
        mode_shape=[4, 2, 8, columns // 8, 4, 2],
        spatial_modes=[0, 2, 4],
        local_modes=[3, 1, 5],
    )


def buffer_layout(rows: int, columns: int, element_bytes: int) -> SharedLayout:
    """Return the shared layout of a strip of C: swizzled if TMA has a swizzle of its row, else plain rows. tilus 0.2.0
    would cut other rows into columns of 16 to 64 bytes, which no TMA box has."""
    swizzled = columns * element_bytes in SWIZZLE_BYTES
    return shared_row_major_swizzle([rows, columns], element_bytes) if swizzled else shared_row_major(rows, columns)
