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
            self.release_semaphore(semaphore, value=(part + 1) % 3)
        self.store_global(g_y, total, offsets=[0])
        if self.fault != "no sync before the release":
            self.sync()
        if self.fault != "releases before it stores":
            self.release_semaphore(semaphore, value=(part + 1) % 3)


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
            if part > 0 and self.fault != "takes no turn":
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


class NextAnswer(tilus.Script):
    """Each CTA asks for more until it is refused. in_step: the warps sync before the answer's place is used again."""

    def __init__(self, in_step: bool = True):
        super().__init__()
        self.in_step = in_step

    def __call__(self, y_ptr: ~int32):
        self.attrs.blocks = 6
        self.attrs.warps = 4
        g_y = self.global_view(y_ptr, dtype=int32, shape=[6])
        answer = self.shared_tensor(dtype=int32, shape=[4])
        told = self.mbarrier.alloc(counts=1)
        self.sync()
        tile: int32 = self.blockIdx.x
        phase: int32 = 0
        more: int32 = 1
        while more > 0:
            with self.single_warp(0):
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(told, transaction_bytes=16)
                self.clc.try_cancel(answer, mbarrier=told, multicast=False)
                self.store_global(g_y, self.register_tensor(dtype=int32, shape=[1], init=1), offsets=[tile])
            self.mbarrier.wait(told, phase=phase)
            valid, block = self.clc.query_response(answer)
            self.fence.proxy_async(space="shared")
            if self.in_step:
                self.sync()
            tile = block.x
            phase ^= 1
            if not valid:
                more = 0
