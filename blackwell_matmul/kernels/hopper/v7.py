"""V7: the CTAs of a cluster share the k-tiles of a tile.

New against V6: with few tiles, `split_k` CTAs compute one together, each its part of K. In the epilogue each finishes
its share of the strips of C: it gives the sums that it has of the others' strips away, through a workspace in global
memory that stays in the L2, and adds to its own what the others give. A cluster runs at once, so they can wait for each
other; and always in the same order, so that C is the same, bit for bit, every time. A warpgroup that multiplies alone
leaves the products of a k-tile to the tensor cores while it goes on. Of a tile of 16 or 32 rows only those are loaded,
the last tiles of C begin where nearly all their rows and columns are there, and a tile can leave in one strip, whose
rows need no swizzle. n and k come with the launch, as m does: one compilation serves all layers of a model.

With `swap_ab` A and B change places, and C is computed transposed: the rows of a wgmma are 64 of N, and its columns any
multiple of 8 of M, so that tiles fit any number of rows. Only the store knows of it, which turns a strip as it goes
through shared memory (PTX ISA, "stmatrix", .trans).
"""

from tilus import DataType, float32, int32, uint32, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.cluster_of_tiles import ClusterOfTiles
from blackwell_matmul.kernels.few_rows import FewRows
from blackwell_matmul.kernels.matmul import MatmulScript
from blackwell_matmul.kernels.ring import Ring
from blackwell_matmul.kernels.tiles_of_any_size import TilesOfAnySize
from blackwell_matmul.kernels.tiles_of_c import TilesOfC
from blackwell_matmul.scheduling.mma import Wgmma
from blackwell_matmul.scheduling.tile_config import SWIZZLE_BYTES
from blackwell_matmul.scheduling.wgmma_fragments import MMA_ROWS, accumulator_layout, strip_layout


class HopperMatmulV7(MatmulScript):
    """C[m, n] = A[m, k] @ B[n, k].T; rows of A, B and C are multiples of 16 bytes, as TMA needs them."""

    target = "sm_90a"
    mma = "wgmma"
    features = (
        "tma", "ring", "specialised", "grouped", "persistent", "clusters", "rectangles", "neighbours", "split_k",
        "boxes", "swap",
    )  # fmt: skip

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
        cluster_n: int,
        split_k: int,
        neighbours: int,
        swap_ab: int,
        sm_count: int,
    ):
        super().__init__()
        self.dtype = dtype
        self.block_m = block_m
        self.block_n = block_n
        self.block_k = block_k
        self.box_k = min(block_k, SWIZZLE_BYTES[0] // dtype.nbytes)  # as wide as TMA swizzles
        self.boxes = block_k // self.box_k  # of a k-tile
        self.e_block_n = e_block_n
        self.stages = stages
        self.consumers = consumers
        self.cluster_m = cluster_m
        self.cluster_n = cluster_n
        self.group_m = cdiv(group_m, cluster_m)  # in rows of clusters
        self.split_k = split_k
        self.team_ctas = cluster_m * cluster_n * split_k  # that compute together
        self.cluster_ctas = max(neighbours, self.team_ctas)
        self.teams = max(1, sm_count // self.cluster_ctas * (self.cluster_ctas // self.team_ctas))
        self.in_flight = Wgmma.in_flight(block_n, consumers)
        self.strips = block_n // e_block_n
        self.buffers = min(2, self.strips)
        self.acc_layout = accumulator_layout(MMA_ROWS, block_n)
        self.strip_layout = strip_layout(MMA_ROWS, block_n, e_block_n)
        self.swap_ab = swap_ab == 1

    def __call__(self, m: int32, n: int32, k: int32, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        rows, columns = (n, m) if self.swap_ab else (m, n)  # of what is computed: C, or C.T = B @ A.T

        # The grid: a CTA for an SM, in clusters, but no more than the rounds need: 512 tiles take 132 SMs four rounds,
        # and 128 as well; they stay in step and leave the others the power. `consumers` warpgroups multiply, 64 rows of
        # the tile each; one more warp loads.
        tiles_m, tiles_n = cdiv(rows, self.cluster_m * self.block_m), cdiv(columns, self.cluster_n * self.block_n)
        count = tiles_m * tiles_n
        rounds = (count - 1) // self.teams + 1  # one without tiles, too
        self.attrs.blocks = cdiv(cdiv(count, rounds) * self.team_ctas, self.cluster_ctas) * self.cluster_ctas
        self.attrs.cluster_blocks = self.cluster_ctas
        self.attrs.warps = 4 * self.consumers + 1
        self.mine = ClusterOfTiles(self.cluster_m, self.cluster_n, self.block_m, self.block_n)
        self.part = self.cluster.blockRank // self.mine.tiles % self.split_k  # of K
        first_k: int32 = cdiv(k, self.block_k) * self.part // self.split_k
        k_tiles: int32 = cdiv(k, self.block_k) * (self.part + 1) // self.split_k - first_k
        tiles = TilesOfAnySize(tiles_m, tiles_n, self.group_m)

        g_a = self.global_view(a_ptr, dtype=self.dtype, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=self.dtype, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=self.dtype, shape=[m, n])
        self.out = TilesOfC(g_c, rows, columns, self.block_m, self.block_n, self.e_block_n, 1, self.swap_ab)
        g_rows, g_columns = (g_b, g_a) if self.swap_ab else (g_a, g_b)
        if self.split_k > 1:  # the sums that CTAs give each other, in two places that take turns
            shape = [2, self.teams * self.team_ctas, self.consumers, self.strips, MMA_ROWS, self.e_block_n]
            self.g_parts = self.global_tensor(dtype=float32, shape=shape, requires_clean=False)

        # On-chip memory: shared memory for `stages` k-tiles of A and B and, for each warpgroup, up to two strips of C.
        held = self.stages * self.boxes  # boxes of A, and as many of B
        s_a = self.shared_tensor(dtype=self.dtype, shape=[held, max(self.block_m, MMA_ROWS), self.box_k])
        s_b = self.shared_tensor(dtype=self.dtype, shape=[held, self.block_n, self.box_k])
        s_c = self.out.buffers(self.consumers, self.buffers)
        share_m, share_n = self.block_m // self.cluster_n, self.block_n // self.cluster_m
        s_a_shares = self.reshape_shared(s_a, [held, max(self.block_m, MMA_ROWS) // share_m, share_m, self.box_k])
        s_b_shares = self.reshape_shared(s_b, [held, self.cluster_m, share_n, self.box_k])
        s_a_rows = self.reshape_shared(s_a, [held, self.consumers, MMA_ROWS, self.box_k])

        # Of a tile of few rows only those are loaded, and the others are zeros.
        if self.block_m < MMA_ROWS:
            few = FewRows(s_a, held, self.block_m, self.box_k)

        # Barriers: a stage is full after one arrival and all the bytes that it announces, and empty after an arrival
        # of each warpgroup that reads it. A part is given after an arrival of each CTA that computes the tile.
        ring = Ring(self.stages, empties=self.mine.writers * self.consumers)
        self.given = self.mbarrier.alloc(counts=[self.split_k for _ in range(self.consumers)])
        self.cluster.sync()  # every warp of every CTA sees the initialised barriers

        # Main loop of the warp that loads.
        with self.single_warp(4 * self.consumers):
            tile_bytes = (self.block_m + self.block_n) * self.block_k * self.dtype.nbytes
            offset_k: int32 = first_k * self.block_k
            step_k: int32 = self.box_k
            tile: int32 = self.blockIdx.x // self.team_ctas
            while tile < count:
                row, column = tiles.place(tile)
                tile_m, tile_n = self.mine.tile_at(row, column)
                offset_m, offset_n = self.out.begin(tile_m, tile_n)
                # What lies outside of A and B arrives as zeros, which add nothing.
                for _ in range(k_tiles):
                    ring.wait_empty()
                    stage, full = ring.stage, ring.full()
                    # Announce the bytes once: from one thread, not from 32. TMA counts whole tiles, the zeros included.
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=tile_bytes)
                    for part in self.range(0, self.boxes, 1, unroll="all"):
                        box = stage * self.boxes + part
                        if self.cluster_n == 1:
                            self.tma.global_to_shared(
                                src=g_rows, dst=s_a_shares[box, 0], offsets=[offset_m, offset_k], mbarrier=full
                            )
                        else:  # into every CTA at the same place; each CTA's barrier counts the bytes that it gets
                            self.tma.global_to_shared(
                                src=g_rows,
                                dst=s_a_shares[box, self.mine.place_n],
                                offsets=[offset_m + self.mine.place_n * share_m, offset_k],
                                mbarrier=full,
                                multicast_mask=self.mine.mask_a,
                            )
                        if self.cluster_m == 1:
                            self.tma.global_to_shared(
                                src=g_columns, dst=s_b[box], offsets=[offset_n, offset_k], mbarrier=full
                            )
                        else:
                            self.tma.global_to_shared(
                                src=g_columns,
                                dst=s_b_shares[box, self.mine.place_m],
                                offsets=[offset_n + self.mine.place_m * share_n, offset_k],
                                mbarrier=full,
                                multicast_mask=self.mine.mask_b,
                            )
                        offset_k += step_k
                    ring.advance()
                step_k = -step_k  # the next tile begins with the k-tile that this one ended with
                offset_k += step_k
                tile += self.gridDim.x // self.team_ctas
            # No CTA may exit while another one still signals its barriers. Once all its stages are empty, none does.
            for _ in range(self.stages):
                ring.wait_empty()
                ring.advance()

        # The warpgroups that multiply. wgmma wants to know its warps when compiling: hence the same code for each.
        self.s_a, self.s_b, self.s_c = s_a_rows, s_b, s_c
        with self.warp_group(0, 4):
            if self.block_m < MMA_ROWS:
                few.clear()  # while the first k-tiles are on their way
            self.consume(0, ring, tiles, count, k_tiles)
        if self.consumers > 1:
            with self.warp_group(4, 4):
                self.consume(1, ring, tiles, count, k_tiles)
        if self.consumers > 2:
            with self.warp_group(8, 4):
                self.consume(2, ring, tiles, count, k_tiles)

    def consume(self, which: int, ring: Ring, tiles: TilesOfAnySize, count: int32, k_tiles: int32):
        """What one warpgroup does: 64 rows of each tile, from the first k-tile to the store of C."""
        # Said once more, so that the compiler knows: all threads here agree on the stage, and one address is for all.
        ring.stage, ring.phase = 0, 0
        turn: uint32 = 0  # of the two places for parts, and the parity of the phase in which they are given
        tile: int32 = self.blockIdx.x // self.team_ctas
        while tile < count:
            row, column = tiles.place(tile)
            tile_m, tile_n = self.mine.tile_at(row, column)
            offset_m, offset_n = self.out.begin(tile_m, tile_n)
            r_acc = self.register_tensor(dtype=float32, shape=[MMA_ROWS, self.block_n], init=0.0)
            for k_tile in self.range(0, k_tiles, 1, unroll=1):  # four a round would compile for twice as long
                # TMA writes through the async proxy, like the tensor core reads: a wait is enough, no fence.
                ring.wait_full()
                stage = ring.stage
                # wgmma is asynchronous: the fence orders it after what the registers held before ("wgmma.fence"), and
                # until the wait for its group the accumulator is not ours ("wgmma.wait_group").
                self.wgmma.fence()
                for part in self.range(0, self.boxes, 1, unroll="all"):
                    box = stage * self.boxes + part
                    self.wgmma.mma(self.s_a[box, which], self.s_b[box].transpose(), r_acc)
                self.wgmma.commit_group()
                # A warpgroup that waits for what it has just issued leaves the tensor cores to the other; one that is
                # alone leaves them idle, so that it waits for the k-tile before.
                self.wgmma.wait_group(self.in_flight)
                if k_tile >= self.in_flight:
                    self.mine.release(ring.empty(self.in_flight))
                ring.advance()
            if self.in_flight:
                self.wgmma.wait_group(0)
                if k_tiles > 0:
                    self.mine.release(ring.empty(1))

            # Epilogue: registers -> shared memory -> global memory, one strip of columns at a time; of a tile that
            # several CTAs compute, each finishes every so-many-th strip. First it gives away its part of the others.
            self.annotate_layout(r_acc, self.acc_layout)
            r_strips = self.view(r_acc, layout=self.strip_layout)
            if self.split_k > 1:
                for strip in self.range(0, self.strips, 1, unroll="all"):
                    if strip % self.split_k != self.part:
                        offsets = [turn, self.blockIdx.x, which, strip, 0, 0]
                        self.store_global(self.g_parts, r_strips[0, strip], offsets=offsets, dims=[4, 5])
                self.sync()
                with self.single_thread(0):
                    # It releases nothing to itself, which would take as long as to another one.
                    self.mbarrier.arrive(self.given[which])
                    for other in range(1, self.split_k, 1):
                        rank = (self.cluster.blockRank + other * self.mine.tiles) % self.cluster_ctas
                        self.mbarrier.arrive_and_expect_tx_remote(
                            self.given[which], transaction_bytes=0, target_rank=rank
                        )
                # Who has passed this has also read what it was given of the tile before: that place is free again.
                self.mbarrier.wait(self.given[which], phase=turn, scope="cluster")
            with self.single_warp():
                self.tma.wait_group(n=0, read=True)  # strips of the tile before: any buffer may hold the last of them
            for strip in self.range(0, self.strips, 1, unroll="all"):
                if strip % self.split_k == self.part:
                    r_sum = r_strips[0, strip]
                    if self.split_k > 1:
                        for other in self.range(1, self.split_k, 1, unroll="all"):
                            rank = self.cluster.blockRank
                            giver = self.blockIdx.x - rank + (rank + other * self.mine.tiles) % self.cluster_ctas
                            offsets = [turn, giver, which, strip, 0, 0]
                            r_sum += self.load_global(
                                self.g_parts, offsets=offsets, shape=[MMA_ROWS, self.e_block_n], dims=[4, 5]
                            )
                    # Two buffers take turns: this one is free when at most the other is still read. Only the thread
                    # that issued the stores knows ("cp.async.bulk.wait_group"): the sync tells the others.
                    with self.single_warp():
                        self.tma.wait_group(n=self.buffers - 1, read=True)
                    self.sync()
                    # Written through the generic proxy, read by TMA through the async proxy: each writer fences, then
                    # all meet.
                    s_strip = self.s_c[which, strip // self.split_k % self.buffers]
                    self.out.put(s_strip, r_sum.to(self.dtype))
                    self.fence.proxy_async(space="shared")
                    self.sync()
                    with self.single_warp():
                        # What lies outside of C is not stored, nor what the tiles before this one store.
                        at_m, at_n = offset_m + which * MMA_ROWS, offset_n + strip * self.e_block_n
                        self.out.store(s_strip, 0, at_m, at_n, tile_m, tile_n)
                        self.tma.commit_group()
            turn ^= 1
            tile += self.gridDim.x // self.team_ctas

        # The CTA may exit once TMA has read the last strips.
        with self.single_warp():
            self.tma.wait_group(n=0, read=True)
