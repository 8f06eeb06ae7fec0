"""Scripts whose CTAs or warps take turns."""

import tilus
from tilus import float32, int32


class InTurn(tilus.Script):
    """Each of three CTAs adds its row to y, in the order of their index. fault: what is left out or wrong."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault

    def __call__(self, x_ptr: ~float32, semaphore: ~int32, y_ptr: ~float32):
        self.attrs.blocks = 3
        self.attrs.warps = 4
        part: int32 = self.blockIdx.x
        g_x = self.global_view(x_ptr, dtype=float32, shape=[3, 4096])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[4096])
        r = self.load_global(g_x, offsets=[part, 0], shape=[4096], dims=[1])
        if self.fault == "one warp locks":
            with self.single_warp(0):
                self.lock_semaphore(semaphore, value=part)
        elif self.fault != "nobody locks":
            self.lock_semaphore(semaphore, value=part)
        total = r + self.load_global(g_y, offsets=[0], shape=[4096])
        if self.fault == "releases before it stores":
            self.release_semaphore(semaphore, value=part + 1)
        self.store_global(g_y, total, offsets=[0])
        if self.fault != "no sync before the release":
            self.sync()
        if self.fault != "releases before it stores":
            self.release_semaphore(semaphore, value=part + 1)


class PartsInTurn(tilus.Script):
    """Each of three CTAs stores its row and releases; the last one adds the rows up. fault: what is wrong."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault

    def __call__(self, x_ptr: ~float32, semaphore: ~int32, y_ptr: ~float32):
        self.attrs.blocks = 3
        self.attrs.warps = 4
        part: int32 = self.blockIdx.x
        g_x = self.global_view(x_ptr, dtype=float32, shape=[3, 4096])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[4096])
        g_parts = self.global_tensor(dtype=float32, shape=[3, 4096], requires_clean=False)
        r = self.load_global(g_x, offsets=[part, 0], shape=[4096], dims=[1])
        if part < 2:
            if self.fault != "releases before it stores":
                self.store_global(g_parts, r, offsets=[part, 0], dims=[1])
            if part > 0:
                self.lock_semaphore(semaphore, value=part)
            if self.fault != "no sync before the release":
                self.sync()
            self.release_semaphore(semaphore, value=part + 1)
            if self.fault == "releases before it stores":
                self.store_global(g_parts, r, offsets=[part, 0], dims=[1])
        else:
            self.lock_semaphore(semaphore, value=part)
            for other in range(2):
                r = r + self.load_global(g_parts, offsets=[other, 0], shape=[4096], dims=[1])
            self.store_global(g_y, r, offsets=[0])
            self.sync()
            self.release_semaphore(semaphore, value=0)
