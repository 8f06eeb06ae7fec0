"""C = A @ B.T for A and B that are declared as memory has them, by tcgen05 or wgmma."""

from tilus import float16, float32, int32, uint32, void_p
from tilus.utils import cdiv

from blackwell_matmul import Script


class Product(Script):
    def __init__(self, block_n=128, a_k=True, b_k=True, tcgen05=True):
        super().__init__()
        self.block_m, self.block_n, self.block_k = 128, block_n, 64
        self.a_k, self.b_k, self.tcgen05_mma = a_k, b_k, tcgen05

    def __call__(self, m: int32, n: int, k: int, a_ptr: ~float16, b_ptr: ~float16, c_ptr: ~float16):
        self.attrs.blocks = [cdiv(m, self.block_m), cdiv(n, self.block_n)]
        self.attrs.warps = 4
        row: int32 = self.block_m * self.blockIdx.x
        column: int32 = self.block_n * self.blockIdx.y
        block_a = [2, self.block_m, self.block_k] if self.a_k else [2, self.block_k, self.block_m]
        block_b = [2, self.block_n, self.block_k] if self.b_k else [2, self.block_k, self.block_n]
        g_a = self.global_view(a_ptr, dtype=float16, shape=[m, k] if self.a_k else [k, m])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[n, k] if self.b_k else [k, n])
        g_c = self.global_view(c_ptr, dtype=float16, shape=[m, n])
        s_a = self.shared_tensor(dtype=float16, shape=block_a)
        s_b = self.shared_tensor(dtype=float16, shape=block_b)
        barriers = self.mbarrier.alloc(counts=[1, 1])
        if self.tcgen05_mma:
            t_acc = self.tcgen05.alloc(dtype=float32, shape=[self.block_m, self.block_n])
        else:
            r_acc = self.register_tensor(dtype=float32, shape=[self.block_m, self.block_n], init=0.0)
        self.sync()
        phase: uint32 = 0
        for offset_k in range(0, k, self.block_k):
            with self.single_warp():
                with self.single_thread():
                    count = (self.block_m + self.block_n) * self.block_k * 2
                    self.mbarrier.arrive_and_expect_tx(barriers[0], transaction_bytes=count)
                self.tma.global_to_shared(
                    src=g_a, dst=s_a[1], offsets=[row, offset_k] if self.a_k else [offset_k, row], mbarrier=barriers[0]
                )
                self.tma.global_to_shared(
                    src=g_b,
                    dst=s_b[1],
                    offsets=[column, offset_k] if self.b_k else [offset_k, column],
                    mbarrier=barriers[0],
                )
            self.mbarrier.wait(barriers[0], phase=phase)
            t_a = s_a[1] if self.a_k else s_a[1].transpose()
            t_b = s_b[1].transpose() if self.b_k else s_b[1]
            if self.tcgen05_mma:
                with self.single_warp():
                    self.tcgen05.mma(t_a, t_b, t_acc, enable_input_d=offset_k != 0)
                    self.tcgen05.commit(mbarrier=barriers[1])
                self.mbarrier.wait(barriers[1], phase=phase)
            else:
                self.wgmma.fence()
                self.wgmma.mma(t_a, t_b, r_acc)
                self.wgmma.commit_group()
                self.wgmma.wait_group(0)
            self.sync()
            phase ^= 1
        if self.tcgen05_mma:
            r_sum = self.tcgen05.load(t_acc)
            self.tcgen05.wait_load()
            self.store_global(g_c, r_sum.to(float16), offsets=[row, column])
            self.sync()
            self.tcgen05.dealloc(t_acc)
        else:
            self.store_global(g_c, r_acc.to(float16), offsets=[row, column])


class NarrowRow(Script):
    """Y = X, 16 numbers by one TMA load."""

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        s_x = self.shared_tensor(dtype=int32, shape=[16])
        g_x = self.global_view(x_ptr, dtype=int32, shape=[16])
        arrived = self.mbarrier.alloc(counts=1)
        self.sync()
        with self.single_warp():
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(arrived, transaction_bytes=s_x.nbytes)
            self.tma.global_to_shared(src=g_x, dst=s_x, offsets=[0], mbarrier=arrived)
        self.mbarrier.wait(arrived, phase=0)
        g_y = self.global_view(y_ptr, dtype=int32, shape=[16])
        self.store_global(g_y, self.load_shared(s_x), offsets=[0])
