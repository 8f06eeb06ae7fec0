"""Pairs about threads, memory and proxies. Each script is correct as it comes; `fault` names the one edge that is taken
away. The lines that a finding must name carry a mark: `# store`, `# load`, `# again`, `# copy`.

tilus reads the source of a script with `inspect` and refuses postponed annotations, so that they live here.
"""

import tilus
from tilus import float16, float32, int32, void_p

ROWS, COLUMNS = 32, 64


class SharedRace(tilus.Script):
    """Two warps and one row of shared memory: read after write, write after read, write after write."""

    def __init__(self, fault: str = "", kind: str = "raw"):
        super().__init__()
        self.fault = fault
        self.kind = kind

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g_x = self.global_view(x_ptr, dtype=float32, shape=[2, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[32])
        s = self.shared_tensor(dtype=float32, shape=[32])
        with self.single_warp(0):
            self.store_shared(s, self.load_global(g_x, offsets=[0, 0], shape=[32], dims=[1]))  # store
        if self.kind == "war" or self.fault != "no sync":
            self.sync()
        if self.kind != "waw":
            with self.single_warp(1):
                self.store_global(g_y, self.load_shared(s), offsets=[0])  # load
        if self.kind == "war" and self.fault != "no sync":
            self.sync()
        if self.kind == "war":
            with self.single_warp(0):
                self.store_shared(s, self.load_global(g_x, offsets=[1, 0], shape=[32], dims=[1]))  # again
        if self.kind == "waw":
            with self.single_warp(1):
                self.store_shared(s, self.load_global(g_x, offsets=[1, 0], shape=[32], dims=[1]))  # after
                self.store_global(g_y, self.load_shared(s), offsets=[0])


class GlobalRace(tilus.Script):
    """The same in global memory, inside of one CTA."""

    def __init__(self, fault: str = "", kind: str = "raw"):
        super().__init__()
        self.fault = fault
        self.kind = kind

    def __call__(self, x_ptr: void_p, t_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g_x = self.global_view(x_ptr, dtype=float32, shape=[2, 32])
        g_t = self.global_view(t_ptr, dtype=float32, shape=[32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[32])
        with self.single_warp(0):
            self.store_global(g_t, self.load_global(g_x, offsets=[0, 0], shape=[32], dims=[1]), offsets=[0])  # store
        if self.kind == "war" or self.fault != "no sync":
            self.sync()
        if self.kind != "waw":
            with self.single_warp(1):
                r = self.load_global(g_t, offsets=[0], shape=[32])  # load
                self.store_global(g_y, r, offsets=[0])
        if self.kind == "war" and self.fault != "no sync":
            self.sync()
        if self.kind == "war":
            with self.single_warp(0):
                r = self.load_global(g_x, offsets=[1, 0], shape=[32], dims=[1])
                self.store_global(g_t, r, offsets=[0])  # again
        if self.kind == "waw":
            with self.single_warp(1):
                r = self.load_global(g_x, offsets=[1, 0], shape=[32], dims=[1])
                self.store_global(g_t, r, offsets=[0])  # after
                self.store_global(g_y, self.load_global(g_t, offsets=[0], shape=[32]), offsets=[0])


class Interleaved(tilus.Script):
    """Warp 0 writes the even elements of a tile and warp 1 the odd ones; the fault: warp 1 starts one too early."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g_y = self.global_view(y_ptr, dtype=float32, shape=[65])
        g_even = self.global_view(y_ptr, dtype=float32, shape=[32], strides=[2])
        g_x = self.global_view(x_ptr, dtype=float32, shape=[2, 32])
        if self.fault == "":
            g_odd = self.global_view(y_ptr + 4, dtype=float32, shape=[32], strides=[2])
        else:
            g_odd = self.global_view(y_ptr, dtype=float32, shape=[32], strides=[2])
        with self.single_warp(0):
            self.store_global(g_even, self.load_global(g_x, offsets=[0, 0], shape=[32], dims=[1]), offsets=[0])  # store
        with self.single_warp(1):
            self.store_global(g_odd, self.load_global(g_x, offsets=[1, 0], shape=[32], dims=[1]), offsets=[0])  # after


class SharedRows(tilus.Script):
    """Two warps hold the rows of one shared tile in turn, in one rectangle. The fault: warp 1 also writes one row that
    warp 0 holds."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g_x = self.global_view(x_ptr, dtype=float32, shape=[8, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[8, 32])
        s = self.shared_tensor(dtype=float32, shape=[8, 32])
        tile = self.load_global(g_x, offsets=[0, 0], shape=[8, 32])
        self.annotate_layout(tile, self.turns())
        self.store_shared(s, tile)  # store
        if self.fault == "a row too many":
            with self.single_warp(1):
                row = self.load_global(g_x, offsets=[2, 0], shape=[32], dims=[1])
                self.store_shared(s[2], row)  # after
        self.sync()
        self.store_global(g_y, self.load_shared(s), offsets=[0, 0])

    def turns(self):
        """Row r belongs to warp r % 2, column c to lane c."""
        return tilus.ir.layout.ops.local(4, 1).spatial(2, 32)


class LeaderWaits(tilus.Script):
    """The elected lane waits until TMA has read a tile; then the whole warp overwrites it."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float16, shape=[2 * ROWS, COLUMNS])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[2 * ROWS, COLUMNS])
        s = self.shared_tensor(dtype=float16, shape=[ROWS, COLUMNS])
        for i in range(2):
            self.store_shared(s, self.load_global(g_x, offsets=[i * ROWS, 0], shape=[ROWS, COLUMNS]))  # store
            self.fence.proxy_async(space="shared")
            self.sync()
            self.tma.shared_to_global(s, g_y, offsets=[i * ROWS, 0])  # copy
            if self.fault != "no commit":
                self.tma.commit_group()
            if self.fault == "wait for one less":
                self.tma.wait_group(n=1, read=True)
            elif self.fault != "no wait":
                self.tma.wait_group(n=0, read=True)
            if self.fault != "no sync":
                self.sync()
        self.tma.commit_group()
        self.tma.wait_group(n=0, read=True)


class WriteThenTma(tilus.Script):
    """Two warps write a tile with ordinary stores, and TMA stores it: the fence, its side, its place, its space."""

    def __init__(self, fault: str = "", side: str = "writer"):
        super().__init__()
        self.fault = fault
        self.side = side

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g_x = self.global_view(x_ptr, dtype=float16, shape=[ROWS, COLUMNS])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[ROWS, COLUMNS])
        s = self.shared_tensor(dtype=float16, shape=[ROWS, COLUMNS])
        tile = self.load_global(g_x, offsets=[0, 0], shape=[ROWS, COLUMNS])
        if self.fault == "fence before the write":
            self.fence.proxy_async(space="shared")
        self.store_shared(s, tile)  # store
        if self.fault == "fence of the wrong space":
            self.fence.proxy_async(space="global")
        if self.fault == "fence by one warp":
            with self.single_warp(1):
                self.fence.proxy_async(space="shared")
        if self.side == "writer" and self.fault == "":
            self.fence.proxy_async(space="shared")
        self.sync()
        with self.single_warp(0):
            if self.side == "reader" and self.fault == "":
                self.fence.proxy_async(space="shared")
            self.tma.shared_to_global(s, g_y, offsets=[0, 0])  # copy
            self.tma.commit_group()
            self.tma.wait_group(n=0)


class CpAsyncThenTma(tilus.Script):
    """cp.async writes through the generic proxy: TMA needs the wait of each copier, its fence, and a barrier."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g_x = self.global_view(x_ptr, dtype=float16, shape=[ROWS, COLUMNS])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[ROWS, COLUMNS])
        s = self.shared_tensor(dtype=float16, shape=[ROWS, COLUMNS])
        self.copy_async(src=g_x, dst=s, offsets=[0, 0])  # store
        self.copy_async_commit_group()
        if self.fault == "wait for one less":
            self.copy_async_wait_group(1)
        elif self.fault == "wait by the reader":
            with self.single_warp(0):
                self.copy_async_wait_group(0)
        else:
            self.copy_async_wait_group(0)
        if self.fault != "no fence":
            self.fence.proxy_async(space="shared")
        if self.fault != "no sync":
            self.sync()
        with self.single_warp(0):
            self.tma.shared_to_global(s, g_y, offsets=[0, 0])  # copy
            self.tma.commit_group()
            self.tma.wait_group(n=0)
        self.copy_async_wait_all()


class GlobalThenTma(tilus.Script):
    """A warp writes global memory with ordinary stores, and TMA loads it: the fence is one of global memory."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault

    def __call__(self, x_ptr: void_p, t_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float16, shape=[ROWS, COLUMNS])
        g_t = self.global_view(t_ptr, dtype=float16, shape=[ROWS, COLUMNS])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[ROWS, COLUMNS])
        s = self.shared_tensor(dtype=float16, shape=[ROWS, COLUMNS])
        full = self.mbarrier.alloc(counts=1)
        self.sync()
        r = self.load_global(g_x, offsets=[0, 0], shape=[ROWS, COLUMNS])
        self.store_global(g_t, r, offsets=[0, 0])  # store
        if self.fault == "":
            self.fence.proxy_async(space="global")
        if self.fault == "fence of the wrong space":
            self.fence.proxy_async(space="shared")
        self.sync()
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=s.nbytes)
        self.tma.global_to_shared(src=g_t, dst=s, offsets=[0, 0], mbarrier=full)  # copy
        self.mbarrier.wait(full, phase=0)
        self.store_global(g_y, self.load_shared(s), offsets=[0, 0])


class Semaphores(tilus.Script):
    """CTA 0 writes a row and releases a semaphore, CTA 1 takes it and reads the row."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault

    def __call__(self, x_ptr: void_p, t_ptr: void_p, semaphore: ~int32, y_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float32, shape=[2, 32])
        g_t = self.global_view(t_ptr, dtype=float32, shape=[32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[32])
        if self.blockIdx.x == 0:
            r = self.load_global(g_x, offsets=[0, 0], shape=[32], dims=[1])
            if self.fault == "released before the write":
                self.release_semaphore(semaphore, value=1)
            self.store_global(g_t, r, offsets=[0])  # store
            self.sync()
            if self.fault != "released before the write":
                self.release_semaphore(semaphore, value=1)
        else:
            if self.fault != "no lock":
                self.lock_semaphore(semaphore, value=1)
                self.release_semaphore(semaphore, value=0)
            r = self.load_global(g_t, offsets=[0], shape=[32])  # load
            self.store_global(g_y, r, offsets=[0])


class SameLine(tilus.Script):
    """Two CTAs write one row in the order of their index, at the same line; a semaphore gives the order."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault

    def __call__(self, x_ptr: void_p, semaphore: ~int32, y_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float32, shape=[2, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[32])
        r = self.load_global(g_x, offsets=[self.blockIdx.x, 0], shape=[32], dims=[1])
        if self.fault != "no lock":
            self.lock_semaphore(semaphore, value=self.blockIdx.x)
        self.store_global(g_y, r, offsets=[0])  # store
        self.sync()
        self.release_semaphore(semaphore, value=(self.blockIdx.x + 1) % 2)


class TwoCtas(tilus.Script):
    """Each of two CTAs writes its row and reads it back. The faults: the other's row is read, or written too."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault

    def __call__(self, x_ptr: void_p, t_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float32, shape=[2, 32])
        g_t = self.global_view(t_ptr, dtype=float32, shape=[2, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[2, 32])
        mine: int32 = self.blockIdx.x
        r = self.load_global(g_x, offsets=[mine, 0], shape=[32], dims=[1])
        self.store_global(g_t, r, offsets=[mine, 0], dims=[1])
        if self.fault == "writes the other's row":
            self.store_global(g_t, r, offsets=[1 - mine, 0], dims=[1])
        if self.fault == "reads the other's row":
            r = self.load_global(g_t, offsets=[1 - mine, 0], shape=[32], dims=[1])
        self.store_global(g_y, r, offsets=[mine, 0], dims=[1])


class Bounds(tilus.Script):
    """A row and an element, taken by index."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault
        self.rows = 8 if fault == "a view larger than the tensor" else 4

    def __call__(self, row: int32, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float32, shape=[self.rows, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[32])
        s = self.shared_tensor(dtype=float32, shape=[4, 32])
        full = self.mbarrier.alloc(counts=[1, 1, 1, 1])
        self.sync()
        self.store_shared(s, self.load_global(g_x, offsets=[self.rows - 4, 0], shape=[4, 32]))  # global
        self.sync()
        if self.fault == "a shared row that is not there":
            r = self.load_shared(s[row])  # shared
        else:
            r = self.load_shared(s[row - 1])
        if self.fault == "a barrier that is not there":
            with self.single_thread():
                self.mbarrier.arrive(full[row])  # register
        self.store_global(g_y, r, offsets=[0])


class Freed(tilus.Script):
    """TMA stores a tile, whose shared memory is freed and given to a second tensor that is written next."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float16, shape=[2 * ROWS, COLUMNS])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[2 * ROWS, COLUMNS])
        first = self.shared_tensor(dtype=float16, shape=[ROWS, COLUMNS])
        self.store_shared(first, self.load_global(g_x, offsets=[0, 0], shape=[ROWS, COLUMNS]))
        self.fence.proxy_async(space="shared")
        self.sync()
        self.tma.shared_to_global(first, g_y, offsets=[0, 0])  # copy
        self.tma.commit_group()
        if self.fault != "no wait":
            self.tma.wait_group(n=0, read=True)
        self.sync()
        self.free_shared(first)
        second = self.shared_tensor(dtype=float16, shape=[ROWS, COLUMNS])
        self.store_shared(second, self.load_global(g_x, offsets=[ROWS, 0], shape=[ROWS, COLUMNS]))  # store
        self.fence.proxy_async(space="shared")
        self.sync()
        self.tma.shared_to_global(second, g_y, offsets=[ROWS, 0])
        self.tma.commit_group()
        self.tma.wait_group(n=0, read=True)
        self.free_shared(second)


class Unwritten(tilus.Script):
    """A shared tile of which a part is read back. The fault: one row more than was written."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault
        self.row = 2 if fault == "the wrong row" else 1

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float32, shape=[4, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[32])
        s = self.shared_tensor(dtype=float32, shape=[4, 32])
        self.store_shared(s[1], self.load_global(g_x, offsets=[1, 0], shape=[32], dims=[1]))
        self.sync()
        self.store_global(g_y, self.load_shared(s[self.row]), offsets=[0])  # load


class Divergent(tilus.Script):
    """All warps meet at one barrier. The faults: a warp leaves before it, or two groups meet at different ones."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault

    def __call__(self, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g_y = self.global_view(y_ptr, dtype=int32, shape=[64])
        if self.fault == "one warp leaves":
            with self.single_warp(1):
                return
        if self.fault == "a barrier in a branch":
            with self.single_warp(0):
                with self.thread_group(0, 32):
                    self.sync()
        self.sync()  # sync
        self.store_global(g_y, self.register_tensor(dtype=int32, shape=[64], init=lambda i: i), offsets=[0])


class Spin(tilus.Script):
    """A loop that ends after n turns, or never."""

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault

    def __call__(self, n: int32, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        i: int32 = 0
        step: int32 = 1
        if self.fault == "no progress":
            step = 0
        while i < n:  # loop
            i += step
        g_y = self.global_view(y_ptr, dtype=int32, shape=[32])
        self.store_global(g_y, self.register_tensor(dtype=int32, shape=[32], init=lambda j: i), offsets=[0])
