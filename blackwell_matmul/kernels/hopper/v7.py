"""V7: the CTAs of a cluster share the k-tiles of a tile.

New against V6: if there are few tiles, `split_k` CTAs compute a tile together, each a part of K (split-K). In the
epilogue each CTA finishes some strips of C. It stores its sums of the other strips into a workspace, which stays in the
L2, and adds the other CTAs' sums to its own. All CTAs of a cluster run at the same time, so they can wait for each
other. The sums are added in a fixed order, so that C has the same bits in every run.
"""

from tilus import DataType, float32, int32, uint16, uint32, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.host.matmul import MatmulScript
from blackwell_matmul.kernels.parts.raster import GroupedTiles
from blackwell_matmul.kernels.parts.ring import Ring
from blackwell_matmul.scheduling.wgmma_fragments import MMA_ROWS, accumulator_layout, strip_layout


class HopperMatmulV7(MatmulScript):
    """C[m, n] = A[m, k] @ B[n, k].T; rows of A, B and C are multiples of 16 bytes, as TMA needs them."""

    target = "sm_90a"
    mma = "wgmma"
    features = ("tma", "ring", "specialised", "grouped", "persistent", "clusters", "split_k")

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
        cluster_m: int,
        split_k: int,
        sm_count: int,
    ):
        super().__init__()
        self.dtype = dtype
        self.block_m = block_m
        self.block_n = block_n
        self.block_k = block_k
        self.e_block_n = e_block_n
        self.stages = stages
        self.consumers = consumers
        self.cluster_m = cluster_m
        self.group_m = cdiv(group_m, cluster_m)  # in rows of clusters
        self.split_k = split_k
        self.cluster_ctas = cluster_m * split_k
        self.clusters = max(1, sm_count // self.cluster_ctas)
        self.sharers = 2**cluster_m - 1  # a mask: the CTAs that share B, counted from the first of them
        self.strips = block_n // e_block_n
        self.buffers = min(2, self.strips)
        self.acc_layout = accumulator_layout(MMA_ROWS, block_n)
        self.strip_layout = strip_layout(MMA_ROWS, block_n, e_block_n)

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        # The grid: a CTA for an SM, in clusters, but no more than the rounds need. 512 tiles take 132 SMs four rounds,
        # and 128 as well: these stay in step, and the idle SMs save power. `consumers` warpgroups multiply, 64 rows of
        # the tile each; one more warp loads.
        count = cdiv(m, self.cluster_m * self.block_m) * cdiv(n, self.block_n)
        rounds = (count - 1) // self.clusters + 1  # at least one
        self.attrs.blocks = cdiv(count, rounds) * self.cluster_ctas
        self.attrs.cluster_blocks = self.cluster_ctas
        self.attrs.warps = 4 * self.consumers + 1
        self.share = self.cluster.blockRank % self.cluster_m  # number of the CTA's share of B, and of its tile
        self.part = self.cluster.blockRank // self.cluster_m % self.split_k  # number of the CTA's part of K
        first_k: int32 = cdiv(k, self.block_k) * self.part // self.split_k
        k_tiles: int32 = cdiv(k, self.block_k) * (self.part + 1) // self.split_k - first_k
        tiles = GroupedTiles(cdiv(m, self.cluster_m * self.block_m), cdiv(n, self.block_n), self.group_m)

        g_a = self.global_view(a_ptr, dtype=self.dtype, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=self.dtype, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=self.dtype, shape=[m, n])
        if self.split_k > 1:  # the sums that CTAs exchange, in two buffers that take turns
            shape = [2, self.clusters * self.cluster_ctas, self.consumers, self.strips, MMA_ROWS, self.e_block_n]
            self.g_parts = self.global_tensor(dtype=float32, shape=shape, requires_clean=False)

        # On-chip memory: shared memory for `stages` k-tiles of A and B and, for each warpgroup, up to two strips of C.
        s_a = self.shared_tensor(dtype=self.dtype, shape=[self.stages, self.block_m, self.block_k])
        s_b = self.shared_tensor(dtype=self.dtype, shape=[self.stages, self.block_n, self.block_k])
        s_c = self.shared_tensor(dtype=self.dtype, shape=[self.consumers, self.buffers, MMA_ROWS, self.e_block_n])
        share_n = self.block_n // self.cluster_m
        s_b_shares = self.reshape_shared(s_b, [self.stages, self.cluster_m, share_n, self.block_k])
        s_a_rows = self.reshape_shared(s_a, [self.stages, self.consumers, MMA_ROWS, self.block_k])

        # Barriers: a stage is full after one arrival and all the bytes that it announces, and empty after an arrival of
        # each warpgroup that reads it. Parts are there after an arrival of each CTA that computes the tile.
        ring = Ring(self.stages, empties=self.cluster_m * self.consumers)
        self.given = self.mbarrier.alloc(counts=[self.split_k for _ in range(self.consumers)])
        self.cluster.sync()  # every warp of every CTA sees the initialised barriers

        # Main loop of the warp that loads.
        with self.single_warp(4 * self.consumers):
            tile_bytes = (self.block_m + self.block_n) * self.block_k * self.dtype.nbytes
            mask: uint16 = self.sharers << (self.part * self.cluster_m)
            offset_k: int32 = first_k * self.block_k
            step_k: int32 = self.block_k
            tile: int32 = self.blockIdx.x // self.cluster_ctas
            while tile < count:
                row, column = tiles.place(tile)
                offset_m, offset_n = (row * self.cluster_m + self.share) * self.block_m, column * self.block_n
                # Elements outside of A and B arrive as zeros, which add nothing.
                for _ in range(k_tiles):
                    ring.wait_empty()
                    stage, full = ring.stage, ring.full()
                    # Announce the bytes once: from one thread, not from 32. TMA counts whole tiles, the zeros included.
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=tile_bytes)
                    self.tma.global_to_shared(src=g_a, dst=s_a[stage], offsets=[offset_m, offset_k], mbarrier=full)
                    # TMA writes at the same offset in every CTA, and the CTA's barrier counts the bytes.
                    self.tma.global_to_shared(
                        src=g_b,
                        dst=s_b_shares[stage, self.share],
                        offsets=[offset_n + self.share * share_n, offset_k],
                        mbarrier=full,
                        multicast_mask=mask,
                    )
                    ring.advance()
                    offset_k += step_k
                step_k = -step_k  # the next tile begins with the k-tile that this one ended with
                offset_k += step_k
                tile += self.gridDim.x // self.cluster_ctas
            # No CTA may exit while another one still signals its barriers. Once all its stages are empty, none does.
            for _ in range(self.stages):
                ring.wait_empty()
                ring.advance()

        # The warpgroups that multiply. wgmma needs its warps at compile time: hence one call for each.
        self.s_a, self.s_b, self.s_c, self.g_c = s_a_rows, s_b, s_c, g_c
        with self.warp_group(0, 4):
            self.consume(0, ring, tiles, count, k_tiles)
        if self.consumers == 2:
            with self.warp_group(4, 4):
                self.consume(1, ring, tiles, count, k_tiles)

    def consume(self, which: int, ring: Ring, tiles: GroupedTiles, count: int32, k_tiles: int32):
        """Compute and store 64 rows of each tile: the code of warpgroup number `which`."""
        # Set once more, so that the compiler knows: all threads here have the same stage, and share one address.
        ring.stage, ring.phase = 0, 0
        turn: uint32 = 0  # number of the buffer for parts, and the parity of their phase
        tile: int32 = self.blockIdx.x // self.cluster_ctas
        while tile < count:
            row, column = tiles.place(tile)
            offset_m, offset_n = (row * self.cluster_m + self.share) * self.block_m, column * self.block_n
            r_acc = self.register_tensor(dtype=float32, shape=[MMA_ROWS, self.block_n], init=0.0)
            for _ in range(k_tiles):
                # TMA writes and the tensor core reads through the async proxy: a wait is enough, no fence.
                ring.wait_full()
                stage = ring.stage
                # wgmma is asynchronous: the fence orders it after earlier accesses to its registers ("wgmma.fence"),
                # and no thread may touch the accumulator before the wait ("wgmma.wait_group").
                self.wgmma.fence()
                self.wgmma.mma(self.s_a[stage, which], self.s_b[stage].transpose(), r_acc)
                self.wgmma.commit_group()
                self.wgmma.wait_group(0)
                # Four warps execute a wgmma together: after the wait of one, all have read the stage. Every CTA that
                # shares B writes into this stage, so each needs an arrival. The wait for their group has ended the
                # reads, so the scope of a CTA suffices: a release to the whole cluster would wait again, and take a
                # quarter of the kernel's time.
                with self.single_thread(0):
                    for sharer in range(self.cluster_m):
                        target = self.part * self.cluster_m + sharer
                        self.mbarrier.arrive_and_expect_tx_remote(
                            ring.empty(), transaction_bytes=0, target_rank=target, scope="cta"
                        )
                ring.advance()

            # Epilogue: registers -> shared memory -> global memory, one strip of columns at a time; if several CTAs
            # compute a tile, each finishes every split_k-th strip. First it stores its sums of the others.
            self.annotate_layout(r_acc, self.acc_layout)
            r_strips = self.view(r_acc, layout=self.strip_layout)
            if self.split_k > 1:
                for strip in self.range(0, self.strips, 1, unroll="all"):
                    if strip % self.split_k != self.part:
                        offsets = [turn, self.blockIdx.x, which, strip, 0, 0]
                        self.store_global(self.g_parts, r_strips[0, strip], offsets=offsets, dims=[4, 5])
                self.sync()
                with self.single_thread(0):
                    for other in range(self.split_k):
                        self.mbarrier.arrive_and_expect_tx_remote(
                            self.given[which], transaction_bytes=0, target_rank=self.share + other * self.cluster_m
                        )
                # After this wait every CTA has read the parts of the tile before: their buffer is free again.
                self.mbarrier.wait(self.given[which], phase=turn, scope="cluster")
            with self.single_warp():
                self.tma.wait_group(n=0, read=True)  # strips of the tile before: any buffer may hold the last one
            for strip in self.range(0, self.strips, 1, unroll="all"):
                if strip % self.split_k == self.part:
                    r_sum = r_strips[0, strip]
                    if self.split_k > 1:
                        for other in self.range(1, self.split_k, 1, unroll="all"):
                            rank = self.cluster.blockRank
                            giver = self.blockIdx.x - rank + (rank + other * self.cluster_m) % self.cluster_ctas
                            offsets = [turn, giver, which, strip, 0, 0]
                            r_sum += self.load_global(
                                self.g_parts, offsets=offsets, shape=[MMA_ROWS, self.e_block_n], dims=[4, 5]
                            )
                    # Two buffers take turns: this one is free when TMA still reads at most the other. Only the thread
                    # that issued the stores can wait ("cp.async.bulk.wait_group"): the others sync.
                    with self.single_warp():
                        self.tma.wait_group(n=self.buffers - 1, read=True)
                    self.sync()
                    # Threads write through the generic proxy, TMA reads through the async proxy: each writer fences,
                    # then sync.
                    buffer = strip // self.split_k % self.buffers
                    self.store_shared(self.s_c[which, buffer], r_sum.to(self.dtype))
                    self.fence.proxy_async(space="shared")
                    self.sync()
                    with self.single_warp():
                        # Elements outside of C are not stored.
                        offsets = [offset_m + which * MMA_ROWS, offset_n + strip * self.e_block_n]
                        self.tma.shared_to_global(self.s_c[which, buffer], self.g_c, offsets=offsets)
                        self.tma.commit_group()
            turn ^= 1
            tile += self.gridDim.x // self.cluster_ctas

        # The CTA may exit once TMA has read the last strips.
        with self.single_warp():
            self.tma.wait_group(n=0, read=True)
