"""Rows by cp.async in two buffers, after the CTAs of a cluster have told each other; see test_first_lines.py."""

import tilus
from tilus import float32, int32, void_p
from tilus.ir.layout.ops import spatial

ROWS, COLUMNS = 16, 64


class ToldRows(tilus.Script):
    """Two CTAs tell each other, at an mbarrier of the other one's rank, that a row of ones is stored. Then all
    warps of each copy tiles of x, and y = x + 1."""

    def __call__(self, tiles: int, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 4
        rank: int32 = self.cluster.blockRank
        g_x = self.global_view(x_ptr, dtype=float32, shape=[2 * tiles * ROWS, COLUMNS])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[2 * tiles * ROWS + 4, COLUMNS])
        s = self.shared_tensor(dtype=float32, shape=[2, ROWS, COLUMNS])
        told = self.mbarrier.alloc(counts=1)  # told
        self.cluster.sync()
        end: int32 = 2 * tiles * ROWS
        ones = self.register_tensor(dtype=float32, shape=[1, COLUMNS], init=1.0)
        self.store_global(g_y, ones, offsets=[end + rank, 0])  # mine
        self.sync()
        with self.single_thread():
            other = 1 - rank  # other
            self.mbarrier.arrive_and_expect_tx_remote(told, 0, target_rank=other, scope="cluster")  # tell
        row: int32 = rank * tiles * ROWS
        self.copy_async(src=g_x, dst=s[0], offsets=[row, 0])
        self.copy_async_commit_group()
        self.mbarrier.wait(told, phase=0, scope="cluster")
        theirs = self.load_global(g_y, offsets=[end + 1 - rank, 0], shape=[1, COLUMNS])  # theirs
        self.store_global(g_y, theirs, offsets=[end + 2 + rank, 0])
        for i in range(tiles):
            if i + 1 < tiles:
                self.copy_async(src=g_x, dst=s[(i + 1) % 2], offsets=[row + (i + 1) * ROWS, 0])  # copy
            self.copy_async_commit_group()
            self.copy_async_wait_group(1)  # wait
            self.sync()
            r = self.load_shared(s[i % 2])  # load
            self.annotate_layout(r, spatial(4, 1).spatial(4, 8).local(1, COLUMNS // 8))
            self.store_global(g_y, r + 1, offsets=[row + i * ROWS, 0])
            self.sync()  # done
