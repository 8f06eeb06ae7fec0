"""Copies that lanes of a warp issue, commit and wait for, not always the same ones."""

import tilus
from tilus import float16, float32, int32
from tilus.ir.layout.ops import spatial

COLUMNS, ROWS = spatial(1, 32).local(32, 1), spatial(32, 1).local(1, 32)
"""Layouts of a tile of 32 x 32 in one warp: a column in each lane, a row in each lane."""


class BulkStores(tilus.Script):
    """A tile after the other is doubled and stored by TMA. commits, waits: by which lane; -1: the elected one, 32: all
    of the warp; waits 33: the next warp waits."""

    target = "sm_90a"

    def __init__(self, commits: int = 32, waits: int = 32, read: bool = True):
        super().__init__()
        self.commits, self.waits, self.read = commits, waits, read

    def __call__(self, x_ptr: ~float16, y_ptr: ~float16):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float16, shape=[96, 32])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[96, 32])
        s = self.shared_tensor(dtype=float16, shape=[32, 32])
        for i in range(3):
            self.store_shared(s, self.load_global(g_x, offsets=[i * 32, 0], shape=[32, 32]) * 2.0)  # fill
            self.fence.proxy_async(space="shared")
            self.sync()
            with self.single_warp(1):
                self.tma.shared_to_global(s, g_y, offsets=[i * 32, 0])  # store
                if self.commits == 32:
                    self.tma.commit_group()
                else:
                    with self.single_thread(self.commits):
                        self.tma.commit_group()  # its commit
                if self.waits == 32:
                    self.tma.wait_group(n=0, read=self.read)
                elif self.waits < 32:
                    with self.single_thread(self.waits):
                        self.tma.wait_group(n=0, read=self.read)  # its wait
            if self.waits == 33:
                self.sync()
                with self.single_warp(2):
                    self.tma.wait_group(n=0, read=self.read)  # the other's wait
            self.sync()


class LaneCopies(tilus.Script):
    """A warp copies a tile by cp.async and reads it. commits, waits: by which lane; 32: all of the warp."""

    def __init__(self, commits: int = 32, waits: int = 32, every: bool = False):
        super().__init__()
        self.commits, self.waits, self.every = commits, waits, every

    def __call__(self, x_ptr: ~float32, y_ptr: ~float32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float32, shape=[32, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[32, 32])
        s = self.shared_tensor(dtype=float32, shape=[32, 32])
        self.copy_async(g_x, s, offsets=[0, 0])  # copy
        if self.commits == 32:
            self.copy_async_commit_group()
        else:
            with self.single_thread(self.commits):
                self.copy_async_commit_group()  # its commit
        if self.every:
            with self.single_thread(self.waits):
                self.copy_async_wait_all()  # wait for all
        elif self.waits == 32:
            self.copy_async_wait_group(0)
        else:
            with self.single_thread(self.waits):
                self.copy_async_wait_group(0)  # its wait
        self.sync()
        self.store_global(g_y, self.load_shared(s), offsets=[0, 0])  # load


class StoreRing(tilus.Script):
    """Four warps store tiles by TMA from two buffers; another warp counts their rounds. fault: the missing sync, or a
    second warp that stores the same tiles."""

    target = "sm_90a"

    def __init__(self, fault: str = ""):
        super().__init__()
        self.fault = fault

    def __call__(self, x_ptr: ~float16, y_ptr: ~float16):
        self.attrs.blocks = 1
        self.attrs.warps = 5
        g_x = self.global_view(x_ptr, dtype=float16, shape=[128, 32])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[128, 32])
        s = self.shared_tensor(dtype=float16, shape=[2, 32, 32])
        rounds, counted = self.mbarrier.alloc(counts=128), self.mbarrier.alloc(counts=32)
        self.sync()
        with self.single_warp(4):
            for i in range(4):
                self.mbarrier.wait(rounds, phase=i & 1)
                self.mbarrier.arrive(counted)
        with self.warp_group(0, 4):
            for i in range(4):
                self.mbarrier.wait(counted, phase=i & 1 ^ 1)
                self.mbarrier.arrive(rounds)
                tile = self.load_global(g_x, offsets=[i * 32, 0], shape=[32, 32])
                with self.single_warp(0):
                    self.tma.wait_group(n=1 - (self.fault == "two stores"), read=True)  # wait for a buffer
                if self.fault != "sync behind the wait":
                    self.sync()
                self.store_shared(s[i % 2], tile)  # fill a buffer
                self.fence.proxy_async(space="shared")
                if self.fault != "sync before the store":
                    self.sync()
                with self.single_warp(0):
                    self.tma.shared_to_global(s[i % 2], g_y, offsets=[i * 32, 0])  # store a buffer
                    self.tma.commit_group()
                if self.fault == "two stores":
                    with self.single_warp(1):
                        if i > 0:
                            self.tma.shared_to_global(s[(i + 1) % 2], g_y, offsets=[i * 32 - 32, 0])
                            self.tma.commit_group()
                            self.tma.wait_group(n=0, read=True)
            with self.single_warp(0):
                self.tma.wait_group(n=0, read=True)


class Through(tilus.Script):
    """y = x, twice from columns in lanes to rows in lanes, by one warp through memory of `space`. loads: the layout of
    its loads. waits: the lanes wait for an mbarrier in place of the first sync, on which all arrive, or one, or all
    "too early"; first, second: with a sync, which "too early" puts before the wait for the copies."""

    target = "sm_90a"

    def __init__(
        self, space: str = "shared", first: object = True, second: bool = True, waits: str = "", loads: object = ROWS
    ):
        super().__init__()
        self.space, self.first, self.second, self.waits, self.loads = space, first, second, waits, loads

    def __call__(self, x_ptr: ~int32, t_ptr: ~int32, y_ptr: ~int32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=int32, shape=[32, 32])
        g_t = self.global_view(t_ptr, dtype=int32, shape=[32, 32])
        g_y = self.global_view(y_ptr, dtype=int32, shape=[32, 32])
        s = self.shared_tensor(dtype=int32, shape=[32, 32])
        met = self.mbarrier.alloc(counts=1 if self.waits == "one" else 32)
        for i in range(2):
            if self.waits == "too early":
                self.mbarrier.arrive(met)
            if self.space == "cp.async":
                self.copy_async(g_x, s, offsets=[0, 0])  # written
                if self.first == "too early":
                    self.sync()
                self.copy_async_wait_all()  # awaited
            else:
                r_x = self.load_global(g_x, offsets=[0, 0], shape=[32, 32])
                self.annotate_layout(r_x, COLUMNS)
                if self.space == "shared":
                    self.store_shared(s, r_x)  # written
                else:
                    self.store_global(g_t, r_x, offsets=[0, 0])  # written
            if self.waits == "all":
                self.mbarrier.arrive(met)
            if self.waits == "one":
                with self.single_thread():
                    self.mbarrier.arrive(met)
            if self.waits:
                self.mbarrier.wait(met, phase=i)
            elif self.first is True:
                self.sync()
            if self.space == "global":
                r_y = self.load_global(g_t, offsets=[0, 0], shape=[32, 32])  # read
            else:
                r_y = self.load_shared(s)  # read
            self.annotate_layout(r_y, self.loads)
            if self.second:
                self.sync()
            self.store_global(g_y, r_y, offsets=[0, 0])


class HalfThrough(tilus.Script):
    """y = x, twice from columns in lanes to rows in lanes, by half a warp. syncs: by whom, between and behind."""

    def __init__(self, first: str = "half", second: str = "warp"):
        super().__init__()
        self.first, self.second = first, second

    def __call__(self, x_ptr: ~int32, y_ptr: ~int32):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=int32, shape=[16, 16])
        g_y = self.global_view(y_ptr, dtype=int32, shape=[16, 16])
        s = self.shared_tensor(dtype=int32, shape=[16, 16])
        for _ in range(2):
            with self.thread_group(0, 16):
                r_x = self.load_global(g_x, offsets=[0, 0], shape=[16, 16])
                self.annotate_layout(r_x, spatial(1, 16).local(16, 1))
                self.store_shared(s, r_x)  # half written
                if self.first == "half":
                    self.sync()
            if self.first == "warp":
                self.sync()
            with self.thread_group(0, 16):
                r_y = self.load_shared(s)  # half read
                self.annotate_layout(r_y, spatial(16, 1).local(1, 16))
                self.store_global(g_y, r_y, offsets=[0, 0])
                if self.second == "half":
                    self.sync()
            if self.second == "warp":
                self.sync()
