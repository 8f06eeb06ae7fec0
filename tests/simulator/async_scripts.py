"""Small scripts for the tests of the asynchronous machine. Each is correct as it comes, and each flag of its `__init__`
takes one edge away: a wait, a commit, a sync, an arrival, some bytes.

tilus reads the source of a script with `inspect` and refuses postponed annotations, so that they live here.
"""

import tilus
from tilus import DataType, float16, float32, int32, uint32, void_p
from tilus.ir.layout.ops import spatial
from tilus.ir.layout.ops.shared_ops import shared_row_major
from tilus.ir.layout.shared_layout import Swizzle

ROWS, COLUMNS = 32, 64
ROWS_OF_WARPS = spatial(4, 1).local(8, 1).spatial(1, 32).local(1, 2)
"""A layout of [ROWS, COLUMNS] in which each of four warps has eight neighbouring rows."""


class CpAsyncGroups(tilus.Script):
    """Two tiles by cp.async, each in a group of its own; y = x. first, second: groups that may stay in flight. own:
    each thread reads what it copied itself, as the layout that tilus chooses has it."""

    def __init__(
        self, first: int = 1, second: int = 0, commit: bool = True, wait_all: bool = False, sync: bool = True,
        own: bool = False,
    ):  # fmt: skip
        super().__init__()
        self.first = first
        self.second = second
        self.commit = commit
        self.wait_all = wait_all
        self.sync_after = sync
        self.own = own

    def __call__(self, m: int32, n: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=float16, shape=[m, n])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[2 * ROWS, COLUMNS])
        s_0 = self.shared_tensor(dtype=float16, shape=[ROWS, COLUMNS])
        s_1 = self.shared_tensor(dtype=float16, shape=[ROWS, COLUMNS])
        self.copy_async(src=g_x, dst=s_0, offsets=[0, 0])
        self.copy_async_commit_group()
        self.copy_async(src=g_x, dst=s_1, offsets=[ROWS, 0])
        if self.commit:
            self.copy_async_commit_group()
        if self.wait_all:
            self.copy_async_wait_all()
        else:
            self.copy_async_wait_group(self.first)
        if self.sync_after:
            self.sync()
        r_0 = self.load_shared(s_0)
        self.store_global(g_y, r_0, offsets=[0, 0])
        if not self.wait_all:
            self.copy_async_wait_group(self.second)
        if self.sync_after:
            self.sync()
        r_1 = self.load_shared(s_1)
        self.store_global(g_y, r_1, offsets=[ROWS, 0])
        if not self.own:
            self.annotate_layout(r_0, ROWS_OF_WARPS)
            self.annotate_layout(r_1, ROWS_OF_WARPS)


class CpAsyncReuse(tilus.Script):
    """Adds up the tiles of x through one shared tile that every cp.async overwrites."""

    def __init__(self, wait: bool = True):
        super().__init__()
        self.wait = wait

    def __call__(self, tiles: int32, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g_x = self.global_view(x_ptr, dtype=float32, shape=[tiles * ROWS, 16])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[ROWS, 16])
        s_x = self.shared_tensor(dtype=float32, shape=[ROWS, 16])
        total = self.register_tensor(dtype=float32, shape=[ROWS, 16], init=0.0)
        for tile in range(tiles):
            self.copy_async(src=g_x, dst=s_x, offsets=[tile * ROWS, 0])
            self.copy_async_commit_group()
            if self.wait:
                self.copy_async_wait_group(0)
            self.sync()
            total += self.load_shared(s_x)
            self.sync()
        self.copy_async_wait_all()
        self.store_global(g_y, total, offsets=[0, 0])


class TmaLoad(tilus.Script):
    """One box of x by TMA; y is the box. Ranks 1 to 5.

    wait: wait for the barrier. phase: the parity waited for. more_bytes: added to the bytes expected. count: the
    barrier's. late_expect: the bytes are announced after the copy was issued. arrive: announce at all. dtype: of x, y.
    """

    def __init__(
        self,
        shape: list,
        box: list,
        offsets: list,
        dims: list | None = None,
        wait: bool = True,
        phase: int = 0,
        more_bytes: int = 0,
        count: int = 1,
        late_expect: bool = False,
        arrive: bool = True,
        dtype: DataType = float32,
    ):
        super().__init__()
        self.shape = shape
        self.box = box
        self.offsets = offsets
        self.dims = dims
        self.wait = wait
        self.phase = phase
        self.more_bytes = more_bytes
        self.count = count
        self.late_expect = late_expect
        self.arrive = arrive
        self.dtype = dtype

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=self.dtype, shape=self.shape)
        g_y = self.global_view(y_ptr, dtype=self.dtype, shape=self.box)
        s_x = self.shared_tensor(dtype=self.dtype, shape=self.box)
        full = self.mbarrier.alloc(counts=self.count)
        self.sync()
        if self.arrive and not self.late_expect:
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=s_x.nbytes + self.more_bytes)
        self.tma.global_to_shared(src=g_x, dst=s_x, offsets=self.offsets, dims=self.dims, mbarrier=full)
        if self.arrive and self.late_expect:
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=s_x.nbytes + self.more_bytes)
        if self.wait:
            self.mbarrier.wait(full, phase=self.phase)
        self.store_global(g_y, self.load_shared(s_x), offsets=[0 for _ in self.box])


class TmaPart(tilus.Script):
    """y = x: by TMA ("load" or "store") into a part of the shared tensor s or out of it, and by ordinary accesses.

    swizzled: s has rows of 128 bytes, permuted in groups of eight.
    """

    def __init__(self, rows: int, columns: int, part: int, by_tma: str, swizzled: bool = False):
        super().__init__()
        self.box = [rows, columns]
        self.parts = [4, rows, columns]
        self.part = part
        self.by_tma = by_tma
        plain = shared_row_major(4, rows, columns)
        self.layout = plain.apply_swizzle(Swizzle(base=2, bits=3, shift=3)) if swizzled else plain

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float32, shape=self.box)
        g_y = self.global_view(y_ptr, dtype=float32, shape=self.box)
        s = self.shared_tensor(dtype=float32, shape=self.parts)
        self.annotate_layout(s, self.layout)
        full = self.mbarrier.alloc(counts=1)
        self.sync()
        if self.by_tma == "load":
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=s[0].nbytes)
            self.tma.global_to_shared(src=g_x, dst=s[self.part], offsets=[0, 0], mbarrier=full)
            self.mbarrier.wait(full, phase=0)
            self.store_global(g_y, self.load_shared(s[self.part]), offsets=[0, 0])
        else:
            self.store_shared(s[self.part], self.load_global(g_x, offsets=[0, 0], shape=self.box))
            self.fence.proxy_async(space="shared")
            self.sync()
            self.tma.shared_to_global(s[self.part], g_y, offsets=[0, 0])
            self.tma.commit_group()
            self.tma.wait_group(0)


class TmaStore(tilus.Script):
    """A box goes from x through shared memory to `offsets` of y by TMA, and what is outside of y is dropped."""

    def __init__(self, shape: list, box: list, offsets: list, dims: list | None = None):
        super().__init__()
        self.shape = shape
        self.box = box
        self.offsets = offsets
        self.dims = dims

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float32, shape=self.box)
        g_y = self.global_view(y_ptr, dtype=float32, shape=self.shape)
        s_x = self.shared_tensor(dtype=float32, shape=self.box)
        self.store_shared(s_x, self.load_global(g_x, offsets=[0 for _ in self.box], shape=self.box))
        self.fence.proxy_async(space="shared")
        self.sync()
        self.tma.shared_to_global(s_x, g_y, offsets=self.offsets, dims=self.dims)
        self.tma.commit_group()
        self.tma.wait_group(0)


class StripStore(tilus.Script):
    """Writes `strips` strips of y = x + 1 by TMA, in turn through `buffers` shared tiles.

    commit, wait: of the bulk group. keep: groups that may stay in flight while the next strip is made. read: wait for
    the reads alone. last: wait for everything at the end, writes included.
    """

    def __init__(
        self,
        commit: bool = True,
        wait: bool = True,
        keep: int = 0,
        read: bool = True,
        buffers: int = 1,
        last: bool = True,
        sync: bool = True,
    ):
        super().__init__()
        self.commit = commit
        self.wait = wait
        self.keep = keep
        self.read = read
        self.buffers = buffers
        self.last = last
        self.sync_after = sync

    def __call__(self, strips: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g_x = self.global_view(x_ptr, dtype=float16, shape=[strips * ROWS, COLUMNS])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[strips * ROWS, COLUMNS])
        s_y = self.shared_tensor(dtype=float16, shape=[self.buffers, ROWS, COLUMNS])
        for strip in range(strips):
            x = self.load_global(g_x, offsets=[strip * ROWS, 0], shape=[ROWS, COLUMNS])
            self.store_shared(s_y[strip % self.buffers], x + 1)
            self.fence.proxy_async(space="shared")
            self.sync()
            with self.single_warp():
                self.tma.shared_to_global(s_y[strip % self.buffers], g_y, offsets=[strip * ROWS, 0])
                if self.commit:
                    self.tma.commit_group()
                if self.wait:
                    self.tma.wait_group(n=self.keep, read=self.read)
            if self.sync_after:
                self.sync()
        if self.last:
            with self.single_warp():
                self.tma.wait_group(n=0)


class StoreThenReload(tilus.Script):
    """Stores x by TMA, waits (full or for the reads alone), and reads it back from global memory."""

    def __init__(self, read_first: bool = False, full: bool = True):
        super().__init__()
        self.read_first = read_first
        self.full = full

    def __call__(self, x_ptr: void_p, t_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float16, shape=[ROWS, COLUMNS])
        g_t = self.global_view(t_ptr, dtype=float16, shape=[ROWS, COLUMNS])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[ROWS, COLUMNS])
        s_x = self.shared_tensor(dtype=float16, shape=[ROWS, COLUMNS])
        self.store_shared(s_x, self.load_global(g_x, offsets=[0, 0], shape=[ROWS, COLUMNS]))
        self.fence.proxy_async(space="shared")
        self.sync()
        self.tma.shared_to_global(s_x, g_t, offsets=[0, 0])
        self.tma.commit_group()
        if self.read_first:
            self.tma.wait_group(n=0, read=True)
        if self.full:
            self.tma.wait_group(n=0)
        self.sync()  # the elected lane has waited; now all lanes know
        self.store_global(g_y, self.load_global(g_t, offsets=[0, 0], shape=[ROWS, COLUMNS]), offsets=[0, 0])


class Unused(tilus.Script):
    """Mbarriers that nothing uses, with different counts."""

    def __call__(self, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 1
        g_y = self.global_view(y_ptr, dtype=int32, shape=[32])
        one = self.mbarrier.alloc(counts=1)
        two = self.mbarrier.alloc(counts=[2, 3])
        self.store_global(g_y, self.register_tensor(dtype=int32, shape=[32], init=1), offsets=[0])


class Handoff(tilus.Script):
    """Warp 0 writes a row for each round, warp 1 reads it; two barriers keep them in step.

    count: arrivals that `full` needs. arrivals: each arriving lane's. by: who arrives, "warp" or "thread".
    skip_arrive: the round in which nobody arrives. flip: whether the waiters' phase is ever flipped. free: warp 1
    tells warp 0 that it has read. meet: the lanes of warp 0 meet before one of them arrives.
    """

    def __init__(
        self,
        count: int = 32,
        arrivals: int = 1,
        by: str = "warp",
        skip_arrive: int = -1,
        flip: bool = True,
        free: bool = True,
        meet: bool = False,
    ):
        super().__init__()
        self.meet = meet
        self.count = count
        self.arrivals = arrivals
        self.by = by
        self.skip_arrive = skip_arrive
        self.flip = flip
        self.free = free

    def __call__(self, rounds: int32, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g_x = self.global_view(x_ptr, dtype=float32, shape=[rounds, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[rounds, 32])
        s_x = self.shared_tensor(dtype=float32, shape=[32])
        full = self.mbarrier.alloc(counts=self.count)
        empty = self.mbarrier.alloc(counts=32)
        phase: uint32 = 0
        self.sync()
        for i in range(rounds):
            with self.single_warp(0):
                row = self.load_global(g_x, offsets=[i, 0], shape=[32], dims=[1])
                self.store_shared(s_x, row)
                if i != self.skip_arrive:
                    if self.by == "warp":
                        self.mbarrier.arrive(full, count=self.arrivals)
                    else:
                        if self.meet:
                            self.sync()
                        with self.single_thread():
                            self.mbarrier.arrive(full, count=self.arrivals)
                self.mbarrier.wait(empty, phase=phase)
            with self.single_warp(1):
                self.mbarrier.wait(full, phase=phase)
                self.store_global(g_y, self.load_shared(s_x), offsets=[i, 0], dims=[1])
                if self.free:
                    self.mbarrier.arrive(empty)
            if self.flip:
                phase ^= 1


class GroupArrive(tilus.Script):
    """All threads arrive on a barrier whose count is left to the thread group, and all wait."""

    def __call__(self, rounds: int32, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=int32, shape=[4, 32])
        g_y = self.global_view(y_ptr, dtype=int32, shape=[4, 32])
        s_y = self.shared_tensor(dtype=int32, shape=[4, 32])
        barriers = self.mbarrier.alloc(counts=[None])
        phase: uint32 = 0
        self.sync()
        self.store_shared(s_y, self.load_global(g_x, offsets=[0, 0], shape=[4, 32]))
        for i in range(rounds):
            self.mbarrier.arrive(barriers[0])
            self.mbarrier.wait(barriers[0], phase=phase)
            phase ^= 1
        self.store_global(g_y, self.load_shared(s_y) + rounds, offsets=[0, 0])


class Ahead(tilus.Script):
    """Warp 0 completes `ahead` phases before warp 1 waits for parity `parity` of the first."""

    def __init__(self, ahead: int, parity: int):
        super().__init__()
        self.ahead = ahead
        self.parity = parity

    def __call__(self, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g_y = self.global_view(y_ptr, dtype=int32, shape=[32])
        barrier = self.mbarrier.alloc(counts=32)
        self.sync()
        with self.single_warp(0):
            if self.ahead > 0:
                for i in range(self.ahead):
                    self.mbarrier.arrive(barrier)
        self.sync()
        with self.single_warp(1):
            self.mbarrier.wait(barrier, phase=self.parity)
            self.store_global(g_y, self.register_tensor(dtype=int32, shape=[32], init=7), offsets=[0])


class TwoFaults(tilus.Script):
    """The first CTA slices tensor memory out of bounds; the second copies x to y."""

    def __call__(self, start: int32, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.warps = 4
        g_x = self.global_view(x_ptr, dtype=int32, shape=[2, 32])
        g_y = self.global_view(y_ptr, dtype=int32, shape=[2, 32])
        t = self.tcgen05.alloc(dtype=float32, shape=[128, 32])
        if self.blockIdx.x == 0:
            part = self.tcgen05.slice(t, offsets=[0, start], dims=[0, 1], shape=[128, 16])
            self.tcgen05.store(part, self.register_tensor(dtype=float32, shape=[128, 16], init=0.0))
            self.tcgen05.wait_store()
        row = self.load_global(g_x, offsets=[self.blockIdx.x, 0], shape=[32], dims=[1])
        self.store_global(g_y, row, offsets=[self.blockIdx.x, 0], dims=[1])
        self.sync()
        self.tcgen05.dealloc(t)


class AcrossCtas(tilus.Script):
    """CTA 0 stores x by TMA and releases a semaphore; CTA 1 takes it and reads what was stored."""

    def __init__(self, read: bool = False):
        super().__init__()
        self.read = read

    def __call__(self, x_ptr: void_p, t_ptr: void_p, semaphore: ~int32, y_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float16, shape=[ROWS, COLUMNS])
        g_t = self.global_view(t_ptr, dtype=float16, shape=[ROWS, COLUMNS])
        g_y = self.global_view(y_ptr, dtype=float16, shape=[ROWS, COLUMNS])
        s_x = self.shared_tensor(dtype=float16, shape=[ROWS, COLUMNS])
        if self.blockIdx.x == 0:
            self.store_shared(s_x, self.load_global(g_x, offsets=[0, 0], shape=[ROWS, COLUMNS]))
            self.fence.proxy_async(space="shared")
            self.sync()
            self.tma.shared_to_global(s_x, g_t, offsets=[0, 0])
            self.tma.commit_group()
            self.tma.wait_group(n=0, read=self.read)
            self.release_semaphore(semaphore, value=1)
        else:
            self.lock_semaphore(semaphore, value=1)
            self.release_semaphore(semaphore, value=0)
            self.store_global(g_y, self.load_global(g_t, offsets=[0, 0], shape=[ROWS, COLUMNS]), offsets=[0, 0])


class LinearCopy(tilus.Script):
    """y = x by linear bulk copies (cp.async.bulk), which only the builder under the language offers.

    Each thread announces what it copies, so that the arrival comes after the copy. again: the arrival announces the
    bytes once more. early: it comes before the copy. row: where the tile begins.
    """

    def __init__(self, warps: int = 1, wait: bool = True, again: bool = False, early: bool = False, row: int = 0):
        super().__init__()
        self.warps = warps
        self.wait = wait
        self.again = again
        self.early = early
        self.row = row

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = self.warps
        g_x = self.global_view(x_ptr, dtype=float32, shape=[4, 64])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[4, 64])
        s_x = self.shared_tensor(dtype=float32, shape=[4, 64])
        full = self.mbarrier.alloc(counts=1)
        self.sync()
        if self.early:
            with self.single_thread():
                self.mbarrier.arrive(full)
            self.sync()
        self._builder.copy_async_bulk_global_to_shared(g_x, s_x, [self.row, 0], [0, 1], full.item())
        self.sync()
        if self.again:
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=s_x.nbytes)
        elif not self.early:
            with self.single_thread():
                self.mbarrier.arrive(full)
        if self.wait:
            self.mbarrier.wait(full, phase=0)
        self._builder.copy_async_bulk_shared_to_global(s_x, g_y, [0, 0], [0, 1])
        self.tma.commit_group()
        self.tma.wait_group(0)
