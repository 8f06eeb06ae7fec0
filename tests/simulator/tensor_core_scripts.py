"""Small scripts for the tests of tensor memory and the tensor core; see async_scripts.py."""

import tilus
from tilus import DataType, float16, float32, int32, uint32, void_p


class TensorMemory(tilus.Script):
    """y = x through a slice of tensor memory of rank 3: store, wait, load, wait.

    wait_store, wait_load: drop one. dealloc: "end", "early" (before the last wait) or "never".
    column: where the slice begins.
    """

    def __init__(
        self,
        dtype: DataType,
        columns: int = 32,
        wait_store: bool = True,
        wait_load: bool = True,
        dealloc: str = "end",
        column: int = 0,
    ):
        super().__init__()
        self.dtype = dtype
        self.columns = columns
        self.wait_store = wait_store
        self.wait_load = wait_load
        self.dealloc = dealloc
        self.column = column

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=self.dtype, shape=[128, self.columns])
        g_y = self.global_view(y_ptr, dtype=self.dtype, shape=[128, self.columns])
        t_all = self.tcgen05.alloc(dtype=self.dtype, shape=[2, 128, 2 * self.columns])
        t = self.tcgen05.slice(t_all, offsets=[1, 0, self.column], dims=[1, 2], shape=[128, self.columns])
        self.tcgen05.store(t, self.load_global(g_x, offsets=[0, 0], shape=[128, self.columns]))
        if self.wait_store:
            self.tcgen05.wait_store()
        r = self.tcgen05.load(t)
        if self.dealloc == "early":
            self.sync()
            self.tcgen05.dealloc(t_all)
        if self.wait_load:
            self.tcgen05.wait_load()
        self.store_global(g_y, r, offsets=[0, 0])
        self.sync()
        if self.dealloc == "end":
            self.tcgen05.dealloc(t_all)


class Twice(tilus.Script):
    """Allocates, frees, allocates again; reads what nobody wrote, or uses what was freed, when told to."""

    def __init__(self, write: bool = True, late: bool = False):
        super().__init__()
        self.write = write
        self.late = late

    def __call__(self, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_y = self.global_view(y_ptr, dtype=float32, shape=[128, 32])
        t_0 = self.tcgen05.alloc(dtype=float32, shape=[128, 32])
        ones = self.register_tensor(dtype=float32, shape=[128, 32], init=1.0)
        self.tcgen05.store(t_0, ones)
        self.tcgen05.wait_store()
        self.sync()
        self.tcgen05.dealloc(t_0)
        if self.late:
            self.tcgen05.store(t_0, ones)
            self.tcgen05.wait_store()
        t_1 = self.tcgen05.alloc(dtype=float32, shape=[128, 32])
        if self.write:
            self.tcgen05.store(t_1, ones + 1.0)
            self.tcgen05.wait_store()
        r = self.tcgen05.load(t_1)
        self.tcgen05.wait_load()
        self.store_global(g_y, r, offsets=[0, 0])
        self.sync()
        self.tcgen05.dealloc(t_1)


class Product(tilus.Script):
    """D = A @ B.T in k-tiles that go through `stages` slots of shared memory; one warp loads, multiplies, commits.

    wait_tma, wait_mma: drop the wait on the barrier of TMA, or that of the MMA inside the loop. wait_last: the wait
    before the accumulator is loaded. commit: the last commit. wait_load: before the registers are used. early: the
    last commit comes before the last MMA. clear: the first MMA clears the accumulator. other_warp: warp 1 commits for
    warp 0. more_bytes: expected beyond what TMA delivers. flip: the phase, after each k-tile. lanes: how many announce
    the bytes.
    """

    def __init__(
        self,
        dtype: DataType,
        acc: DataType,
        block_n: int = 16,
        block_k: int = 32,
        wait_tma: bool = True,
        wait_mma: bool = True,
        wait_last: bool = True,
        commit: bool = True,
        wait_load: bool = True,
        early: bool = False,
        clear: bool = True,
        other_warp: bool = False,
        more_bytes: int = 0,
        flip: bool = True,
        lanes: int = 1,
    ):
        super().__init__()
        self.dtype = dtype
        self.acc = acc
        self.block_n = block_n
        self.block_k = block_k
        self.wait_tma = wait_tma
        self.wait_mma = wait_mma
        self.wait_last = wait_last
        self.commit = commit
        self.wait_load = wait_load
        self.early = early
        self.clear = clear
        self.other_warp = other_warp
        self.more_bytes = more_bytes
        self.flip = flip
        self.lanes = lanes

    def __call__(self, tiles: int, a_ptr: void_p, b_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        k = tiles * self.block_k
        g_a = self.global_view(a_ptr, dtype=self.dtype, shape=[128, k])
        g_b = self.global_view(b_ptr, dtype=self.dtype, shape=[self.block_n, k])
        g_d = self.global_view(d_ptr, dtype=self.acc, shape=[128, self.block_n])
        s_a = self.shared_tensor(dtype=self.dtype, shape=[128, self.block_k])
        s_b = self.shared_tensor(dtype=self.dtype, shape=[self.block_n, self.block_k])
        t_d = self.tcgen05.alloc(dtype=self.acc, shape=[128, self.block_n])
        tma_barrier = self.mbarrier.alloc(counts=1)
        mma_barrier = self.mbarrier.alloc(counts=1)
        done = self.mbarrier.alloc(counts=1)
        phase: uint32 = 0
        tile_bytes = s_a.nbytes + s_b.nbytes + self.more_bytes
        self.sync()
        with self.single_warp():
            for i in range(tiles):
                with self.thread_group(thread_begin=0, num_threads=self.lanes):
                    self.mbarrier.arrive_and_expect_tx(tma_barrier, transaction_bytes=tile_bytes)
                self.tma.global_to_shared(src=g_a, dst=s_a, offsets=[0, i * self.block_k], mbarrier=tma_barrier)
                self.tma.global_to_shared(src=g_b, dst=s_b, offsets=[0, i * self.block_k], mbarrier=tma_barrier)
                if self.wait_tma:
                    self.mbarrier.wait(tma_barrier, phase=phase)
                if self.early and i == tiles - 1:
                    self.tcgen05.commit(mbarrier=done)
                self.tcgen05.mma(s_a, s_b.transpose(), t_d, enable_input_d=(i != 0) or (not self.clear))
                self.tcgen05.commit(mbarrier=mma_barrier)
                if self.wait_mma:
                    self.mbarrier.wait(mma_barrier, phase=phase)
                if self.flip:
                    phase ^= 1
            if self.commit and not self.early and not self.other_warp:
                self.tcgen05.commit(mbarrier=done)
        if self.other_warp:
            self.sync()
            with self.single_warp(1):
                self.tcgen05.commit(mbarrier=done)
        if self.wait_last:
            self.mbarrier.wait(done, phase=0)
        r_d = self.tcgen05.load(t_d)
        if self.wait_load:
            self.tcgen05.wait_load()
        self.store_global(g_d, r_d, offsets=[0, 0])
        self.sync()
        self.tcgen05.dealloc(t_d)


class LastMma(tilus.Script):
    """One MMA, and then the end: what is still in flight when tensor memory is freed, or at the exit. half: a second
    MMA adds to the columns from there to the 64th after them."""

    def __init__(self, commit: bool = True, wait: bool = True, half: int = -1):
        super().__init__()
        self.half = half
        self.commit = commit
        self.wait = wait

    def __call__(self, a_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=float16, shape=[128, 64])
        s_a = self.shared_tensor(dtype=float16, shape=[128, 64])
        s_half = self.reshape_shared(s_a, [2, 64, 64])
        t_d = self.tcgen05.alloc(dtype=float32, shape=[128, 128])
        tma_barrier = self.mbarrier.alloc(counts=1)
        mma_barrier = self.mbarrier.alloc(counts=1)
        self.sync()
        with self.single_warp():
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(tma_barrier, transaction_bytes=s_a.nbytes)
            self.tma.global_to_shared(src=g_a, dst=s_a, offsets=[0, 0], mbarrier=tma_barrier)
            self.mbarrier.wait(tma_barrier, phase=0)
            self.tcgen05.mma(s_a, s_a.transpose(), t_d, enable_input_d=False)
            if self.half >= 0:
                t_half = self.tcgen05.slice(t_d, [0, self.half], [0, 1], [128, 64])
                self.tcgen05.mma(s_a, s_half[0].transpose(), t_half, enable_input_d=True)  # again
            if self.commit:
                self.tcgen05.commit(mbarrier=mma_barrier)
            if self.wait:
                self.mbarrier.wait(mma_barrier, phase=0)
        self.sync()
        self.tcgen05.dealloc(t_d)


class CopyToTensorMemory(tilus.Script):
    """y = x: cp.async to shared memory, tcgen05.cp to tensor memory, tcgen05.ld to registers."""

    def __init__(self, wait_cp_async: bool = True, wait_copy: bool = True, overwrite: bool = False):
        super().__init__()
        self.wait_cp_async = wait_cp_async
        self.wait_copy = wait_copy
        self.overwrite = overwrite

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=int32, shape=[128, 32])
        g_y = self.global_view(y_ptr, dtype=int32, shape=[128, 32])
        s_x = self.shared_tensor(dtype=int32, shape=[128, 32])
        t_x = self.tcgen05.alloc(dtype=int32, shape=[128, 32])
        copied = self.mbarrier.alloc(counts=1)
        self.sync()
        self.copy_async(src=g_x, dst=s_x, offsets=[0, 0])
        if self.wait_cp_async:
            self.copy_async_wait_all()
        self.fence.proxy_async(space="shared")
        self.sync()
        with self.single_warp():
            self.tcgen05.copy(src=s_x, dst=t_x)
            self.tcgen05.commit(mbarrier=copied)
        if self.overwrite:
            self.sync()
            self.store_shared(s_x, self.load_global(g_x, offsets=[0, 0], shape=[128, 32]) + 5)
        if self.wait_copy:
            self.mbarrier.wait(copied, phase=0)
        r = self.tcgen05.load(t_x)
        self.tcgen05.wait_load()
        self.store_global(g_y, r, offsets=[0, 0])
        self.copy_async_wait_all()
        self.sync()
        self.tcgen05.dealloc(t_x)
