"""Scripts whose CTAs take over the work of CTAs that have not started."""

import tilus
from tilus import int32, uint32
from tilus.hidet.ir.type import DataType

COLUMNS = 64


class Doubles(tilus.Script):
    """y = 2 * x, a row at a time: warp 0 asks for the next row, and both warps wait for the answer."""

    def __init__(self, fault: str = "", stages: int = 1):
        super().__init__()
        self.fault = fault
        self.stages = stages
        self.sem = "relaxed" if fault in ("a relaxed wait", "relaxed both ways") else "acquire"
        self.room_sem = "relaxed" if fault == "relaxed both ways" else "acquire"
        self.done_sem = "relaxed" if fault in ("a relaxed arrival", "relaxed both ways") else "release"

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
                if self.fault != "no room":
                    self.mbarrier.wait(empty[stage], phase=phase ^ 1, sem=self.room_sem, scope="cta")  # room
                with self.single_thread():
                    if self.fault == "announces nothing":
                        self.mbarrier.arrive(full[stage])
                    elif self.fault != "does not arrive":
                        self.mbarrier.arrive_and_expect_tx(full[stage], transaction_bytes=16)
                self.clc.try_cancel(response[stage], mbarrier=full[stage], multicast=False)  # ask
            self.store_global(g_y, self.load_global(g_x, offsets=[row, 0], shape=[1, COLUMNS]) * 2, offsets=[row, 0])
            if self.fault == "leaves while it is asked":
                break
            if self.fault != "does not wait":
                self.mbarrier.wait(full[stage], phase=phase, sem=self.sem, scope="cta")  # wait
            is_valid, first = self.clc.query_response(response[stage])  # read
            if self.fault != "no fence":
                self.fence.proxy_async(space="shared")
            self.mbarrier.arrive(empty[stage], sem=self.done_sem, scope="cta")  # done
            stage = (stage + 1) % self.stages
            phase = phase ^ (stage == 0)
            if self.fault == "one row alone":
                break
            if is_valid or self.fault == "does not look":
                row = first.x
            elif self.fault != "asks again":
                break


class DoublesInPairs(tilus.Script):
    """The same by clusters of two CTAs, each of which has a row of two: warp 0 of the first asks for both."""

    def __init__(self, fault: str = "", stages: int = 1):
        super().__init__()
        self.fault = fault
        self.stages = stages
        self.multicast = fault != "asks for itself alone"
        self.readers = 64 if fault == "tells its own CTA alone" else 128

    def __call__(self, rows: int32, x_ptr: ~int32, y_ptr: ~int32):
        self.attrs.blocks = rows
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 2
        rank: int32 = self.cluster.blockRank
        g_x = self.global_view(x_ptr, dtype=int32, shape=[rows, COLUMNS])
        g_y = self.global_view(y_ptr, dtype=int32, shape=[rows, COLUMNS])
        response = self.shared_tensor(dtype=int32, shape=[self.stages, 4])
        full = self.mbarrier.alloc(counts=[1 for _ in range(self.stages)])
        empty = self.mbarrier.alloc(counts=[self.readers for _ in range(self.stages)])
        self.cluster.sync()
        row: int32 = self.blockIdx.x
        stage: int32 = 0
        phase: uint32 = 0
        while True:
            if rank == 0:
                with self.single_warp(0):
                    self.mbarrier.wait(empty[stage], phase=phase ^ 1, scope="cluster")  # room
                    self.mbarrier.arrive_and_expect_tx_multicast(full[stage], 16, multicast_mask=3)
                    self.clc.try_cancel(response[stage], mbarrier=full[stage], multicast=self.multicast)  # ask
            self.store_global(g_y, self.load_global(g_x, offsets=[row, 0], shape=[1, COLUMNS]) * 2, offsets=[row, 0])
            self.mbarrier.wait(full[stage], phase=phase)  # wait
            is_valid, first = self.clc.query_response(response[stage])  # read
            self.fence.proxy_async(space="shared")
            if self.fault == "tells its own CTA alone":
                self.mbarrier.arrive(empty[stage])
            else:
                self.mbarrier.arrive_and_expect_tx_remote(empty[stage], 0, target_rank=0, scope="cluster")  # done
            stage = (stage + 1) % self.stages
            phase = phase ^ (stage == 0)
            if not is_valid:
                break
            row = first.x + rank
        if self.fault != "no sync at the end":
            self.cluster.sync()


class Places(tilus.Script):
    """What a response says of a grid of three dimensions: y[z, y, x] = 1 + x + 10 * y + 100 * z."""

    def __call__(self, y_ptr: ~int32):
        self.attrs.blocks = [3, 2, 2]
        self.attrs.warps = 1
        g_y = self.global_view(y_ptr, dtype=int32, shape=[2, 2, 3])
        response = self.shared_tensor(dtype=int32, shape=[4])
        full = self.mbarrier.alloc(counts=1)
        x: int32 = self.blockIdx.x
        y: int32 = self.blockIdx.y
        z: int32 = self.blockIdx.z
        phase: uint32 = 0
        while True:
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=16)
            self.clc.try_cancel(response, mbarrier=full, multicast=False)
            one = self.register_tensor(dtype=int32, shape=[1, 1, 1], init=1)
            self.store_global(g_y, one + (x + 10 * y + 100 * z), offsets=[z, y, x])
            self.mbarrier.wait(full, phase=phase)
            is_valid, first = self.clc.query_response(response)
            self.fence.proxy_async(space="shared")
            self.sync()
            phase ^= 1
            if not is_valid:
                break
            x = first.x
            y = first.y
            z = first.z


class TakesOne(tilus.Script):
    """Each CTA doubles its own row of x, and at most one more, whose response is `count` elements of a type."""

    def __init__(self, dtype: DataType = int32, count: int = 4):
        super().__init__()
        self.dtype, self.count = dtype, count

    def __call__(self, rows: int32, x_ptr: ~int32, y_ptr: ~int32):
        self.attrs.blocks = rows
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=int32, shape=[rows, COLUMNS])
        g_y = self.global_view(y_ptr, dtype=int32, shape=[rows, COLUMNS])
        response = self.shared_tensor(dtype=self.dtype, shape=[self.count])
        full = self.mbarrier.alloc(counts=1)
        row: int32 = self.blockIdx.x
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=16)
        self.clc.try_cancel(response, mbarrier=full, multicast=False)
        self.store_global(g_y, self.load_global(g_x, offsets=[row, 0], shape=[1, COLUMNS]) * 2, offsets=[row, 0])
        self.mbarrier.wait(full, phase=0)
        is_valid, first = self.clc.query_response(response)
        if is_valid:
            more = self.load_global(g_x, offsets=[first.x, 0], shape=[1, COLUMNS]) * 2
            self.store_global(g_y, more, offsets=[first.x, 0])


class Backwards(tilus.Script):
    """Each CTA doubles its own row of x and asks for two more, of which it reads the second response first."""

    def __call__(self, rows: int32, x_ptr: ~int32, y_ptr: ~int32):
        self.attrs.blocks = rows
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=int32, shape=[rows, COLUMNS])
        g_y = self.global_view(y_ptr, dtype=int32, shape=[rows, COLUMNS])
        responses = self.shared_tensor(dtype=int32, shape=[2, 4])
        full = self.mbarrier.alloc(counts=[1, 1])
        for i in range(2):
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full[i], transaction_bytes=16)
            self.clc.try_cancel(responses[i], mbarrier=full[i], multicast=False)
        row: int32 = self.blockIdx.x
        self.store_global(g_y, self.load_global(g_x, offsets=[row, 0], shape=[1, COLUMNS]) * 2, offsets=[row, 0])
        for j in range(2):
            self.mbarrier.wait(full[1 - j], phase=0)
            is_valid, first = self.clc.query_response(responses[1 - j])
            if is_valid:
                more = self.load_global(g_x, offsets=[first.x, 0], shape=[1, COLUMNS]) * 2
                self.store_global(g_y, more, offsets=[first.x, 0])


class Stares(tilus.Script):
    """Asks once, and waits for a refusal that does not come."""

    def __call__(self, rows: int32, x_ptr: ~int32, y_ptr: ~int32):
        self.attrs.blocks = rows
        self.attrs.warps = 1
        response = self.shared_tensor(dtype=int32, shape=[4])
        full = self.mbarrier.alloc(counts=1)
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=16)
        self.clc.try_cancel(response, mbarrier=full, multicast=False)
        self.mbarrier.wait(full, phase=0)
        while True:
            is_valid, _ = self.clc.query_response(response)  # again
            if not is_valid:
                break


class InTurn(tilus.Script):
    """Each CTA waits for the one before it, and asks for another one's work."""

    def __call__(self, y_ptr: ~int32):
        self.attrs.blocks = 8
        self.attrs.warps = 1
        g_y = self.global_view(y_ptr, dtype=int32, shape=[8])
        turns = self.global_tensor(dtype=int32, shape=[1], requires_clean=True)
        response = self.shared_tensor(dtype=int32, shape=[4])
        full = self.mbarrier.alloc(counts=1)
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=16)
        self.clc.try_cancel(response, mbarrier=full, multicast=False)
        self.lock_semaphore(~turns[0], value=self.blockIdx.x)
        one = self.register_tensor(dtype=int32, shape=[1], init=1)
        self.store_global(g_y, one, offsets=[self.blockIdx.x])
        self.release_semaphore(~turns[0], value=(self.blockIdx.x + 1) % 8)
        self.mbarrier.wait(full, phase=0)
        is_valid, first = self.clc.query_response(response)
        if is_valid:
            self.store_global(g_y, one + 1, offsets=[first.x])
