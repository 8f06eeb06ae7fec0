"""A CTA arrives at another one's mbarrier that may not be initialised yet."""

import tilus
import torch
from tilus import int32, void_p

from zoo.bug import CLUSTER_SYNC, Bug, Ptx, Script


class Kernel(tilus.Script):
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired

    def __call__(self, y_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 1
        rank: int32 = self.cluster.blockRank
        met = self.mbarrier.alloc(counts=2)
        if self.repaired:
            self.cluster.sync()
        self.mbarrier.arrive_and_expect_tx_multicast(met, 0, multicast_mask=3)
        self.mbarrier.wait(met, phase=0, scope="cluster")
        self.cluster.sync()


BUG = Bug(
    title="A CTA arrives at the other CTA's mbarrier with no cluster barrier behind its initialisation",
    sources=(
        "https://github.com/facebookexperimental/triton/pull/652",
        "https://github.com/facebookexperimental/triton/pull/2389",
    ),
    says="Without a cluster barrier a CTA could arrive at an mbarrier of the other one that is not initialised yet.",
    guess="",
    section="mbarrier.init, barrier.cluster",
    ptx=Ptx(
        f"""
@%first mbarrier.init.shared::cta.b64 [%bar], 64;
bar.sync 0; //-
fence.mbarrier_init.release.cluster; {CLUSTER_SYNC} //+
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%peer_bar];
wait.acquire.cluster [%bar], 0;
{CLUSTER_SYNC}
""",
        "mbarrier-not-initialised",
        ctas=2,
        cluster=2,
    ),
    script=Script(Kernel, lambda: (torch.zeros(1),), "mbarrier-not-initialised"),
)
