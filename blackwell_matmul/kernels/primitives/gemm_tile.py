"""C = A @ B.T, a tile for each CTA: TMA loads the operands, mma.sync multiplies, TMA stores the tile, in sequence."""

from tilus import DataType, float32, int32, uint32, void_p
from tilus.utils import cdiv

from blackwell_matmul.kernels.host.matmul import MatmulScript
from blackwell_matmul.kernels.primitives.tensors import check_rows, element_type
from blackwell_matmul.runtime.script import Script


class GemmTile(Script):
    """C[m, n] = A[m, k] @ B[n, k].T in fp16 or bf16; rows of A, B and C are multiples of 16 bytes.

    The accumulator is in registers. Without wgmma and tensor memory, the kernel runs on Hopper and on Blackwell.
    """

    knobs = ("block_m", "block_n", "block_k")

    def __init__(self, dtype: DataType, block_m: int, block_n: int, block_k: int):
        super().__init__()
        self.dtype = dtype
        self.block_m = block_m
        self.block_n = block_n
        self.block_k = block_k

    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        self.attrs.blocks = [cdiv(m, self.block_m), cdiv(n, self.block_n)]
        self.attrs.warps = 4
        offset_m: int32 = self.block_m * self.blockIdx.x
        offset_n: int32 = self.block_n * self.blockIdx.y
        g_a = self.global_view(a_ptr, dtype=self.dtype, shape=[m, k])
        g_b = self.global_view(b_ptr, dtype=self.dtype, shape=[n, k])
        g_c = self.global_view(c_ptr, dtype=self.dtype, shape=[m, n])
        s_a = self.shared_tensor(dtype=self.dtype, shape=[self.block_m, self.block_k])
        s_b = self.shared_tensor(dtype=self.dtype, shape=[self.block_n, self.block_k])
        s_c = self.shared_tensor(dtype=self.dtype, shape=[self.block_m, self.block_n])
        acc = self.register_tensor(dtype=float32, shape=[self.block_m, self.block_n], init=0.0)
        arrived = self.mbarrier.alloc(counts=1)
        phase: uint32 = 0
        self.sync()  # every warp sees the initialised barrier

        # Elements outside of A and B arrive as zeros, which add nothing.
        for offset_k in range(0, k, self.block_k):
            with self.single_warp():
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(arrived, transaction_bytes=s_a.nbytes + s_b.nbytes)
                self.tma.global_to_shared(src=g_a, dst=s_a, offsets=[offset_m, offset_k], mbarrier=arrived)
                self.tma.global_to_shared(src=g_b, dst=s_b, offsets=[offset_n, offset_k], mbarrier=arrived)
            self.mbarrier.wait(arrived, phase=phase)
            acc = self.dot(self.load_shared(s_a), self.load_shared(s_b).transpose(), acc)
            # Threads read through the generic proxy, TMA writes through the async proxy: each reader fences, then sync.
            self.fence.proxy_async(space="shared")
            self.sync()
            phase ^= 1

        # Threads write the tile, TMA reads it: each writer fences, then sync.
        self.store_shared(s_c, acc.to(self.dtype))
        self.fence.proxy_async(space="shared")
        self.sync()
        with self.single_warp():
            self.tma.shared_to_global(s_c, g_c, offsets=[offset_m, offset_n])
            self.tma.commit_group()
            self.tma.wait_group(n=0, read=True)  # shared memory must last until TMA has read it

    @classmethod
    def check_arguments(cls, m, n, k, a, b, c):
        """Raise InputError for arguments that do not fit, or that no tensor map can describe."""
        MatmulScript.check_arguments(m, n, k, a, b, c)
        check_rows({"a": a, "b": b, "c": c})

    @classmethod
    def complete(cls, pins, args, target):
        """Return the arguments of `__init__` for these tensors."""
        cls.check_arguments(*args)
        return {"dtype": element_type(args[3]), "block_m": 64, "block_n": 64, "block_k": 32, **pins}
