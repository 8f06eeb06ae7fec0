"""Two accumulators of a CTA pair in tensor memory. They overlap if the columns do not suffice for both.

An example of 256 columns each, with 96 columns for scales after them. The accumulators share the columns marked #:

    columns             0        160        256        416        512
    first accumulator   |...........##########|
    second accumulator              |##########..........|  scales  |
    order of the stores             <- the first, from right to left    the second, from left to right ->

The warps that store begin with the shared columns. Once these are in registers, the next tile may overwrite them.
"""

import tilus
from tilus import RegisterTensor, int32
from tilus.utils import cdiv

from blackwell_matmul.kernels.parts.ring import Ring
from blackwell_matmul.scheduling.mma import ScaledTcgen05


class OverlappingSums(tilus.Class):
    """Accumulators of `block_n` columns, their mbarriers, and the accumulator that the calling warp uses next.

    e_block_n: columns of a strip. others: number of columns for scales, from column `behind` on. columns: number of all
    columns. An accumulator is full after one arrival by tcgen05.commit. It is empty, at the leader's mbarrier, after an
    arrival of each of the 128 threads of both CTAs that store.
    """

    def __init__(self, block_n: int, e_block_n: int, others: int):
        self.overlap = ScaledTcgen05.overlap(block_n, others)
        self.second = block_n - self.overlap
        self.behind = block_n + self.second
        self.columns = self.behind + others
        self.last_strip = block_n - e_block_n
        self.last_shared = (cdiv(self.overlap, e_block_n) - 1) * e_block_n if self.overlap else self.last_strip
        # Accumulators that overlap are used one at a time, so that one stage is enough.
        self.ring = Ring(1 if self.overlap else 2, empties=2 * 128, scope="cluster")
        self.turn: int32 = 0

    def column(self):
        """Return the first column of the current accumulator."""
        return self.turn * self.second

    def strip(self, offset: int32):
        """Return the next strip's first column in the tile and in `t_acc`. offset: number of columns stored before."""
        strip: int32 = offset if self.turn == 1 else self.last_strip - offset
        return strip, self.column() + strip

    def full(self) -> RegisterTensor:
        """Return the mbarrier whose phase completes when the current accumulator is full."""
        return self.ring.full()

    def wait_full(self):
        """Wait until the current accumulator is full."""
        self.ring.wait_full()

    def wait_empty(self):
        """Wait until the current accumulator, shared columns included, is empty."""
        self.ring.wait_empty()

    def loaded(self, offset: int32):
        """Signal that the strip at `offset` is in registers: arrive at the leader if it was the last shared strip."""
        if offset == self.last_shared:
            self.mbarrier.arrive_and_expect_tx_remote(
                self.ring.empty(), transaction_bytes=0, target_rank=0, scope="cluster"
            )

    def advance(self):
        """Advance to the other accumulator."""
        self.ring.advance()
        self.turn = self.turn ^ 1
