"""V0: one warpgroup computes one tile of C, step by step.

Each k-tile of A and B is copied from global to shared memory (cp.async). wgmma multiplies the k-tile and adds to an
accumulator in registers, and the next k-tile waits until wgmma is complete. At the end every thread stores its elements
of C. Section names in the comments are those of the PTX ISA.
"""

from tilus import DataType, float32, int32, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.host.matmul import MatmulScript


class HopperMatmulV0(MatmulScript):
    """C[m, n] = A[m, k] @ B[n, k].T; k is even, since cp.async copies no less than 4 bytes."""

    target = "sm_90a"
    mma = "wgmma"
    features = ()

    def __init__(
        self,
        dtype: DataType,
        block_m: int,
        block_n: int,
        block_k: int,
    ):
        super().__init__()
        self.dtype = dtype
        self.block_m = block_m
        self.block_n = block_n
        self.block_k = block_k

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        # The grid: one CTA for each tile of C. Four warps make a warpgroup, which wgmma needs.
        self.attrs.blocks = [cdiv(m, self.block_m), cdiv(n, self.block_n)]
        self.attrs.warps = 4
        offset_m: int32 = self.block_m * self.blockIdx.x
        offset_n: int32 = self.block_n * self.blockIdx.y

        g_a = self.global_view(a_ptr, dtype=self.dtype, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=self.dtype, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=self.dtype, shape=[m, n])

        # On-chip memory: shared memory for a k-tile of A and B, registers for the accumulator.
        s_a = self.shared_tensor(dtype=self.dtype, shape=[self.block_m, self.block_k])
        s_b = self.shared_tensor(dtype=self.dtype, shape=[self.block_n, self.block_k])
        r_acc = self.register_tensor(dtype=float32, shape=[self.block_m, self.block_n], init=0.0)

        # Main loop over k. Elements outside of A and B arrive as zeros, which add nothing.
        for offset_k in range(0, k, self.block_k):
            self.copy_async(src=g_a, dst=s_a, offsets=[offset_m, offset_k])
            self.copy_async(src=g_b, dst=s_b, offsets=[offset_n, offset_k])
            # Each thread waits for its own copies. They were written through the generic proxy and the tensor core
            # reads through the async proxy, so each writer fences ("Async proxy") before the sync.
            self.copy_async_wait_all()
            self.fence.proxy_async(space="shared")
            self.sync()
            # wgmma is asynchronous: the fence orders it after earlier accesses to its registers ("wgmma.fence"), and no
            # thread may touch the accumulator before the wait ("wgmma.wait_group").
            self.wgmma.fence()
            self.wgmma.mma(s_a, s_b.transpose(), r_acc)
            self.wgmma.commit_group()
            self.wgmma.wait_group(0)
            self.sync()  # every warp has read s_a and s_b, which are overwritten next

        # Epilogue: registers -> global memory. Elements outside of C are not stored.
        self.store_global(g_c, r_acc.to(self.dtype), offsets=[offset_m, offset_n])
