"""V1: the Tensor Memory Accelerator (TMA) moves the tiles, in both directions.

New against V0: one thread requests a whole tile, and an mbarrier counts its bytes as they arrive. The epilogue writes
strips of columns to shared memory, and TMA stores them to global memory. Nothing overlaps yet.
"""

from tilus import DataType, float32, int32, uint32, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.host.matmul import MatmulScript
from blackwell_matmul.scheduling.wgmma_fragments import MMA_ROWS, accumulator_layout, strip_layout


class HopperMatmulV1(MatmulScript):
    """C[m, n] = A[m, k] @ B[n, k].T; rows of A, B and C are multiples of 16 bytes, as TMA needs them."""

    target = "sm_90a"
    mma = "wgmma"
    features = ("tma",)

    def __init__(
        self,
        dtype: DataType,
        block_m: int,
        block_n: int,
        block_k: int,
        e_block_n: int,
    ):
        super().__init__()
        self.dtype = dtype
        self.block_m = block_m
        self.block_n = block_n
        self.block_k = block_k
        self.e_block_n = e_block_n
        self.mma_tiles = block_m // MMA_ROWS
        self.strips = block_n // e_block_n
        self.acc_layout = accumulator_layout(block_m, block_n)
        self.strip_layout = strip_layout(block_m, block_n, e_block_n)

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        # The grid: one CTA for each tile of C. Four warps make a warpgroup, which wgmma needs.
        self.attrs.blocks = [cdiv(m, self.block_m), cdiv(n, self.block_n)]
        self.attrs.warps = 4
        offset_m: int32 = self.block_m * self.blockIdx.x
        offset_n: int32 = self.block_n * self.blockIdx.y

        g_a = self.global_view(a_ptr, dtype=self.dtype, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=self.dtype, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=self.dtype, shape=[m, n])

        # On-chip memory: shared memory for a k-tile of A and B and a strip of C, registers for the accumulator.
        s_a = self.shared_tensor(dtype=self.dtype, shape=[self.block_m, self.block_k])
        s_b = self.shared_tensor(dtype=self.dtype, shape=[self.block_n, self.block_k])
        s_c = self.shared_tensor(dtype=self.dtype, shape=[self.mma_tiles, MMA_ROWS, self.e_block_n])
        r_acc = self.register_tensor(dtype=float32, shape=[self.block_m, self.block_n], init=0.0)

        # Barriers: one arrival and all the bytes that it announces complete a phase. A wait names the parity of the
        # phase it is for.
        full = self.mbarrier.alloc(counts=1)
        phase: uint32 = 0
        self.sync()  # every warp sees the initialised barrier

        # Main loop over k. Elements outside of A and B arrive as zeros, which add nothing.
        for offset_k in range(0, k, self.block_k):
            with self.single_warp():
                # Announce the bytes once: from one thread, not from 32. TMA counts whole tiles, the zeros included.
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=s_a.nbytes + s_b.nbytes)
                self.tma.global_to_shared(src=g_a, dst=s_a, offsets=[offset_m, offset_k], mbarrier=full)
                self.tma.global_to_shared(src=g_b, dst=s_b, offsets=[offset_n, offset_k], mbarrier=full)
            # TMA writes and the tensor core reads through the async proxy: a wait is enough, no fence.
            self.mbarrier.wait(full, phase=phase)
            # wgmma is asynchronous: the fence orders it after earlier accesses to its registers ("wgmma.fence"), and no
            # thread may touch the accumulator before the wait ("wgmma.wait_group").
            self.wgmma.fence()
            self.wgmma.mma(s_a, s_b.transpose(), r_acc)
            self.wgmma.commit_group()
            self.wgmma.wait_group(0)
            self.sync()  # every warp has read s_a and s_b, which are overwritten next
            phase ^= 1

        # Epilogue: registers -> shared memory -> global memory, one strip of columns at a time.
        self.annotate_layout(r_acc, self.acc_layout)
        r_strips = self.view(r_acc, layout=self.strip_layout)
        for strip in self.range(0, self.strips, 1, unroll="all"):
            # Threads write through the generic proxy, TMA reads through the async proxy: each writer fences, then sync.
            for which in self.range(0, self.mma_tiles, 1, unroll="all"):
                self.store_shared(s_c[which], r_strips[which, strip].to(self.dtype))
            self.fence.proxy_async(space="shared")
            self.sync()
            with self.single_warp():
                # Elements outside of C are not stored.
                for which in range(self.mma_tiles):
                    offsets = [offset_m + which * MMA_ROWS, offset_n + strip * self.e_block_n]
                    self.tma.shared_to_global(s_c[which], g_c, offsets=offsets)
                # Shared memory may change, and the CTA may exit, once TMA has read s_c: `read` waits for that alone.
                # Only the thread that issued the store can wait ("cp.async.bulk.wait_group"): the others sync.
                self.tma.commit_group()
                self.tma.wait_group(n=0, read=True)
            self.sync()
