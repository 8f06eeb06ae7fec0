"""Pipeline of stages: some warps fill stages of shared or tensor memory, others empty them. V3 spells it out.

An example of four stages; both sides go round to the right, and each lap is one phase of every barrier:

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
    """Pairs of mbarriers, "full" and "empty", one pair for each of `stages`, and the place of the calling warp.

    Each warp counts for itself: `stage` is its next stage, `phase` the parity of its lap.
    fills: arrivals, besides the announced bytes, that make a stage full. empties: arrivals that make it empty. scope:
    "cta" or "cluster", of the acquire in each wait.
    """

    def __init__(self, stages: int, fills: int = 1, empties: int = 1, scope: str = "cta"):
        self.stages = stages
        self.scope = scope
        self.full_barriers = self.mbarrier.alloc(counts=[fills for _ in range(stages)])
        self.empty_barriers = self.mbarrier.alloc(counts=[empties for _ in range(stages)])
        self.stage: int32 = 0
        self.phase: uint32 = 0

    def full(self) -> RegisterTensor:
        """Return the barrier that becomes complete when this stage is full."""
        return self.full_barriers[self.stage]

    def empty(self, back: int = 0) -> RegisterTensor:
        """Return the barrier that becomes complete when this stage is empty; back=1: when the stage before it is."""
        stage = (self.stages if self.stage == 0 else self.stage) - 1 if back else self.stage
        return self.empty_barriers[stage]

    def wait_full(self):
        """Wait until this stage is full."""
        self.mbarrier.wait(self.full(), phase=self.phase, scope=self.scope)

    def wait_empty(self):
        """Wait until this stage is empty."""
        # One lap behind: the stages of the first lap are empty, as the phase before the first counts as over.
        self.mbarrier.wait(self.empty(), phase=self.phase ^ 1, scope=self.scope)

    def advance(self):
        """Go on to the next stage."""
        # No %: except by a power of two, it takes longer than the wgmma of a small tile.
        self.stage = 0 if self.stage == self.stages - 1 else self.stage + 1
        self.phase = self.phase ^ (self.stage == 0)  # each lap is one phase of every barrier
