"""The main loop of one CTA, as SemiAnalysis measured CUTLASS's: one warp loads, one multiplies, nothing is stored."""

import tilus
from tilus import DataType, float32, int32, void_p


class MainLoop(tilus.Script):
    """A tile of A @ B.T, for a whole k and not kept."""

    def __init__(self, dtype: DataType, block_m: int, block_n: int, block_k: int, stages: int):
        super().__init__()
        self.dtype = dtype
        self.block_m = block_m
        self.block_n = block_n
        self.block_k = block_k
        self.stages = stages
        self.parts = max(1, block_k * dtype.nbytes // 128)  # boxes of TMA, of 128 bytes along k
        self.part_k = block_k // self.parts

    def __call__(self, k: int32, a_ptr: void_p, b_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=self.dtype, shape=[self.block_m, k])
        g_b = self.global_view(b_ptr, dtype=self.dtype, shape=[self.block_n, k])
        s_a = self.shared_tensor(dtype=self.dtype, shape=[self.stages, self.parts, self.block_m, self.part_k])
        s_b = self.shared_tensor(dtype=self.dtype, shape=[self.stages, self.parts, self.block_n, self.part_k])
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[self.block_m, self.block_n])
        fulls = self.mbarrier.alloc([1 for _ in range(self.stages)])
        empties = self.mbarrier.alloc([1 for _ in range(self.stages)])
        done = self.mbarrier.alloc(1)
        self.sync()
        with self.single_warp(0):
            stage: int32 = 0
            phase: int32 = 1
            for offset_k in range(0, k, self.block_k):
                self.mbarrier.wait(empties[stage], phase=phase)
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(
                        fulls[stage], transaction_bytes=s_a[stage].nbytes + s_b[stage].nbytes
                    )
                for i in self.range(self.parts, unroll="all"):
                    first_k = offset_k + i * self.part_k
                    self.tma.global_to_shared(src=g_a, dst=s_a[stage, i], offsets=[0, first_k], mbarrier=fulls[stage])
                    self.tma.global_to_shared(src=g_b, dst=s_b[stage, i], offsets=[0, first_k], mbarrier=fulls[stage])
                stage = (stage + 1) % self.stages
                phase ^= stage == 0
        with self.single_warp(1):
            stage: int32 = 0
            phase: int32 = 0
            for offset_k in range(0, k, self.block_k):
                self.mbarrier.wait(fulls[stage], phase=phase)
                for i in self.range(self.parts, unroll="all"):
                    first = (offset_k == 0) & (i == 0)
                    self.tcgen05.mma(s_a[stage, i], s_b[stage, i].transpose(), t_acc, enable_input_d=not first)
                self.tcgen05.commit(mbarrier=empties[stage])
                stage = (stage + 1) % self.stages
                phase ^= stage == 0
            self.tcgen05.commit(mbarrier=done)
            self.mbarrier.wait(done, phase=0)
        self.sync()
        self.tcgen05.dealloc(t_acc)
