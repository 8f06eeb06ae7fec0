"""Small scripts whose result depends on the order of additions, and on where each is rounded."""

import tilus
from tilus import DataType, float16, float32, void_p


class Reduction(tilus.Script):
    """A tile reduced along a dimension; its layout decides the order."""

    def __init__(self, op: str, dim: int, dtype: DataType, out: DataType, shape: list, size: int, warps: int, layout):
        super().__init__()
        self.op = op
        self.dim = dim
        self.dtype = dtype
        self.out = out
        self.shape = shape
        self.size = size
        self.warps = warps
        self.layout = layout

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = self.warps
        x = self.load_global(
            self.global_view(x_ptr, dtype=self.dtype, shape=self.shape), offsets=[0, 0], shape=self.shape
        )
        self.annotate_layout(x, self.layout)
        y = self.register_tensor(dtype=self.out, shape=[self.size], init=1)
        if self.op == "sum":
            self.sum(x, dim=self.dim, out=y)
        elif self.op == "max":
            self.max(x, dim=self.dim, out=y)
        else:
            self.min(x, dim=self.dim, out=y)
        self.store_global(self.global_view(y_ptr, dtype=self.out, shape=[self.size]), y, offsets=[0])


class Exchange(tilus.Script):
    """Warps exchange a tile through shared memory; between the stores and the loads there is a reduction alone."""

    def __init__(self, dim: int, size: int, stored, loaded):
        super().__init__()
        self.dim = dim
        self.size = size
        self.stored = stored
        self.loaded = loaded

    def __call__(self, x_ptr: void_p, y_ptr: void_p, z_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        x = self.load_global(self.global_view(x_ptr, dtype=float32, shape=[8, 32]), offsets=[0, 0], shape=[8, 32])
        self.annotate_layout(x, self.stored)
        shared = self.shared_tensor(dtype=float32, shape=[8, 32])
        self.store_shared(shared, x)  # store
        y = self.sum(x, dim=self.dim)
        z = self.load_shared(shared)
        self.annotate_layout(z, self.loaded)
        self.store_global(self.global_view(y_ptr, dtype=float32, shape=[self.size]), y, offsets=[0])
        self.store_global(self.global_view(z_ptr, dtype=float32, shape=[8, 32]), z, offsets=[0, 0])


class HalfWgmma(tilus.Script):
    """D = A @ B.T + D on Hopper, in float16 throughout."""

    def __call__(self, a_ptr: void_p, b_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_d = self.global_view(d_ptr, dtype=float16, shape=[64, 32])
        s_a = self.shared_tensor(dtype=float16, shape=[64, 64])
        s_b = self.shared_tensor(dtype=float16, shape=[32, 64])
        a = self.load_global(self.global_view(a_ptr, dtype=float16, shape=[64, 64]), offsets=[0, 0], shape=[64, 64])
        b = self.load_global(self.global_view(b_ptr, dtype=float16, shape=[32, 64]), offsets=[0, 0], shape=[32, 64])
        self.store_shared(s_a, a)
        self.store_shared(s_b, b)
        self.fence.proxy_async(space="shared")
        self.sync()
        acc = self.load_global(g_d, offsets=[0, 0], shape=[64, 32])
        self.wgmma.fence()
        self.wgmma.mma(s_a, s_b.transpose(), acc)
        self.wgmma.commit_group()
        self.wgmma.wait_group(0)
        self.store_global(g_d, acc, offsets=[0, 0])
