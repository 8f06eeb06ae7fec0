"""Pipeline of stages: some warps fill stages of shared or tensor memory, others empty them. V3 has this code in full.

An example of four stages. Both sides go round to the right, and each round is one phase of every mbarrier:

    stage        0          1          2          3
    state      full       full      filling     empty
                 ^                     ^
           wait_full()           wait_empty()
           arrive at empty()     arrive at full()
           advance()             advance()
"""

import tilus
from tilus import RegisterTensor, int32, uint32


class Ring(tilus.Class):
    """Two mbarriers, "full" and "empty", for each of `stages` stages, and the next stage of the calling warp.

    stage, phase: index of the warp's next stage, and the parity of its round; each warp has its own. fills: arrivals,
    in addition to the announced bytes, after which a stage is full. empties: arrivals after which a stage is empty.
    scope: scope of the acquire in each wait, "cta" or "cluster".
    """

    def __init__(self, stages: int, fills: int = 1, empties: int = 1, scope: str = "cta"):
        self.stages = stages
        self.scope = scope
        self.full_barriers = self.mbarrier.alloc(counts=[fills for _ in range(stages)])
        self.empty_barriers = self.mbarrier.alloc(counts=[empties for _ in range(stages)])
        self.stage: int32 = 0
        self.phase: uint32 = 0

    def full(self) -> RegisterTensor:
        """Return the mbarrier whose phase completes when the current stage is full."""
        return self.full_barriers[self.stage]

    def empty(self, back: int = 0) -> RegisterTensor:
        """Return the mbarrier whose phase completes when the current stage is empty; back=1: the stage before it."""
        stage = (self.stages if self.stage == 0 else self.stage) - 1 if back else self.stage
        return self.empty_barriers[stage]

    def wait_full(self):
        """Wait until the current stage is full."""
        self.mbarrier.wait(self.full(), phase=self.phase, scope=self.scope)

    def wait_empty(self):
        """Wait until the current stage is empty."""
        # The other parity: in the first round a wait for it returns at once, so that all stages count as empty.
        self.mbarrier.wait(self.empty(), phase=self.phase ^ 1, scope=self.scope)

    def advance(self):
        """Advance to the next stage."""
        # No %: unless the divisor is a power of two, it takes longer than the wgmma of a small tile.
        self.stage = 0 if self.stage == self.stages - 1 else self.stage + 1
        self.phase = self.phase ^ (self.stage == 0)  # each round is one phase of every mbarrier
