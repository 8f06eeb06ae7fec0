"""Grouped GEMM of a mixture of experts: a product for each group of rows, in one launch.

The kernel follows V5, but each CTA takes every gridDim.x-th tile, because the host does not know their number. A tile
belongs to one group and begins at any row, which TMA allows. Rows after the group's end are computed but not stored.
TMA cannot leave them out, so C is stored from registers.
"""

from tilus import DataType, float32, int32, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.experts.scripts import GroupedScript
from blackwell_matmul.kernels.parts.grouped_raster import GroupedRaster
from blackwell_matmul.kernels.parts.operand import lines
from blackwell_matmul.kernels.parts.ring import Ring
from blackwell_matmul.problem.form import Form
from blackwell_matmul.scheduling.tcgen05_strips import strip_layout


class BlackwellGroupedMatmul(GroupedScript):
    """C[rows of group g] = x[rows of group g, k] @ w[g, k, n]; offs has the end of the rows of each group."""

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
        self.take_form(form)
        self.block_m = block_m
        self.block_n = block_n
        self.block_k = block_k
        self.e_block_n = e_block_n
        self.stages = stages
        self.sm_count = sm_count
        self.strip_layout = strip_layout(block_m, e_block_n)

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
        # have a tile that is not full at most. Tensor memory has 128 lanes, a row of the tile in each, and a warp can
        # load 32 of them: hence four warps that store. Of two more one loads and one multiplies.
        tiles_n = cdiv(n, self.block_n)
        count = (m // self.block_m + groups + 1) * tiles_n
        self.attrs.blocks = cdiv(count, cdiv(count, self.sm_count))
        self.attrs.warps = 6

        g_x, w = self.open_operands(m, n, k, groups, x_ptr, w_ptr)
        g_offs = self.global_view(offs_ptr, dtype=int32, shape=[groups])
        walk = GroupedRaster(g_offs, groups, m, self.block_m, tiles_n)

        # On-chip memory: shared memory for `stages` k-tiles of x and w, tensor memory for two accumulators.
        s_x = self.shared_tensor(dtype=self.dtype, shape=[self.stages, self.block_m, self.block_k])
        s_w = self.shared_tensor(dtype=self.dtype, shape=lines(self.w_k, [self.stages], self.block_n, self.block_k))
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[2, self.block_m, self.block_n])
        # One CTA of an SM at a time may allocate ("tcgen05.alloc"): give up the permit, so that another one can.
        with self.single_warp():
            self.tcgen05.relinquish_alloc_permit(cta_group=1)

        # Barriers: a stage is full after one arrival and all the bytes that it announces, and empty after one, by
        # tcgen05.commit; an accumulator is full after one, by tcgen05.commit, and empty after one of each thread that
        # stores.
        ring = Ring(self.stages)
        sums = Ring(2, empties=128)
        self.sync()  # every warp sees the initialised barriers and the address of t_acc

        # Main loop of the warp that loads.
        with self.single_warp(4):
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

        # Main loop of the warp that multiplies.
        with self.single_warp(5):
            tile: int32 = self.blockIdx.x
            while True:
                found = walk.find(tile)
                if not found:
                    break
                sums.wait_empty()
                k_begin, k_end = walk.depth(k, self.block_k)
                for offset_k in range(k_begin, k_end, self.block_k):
                    # TMA writes and the tensor core reads through the async proxy: a wait is enough, no fence.
                    ring.wait_full()
                    # The first k-tile overwrites the old contents of tensor memory. The MMA is asynchronous: commit
                    # makes the barrier track the MMAs of this thread so far ("tcgen05.commit").
                    stage = ring.stage
                    t_w = s_w[stage].transpose() if self.w_k else s_w[stage]
                    self.tcgen05.mma(s_x[stage], t_w, t_acc[sums.stage], enable_input_d=offset_k != k_begin)
                    self.tcgen05.commit(mbarrier=ring.empty())
                    ring.advance()
                self.tcgen05.commit(mbarrier=sums.full())
                sums.advance()
                tile += self.gridDim.x

        # Epilogue: the warps that store, while the next tile is multiplied.
        with self.warp_group(0, 4):
            tile: int32 = self.blockIdx.x
            while True:
                found = walk.find(tile)
                if not found:
                    break
                row, column = walk.place(tile)
                # A view of the rows up to the group's end: rows beyond are another group's, and not stored.
                g_c = self.global_view(c_ptr, dtype=self.dtype, shape=[walk.end, n])
                sums.wait_full()
                # Tensor memory -> registers -> global memory, one strip of columns at a time.
                for e_offset_n in range(0, self.block_n, self.e_block_n):
                    # Loads are asynchronous too: the registers hold nothing before the wait ("tcgen05.wait").
                    t_strip = self.tcgen05.slice(
                        t_acc[sums.stage], [0, e_offset_n], [0, 1], [self.block_m, self.e_block_n]
                    )
                    r_strip = self.tcgen05.load(t_strip)
                    self.annotate_layout(r_strip, self.strip_layout)  # rows in one piece each, to be stored so
                    self.tcgen05.wait_load()
                    offsets = [row, column * self.block_n + e_offset_n]
                    self.store_global(g_c, r_strip.to(self.dtype), offsets=offsets)
                self.mbarrier.arrive(sums.empty())
                sums.advance()
                tile += self.gridDim.x

        # Tensor memory must be freed before the CTA exits ("tcgen05.dealloc").
        self.sync()
        self.tcgen05.dealloc(t_acc)
