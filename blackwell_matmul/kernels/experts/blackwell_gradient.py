"""Gradient of the weights of a mixture of experts: for each group a product that sums over the group's rows.

The kernel follows V5, but each CTA takes every gridDim.x-th tile. The MMA's K is along the rows of both operands. The
last rows of a group share a k-tile with rows of the next group. The warp that loads sets the latter to zero before it
arrives at the barrier of the full stage.
"""

from tilus import DataType, float32, int32, uint32, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.experts.scripts import GroupedGradientScript
from blackwell_matmul.kernels.parts.ring import Ring
from blackwell_matmul.problem.form import Form


class BlackwellGroupedGradient(GroupedGradientScript):
    """C[g, k, n] = x[rows of group g, k].T @ y[rows of group g, n]; offs has the end of the rows of each group."""

    sizes = {
        "block_m": (128,), "block_n": (64, 128, 256), "block_k": (64,), "e_block_n": (16, 32), "stages": (2, 3, 4),
    }  # fmt: skip

    def __init__(
        self,
        dtype: DataType,
        block_m: int,
        block_n: int,
        block_k: int,
        e_block_n: int,
        stages: int,
        sm_count: int,
        form: Form,
    ):
        super().__init__()
        self.dtype = dtype
        self.form = form
        self.block_m = block_m
        self.block_n = block_n
        self.block_k = block_k
        self.e_block_n = e_block_n
        self.stages = stages
        self.sm_count = sm_count

    def __call__(
        self,
        m: int32,
        n: int,
        k: int,
        groups: int32,
        x_ptr: void_p,
        y_ptr: void_p,
        offs_ptr: void_p,
        c_ptr: void_p,
    ):
        # The grid: a CTA for an SM, but no more than the rounds need. Tensor memory has 128 lanes, a row of the tile in
        # each, and a warp can load 32 of them: hence four warps that store. Of two more one loads and one multiplies.
        count = groups * cdiv(k, self.block_m) * cdiv(n, self.block_n)
        self.attrs.blocks = cdiv(count, cdiv(count, self.sm_count))
        self.attrs.warps = 6

        self.open_tensors(m, n, k, groups, x_ptr, y_ptr, offs_ptr, c_ptr)

        # On-chip memory: shared memory for `stages` k-tiles of x and y and a strip of C, tensor memory for two
        # accumulators.
        s_x = self.shared_tensor(dtype=self.dtype, shape=[self.stages, self.block_k, self.block_m])
        s_y = self.shared_tensor(dtype=self.dtype, shape=[self.stages, self.block_k, self.block_n])
        s_c = self.shared_tensor(dtype=self.dtype, shape=[self.block_m, self.e_block_n])
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[2, self.block_m, self.block_n])
        # One CTA of an SM at a time may allocate ("tcgen05.alloc"): give up the permit, so that another one can.
        with self.single_warp():
            self.tcgen05.relinquish_alloc_permit(cta_group=1)

        # Barriers: a stage is full after one arrival and all the bytes that it announces, and empty after one, by
        # tcgen05.commit; an accumulator is full after one, by tcgen05.commit, and empty after one of each thread that
        # stores. A stage that is not full of the group's rows has landed before it is full.
        ring = Ring(self.stages)
        sums = Ring(2, empties=128)
        landed = self.mbarrier.alloc(counts=[1])
        self.sync()  # every warp sees the initialised barriers and the address of t_acc

        # Main loop of the warp that loads.
        with self.single_warp(4):
            tile_bytes = (self.block_m + self.block_n) * self.block_k * self.dtype.nbytes
            turn: uint32 = 0  # the parity of the phase in which a stage lands
            tile: int32 = self.blockIdx.x
            while tile < count:
                group, at_m, at_n = self.place(tile, n, k)
                begin, end = self.rows(group, m)
                for row in range(begin, max(end, begin + 1), self.block_k):
                    ring.wait_empty()
                    stage, told = ring.stage, ring.full()
                    if row + self.block_k > end:
                        told = landed[0]
                    # Announce the bytes once: from one thread, not from 32. TMA counts whole tiles, the zeros included.
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(told, transaction_bytes=tile_bytes)
                    self.tma.global_to_shared(src=self.g_x, dst=s_x[stage], offsets=[row, at_m], mbarrier=told)
                    self.tma.global_to_shared(src=self.g_y, dst=s_y[stage], offsets=[row, at_n], mbarrier=told)
                    if row + self.block_k > end:
                        self.mbarrier.wait(landed[0], phase=turn)
                        turn ^= 1
                        self.clear(s_x[stage], end - row)
                        self.clear(s_y[stage], end - row)
                        # Threads write through the generic proxy, the tensor core reads through the async proxy: each
                        # writer fences, then sync, and one thread arrives.
                        self.fence.proxy_async(space="shared")
                        self.sync()
                        with self.single_thread():
                            self.mbarrier.arrive(ring.full())
                    ring.advance()
                tile += self.gridDim.x

        # Main loop of the warp that multiplies.
        with self.single_warp(5):
            tile: int32 = self.blockIdx.x
            while tile < count:
                group, at_m, at_n = self.place(tile, n, k)
                begin, end = self.rows(group, m)
                sums.wait_empty()
                for row in range(begin, max(end, begin + 1), self.block_k):
                    # The stage was written through the async proxy, or its writers have fenced: a wait is enough.
                    ring.wait_full()
                    # The first k-tile overwrites the old contents of tensor memory. The MMA is asynchronous: commit
                    # makes the barrier track the MMAs of this thread so far ("tcgen05.commit").
                    stage = ring.stage
                    self.tcgen05.mma(s_x[stage].transpose(), s_y[stage], t_acc[sums.stage], enable_input_d=row != begin)
                    self.tcgen05.commit(mbarrier=ring.empty())
                    ring.advance()
                self.tcgen05.commit(mbarrier=sums.full())
                sums.advance()
                tile += self.gridDim.x

        # Epilogue: the warps that store, while the next tile is multiplied.
        with self.warp_group(0, 4):
            tile: int32 = self.blockIdx.x
            while tile < count:
                group, at_m, at_n = self.place(tile, n, k)
                sums.wait_full()
                # Tensor memory -> registers -> shared memory -> global memory, one strip of columns at a time.
                for e_offset_n in range(0, self.block_n, self.e_block_n):
                    # Loads are asynchronous too: the registers hold nothing before the wait ("tcgen05.wait").
                    t_strip = self.tcgen05.slice(
                        t_acc[sums.stage], [0, e_offset_n], [0, 1], [self.block_m, self.e_block_n]
                    )
                    r_strip = self.tcgen05.load(t_strip)
                    self.tcgen05.wait_load()
                    # Threads write through the generic proxy, TMA reads through the async proxy: each writer fences,
                    # then sync.
                    self.store_shared(s_c, r_strip.to(self.dtype))
                    self.fence.proxy_async(space="shared")
                    self.sync()
                    with self.single_warp():
                        # Elements outside of C are not stored.
                        self.tma.shared_to_global(s_c, self.g_c, offsets=[group, at_m, at_n + e_offset_n], dims=[1, 2])
                        # Shared memory may change, and the CTA may exit, once TMA has read s_c: `read` waits for that
                        # alone. Only the thread that issued the store can wait ("cp.async.bulk.wait_group"): the others
                        # sync.
                        self.tma.commit_group()
                        self.tma.wait_group(n=0, read=True)
                    self.sync()
                self.mbarrier.arrive(sums.empty())
                sums.advance()
                tile += self.gridDim.x

        # Tensor memory must be freed before the CTA exits ("tcgen05.dealloc").
        self.sync()
        self.tcgen05.dealloc(t_acc)
