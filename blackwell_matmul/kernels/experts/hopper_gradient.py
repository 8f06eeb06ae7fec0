"""Gradient of the weights of a mixture of experts: for each group a product that sums over the group's rows.

The kernel follows H5, with another order of tiles. The MMA's K is along the rows of both operands. The last rows of a
group share a k-tile with rows of the next group. The warp that loads sets the latter to zero before it arrives at the
barrier of the full stage.
"""

from tilus import DataType, float32, int32, uint32, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.experts.scripts import GroupedGradientScript
from blackwell_matmul.kernels.parts.ring import Ring
from blackwell_matmul.problem.form import Form
from blackwell_matmul.scheduling.wgmma_fragments import MMA_ROWS, accumulator_layout, strip_layout


class HopperGroupedGradient(GroupedGradientScript):
    """C[g, k, n] = x[rows of group g, k].T @ y[rows of group g, n]; offs has the end of the rows of each group."""

    target = "sm_90a"
    mma = "wgmma"
    sizes = {
        "block_m": (64, 128), "block_n": (64, 128, 256), "block_k": (64,), "e_block_n": (32,), "stages": (2, 3, 4),
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
        self.consumers = block_m // MMA_ROWS
        self.strips = block_n // e_block_n
        self.buffers = 2
        self.acc_layout = accumulator_layout(MMA_ROWS, block_n)
        self.strip_layout = strip_layout(MMA_ROWS, block_n, e_block_n)

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
        # The grid: a CTA for an SM, but no more than the rounds need. `consumers` warpgroups multiply; one more loads.
        count = groups * cdiv(k, self.block_m) * cdiv(n, self.block_n)
        self.attrs.blocks = cdiv(count, cdiv(count, self.sm_count))
        self.attrs.warps = 4 * self.consumers + 1

        self.open_tensors(m, n, k, groups, x_ptr, y_ptr, offs_ptr, c_ptr)

        # On-chip memory: shared memory for `stages` k-tiles of x and y and, for each warpgroup, two strips of C.
        s_x = self.shared_tensor(dtype=self.dtype, shape=[self.stages, self.consumers, self.block_k, MMA_ROWS])
        s_y = self.shared_tensor(dtype=self.dtype, shape=[self.stages, self.block_k, self.block_n])
        s_c = self.shared_tensor(dtype=self.dtype, shape=[self.consumers, self.buffers, MMA_ROWS, self.e_block_n])

        # Barriers: a stage is full after one arrival and all the bytes that it announces, and empty after an arrival
        # of each warpgroup. A stage that is not full of the group's rows has landed before it is full.
        ring = Ring(self.stages, empties=self.consumers)
        landed = self.mbarrier.alloc(counts=[1])
        self.sync()  # every warp sees the initialised barriers

        # Main loop of the warp that loads.
        with self.single_warp(4 * self.consumers):
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
                    for part in self.range(0, self.consumers, 1, unroll="all"):
                        self.tma.global_to_shared(
                            src=self.g_x, dst=s_x[stage, part], offsets=[row, at_m + part * MMA_ROWS], mbarrier=told
                        )
                    self.tma.global_to_shared(src=self.g_y, dst=s_y[stage], offsets=[row, at_n], mbarrier=told)
                    if row + self.block_k > end:
                        self.mbarrier.wait(landed[0], phase=turn)
                        turn ^= 1
                        for part in self.range(0, self.consumers, 1, unroll="all"):
                            self.clear(s_x[stage, part], end - row)
                        self.clear(s_y[stage], end - row)
                        # Threads write through the generic proxy, the tensor core reads through the async proxy: each
                        # writer fences, then sync, and one thread arrives.
                        self.fence.proxy_async(space="shared")
                        self.sync()
                        with self.single_thread():
                            self.mbarrier.arrive(ring.full())
                    ring.advance()
                tile += self.gridDim.x

        # The warpgroups that multiply. wgmma needs its warps at compile time: hence one call for each.
        self.s_x, self.s_y, self.s_c = s_x, s_y, s_c
        with self.warp_group(0, 4):
            self.consume(0, ring, count, m, n, k)
        if self.consumers == 2:
            with self.warp_group(4, 4):
                self.consume(1, ring, count, m, n, k)

    def consume(self, which: int, ring: Ring, count: int32, m: int32, n: int, k: int):
        """Compute and store 64 rows of each tile: the code of warpgroup number `which`."""
        # Set once more, so that the compiler knows: all threads here have the same stage, and share one address.
        ring.stage, ring.phase = 0, 0
        tile: int32 = self.blockIdx.x
        while tile < count:
            group, at_m, at_n = self.place(tile, n, k)
            begin, end = self.rows(group, m)
            r_acc = self.register_tensor(dtype=float32, shape=[MMA_ROWS, self.block_n], init=0.0)
            for _ in range(begin, max(end, begin + 1), self.block_k):
                # The stage was written through the async proxy, or its writers have fenced: a wait is enough.
                ring.wait_full()
                stage = ring.stage
                # wgmma is asynchronous: the fence orders it after earlier accesses to its registers ("wgmma.fence"),
                # and no thread may touch the accumulator before the wait ("wgmma.wait_group").
                self.wgmma.fence()
                self.wgmma.mma(self.s_x[stage, which].transpose(), self.s_y[stage], r_acc)
                self.wgmma.commit_group()
                self.wgmma.wait_group(0)
                # Four warps execute a wgmma together: after the wait of one, all have read the stage.
                with self.single_thread(0):
                    self.mbarrier.arrive(ring.empty())
                ring.advance()

            # Epilogue: registers -> shared memory -> global memory, one strip of columns at a time.
            self.annotate_layout(r_acc, self.acc_layout)
            r_strips = self.view(r_acc, layout=self.strip_layout)
            with self.single_warp():
                self.tma.wait_group(n=0, read=True)  # strips of the tile before: any buffer may hold the last one
            for strip in self.range(0, self.strips, 1, unroll="all"):
                # Two buffers take turns: this one is free when TMA still reads at most the other. Only the thread that
                # issued the stores can wait ("cp.async.bulk.wait_group"): the others sync.
                with self.single_warp():
                    self.tma.wait_group(n=self.buffers - 1, read=True)
                self.sync()
                # Threads write through the generic proxy, TMA reads through the async proxy: each writer fences, then
                # sync.
                self.store_shared(self.s_c[which, strip % self.buffers], r_strips[0, strip].to(self.dtype))
                self.fence.proxy_async(space="shared")
                self.sync()
                with self.single_warp():
                    # Elements outside of C are not stored.
                    offsets = [group, at_m + which * MMA_ROWS, at_n + strip * self.e_block_n]
                    self.tma.shared_to_global(
                        self.s_c[which, strip % self.buffers], self.g_c, offsets=offsets, dims=[1, 2]
                    )
                    self.tma.commit_group()
            tile += self.gridDim.x

        # The CTA may exit once TMA has read the last strips.
        with self.single_warp():
            self.tma.wait_group(n=0, read=True)
