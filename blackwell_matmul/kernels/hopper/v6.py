"""V6: the CTAs of a cluster read A and B once for all of them.

New against V5: a cluster is a rectangle of tiles. Its CTAs that compute tiles above each other, `cluster_m` of them,
need the same tile of B, and those beside each other, `cluster_n`, the same of A. Each loads its share, and TMA writes
that into the shared memory of all that need it (multicast), so that less has to come from L2. So a stage is only empty
when the consumers of each of them have said so. CTAs that share nothing come in clusters of two all the same: what
`neighbours` load at about the same time comes out of the L2 once. Or without clusters, which are dealt out one to a GPC
in turn: then CTAs that follow each other share a GPC, and what all of these load comes once. And a k-tile can be wider
than TMA swizzles: it comes in boxes, and half as many barriers are waited for. With three warpgroups a tile has 192
rows.
"""

from tilus import DataType, float32, int32, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.cluster_of_tiles import ClusterOfTiles
from blackwell_matmul.kernels.matmul import MatmulScript
from blackwell_matmul.kernels.ring import Ring
from blackwell_matmul.kernels.tiles import GroupedTiles
from blackwell_matmul.scheduling.tile_config import SWIZZLE_BYTES
from blackwell_matmul.scheduling.wgmma_fragments import MMA_ROWS, accumulator_layout, strip_layout


class HopperMatmulV6(MatmulScript):
    """C[m, n] = A[m, k] @ B[n, k].T; rows of A, B and C are multiples of 16 bytes, as TMA needs them."""

    target = "sm_90a"
    mma = "wgmma"
    features = ("tma", "ring", "specialised", "grouped", "persistent", "clusters", "rectangles", "neighbours", "boxes")

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
        neighbours: int,
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
        self.team_ctas = cluster_m * cluster_n  # that share A and B
        self.cluster_ctas = max(neighbours, self.team_ctas)
        self.teams = max(1, sm_count // self.cluster_ctas * (self.cluster_ctas // self.team_ctas))
        self.strips = block_n // e_block_n
        self.buffers = min(2, self.strips)
        self.acc_layout = accumulator_layout(MMA_ROWS, block_n)
        self.strip_layout = strip_layout(MMA_ROWS, block_n, e_block_n)

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        # The grid: a CTA for an SM, in clusters, but no more than the rounds need: 512 tiles take 132 SMs four rounds,
        # and 128 as well; they stay in step and leave the others the power. `consumers` warpgroups multiply, 64 rows of
        # the tile each; one more warp loads.
        tiles_m, tiles_n = cdiv(m, self.cluster_m * self.block_m), cdiv(n, self.cluster_n * self.block_n)
        count = tiles_m * tiles_n
        rounds = (count - 1) // self.teams + 1  # one without tiles, too
        self.attrs.blocks = cdiv(cdiv(count, rounds) * self.team_ctas, self.cluster_ctas) * self.cluster_ctas
        self.attrs.cluster_blocks = self.cluster_ctas
        self.attrs.warps = 4 * self.consumers + 1
        self.mine = ClusterOfTiles(self.cluster_m, self.cluster_n, self.block_m, self.block_n)
        k_tiles = cdiv(k, self.block_k)
        tiles = GroupedTiles(tiles_m, tiles_n, self.group_m)

        g_a = self.global_view(a_ptr, dtype=self.dtype, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=self.dtype, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=self.dtype, shape=[m, n])

        # On-chip memory: shared memory for `stages` k-tiles of A and B and, for each warpgroup, up to two strips of C.
        held = self.stages * self.boxes  # boxes of A, and as many of B
        s_a = self.shared_tensor(dtype=self.dtype, shape=[held, self.block_m, self.box_k])
        s_b = self.shared_tensor(dtype=self.dtype, shape=[held, self.block_n, self.box_k])
        s_c = self.shared_tensor(dtype=self.dtype, shape=[self.consumers, self.buffers, MMA_ROWS, self.e_block_n])
        share_m, share_n = self.block_m // self.cluster_n, self.block_n // self.cluster_m
        s_a_shares = self.reshape_shared(s_a, [held, self.cluster_n, share_m, self.box_k])
        s_b_shares = self.reshape_shared(s_b, [held, self.cluster_m, share_n, self.box_k])
        s_a_rows = self.reshape_shared(s_a, [held, self.consumers, MMA_ROWS, self.box_k])

        # Barriers: a stage is full after one arrival and all the bytes that it announces, and empty after an arrival
        # of each warpgroup that reads it.
        ring = Ring(self.stages, empties=self.mine.writers * self.consumers)
        self.cluster.sync()  # every warp of every CTA sees the initialised barriers

        # Main loop of the warp that loads.
        with self.single_warp(4 * self.consumers):
            tile_bytes = (self.block_m + self.block_n) * self.block_k * self.dtype.nbytes
            offset_k: int32 = 0
            step_k: int32 = self.box_k
            tile: int32 = self.blockIdx.x // self.team_ctas
            while tile < count:
                row, column = tiles.place(tile)
                offset_m, offset_n = self.mine.tile_at(row, column)
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
                                src=g_a, dst=s_a[box], offsets=[offset_m, offset_k], mbarrier=full
                            )
                        else:  # into every CTA at the same place; each CTA's barrier counts the bytes that it gets
                            self.tma.global_to_shared(
                                src=g_a,
                                dst=s_a_shares[box, self.mine.place_n],
                                offsets=[offset_m + self.mine.place_n * share_m, offset_k],
                                mbarrier=full,
                                multicast_mask=self.mine.mask_a,
                            )
                        if self.cluster_m == 1:
                            self.tma.global_to_shared(
                                src=g_b, dst=s_b[box], offsets=[offset_n, offset_k], mbarrier=full
                            )
                        else:
                            self.tma.global_to_shared(
                                src=g_b,
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
        self.s_a, self.s_b, self.s_c, self.g_c = s_a_rows, s_b, s_c, g_c
        with self.warp_group(0, 4):
            self.consume(0, ring, tiles, count, k_tiles)
        if self.consumers > 1:
            with self.warp_group(4, 4):
                self.consume(1, ring, tiles, count, k_tiles)
        if self.consumers > 2:
            with self.warp_group(8, 4):
                self.consume(2, ring, tiles, count, k_tiles)

    def consume(self, which: int, ring: Ring, tiles: GroupedTiles, count: int32, k_tiles: int32):
        """What one warpgroup does: 64 rows of each tile, from the first k-tile to the store of C."""
        # Said once more, so that the compiler knows: all threads here agree on the stage, and one address is for all.
        ring.stage, ring.phase = 0, 0
        tile: int32 = self.blockIdx.x // self.team_ctas
        while tile < count:
            row, column = tiles.place(tile)
            offset_m, offset_n = self.mine.tile_at(row, column)
            r_acc = self.register_tensor(dtype=float32, shape=[MMA_ROWS, self.block_n], init=0.0)
            for _ in range(k_tiles):
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
                self.wgmma.wait_group(0)
                self.mine.release(ring.empty())
                ring.advance()

            # Epilogue: registers -> shared memory -> global memory, one strip of columns at a time.
            self.annotate_layout(r_acc, self.acc_layout)
            r_strips = self.view(r_acc, layout=self.strip_layout)
            with self.single_warp():
                self.tma.wait_group(n=0, read=True)  # strips of the tile before: any buffer may hold the last of them
            for strip in self.range(0, self.strips, 1, unroll="all"):
                # Two buffers take turns: this one is free when at most the other is still read. Only the thread that
                # issued the stores knows ("cp.async.bulk.wait_group"): the sync tells the others.
                with self.single_warp():
                    self.tma.wait_group(n=self.buffers - 1, read=True)
                self.sync()
                # Written through the generic proxy, read by TMA through the async proxy: each writer fences, then all
                # meet.
                s_strip = self.s_c[which, strip % self.buffers]
                self.store_shared(s_strip, r_strips[0, strip].to(self.dtype))
                self.fence.proxy_async(space="shared")
                self.sync()
                with self.single_warp():
                    # What lies outside of C is not stored.
                    at_m, at_n = offset_m + which * MMA_ROWS, offset_n + strip * self.e_block_n
                    self.tma.shared_to_global(s_strip, self.g_c, offsets=[at_m, at_n])
                    self.tma.commit_group()
            tile += self.gridDim.x // self.team_ctas

        # The CTA may exit once TMA has read the last strips.
        with self.single_warp():
            self.tma.wait_group(n=0, read=True)
