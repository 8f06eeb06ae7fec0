"""S0: a product of block-scaled operands. V1 with scales: the tensor core multiplies each block by its scale.

New against V1: each block of 16 or 32 elements along k has a scale. TMA loads the scales along with the operands,
tcgen05.cp copies them to tensor memory, and the MMA reads them there. Nothing overlaps yet.
"""

from math import gcd

from tilus import DataType, bfloat16, float32, int32, uint32, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.host.block_scaled import ScaledMatmulScript
from blackwell_matmul.lang import FORMATS


class BlackwellMatmulS0(ScaledMatmulScript):
    """C[m, n] = (A[m, k] scales) @ (B[n, k] scales).T, of mxfp8, mxfp4 or nvfp4; rows are multiples of 16 bytes."""

    features = ("tma", "scaled")

    def __init__(
        self, dtype: str, block_m: int, block_n: int, block_k: int, e_block_n: int, c_dtype: DataType = bfloat16,
        types: str = "",
    ):  # fmt: skip
        super().__init__()
        self.format = FORMATS[dtype].of(types)
        self.c_dtype = c_dtype
        self.block_m = block_m
        self.block_n = block_n
        self.block_k = block_k
        self.e_block_n = e_block_n
        # A tile of B may begin within an atom of scales, and then reaches into one more.
        self.scaled_n = block_n + 128 - gcd(block_n, 128)

    def __call__(
        self, m: int32, n: int32, k: int32,
        a_ptr: void_p, b_ptr: void_p, scale_a_ptr: void_p, scale_b_ptr: void_p, c_ptr: void_p,
    ):  # fmt: skip
        # As in V1: one CTA for each tile of C, four warps.
        self.attrs.blocks = [cdiv(m, self.block_m), cdiv(n, self.block_n)]
        self.attrs.warps = 4
        offset_m: int32 = self.block_m * self.blockIdx.x
        offset_n: int32 = self.block_n * self.blockIdx.y

        # Two fp4 are in one byte: rows of A and B are counted in bytes. An atom of scales is 512 bytes, two rows of a
        # box of TMA, for 128 rows of A or B and 4 blocks of k.
        of_a, of_b, scale, block = self.format.element, self.format.element_b, self.format.scale, self.format.block
        k_bytes: int32 = k // self.format.per_byte
        block_k_bytes = self.block_k // self.format.per_byte
        atoms = cdiv(self.block_k, 4 * block)
        k_atoms: int32 = cdiv(k, 4 * block)
        g_a = self.global_view(a_ptr, dtype=of_a, shape=[m, k_bytes])
        g_b = self.global_view(b_ptr, dtype=of_b, shape=[n, k_bytes])
        g_scale_a = self.global_view(scale_a_ptr, dtype=scale, shape=[cdiv(m, 128), k_atoms, 2, 256])
        g_scale_b = self.global_view(scale_b_ptr, dtype=scale, shape=[cdiv(n, 128), k_atoms, 2, 256])
        g_c = self.global_view(c_ptr, dtype=self.c_dtype, shape=[m, n])

        # On-chip memory: as in V1, and the scales in both. Tensor memory holds 4 columns for each atom.
        s_a = self.shared_tensor(dtype=of_a, shape=[self.block_m, block_k_bytes])
        s_b = self.shared_tensor(dtype=of_b, shape=[self.block_n, block_k_bytes])
        s_scale_a = self.shared_tensor(dtype=scale, shape=[cdiv(self.block_m, 128), atoms, 2, 256])
        s_scale_b = self.shared_tensor(dtype=scale, shape=[cdiv(self.scaled_n, 128), atoms, 2, 256])
        s_c = self.shared_tensor(dtype=self.c_dtype, shape=[self.block_m, self.e_block_n])
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[self.block_m, self.block_n])
        t_scale_a = self.tcgen05.alloc_scales(scale, rows=self.block_m, blocks=4 * atoms)
        t_scale_b = self.tcgen05.alloc_scales(scale, rows=self.scaled_n, blocks=4 * atoms)
        with self.single_warp():
            self.tcgen05.relinquish_alloc_permit(cta_group=1)

        tma_barrier = self.mbarrier.alloc(counts=1)
        mma_barrier = self.mbarrier.alloc(counts=1)
        phase: uint32 = 0
        self.sync()  # every warp sees the initialised barriers and the address of t_acc

        # Main loop over k. Elements outside of A and B arrive as zeros, which add nothing.
        for offset_k in range(0, k, self.block_k):
            with self.single_warp():
                nbytes = s_a.nbytes + s_b.nbytes + s_scale_a.nbytes + s_scale_b.nbytes
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(tma_barrier, transaction_bytes=nbytes)
                byte: int32 = offset_k // self.format.per_byte
                atom: int32 = offset_k // (4 * block)
                self.tma.global_to_shared(src=g_a, dst=s_a, offsets=[offset_m, byte], mbarrier=tma_barrier)
                self.tma.global_to_shared(src=g_b, dst=s_b, offsets=[offset_n, byte], mbarrier=tma_barrier)
                self.tma.global_to_shared(
                    src=g_scale_a, dst=s_scale_a, offsets=[offset_m // 128, atom, 0, 0], mbarrier=tma_barrier
                )
                self.tma.global_to_shared(
                    src=g_scale_b, dst=s_scale_b, offsets=[offset_n // 128, atom, 0, 0], mbarrier=tma_barrier
                )
                self.mbarrier.wait(tma_barrier, phase=phase)
                # The copies are asynchronous, like the products: of one thread, they come before its products
                # ("tcgen05 Memory Consistency Model"), and the same commit covers both.
                self.tcgen05.copy_scales(s_scale_a, t_scale_a)
                self.tcgen05.copy_scales(s_scale_b, t_scale_b)
                self.tcgen05.mma_scaled(
                    s_a, s_b.transpose(), t_acc, t_scale_a, t_scale_b,
                    block=block, enable_input_d=offset_k != 0, first_row=offset_n % 128,
                )  # fmt: skip
                self.tcgen05.commit(mbarrier=mma_barrier)
            # Every thread waits, as in V1: the first warp overwrites the operands and their scales next.
            self.mbarrier.wait(mma_barrier, phase=phase)
            self.sync()
            phase ^= 1

        # Epilogue, as in V1: tensor memory -> registers -> shared memory -> global memory, in strips of columns.
        for e_offset_n in range(0, self.block_n, self.e_block_n):
            t_strip = self.tcgen05.slice(t_acc, [0, e_offset_n], [0, 1], [self.block_m, self.e_block_n])
            r_strip = self.tcgen05.load(t_strip)
            self.tcgen05.wait_load()
            self.store_shared(s_c, r_strip.to(self.c_dtype))
            self.fence.proxy_async(space="shared")
            self.sync()
            with self.single_warp():
                self.tma.shared_to_global(s_c, g_c, offsets=[offset_m, offset_n + e_offset_n])
                self.tma.commit_group()
                self.tma.wait_group(n=0, read=True)
            self.sync()

        self.tcgen05.dealloc(t_scale_b)
        self.tcgen05.dealloc(t_scale_a)
        self.tcgen05.dealloc(t_acc)
