"""Small scripts whose registers nothing has written, or something has after all; see scripts_registers.py."""

import tilus
from tilus import float16, float32, int4b, int8, int32, uint8, void_p
from tilus.ir.layout.ops import spatial
from tilus.utils import cdiv

M, N, K = 32, 32, 64


class Matmul(tilus.Script):
    """C = A @ B.T by mma.sync, one tile of M x N for each CTA. cleared: the accumulator is."""

    def __init__(self, dtype=float16, acc_dtype=float32, cleared: bool = False):
        super().__init__()
        self.dtype = dtype
        self.acc_dtype = acc_dtype
        self.cleared = cleared

    def __call__(self, m: int32, n: int32, k: int32, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        self.attrs.blocks = [cdiv(m, M), cdiv(n, N)]
        self.attrs.warps = 2
        m0: int32 = M * self.blockIdx.x
        n0: int32 = N * self.blockIdx.y
        g_a = self.global_view(a_ptr, dtype=self.dtype, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=self.dtype, shape=[n, k])
        if self.cleared:
            acc = self.register_tensor(dtype=self.acc_dtype, shape=[M, N], init=0)
        else:
            acc = self.register_tensor(dtype=self.acc_dtype, shape=[M, N])  # made
        for k0 in range(0, k, K):
            a = self.load_global(g_a, offsets=[m0, k0], shape=[M, K])
            b = self.load_global(g_b, offsets=[n0, k0], shape=[N, K])
            self.dot(a, b.transpose(), acc, out=acc)  # used
        c = self.cast(acc, dtype=float16 if self.acc_dtype.is_float() else int32)
        g_c = self.global_view(c_ptr, dtype=c.dtype, shape=[m, n])
        self.store_global(g_c, c, offsets=[m0, n0])


class Wgmma(tilus.Script):
    """C = A @ B.T by wgmma, one tile."""

    def __call__(self, a_ptr: void_p, b_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        s_a = self.shared_tensor(dtype=float16, shape=[64, 64])
        s_b = self.shared_tensor(dtype=float16, shape=[32, 64])
        g_a = self.global_view(a_ptr, dtype=float16, shape=[64, 64])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[32, 64])
        self.store_shared(s_a, self.load_global(g_a, offsets=[0, 0], shape=[64, 64]))
        self.store_shared(s_b, self.load_global(g_b, offsets=[0, 0], shape=[32, 64]))
        self.fence.proxy_async(space="shared")
        self.sync()
        acc = self.register_tensor(dtype=float32, shape=[64, 32])  # made
        self.wgmma.fence()
        self.wgmma.mma(s_a, s_b.transpose(), acc)  # used
        self.wgmma.mma(s_a, s_b.transpose(), acc)
        self.wgmma.commit_group()
        self.wgmma.wait_group(0)
        self.store_global(self.global_view(d_ptr, dtype=float32, shape=[64, 32]), acc, offsets=[0, 0])


class Elements(tilus.Script):
    """What is done with a tensor of 32 x 4 before it is stored; one row for each lane."""

    def __init__(self, case: str):
        super().__init__()
        self.case = case

    def __call__(self, n: int32, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        width: int32 = 4
        if self.case == "columns, and the others are not stored":
            width = n
        g_y = self.global_view(y_ptr, dtype=float32, shape=[32, width])
        x = self.load_global(self.global_view(x_ptr, dtype=float32, shape=[32, 4]), offsets=[0, 0], shape=[32, 4])
        self.annotate_layout(x, spatial(32, 1).local(1, 4))
        y = self.register_tensor(dtype=float32, shape=[32, 4])  # made
        self.annotate_layout(y, spatial(32, 1).local(1, 4))
        index = self.register_tensor(dtype=int32, shape=[32, 4], init=lambda i, j: j)
        self.annotate_layout(index, spatial(32, 1).local(1, 4))
        if self.case == "added to":
            for _ in range(n):
                y += x
        if self.case == "assigned":
            self.assign(y, x)
        if self.case == "assigned in one branch":
            if n > 3:
                self.assign(y, x)
        if self.case == "assigned from the second turn on":
            for i in range(n):
                if i > 0:
                    self.assign(y, x + y)
                else:
                    self.assign(y, x)
        if self.case == "columns":
            for i in range(n):
                y[:, i] = x[:, i]
        if self.case == "columns, one copied from another":
            for i in range(n):
                y[:, i] = x[:, i]
            y[:, 3] = y[:, 1]
        if self.case == "columns, and the others are not stored":
            for i in range(n):
                y[:, i] = x[:, i]
            self.assign(y, y * 2)
        if self.case == "columns, and the others are replaced":
            for i in range(n):
                y[:, i] = x[:, i]
            y = self.where(index < n, y, x)
        if self.case == "the others are taken":
            for i in range(n):
                y[:, i] = x[:, i]
            y = self.where(index < n, x, y)
        if self.case == "the result of an instruction":
            self.add(x, x, out=y)
        if self.case == "made again in each turn":
            for i in range(n):
                z = self.register_tensor(dtype=float32, shape=[32, 4])  # in the loop
                if i == 0:
                    self.assign(z, x)
                self.assign(y, z)
        if self.case == "moved about":
            flat = self.transpose(y)
            self.assign(y, flat.transpose())
        self.store_global(g_y, y, offsets=[0, 0])  # used


class Viewed(tilus.Script):
    """Registers of 32 x 2 int32, written and read through views."""

    def __init__(self, case: str):
        super().__init__()
        self.case = case

    def __call__(self, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        x = self.register_tensor(dtype=int32, shape=[32, 2])  # made
        self.annotate_layout(x, spatial(32, 1).local(1, 2))
        bits = self.view(x, dtype=float16, layout=spatial(32, 1).local(1, 4))
        one = self.register_tensor(dtype=float16, shape=[32, 4], init=1.0)
        self.annotate_layout(one, spatial(32, 1).local(1, 4))
        if self.case == "written through the view":
            self.assign(bits, one)
        if self.case == "written, and read through the view":
            self.assign(x, self.view(one, dtype=int32, layout=spatial(32, 1).local(1, 2)))
        if self.case == "written in part":
            bits[:, 0] = one[:, 0]
            bits[:, 1] = one[:, 1]
            bits[:, 2] = one[:, 2]
        if self.case == "written, and read through the view":
            self.store_global(self.global_view(y_ptr, dtype=float16, shape=[32, 4]), bits, offsets=[0, 0])
        elif self.case == "as nibbles":
            packed = self.view(x, dtype=int4b, layout=spatial(32, 1).local(1, 16))
            wide = self.cast(packed, dtype=int8)
            self.store_global(self.global_view(y_ptr, dtype=int8, shape=[32, 16]), wide, offsets=[0, 0])  # nibbles
        else:
            self.store_global(self.global_view(y_ptr, dtype=int32, shape=[32, 2]), x, offsets=[0, 0])  # used


class Scalar(tilus.Script):
    """A condition that depends on what nothing wrote."""

    def __call__(self, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        x = self.register_tensor(dtype=uint8, shape=[1])  # made
        value: int32 = x[0].item()  # used
        y = self.register_tensor(dtype=int32, shape=[1], init=lambda i: value)
        self.store_global(self.global_view(y_ptr, dtype=int32, shape=[1]), y, offsets=[0])


class Rows(tilus.Script):
    """Of a tensor of 32 x 1, a row a lane, the upper rows are replaced."""

    def __call__(self, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        y = self.register_tensor(dtype=float32, shape=[32, 1])
        self.annotate_layout(y, spatial(32, 1))
        row = self.register_tensor(dtype=int32, shape=[32, 1], init=lambda i, j: i)
        ones = self.register_tensor(dtype=float32, shape=[32, 1], init=1.0)
        y = self.where(row < 16, ones, y)
        self.store_global(self.global_view(y_ptr, dtype=float32, shape=[32, 1]), y, offsets=[0, 0])
