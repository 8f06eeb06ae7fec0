"""Grouped GEMM of a mixture of experts: a product for each group of rows, in one launch.

The kernel follows H5: persistent CTAs, one warp that loads, warpgroups that multiply. A tile belongs to one group and
begins at any row, which TMA allows. Rows after the group's end are computed but not stored. TMA stores the strips of a
warpgroup if all its rows belong to the group; otherwise they are stored from registers.
"""

from tilus import DataType, RegisterTensor, float32, int32, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.experts.scripts import GroupedScript
from blackwell_matmul.kernels.host.matmul import ALIGNMENT_BYTES
from blackwell_matmul.kernels.parts.grouped_raster import GroupedRaster
from blackwell_matmul.kernels.parts.operand import lines
from blackwell_matmul.kernels.parts.ring import Ring
from blackwell_matmul.problem.form import Form
from blackwell_matmul.scheduling.mma import Wgmma
from blackwell_matmul.scheduling.wgmma_fragments import MMA_ROWS, accumulator_layout, strip_layout


class HopperGroupedMatmul(GroupedScript):
    """C[rows of group g] = x[rows of group g, k] @ w[g, k, n]; offs has the end of the rows of each group."""

    target = "sm_90a"
    mma = "wgmma"
    sizes = {
        "block_m": (64, 128), "block_n": (64, 128, 256), "block_k": (64,), "e_block_n": (64,), "stages": (2, 3, 4),
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
        self.take_form(form)
        self.block_m = block_m
        self.block_n = block_n
        self.block_k = block_k
        self.e_block_n = e_block_n
        self.stages = stages
        self.sm_count = sm_count
        self.consumers = block_m // MMA_ROWS
        self.in_flight = Wgmma.in_flight(block_n, self.consumers)
        self.strips = block_n // e_block_n
        self.buffers = min(2, self.strips)
        self.acc_layout = accumulator_layout(MMA_ROWS, block_n)
        self.strip_layout = strip_layout(MMA_ROWS, block_n, e_block_n)

    def __call__(
        self,
        m: int32,
        n: int,
        k: int,
        groups: int32,
        x_ptr: void_p,
        w_ptr: void_p,
        offs_ptr: void_p,
        c_ptr: void_p,
    ):
        # The grid: a CTA for an SM, but no more than there can be tiles: each group, and the rows after the last one,
        # have a tile that is not full at most. `consumers` warpgroups multiply; one more warp loads.
        tiles_n = cdiv(n, self.block_n)
        count = (m // self.block_m + groups + 1) * tiles_n
        self.attrs.blocks = count if count < self.sm_count else self.sm_count
        self.attrs.warps = 4 * self.consumers + 1

        g_x, w = self.open_operands(m, n, k, groups, x_ptr, w_ptr)
        g_offs = self.global_view(offs_ptr, dtype=int32, shape=[groups])
        walk = GroupedRaster(g_offs, groups, m, self.block_m, tiles_n)

        # On-chip memory: shared memory for `stages` k-tiles of x and w and, for each warpgroup, up to two strips of C.
        s_x = self.shared_tensor(dtype=self.dtype, shape=[self.stages, self.block_m, self.block_k])
        s_w = self.shared_tensor(dtype=self.dtype, shape=lines(self.w_k, [self.stages], self.block_n, self.block_k))
        s_c = self.shared_tensor(dtype=self.dtype, shape=[self.consumers, self.buffers, MMA_ROWS, self.e_block_n])
        s_x_rows = self.reshape_shared(s_x, [self.stages, self.consumers, MMA_ROWS, self.block_k])

        # Barriers: a stage is full after one arrival and all the bytes that it announces, and empty after an arrival
        # of each warpgroup.
        ring = Ring(self.stages, empties=self.consumers)
        self.sync()  # every warp sees the initialised barriers

        # Main loop of the warp that loads.
        with self.single_warp(4 * self.consumers):
            tile_bytes = (self.block_m + self.block_n) * self.block_k * self.dtype.nbytes
            tile: int32 = self.blockIdx.x
            while True:
                found = walk.find(tile)
                if not found:
                    break
                row, column = walk.place(tile)
                # Elements outside of x and w arrive as zeros, which add nothing.
                k_begin, k_end = walk.depth(k, self.block_k)
                for offset_k in range(k_begin, k_end, self.block_k):
                    ring.wait_empty()
                    stage, full = ring.stage, ring.full()
                    # Announce the bytes once: from one thread, not from 32. TMA counts whole tiles, the zeros included.
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=tile_bytes)
                    self.tma.global_to_shared(src=g_x, dst=s_x[stage], offsets=[row, offset_k], mbarrier=full)
                    w.load(s_w[stage], walk.group, column * self.block_n, offset_k, full)
                    ring.advance()
                tile += self.gridDim.x

        # The warpgroups that multiply. wgmma needs its warps at compile time: hence one call for each.
        self.s_x, self.s_w, self.s_c = s_x_rows, s_w, s_c
        self.g_c = self.global_view(c_ptr, dtype=self.dtype, shape=[m, n])
        with self.warp_group(0, 4):
            self.consume(0, ring, walk, n, k, c_ptr)
        if self.consumers == 2:
            with self.warp_group(4, 4):
                self.consume(1, ring, walk, n, k, c_ptr)

    def consume(self, which: int, ring: Ring, walk: GroupedRaster, n: int, k: int, c_ptr: void_p):
        """Compute and store 64 rows of each tile: the code of warpgroup number `which`."""
        # Set once more, so that the compiler knows: all threads here have the same stage, and share one address.
        ring.stage, ring.phase = 0, 0
        tile: int32 = self.blockIdx.x
        while True:
            found = walk.find(tile)
            if not found:
                break
            first_row, column = walk.place(tile)
            row: int32 = first_row + which * MMA_ROWS
            r_acc = self.register_tensor(dtype=float32, shape=[MMA_ROWS, self.block_n], init=0.0)
            k_begin, k_end = walk.depth(k, self.block_k)
            for offset_k in range(k_begin, k_end, self.block_k):
                # TMA writes and the tensor core reads through the async proxy: a wait is enough, no fence.
                ring.wait_full()
                stage = ring.stage
                # wgmma is asynchronous: the fence orders it after earlier accesses to its registers ("wgmma.fence"),
                # and no thread may touch the accumulator before the wait ("wgmma.wait_group").
                self.wgmma.fence()
                t_w = self.s_w[stage].transpose() if self.w_k else self.s_w[stage]
                self.wgmma.mma(self.s_x[stage, which], t_w, r_acc)
                self.wgmma.commit_group()
                # While one of two warpgroups waits for its own wgmma, the tensor cores work for the other. A single
                # warpgroup would leave them idle, so it waits for the k-tile before.
                self.wgmma.wait_group(self.in_flight)
                if offset_k >= k_begin + self.in_flight * self.block_k:
                    self.release(ring.empty(self.in_flight))
                ring.advance()
            if self.in_flight:
                self.wgmma.wait_group(0)
                self.release(ring.empty(1))

            self.annotate_layout(r_acc, self.acc_layout)
            # TMA stores whole boxes, whose rows begin at multiples of 16 bytes.
            if n * self.dtype.nbytes % ALIGNMENT_BYTES == 0 and row + MMA_ROWS <= walk.end:
                self.store_strips(which, r_acc, row, column * self.block_n)
            else:
                # A view of the rows up to the group's end: rows beyond are another group's, and not stored.
                g_c = self.global_view(c_ptr, dtype=self.dtype, shape=[walk.end, n])
                self.store_global(g_c, r_acc.to(self.dtype), offsets=[row, column * self.block_n], dims=[0, 1])
            tile += self.gridDim.x

        # The CTA may exit once TMA has read the last strips.
        with self.single_warp():
            self.tma.wait_group(n=0, read=True)

    def store_strips(self, which: int, r_acc: RegisterTensor, row: int32, column: int32):
        """Store 64 rows of C from registers through shared memory, one strip of columns at a time."""
        r_strips = self.view(r_acc, layout=self.strip_layout)
        with self.single_warp():
            self.tma.wait_group(n=0, read=True)  # strips of the tile before: any buffer may hold the last one
        for strip in self.range(0, self.strips, 1, unroll="all"):
            # Two buffers take turns: this one is free when TMA still reads at most the other. Only the thread that
            # issued the stores can wait ("cp.async.bulk.wait_group"): the others sync.
            with self.single_warp():
                self.tma.wait_group(n=self.buffers - 1, read=True)
            self.sync()
            # Threads write through the generic proxy, TMA reads through the async proxy: each writer fences, then sync.
            self.store_shared(self.s_c[which, strip % self.buffers], r_strips[0, strip].to(self.dtype))
            self.fence.proxy_async(space="shared")
            self.sync()
            with self.single_warp():
                # Elements outside of C are not stored.
                self.tma.shared_to_global(
                    self.s_c[which, strip % self.buffers], self.g_c, offsets=[row, column + strip * self.e_block_n]
                )
                self.tma.commit_group()

    def release(self, empty: RegisterTensor):
        """Arrive at `empty`, to signal that this warpgroup has read the stage."""
        # Four warps execute a wgmma together: after the wait of one, all have read the stage.
        with self.single_thread(0):
            self.mbarrier.arrive(empty)
