"""Kernels in which a tile goes through three or four warps, each of which waits for the one before."""

import tilus
from tilus import float16, float32, int32, uint32, void_p

ROWS, WIDE, COLUMNS = 128, 64, 32


class Rescaled(tilus.Script):
    """O = 2 O + (A A.T) A, some rounds long. Warp 4 multiplies twice, warps 0 to 3 pass the first product on by shared
    memory, and double the second one in tensor memory."""

    def __call__(self, rounds: int, a_ptr: void_p, o_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 8
        g_a = self.global_view(a_ptr, dtype=float16, shape=[ROWS, WIDE])
        g_o = self.global_view(o_ptr, dtype=float32, shape=[ROWS, WIDE])
        s_a = self.shared_tensor(dtype=float16, shape=[ROWS, WIDE])
        s_p = self.shared_tensor(dtype=float16, shape=[ROWS, ROWS])
        t_s = self.tcgen05.alloc(dtype=float32, shape=[ROWS, ROWS])
        t_o = self.tcgen05.alloc(dtype=float32, shape=[ROWS, WIDE])
        s_full = self.mbarrier.alloc(counts=1)
        s_empty = self.mbarrier.alloc(counts=128)
        p_full = self.mbarrier.alloc(counts=128)
        o_full = self.mbarrier.alloc(counts=1)
        self.store_shared(s_a, self.load_global(g_a, offsets=[0, 0], shape=[ROWS, WIDE]))
        self.fence.proxy_async(space="shared")
        self.sync()
        with self.single_warp(4):
            turn: uint32 = 0
            for i in range(rounds):
                self.mbarrier.wait(s_empty, phase=turn ^ 1)  # room
                self.tcgen05.mma(s_a, s_a.transpose(), t_s, enable_input_d=False)  # first
                self.tcgen05.commit(mbarrier=s_full)  # tells S
                self.mbarrier.wait(p_full, phase=turn)  # P
                self.tcgen05.mma(s_p, s_a, t_o, enable_input_d=i != 0)  # second
                self.tcgen05.commit(mbarrier=o_full)  # tells O
                turn ^= 1
        with self.warp_group(0, 4):
            turn: uint32 = 0
            for j in range(rounds):
                self.mbarrier.wait(s_full, phase=turn)  # S
                p = self.tcgen05.load(t_s)
                self.tcgen05.wait_load()
                self.mbarrier.arrive(s_empty)
                if j > 0:
                    self.mbarrier.wait(o_full, phase=turn ^ 1)  # O
                    old = self.tcgen05.load(t_o)
                    self.tcgen05.wait_load()
                    self.tcgen05.store(t_o, old * 2)
                    self.tcgen05.wait_store()
                self.store_shared(s_p, p.to(float16))
                self.fence.proxy_async(space="shared")
                self.mbarrier.arrive(p_full)
                turn ^= 1
            self.mbarrier.wait(o_full, phase=turn ^ 1)  # last
            o = self.tcgen05.load(t_o)
            self.tcgen05.wait_load()
            self.store_global(g_o, o, offsets=[0, 0])
        self.sync()
        self.tcgen05.dealloc(t_s)
        self.tcgen05.dealloc(t_o)


class Quantised(tilus.Script):
    """D = (2 A) B.T. Warp 4 loads, warps 0 to 3 write 2 A elsewhere, warp 5 multiplies. Warps 0 to 4 wait for
    `taken`."""

    def __call__(self, tiles: int, a_ptr: void_p, b_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 6
        g_a = self.global_view(a_ptr, dtype=float16, shape=[ROWS, tiles * COLUMNS])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[64, tiles * COLUMNS])
        g_d = self.global_view(d_ptr, dtype=float32, shape=[ROWS, 64])
        s_a = self.shared_tensor(dtype=float16, shape=[2, ROWS, COLUMNS])
        s_q = self.shared_tensor(dtype=float16, shape=[2, ROWS, COLUMNS])
        s_b = self.shared_tensor(dtype=float16, shape=[2, 64, COLUMNS])
        t_d = self.tcgen05.alloc(dtype=float32, shape=[ROWS, 64])
        a_full = self.mbarrier.alloc(counts=[1, 1])
        a_empty = self.mbarrier.alloc(counts=[128, 128])
        b_full = self.mbarrier.alloc(counts=[1, 1])
        q_full = self.mbarrier.alloc(counts=[128, 128])
        taken = self.mbarrier.alloc(counts=[1, 1])
        done = self.mbarrier.alloc(counts=1)
        self.sync()
        with self.single_warp(4):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.producer_initial_phase
            for i in range(tiles):
                self.mbarrier.wait(a_empty[stage], phase=phase)  # room for A
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(a_full[stage], transaction_bytes=s_a[0].nbytes)
                self.tma.global_to_shared(src=g_a, dst=s_a[stage], offsets=[0, i * 32], mbarrier=a_full[stage])  # A
                self.mbarrier.wait(taken[stage], phase=phase)  # room for B
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(b_full[stage], transaction_bytes=s_b[0].nbytes)
                self.tma.global_to_shared(src=g_b, dst=s_b[stage], offsets=[0, i * 32], mbarrier=b_full[stage])  # B
                stage = (stage + 1) % 2
                phase ^= stage == 0
        with self.single_warp(5):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.consumer_initial_phase
            for j in range(tiles):
                self.mbarrier.wait(b_full[stage], phase=phase)
                self.mbarrier.wait(q_full[stage], phase=phase)  # 2 A
                self.tcgen05.mma(s_q[stage], s_b[stage].transpose(), t_d, enable_input_d=j != 0)  # multiply
                self.tcgen05.commit(mbarrier=taken[stage])
                stage = (stage + 1) % 2
                phase ^= stage == 0
            self.tcgen05.commit(mbarrier=done)
        with self.warp_group(0, 4):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.consumer_initial_phase
            for t in range(tiles):
                self.mbarrier.wait(a_full[stage], phase=phase)
                r = self.load_shared(s_a[stage])
                self.fence.proxy_async(space="shared")
                self.mbarrier.arrive(a_empty[stage])
                self.mbarrier.wait(taken[stage], phase=phase ^ 1)  # room for 2 A
                self.store_shared(s_q[stage], r * 2)  # write 2 A
                self.fence.proxy_async(space="shared")
                self.mbarrier.arrive(q_full[stage])
                stage = (stage + 1) % 2
                phase ^= stage == 0
            self.mbarrier.wait(done, phase=0)
            d = self.tcgen05.load(t_d)
            self.tcgen05.wait_load()
            self.store_global(g_d, d, offsets=[0, 0])
        self.sync()
        self.tcgen05.dealloc(t_d)


class TwoReaders(tilus.Script):
    """C = D = (2 A) (2 A).T. Warp 4 loads, warps 0 to 3 double in place, warps 5 and 6 multiply the same tiles."""

    def __call__(self, tiles: int, a_ptr: void_p, c_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 7
        g_a = self.global_view(a_ptr, dtype=float16, shape=[ROWS, tiles * COLUMNS])
        g_c = self.global_view(c_ptr, dtype=float32, shape=[ROWS, ROWS])
        g_d = self.global_view(d_ptr, dtype=float32, shape=[ROWS, ROWS])
        s = self.shared_tensor(dtype=float16, shape=[2, ROWS, COLUMNS])
        t_c = self.tcgen05.alloc(dtype=float32, shape=[ROWS, ROWS])
        t_d = self.tcgen05.alloc(dtype=float32, shape=[ROWS, ROWS])
        full = self.mbarrier.alloc(counts=[1, 1])
        ready = self.mbarrier.alloc(counts=[128, 128])
        empty = self.mbarrier.alloc(counts=[2, 2])
        c_done = self.mbarrier.alloc(counts=1)
        d_done = self.mbarrier.alloc(counts=1)
        self.sync()
        with self.single_warp(4):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.producer_initial_phase
            for i in range(tiles):
                self.mbarrier.wait(empty[stage], phase=phase)  # room
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full[stage], transaction_bytes=s[0].nbytes)
                self.tma.global_to_shared(src=g_a, dst=s[stage], offsets=[0, i * 32], mbarrier=full[stage])  # load
                stage = (stage + 1) % 2
                phase ^= stage == 0
        with self.single_warp(5):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.consumer_initial_phase
            for j in range(tiles):
                self.mbarrier.wait(ready[stage], phase=phase)  # ready for C
                self.tcgen05.mma(s[stage], s[stage].transpose(), t_c, enable_input_d=j != 0)  # multiply for C
                self.tcgen05.commit(mbarrier=empty[stage])  # read for C
                stage = (stage + 1) % 2
                phase ^= stage == 0
            self.tcgen05.commit(mbarrier=c_done)
        with self.single_warp(6):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.consumer_initial_phase
            for h in range(tiles):
                self.mbarrier.wait(ready[stage], phase=phase)  # ready for D
                self.tcgen05.mma(s[stage], s[stage].transpose(), t_d, enable_input_d=h != 0)  # multiply for D
                self.tcgen05.commit(mbarrier=empty[stage])  # read for D
                stage = (stage + 1) % 2
                phase ^= stage == 0
            self.tcgen05.commit(mbarrier=d_done)
        with self.warp_group(0, 4):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.consumer_initial_phase
            for t in range(tiles):
                self.mbarrier.wait(full[stage], phase=phase)  # loaded
                r = self.load_shared(s[stage])
                self.sync()
                self.store_shared(s[stage], r * 2)  # double
                self.fence.proxy_async(space="shared")
                self.mbarrier.arrive(ready[stage])
                stage = (stage + 1) % 2
                phase ^= stage == 0
            self.mbarrier.wait(c_done, phase=0)
            c = self.tcgen05.load(t_c)
            self.tcgen05.wait_load()
            self.store_global(g_c, c, offsets=[0, 0])
            self.mbarrier.wait(d_done, phase=0)
            d = self.tcgen05.load(t_d)
            self.tcgen05.wait_load()
            self.store_global(g_d, d, offsets=[0, 0])
        self.sync()
        self.tcgen05.dealloc(t_c)
        self.tcgen05.dealloc(t_d)


class StagedStore(tilus.Script):
    """C = A A.T for tiles of A. Warp 4 loads, warp 5 multiplies into two accumulators, warps 0 to 3 put each into
    shared memory, warp 6 stores it by TMA."""

    def __call__(self, tiles: int, a_ptr: void_p, c_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 7
        g_a = self.global_view(a_ptr, dtype=float16, shape=[tiles * ROWS, COLUMNS])
        g_c = self.global_view(c_ptr, dtype=float32, shape=[tiles * ROWS, ROWS])
        s_a = self.shared_tensor(dtype=float16, shape=[2, ROWS, COLUMNS])
        s_c = self.shared_tensor(dtype=float32, shape=[ROWS, ROWS])
        t_c = self.tcgen05.alloc(dtype=float32, shape=[2, ROWS, ROWS])
        full = self.mbarrier.alloc(counts=[1, 1])
        empty = self.mbarrier.alloc(counts=[1, 1])
        summed = self.mbarrier.alloc(counts=[1, 1])
        drained = self.mbarrier.alloc(counts=[128, 128])
        c_full = self.mbarrier.alloc(counts=128)
        c_empty = self.mbarrier.alloc(counts=32)
        self.sync()
        with self.single_warp(4):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.producer_initial_phase
            for i in range(tiles):
                self.mbarrier.wait(empty[stage], phase=phase)  # room
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full[stage], transaction_bytes=s_a[0].nbytes)
                self.tma.global_to_shared(src=g_a, dst=s_a[stage], offsets=[i * ROWS, 0], mbarrier=full[stage])  # load
                stage = (stage + 1) % 2
                phase ^= stage == 0
        with self.single_warp(5):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.consumer_initial_phase
            for j in range(tiles):
                self.mbarrier.wait(drained[stage], phase=phase ^ 1)  # columns
                self.mbarrier.wait(full[stage], phase=phase)
                self.tcgen05.mma(s_a[stage], s_a[stage].transpose(), t_c[stage], enable_input_d=False)  # multiply
                self.tcgen05.commit(mbarrier=empty[stage])
                self.tcgen05.commit(mbarrier=summed[stage])
                stage = (stage + 1) % 2
                phase ^= stage == 0
        with self.warp_group(0, 4):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.consumer_initial_phase
            turn: uint32 = self.mbarrier.producer_initial_phase
            for t in range(tiles):
                self.mbarrier.wait(summed[stage], phase=phase)
                c = self.tcgen05.load(t_c[stage])
                self.tcgen05.wait_load()
                self.mbarrier.arrive(drained[stage])
                self.mbarrier.wait(c_empty, phase=turn)  # stored
                self.store_shared(s_c, c)  # put
                self.fence.proxy_async(space="shared")
                self.mbarrier.arrive(c_full)
                turn ^= 1
                stage = (stage + 1) % 2
                phase ^= stage == 0
        with self.single_warp(6):
            turn: uint32 = self.mbarrier.consumer_initial_phase
            for u in range(tiles):
                self.mbarrier.wait(c_full, phase=turn)  # C
                self.tma.shared_to_global(src=s_c, dst=g_c, offsets=[u * ROWS, 0])  # store
                self.tma.commit_group()
                self.tma.wait_group(0, read=True)
                self.sync()
                self.mbarrier.arrive(c_empty)
                turn ^= 1
            self.tma.wait_group(0)
        self.sync()
        self.tcgen05.dealloc(t_c)
