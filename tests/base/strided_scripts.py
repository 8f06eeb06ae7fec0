"""Kernels that copy a matrix, and what they assume of how it lies."""

import tilus
from tilus import float32, int32


class Copied(tilus.Script):
    """Takes no strides."""

    def __init__(self):
        super().__init__()

    def __call__(self, m: int32, n: int, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = [1]
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float32, shape=[m, n])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[m, n])
        self.store_global(g_y, self.load_global(g_x, offsets=[0, 0], shape=[32, 32]), offsets=[0, 0])


class CopiedWithStrides(tilus.Script):
    def __init__(self):
        super().__init__()

    def __call__(self, m: int32, n: int, row: int32, column: int32, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = [1]
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float32, shape=[m, n], strides=[row, column])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[m, n])
        self.store_global(g_y, self.load_global(g_x, offsets=[0, 0], shape=[32, 32]), offsets=[0, 0])


class Flat(tilus.Script):
    """Views the elements behind the first 16 as a line; extent and pointer have names of their own."""

    def __init__(self):
        super().__init__()

    def __call__(self, m: int32, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = [1]
        self.attrs.warps = 4
        count = m * 16
        rest = x_ptr + 16
        g_x = self.global_view(rest, dtype=float32, shape=[count - 16])
        g_y = self.global_view(y_ptr + 16, dtype=float32, shape=[count - 16])
        self.store_global(g_y, self.load_global(g_x, offsets=[0], shape=[1024]), offsets=[0])
