"""Small scripts for the tests of `check`."""

import tilus
from tilus import float32, uint32, void_p


class AddOne(tilus.Script):
    """x += 1, in place; two CTAs."""

    def __call__(self, x_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.warps = 2
        g_x = self.global_view(x_ptr, dtype=float32, shape=[64, 64])
        x = self.load_global(g_x, offsets=[self.blockIdx.x * 32, 0], shape=[32, 64])
        self.store_global(g_x, x + 1.0, offsets=[self.blockIdx.x * 32, 0])


class Prints(tilus.Script):
    def __call__(self, x_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float32, shape=[32])
        self.printf("hello\n")
        self.store_global(g_x, self.register_tensor(dtype=float32, shape=[32], init=0.0), offsets=[0])


class Circle(tilus.Script):
    """Three warps, each of which waits for the one before it: nobody starts."""

    def __call__(self, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_y = self.global_view(y_ptr, dtype=float32, shape=[32])
        ring = self.mbarrier.alloc(counts=[32, 32, 32])
        phase: uint32 = 0
        self.sync()
        with self.single_warp(0):
            self.mbarrier.wait(ring[0], phase=phase)
            self.mbarrier.arrive(ring[1])
        with self.single_warp(1):
            self.mbarrier.wait(ring[1], phase=phase)
            self.mbarrier.arrive(ring[2])
        with self.single_warp(2):
            self.mbarrier.wait(ring[2], phase=phase)
            self.mbarrier.arrive(ring[0])
        with self.single_warp(3):
            self.store_global(g_y, self.register_tensor(dtype=float32, shape=[32], init=0.0), offsets=[0])


class Unused(tilus.Script):
    """A copy to shared memory that is still in flight when the CTA exits."""

    def __call__(self, x_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float32, shape=[32, 64])
        s_x = self.shared_tensor(dtype=float32, shape=[32, 64])
        self.copy_async(g_x, s_x, offsets=[0, 0])
        self.copy_async_commit_group()
