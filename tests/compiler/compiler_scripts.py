"""Small scripts for the tests of the compiler, each for one thing that the rungs lack or that other targets have."""

import tilus
from tilus import DataType, float8_e4m3, float8_e5m2, float16, float32, int8, int16, int32, int64, uint32, void_p
from tilus.ir.layout.ops.shared_ops import shared_row_major
from tilus.ir.layout.shared_layout import Swizzle
from tilus.utils import cdiv


class TmaCopy(tilus.Script):
    """y = x by TMA, through one tile of shared memory: for every target from sm_90a on."""

    def __init__(self, block: int = 64):
        super().__init__()
        self.block = block

    def __call__(self, m: int32, n: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = cdiv(m, self.block), cdiv(n, self.block)
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float16, shape=[m, n])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[m, n])
        s = self.shared_tensor(dtype=float16, shape=[self.block, self.block])
        barrier = self.mbarrier.alloc(counts=1)
        offsets = [self.blockIdx.x * self.block, self.blockIdx.y * self.block]
        self.sync()
        with self.single_warp():
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(barrier, transaction_bytes=s.nbytes)
            self.tma.global_to_shared(src=g_x, dst=s, offsets=offsets, mbarrier=barrier)
        self.mbarrier.wait(barrier, phase=0)
        self.sync()
        with self.single_warp():
            self.tma.shared_to_global(s, g_y, offsets=offsets)
            self.tma.commit_group()
            self.tma.wait_group(n=0)


class MmaSync(tilus.Script):
    """C = A @ B, one tile by mma.sync, in fp16 or bf16: for every target."""

    def __init__(self, dtype: tilus.DataType = float16):
        super().__init__()
        self.dtype = dtype

    def __call__(self, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_a = self.global_view(a_ptr, dtype=self.dtype, shape=[16, k])
        g_b = self.global_view(b_ptr, dtype=self.dtype, shape=[k, 16])
        g_c = self.global_view(c_ptr, dtype=self.dtype, shape=[16, 16])
        s_a = self.shared_tensor(dtype=self.dtype, shape=[16, 32])
        s_b = self.shared_tensor(dtype=self.dtype, shape=[32, 16])
        acc = self.register_tensor(dtype=float32, shape=[16, 16], init=0.0)
        for offset in range(0, k, 32):
            self.copy_async(g_a, s_a, offsets=[0, offset])
            self.copy_async(g_b, s_b, offsets=[offset, 0])
            self.copy_async_commit_group()
            self.copy_async_wait_group(0)
            self.sync()
            acc = self.dot(self.load_shared(s_a), self.load_shared(s_b), acc)
            self.sync()
        self.store_global(g_c, acc.to(self.dtype), offsets=[0, 0])


class Wgmma(tilus.Script):
    """C = A @ B.T by TMA and wgmma, a producer warp and a consumer warpgroup; `in_flight` groups may be pending."""

    def __init__(self, block_m: int = 128, block_n: int = 128, block_k: int = 64, stages: int = 4, in_flight: int = 0):
        super().__init__()
        self.block_m = block_m
        self.block_n = block_n
        self.block_k = block_k
        self.stages = stages
        self.in_flight = in_flight

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        self.attrs.blocks = cdiv(m, self.block_m), cdiv(n, self.block_n)
        self.attrs.warps = 5
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        s_a = self.shared_tensor(dtype=float16, shape=[self.stages, self.block_m, self.block_k])
        s_b = self.shared_tensor(dtype=float16, shape=[self.stages, self.block_n, self.block_k])
        acc = self.register_tensor(dtype=float32, shape=[self.block_m, self.block_n], init=0.0)
        full = self.mbarrier.alloc([1 for _ in range(self.stages)])
        empty = self.mbarrier.alloc([128 for _ in range(self.stages)])
        offset_m: int32 = self.blockIdx.x * self.block_m
        offset_n: int32 = self.blockIdx.y * self.block_n
        self.sync()
        with self.thread_group(thread_begin=128, num_threads=32):
            stage: int32 = 0
            phase: uint32 = 1
            for offset_k in range(0, k, self.block_k):
                self.mbarrier.wait(empty[stage], phase=phase)
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full[stage], transaction_bytes=s_a[0].nbytes + s_b[0].nbytes)
                self.tma.global_to_shared(src=g_a, dst=s_a[stage], offsets=[offset_m, offset_k], mbarrier=full[stage])
                self.tma.global_to_shared(src=g_b, dst=s_b[stage], offsets=[offset_n, offset_k], mbarrier=full[stage])
                stage = (stage + 1) % self.stages
                phase ^= stage == 0
        with self.thread_group(thread_begin=0, num_threads=128):
            slot: int32 = 0
            parity: uint32 = 0
            for offset_k in range(0, k, self.block_k):
                self.mbarrier.wait(full[slot], phase=parity)
                self.wgmma.fence()
                self.wgmma.mma(s_a[slot], s_b[slot].transpose(), acc)
                self.wgmma.commit_group()
                self.wgmma.wait_group(self.in_flight)
                if offset_k >= self.in_flight * self.block_k:
                    self.mbarrier.arrive(empty[(slot + self.stages - self.in_flight) % self.stages])
                slot = (slot + 1) % self.stages
                parity ^= slot == 0
            self.wgmma.wait_group(0)
            self.store_global(g_c, acc.to(float16), offsets=[offset_m, offset_n])


class Grouped(tilus.Script):
    """y[tile] = 1 for every tile, visited in groups by fast_divmod, as upstream's V4 orders its tiles."""

    def __init__(self, block_m: int = 256, group: int = 4):
        super().__init__()
        self.block_m = block_m
        self.group = group

    def __call__(self, m: int32, columns: int, y_ptr: ~int32):
        rows = cdiv(m, self.block_m)
        self.attrs.blocks = rows * columns
        self.attrs.warps = 1
        g_y = self.global_view(y_ptr, dtype=int32, shape=[rows, columns])
        group, place = self.fast_divmod(self.blockIdx.x, rows * self.group)
        row, column = self.fast_divmod(place, self.group)
        one = self.register_tensor(dtype=int32, shape=[1, 1], init=1)
        self.store_global(g_y, one, offsets=[row, group * self.group + column])


class Scratch(tilus.Script):
    """Two workspaces, one of them zero at the launch, and a sum that uses scratch shared memory."""

    def __call__(self, m: int32, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = cdiv(m, 64)
        self.attrs.warps = 4
        clean = self.global_tensor(dtype=float32, shape=[cdiv(m, 64), 64], requires_clean=True)
        spare = self.global_tensor(dtype=float32, shape=[64, m], requires_clean=False)
        g_x = self.global_view(x_ptr, dtype=float32, shape=[m, 64])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[cdiv(m, 64), 64])
        x = self.load_global(g_x, offsets=[self.blockIdx.x * 64, 0], shape=[64, 64])
        self.store_global(spare, x, offsets=[0, self.blockIdx.x * 64])
        self.store_global(g_y, self.sum(x, dim=0, keepdim=True), offsets=[self.blockIdx.x, 0])
        zeros = self.load_global(clean, offsets=[self.blockIdx.x, 0], shape=[1, 64])
        self.store_global(g_y, zeros, offsets=[self.blockIdx.x, 0])


class Elementwise(tilus.Script):
    """y = x * x + x in the element type itself: for the operations of the real types."""

    def __init__(self, dtype: tilus.DataType):
        super().__init__()
        self.dtype = dtype

    def __call__(self, n: int32, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = cdiv(n, 128)
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=self.dtype, shape=[n])
        g_y = self.global_view(y_ptr, dtype=self.dtype, shape=[n])
        x = self.load_global(g_x, offsets=[self.blockIdx.x * 128], shape=[128])
        self.store_global(g_y, x * x + x, offsets=[self.blockIdx.x * 128])


class Clusters(tilus.Script):
    """Two CTAs of a cluster meet, and print: cooperative_groups and printf without their headers."""

    def __call__(self, m: int32, y_ptr: ~int32):
        self.attrs.blocks = cdiv(m, 64) * 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 1
        g_y = self.global_view(y_ptr, dtype=int32, shape=[m])
        self.cluster.sync()
        one = self.register_tensor(dtype=int32, shape=[64], init=1)
        self.store_global(g_y, one, offsets=[self.blockIdx.x * 64])
        self.cluster.sync()
        self.printf("m is %d\n", m)


class LateCluster(tilus.Script):
    """Two CTAs of a cluster meet, which may read then what each has written."""

    def __call__(self, m: int32, y_ptr: ~int32):
        self.attrs.blocks = cdiv(m, 64) * 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 1
        s = self.shared_tensor(dtype=int32, shape=[64])
        one = self.register_tensor(dtype=int32, shape=[64], init=1)
        self.store_shared(s, one)
        self.cluster.sync()
        g_y = self.global_view(y_ptr, dtype=int32, shape=[m])
        self.store_global(g_y, one, offsets=[self.blockIdx.x * 64])


class RowStride(tilus.Script):
    """A tensor behind TMA whose rows are 2 * k bytes apart, with k known at the launch alone."""

    def __call__(self, m: int32, k: int32, x_ptr: ~float16):
        self.attrs.blocks = cdiv(m, 64)
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float16, shape=[m, k])
        s = self.shared_tensor(dtype=float16, shape=[64, 64])
        barrier = self.mbarrier.alloc(counts=1)
        self.sync()
        with self.single_warp():
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(barrier, transaction_bytes=s.nbytes)
            self.tma.global_to_shared(src=g_x, dst=s, offsets=[self.blockIdx.x * 64, 0], mbarrier=barrier)
        self.mbarrier.wait(barrier, phase=0)


class Signed(tilus.Script):
    """y[0] = a < 0, y[1] = a % 4 < 0, and y[2 + shift]: what depends on the sign of a parameter."""

    def __call__(self, a: int32, n: int32, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        self.assume(a % 2 == 0)
        first: int32 = 0
        second: int32 = 0
        if a < 0:
            first = 1
        if a % 4 < 0:
            second = 1
        y = self.global_view(y_ptr, dtype=int32, shape=[n])
        self.store_global(y, self.register_tensor(dtype=int32, shape=[1], init=lambda i: first), offsets=[0])
        self.store_global(y, self.register_tensor(dtype=int32, shape=[1], init=lambda i: second), offsets=[1])
        self.store_global(y, self.register_tensor(dtype=int32, shape=[1], init=lambda i: 1), offsets=[a])


class Signs(tilus.Script):
    """A condition on the sign of a parameter of each type."""

    def __call__(self, a: int8, b: int16, c: int32, d: int64, u: uint32, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        found: int32 = 0
        if a < 0:
            found += 1
        if b < 0:
            found += 2
        if c < 0:
            found += 4
        if d < 0:
            found += 8
        y = self.global_view(y_ptr, dtype=int32, shape=[1])
        self.store_global(y, self.register_tensor(dtype=int32, shape=[1], init=lambda i: found), offsets=[0])


class PlaneCopy(tilus.Script):
    """One plane of x to one of y, by TMA over two dimensions of three."""

    def __call__(self, plane: int32, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float32, shape=[4, 10, 16])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[10, 4, 16])
        s = self.shared_tensor(dtype=float32, shape=[8, 8])
        full = self.mbarrier.alloc(counts=[1])
        self.sync()
        with self.single_warp():
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full[0], transaction_bytes=s.nbytes)
            self.tma.global_to_shared(src=g_x, dst=s, offsets=[plane, 1, 4], dims=[1, 2], mbarrier=full[0])
        self.mbarrier.wait(full[0], phase=0)
        self.fence.proxy_async(space="shared")
        self.sync()
        with self.single_warp():
            self.tma.shared_to_global(s, g_y, offsets=[2, plane, 8], dims=[0, 2])
            self.tma.commit_group()
            self.tma.wait_group(n=0)


class Boxes(tilus.Script):
    """Eight rows of x to y by TMA, each from and to a place of its own; through a swizzle of 128 bytes, if swizzled."""

    def __init__(self, load_at: list, store_at: list, columns: int = 32, swizzled: bool = False):
        super().__init__()
        self.load_at = load_at
        self.store_at = store_at
        self.columns = columns
        plain = shared_row_major(8, columns)
        self.layout = plain.apply_swizzle(Swizzle(base=2, bits=3, shift=3)) if swizzled else plain

    def __call__(self, row: int32, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float32, shape=[16, 64])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[16, 64])
        s = self.shared_tensor(dtype=float32, shape=[8, self.columns])
        self.annotate_layout(s, self.layout)
        full = self.mbarrier.alloc(counts=1)
        self.sync()
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=s.nbytes)
        self.tma.global_to_shared(src=g_x, dst=s, offsets=[row + self.load_at[0], self.load_at[1]], mbarrier=full)
        self.mbarrier.wait(full, phase=0)
        self.tma.shared_to_global(s, g_y, offsets=self.store_at)
        self.tma.commit_group()
        self.tma.wait_group(n=0)


class LeftOut(tilus.Script):
    """y = count, and the same at extra_ptr unless it is null."""

    def __call__(self, n: int, y_ptr: void_p, extra_ptr: void_p = 0, count: int32 = 3, scale: float32 = 0.5):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        ones = self.register_tensor(dtype=float32, shape=[n], init=1.0)
        values = ones * count * scale
        self.store_global(self.global_view(y_ptr, dtype=float32, shape=[n]), values, offsets=[0])
        if extra_ptr != 0:
            self.store_global(self.global_view(extra_ptr, dtype=float32, shape=[n]), values, offsets=[0])


class Rows(tilus.Script):
    """The first elements of a view of m rows."""

    def __call__(self, m: int32, n: int32, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        y = self.global_view(y_ptr, dtype=int32, shape=[m, n])
        self.store_global(y, self.register_tensor(dtype=int32, shape=[1, 32], init=1), offsets=[0, 0])


class NarrowNumbers(tilus.Script):
    """Sums cast back to a narrow type, NaN as a literal, and a cast between the 8-bit floats."""

    def __call__(self, a: int8, y_ptr: ~int32, x_ptr: ~float8_e4m3, z_ptr: ~float8_e5m2, w_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        if a + a:
            y = self.register_tensor(dtype=int32, shape=[1], init=1)
            self.store_global(self.global_view(y_ptr, dtype=int32, shape=[1]), y, offsets=[0])
        x = self.load_global(self.global_view(x_ptr, dtype=float8_e4m3, shape=[32]), offsets=[0], shape=[32])
        z = self.cast(x, dtype=float8_e5m2)
        self.store_global(self.global_view(z_ptr, dtype=float8_e5m2, shape=[32]), z, offsets=[0])
        w = self.register_tensor(dtype=float32, shape=[32], init=float("nan"))
        self.store_global(self.global_view(w_ptr, dtype=float32, shape=[32]), w, offsets=[0])


class SumOfTwo(tilus.Script):
    """y = x + z, of 32 x 64: x by registers, z by cp.async. shift: elements of x before its view."""

    def __init__(self, shift: int = 0):
        super().__init__()
        self.shift = shift

    def __call__(self, x_ptr: ~float32, y_ptr: ~float32, z_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr + self.shift, dtype=float32, shape=[32, 64])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[32, 64])
        g_z = self.global_view(z_ptr, dtype=float32, shape=[32, 64])
        x = self.load_global(g_x, offsets=[0, 0], shape=[32, 64])
        s = self.shared_tensor(dtype=float32, shape=[32, 64])
        self.copy_async(g_z, s, offsets=[0, 0])
        self.copy_async_wait_all()
        self.sync()
        self.store_global(g_y, x + self.load_shared(s), offsets=[0, 0])


class SharedOfType(tilus.Script):
    """y = x, by way of shared memory of any type."""

    def __init__(self, dtype: DataType):
        super().__init__()
        self.dtype = dtype

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=self.dtype, shape=[32])
        g_y = self.global_view(y_ptr, dtype=self.dtype, shape=[32])
        s = self.shared_tensor(dtype=self.dtype, shape=[32])
        self.store_shared(s, self.load_global(g_x, offsets=[0], shape=[32]))
        self.sync()
        self.store_global(g_y, self.load_shared(s), offsets=[0])


class AbsOfIntegers(tilus.Script):
    """Absolute values of integers, of which tilus has no code."""

    def __call__(self, x_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=int32, shape=[32])
        self.store_global(g_x, self.abs(self.load_global(g_x, offsets=[0], shape=[32])), offsets=[0])
