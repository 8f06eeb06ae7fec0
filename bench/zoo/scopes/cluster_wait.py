"""The leader of a pair waits with CTA scope for what the other CTA's threads wrote."""

import tilus
import torch
from tilus import float32, void_p

from zoo.bug import CLUSTER_SYNC, Bug, Ptx, Script


class Kernel(tilus.Script):
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.scope = "cluster" if repaired else "cta"

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float32, shape=[1, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[1, 32])
        told = self.mbarrier.alloc(counts=32)
        self.cluster.sync()
        if self.cluster.blockRank == 1:
            self.store_global(g_y, self.load_global(g_x, offsets=[0, 0], shape=[1, 32]), offsets=[0, 0])
            self.mbarrier.arrive_and_expect_tx_remote(told, 0, target_rank=0, scope="cluster")
        else:
            self.mbarrier.wait(told, phase=0, scope=self.scope)
            self.store_global(g_y, self.load_global(g_y, offsets=[0, 0], shape=[1, 32]) + 1.0, offsets=[0, 0])
        self.cluster.sync()


BUG = Bug(
    title="The leader waits with CTA scope for what the other CTA's threads wrote and released for the cluster",
    sources=("https://github.com/NVIDIA/cutlass/issues/3324",),
    says="A barrier between two CTAs arrives and waits with the default semantics of the CTA, so the leader's "
    "MMA may read before the other CTA's cp.async writes are visible. The proposed repair: cluster scope on"
    " both sides.",
    guess="Here the arrival is right and the wait alone is wrong; the leader reads by threads.",
    section="Morally strong operations, mbarrier.try_wait (.scope)",
    ptx=Ptx(
        """
@%first mbarrier.init.shared::cta.b64 [%bar], 64; fence.mbarrier_init.release.cluster; SYNC
@%c0 bra LEADER;
mapa.shared::cluster.u32 %r10, %mine, 0; mapa.shared::cluster.u32 %r11, %bar, 0;
st.shared::cluster.b32 [%r10], %t;
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r11];
bra END;
LEADER:
wait.acquire.cta [%bar], 0; //-
wait.acquire.cluster [%bar], 0; //+
ld.shared.b32 %r12, [%other]; st.global.b32 [%out], %r12;
END: SYNC
""".replace("SYNC", CLUSTER_SYNC),
        "relaxed-order",
        ctas=2,
        cluster=2,
    ),
    script=Script(Kernel, lambda: (torch.ones(1, 32), torch.zeros(1, 32)), "relaxed-wait"),
)
