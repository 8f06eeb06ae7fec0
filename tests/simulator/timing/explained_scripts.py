"""Products on tcgen05 and one on wgmma, which can be told to do one thing badly."""

import tilus
from tilus import float16, float32, int32, uint32, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.parts.ring import Ring
from blackwell_matmul.scheduling.wgmma_fragments import accumulator_layout, strip_layout


class Blackwell(tilus.Script):
    """unused: KiB of shared memory that nobody needs. boxes: into which each load is cut. late: a stage is given back
    with the next one. waits: for each product. fences: before each."""

    def __init__(
        self,
        block_n: int = 256,
        block_k: int = 64,
        stages: int = 4,
        unused: int = 0,
        boxes: int = 1,
        keeps: bool = False,
        late: bool = False,
        waits: bool = False,
        fences: bool = False,
    ):
        super().__init__()
        self.block_n, self.block_k, self.stages, self.unused, self.boxes = block_n, block_k, stages, unused, boxes
        self.keeps, self.late, self.waits, self.fences = keeps, late, waits, fences

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        self.attrs.blocks = [cdiv(m, 128), cdiv(n, self.block_n)]
        self.attrs.warps = 4
        offset_m: int32 = 128 * self.blockIdx.x
        offset_n: int32 = self.block_n * self.blockIdx.y
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        s_a = self.shared_tensor(dtype=float16, shape=[self.stages, 128, self.block_k])
        s_b = self.shared_tensor(dtype=float16, shape=[self.stages, self.block_n, self.block_k])
        rows_a = 128 // self.boxes
        rows_b = self.block_n // self.boxes
        s_a_rows = self.reshape_shared(s_a, [self.stages, self.boxes, rows_a, self.block_k])
        s_b_rows = self.reshape_shared(s_b, [self.stages, self.boxes, rows_b, self.block_k])
        s_c = self.shared_tensor(dtype=float16, shape=[128, 16])
        if self.unused > 0:
            s_unused = self.shared_tensor(dtype=float16, shape=[self.unused, 512])
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[128, self.block_n])
        if not self.keeps:
            with self.single_warp():
                self.tcgen05.relinquish_alloc_permit(cta_group=1)
        full = self.mbarrier.alloc(counts=[1 for _ in range(self.stages)])
        empty = self.mbarrier.alloc(counts=[1 for _ in range(self.stages)])
        seen = self.mbarrier.alloc(counts=1)
        complete = self.mbarrier.alloc(counts=1)
        self.sync()
        with self.single_warp(0):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.producer_initial_phase
            for offset_k in range(0, k, self.block_k):
                self.mbarrier.wait(empty[stage], phase=phase)
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(
                        full[stage], transaction_bytes=(128 + self.block_n) * self.block_k * 2
                    )
                for box in range(self.boxes):
                    self.tma.global_to_shared(
                        src=g_a, dst=s_a_rows[stage, box], offsets=[offset_m + box * rows_a, offset_k],
                        mbarrier=full[stage],
                    )  # fmt: skip
                    self.tma.global_to_shared(
                        src=g_b, dst=s_b_rows[stage, box], offsets=[offset_n + box * rows_b, offset_k],
                        mbarrier=full[stage],
                    )  # fmt: skip
                stage = (stage + 1) % self.stages
                phase ^= stage == 0
        with self.single_warp(1):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.consumer_initial_phase
            seen_phase: uint32 = 0
            for offset_k in range(0, k, self.block_k):
                self.mbarrier.wait(full[stage], phase=phase)
                if self.fences:
                    self.fence.proxy_async(space="shared")
                self.tcgen05.mma(s_a[stage], s_b[stage].transpose(), t_acc, enable_input_d=offset_k != 0)
                if not self.late:
                    self.tcgen05.commit(mbarrier=empty[stage])
                elif offset_k > 0:
                    self.tcgen05.commit(mbarrier=empty[(stage + self.stages - 1) % self.stages])
                if self.waits:
                    self.tcgen05.commit(mbarrier=seen)
                    self.mbarrier.wait(seen, phase=seen_phase)
                    seen_phase ^= 1
                stage = (stage + 1) % self.stages
                phase ^= stage == 0
            self.tcgen05.commit(mbarrier=complete)
        self.mbarrier.wait(complete, phase=0)
        for strip_n in range(0, self.block_n, 16):
            r_strip = self.tcgen05.load(self.tcgen05.slice(t_acc, [0, strip_n], [0, 1], [128, 16]))
            self.tcgen05.wait_load()
            self.store_shared(s_c, r_strip.to(float16))
            self.fence.proxy_async(space="shared")
            self.sync()
            with self.single_warp():
                self.tma.shared_to_global(s_c, g_c, offsets=[offset_m, offset_n + strip_n])
                self.tma.commit_group()
                self.tma.wait_group(n=0, read=True)
            self.sync()
        self.tcgen05.dealloc(t_acc)


class Hopper(tilus.Script):
    """As Blackwell."""

    target = "sm_90a"

    def __init__(
        self,
        block_n: int = 256,
        block_k: int = 64,
        stages: int = 4,
        unused: int = 0,
        boxes: int = 1,
        late: bool = False,
        fences: bool = False,
    ):
        super().__init__()
        self.block_n, self.block_k, self.stages, self.unused, self.boxes = block_n, block_k, stages, unused, boxes
        self.late, self.fences = late, fences
        self.strips = block_n // 32
        self.acc_layout = accumulator_layout(64, block_n)
        self.strip_layout = strip_layout(64, block_n, 32)

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        self.attrs.blocks = [cdiv(m, 128), cdiv(n, self.block_n)]
        self.attrs.warps = 9
        offset_m: int32 = 128 * self.blockIdx.x
        offset_n: int32 = self.block_n * self.blockIdx.y
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        s_a = self.shared_tensor(dtype=float16, shape=[self.stages, 128, self.block_k])
        s_b = self.shared_tensor(dtype=float16, shape=[self.stages, self.block_n, self.block_k])
        s_c = self.shared_tensor(dtype=float16, shape=[2, 64, 32])
        if self.unused > 0:
            s_unused = self.shared_tensor(dtype=float16, shape=[self.unused, 512])
        rows_a = 128 // self.boxes
        rows_b = self.block_n // self.boxes
        s_a_rows = self.reshape_shared(s_a, [self.stages, self.boxes, rows_a, self.block_k])
        s_b_rows = self.reshape_shared(s_b, [self.stages, self.boxes, rows_b, self.block_k])
        full = self.mbarrier.alloc(counts=[1 for _ in range(self.stages)])
        empty = self.mbarrier.alloc(counts=[2 for _ in range(self.stages)])
        self.sync()
        with self.single_warp(8):
            stage: int32 = 0
            phase: uint32 = self.mbarrier.producer_initial_phase
            for offset_k in range(0, k, self.block_k):
                self.mbarrier.wait(empty[stage], phase=phase)
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(
                        full[stage], transaction_bytes=(128 + self.block_n) * self.block_k * 2
                    )
                for box in range(self.boxes):
                    self.tma.global_to_shared(
                        src=g_a, dst=s_a_rows[stage, box], offsets=[offset_m + box * rows_a, offset_k],
                        mbarrier=full[stage],
                    )  # fmt: skip
                    self.tma.global_to_shared(
                        src=g_b, dst=s_b_rows[stage, box], offsets=[offset_n + box * rows_b, offset_k],
                        mbarrier=full[stage],
                    )  # fmt: skip
                stage = (stage + 1) % self.stages
                phase ^= stage == 0
        s_a_groups = self.reshape_shared(s_a, [self.stages, 2, 64, self.block_k])
        self.s_a, self.s_b, self.s_c, self.g_c, self.full, self.empty = s_a_groups, s_b, s_c, g_c, full, empty
        with self.warp_group(0, 4):
            self.consume(0, cdiv(k, self.block_k), offset_m, offset_n)
        with self.warp_group(4, 4):
            self.consume(1, cdiv(k, self.block_k), offset_m, offset_n)

    def consume(self, which: int, k_tiles: int32, offset_m: int32, offset_n: int32):
        stage: int32 = 0
        phase: uint32 = 0
        r_acc = self.register_tensor(dtype=float32, shape=[64, self.block_n], init=0.0)
        for k_tile in range(k_tiles):
            self.mbarrier.wait(self.full[stage], phase=phase)
            if self.fences:
                self.fence.proxy_async(space="shared")
            self.wgmma.fence()
            self.wgmma.mma(self.s_a[stage, which], self.s_b[stage].transpose(), r_acc)
            self.wgmma.commit_group()
            self.wgmma.wait_group(0)
            if not self.late:
                with self.single_thread(0):
                    self.mbarrier.arrive(self.empty[stage])
            elif k_tile > 0:
                with self.single_thread(0):
                    self.mbarrier.arrive(self.empty[(stage + self.stages - 1) % self.stages])
            stage = (stage + 1) % self.stages
            phase ^= stage == 0
        self.annotate_layout(r_acc, self.acc_layout)
        r_strips = self.view(r_acc, layout=self.strip_layout)
        for strip in self.range(0, self.strips, 1, unroll="all"):
            self.store_shared(self.s_c[which], r_strips[0, strip].to(float16))
            self.fence.proxy_async(space="shared")
            self.sync()
            with self.single_warp():
                offsets = [offset_m + which * 64, offset_n + strip * 32]
                self.tma.shared_to_global(self.s_c[which], self.g_c, offsets=offsets)
                self.tma.commit_group()
                self.tma.wait_group(n=0, read=True)
            self.sync()


class Together(tilus.Script):
    """All warps go along k, and the first one loads and multiplies. ahead: k-tiles that are asked for before; as many
    as stages: it waits for each product. bias: threads write shared memory before."""

    def __init__(self, stages: int = 4, ahead: int = 3, bias: bool = False):
        super().__init__()
        self.stages, self.ahead, self.bias = stages, ahead, bias

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        self.attrs.blocks = [cdiv(m, 128), cdiv(n, 256)]
        self.attrs.warps = 4
        offset_m: int32 = 128 * self.blockIdx.x
        offset_n: int32 = 256 * self.blockIdx.y
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        s_a = self.shared_tensor(dtype=float16, shape=[self.stages, 128, 64])
        s_b = self.shared_tensor(dtype=float16, shape=[self.stages, 256, 64])
        s_c = self.shared_tensor(dtype=float16, shape=[128, 32])
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[128, 256])
        full = self.mbarrier.alloc(counts=[1 for _ in range(self.stages)])
        empty = self.mbarrier.alloc(counts=[1 for _ in range(self.stages)])
        complete = self.mbarrier.alloc(counts=1)
        self.sync()
        if self.bias:
            self.store_shared(s_c, self.load_global(g_c, offsets=[offset_m, offset_n], shape=[128, 32]))
            self.sync()
        with self.single_warp(0):
            for i in range(min(self.ahead, cdiv(k, 64))):
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full[i], transaction_bytes=384 * 64 * 2)
                self.tma.global_to_shared(src=g_a, dst=s_a[i], offsets=[offset_m, i * 64], mbarrier=full[i])
                self.tma.global_to_shared(src=g_b, dst=s_b[i], offsets=[offset_n, i * 64], mbarrier=full[i])
        stage: int32 = 0
        phase: uint32 = 0
        into: int32 = self.ahead % self.stages
        into_phase: uint32 = 0 if self.ahead == self.stages else 1
        for offset_k in range(0, k, 64):
            self.mbarrier.wait(full[stage], phase=phase)
            self.sync()
            with self.single_warp(0):
                self.tcgen05.mma(s_a[stage], s_b[stage].transpose(), t_acc, enable_input_d=offset_k != 0)
                self.tcgen05.commit(mbarrier=empty[stage])
                next_k: int32 = offset_k + self.ahead * 64
                if next_k < k:
                    self.mbarrier.wait(empty[into], phase=into_phase)
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(full[into], transaction_bytes=384 * 64 * 2)
                    self.tma.global_to_shared(src=g_a, dst=s_a[into], offsets=[offset_m, next_k], mbarrier=full[into])
                    self.tma.global_to_shared(src=g_b, dst=s_b[into], offsets=[offset_n, next_k], mbarrier=full[into])
            stage = (stage + 1) % self.stages
            phase ^= stage == 0
            into = (into + 1) % self.stages
            into_phase ^= into == 0
        with self.single_warp(0):
            self.tcgen05.commit(mbarrier=complete)
        self.mbarrier.wait(complete, phase=0)
        for strip_n in range(0, 256, 32):
            r_strip = self.tcgen05.load(self.tcgen05.slice(t_acc, [0, strip_n], [0, 1], [128, 32]))
            self.tcgen05.wait_load()
            self.store_shared(s_c, r_strip.to(float16))
            self.fence.proxy_async(space="shared")
            self.sync()
            with self.single_warp():
                self.tma.shared_to_global(s_c, g_c, offsets=[offset_m, offset_n + strip_n])
                self.tma.commit_group()
                self.tma.wait_group(n=0, read=True)
            self.sync()
        self.tcgen05.dealloc(t_acc)


class Stays(tilus.Script):
    """A CTA goes on to further tiles, and warps of their own store one while the next is multiplied. sums: places for
    an accumulator. columns: of a strip of C that is stored at a time. ctas: of them."""

    def __init__(self, sums: int = 2, columns: int = 16, stages: int = 3, ctas: int = 148):
        super().__init__()
        self.sums, self.columns, self.stages, self.ctas = sums, columns, stages, ctas

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        tiles_m = cdiv(m, 128)
        tiles: int32 = tiles_m * cdiv(n, 256)
        self.attrs.blocks = self.ctas
        self.attrs.warps = 6
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        s_a = self.shared_tensor(dtype=float16, shape=[self.stages, 128, 64])
        s_b = self.shared_tensor(dtype=float16, shape=[self.stages, 256, 64])
        s_c = self.shared_tensor(dtype=float16, shape=[128, self.columns])
        ring = Ring(self.stages)
        sums = Ring(self.sums, empties=128)
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[self.sums, 128, 256])
        self.sync()
        with self.single_warp(4):
            for tile in range(self.blockIdx.x, tiles, self.gridDim.x):
                for offset_k in range(0, k, 64):
                    ring.wait_empty()
                    stage = ring.stage
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(ring.full(), transaction_bytes=384 * 64 * 2)
                    offsets_a = [tile % tiles_m * 128, offset_k]
                    offsets_b = [tile // tiles_m * 256, offset_k]
                    self.tma.global_to_shared(src=g_a, dst=s_a[stage], offsets=offsets_a, mbarrier=ring.full())
                    self.tma.global_to_shared(src=g_b, dst=s_b[stage], offsets=offsets_b, mbarrier=ring.full())
                    ring.advance()
        with self.single_warp(5):
            for _ in range(self.blockIdx.x, tiles, self.gridDim.x):
                sums.wait_empty()
                for offset_k in range(0, k, 64):
                    ring.wait_full()
                    a, b = s_a[ring.stage], s_b[ring.stage].transpose()
                    self.tcgen05.mma(a, b, t_acc[sums.stage], enable_input_d=offset_k != 0)
                    self.tcgen05.commit(mbarrier=ring.empty())
                    ring.advance()
                self.tcgen05.commit(mbarrier=sums.full())
                sums.advance()
        with self.warp_group(0, 4):
            for tile in range(self.blockIdx.x, tiles, self.gridDim.x):
                sums.wait_full()
                for strip_n in range(0, 256, self.columns):
                    t_strip = self.tcgen05.slice(t_acc[sums.stage], [0, strip_n], [0, 1], [128, self.columns])
                    r_strip = self.tcgen05.load(t_strip)
                    self.tcgen05.wait_load()
                    self.store_shared(s_c, r_strip.to(float16))
                    self.fence.proxy_async(space="shared")
                    self.sync()
                    with self.single_warp():
                        offsets_c = [tile % tiles_m * 128, tile // tiles_m * 256 + strip_n]
                        self.tma.shared_to_global(s_c, g_c, offsets=offsets_c)
                        self.tma.commit_group()
                        self.tma.wait_group(n=0, read=True)
                    self.sync()
                self.mbarrier.arrive(sums.empty())
                sums.advance()
        self.sync()
        self.tcgen05.dealloc(t_acc)
