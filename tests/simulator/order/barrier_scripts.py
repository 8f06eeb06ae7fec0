"""Pairs about mbarriers, the tensor core and tensor memory; see thread_scripts.py."""

import tilus
from tilus import float16, float32, int32, uint32, void_p

ROWS, COLUMNS = 32, 64


class Ring(tilus.Script):
    """Warp 0 loads tiles of x by TMA into a ring of two stages, warp 1 adds one and stores them to y. Two barriers a
    stage: `full` counts the loader's arrival and its bytes, `empty` the lanes that have read."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault
        self.bytes = {"too many bytes": 4112, "too few bytes": 2048, "no bytes": 0}.get(fault, 4096)
        self.shift = 1 if fault == "the other barrier" else 0
        self.produced = 0 if fault == "the loader starts with 0" else 1
        self.consumed = 1 if fault == "the reader starts with 1" else 0
        self.full_count = 2 if fault == "full counts two" else 1
        self.empty_count = {"empty counts 33": 33, "empty counts 31": 31, "one lane arrives": 1}.get(fault, 32)
        self.arrivals = 2 if fault == "each lane arrives twice" else 1
        self.wait_sem = "relaxed" if fault == "relaxed wait" else "acquire"
        self.arrive_sem = "relaxed" if fault == "relaxed arrive" else "release"

    def __call__(self, tiles: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g_x = self.global_view(x_ptr, dtype=float16, shape=[tiles * ROWS, COLUMNS])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[tiles * ROWS, COLUMNS])
        s = self.shared_tensor(dtype=float16, shape=[2, ROWS, COLUMNS])
        full = self.mbarrier.alloc(counts=[self.full_count, self.full_count])  # full
        empty = self.mbarrier.alloc(counts=[self.empty_count, self.empty_count])  # empty
        self.sync()
        with self.single_warp(0):
            phase: uint32 = self.produced
            for i in range(tiles):
                stage = i % 2
                if self.fault != "the loader does not wait":
                    self.mbarrier.wait(empty[stage], phase=phase)  # room
                if self.fault != "nobody announces":
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(full[stage], transaction_bytes=self.bytes)
                ready = full[(stage + self.shift) % 2]
                self.tma.global_to_shared(src=g_x, dst=s[stage], offsets=[i * ROWS, 0], mbarrier=ready)  # copy
                if self.fault != "the loader never flips":
                    phase ^= stage == 1
        with self.single_warp(1):
            turn: uint32 = self.consumed
            for j in range(tiles):
                slot = j % 2
                if self.fault != "the reader does not wait":
                    self.mbarrier.wait(full[slot], phase=turn, sem=self.wait_sem)  # wait
                self.store_global(g_y, self.load_shared(s[slot]) + 1, offsets=[j * ROWS, 0])  # load
                if self.fault != "no fence":
                    self.fence.proxy_async(space="shared")
                if self.fault == "one lane arrives":
                    with self.single_thread():
                        self.mbarrier.arrive(empty[slot])
                elif self.fault != "the reader does not arrive":
                    self.mbarrier.arrive(empty[slot], count=self.arrivals, sem=self.arrive_sem)  # arrive
                if self.fault == "the reader flips each time":
                    turn ^= 1
                elif self.fault != "the reader never flips":
                    turn ^= slot == 1


class Cycle(tilus.Script):
    """Two warps tell each other that they are here. The fault: each waits before it tells."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault

    def __call__(self, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g_y = self.global_view(y_ptr, dtype=int32, shape=[64])
        one = self.mbarrier.alloc(counts=32)  # one
        two = self.mbarrier.alloc(counts=32)
        self.sync()
        with self.single_warp(0):
            self.mbarrier.wait(one, phase=0)  # first
            self.mbarrier.arrive(two)
        with self.single_warp(1):
            if self.fault == "":
                self.mbarrier.arrive(one)
            self.mbarrier.wait(two, phase=0)
            if self.fault != "":
                self.mbarrier.arrive(one)
        self.store_global(g_y, self.register_tensor(dtype=int32, shape=[64], init=lambda i: i), offsets=[0])


class InStep(tilus.Script):
    """The tensor core completes a phase in each round, and every warp waits for it. The sync keeps the warps in step:
    without it a second phase may end before a warp has seen the first, whose parity has then come back."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault

    def __call__(self, rounds: int32, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g_y = self.global_view(y_ptr, dtype=int32, shape=[64])
        step = self.mbarrier.alloc(counts=1)  # barrier
        phase: uint32 = 0
        self.sync()
        for i in range(rounds):
            with self.single_warp(0):
                self.tcgen05.commit(mbarrier=step)  # arrive
            self.mbarrier.wait(step, phase=phase)  # wait
            if self.fault != "no sync":
                self.sync()
            phase ^= 1
        self.store_global(g_y, self.register_tensor(dtype=int32, shape=[64], init=lambda i: i), offsets=[0])


class TwoSteps(tilus.Script):
    """D = A @ B.T in k-tiles: TMA, one MMA each, commit, wait; the accumulator is loaded at the end."""

    def __init__(self, fault: str = "", relaxed: bool = False):
        super().__init__()
        self.fault = fault
        self.loaded_sem = "relaxed" if fault == "relaxed wait for the operands" else "acquire"
        self.done_sem = "relaxed" if relaxed else "acquire"

    def __call__(self, tiles: int, a_ptr: void_p, b_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=float16, shape=[128, tiles * 32])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[16, tiles * 32])
        g_d = self.global_view(d_ptr, dtype=float32, shape=[128, 16])
        s_a = self.shared_tensor(dtype=float16, shape=[128, 32])
        s_b = self.shared_tensor(dtype=float16, shape=[16, 32])
        t_d = self.tcgen05.alloc(dtype=float32, shape=[128, 16])
        loaded = self.mbarrier.alloc(counts=1)
        free = self.mbarrier.alloc(counts=1)
        done = self.mbarrier.alloc(counts=1)  # done
        phase: uint32 = 0
        self.sync()
        with self.single_warp(0):
            for i in range(tiles):
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(loaded, transaction_bytes=s_a.nbytes + s_b.nbytes)
                self.tma.global_to_shared(src=g_a, dst=s_a, offsets=[0, i * 32], mbarrier=loaded)  # copy
                self.tma.global_to_shared(src=g_b, dst=s_b, offsets=[0, i * 32], mbarrier=loaded)
                if self.fault != "no wait for the operands":
                    self.mbarrier.wait(loaded, phase=phase, sem=self.loaded_sem)
                if self.fault == "commit before the last mma" and i == tiles - 1:
                    self.tcgen05.commit(mbarrier=done)
                self.tcgen05.mma(s_a, s_b.transpose(), t_d, enable_input_d=i != 0)  # mma
                if i != tiles - 1:
                    self.tcgen05.commit(mbarrier=free)
                    if self.fault != "no wait before the next tile":
                        self.mbarrier.wait(free, phase=phase)
                phase ^= 1
            if self.fault != "commit before the last mma" and self.fault != "commit by another warp":
                if self.fault != "no commit":
                    self.tcgen05.commit(mbarrier=done)
        if self.fault == "commit by another warp":
            with self.single_warp(1):
                self.tcgen05.commit(mbarrier=done)
        if self.fault == "only one warp waits":
            with self.single_warp(0):
                self.mbarrier.wait(done, phase=0)
        elif self.fault != "no wait for the accumulator":
            self.mbarrier.wait(done, phase=0, sem=self.done_sem)  # last
        r_d = self.tcgen05.load(t_d)  # load
        if self.fault != "no wait_load":
            self.tcgen05.wait_load()
        self.store_global(g_d, r_d, offsets=[0, 0])  # use
        self.sync()
        self.tcgen05.dealloc(t_d)


class Scratch(tilus.Script):
    """y = x through tensor memory, twice, the second time in new columns."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault
        self.columns = 512 if fault == "too many columns" else 64

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float32, shape=[128, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[128, 32])
        t_0 = self.tcgen05.alloc(dtype=float32, shape=[128, 32])  # alloc
        if self.fault == "relinquished early":
            self.tcgen05.relinquish_alloc_permit(cta_group=1)  # relinquish
        t_1 = self.tcgen05.alloc(dtype=float32, shape=[128, self.columns])  # second
        self.sync()
        self.tcgen05.store(t_0, self.load_global(g_x, offsets=[0, 0], shape=[128, 32]))  # store
        if self.fault != "no wait_store":
            self.tcgen05.wait_store()
        if self.fault == "leaves early" and self.blockIdx.x == 0:
            return
        r = self.tcgen05.load(t_0)  # load
        self.tcgen05.wait_load()
        if self.fault != "no sync before dealloc":
            self.sync()
        self.tcgen05.dealloc(t_0)  # dealloc
        self.sync()
        if self.fault == "used after dealloc":
            self.tcgen05.store(t_0, r)  # late
            self.tcgen05.wait_store()
        part = self.tcgen05.slice(t_1, offsets=[0, 0], dims=[0, 1], shape=[128, 32])
        self.tcgen05.store(part, r)
        self.tcgen05.wait_store()
        again = self.tcgen05.load(part)
        self.tcgen05.wait_load()
        self.store_global(g_y, again, offsets=[0, 0])
        self.sync()
        self.tcgen05.dealloc(t_1)


class Exit(tilus.Script):
    """A load, a store and an MMA, each waited for before the CTA returns."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault
        self.extra = 16 if fault == "bytes that never come" else 0

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float16, shape=[128, 64])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[128, 64])
        s_x = self.shared_tensor(dtype=float16, shape=[128, 64])
        s_y = self.shared_tensor(dtype=float16, shape=[128, 64])
        t = self.tcgen05.alloc(dtype=float32, shape=[128, 128])
        first = self.mbarrier.alloc(counts=1)
        second = self.mbarrier.alloc(counts=1)  # barrier
        done = self.mbarrier.alloc(counts=1)
        self.sync()
        with self.single_warp(0):
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(first, transaction_bytes=s_x.nbytes)
            self.tma.global_to_shared(src=g_x, dst=s_x, offsets=[0, 0], mbarrier=first)
            self.mbarrier.wait(first, phase=0)
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(second, transaction_bytes=s_x.nbytes + self.extra)
            self.tma.global_to_shared(src=g_x, dst=s_y, offsets=[0, 0], mbarrier=second)  # copy
            self.tma.shared_to_global(s_x, g_y, offsets=[0, 0])  # store
            self.tma.commit_group()
            self.tcgen05.mma(s_x, s_x.transpose(), t, enable_input_d=False)  # mma
            self.tcgen05.commit(mbarrier=done)  # commit
            if self.fault != "a load" and self.fault != "bytes that never come":
                self.mbarrier.wait(second, phase=0)
            if self.fault != "a store":
                self.tma.wait_group(n=0, read=True)
        if self.fault != "an mma":
            self.mbarrier.wait(done, phase=0)
        self.sync()
        self.tcgen05.dealloc(t)  # dealloc


class TwoBarriers(tilus.Script):
    """y = x by one TMA load; `other` is a barrier of something else. The fault: the load tells that one."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float16, shape=[ROWS, COLUMNS])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[ROWS, COLUMNS])
        s = self.shared_tensor(dtype=float16, shape=[ROWS, COLUMNS])
        full = self.mbarrier.alloc(counts=1)  # full
        other = self.mbarrier.alloc(counts=1)
        self.sync()
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=s.nbytes)
        if self.fault == "":
            self.tma.global_to_shared(src=g_x, dst=s, offsets=[0, 0], mbarrier=full)
        else:
            self.tma.global_to_shared(src=g_x, dst=s, offsets=[0, 0], mbarrier=other)
        self.mbarrier.wait(full, phase=0)  # wait
        self.store_global(g_y, self.load_shared(s), offsets=[0, 0])
