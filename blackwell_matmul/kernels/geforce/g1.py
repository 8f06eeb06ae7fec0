"""G1: a product of block-scaled operands, for GeForce Blackwell and GB10. G0 with scales, by which mma.sync multiplies.

New against G0: each block of 16 or 32 elements along k has a scale. `ScaleAtoms` loads the scales of each stage by TMA.
Each lane then loads four scales of a row at a time into a register, which mma.sync reads.
"""

from tilus import DataType, bfloat16, float32, int32, uint32, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.host.block_scaled import ScaledMatmulScript
from blackwell_matmul.kernels.parts.scale_atoms import ScaleAtoms
from blackwell_matmul.lang import FORMATS, BlockScaledWarps
from blackwell_matmul.scheduling.mma_sync_fragments import accumulator_layout, strip_layout


class GeforceMatmulG1(ScaledMatmulScript):
    """C[m, n] = (A[m, k] scales) @ (B[n, k] scales).T, of mxfp8, mxfp4 or nvfp4; rows are multiples of 16 bytes."""

    target = "sm_120a"
    mma = "mma.sync"
    features = ("tma", "ring", "scaled")
    mma_sync = BlockScaledWarps()

    def __init__(
        self, dtype: str, block_m: int, block_n: int, block_k: int, e_block_n: int, stages: int,
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
        self.acc_layout = accumulator_layout(block_m, block_n, e_block_n)
        self.strip_layout = strip_layout(block_m, block_n, e_block_n)

    def __call__(
        self, m: int32, n: int, k: int,
        a_ptr: void_p, b_ptr: void_p, scale_a_ptr: void_p, scale_b_ptr: void_p, c_ptr: void_p,
    ):  # fmt: skip
        # The grid: one CTA for each tile of C. Eight warps share it, and have registers for their parts of A and B.
        self.attrs.blocks = [cdiv(m, self.block_m), cdiv(n, self.block_n)]
        self.attrs.warps = 8
        offset_m: int32 = self.block_m * self.blockIdx.x
        offset_n: int32 = self.block_n * self.blockIdx.y

        # Two fp4 are in one byte: rows of A and B are counted in bytes.
        of_a, of_b, per_byte = self.format.element, self.format.element_b, self.format.per_byte
        g_a = self.global_view(a_ptr, dtype=of_a, shape=[m, k // per_byte])
        g_b = self.global_view(b_ptr, dtype=of_b, shape=[n, k // per_byte])
        g_c = self.global_view(c_ptr, dtype=self.c_dtype, shape=[m, n])

        # On-chip memory: shared memory for `stages` k-tiles of A and B and their scales, and a strip of C; registers
        # for the accumulator. Which lane holds which element follows from the layout of the accumulator.
        s_a = self.shared_tensor(dtype=of_a, shape=[self.stages, self.block_m, self.block_k // per_byte])
        s_b = self.shared_tensor(dtype=of_b, shape=[self.stages, self.block_n, self.block_k // per_byte])
        scales = ScaleAtoms(
            self.dtype, m, n, k, scale_a_ptr, scale_b_ptr, self.block_m, self.block_n, self.block_k, self.stages
        )
        s_c = self.shared_tensor(dtype=self.c_dtype, shape=[self.block_m, self.e_block_n])
        r_acc = self.register_tensor(dtype=float32, shape=[self.block_m, self.block_n], init=0.0)
        self.annotate_layout(r_acc, self.acc_layout)

        # Barriers: one arrival and all the bytes that it announces complete a phase. A wait names the parity of the
        # phase it is for.
        tma_barriers = self.mbarrier.alloc(counts=[1 for _ in range(self.stages)])
        tma_phase: uint32 = 0
        self.sync()  # every warp sees the initialised barriers

        # Prologue: fill the ring, or as much of it as there are k-tiles. A load beyond them would outlive the CTA.
        tile_bytes = (self.block_m + self.block_n) * self.block_k // per_byte + scales.nbytes
        with self.single_warp():
            for i in range(min(self.stages, cdiv(k, self.block_k))):
                # Announce the bytes once: from one thread, not from 32. TMA counts whole tiles, the zeros included.
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(tma_barriers[i], transaction_bytes=tile_bytes)
                first_k = i * self.block_k
                byte = first_k // per_byte
                self.tma.global_to_shared(src=g_a, dst=s_a[i], offsets=[offset_m, byte], mbarrier=tma_barriers[i])
                self.tma.global_to_shared(src=g_b, dst=s_b[i], offsets=[offset_n, byte], mbarrier=tma_barriers[i])
                scales.load(i, offset_m, offset_n, first_k, tma_barriers[i])

        # Main loop over k. What lies outside of A and B arrives as zeros, which add nothing.
        stage: int32 = 0
        for offset_k in range(0, k, self.block_k):
            tma_barrier = tma_barriers[stage]
            # The wait makes what TMA wrote visible to ordinary loads as well ("Async proxy").
            self.mbarrier.wait(tma_barrier, phase=tma_phase)
            r_a = self.load_shared(s_a[stage])
            r_b = self.load_shared(s_b[stage])
            r_scale_a = self.mma_sync.load_scales(scales.s_a[stage], rows=self.block_m)
            r_scale_b = self.mma_sync.load_scales(scales.s_b[stage], rows=self.block_n, first_row=offset_n % 128)
            r_acc = self.mma_sync.dot_scaled(r_a, r_b.transpose(), r_acc, r_scale_a, r_scale_b, block=self.format.block)
            # Read through the generic proxy, overwritten next through the async proxy: each reader fences, then all
            # meet.
            self.fence.proxy_async(space="shared")
            self.sync()
            # Refill the stage for the k-tile one lap ahead, if there is one: each load has a wait that expects it.
            next_k: int32 = offset_k + self.stages * self.block_k
            if next_k < k:
                with self.single_warp():
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(tma_barrier, transaction_bytes=tile_bytes)
                    byte: int32 = next_k // per_byte
                    self.tma.global_to_shared(src=g_a, dst=s_a[stage], offsets=[offset_m, byte], mbarrier=tma_barrier)
                    self.tma.global_to_shared(src=g_b, dst=s_b[stage], offsets=[offset_n, byte], mbarrier=tma_barrier)
                    scales.load(stage, offset_m, offset_n, next_k, tma_barrier)
            stage = (stage + 1) % self.stages
            tma_phase ^= stage == 0  # each lap around the ring is one phase of every TMA barrier

        # Epilogue: registers -> shared memory -> global memory, one strip of columns at a time.
        r_c = r_acc.to(self.c_dtype)
        self.annotate_layout(r_c, self.acc_layout)
        r_strips = self.view(r_c, layout=self.strip_layout)
        for strip in self.range(0, self.block_n // self.e_block_n, 1, unroll="all"):
            # Written through the generic proxy, read by TMA through the async proxy: each writer fences, then all meet.
            self.store_shared(s_c, r_strips[strip])
            self.fence.proxy_async(space="shared")
            self.sync()
            with self.single_warp():
                # What lies outside of C is not stored.
                self.tma.shared_to_global(s_c, g_c, offsets=[offset_m, offset_n + strip * self.e_block_n])
                # Shared memory may change, and the CTA may exit, once TMA has read s_c: `read` waits for that alone.
                # Only the thread that issued the store waits ("cp.async.bulk.wait_group"): the sync tells the others.
                self.tma.commit_group()
                self.tma.wait_group(n=0, read=True)
            self.sync()
