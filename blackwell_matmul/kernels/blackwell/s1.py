"""S1: V4 with scales: one warp loads operands and scales, one warp multiplies.

New against V4: `ScaleAtoms` loads and copies the scales of each stage, with the statements of S0. Tensor memory has
room for the scales of two k-tiles, which take turns.
"""

from tilus import DataType, bfloat16, float32, int32, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.host.block_scaled import ScaledMatmulScript
from blackwell_matmul.kernels.parts.raster import GroupedTiles
from blackwell_matmul.kernels.parts.ring import Ring
from blackwell_matmul.kernels.parts.scale_atoms import ScaleAtoms
from blackwell_matmul.lang import FORMATS


class BlackwellMatmulS1(ScaledMatmulScript):
    """C[m, n] = (A[m, k] scales) @ (B[n, k] scales).T, of mxfp8, mxfp4 or nvfp4; rows are multiples of 16 bytes."""

    features = ("tma", "ring", "specialised", "grouped", "scaled")

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

    def __call__(
        self, m: int32, n: int, k: int,
        a_ptr: void_p, b_ptr: void_p, scale_a_ptr: void_p, scale_b_ptr: void_p, c_ptr: void_p,
    ):  # fmt: skip
        # The grid: one CTA for each tile of C. Tensor memory has 128 lanes, a row of the tile in each, and a warp
        # can load 32 of them: hence four warps.
        tiles = GroupedTiles(cdiv(m, self.block_m), cdiv(n, self.block_n), self.group_m)
        self.attrs.blocks = cdiv(m, self.block_m) * cdiv(n, self.block_n)
        self.attrs.warps = 4
        row, column = tiles.place(self.blockIdx.x)
        offset_m, offset_n = row * self.block_m, column * self.block_n

        # Two fp4 are in one byte: rows of A and B are counted in bytes.
        of_a, of_b, per_byte = self.format.element, self.format.element_b, self.format.per_byte
        g_a = self.global_view(a_ptr, dtype=of_a, shape=[m, k // per_byte])
        g_b = self.global_view(b_ptr, dtype=of_b, shape=[n, k // per_byte])
        g_c = self.global_view(c_ptr, dtype=self.c_dtype, shape=[m, n])

        # On-chip memory: shared memory for `stages` k-tiles of A and B and their scales, and a strip of C.
        s_a = self.shared_tensor(dtype=of_a, shape=[self.stages, self.block_m, self.block_k // per_byte])
        s_b = self.shared_tensor(dtype=of_b, shape=[self.stages, self.block_n, self.block_k // per_byte])
        scales = ScaleAtoms(
            self.dtype, m, n, k, scale_a_ptr, scale_b_ptr, self.block_m, self.block_n, self.block_k, self.stages
        )
        s_c = self.shared_tensor(dtype=self.c_dtype, shape=[self.block_m, self.e_block_n])

        # Barriers: a stage is full after one arrival and all the bytes that it announces, and empty after one, by
        # tcgen05.commit; another one says that the accumulator is complete.
        ring = Ring(self.stages)

        # An accumulator in tensor memory, and behind it the scales of two k-tiles.
        t_all = self.tcgen05.alloc(dtype=float32, shape=[self.block_m, self.block_n + 2 * scales.columns])
        scales.t_all = t_all
        t_acc = self.tcgen05.slice(t_all, [0, 0], [0, 1], [self.block_m, self.block_n])
        # One CTA of an SM at a time may allocate ("tcgen05.alloc"): give up the permit, so that another one can.
        with self.single_warp():
            self.tcgen05.relinquish_alloc_permit(cta_group=1)
        complete = self.mbarrier.alloc(counts=1)
        self.sync()  # every warp sees the initialised barriers and the address of t_all

        # Main loop of the warp that loads.
        with self.single_warp(0):
            tile_bytes = (self.block_m + self.block_n) * self.block_k // per_byte + scales.nbytes
            # Elements outside of A and B arrive as zeros, which add nothing.
            for offset_k in range(0, k, self.block_k):
                ring.wait_empty()
                # Announce the bytes once: from one thread, not from 32. TMA counts whole tiles, the zeros included.
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(ring.full(), transaction_bytes=tile_bytes)
                stage = ring.stage
                byte: int32 = offset_k // per_byte
                self.tma.global_to_shared(src=g_a, dst=s_a[stage], offsets=[offset_m, byte], mbarrier=ring.full())
                self.tma.global_to_shared(src=g_b, dst=s_b[stage], offsets=[offset_n, byte], mbarrier=ring.full())
                scales.load(stage, offset_m, offset_n, offset_k, ring.full())
                ring.advance()

        # Main loop of the warp that multiplies.
        with self.single_warp(1):
            for offset_k in range(0, k, self.block_k):
                # TMA writes and the tensor core reads through the async proxy: a wait is enough, no fence.
                ring.wait_full()
                # The first k-tile overwrites the old contents of tensor memory. The MMA is asynchronous: commit makes
                # the barrier track the MMAs of this thread so far ("tcgen05.commit").
                stage = ring.stage
                scale_a, scale_b = scales.copy(ring, self.block_n)
                self.tcgen05.mma_scaled(
                    s_a[stage], s_b[stage].transpose(), t_acc, scale_a, scale_b,
                    block=self.format.block, enable_input_d=offset_k != 0, first_row=offset_n % 128,
                )  # fmt: skip
                self.tcgen05.commit(mbarrier=ring.empty())
                ring.advance()
            self.tcgen05.commit(mbarrier=complete)
        self.mbarrier.wait(complete, phase=0)

        # Epilogue: tensor memory -> registers -> shared memory -> global memory, one strip of columns at a time.
        for e_offset_n in range(0, self.block_n, self.e_block_n):
            # Loads are asynchronous too: the registers hold nothing before the wait ("tcgen05.wait").
            t_strip = self.tcgen05.slice(t_acc, [0, e_offset_n], [0, 1], [self.block_m, self.e_block_n])
            r_strip = self.tcgen05.load(t_strip)
            self.tcgen05.wait_load()
            # Threads write through the generic proxy, TMA reads through the async proxy: each writer fences, then sync.
            self.store_shared(s_c, r_strip.to(self.c_dtype))
            self.fence.proxy_async(space="shared")
            self.sync()
            with self.single_warp():
                # Elements outside of C are not stored.
                self.tma.shared_to_global(s_c, g_c, offsets=[offset_m, offset_n + e_offset_n])
                # Shared memory may change, and the CTA may exit, once TMA has read s_c: `read` waits for that alone.
                # Only the thread that issued the store can wait ("cp.async.bulk.wait_group"): the others sync.
                self.tma.commit_group()
                self.tma.wait_group(n=0, read=True)
            self.sync()

        # Tensor memory must be freed before the CTA exits ("tcgen05.dealloc").
        self.tcgen05.dealloc(t_all)
