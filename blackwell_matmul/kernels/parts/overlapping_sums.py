"""Two accumulators of a pair of CTAs in tensor memory, which overlap where the columns do not suffice for both.

An example of 256 columns each, with 96 columns for scales behind them; both have the columns of each #:

    columns             0        160        256        416        512
    first accumulator   |...........##########|
    second accumulator              |##########..........|  scales  |
    stored first                    <- to the left, from the right end of the first; to the right in the second ->

The warps that store begin with the shared columns. Once these are in registers, the next tile may be multiplied.
"""

import tilus
from tilus import RegisterTensor, int32
from tilus.utils import cdiv

from blackwell_matmul.kernels.parts.ring import Ring
from blackwell_matmul.scheduling.mma import ScaledTcgen05


class OverlappingSums(tilus.Class):
    """Accumulators of `block_n` columns, their barriers, and the place of the calling warp.

    e_block_n: columns of a strip. others: columns after the accumulators, from column `behind` on. columns: number of
    columns of all. An accumulator is full after one arrival, by tcgen05.commit, and empty, at the leader, after one of
    each of the 128 threads of both CTAs that store.
    """

    def __init__(self, block_n: int, e_block_n: int, others: int):
        self.overlap = ScaledTcgen05.overlap(block_n, others)
        self.second = block_n - self.overlap
        self.behind = block_n + self.second
        self.columns = self.behind + others
        self.last_strip = block_n - e_block_n
        self.last_shared = (cdiv(self.overlap, e_block_n) - 1) * e_block_n if self.overlap else self.last_strip
        # Of two that overlap one is full, or is being filled, at a time.
        self.ring = Ring(1 if self.overlap else 2, empties=2 * 128, scope="cluster")
        self.turn: int32 = 0

    def column(self):
        """Return the first column of this accumulator."""
        return self.turn * self.second

    def strip(self, offset: int32):
        """Return the strip to store next, after `offset` columns of others: its column in the tile, and in `t_acc`."""
        strip: int32 = offset if self.turn == 1 else self.last_strip - offset
        return strip, self.column() + strip

    def full(self) -> RegisterTensor:
        """Return the barrier that becomes complete when this accumulator is full."""
        return self.ring.full()

    def wait_full(self):
        """Wait until this accumulator is full."""
        self.ring.wait_full()

    def wait_empty(self):
        """Wait until this accumulator, and the columns that it shares, are empty."""
        self.ring.wait_empty()

    def loaded(self, offset: int32):
        """Arrive at the leader's barrier, if the strip at `offset` is the last one that the next tile shares."""
        if offset == self.last_shared:
            self.mbarrier.arrive_and_expect_tx_remote(
                self.ring.empty(), transaction_bytes=0, target_rank=0, scope="cluster"
            )

    def advance(self):
        """Advance to the other accumulator."""
        self.ring.advance()
        self.turn = self.turn ^ 1
