"""One tile multiplied by each MMA, for the tests of what these multiply; see frontend_scripts.py."""

import tilus
from tilus import DataType, float16, float32, void_p
from tilus.ir.layout.ops import register_layout


class ByTensorMemory(tilus.Script):
    """C = A @ B.T by tcgen05.mma, of one CTA or of a pair, which multiplies twice the rows and columns."""

    def __init__(
        self, n: int = 64, k: int = 32, m: int = 128, dtype: DataType = float16, acc: DataType = float32, ctas: int = 1
    ):
        super().__init__()
        self.m, self.n, self.k = m, n, k
        self.dtype, self.acc, self.ctas = dtype, acc, ctas

    def __call__(self, a: void_p, b: void_p, c: void_p):
        self.attrs.blocks = self.ctas
        self.attrs.cluster_blocks = self.ctas
        self.attrs.warps = 4
        row = self.blockIdx.x * self.m
        column = self.blockIdx.x * self.n
        g_a = self.global_view(a, dtype=self.dtype, shape=[self.m * self.ctas, self.k])
        g_b = self.global_view(b, dtype=self.dtype, shape=[self.n * self.ctas, self.k])
        g_c = self.global_view(c, dtype=self.acc, shape=[self.m * self.ctas, self.n * self.ctas])
        s_a = self.shared_tensor(dtype=self.dtype, shape=[self.m, self.k])
        s_b = self.shared_tensor(dtype=self.dtype, shape=[self.n, self.k])
        t_all = self.tcgen05.alloc(dtype=self.acc, shape=[128, self.n * self.ctas], cta_group=self.ctas)
        t_c = self.tcgen05.slice(t_all, offsets=[0, 0], dims=[0, 1], shape=[self.m, self.n * self.ctas])
        done = self.mbarrier.alloc(counts=1)
        self.copy_async(g_a, s_a, offsets=[row, 0])
        self.copy_async(g_b, s_b, offsets=[column, 0])
        self.copy_async_wait_all()
        self.fence.proxy_async(space="shared")
        self.sync()
        with self.single_warp():
            self.tcgen05.mma(s_a, s_b.transpose(), t_c, enable_input_d=False, cta_group=self.ctas)  # multiply
            self.tcgen05.commit(mbarrier=done, cta_group=self.ctas)
        self.mbarrier.wait(done, phase=0)
        r_c = self.tcgen05.load(t_c)
        self.tcgen05.wait_load()
        self.store_global(g_c, r_c, offsets=[row, 0])
        self.sync()
        self.tcgen05.dealloc(t_all)


class ByWarpgroup(tilus.Script):
    """C = A @ B.T by wgmma. local_modes: the order of a thread's elements in a layout for 64x64, where it is given."""

    target = "sm_90a"

    def __init__(
        self, m: int = 64, n: int = 64, k: int = 64, dtype: DataType = float16, acc: DataType = float32,
        local_modes: list | None = None,
    ):  # fmt: skip
        super().__init__()
        self.m, self.n, self.k = m, n, k
        self.dtype, self.acc = dtype, acc
        self.annotated = local_modes is not None
        self.layout = register_layout([64, 64], [4, 2, 8, 8, 4, 2], [0, 2, 4], local_modes or [3, 1, 5])

    def __call__(self, a: void_p, b: void_p, c: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_a = self.global_view(a, dtype=self.dtype, shape=[self.m, self.k])
        g_b = self.global_view(b, dtype=self.dtype, shape=[self.n, self.k])
        g_c = self.global_view(c, dtype=self.acc, shape=[self.m, self.n])
        s_a = self.shared_tensor(dtype=self.dtype, shape=[self.m, self.k])
        s_b = self.shared_tensor(dtype=self.dtype, shape=[self.n, self.k])
        r_c = self.register_tensor(dtype=self.acc, shape=[self.m, self.n], init=0)
        if self.annotated:
            self.annotate_layout(r_c, self.layout)
        self.copy_async(g_a, s_a, offsets=[0, 0])
        self.copy_async(g_b, s_b, offsets=[0, 0])
        self.copy_async_wait_all()
        self.fence.proxy_async(space="shared")
        self.sync()
        self.wgmma.fence()
        self.wgmma.mma(s_a, s_b.transpose(), r_c)  # multiply
        self.wgmma.commit_group()
        self.wgmma.wait_group(0)
        self.store_global(g_c, r_c, offsets=[0, 0])


class ByWarps(tilus.Script):
    """C = A @ B.T by mma.sync."""

    def __init__(
        self, m: int = 64, n: int = 64, k: int = 64, dtype: DataType = float16, acc: DataType = float32
    ):  # fmt: skip
        super().__init__()
        self.m, self.n, self.k = m, n, k
        self.dtype, self.acc = dtype, acc

    def __call__(self, a: void_p, b: void_p, c: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_a = self.global_view(a, dtype=self.dtype, shape=[self.m, self.k])
        g_b = self.global_view(b, dtype=self.dtype, shape=[self.n, self.k])
        g_c = self.global_view(c, dtype=self.acc, shape=[self.m, self.n])
        s_a = self.shared_tensor(dtype=self.dtype, shape=[self.m, self.k])
        s_b = self.shared_tensor(dtype=self.dtype, shape=[self.n, self.k])
        self.copy_async(g_a, s_a, offsets=[0, 0])
        self.copy_async(g_b, s_b, offsets=[0, 0])
        self.copy_async_wait_all()
        self.sync()
        r_c = self.register_tensor(dtype=self.acc, shape=[self.m, self.n], init=0)
        self.dot(self.load_shared(s_a), self.load_shared(s_b).transpose(), r_c, out=r_c)  # multiply
        self.store_global(g_c, r_c, offsets=[0, 0])
