"""Small kernels whose time is known on paper."""

import tilus
from tilus import float16, float32, int32, void_p


class TwoMultiply(tilus.Script):
    """A CTA of one product, which keeps the right to allocate or gives it up."""

    def __init__(self, gives_up: bool, products: int):
        super().__init__()
        self.gives_up = gives_up
        self.products = products

    def __call__(self, ctas: int, a_ptr: void_p, b_ptr: void_p):
        self.attrs.blocks = ctas
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=float16, shape=[128, 64])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[256, 64])
        s_a = self.shared_tensor(dtype=float16, shape=[128, 64])
        s_b = self.shared_tensor(dtype=float16, shape=[256, 64])
        t_acc = self.tcgen05.alloc(dtype=float32, shape=[128, 256])
        if self.gives_up:
            with self.single_warp():
                self.tcgen05.relinquish_alloc_permit(cta_group=1)
        full = self.mbarrier.alloc(1)
        done = self.mbarrier.alloc(1)
        self.sync()
        with self.single_warp(1):
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=s_a.nbytes + s_b.nbytes)
            self.tma.global_to_shared(src=g_a, dst=s_a, offsets=[0, 0], mbarrier=full)
            self.tma.global_to_shared(src=g_b, dst=s_b, offsets=[0, 0], mbarrier=full)
            self.mbarrier.wait(full, phase=0)
            phase: int32 = 0
            for i in range(self.products):
                self.tcgen05.mma(s_a, s_b.transpose(), t_acc, enable_input_d=i != 0)
                self.tcgen05.commit(mbarrier=done)
                self.mbarrier.wait(done, phase=phase)
                phase ^= 1
        self.sync()
        self.tcgen05.dealloc(t_acc)


class Endless(tilus.Script):
    def __call__(self, m: int32, n: int, k: int, a_ptr: void_p, b_ptr: void_p, c_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        turns: int32 = 0
        while turns < 1:
            turns = turns * 1
