"""Scripts whose CTAs take over the work of CTAs that have not started."""

import tilus
from tilus import int32, uint32

COLUMNS = 64


class Doubles(tilus.Script):
    """y = 2 * x, a row at a time: warp 0 asks for the next row, and both warps wait for the answer."""

    def __init__(self, fault: str = "", stages: int = 1):
        super().__init__()
        self.fault = fault
        self.stages = stages

    def __call__(self, rows: int32, x_ptr: ~int32, y_ptr: ~int32):
        self.attrs.blocks = rows
        self.attrs.warps = 2
        g_x = self.global_view(x_ptr, dtype=int32, shape=[rows, COLUMNS])
        g_y = self.global_view(y_ptr, dtype=int32, shape=[rows, COLUMNS])
        response = self.shared_tensor(dtype=int32, shape=[self.stages, 4])
        full = self.mbarrier.alloc(counts=[1 for _ in range(self.stages)])  # full
        empty = self.mbarrier.alloc(counts=[64 for _ in range(self.stages)])
        row: int32 = self.blockIdx.x
        stage: int32 = 0
        phase: uint32 = 0
        while True:
            with self.single_warp(0):
                if self.fault != "asks too early":
                    self.mbarrier.wait(empty[stage], phase=phase ^ 1)
                with self.single_thread():
                    if self.fault == "announces nothing":
                        self.mbarrier.arrive(full[stage])  # announce
                    elif self.fault != "does not arrive":
                        self.mbarrier.arrive_and_expect_tx(full[stage], transaction_bytes=16)
                self.clc.try_cancel(response[stage], mbarrier=full[stage], multicast=False)  # ask
            self.store_global(g_y, self.load_global(g_x, offsets=[row, 0], shape=[1, COLUMNS]) * 2, offsets=[row, 0])
            if self.fault == "leaves with the answer under way":
                break
            if self.fault == "relaxed":
                self.mbarrier.wait(full[stage], phase=phase, sem="relaxed", scope="cta")  # wait
            elif self.fault != "does not wait":
                self.mbarrier.wait(full[stage], phase=phase)  # wait
            is_valid, first = self.clc.query_response(response[stage])  # read
            if self.fault != "no fence" and self.fault != "relaxed":
                self.fence.proxy_async(space="shared")
            self.mbarrier.arrive(empty[stage])
            stage = (stage + 1) % self.stages
            phase = phase ^ (stage == 0)
            if self.fault == "one row alone":
                break
            if is_valid:
                row = first.x
            elif self.fault != "asks again":
                break
