"""Small scripts that work on registers only: one tile in, one tile out."""

import tilus
from tilus import boolean, float16, float32, int32, void_p


class Unary(tilus.Script):
    """One elementwise operation on a 16 x 32 tile."""

    def __init__(self, op: str, dtype):
        super().__init__()
        self.op = op
        self.dtype = dtype

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g_x = self.global_view(x_ptr, dtype=self.dtype, shape=[16, 32])
        x = self.load_global(g_x, offsets=[0, 0], shape=[16, 32])
        if self.op == "neg":
            y = -x
        elif self.op == "abs":
            y = self.abs(x)
        elif self.op == "exp":
            y = self.exp(x)
        elif self.op == "exp2":
            y = self.exp2(x)
        elif self.op == "log":
            y = self.log(x)
        elif self.op == "sqrt":
            y = self.sqrt(x)
        elif self.op == "rsqrt":
            y = self.rsqrt(x)
        elif self.op == "square":
            y = self.square(x)
        elif self.op == "round":
            y = self.round(x)
        elif self.op == "clip":
            y = self.clip(x, min=-1, max=2)
        self.store_global(self.global_view(y_ptr, dtype=self.dtype, shape=[16, 32]), y, offsets=[0, 0])


class Binary(tilus.Script):
    """One operation on two 16 x 32 tiles."""

    def __init__(self, op: str, dtype, out_dtype=None):
        super().__init__()
        self.op = op
        self.dtype = dtype
        self.out_dtype = dtype if out_dtype is None else out_dtype

    def __call__(self, x_ptr: void_p, y_ptr: void_p, z_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=self.dtype, shape=[16, 32])
        g_y = self.global_view(y_ptr, dtype=self.dtype, shape=[16, 32])
        x = self.load_global(g_x, offsets=[0, 0], shape=[16, 32])
        y = self.load_global(g_y, offsets=[0, 0], shape=[16, 32])
        if self.op == "add":
            z = x + y
        elif self.op == "sub":
            z = x - y
        elif self.op == "mul":
            z = x * y
        elif self.op == "div":
            z = x / y
        elif self.op == "floordiv":
            z = x // y
        elif self.op == "mod":
            z = x + 0
            z %= y
        elif self.op == "maximum":
            z = self.maximum(x, y)
        elif self.op == "lt":
            z = x < y
        elif self.op == "le":
            z = x <= y
        elif self.op == "gt":
            z = x > y
        elif self.op == "ge":
            z = x >= y
        elif self.op == "eq":
            z = x == y
        elif self.op == "ne":
            z = x != y
        elif self.op == "xor":
            z = x ^ y
        elif self.op == "where":
            z = self.where(x < y, x, y)
        self.store_global(self.global_view(z_ptr, dtype=self.out_dtype, shape=[16, 32]), z, offsets=[0, 0])


class Broadcast(tilus.Script):
    """A 16 x 32 tile and, first on the right and then on the left, one that broadcasts to it."""

    def __init__(self, rank: int, rows: int = 1, columns: int = 1):
        super().__init__()
        self.rank = rank
        self.rows = rows
        self.columns = columns

    def __call__(self, x_ptr: void_p, y_ptr: void_p, z_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        x = self.load_global(self.global_view(x_ptr, dtype=float32, shape=[16, 32]), offsets=[0, 0], shape=[16, 32])
        if self.rank == 2:
            other = self.register_tensor(dtype=float32, shape=[self.rows, self.columns], init=lambda i, j: i * 3 - j)
        elif self.rank == 1:
            other = self.register_tensor(dtype=float32, shape=[self.columns], init=lambda j: 5 - j)
        else:
            other = self.register_tensor(dtype=float32, shape=[], init=7.0)
        y = x * other
        z = self.where(y > x, other, x)
        self.store_global(self.global_view(y_ptr, dtype=float32, shape=[16, 32]), y, offsets=[0, 0])
        self.store_global(self.global_view(z_ptr, dtype=float32, shape=[16, 32]), z, offsets=[0, 0])


class Constants(tilus.Script):
    """Registers filled by a function of the index, and combined with numbers."""

    def __call__(self, n: int32, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        x = self.register_tensor(dtype=int32, shape=[8, 16], init=lambda i, j: i * n - j)
        y = self.register_tensor(dtype=float32, shape=[8, 16], init=2.5)
        mask = self.register_tensor(dtype=boolean, shape=[8, 16], init=lambda i, j: (i + j) % 3 == 0)
        y = self.where(mask, y * 3, y - 1)
        x += 1
        self.store_global(self.global_view(x_ptr, dtype=int32, shape=[8, 16]), x, offsets=[0, 0])
        self.store_global(self.global_view(y_ptr, dtype=float32, shape=[8, 16]), y, offsets=[0, 0])


class Cast(tilus.Script):
    """One cast of 256 elements."""

    def __init__(self, source, target):
        super().__init__()
        self.source = source
        self.target = target

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        x = self.load_global(self.global_view(x_ptr, dtype=self.source, shape=[256]), offsets=[0], shape=[256])
        self.annotate_layout(x, tilus.ir.layout.ops.spatial(32).local(8))
        y = self.cast(x, dtype=self.target)
        self.store_global(self.global_view(y_ptr, dtype=self.target, shape=[256]), y, offsets=[0])


class Bits(tilus.Script):
    """A view of the same registers as another type."""

    def __init__(self, source, target, count: int):
        super().__init__()
        self.source = source
        self.target = target
        self.count = count
        self.out_count = count * source.nbits // target.nbits

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        shape = [32, self.count]
        x = self.load_global(self.global_view(x_ptr, dtype=self.source, shape=shape), offsets=[0, 0], shape=shape)
        self.annotate_layout(x, tilus.ir.layout.ops.spatial(32, 1).local(1, self.count))
        y = self.view(x, dtype=self.target, layout=tilus.ir.layout.ops.spatial(32, 1).local(1, self.out_count))
        self.store_global(self.global_view(y_ptr, dtype=self.target, shape=[32, self.out_count]), y, offsets=[0, 0])


class SharedBits(tilus.Script):
    """A view is the same registers: what is written through one name is seen through the other."""

    def __call__(self, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        x = self.register_tensor(dtype=int32, shape=[32], init=lambda i: i)
        self.annotate_layout(x, tilus.ir.layout.ops.spatial(32))
        bits = self.view(x, dtype=float32, layout=tilus.ir.layout.ops.spatial(32))
        x += 1
        self.store_global(self.global_view(y_ptr, dtype=float32, shape=[32]), bits, offsets=[0])


class Reduce(tilus.Script):
    """One reduction of a 32 x 64 tile, over some warps."""

    def __init__(self, op: str, dim: int, keepdim: bool, dtype, warps: int):
        super().__init__()
        self.op = op
        self.dim = dim
        self.keepdim = keepdim
        self.dtype = dtype
        self.warps = warps

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = self.warps
        x = self.load_global(self.global_view(x_ptr, dtype=self.dtype, shape=[32, 64]), offsets=[0, 0], shape=[32, 64])
        if self.op == "sum":
            y = self.sum(x, dim=self.dim, keepdim=self.keepdim)
        elif self.op == "max":
            y = self.max(x, dim=self.dim, keepdim=self.keepdim)
        elif self.op == "min":
            y = self.min(x, dim=self.dim, keepdim=self.keepdim)
        elif self.op == "any":
            y = self.any(x, dim=self.dim, keepdim=self.keepdim)
        elif self.op == "all":
            y = self.all(x, dim=self.dim, keepdim=self.keepdim)
        g_y = self.global_view(y_ptr, dtype=self.dtype, shape=y.shape)
        self.store_global(g_y, y, offsets=[0 for _ in y.shape])


class ReduceAll(tilus.Script):
    """All dimensions at once, to one element."""

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        x = self.load_global(self.global_view(x_ptr, dtype=int32, shape=[16, 16]), offsets=[0, 0], shape=[16, 16])
        total = self.sum(x)
        value: int32 = total.item()
        y = self.register_tensor(dtype=int32, shape=[1], init=lambda i: value)
        self.store_global(self.global_view(y_ptr, dtype=int32, shape=[1]), y, offsets=[0])


class Shape(tilus.Script):
    """transpose, squeeze, unsqueeze: registers stay, names change."""

    def __call__(self, x_ptr: void_p, t_ptr: void_p, u_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        x = self.load_global(self.global_view(x_ptr, dtype=float16, shape=[16, 32]), offsets=[0, 0], shape=[16, 32])
        self.store_global(self.global_view(t_ptr, dtype=float16, shape=[32, 16]), x.transpose(), offsets=[0, 0])
        column = self.load_global(self.global_view(x_ptr, dtype=float16, shape=[16, 32]), offsets=[0, 3], shape=[16, 1])
        flat = self.squeeze(column, dim=1)
        again = self.unsqueeze(flat, dim=0)
        self.store_global(self.global_view(u_ptr, dtype=float16, shape=[1, 16]), again, offsets=[0, 0])


class Slices(tilus.Script):
    """Reads and writes of parts of a register tensor."""

    def __call__(self, x_ptr: void_p, y_ptr: void_p, z_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=int32, shape=[32, 4])
        x = self.load_global(g_x, offsets=[0, 0], shape=[32, 4])
        self.annotate_layout(x, tilus.ir.layout.ops.spatial(32, 1).local(1, 4))
        column = x[:, 2]
        self.store_global(self.global_view(y_ptr, dtype=int32, shape=[32]), column, offsets=[0])
        for i in range(3):
            x[:, i] = column + i
        self.store_global(self.global_view(z_ptr, dtype=int32, shape=[32, 4]), x, offsets=[0, 0])


class SliceOutside(tilus.Script):
    """Element `index` of a register tensor of four."""

    def __call__(self, index: int32, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        x = self.register_tensor(dtype=int32, shape=[4], init=lambda i: i * 10)
        self.annotate_layout(x, tilus.ir.layout.ops.replicated(4, num_workers=32))
        value: int32 = x[index].item()
        y = self.register_tensor(dtype=int32, shape=[1], init=lambda i: value)
        self.store_global(self.global_view(y_ptr, dtype=int32, shape=[1]), y, offsets=[0])


class ThreadDependent(tilus.Script):
    """item() of a tensor of which every thread holds another element."""

    def __call__(self, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        x = self.register_tensor(dtype=int32, shape=[32], init=lambda i: i)
        self.annotate_layout(x, tilus.ir.layout.ops.spatial(32))
        mine = self.view(x, layout=tilus.ir.layout.ops.replicated(1, num_workers=32))
        value: int32 = mine[0].item()
        self.printf("%d\n", value)


class OneLaneAssigns(tilus.Script):
    """A variable that one lane of a warp assigns, and `readers` lanes read."""

    def __init__(self, readers: int = 32):
        super().__init__()
        self.readers = readers

    def __call__(self, n: int32, y_ptr: ~int32):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        turns: int32 = n
        for _ in range(2):
            with self.single_thread(0):
                turns += 1
        with self.single_warp(1):
            self.printf("%d\n", turns)
        with self.thread_group(0, self.readers):
            if turns > n:
                self.store_global(
                    self.global_view(y_ptr, dtype=int32, shape=[32]),
                    self.register_tensor(dtype=int32, shape=[1], init=lambda i: turns),
                    offsets=[0],
                )


class SomeLeave(tilus.Script):
    """A loop, or the kernel, that only `leavers` threads leave."""

    def __init__(self, leavers: int, whole: bool):
        super().__init__()
        self.leavers = leavers
        self.whole = whole

    def __call__(self, n: int32):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        for i in range(n):
            with self.thread_group(0, self.leavers):
                if i == 2:
                    if self.whole:
                        return
                    break
        with self.single_warp(1):
            self.printf("%d\n", n)


class Dot(tilus.Script):
    """mma.sync of a whole problem in one tile."""

    def __init__(self, dtype, acc_dtype, m: int, n: int, k: int, warps: int, both: bool = False):
        super().__init__()
        self.dtype = dtype
        self.acc_dtype = acc_dtype
        self.m = m
        self.n = n
        self.k = k
        self.warps = warps
        self.both = both

    def __call__(self, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = self.warps
        m, n, k = self.m, self.n, self.k
        a = self.load_global(self.global_view(a_ptr, dtype=self.dtype, shape=[m, k]), offsets=[0, 0], shape=[m, k])
        b = self.load_global(self.global_view(b_ptr, dtype=self.dtype, shape=[k, n]), offsets=[0, 0], shape=[k, n])
        c = self.load_global(self.global_view(c_ptr, dtype=self.acc_dtype, shape=[m, n]), offsets=[0, 0], shape=[m, n])
        d = self.dot(a, b, c)
        if self.both:
            self.dot(a, b, d, out=d)
        self.store_global(self.global_view(d_ptr, dtype=self.acc_dtype, shape=[m, n]), d, offsets=[0, 0])
