"""A mask of CTAs names one that the cluster does not have."""

import tilus
import torch
from tilus import int32, void_p

from zoo.bug import CLUSTER_SYNC, Bug, Ptx, Script

COMMIT = "tcgen05.commit.cta_group::1.mbarrier::arrive::one.shared::cluster.multicast::cluster.b64"


class Kernel(tilus.Script):
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.ctas = 3 if repaired else 7

    def __call__(self, y_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 1
        rank: int32 = self.cluster.blockRank
        done = self.mbarrier.alloc(counts=2)
        self.cluster.sync()
        self.tcgen05.commit(done, multicast_mask=self.ctas)
        self.mbarrier.wait(done, phase=0)
        self.cluster.sync()


BUG = Bug(
    title="The mask of a multicast commit names a CTA beyond the cluster",
    sources=("https://github.com/NVIDIA/cutlass/issues/3658",),
    says="The mask always includes the image of a peer, also where there are no pairs. Then it names the CTA "
    "after the last one of the cluster: an out-of-range fault (Xid 13).",
    guess="",
    section="tcgen05.commit (ctaMask)",
    ptx=Ptx(
        f"""
@%first mbarrier.init.shared::cta.b64 [%bar], 2; fence.mbarrier_init.release.cluster; {CLUSTER_SYNC}
.reg .b16 %h<2>;
mov.b16 %h1, 7; //-
mov.b16 %h1, 3; //+
@%first {COMMIT} [%bar], %h1;
wait [%bar], 0;
{CLUSTER_SYNC}
""",
        "no-such-cta",
        ctas=2,
        cluster=2,
        target="sm_100a",
    ),
    script=Script(Kernel, lambda: (torch.zeros(1),), "no-such-cta"),
)
