"""An mbarrier for commits of a pair counts those of both CTAs, and the leader alone commits."""

import tilus
import torch
from tilus import int32, void_p

from zoo.bug import CLUSTER_SYNC, PAIR_COMMIT, Bug, Ptx, Script


class Kernel(tilus.Script):
    def __init__(self, repaired: bool):
        super().__init__()
        self.count = 1 if repaired else 2

    def __call__(self, y_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 1
        rank: int32 = self.cluster.blockRank
        done = self.mbarrier.alloc(counts=self.count)
        self.cluster.sync()
        if rank == 0:
            self.tcgen05.commit(done, cta_group=2, multicast_mask=3)
        self.mbarrier.wait(done, phase=0)
        self.cluster.sync()


BUG = Bug(
    title="The helper that counts commits for an mbarrier does not know of pairs, whose leader commits for both CTAs",
    sources=("https://github.com/triton-lang/triton/pull/10196",),
    says="The helper lacked the flag for two CTAs, so that the number of arrivals was wrong for an MMA that "
    "multicasts. ConSan for several CTAs found it.",
    guess="That the count is too large here, by the factor of two.",
    section="tcgen05.commit, Phase of the mbarrier object",
    ptx=Ptx(
        f"""
@%first mbarrier.init.shared::cta.b64 [%bar], 2; //-
@%first mbarrier.init.shared::cta.b64 [%bar], 1; //+
fence.mbarrier_init.release.cluster; {CLUSTER_SYNC}
.reg .b16 %h<2>; mov.b16 %h1, 3;
@%c1 bra WAIT;
@%first {PAIR_COMMIT} [%bar], %h1;
WAIT:
wait [%bar], 0;
{CLUSTER_SYNC}
""",
        "deadlock",
        ctas=2,
        cluster=2,
        target="sm_100a",
    ),
    script=Script(Kernel, lambda: (torch.zeros(1),), "deadlock"),
    consan="found it, as published",
)
