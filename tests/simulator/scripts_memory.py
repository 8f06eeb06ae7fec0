"""Small scripts that load, store, slice and reuse memory."""

import tilus
from tilus import float16, float32, int32, uint8, void_p
from tilus.utils import cdiv


class Copy2D(tilus.Script):
    """Tiles of a matrix, given by element strides, to a dense one; edges are masked."""

    def __init__(self, dtype, block: tuple = (16, 32), warps: int = 2):
        super().__init__()
        self.dtype = dtype
        self.block = block
        self.warps = warps

    def __call__(self, m: int32, n: int32, row: int32, column: int32, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = cdiv(m, self.block[0]), cdiv(n, self.block[1])
        self.attrs.warps = self.warps
        g_x = self.global_view(x_ptr, dtype=self.dtype, shape=[m, n], strides=[row, column])
        g_y = self.global_view(y_ptr, dtype=self.dtype, shape=[m, n])
        offsets = [self.blockIdx.x * self.block[0], self.blockIdx.y * self.block[1]]
        tile = self.load_global(g_x, offsets=offsets, shape=[self.block[0], self.block[1]])
        self.store_global(g_y, tile, offsets=offsets)


class CopyND(tilus.Script):
    """A tensor of rank 1, 3 or 4, a vector or a plane at a time."""

    def __init__(self, rank: int):
        super().__init__()
        self.rank = rank

    def __call__(self, a: int32, b: int32, c: int32, d: int32, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = cdiv(a, 64) if self.rank == 1 else (a, b if self.rank == 4 else 1)
        self.attrs.warps = 1
        x, y = self.blockIdx.x, self.blockIdx.y
        if self.rank == 1:
            g_x = self.global_view(x_ptr, dtype=int32, shape=[a])
            g_y = self.global_view(y_ptr, dtype=int32, shape=[a])
            self.store_global(g_y, self.load_global(g_x, offsets=[x * 64], shape=[64]), offsets=[x * 64])
        elif self.rank == 3:
            g_x = self.global_view(x_ptr, dtype=int32, shape=[a, b, c])
            g_y = self.global_view(y_ptr, dtype=int32, shape=[a, b, c])
            part = self.load_global(g_x, offsets=[x, 0, 0], shape=[8, 16], dims=[1, 2])
            self.store_global(g_y, part, offsets=[x, 0, 0], dims=[1, 2])
        else:
            g_x = self.global_view(x_ptr, dtype=int32, shape=[a, b, c, d])
            g_y = self.global_view(y_ptr, dtype=int32, shape=[a, b, c, d])
            self.store_global(g_y[x, y], self.load_global(g_x[x, y], offsets=[0, 0], shape=[8, 16]), offsets=[0, 0])


class Offset(tilus.Script):
    """A pointer into the middle of an argument."""

    def __call__(self, start: int32, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr + start, dtype=float32, shape=[32])
        self.store_global(
            self.global_view(y_ptr, dtype=float32, shape=[32]),
            self.load_global(g_x, offsets=[0], shape=[32]),
            offsets=[0],
        )


class AddOne(tilus.Script):
    """y = x + 1, 64 elements a CTA."""

    def __init__(self, warps: int):
        super().__init__()
        self.warps = warps

    def __call__(self, n: int32, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = cdiv(n, 64)
        self.attrs.warps = self.warps
        at: int32 = 64 * self.blockIdx.x
        g_x = self.global_view(x_ptr, dtype=float32, shape=[n])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[n])
        self.store_global(g_y, self.load_global(g_x, offsets=[at], shape=[64]) + 1.0, offsets=[at])


class TooLarge(tilus.Script):
    """A view that claims n elements."""

    def __call__(self, n: int32, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float32, shape=[n])
        x = self.load_global(g_x, offsets=[0], shape=[64])
        self.store_global(self.global_view(y_ptr, dtype=float32, shape=[64]), x, offsets=[0])


class SliceRow(tilus.Script):
    """Row `index` of a global matrix."""

    def __call__(self, index: int32, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        row = self.global_view(x_ptr, dtype=float32, shape=[4, 32])[index]
        x = self.load_global(row, offsets=[0], shape=[32])
        self.store_global(self.global_view(y_ptr, dtype=float32, shape=[32]), x, offsets=[0])


class Stride(tilus.Script):
    """CTAs write 32 elements each, `step` apart."""

    def __init__(self, blocks: int, step: int):
        super().__init__()
        self.blocks = blocks
        self.step = step

    def __call__(self, n: int32, y_ptr: ~float32):
        self.attrs.blocks = self.blocks
        self.attrs.warps = 1
        g_y = self.global_view(y_ptr, dtype=float32, shape=[n])
        y = self.register_tensor(dtype=float32, shape=[32], init=lambda i: i)
        self.store_global(g_y, y, offsets=[self.blockIdx.x * self.step])


class Replicated(tilus.Script):
    """A store by every lane of the same eight elements."""

    def __call__(self, y_ptr: ~int32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        y = self.register_tensor(dtype=int32, shape=[8], init=lambda i: i * i)
        self.annotate_layout(y, tilus.ir.layout.ops.replicated(8, num_workers=128))
        self.store_global(self.global_view(y_ptr, dtype=int32, shape=[8]), y, offsets=[0])


class ThroughShared(tilus.Script):
    """Registers to shared memory and back in another layout."""

    def __init__(self, dtype, warps: int):
        super().__init__()
        self.dtype = dtype
        self.warps = warps

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = self.warps
        x = self.load_global(self.global_view(x_ptr, dtype=self.dtype, shape=[32, 64]), offsets=[0, 0], shape=[32, 64])
        s = self.shared_tensor(dtype=self.dtype, shape=[32, 64])
        self.store_shared(s, x)
        self.sync()
        y = self.load_shared(s.transpose())
        self.store_global(self.global_view(y_ptr, dtype=self.dtype, shape=[64, 32]), y, offsets=[0, 0])


class NotAnAlias(tilus.Script):
    """Registers loaded from shared memory keep their values when that is overwritten."""

    def __call__(self, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        s = self.shared_tensor(dtype=float32, shape=[32])
        first = self.register_tensor(dtype=float32, shape=[32], init=1.0)
        self.annotate_layout(first, tilus.ir.layout.ops.spatial(32))
        self.store_shared(s, first)
        self.sync()
        y = self.load_shared(s)
        self.sync()
        self.store_shared(s, first + 1)
        self.sync()
        self.store_global(self.global_view(y_ptr, dtype=float32, shape=[32]), y, offsets=[0])


class SharedParts(tilus.Script):
    """Slices, a reshape and a permutation of one shared tensor."""

    def __call__(self, x_ptr: void_p, y_ptr: void_p, z_ptr: void_p, r_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float16, shape=[4, 16, 32])
        s = self.shared_tensor(dtype=float16, shape=[4, 16, 32])
        for i in range(4):
            self.store_shared(s[i], self.load_global(g_x[i], offsets=[0, 0], shape=[16, 32]))
        self.sync()
        g_y = self.global_view(y_ptr, dtype=float16, shape=[16, 32])
        self.store_global(g_y, self.load_shared(s[2]), offsets=[0, 0])
        g_z = self.global_view(z_ptr, dtype=float16, shape=[32, 4, 16])
        self.store_global(g_z, self.load_shared(s.permute([2, 0, 1])), offsets=[0, 0, 0])
        g_r = self.global_view(r_ptr, dtype=float16, shape=[64, 32])
        self.store_global(g_r, self.load_shared(self.reshape_shared(s, [64, 32])), offsets=[0, 0])


class Reuse(tilus.Script):
    """A shared tensor that code generation puts over a freed one."""

    def __init__(self, write: bool):
        super().__init__()
        self.write = write

    def __call__(self, x_ptr: ~float32, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        x = self.load_global(self.global_view(x_ptr, dtype=float32, shape=[32, 32]), offsets=[0, 0], shape=[32, 32])
        a = self.shared_tensor(dtype=float32, shape=[32, 32])
        self.store_shared(a, x)
        self.sync()
        y = self.load_shared(a)
        self.sync()
        self.free_shared(a)
        b = self.shared_tensor(dtype=uint8, shape=[4096])
        if self.write:
            bytes_ = self.register_tensor(dtype=uint8, shape=[4096], init=lambda i: uint8(i % 7))
            self.annotate_layout(bytes_, tilus.ir.layout.ops.spatial(128).local(32))
            self.store_shared(b, bytes_)
            self.sync()
        z = self.load_shared(b)
        self.store_global(self.global_view(y_ptr, dtype=uint8, shape=[4096]), z, offsets=[0])
        self.store_global(self.global_view(x_ptr, dtype=float32, shape=[32, 32]), y + 1, offsets=[0, 0])


class Uninitialised(tilus.Script):
    """Half of a shared tensor is written and all of it read."""

    def __call__(self, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        s = self.shared_tensor(dtype=float32, shape=[2, 32])
        ones = self.register_tensor(dtype=float32, shape=[32], init=1.0)
        self.annotate_layout(ones, tilus.ir.layout.ops.spatial(32))
        self.store_shared(s[0], ones)
        self.sync()
        self.store_global(self.global_view(y_ptr, dtype=float32, shape=[2, 32]), self.load_shared(s), offsets=[0, 0])


class Items(tilus.Script):
    """Single elements of global and shared tensors as scalars, and as addresses."""

    def __call__(self, x_ptr: ~int32, y_ptr: ~int32):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g_x = self.global_view(x_ptr, dtype=int32, shape=[4, 8])
        row: int32 = g_x[1, 3].item()
        tail = self.global_view(g_x[row, 2].item_ptr(), dtype=int32, shape=[4])
        s = self.shared_tensor(dtype=int32, shape=[64])
        even = self.register_tensor(dtype=int32, shape=[64], init=lambda i: i * 2)
        self.annotate_layout(even, tilus.ir.layout.ops.spatial(64))
        self.store_shared(s, even)
        self.sync()
        extra: int32 = s[row].item()
        y = self.load_global(tail, offsets=[0], shape=[4]) + extra
        self.store_global(self.global_view(y_ptr, dtype=int32, shape=[4]), y, offsets=[0])


class ItemsAgain(tilus.Script):
    """One element of a shared and one of a global tensor, which change from round to round: y[i] = 2 * (10 + i)."""

    def __call__(self, x_ptr: ~int32, y_ptr: ~int32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=int32, shape=[32])
        g_y = self.global_view(y_ptr, dtype=int32, shape=[4])
        s = self.shared_tensor(dtype=int32, shape=[2, 32])
        for i in range(4):
            numbers = self.register_tensor(dtype=int32, shape=[32], init=10) + i
            self.annotate_layout(numbers, tilus.ir.layout.ops.spatial(32))
            self.store_shared(s[i % 2], numbers)
            self.store_global(g_x, numbers, offsets=[0])
            self.sync()
            here: int32 = s[i % 2, 31].item()
            there: int32 = g_x[31].item()
            self.store_global(g_y, self.register_tensor(dtype=int32, shape=[1], init=0) + (here + there), offsets=[i])
            self.sync()


class WideTiles(tilus.Script):
    """Y = X, in tiles of 8x64, of which each of four warps has two rows."""

    def __call__(self, m: int32, n: int32, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = (m + 7) // 8, (n + 63) // 64
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=int32, shape=[m, n])
        g_y = self.global_view(y_ptr, dtype=int32, shape=[m, n])
        offsets = [self.blockIdx.x * 8, self.blockIdx.y * 64]
        self.store_global(g_y, self.load_global(g_x, offsets=offsets, shape=[8, 64]), offsets=offsets)


class Workspace(tilus.Script):
    """Half of it is written, and all of it is read."""

    def __init__(self, clean: bool):
        super().__init__()
        self.clean = clean

    def __call__(self, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_y = self.global_view(y_ptr, dtype=float32, shape=[2, 32])
        g_held = self.global_tensor(dtype=float32, shape=[2, 32], requires_clean=self.clean)
        ones = self.register_tensor(dtype=float32, shape=[1, 32], init=1.0)
        self.store_global(g_held, ones, offsets=[0, 0])
        self.sync()
        self.store_global(g_y, self.load_global(g_held, offsets=[0, 0], shape=[2, 32]), offsets=[0, 0])


class JoinedRows(tilus.Script):
    """Rows of two halves that lie apart, as one view: the code has it, and the simulator has not."""

    def __call__(self, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_y = self.global_view(y_ptr, dtype=float32, shape=[4, 8])
        s = self.shared_tensor(dtype=float32, shape=[2, 4, 4])
        rows = self.reshape_shared(s.permute([1, 0, 2]), [4, 8])  # rows
        self.store_shared(rows, self.load_global(g_y, offsets=[0, 0], shape=[4, 8]))
        self.sync()
        self.store_global(g_y, self.load_shared(rows), offsets=[0, 0])
