"""Register layouts of a strip that tcgen05.load brings, a row in each thread (PTX ISA, "tcgen05.ld": 32x32b)."""

from tilus import RegisterLayout
from tilus.ir.layout.ops import spatial


def strip_layout(rows: int, columns: int) -> RegisterLayout:
    return spatial(rows, 1).local(1, columns)


def pair_layout(rows: int, columns: int) -> RegisterLayout:
    """View the registers of one strip as (rows, columns / 2, 2)."""
    return spatial(rows, 1, 1).local(1, columns // 2, 2)
