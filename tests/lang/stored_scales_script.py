"""A product whose scales of A come to tensor memory by stores of registers, not by a copy.

Its annotations are read by tilus: no `from __future__ import annotations`.
"""

from tilus import float8_e4m3, float32, void_p

from blackwell_matmul.lang import BlockScaled, float8_e8m0
from blackwell_matmul.runtime.script import Script


class StoredScales(Script):
    """C[128, 128] = (A scales) @ (B scales).T of mxfp8, k = 128. words: A's scales as 128 lanes x 4 columns have them.

    warps: those that store, each to its own 32 lanes.
    """

    tcgen05 = BlockScaled()

    def __init__(self, warps: int = 4):
        super().__init__()
        self.stored = warps

    def __call__(self, words_ptr: void_p, a_ptr: void_p, b_ptr: void_p, scale_b_ptr: void_p, c_ptr: void_p):
        self.attrs.blocks = [1]
        self.attrs.warps = 4
        g_words = self.global_view(words_ptr, dtype=float32, shape=[128, 4])
        g_a = self.global_view(a_ptr, dtype=float8_e4m3, shape=[128, 128])
        g_b = self.global_view(b_ptr, dtype=float8_e4m3, shape=[128, 128])
        g_scale_b = self.global_view(scale_b_ptr, dtype=float8_e8m0, shape=[1, 1, 2, 256])
        g_c = self.global_view(c_ptr, dtype=float32, shape=[128, 128])
        s_a = self.shared_tensor(dtype=float8_e4m3, shape=[128, 128])
        s_b = self.shared_tensor(dtype=float8_e4m3, shape=[128, 128])
        s_scale_b = self.shared_tensor(dtype=float8_e8m0, shape=[1, 1, 2, 256])
        t_all = self.tcgen05.alloc(dtype=float32, shape=[128, 256])
        t_acc = self.tcgen05.slice(t_all, [0, 0], [0, 1], [128, 128])
        t_a = self.tcgen05.slice(t_all, [0, 128], [0, 1], [128, 4])
        t_b = self.tcgen05.slice(t_all, [0, 132], [0, 1], [128, 4])
        t_scale_a = self.tcgen05.view_scales(t_a, float8_e8m0, rows=128, blocks=4)
        t_scale_b = self.tcgen05.view_scales(t_b, float8_e8m0, rows=128, blocks=4)
        loaded = self.mbarrier.alloc(counts=1)
        done = self.mbarrier.alloc(counts=1)
        self.sync()
        with self.warp_group(0, self.stored):
            lanes = 32 * self.stored
            t_lanes = self.tcgen05.slice(t_a, [0, 0], [0, 1], [lanes, 4])
            self.tcgen05.store(t_lanes, self.load_global(g_words, offsets=[0, 0], shape=[lanes, 4]))
            self.tcgen05.wait_store()
        self.sync()
        with self.single_warp():
            nbytes = s_a.nbytes + s_b.nbytes + s_scale_b.nbytes
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(loaded, transaction_bytes=nbytes)
            self.tma.global_to_shared(src=g_a, dst=s_a, offsets=[0, 0], mbarrier=loaded)
            self.tma.global_to_shared(src=g_b, dst=s_b, offsets=[0, 0], mbarrier=loaded)
            self.tma.global_to_shared(src=g_scale_b, dst=s_scale_b, offsets=[0, 0, 0, 0], mbarrier=loaded)
            self.mbarrier.wait(loaded, phase=0)
            self.tcgen05.copy_scales(s_scale_b, t_scale_b)
            self.tcgen05.mma_scaled(s_a, s_b.transpose(), t_acc, t_scale_a, t_scale_b, block=32, enable_input_d=False)
            self.tcgen05.commit(done)
        self.mbarrier.wait(done, phase=0)
        r_c = self.tcgen05.load(t_acc)
        self.tcgen05.wait_load()
        self.store_global(g_c, r_c, offsets=[0, 0])
        self.sync()
        self.tcgen05.dealloc(t_all)
