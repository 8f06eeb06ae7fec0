"""`Ring`: stages of memory that some warps fill and others empty, in turn, as V3 spells it out."""

import tilus
from tilus import RegisterTensor, int32, uint32


class Ring(tilus.Class):
    """A barrier that says "full" and one that says "empty" for each of `stages`, and where the calling warp is.

    Each warp goes round by itself: `stage` is the one whose turn it is, `phase` the parity of the lap. Those who fill
    call `wait_empty` and see to `fills` arrivals, and the bytes that they announce, at `full()`; those who empty call
    `wait_full` and see to `empties` arrivals at `empty()`; then both `advance`. scope: of whom a wait hears.
    """

    def __init__(self, stages: int, fills: int = 1, empties: int = 1, scope: str = "cta"):
        self.stages = stages
        self.scope = scope
        self.full_barriers = self.mbarrier.alloc(counts=[fills for _ in range(stages)])
        self.empty_barriers = self.mbarrier.alloc(counts=[empties for _ in range(stages)])
        self.stage: int32 = 0
        self.phase: uint32 = 0

    def full(self) -> RegisterTensor:
        return self.full_barriers[self.stage]

    def empty(self, back: int = 0) -> RegisterTensor:
        """The barrier of this stage, or of the one before it."""
        stage = (self.stages if self.stage == 0 else self.stage) - 1 if back else self.stage
        return self.empty_barriers[stage]

    def wait_full(self):
        self.mbarrier.wait(self.full(), phase=self.phase, scope=self.scope)

    def wait_empty(self):
        # A lap behind: nobody has to empty the stages of the first one, and the phase before the first counts as over.
        self.mbarrier.wait(self.empty(), phase=self.phase ^ 1, scope=self.scope)

    def advance(self):
        # No %: unless it is by a power of two, it takes longer than the wgmma of a small tile.
        self.stage = 0 if self.stage == self.stages - 1 else self.stage + 1
        self.phase = self.phase ^ (self.stage == 0)  # each lap is one phase of every barrier
