"""S2: V6 with scales. If tensor memory is too small for two accumulators and the scales, the accumulators overlap.

New against V6: each CTA of a pair has the scales of its rows of A and of all rows of B. `ScaleAtoms` copies them in
both CTAs at once. The scales of two k-tiles take turns. The warps that store begin with the columns that both
accumulators share. The next tile may overwrite these before the others are stored. Example of nvfp4, block_n = 256:

    columns        0 .. 159      160 .. 255      256 .. 415      416 .. 463      464 .. 511
    accumulator    first         both            second          scales          scales of the next k-tile
"""

from tilus import DataType, bfloat16, float32, int32, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.host.block_scaled import ScaledMatmulScript
from blackwell_matmul.kernels.parts.overlapping_sums import OverlappingSums
from blackwell_matmul.kernels.parts.raster import GroupedTiles
from blackwell_matmul.kernels.parts.ring import Ring
from blackwell_matmul.kernels.parts.scale_atoms import ScaleAtoms
from blackwell_matmul.kernels.parts.tile_scheduler import ClcTileScheduler
from blackwell_matmul.lang import FORMATS


class BlackwellMatmulS2(ScaledMatmulScript):
    """C[m, n] = (A[m, k] scales) @ (B[n, k] scales).T, of mxfp8, mxfp4 or nvfp4; rows are multiples of 16 bytes."""

    features = ("tma", "ring", "specialised", "grouped", "clc", "pairs", "scaled")

    def __init__(
        self, dtype: str, block_m: int, block_n: int, block_k: int, e_block_n: int, stages: int, group_m: int,
        c_dtype: DataType = bfloat16, types: str = "",
    ):  # fmt: skip
        super().__init__()
        self.dtype = dtype
        self.format = FORMATS[dtype].of(types)
        self.c_dtype = c_dtype
        self.block_m = block_m
        self.block_n = block_n
        self.block_k = block_k
        self.e_block_n = e_block_n
        self.stages = stages
        self.group_m = group_m
        self.half_m = block_m // 2
        self.half_n = block_n // 2

    def __call__(
        self, m: int32, n: int, k: int,
        a_ptr: void_p, b_ptr: void_p, scale_a_ptr: void_p, scale_b_ptr: void_p, c_ptr: void_p,
    ):  # fmt: skip
        # The grid: two CTAs for each tile of C. Those that fit onto the SMs start, and compute the tiles of the
        # others. Tensor memory has 128 lanes, a row of the CTA's half of the tile in each, and a warp can load 32 of
        # them: hence four warps that store. Of three more one loads, one multiplies, and one asks for the next tile.
        tiles = GroupedTiles(cdiv(m, self.block_m), cdiv(n, self.block_n), self.group_m)
        self.attrs.blocks = 2 * cdiv(m, self.block_m) * cdiv(n, self.block_n)
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 7
        rank = self.cluster.blockRank

        # Two fp4 are in one byte: rows of A and B are counted in bytes.
        of_a, of_b, per_byte = self.format.element, self.format.element_b, self.format.per_byte
        g_a = self.global_view(a_ptr, dtype=of_a, shape=[m, k // per_byte])
        g_b = self.global_view(b_ptr, dtype=of_b, shape=[n, k // per_byte])
        g_c = self.global_view(c_ptr, dtype=self.c_dtype, shape=[m, n])

        # On-chip memory: shared memory for this CTA's halves of `stages` k-tiles of A and B, the scales
        # of its half of A and of all of B, and a strip of C.
        s_a = self.shared_tensor(dtype=of_a, shape=[self.stages, self.half_m, self.block_k // per_byte])
        s_b = self.shared_tensor(dtype=of_b, shape=[self.stages, self.half_n, self.block_k // per_byte])
        scales = ScaleAtoms(
            self.dtype, m, n, k, scale_a_ptr, scale_b_ptr, self.half_m, self.block_n, self.block_k, self.stages, 2
        )
        s_c = self.shared_tensor(dtype=self.c_dtype, shape=[self.half_m, self.e_block_n])

        # Barriers: a stage is full, at the leader, after one arrival and all the bytes of both CTAs that it announces,
        # and empty after one, by tcgen05.commit; an accumulator is full after one, by tcgen05.commit, and empty, at the
        # leader, after one of each thread of both CTAs that stores. `ring` signals accesses of TMA and of the tensor
        # core, not of threads: its waits need no acquire for the cluster.
        ring = Ring(self.stages)
        sums = OverlappingSums(self.block_n, self.e_block_n, 2 * scales.columns)
        scheduler = ClcTileScheduler(warps=7, ctas=2)
        self.cluster.sync()  # every warp of both sees the initialised barriers

        # Two accumulators and scales of two k-tiles in tensor memory, of both CTAs at once: both have started.
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[self.half_m, sums.columns], cta_group=2)
        scales.t_all = t_acc
        # One CTA of an SM at a time may allocate ("tcgen05.alloc"): give up the permit, so that another one can.
        with self.single_warp():
            self.tcgen05.relinquish_alloc_permit(cta_group=2)
        self.sync()  # every warp sees the address of t_acc

        # Main loop of the warp that loads.
        with self.single_warp(4):
            tile_bytes = (self.block_m + self.block_n) * self.block_k // per_byte + 2 * scales.nbytes
            tile: int32 = scheduler.first()
            while True:
                row, column = tiles.place(tile)
                offset_m: int32 = row * self.block_m + rank * self.half_m
                offset_n: int32 = column * self.block_n + rank * self.half_n
                # Elements outside of A and B arrive as zeros, which add nothing.
                for offset_k in range(0, k, self.block_k):
                    ring.wait_empty()
                    # Announce the bytes once: from one thread, not from 32. TMA counts whole tiles, the zeros included.
                    full = ring.full()
                    if rank == 0:
                        with self.single_thread():
                            self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=tile_bytes)
                    else:
                        full = self.cluster.map_shared_addr(full, target_rank=0)
                    stage = ring.stage
                    self.tma.global_to_shared(
                        src=g_a, dst=s_a[stage], offsets=[offset_m, offset_k // per_byte], mbarrier=full, cta_group=2
                    )
                    self.tma.global_to_shared(
                        src=g_b, dst=s_b[stage], offsets=[offset_n, offset_k // per_byte], mbarrier=full, cta_group=2
                    )
                    scales.load(stage, offset_m, column * self.block_n, offset_k, full)
                    ring.advance()
                another, tile = scheduler.next_tile()
                if not another:
                    break

        # Main loop of the warp that multiplies, for both CTAs.
        with self.single_warp(5):
            tile: int32 = scheduler.first()
            while True:
                _, column = tiles.place(tile)
                if rank == 0:
                    sums.wait_empty()
                    for offset_k in range(0, k, self.block_k):
                        # TMA writes and the tensor cores read through the async proxy: a wait is enough, no fence.
                        ring.wait_full()
                        # The first k-tile overwrites the old contents of tensor memory. The MMA is asynchronous:
                        # commit makes the barriers of both CTAs track the MMAs of this thread so far
                        # ("tcgen05.commit").
                        stage = ring.stage
                        t_a, t_b = s_a[stage], s_b[stage].transpose()
                        t_sum = self.tcgen05.slice(t_acc, [0, sums.column()], [0, 1], [self.half_m, self.block_n])
                        scale_a, scale_b = scales.copy(ring, sums.behind)
                        self.tcgen05.mma_scaled(
                            t_a, t_b, t_sum, scale_a, scale_b, block=self.format.block, enable_input_d=offset_k != 0,
                            first_row=column * self.block_n % 128, cta_group=2,
                        )  # fmt: skip
                        self.tcgen05.commit(mbarrier=ring.empty(), cta_group=2, multicast_mask=0b11)
                        ring.advance()
                    self.tcgen05.commit(mbarrier=sums.full(), cta_group=2, multicast_mask=0b11)
                    sums.advance()
                another, tile = scheduler.next_tile()
                if not another:
                    break

        # Main loop of the warp that asks for the next tile, for both CTAs.
        with self.single_warp(6):
            scheduler.ask()

        # Epilogue: the warps that store, while the next tile is multiplied.
        with self.warp_group(0, 4):
            tile: int32 = scheduler.first()
            while True:
                row, column = tiles.place(tile)
                offset_m: int32 = row * self.block_m + rank * self.half_m
                offset_n: int32 = column * self.block_n
                sums.wait_full()
                # Tensor memory -> registers -> shared memory -> global memory, one strip of columns at a time.
                for e_offset_n in range(0, self.block_n, self.e_block_n):
                    # Loads are asynchronous too: the registers hold nothing before the wait ("tcgen05.wait").
                    strip, first = sums.strip(e_offset_n)
                    t_strip = self.tcgen05.slice(t_acc, [0, first], [0, 1], [self.half_m, self.e_block_n])
                    r_strip = self.tcgen05.load(t_strip)
                    self.tcgen05.wait_load()
                    sums.loaded(e_offset_n)
                    # Threads write through the generic proxy, TMA reads through the async proxy: each writer fences,
                    # then sync.
                    self.store_shared(s_c, r_strip.to(self.c_dtype))
                    self.fence.proxy_async(space="shared")
                    self.sync()
                    with self.single_warp():
                        # Elements outside of C are not stored.
                        self.tma.shared_to_global(s_c, g_c, offsets=[offset_m, offset_n + strip])
                        # Shared memory may change, and the CTA may exit, once TMA has read s_c: `read` waits for that
                        # alone. Only the thread that issued the store can wait ("cp.async.bulk.wait_group"): the others
                        # sync.
                        self.tma.commit_group()
                        self.tma.wait_group(n=0, read=True)
                    self.sync()
                sums.advance()
                another, tile = scheduler.next_tile()
                if not another:
                    break

        # Tensor memory must be freed by both CTAs before they exit ("tcgen05.dealloc"). A CTA must not exit while the
        # other one may still read its shared memory or signal its barriers.
        self.cluster.sync()
        self.tcgen05.dealloc(t_acc)
