"""Small scripts for the tests of wgmma, for sm_90a; see async_scripts.py. `fault` takes one edge away."""

import tilus
from tilus import DataType, float8_e4m3, float16, float32, int32, void_p

M, N, K = 64, 32, 64


class Twice(tilus.Script):
    """D = 2 A @ B.T: two mma on one accumulator; a wait, a use of the registers and a fence may come between them."""

    def __init__(self, fault: str = "", between: bool = False):
        super().__init__()
        self.fault = fault
        self.between = between

    def __call__(self, a_ptr: void_p, b_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=float16, shape=[M, K])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[N, K])
        g_d = self.global_view(d_ptr, dtype=float32, shape=[M, N])
        s_a = self.shared_tensor(dtype=float16, shape=[M, K])
        s_b = self.shared_tensor(dtype=float16, shape=[N, K])
        self.store_shared(s_a, self.load_global(g_a, offsets=[0, 0], shape=[M, K]))  # store
        self.store_shared(s_b, self.load_global(g_b, offsets=[0, 0], shape=[N, K]))
        if self.fault != "no proxy fence":
            self.fence.proxy_async(space="shared")
        self.sync()
        acc = self.register_tensor(dtype=float32, shape=[M, N], init=0.0)
        total = self.register_tensor(dtype=float32, shape=[M, N], init=0.0)
        if self.fault != "no fence":
            self.wgmma.fence()
        if self.fault == "cleared after the fence":
            self.assign(acc, total)  # clear
        self.wgmma.mma(s_a, s_b.transpose(), acc)  # first
        self.wgmma.commit_group()
        if self.between:
            if self.fault != "no wait between":
                self.wgmma.wait_group(0)
            if self.fault != "only read between":
                self.assign(total, total + acc)  # read
                self.assign(acc, acc - acc)  # write
            else:
                self.assign(total, total * acc)  # look
                self.assign(total, total - total)
            if self.fault != "no fence between" and self.fault != "only read between":
                self.wgmma.fence()
        self.wgmma.mma(s_a, s_b.transpose(), acc)  # second
        if self.fault != "no commit":
            self.wgmma.commit_group()
        if self.fault == "stored over":
            self.sync()
            self.store_shared(s_b, self.load_global(g_b, offsets=[0, 0], shape=[N, K]))  # over
        if self.fault == "copied over":
            self.sync()
            self.copy_async(src=g_b, dst=s_b, offsets=[0, 0])  # copy
            self.copy_async_wait_all()
        if self.fault == "overwritten before the wait":
            self.assign(acc, total)  # overwrite
        if self.fault == "one group less":
            self.wgmma.wait_group(1)
        if self.fault != "no wait" and self.fault != "one group less":
            self.wgmma.wait_group(0)
        self.store_global(g_d, acc + total, offsets=[0, 0])  # use


class Unused(tilus.Script):
    """One mma whose result nobody looks at."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault

    def __call__(self, a_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=float16, shape=[M, K])
        s_a = self.shared_tensor(dtype=float16, shape=[M, K])
        self.store_shared(s_a, self.load_global(g_a, offsets=[0, 0], shape=[M, K]))
        self.fence.proxy_async(space="shared")
        self.sync()
        acc = self.register_tensor(dtype=float32, shape=[M, M], init=0.0)
        self.wgmma.fence()
        self.wgmma.mma(s_a, s_a.transpose(), acc)  # mma
        if self.fault != "no commit":
            self.wgmma.commit_group()
        if self.fault != "no wait":
            self.wgmma.wait_group(0)


class Product(tilus.Script):
    """D = A @ B.T of one tile, in the given types, by one warpgroup of several; by TMA."""

    def __init__(
        self,
        dtype: DataType,
        acc_dtype: DataType,
        shape: list,
        warps: int = 4,
        begin: int = 0,
        count: int = 4,
    ):
        super().__init__()
        self.dtype = dtype
        self.acc_dtype = acc_dtype
        self.shape = shape
        self.warps = warps
        self.begin = begin
        self.count = count

    def __call__(self, a_ptr: void_p, b_ptr: void_p, d_ptr: void_p):
        m, n, k = self.shape
        self.attrs.blocks = 1
        self.attrs.warps = self.warps
        g_a = self.global_view(a_ptr, dtype=self.dtype, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=self.dtype, shape=[n, k])
        g_d = self.global_view(d_ptr, dtype=self.acc_dtype, shape=[m, n])
        s_a = self.shared_tensor(dtype=self.dtype, shape=[m, k])
        s_b = self.shared_tensor(dtype=self.dtype, shape=[n, k])
        full = self.mbarrier.alloc(counts=1)
        self.sync()
        with self.warp_group(self.begin, self.count):
            acc = self.register_tensor(dtype=self.acc_dtype, shape=[m, n], init=0)
            with self.single_warp():
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=s_a.nbytes + s_b.nbytes)
                self.tma.global_to_shared(src=g_a, dst=s_a, offsets=[0, 0], mbarrier=full)
                self.tma.global_to_shared(src=g_b, dst=s_b, offsets=[0, 0], mbarrier=full)
            self.mbarrier.wait(full, phase=0)
            self.wgmma.fence()
            self.wgmma.mma(s_a, s_b.transpose(), acc)
            self.wgmma.commit_group()
            self.wgmma.wait_group(0)
            self.store_global(g_d, acc, offsets=[0, 0])


class FromRegisters(tilus.Script):
    """As Product, with A in registers, for which code generation has nothing."""

    def __call__(self, a_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=float16, shape=[M, K])
        g_d = self.global_view(d_ptr, dtype=float32, shape=[M, M])
        s_a = self.shared_tensor(dtype=float16, shape=[M, K])
        r_a = self.load_global(g_a, offsets=[0, 0], shape=[M, K])
        self.store_shared(s_a, r_a)
        self.fence.proxy_async(space="shared")
        self.sync()
        acc = self.register_tensor(dtype=float32, shape=[M, M], init=0.0)
        self.wgmma.fence()
        self.wgmma.mma(r_a, s_a.transpose(), acc)
        self.wgmma.commit_group()
        self.wgmma.wait_group(0)
        self.store_global(g_d, acc, offsets=[0, 0])


class TwoGroups(tilus.Script):
    """Y = X @ X.T by one warpgroup, a thread of which tells the other when the operand may be written again."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 8
        g_x = self.global_view(x_ptr, dtype=float16, shape=[M, K])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[M, M])
        s_x = self.shared_tensor(dtype=float16, shape=[M, K])
        self.store_shared(s_x, self.load_global(g_x, offsets=[0, 0], shape=[M, K]))
        self.fence.proxy_async(space="shared")
        done = self.mbarrier.alloc(counts=1)
        self.sync()
        with self.warp_group(0, 4):
            acc = self.register_tensor(dtype=float32, shape=[M, M], init=0.0)
            self.wgmma.fence()
            self.wgmma.mma(s_x, s_x.transpose(), acc)  # mma
            self.wgmma.commit_group()
            if self.fault == "told early":
                with self.single_thread():
                    self.mbarrier.arrive(done)  # early
            self.wgmma.wait_group(0)
            if self.fault != "told early":
                with self.single_thread():
                    self.mbarrier.arrive(done)
            self.store_global(g_y, acc, offsets=[0, 0])
        with self.warp_group(4, 4):
            if self.fault != "the other warpgroup waits":
                self.mbarrier.wait(done, phase=0)
            else:
                self.wgmma.wait_group(0)
            self.store_shared(s_x, self.load_global(g_x, offsets=[0, 0], shape=[M, K]) + 1)  # write


class Apart(tilus.Script):
    """Y = X @ X.T of operand 0, by all warps of a warpgroup; the last one may take operand 1, or stay away."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.turn = 1 if fault == "another operand" else 2 if fault == "stays away" else 0

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float16, shape=[M, K])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[M, M])
        s_x = self.shared_tensor(dtype=float16, shape=[2, M, K])
        x = self.load_global(g_x, offsets=[0, 0], shape=[M, K])
        self.store_shared(s_x[0], x)
        self.store_shared(s_x[1], x)
        self.fence.proxy_async(space="shared")
        self.sync()
        acc = self.register_tensor(dtype=float32, shape=[M, M], init=0.0)
        turn: int32 = 0
        with self.single_warp(3):
            turn = self.turn
        self.wgmma.fence()
        if turn < 2:
            self.wgmma.mma(s_x[turn], s_x[turn].transpose(), acc)  # mma
        self.wgmma.commit_group()
        self.wgmma.wait_group(0)  # wait
        self.store_global(g_y, acc, offsets=[0, 0])


class Ring(tilus.Script):
    """D = A @ B.T over k-tiles; a fence alone before the loop, and one group in flight: no more is needed."""

    def __init__(self, dtype: DataType = float16):
        super().__init__()
        self.dtype = dtype

    def __call__(self, tiles: int32, a_ptr: void_p, b_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=self.dtype, shape=[tiles * M, K])
        g_b = self.global_view(b_ptr, dtype=self.dtype, shape=[tiles * N, K])
        g_d = self.global_view(d_ptr, dtype=float32, shape=[M, N])
        s_a = self.shared_tensor(dtype=self.dtype, shape=[2, M, K])
        s_b = self.shared_tensor(dtype=self.dtype, shape=[2, N, K])
        full = self.mbarrier.alloc(counts=[1, 1])
        self.sync()
        acc = self.register_tensor(dtype=float32, shape=[M, N], init=0.0)
        self.wgmma.fence()
        for i in range(tiles):
            with self.single_warp():
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full[i % 2], transaction_bytes=(M + N) * K * self.dtype.nbytes)
                self.tma.global_to_shared(src=g_a, dst=s_a[i % 2], offsets=[i * M, 0], mbarrier=full[i % 2])
                self.tma.global_to_shared(src=g_b, dst=s_b[i % 2], offsets=[i * N, 0], mbarrier=full[i % 2])
            self.mbarrier.wait(full[i % 2], phase=i // 2 % 2)
            self.wgmma.mma(s_a[i % 2], s_b[i % 2].transpose(), acc)
            self.wgmma.commit_group()
            self.wgmma.wait_group(1)
        self.wgmma.wait_group(0)
        self.store_global(g_d, acc, offsets=[0, 0])


class TwoShapes(tilus.Script):
    """D = A @ A.T, in fp16, and again in fp8: mma of two shapes on one accumulator."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault

    def __call__(self, a_ptr: void_p, e_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=float16, shape=[M, K])
        g_e = self.global_view(e_ptr, dtype=float8_e4m3, shape=[M, K])
        g_d = self.global_view(d_ptr, dtype=float32, shape=[M, M])
        s_a = self.shared_tensor(dtype=float16, shape=[M, K])
        s_e = self.shared_tensor(dtype=float8_e4m3, shape=[M, K])
        self.store_shared(s_a, self.load_global(g_a, offsets=[0, 0], shape=[M, K]))
        self.store_shared(s_e, self.load_global(g_e, offsets=[0, 0], shape=[M, K]))
        self.fence.proxy_async(space="shared")
        self.sync()
        acc = self.register_tensor(dtype=float32, shape=[M, M], init=0.0)
        self.wgmma.fence()
        self.wgmma.mma(s_a, s_a.transpose(), acc)  # first
        self.wgmma.commit_group()
        if self.fault != "no wait":
            self.wgmma.wait_group(0)
        if self.fault != "no fence":
            self.wgmma.fence()
        self.wgmma.mma(s_e, s_e.transpose(), acc)  # second
        self.wgmma.commit_group()
        self.wgmma.wait_group(0)
        self.store_global(g_d, acc, offsets=[0, 0])


class Onto(tilus.Script):
    """D = C + A @ B.T, where C comes from memory straight into the accumulator."""

    def __call__(self, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=float16, shape=[M, K])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[N, K])
        g_c = self.global_view(c_ptr, dtype=float32, shape=[M, N])
        g_d = self.global_view(d_ptr, dtype=float32, shape=[M, N])
        s_a = self.shared_tensor(dtype=float16, shape=[M, K])
        s_b = self.shared_tensor(dtype=float16, shape=[N, K])
        self.store_shared(s_a, self.load_global(g_a, offsets=[0, 0], shape=[M, K]))
        self.store_shared(s_b, self.load_global(g_b, offsets=[0, 0], shape=[N, K]))
        self.fence.proxy_async(space="shared")
        self.sync()
        acc = self.load_global(g_c, offsets=[0, 0], shape=[M, N])
        self.wgmma.fence()
        self.wgmma.mma(s_a, s_b.transpose(), acc)
        self.wgmma.commit_group()
        self.wgmma.wait_group(0)
        self.store_global(g_d, acc, offsets=[0, 0])
