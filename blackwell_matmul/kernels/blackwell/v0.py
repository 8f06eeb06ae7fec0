"""V0: one CTA computes one tile of C, step by step.

Each k-tile of A and B is copied from global to shared memory (cp.async). The tensor core multiplies the k-tile and adds
to an accumulator in tensor memory, and the next k-tile waits until the MMA is complete. At the end every warp loads its
rows of the accumulator into registers and stores them. Section names in the comments are those of the PTX ISA.
"""

from tilus import DataType, float32, int32, uint32, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.host.matmul import MatmulScript


class BlackwellMatmulV0(MatmulScript):
    """C[m, n] = A[m, k] @ B[n, k].T; k is even, since cp.async copies no less than 4 bytes."""

    features = ()

    def __init__(self, dtype: DataType, block_m: int, block_n: int, block_k: int):
        super().__init__()
        self.dtype = dtype
        self.c_dtype = self.type_of_c(dtype)
        self.block_m = block_m
        self.block_n = block_n
        self.block_k = block_k

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        # The grid: one CTA for each tile of C. Tensor memory has 128 lanes, a row of the tile in each, and a warp
        # can load 32 of them: hence four warps.
        self.attrs.blocks = [cdiv(m, self.block_m), cdiv(n, self.block_n)]
        self.attrs.warps = 4
        offset_m: int32 = self.block_m * self.blockIdx.x
        offset_n: int32 = self.block_n * self.blockIdx.y

        g_a = self.global_view(a_ptr, dtype=self.dtype, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=self.dtype, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=self.c_dtype, shape=[m, n])

        # On-chip memory: shared memory for a k-tile of A and B, tensor memory for the accumulator.
        s_a = self.shared_tensor(dtype=self.dtype, shape=[self.block_m, self.block_k])
        s_b = self.shared_tensor(dtype=self.dtype, shape=[self.block_n, self.block_k])
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[self.block_m, self.block_n])
        # One CTA of an SM at a time may allocate ("tcgen05.alloc"): give up the permit, so that another one can.
        with self.single_warp():
            self.tcgen05.relinquish_alloc_permit(cta_group=1)

        # Barriers: one arrival, by tcgen05.commit, completes a phase. A wait names the parity of the phase it is for.
        mma_barrier = self.mbarrier.alloc(counts=1)
        phase: uint32 = 0
        self.sync()  # every warp sees the initialised barrier and the address of t_acc

        # Main loop over k. Elements outside of A and B arrive as zeros, which add nothing.
        for offset_k in range(0, k, self.block_k):
            self.copy_async(src=g_a, dst=s_a, offsets=[offset_m, offset_k])
            self.copy_async(src=g_b, dst=s_b, offsets=[offset_n, offset_k])
            # Each thread waits for its own copies. They were written through the generic proxy and the tensor core
            # reads through the async proxy, so each writer fences ("Async proxy") before the sync.
            self.copy_async_wait_all()
            self.fence.proxy_async(space="shared")
            self.sync()
            with self.single_warp():
                # The first k-tile overwrites the old contents of tensor memory. The MMA is asynchronous: commit makes
                # the barrier track the MMAs of this thread so far ("tcgen05.commit").
                self.tcgen05.mma(s_a, s_b.transpose(), t_acc, enable_input_d=offset_k != 0)
                self.tcgen05.commit(mbarrier=mma_barrier)
            # Every thread waits: each overwrites s_a and s_b next, or reads the accumulator after the last k-tile.
            # None can miss a phase, because the next MMA needs all threads at the sync above.
            self.mbarrier.wait(mma_barrier, phase=phase)
            phase ^= 1

        # Epilogue: tensor memory -> registers -> global memory. Loads are asynchronous too: the registers hold nothing
        # before the wait ("tcgen05.wait"). Elements outside of C are not stored.
        r_acc = self.tcgen05.load(t_acc)
        self.tcgen05.wait_load()
        self.store_global(g_c, r_acc.to(self.c_dtype), offsets=[offset_m, offset_n])
        self.sync()  # all warps have loaded

        # Tensor memory must be freed before the CTA exits ("tcgen05.dealloc").
        self.tcgen05.dealloc(t_acc)
