"""V4: an order of tiles in which the L2 holds the loaded rows of A and B.

New against V3: CTAs that run at the same time compute tiles that share rows of A and of B. The order goes down the rows
of a group, then on to the next column (`GroupedTiles`). The ring of stages is `Ring`, whose code V3 has in full.
"""

from tilus import DataType, float32, int32, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.host.matmul import MatmulScript
from blackwell_matmul.kernels.parts.raster import GroupedTiles
from blackwell_matmul.kernels.parts.ring import Ring
from blackwell_matmul.scheduling.wgmma_fragments import MMA_ROWS, accumulator_layout, strip_layout


class HopperMatmulV4(MatmulScript):
    """C[m, n] = A[m, k] @ B[n, k].T; rows of A, B and C are multiples of 16 bytes, as TMA needs them."""

    target = "sm_90a"
    mma = "wgmma"
    features = ("tma", "ring", "specialised", "grouped")

    def __init__(
        self,
        dtype: DataType,
        block_m: int,
        block_n: int,
        block_k: int,
        e_block_n: int,
        stages: int,
        consumers: int,
        group_m: int,
    ):
        super().__init__()
        self.dtype = dtype
        self.block_m = block_m
        self.block_n = block_n
        self.block_k = block_k
        self.e_block_n = e_block_n
        self.stages = stages
        self.consumers = consumers
        self.group_m = group_m
        self.strips = block_n // e_block_n
        self.acc_layout = accumulator_layout(MMA_ROWS, block_n)
        self.strip_layout = strip_layout(MMA_ROWS, block_n, e_block_n)

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        # The grid: one CTA for each tile of C. `consumers` warpgroups multiply, 64 rows of the tile each; one more warp
        # loads.
        self.attrs.blocks = cdiv(m, self.block_m) * cdiv(n, self.block_n)
        self.attrs.warps = 4 * self.consumers + 1
        tiles = GroupedTiles(cdiv(m, self.block_m), cdiv(n, self.block_n), self.group_m)
        row, column = tiles.place(self.blockIdx.x)
        offset_m, offset_n = row * self.block_m, column * self.block_n

        g_a = self.global_view(a_ptr, dtype=self.dtype, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=self.dtype, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=self.dtype, shape=[m, n])

        # On-chip memory: shared memory for `stages` k-tiles of A and B and, for each warpgroup, a strip of C.
        s_a = self.shared_tensor(dtype=self.dtype, shape=[self.stages, self.block_m, self.block_k])
        s_b = self.shared_tensor(dtype=self.dtype, shape=[self.stages, self.block_n, self.block_k])
        s_c = self.shared_tensor(dtype=self.dtype, shape=[self.consumers, MMA_ROWS, self.e_block_n])
        s_a_rows = self.reshape_shared(s_a, [self.stages, self.consumers, MMA_ROWS, self.block_k])

        # Barriers: a stage is full after one arrival and all the bytes that it announces, and empty after an arrival
        # of each warpgroup.
        ring = Ring(self.stages, empties=self.consumers)
        self.sync()  # every warp sees the initialised barriers

        # Main loop of the warp that loads.
        with self.single_warp(4 * self.consumers):
            tile_bytes = (self.block_m + self.block_n) * self.block_k * self.dtype.nbytes
            # Elements outside of A and B arrive as zeros, which add nothing.
            for offset_k in range(0, k, self.block_k):
                ring.wait_empty()
                stage, full = ring.stage, ring.full()
                # Announce the bytes once: from one thread, not from 32. TMA counts whole tiles, the zeros included.
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=tile_bytes)
                self.tma.global_to_shared(src=g_a, dst=s_a[stage], offsets=[offset_m, offset_k], mbarrier=full)
                self.tma.global_to_shared(src=g_b, dst=s_b[stage], offsets=[offset_n, offset_k], mbarrier=full)
                ring.advance()

        # The warpgroups that multiply. wgmma needs its warps at compile time: hence one call for each.
        self.s_a, self.s_b, self.s_c, self.g_c = s_a_rows, s_b, s_c, g_c
        with self.warp_group(0, 4):
            self.consume(0, ring, cdiv(k, self.block_k), offset_m, offset_n)
        if self.consumers == 2:
            with self.warp_group(4, 4):
                self.consume(1, ring, cdiv(k, self.block_k), offset_m, offset_n)

    def consume(self, which: int, ring: Ring, k_tiles: int32, offset_m: int32, offset_n: int32):
        """Compute and store 64 rows of the tile: the code of warpgroup number `which`."""
        # Set once more, so that the compiler knows: all threads here have the same stage, and share one address.
        ring.stage, ring.phase = 0, 0
        r_acc = self.register_tensor(dtype=float32, shape=[MMA_ROWS, self.block_n], init=0.0)
        for _ in range(k_tiles):
            # TMA writes and the tensor core reads through the async proxy: a wait is enough, no fence.
            ring.wait_full()
            stage = ring.stage
            # wgmma is asynchronous: the fence orders it after earlier accesses to its registers ("wgmma.fence"), and no
            # thread may touch the accumulator before the wait ("wgmma.wait_group").
            self.wgmma.fence()
            self.wgmma.mma(self.s_a[stage, which], self.s_b[stage].transpose(), r_acc)
            self.wgmma.commit_group()
            self.wgmma.wait_group(0)
            # Four warps execute a wgmma together: after the wait of one, all have read the stage.
            with self.single_thread(0):
                self.mbarrier.arrive(ring.empty())
            ring.advance()

        # Epilogue: registers -> shared memory -> global memory, one strip of columns at a time.
        self.annotate_layout(r_acc, self.acc_layout)
        r_strips = self.view(r_acc, layout=self.strip_layout)
        for strip in self.range(0, self.strips, 1, unroll="all"):
            # Threads write through the generic proxy, TMA reads through the async proxy: each writer fences, then sync.
            self.store_shared(self.s_c[which], r_strips[0, strip].to(self.dtype))
            self.fence.proxy_async(space="shared")
            self.sync()
            with self.single_warp():
                # Elements outside of C are not stored.
                offsets = [offset_m + which * MMA_ROWS, offset_n + strip * self.e_block_n]
                self.tma.shared_to_global(self.s_c[which], self.g_c, offsets=offsets)
                # Shared memory may change, and the CTA may exit, once TMA has read s_c: `read` waits for that alone.
                # Only the thread that issued the store can wait ("cp.async.bulk.wait_group"): the others sync.
                self.tma.commit_group()
                self.tma.wait_group(n=0, read=True)
            self.sync()
