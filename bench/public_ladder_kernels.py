"""Kernels of the same design as those of other published ladders (`public_ladder.py`), written anew in tilus."""

import tilus
from tilus import DataType, bfloat16, float16, float32, int32, uint32, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.host.block_scaled import ScaledMatmulScript
from blackwell_matmul.kernels.parts.raster import GroupedTiles
from blackwell_matmul.kernels.parts.ring import Ring
from blackwell_matmul.kernels.parts.scale_atoms import ScaleAtoms
from blackwell_matmul.kernels.parts.tile_scheduler import ClcTileScheduler
from blackwell_matmul.lang import FORMATS

STRIP = 8
"""Columns of C that a thread loads from tensor memory and stores at once: 16 bytes."""


class Serial(tilus.Script):
    """Each k-tile is loaded, waited for, multiplied and waited for; with two stages the next one is on its way."""

    def __init__(self, block_n: int = 256, block_k: int = 256, stages: int = 1):
        super().__init__()
        self.block_n, self.block_k, self.stages = block_n, block_k, stages

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        self.attrs.blocks = cdiv(m, 128) * cdiv(n, self.block_n)
        self.attrs.warps = 4
        columns = cdiv(n, self.block_n)
        offset_m: int32 = self.blockIdx.x // columns * 128
        offset_n: int32 = self.blockIdx.x % columns * self.block_n
        g_a = self.global_view(a_ptr, dtype=bfloat16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=bfloat16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=bfloat16, shape=[m, n])
        s_a = self.shared_tensor(dtype=bfloat16, shape=[self.stages, 128, self.block_k])
        s_b = self.shared_tensor(dtype=bfloat16, shape=[self.stages, self.block_n, self.block_k])
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[128, self.block_n])
        full = self.mbarrier.alloc(counts=[1 for _ in range(self.stages)])
        done = self.mbarrier.alloc(counts=1)
        self.sync()
        tile_bytes = (128 + self.block_n) * self.block_k * 2
        ahead = self.stages - 1
        with self.single_warp(0):
            for i in range(ahead):
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full[i], transaction_bytes=tile_bytes)
                first_k = i * self.block_k
                self.tma.global_to_shared(src=g_a, dst=s_a[i], offsets=[offset_m, first_k], mbarrier=full[i])
                self.tma.global_to_shared(src=g_b, dst=s_b[i], offsets=[offset_n, first_k], mbarrier=full[i])
        stage: int32 = 0
        full_phase: uint32 = 0
        done_phase: uint32 = 0
        for offset_k in range(0, k, self.block_k):
            next_k: int32 = offset_k + ahead * self.block_k
            if next_k < k:
                with self.single_warp(0):
                    into: int32 = (stage + ahead) % self.stages
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(full[into], transaction_bytes=tile_bytes)
                    self.tma.global_to_shared(src=g_a, dst=s_a[into], offsets=[offset_m, next_k], mbarrier=full[into])
                    self.tma.global_to_shared(src=g_b, dst=s_b[into], offsets=[offset_n, next_k], mbarrier=full[into])
            self.mbarrier.wait(full[stage], phase=full_phase)
            with self.single_warp(0):
                self.tcgen05.mma(s_a[stage], s_b[stage].transpose(), t_acc, enable_input_d=offset_k != 0)
                self.tcgen05.commit(mbarrier=done)
            self.mbarrier.wait(done, phase=done_phase)
            self.sync()  # the published kernel has none: a warp two phases behind would wait for the wrong parity
            done_phase ^= 1
            stage = (stage + 1) % self.stages
            full_phase ^= stage == 0
        for strip_n in range(0, self.block_n, STRIP):
            r_strip = self.tcgen05.load(self.tcgen05.slice(t_acc, [0, strip_n], [0, 1], [128, STRIP]))
            self.tcgen05.wait_load()
            self.store_global(g_c, r_strip.to(bfloat16), offsets=[offset_m, offset_n + strip_n])
        self.sync()
        self.tcgen05.dealloc(t_acc)


class Specialised(tilus.Script):
    """A warp loads and another one multiplies, round a ring of stages."""

    def __init__(self, block_n: int = 128, block_k: int = 64, stages: int = 7):
        super().__init__()
        self.block_n, self.block_k, self.stages = block_n, block_k, stages

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        self.attrs.blocks = cdiv(m, 128) * cdiv(n, self.block_n)
        self.attrs.warps = 4
        columns = cdiv(n, self.block_n)
        offset_m: int32 = self.blockIdx.x // columns * 128
        offset_n: int32 = self.blockIdx.x % columns * self.block_n
        g_a = self.global_view(a_ptr, dtype=bfloat16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=bfloat16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=bfloat16, shape=[m, n])
        s_a = self.shared_tensor(dtype=bfloat16, shape=[self.stages, 128, self.block_k])
        s_b = self.shared_tensor(dtype=bfloat16, shape=[self.stages, self.block_n, self.block_k])
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[128, self.block_n])
        ring = Ring(self.stages)
        complete = self.mbarrier.alloc(counts=1)
        self.sync()
        with self.single_warp(0):
            for offset_k in range(0, k, self.block_k):
                ring.wait_empty()
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(
                        ring.full(), transaction_bytes=(128 + self.block_n) * self.block_k * 2
                    )
                stage = ring.stage
                self.tma.global_to_shared(src=g_a, dst=s_a[stage], offsets=[offset_m, offset_k], mbarrier=ring.full())
                self.tma.global_to_shared(src=g_b, dst=s_b[stage], offsets=[offset_n, offset_k], mbarrier=ring.full())
                ring.advance()
        with self.single_warp(1):
            for offset_k in range(0, k, self.block_k):
                ring.wait_full()
                stage = ring.stage
                self.tcgen05.mma(s_a[stage], s_b[stage].transpose(), t_acc, enable_input_d=offset_k != 0)
                self.tcgen05.commit(mbarrier=ring.empty())
                ring.advance()
            self.tcgen05.commit(mbarrier=complete)
        self.sync()
        self.mbarrier.wait(complete, phase=0)
        for strip_n in range(0, self.block_n, STRIP):
            r_strip = self.tcgen05.load(self.tcgen05.slice(t_acc, [0, strip_n], [0, 1], [128, STRIP]))
            self.tcgen05.wait_load()
            self.store_global(g_c, r_strip.to(bfloat16), offsets=[offset_m, offset_n + strip_n])
        self.sync()
        self.tcgen05.dealloc(t_acc)


class Pairs(tilus.Script):
    """Two CTAs compute a tile of 256 rows together. ctas: 0, or how many stay and go through the tiles, with a second
    accumulator and four more warps that store."""

    def __init__(self, block_n: int = 256, block_k: int = 64, stages: int = 7, ctas: int = 0):
        super().__init__()
        self.block_n, self.block_k, self.stages, self.ctas = block_n, block_k, stages, ctas
        self.half_n = block_n // 2
        self.accumulators = 2 if ctas else 1

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        tiles: int32 = cdiv(m, 256) * cdiv(n, self.block_n)
        self.attrs.blocks = self.ctas if self.ctas else 2 * cdiv(m, 256) * cdiv(n, self.block_n)
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 6
        rank = self.cluster.blockRank
        columns = cdiv(n, self.block_n)
        g_a = self.global_view(a_ptr, dtype=bfloat16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=bfloat16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=bfloat16, shape=[m, n])
        s_a = self.shared_tensor(dtype=bfloat16, shape=[self.stages, 128, self.block_k])
        s_b = self.shared_tensor(dtype=bfloat16, shape=[self.stages, self.half_n, self.block_k])
        ring = Ring(self.stages)
        sums = Ring(self.accumulators, empties=2 * 128, scope="cluster")
        self.cluster.sync()
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[self.accumulators, 128, self.block_n], cta_group=2)
        self.sync()
        first: int32 = self.blockIdx.x // 2
        step: int32 = self.gridDim.x // 2
        with self.single_warp(4):
            for tile in range(first, tiles, step):
                offset_m: int32 = tile // columns * 256 + rank * 128
                offset_n: int32 = tile % columns * self.block_n + rank * self.half_n
                for offset_k in range(0, k, self.block_k):
                    ring.wait_empty()
                    full = ring.full()
                    if rank == 0:
                        with self.single_thread():
                            self.mbarrier.arrive_and_expect_tx(
                                full, transaction_bytes=(256 + self.block_n) * self.block_k * 2
                            )
                    else:
                        full = self.cluster.map_shared_addr(full, target_rank=0)
                    stage = ring.stage
                    self.tma.global_to_shared(
                        src=g_a, dst=s_a[stage], offsets=[offset_m, offset_k], mbarrier=full, cta_group=2
                    )
                    self.tma.global_to_shared(
                        src=g_b, dst=s_b[stage], offsets=[offset_n, offset_k], mbarrier=full, cta_group=2
                    )
                    ring.advance()
        with self.single_warp(5):
            if rank == 0:
                for _ in range(first, tiles, step):
                    sums.wait_empty()
                    for offset_k in range(0, k, self.block_k):
                        ring.wait_full()
                        stage = ring.stage
                        self.tcgen05.mma(
                            s_a[stage], s_b[stage].transpose(), t_acc[sums.stage], enable_input_d=offset_k != 0,
                            cta_group=2,
                        )  # fmt: skip
                        self.tcgen05.commit(mbarrier=ring.empty(), cta_group=2, multicast_mask=0b11)
                        ring.advance()
                    self.tcgen05.commit(mbarrier=sums.full(), cta_group=2, multicast_mask=0b11)
                    sums.advance()
        with self.warp_group(0, 4):
            for tile in range(first, tiles, step):
                offset_m: int32 = tile // columns * 256 + rank * 128
                offset_n: int32 = tile % columns * self.block_n
                sums.wait_full()
                for strip_n in range(0, self.block_n, STRIP):
                    t_strip = self.tcgen05.slice(t_acc[sums.stage], [0, strip_n], [0, 1], [128, STRIP])
                    r_strip = self.tcgen05.load(t_strip)
                    self.tcgen05.wait_load()
                    self.store_global(g_c, r_strip.to(bfloat16), offsets=[offset_m, offset_n + strip_n])
                self.mbarrier.arrive_and_expect_tx_remote(
                    sums.empty(), transaction_bytes=0, target_rank=0, sem="release", scope="cluster"
                )
                sums.advance()
        self.cluster.sync()
        self.tcgen05.dealloc(t_acc)


class Together(tilus.Script):
    """All four warps wait for each k-tile, two of which are on their way, and for the product before it; then C goes
    out as one tile, where stages were. ctas: 0, or how many stay and go through the tiles, in groups of 8 rows."""

    def __init__(self, stages: int = 4, ctas: int = 0):
        super().__init__()
        self.stages, self.ctas = stages, ctas

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        rows = cdiv(m, 128)
        count: int32 = rows * cdiv(n, 256)
        self.attrs.blocks = self.ctas if self.ctas else cdiv(m, 128) * cdiv(n, 256)
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        tiles = GroupedTiles(rows, cdiv(n, 256), 8)
        s_a = self.shared_tensor(dtype=float16, shape=[self.stages, 128, 64])
        s_b = self.shared_tensor(dtype=float16, shape=[self.stages, 256, 64])
        s_c = self.reshape_shared(s_b, [self.stages, 2, 128, 64])
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[128, 256])
        full = self.mbarrier.alloc(counts=[1 for _ in range(self.stages)])
        done = self.mbarrier.alloc(counts=1)
        self.sync()
        stage: int32 = 0
        full_phase: uint32 = 0
        done_phase: uint32 = 0
        for tile in range(self.blockIdx.x, count, self.gridDim.x):
            row: int32 = tile % rows  # the grid's x is along m
            column: int32 = tile // rows
            if self.ctas:
                row, column = tiles.place(tile)
            offset_m: int32 = row * 128
            offset_n: int32 = column * 256
            for offset_k in range(-2 * 64, k, 64):
                next_k: int32 = offset_k + 2 * 64
                if next_k < k:
                    with self.single_warp(0):
                        ahead: int32 = 2 if offset_k >= 0 else offset_k // 64 + 2
                        into: int32 = (stage + ahead) % self.stages
                        with self.single_thread():
                            self.mbarrier.arrive_and_expect_tx(full[into], transaction_bytes=(128 + 256) * 64 * 2)
                        self.tma.global_to_shared(
                            src=g_a, dst=s_a[into], offsets=[offset_m, next_k], mbarrier=full[into]
                        )
                        self.tma.global_to_shared(
                            src=g_b, dst=s_b[into], offsets=[offset_n, next_k], mbarrier=full[into]
                        )
                if offset_k >= 0:
                    self.mbarrier.wait(full[stage], phase=full_phase)
                    if offset_k > 0:
                        self.mbarrier.wait(done, phase=done_phase)
                        done_phase ^= 1
                        self.sync()
                    with self.single_warp(0):
                        self.tcgen05.mma(s_a[stage], s_b[stage].transpose(), t_acc, enable_input_d=offset_k != 0)
                        self.tcgen05.commit(mbarrier=done)
                    stage = (stage + 1) % self.stages
                    full_phase ^= stage == 0
            self.mbarrier.wait(done, phase=done_phase)
            done_phase ^= 1
            for part in self.range(0, 4, 1, unroll="all"):
                r_part = self.tcgen05.load(self.tcgen05.slice(t_acc, [0, part * 64], [0, 1], [128, 64]))
                self.tcgen05.wait_load()
                self.store_shared(s_c[part // 2, part % 2], r_part.to(float16))
            self.fence.proxy_async(space="shared")
            self.sync()
            with self.single_warp(0):
                for part in self.range(0, 4, 1, unroll="all"):
                    self.tma.shared_to_global(s_c[part // 2, part % 2], g_c, offsets=[offset_m, offset_n + part * 64])
                self.tma.commit_group()
                self.tma.wait_group(n=0, read=True)
            self.sync()
        self.tcgen05.dealloc(t_acc)


class Stays(tilus.Script):
    """CTAs that stay: a warp loads, one multiplies, and four store the other one of two accumulators, by one strip of
    64 columns. Tiles of 128 x 256 in groups of 8 rows."""

    def __init__(self, stages: int = 4, ctas: int = 148):
        super().__init__()
        self.stages, self.ctas = stages, ctas

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        count: int32 = cdiv(m, 128) * cdiv(n, 256)
        tiles = GroupedTiles(cdiv(m, 128), cdiv(n, 256), 8)
        self.attrs.blocks = self.ctas
        self.attrs.warps = 6
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        s_a = self.shared_tensor(dtype=float16, shape=[self.stages, 128, 64])
        s_b = self.shared_tensor(dtype=float16, shape=[self.stages, 256, 64])
        s_c = self.shared_tensor(dtype=float16, shape=[128, 64])
        ring = Ring(self.stages)
        sums = Ring(2, empties=128)
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[2, 128, 256])
        self.sync()
        first: int32 = self.blockIdx.x
        with self.single_warp(4):
            for tile in range(first, count, self.ctas):
                row, column = tiles.place(tile)
                offset_m: int32 = row * 128
                offset_n: int32 = column * 256
                for offset_k in range(0, k, 64):
                    ring.wait_empty()
                    stage, full = ring.stage, ring.full()
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=(128 + 256) * 64 * 2)
                    self.tma.global_to_shared(src=g_a, dst=s_a[stage], offsets=[offset_m, offset_k], mbarrier=full)
                    self.tma.global_to_shared(src=g_b, dst=s_b[stage], offsets=[offset_n, offset_k], mbarrier=full)
                    ring.advance()
        with self.single_warp(5):
            for _ in range(first, count, self.ctas):
                sums.wait_empty()
                for offset_k in range(0, k, 64):
                    ring.wait_full()
                    stage = ring.stage
                    self.tcgen05.mma(
                        s_a[stage], s_b[stage].transpose(), t_acc[sums.stage], enable_input_d=offset_k != 0
                    )
                    self.tcgen05.commit(mbarrier=ring.empty())
                    ring.advance()
                self.tcgen05.commit(mbarrier=sums.full())
                sums.advance()
        with self.warp_group(0, 4):
            for tile in range(first, count, self.ctas):
                row, column = tiles.place(tile)
                offset_m: int32 = row * 128
                offset_n: int32 = column * 256
                sums.wait_full()
                for strip_n in self.range(0, 256, 64, unroll="all"):
                    t_strip = self.tcgen05.slice(t_acc[sums.stage], [0, strip_n], [0, 1], [128, 64])
                    r_strip = self.tcgen05.load(t_strip)
                    self.tcgen05.wait_load()
                    with self.single_warp():
                        self.tma.wait_group(n=0, read=True)
                    self.sync()
                    self.store_shared(s_c, r_strip.to(float16))
                    self.fence.proxy_async(space="shared")
                    self.sync()
                    with self.single_warp():
                        self.tma.shared_to_global(s_c, g_c, offsets=[offset_m, offset_n + strip_n])
                        self.tma.commit_group()
                self.mbarrier.arrive(sums.empty())
                sums.advance()
            with self.single_warp():
                self.tma.wait_group(n=0, read=True)
        self.sync()
        self.tcgen05.dealloc(t_acc)


class Alone(tilus.Script):
    """One CTA on an SM, which takes all columns of tensor memory. One stage: all four warps wait for each k-tile, and
    for each product where `waits`. More: a warp loads and another one multiplies. C leaves in strips of 64 columns,
    each from a place of its own."""

    def __init__(self, block_n: int = 128, stages: int = 1, waits: int = 0, columns: int = 512):
        super().__init__()
        self.block_n, self.stages, self.waits, self.columns = block_n, stages, waits, columns
        self.strips = block_n // 64

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        self.attrs.blocks = cdiv(m, 128) * cdiv(n, self.block_n)
        self.attrs.warps = 4
        columns = cdiv(n, self.block_n)
        offset_m: int32 = self.blockIdx.x // columns * 128
        offset_n: int32 = self.blockIdx.x % columns * self.block_n
        g_a = self.global_view(a_ptr, dtype=bfloat16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=bfloat16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=bfloat16, shape=[m, n])
        s_a = self.shared_tensor(dtype=bfloat16, shape=[self.stages, 128, 64])
        s_b = self.shared_tensor(dtype=bfloat16, shape=[self.stages, self.block_n, 64])
        s_c = self.shared_tensor(dtype=bfloat16, shape=[self.strips, 128, 64])
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[128, self.columns])
        if self.columns < 512:  # not in the published ones: several on an SM
            with self.single_warp():
                self.tcgen05.relinquish_alloc_permit(cta_group=1)
        t_sum = self.tcgen05.slice(t_acc, [0, 0], [0, 1], [128, self.block_n])
        ring = Ring(self.stages)
        complete = self.mbarrier.alloc(counts=1)
        tile_bytes = (128 + self.block_n) * 64 * 2
        self.sync()
        if self.stages == 1:
            for offset_k in range(0, k, 64):
                with self.single_warp(0):
                    ring.wait_empty()
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(ring.full(), transaction_bytes=tile_bytes)
                    self.tma.global_to_shared(src=g_a, dst=s_a[0], offsets=[offset_m, offset_k], mbarrier=ring.full())
                    self.tma.global_to_shared(src=g_b, dst=s_b[0], offsets=[offset_n, offset_k], mbarrier=ring.full())
                ring.wait_full()
                with self.single_warp(0):
                    self.tcgen05.mma(s_a[0], s_b[0].transpose(), t_sum, enable_input_d=offset_k != 0)
                    self.tcgen05.commit(mbarrier=ring.empty())
                ring.advance()
                if self.waits:
                    ring.wait_empty()
                self.sync()  # the published kernels have none: a warp two phases behind would wait for the wrong parity
            with self.single_warp(0):
                self.tcgen05.commit(mbarrier=complete)
        else:
            with self.single_warp(0):
                for offset_k in range(0, k, 64):
                    ring.wait_empty()
                    stage, full = ring.stage, ring.full()
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=tile_bytes)
                    self.tma.global_to_shared(src=g_a, dst=s_a[stage], offsets=[offset_m, offset_k], mbarrier=full)
                    self.tma.global_to_shared(src=g_b, dst=s_b[stage], offsets=[offset_n, offset_k], mbarrier=full)
                    ring.advance()
            with self.single_warp(1):
                for offset_k in range(0, k, 64):
                    ring.wait_full()
                    stage = ring.stage
                    self.tcgen05.mma(s_a[stage], s_b[stage].transpose(), t_sum, enable_input_d=offset_k != 0)
                    self.tcgen05.commit(mbarrier=ring.empty())
                    ring.advance()
                self.tcgen05.commit(mbarrier=complete)
        self.mbarrier.wait(complete, phase=0)
        for strip in self.range(0, self.strips, 1, unroll="all"):
            r_strip = self.tcgen05.load(self.tcgen05.slice(t_acc, [0, strip * 64], [0, 1], [128, 64]))
            self.tcgen05.wait_load()
            self.sync()
            self.store_shared(s_c[strip], r_strip.to(bfloat16))
            self.fence.proxy_async(space="shared")
            self.sync()
            with self.single_warp(0):
                self.tma.shared_to_global(s_c[strip], g_c, offsets=[offset_m, offset_n + strip * 64])
                self.tma.commit_group()
        with self.single_warp(0):
            self.tma.wait_group(n=0, read=True)
        self.sync()
        self.tcgen05.dealloc(t_acc)


class AloneStays(tilus.Script):
    """CTAs that stay: a warp loads, one multiplies, and four store the accumulator, whose place is free once it is in
    registers; a store is over before the next one begins. Tiles of 128 x 128 in groups of 8 rows."""

    def __init__(self, stages: int = 2, ctas: int = 148):
        super().__init__()
        self.stages, self.ctas = stages, ctas

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        count: int32 = cdiv(m, 128) * cdiv(n, 128)
        tiles = GroupedTiles(cdiv(m, 128), cdiv(n, 128), 8)
        self.attrs.blocks = self.ctas
        self.attrs.warps = 8
        g_a = self.global_view(a_ptr, dtype=bfloat16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=bfloat16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=bfloat16, shape=[m, n])
        s_a = self.shared_tensor(dtype=bfloat16, shape=[self.stages, 128, 64])
        s_b = self.shared_tensor(dtype=bfloat16, shape=[self.stages, 128, 64])
        s_c = self.shared_tensor(dtype=bfloat16, shape=[2, 128, 64])
        ring = Ring(self.stages)
        sums = Ring(1, empties=128)
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[128, 512])
        t_sum = self.tcgen05.slice(t_acc, [0, 0], [0, 1], [128, 128])
        self.sync()
        first: int32 = self.blockIdx.x
        with self.single_warp(7):
            for tile in range(first, count, self.ctas):
                row, column = tiles.place(tile)
                for offset_k in range(0, k, 64):
                    ring.wait_empty()
                    stage, full = ring.stage, ring.full()
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=(128 + 128) * 64 * 2)
                    self.tma.global_to_shared(src=g_a, dst=s_a[stage], offsets=[row * 128, offset_k], mbarrier=full)
                    self.tma.global_to_shared(src=g_b, dst=s_b[stage], offsets=[column * 128, offset_k], mbarrier=full)
                    ring.advance()
        with self.single_warp(4):
            for _ in range(first, count, self.ctas):
                sums.wait_empty()
                for offset_k in range(0, k, 64):
                    ring.wait_full()
                    stage = ring.stage
                    self.tcgen05.mma(s_a[stage], s_b[stage].transpose(), t_sum, enable_input_d=offset_k != 0)
                    self.tcgen05.commit(mbarrier=ring.empty())
                    ring.advance()
                self.tcgen05.commit(mbarrier=sums.full())
                sums.advance()
        with self.warp_group(0, 4):
            for tile in range(first, count, self.ctas):
                row, column = tiles.place(tile)
                sums.wait_full()
                r_left = self.tcgen05.load(self.tcgen05.slice(t_acc, [0, 0], [0, 1], [128, 64]))
                r_right = self.tcgen05.load(self.tcgen05.slice(t_acc, [0, 64], [0, 1], [128, 64]))
                self.tcgen05.wait_load()
                self.mbarrier.arrive(sums.empty())
                self.store_shared(s_c[0], r_left.to(bfloat16))
                self.store_shared(s_c[1], r_right.to(bfloat16))
                self.fence.proxy_async(space="shared")
                self.sync()
                with self.single_warp():
                    for half in self.range(0, 2, 1, unroll="all"):
                        offsets = [row * 128, column * 128 + half * 64]
                        self.tma.shared_to_global(s_c[half], g_c, offsets=offsets)
                    self.tma.commit_group()
                    self.tma.wait_group(n=0)
                self.sync()
                sums.advance()
        self.sync()
        self.tcgen05.dealloc(t_acc)


class Couples(tilus.Script):
    """Two CTAs compute `256 * sums` x 256 together: a warp loads for all, one multiplies into each accumulator, and
    four store it in strips, `together` of them at a time. ctas: 0, or how many stay, through tiles in groups of 8 rows;
    then a store is over before the next one begins."""

    def __init__(self, sums: int = 2, stages: int = 4, ctas: int = 0, strip_n: int = 64, together: int = 1):
        super().__init__()
        self.sums, self.stages, self.ctas, self.strip_n, self.together = sums, stages, ctas, strip_n, together
        self.places = together if ctas else 2

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        tile_m = 256 * self.sums
        count: int32 = cdiv(m, tile_m) * cdiv(n, 256)
        self.attrs.blocks = self.ctas if self.ctas else 2 * cdiv(m, tile_m) * cdiv(n, 256)
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 4 * self.sums + 4
        self.rank = self.cluster.blockRank
        tiles = GroupedTiles(cdiv(m, tile_m), cdiv(n, 256), 8 if self.ctas else 1)
        g_a = self.global_view(a_ptr, dtype=bfloat16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=bfloat16, shape=[n, k])
        self.g_c = self.global_view(c_ptr, dtype=bfloat16, shape=[m, n])
        self.s_a = self.shared_tensor(dtype=bfloat16, shape=[self.stages, self.sums, 128, 64])
        self.s_b = self.shared_tensor(dtype=bfloat16, shape=[self.stages, 128, 64])
        self.s_c = self.shared_tensor(dtype=bfloat16, shape=[self.sums, self.places, 128, self.strip_n])
        self.ring = Ring(self.stages, empties=self.sums)
        self.full = self.mbarrier.alloc(counts=[1 for _ in range(self.sums)])
        self.empty = self.mbarrier.alloc(counts=[2 * 128 for _ in range(self.sums)])
        self.cluster.sync()
        self.t_acc = self.tcgen05.alloc(dtype=float32, shape=[2, 128, 256], cta_group=2)
        self.sync()
        first: int32 = self.blockIdx.x // 2
        step: int32 = self.gridDim.x // 2
        with self.single_warp(4 * self.sums + 3):
            for tile in range(first, count, step):
                row, column = tiles.place(tile)
                for offset_k in range(0, k, 64):
                    self.ring.wait_empty()
                    full = self.ring.full()
                    if self.rank == 0:
                        with self.single_thread():
                            self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=(tile_m + 256) * 64 * 2)
                    else:
                        full = self.cluster.map_shared_addr(full, target_rank=0)
                    stage = self.ring.stage
                    for which in self.range(0, self.sums, 1, unroll="all"):
                        offset_m = row * tile_m + which * 256 + self.rank * 128
                        self.tma.global_to_shared(
                            src=g_a,
                            dst=self.s_a[stage, which],
                            offsets=[offset_m, offset_k],
                            mbarrier=full,
                            cta_group=2,
                        )
                    offset_n = column * 256 + self.rank * 128
                    self.tma.global_to_shared(
                        src=g_b, dst=self.s_b[stage], offsets=[offset_n, offset_k], mbarrier=full, cta_group=2
                    )
                    self.ring.advance()
        with self.single_warp(4 * self.sums):
            self.multiply(0, k, first, count, step)
        with self.warp_group(0, 4):
            self.store(0, tiles, first, count, step)
        if self.sums == 2:
            with self.single_warp(4 * self.sums + 1):
                self.multiply(1, k, first, count, step)
            with self.warp_group(4, 4):
                self.store(1, tiles, first, count, step)
        self.cluster.sync()
        self.tcgen05.dealloc(self.t_acc)

    def multiply(self, which: int, k: int, first: int32, count: int32, step: int32):
        self.ring.stage, self.ring.phase = 0, 0
        free: uint32 = 1
        if self.rank == 0:
            for _ in range(first, count, step):
                self.mbarrier.wait(self.empty[which], phase=free, scope="cluster")
                free ^= 1
                for offset_k in range(0, k, 64):
                    self.ring.wait_full()
                    stage = self.ring.stage
                    self.tcgen05.mma(
                        self.s_a[stage, which], self.s_b[stage].transpose(), self.t_acc[which],
                        enable_input_d=offset_k != 0, cta_group=2,
                    )  # fmt: skip
                    self.tcgen05.commit(mbarrier=self.ring.empty(), cta_group=2, multicast_mask=0b11)
                    self.ring.advance()
                self.tcgen05.commit(mbarrier=self.full[which], cta_group=2, multicast_mask=0b11)

    def store(self, which: int, tiles: GroupedTiles, first: int32, count: int32, step: int32):
        done: uint32 = 0
        for tile in range(first, count, step):
            row, column = tiles.place(tile)
            offset_m: int32 = (row * self.sums + which) * 256 + self.rank * 128
            self.mbarrier.wait(self.full[which], phase=done)
            done ^= 1
            for strip in self.range(0, 256 // self.strip_n, 1, unroll="all"):
                t_strip = self.tcgen05.slice(self.t_acc[which], [0, strip * self.strip_n], [0, 1], [128, self.strip_n])
                r_strip = self.tcgen05.load(t_strip)
                self.tcgen05.wait_load()
                if self.ctas == 0:
                    with self.single_warp():
                        self.tma.wait_group(n=1, read=True)
                    self.sync()
                self.store_shared(self.s_c[which, strip % self.places], r_strip.to(bfloat16))
                if (strip + 1) % self.together == 0:
                    self.fence.proxy_async(space="shared")
                    self.sync()
                    with self.single_warp():
                        for each in self.range(strip + 1 - self.together, strip + 1, 1, unroll="all"):
                            offsets = [offset_m, column * 256 + each * self.strip_n]
                            self.tma.shared_to_global(self.s_c[which, each % self.places], self.g_c, offsets=offsets)
                        self.tma.commit_group()
                        if self.ctas:
                            self.tma.wait_group(n=0)
                    if self.ctas:
                        self.sync()
            self.mbarrier.arrive_and_expect_tx_remote(
                self.empty[which], transaction_bytes=0, target_rank=0, sem="release", scope="cluster"
            )
        with self.single_warp():
            self.tma.wait_group(n=0, read=True)


class Snake(tilus.Class):
    """Order of tiles_m x tiles_n tiles: `width` of them side by side, along n or m, down the other extent; the next
    ones come back."""

    def __init__(self, tiles_m: int32, tiles_n: int, along_n: bool, width: int = 8):
        self.lines: int32 = tiles_n if along_n else tiles_m
        self.steps: int32 = tiles_m if along_n else tiles_n
        self.along_n, self.width = along_n, width

    def place(self, tile: int32):
        """Return the row and the column of a tile, in tiles."""
        lane: int32 = tile // (self.width * self.steps)
        within: int32 = tile % (self.width * self.steps)
        lines: int32 = min(self.width, self.lines - lane * self.width)
        line: int32 = lane * self.width + within % lines
        step: int32 = within // lines
        if lane % 2 == 1:
            step = self.steps - 1 - step
        row: int32 = step if self.along_n else line
        column: int32 = line if self.along_n else step
        return row, column


class LateTileScheduler(tilus.Class):
    """CLC with one place for a response, which a warp gives back only when it is done with the tile that the response
    granted: the next tile is asked for once this one is stored."""

    def __init__(self, warps: int, ctas: int):
        self.ctas = ctas
        self.prompt = ClcTileScheduler(warps, ctas)
        self.responses = self.prompt.responses
        self.granted: int32 = 0

    def first(self):
        """Return the first tile of this CTA."""
        return self.prompt.first()

    def next_tile(self):
        """Give back the response before; return True and the next tile, or False and any number."""
        if self.granted > 0:
            if self.ctas == 1:
                self.mbarrier.arrive(self.responses.empty())
            else:
                self.mbarrier.arrive_and_expect_tx_remote(
                    self.responses.empty(), transaction_bytes=0, target_rank=0, scope="cluster"
                )
        self.granted = 1
        self.responses.wait_full()
        another, block = self.clc.query_response(self.prompt.s_response)
        self.fence.proxy_async(space="shared")
        self.responses.advance()
        return another, block.x // self.ctas

    def ask(self):
        """Ask for the next tile until there is none. One warp calls this, in each CTA."""
        self.prompt.ask()


class EveryFew(tilus.Class):
    """Tiles of a CTA that stays: its own number, and each that is a grid further. The methods are those of
    `LateTileScheduler`."""

    def __init__(self, tiles: int32):
        self.tiles = tiles
        self.tile: int32 = self.blockIdx.x

    def first(self):
        """Return the first tile of this CTA."""
        return self.blockIdx.x

    def next_tile(self):
        """Return True and the next tile; or False and any number, if there is no tile left."""
        self.tile = self.tile + self.gridDim.x
        return self.tile < self.tiles, self.tile


class Scaled(ScaledMatmulScript):
    """Block scales: a warp loads, one multiplies into the only accumulator, and four store C.

    ctas: CTAs of a tile of `128 * ctas` x 256. stay: 0 or a number of CTAs. 0: tiles come by CLC, to and fro; C leaves
    in strips of 64 columns from two places in turn, before the next tile is asked for. Else the CTAs stay and go
    through groups of 8 rows; all of the accumulator is loaded, then the next tile begins, and C leaves at once.
    """

    features = ("tma", "ring", "specialised", "grouped", "clc", "pairs", "scaled")
    knobs = ()

    def __init__(self, dtype: str, ctas: int = 1, stages: int = 3, stay: int = 0, c_dtype: DataType = bfloat16):
        super().__init__()
        self.dtype, self.format, self.c_dtype = dtype, FORMATS[dtype], c_dtype
        self.ctas, self.stages, self.stay = ctas, stages, stay
        self.mask = 0b11 if ctas == 2 else None

    @classmethod
    def complete(cls, pins, args, target, gpu=None):
        """Return the arguments of `__init__`: the pins, and the types of the tensors."""
        knobs = dict(pins)
        problem, of_c = cls.problem_of(knobs, *args)
        return {"dtype": problem.dtype, **knobs, **of_c}

    def __call__(
        self, m: int32, n: int, k: int,
        a_ptr: void_p, b_ptr: void_p, scale_a_ptr: void_p, scale_b_ptr: void_p, c_ptr: void_p,
    ):  # fmt: skip
        tile_m, rows_b = 128 * self.ctas, 256 // self.ctas
        element, per_byte = self.format.element, self.format.per_byte
        block_k = 128 * per_byte
        self.attrs.blocks = self.stay if self.stay else self.ctas * cdiv(m, 128 * self.ctas) * cdiv(n, 256)
        self.attrs.cluster_blocks = self.ctas
        self.attrs.warps = 6 if self.stay else 7
        rank = self.cluster.blockRank
        g_a = self.global_view(a_ptr, dtype=element, shape=[m, k // per_byte])
        g_b = self.global_view(b_ptr, dtype=element, shape=[n, k // per_byte])
        g_c = self.global_view(c_ptr, dtype=self.c_dtype, shape=[m, n])
        s_a = self.shared_tensor(dtype=element, shape=[self.stages, 128, 128])
        s_b = self.shared_tensor(dtype=element, shape=[self.stages, rows_b, 128])
        s_c = self.shared_tensor(dtype=self.c_dtype, shape=[4 if self.stay else 2, 128, 64])
        scales = ScaleAtoms(self.dtype, m, n, k, scale_a_ptr, scale_b_ptr, 128, 256, block_k, self.stages, self.ctas)
        ring = Ring(self.stages)
        sums = Ring(1, empties=128 * self.ctas, scope="cta" if self.ctas == 1 else "cluster")
        if self.stay:
            tiles = GroupedTiles(cdiv(m, tile_m), cdiv(n, 256), 8)
            scheduler = EveryFew(cdiv(m, tile_m) * cdiv(n, 256))
        else:
            tiles = Snake(cdiv(m, tile_m), cdiv(n, 256), along_n=self.ctas == 1)
            scheduler = LateTileScheduler(warps=7, ctas=self.ctas)
        self.cluster.sync()
        t_all = self.tcgen05.alloc(dtype=float32, shape=[128, 512], cta_group=self.ctas)
        t_acc = self.tcgen05.slice(t_all, [0, 0], [0, 1], [128, 256])
        scales.t_all = t_all
        self.sync()
        with self.single_warp(4):
            tile: int32 = scheduler.first()
            while True:
                row, column = tiles.place(tile)
                offset_m: int32 = row * tile_m + rank * 128
                offset_n: int32 = column * 256 + rank * rows_b
                for offset_k in range(0, k, block_k):
                    ring.wait_empty()
                    stage, full = ring.stage, ring.full()
                    if rank == 0:
                        tile_bytes = (tile_m + 256) * 128 + self.ctas * scales.nbytes
                        with self.single_thread():
                            self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=tile_bytes)
                    else:
                        full = self.cluster.map_shared_addr(full, target_rank=0)
                    byte: int32 = offset_k // per_byte
                    self.tma.global_to_shared(
                        src=g_a, dst=s_a[stage], offsets=[offset_m, byte], mbarrier=full, cta_group=self.ctas
                    )
                    self.tma.global_to_shared(
                        src=g_b, dst=s_b[stage], offsets=[offset_n, byte], mbarrier=full, cta_group=self.ctas
                    )
                    scales.load(stage, offset_m, column * 256, offset_k, full)
                    ring.advance()
                another, tile = scheduler.next_tile()
                if not another:
                    break
        with self.single_warp(5):
            while True:
                if rank == 0:
                    sums.wait_empty()
                    for offset_k in range(0, k, block_k):
                        ring.wait_full()
                        stage = ring.stage
                        scale_a, scale_b = scales.copy(ring, 256)
                        self.tcgen05.mma_scaled(
                            s_a[stage], s_b[stage].transpose(), t_acc, scale_a, scale_b, block=self.format.block,
                            enable_input_d=offset_k != 0, first_row=0, cta_group=self.ctas,
                        )  # fmt: skip
                        self.tcgen05.commit(mbarrier=ring.empty(), cta_group=self.ctas, multicast_mask=self.mask)
                        ring.advance()
                    self.tcgen05.commit(mbarrier=sums.full(), cta_group=self.ctas, multicast_mask=self.mask)
                    sums.advance()
                another, _ = scheduler.next_tile()
                if not another:
                    break
        if self.stay == 0:
            with self.single_warp(6):
                scheduler.ask()
        with self.warp_group(0, 4):
            tile: int32 = scheduler.first()
            while True:
                row, column = tiles.place(tile)
                offset_m: int32 = row * tile_m + rank * 128
                sums.wait_full()
                if self.stay:
                    strips = [
                        self.tcgen05.load(self.tcgen05.slice(t_acc, [0, first], [0, 1], [128, 64]))
                        for first in (0, 64, 128, 192)
                    ]
                    self.tcgen05.wait_load()
                    self.mbarrier.arrive(sums.empty())
                    with self.single_warp():
                        self.tma.wait_group(n=0, read=True)
                    self.sync()
                    self.store_shared(s_c[0], strips[0].to(self.c_dtype))
                    self.store_shared(s_c[1], strips[1].to(self.c_dtype))
                    self.store_shared(s_c[2], strips[2].to(self.c_dtype))
                    self.store_shared(s_c[3], strips[3].to(self.c_dtype))
                    self.fence.proxy_async(space="shared")
                    self.sync()
                    with self.single_warp():
                        for strip in self.range(0, 4, 1, unroll="all"):
                            self.tma.shared_to_global(s_c[strip], g_c, offsets=[offset_m, column * 256 + strip * 64])
                        self.tma.commit_group()
                else:
                    for strip in self.range(0, 4, 1, unroll="all"):
                        r_strip = self.tcgen05.load(self.tcgen05.slice(t_acc, [0, strip * 64], [0, 1], [128, 64]))
                        self.tcgen05.wait_load()
                        with self.single_warp():
                            self.tma.wait_group(n=1, read=True)
                        self.sync()
                        self.store_shared(s_c[strip % 2], r_strip.to(self.c_dtype))
                        self.fence.proxy_async(space="shared")
                        self.sync()
                        with self.single_warp():
                            offsets = [offset_m, column * 256 + strip * 64]
                            self.tma.shared_to_global(s_c[strip % 2], g_c, offsets=offsets)
                            self.tma.commit_group()
                    if self.ctas == 1:
                        self.mbarrier.arrive(sums.empty())
                    else:
                        self.mbarrier.arrive_and_expect_tx_remote(
                            sums.empty(), transaction_bytes=0, target_rank=0, sem="release", scope="cluster"
                        )
                sums.advance()
                another, tile = scheduler.next_tile()
                if not another:
                    break
            with self.single_warp():
                self.tma.wait_group(n=0, read=True)
        self.cluster.sync()
        self.tcgen05.dealloc(t_all)
