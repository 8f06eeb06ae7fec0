"""Bugs that others met, as small scripts: each is correct as it comes, and `fault` puts the bug back; see
thread_scripts.py. The reference of each is in its docstring.
"""

import tilus
from tilus import float16, float32, int32, uint32, void_p

ROWS, COLUMNS = 32, 64


class OneLaneArrives(tilus.Script):
    """NVIDIA/cudnn-frontend issue 426: 32 lanes store to shared memory, and the elected lane alone arrives."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g_x = self.global_view(x_ptr, dtype=float32, shape=[32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[32])
        s = self.shared_tensor(dtype=float32, shape=[32])
        full = self.mbarrier.alloc(counts=1)
        self.sync()
        with self.single_warp(0):
            self.store_shared(s, self.load_global(g_x, offsets=[0], shape=[32]))  # store
            if self.fault == "":
                self.sync()
            with self.single_thread():
                self.mbarrier.arrive(full)
        with self.single_warp(1):
            self.mbarrier.wait(full, phase=0)
            self.store_global(g_y, self.load_shared(s), offsets=[0])  # load


class SecondReader(tilus.Script):
    """triton-lang/triton issue 11216: a second MMA reads a slot after the commit of the first, and the slot is
    overwritten because the first read is done. The sum of both products, of A and then of the tile that follows it."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault

    def __call__(self, a_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=float16, shape=[256, 64])
        g_d = self.global_view(d_ptr, dtype=float32, shape=[128, 128])
        s_a = self.shared_tensor(dtype=float16, shape=[128, 64])
        t_d = self.tcgen05.alloc(dtype=float32, shape=[128, 128])
        full = self.mbarrier.alloc(counts=1)
        read = self.mbarrier.alloc(counts=1)
        done = self.mbarrier.alloc(counts=1)
        self.sync()
        with self.single_warp(0):
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=s_a.nbytes)
            self.tma.global_to_shared(src=g_a, dst=s_a, offsets=[0, 0], mbarrier=full)
            self.mbarrier.wait(full, phase=0)
            self.tcgen05.mma(s_a, s_a.transpose(), t_d, enable_input_d=False)
            self.tcgen05.commit(mbarrier=read)
            self.mbarrier.wait(read, phase=0)
            self.tcgen05.mma(s_a, s_a.transpose(), t_d, enable_input_d=True)  # second
            self.tcgen05.commit(mbarrier=read)
            if self.fault == "":
                self.mbarrier.wait(read, phase=1)
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=s_a.nbytes)
            self.tma.global_to_shared(src=g_a, dst=s_a, offsets=[128, 0], mbarrier=full)  # copy
            self.mbarrier.wait(full, phase=1)
            self.tcgen05.mma(s_a, s_a.transpose(), t_d, enable_input_d=True)
            self.tcgen05.commit(mbarrier=done)
        self.mbarrier.wait(done, phase=0)
        r_d = self.tcgen05.load(t_d)
        self.tcgen05.wait_load()
        self.store_global(g_d, r_d, offsets=[0, 0])
        self.sync()
        self.tcgen05.dealloc(t_d)


class TwoLoadsOneBarrier(tilus.Script):
    """triton-lang/triton issue 9046: two loads share a barrier that expects the bytes of one of them, or too many."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault
        self.bytes = {"bytes of one load": 4096, "bytes of three loads": 12288}.get(fault, 8192)

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float16, shape=[2 * ROWS, COLUMNS])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[2 * ROWS, COLUMNS])
        s_0 = self.shared_tensor(dtype=float16, shape=[ROWS, COLUMNS])
        s_1 = self.shared_tensor(dtype=float16, shape=[ROWS, COLUMNS])
        full = self.mbarrier.alloc(counts=1)  # full
        self.sync()
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=self.bytes)
        self.tma.global_to_shared(src=g_x, dst=s_0, offsets=[0, 0], mbarrier=full)  # first
        self.tma.global_to_shared(src=g_x, dst=s_1, offsets=[ROWS, 0], mbarrier=full)  # second
        self.mbarrier.wait(full, phase=0)  # wait
        self.store_global(g_y, self.load_shared(s_0), offsets=[0, 0])
        self.store_global(g_y, self.load_shared(s_1), offsets=[ROWS, 0])  # load


class NoWork(tilus.Script):
    """vllm-project/vllm issue 26026: a warp without work arrives on the barrier and goes on without waiting. Here two
    warps meet twice in each round, before and after the read, and warp 1 has a row to write in the even ones."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault

    def __call__(self, rounds: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g_x = self.global_view(x_ptr, dtype=float32, shape=[rounds, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[rounds, 32])
        s = self.shared_tensor(dtype=float32, shape=[32])
        both = self.mbarrier.alloc(counts=64)  # both
        self.sync()
        for i in range(rounds):
            with self.single_warp(1):
                if i % 2 == 0:
                    self.store_shared(s, self.load_global(g_x, offsets=[i, 0], shape=[32], dims=[1]))  # store
                self.mbarrier.arrive(both)  # arrive
                if self.fault == "" or i % 2 == 0:
                    self.mbarrier.wait(both, phase=0)  # wait
            with self.single_warp(0):
                self.mbarrier.arrive(both)
                self.mbarrier.wait(both, phase=0)  # other
                self.store_global(g_y, self.load_shared(s), offsets=[i, 0], dims=[1])  # load
            self.mbarrier.arrive(both)
            self.mbarrier.wait(both, phase=1)  # room


class OneArrivalForTwo(tilus.Script):
    """NVIDIA/cutlass issue 2418: two consumer warps release a slot on a barrier that counts one arrival."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault
        self.count = 64 if fault == "" else 32

    def __call__(self, tiles: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 3
        g_x = self.global_view(x_ptr, dtype=float16, shape=[tiles * ROWS, COLUMNS])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[tiles * ROWS, COLUMNS])
        s = self.shared_tensor(dtype=float16, shape=[ROWS, COLUMNS])
        full = self.mbarrier.alloc(counts=1)
        empty = self.mbarrier.alloc(counts=self.count)  # empty
        phase: uint32 = 0
        self.sync()
        for i in range(tiles):
            with self.single_warp(0):
                self.mbarrier.wait(empty, phase=phase ^ 1)  # room
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=s.nbytes)
                self.tma.global_to_shared(src=g_x, dst=s, offsets=[i * ROWS, 0], mbarrier=full)  # copy
            with self.thread_group(32, 64):
                self.mbarrier.wait(full, phase=phase)  # wait
                self.store_global(g_y, self.load_shared(s), offsets=[i * ROWS, 0])  # load
                self.fence.proxy_async(space="shared")
                self.mbarrier.arrive(empty)  # arrive
            phase ^= 1


class PackedColumns(tilus.Script):
    """Tensor memory packed by columns (facebookexperimental/triton, TLX): an MMA that clears its accumulator also
    clears the columns next to it, which another warp still reads."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault
        self.column = 32 if fault == "" else 16

    def __call__(self, a_ptr: void_p, b_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=float16, shape=[128, 64])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[32, 64])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[128, 32])
        s_a = self.shared_tensor(dtype=float16, shape=[128, 64])
        s_b = self.shared_tensor(dtype=float16, shape=[32, 64])
        t = self.tcgen05.alloc(dtype=float32, shape=[128, 64])
        t_y = self.tcgen05.slice(t, offsets=[0, 0], dims=[0, 1], shape=[128, 32])
        t_d = self.tcgen05.slice(t, offsets=[0, self.column], dims=[0, 1], shape=[128, 32])
        full = self.mbarrier.alloc(counts=1)
        done = self.mbarrier.alloc(counts=1)
        ones = self.register_tensor(dtype=float32, shape=[128, 32], init=1.0)
        self.tcgen05.store(t_y, ones)
        self.tcgen05.wait_store()
        self.sync()
        with self.single_warp(0):
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=s_a.nbytes + s_b.nbytes)
            self.tma.global_to_shared(src=g_a, dst=s_a, offsets=[0, 0], mbarrier=full)
            self.tma.global_to_shared(src=g_b, dst=s_b, offsets=[0, 0], mbarrier=full)
            self.mbarrier.wait(full, phase=0)
            self.tcgen05.mma(s_a, s_b.transpose(), t_d, enable_input_d=False)  # mma
            self.tcgen05.commit(mbarrier=done)
        r = self.tcgen05.load(t_y)  # load
        self.tcgen05.wait_load()
        self.store_global(g_y, r, offsets=[0, 0])
        self.mbarrier.wait(done, phase=0)
        self.sync()
        self.tcgen05.dealloc(t)


class LateWait(tilus.Script):
    """facebookexperimental/CUTracer, its pair of matmul kernels: the wait on the loads comes after the MMA; or it is
    gone, and a loop that takes its time hides it."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault

    def __call__(self, turns: int32, a_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=float16, shape=[128, 64])
        g_d = self.global_view(d_ptr, dtype=float32, shape=[128, 128])
        s_a = self.shared_tensor(dtype=float16, shape=[128, 64])
        t_d = self.tcgen05.alloc(dtype=float32, shape=[128, 128])
        full = self.mbarrier.alloc(counts=1)
        done = self.mbarrier.alloc(counts=1)
        self.sync()
        with self.single_warp(0):
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=s_a.nbytes)
            self.tma.global_to_shared(src=g_a, dst=s_a, offsets=[0, 0], mbarrier=full)  # copy
            if self.fault == "":
                self.mbarrier.wait(full, phase=0)
            if self.fault == "a loop instead of the wait":
                i: int32 = 0
                while i < turns:
                    i += 1
            self.tcgen05.mma(s_a, s_a.transpose(), t_d, enable_input_d=False)  # mma
            self.tcgen05.commit(mbarrier=done)
            if self.fault == "the wait after the mma":
                self.mbarrier.wait(full, phase=0)
        self.mbarrier.wait(done, phase=0)
        r_d = self.tcgen05.load(t_d)
        self.tcgen05.wait_load()
        self.store_global(g_d, r_d, offsets=[0, 0])
        self.sync()
        self.tcgen05.dealloc(t_d)


class UnrelatedLoads(tilus.Script):
    """jax-ml/jax, the GPU interpreter of 0.12: an accumulator read before its MMA is done goes unnoticed after exactly
    `loads` = 4 unrelated TMA loads, because clock slots are used again."""

    def __init__(self, fault: str = "", loads: int = 4):
        super().__init__()
        self.fault = fault
        self.loads = loads

    def __call__(self, a_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=float16, shape=[128, 64])
        g_d = self.global_view(d_ptr, dtype=float32, shape=[128, 128])
        s_a = self.shared_tensor(dtype=float16, shape=[128, 64])
        s_x = self.shared_tensor(dtype=float16, shape=[128, 64])
        t_d = self.tcgen05.alloc(dtype=float32, shape=[128, 128])
        full = self.mbarrier.alloc(counts=1)
        done = self.mbarrier.alloc(counts=1)
        phase: uint32 = 0
        self.sync()
        with self.single_warp(0):
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=s_a.nbytes)
            self.tma.global_to_shared(src=g_a, dst=s_a, offsets=[0, 0], mbarrier=full)
            self.mbarrier.wait(full, phase=phase)
            phase ^= 1
            self.tcgen05.mma(s_a, s_a.transpose(), t_d, enable_input_d=False)  # mma
            self.tcgen05.commit(mbarrier=done)
            for i in range(self.loads):
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=s_x.nbytes)
                self.tma.global_to_shared(src=g_a, dst=s_x, offsets=[0, 0], mbarrier=full)
                self.mbarrier.wait(full, phase=phase)
                phase ^= 1
        self.sync()
        if self.fault == "":
            self.mbarrier.wait(done, phase=0)
        r_d = self.tcgen05.load(t_d)  # load
        self.tcgen05.wait_load()
        self.store_global(g_d, r_d, offsets=[0, 0])
        self.mbarrier.wait(done, phase=0)
        self.sync()
        self.tcgen05.dealloc(t_d)
