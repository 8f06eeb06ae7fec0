"""Threads tell the leader of a pair of what they copied by an arrival that releases for their own CTA."""

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
            self.mbarrier.arrive_and_expect_tx_remote(told, 0, target_rank=0, scope=self.scope)
        else:
            self.mbarrier.wait(told, phase=0, scope="cluster")
            self.store_global(g_y, self.load_global(g_y, offsets=[0, 0], shape=[1, 32]) + 1.0, offsets=[0, 0])
        self.cluster.sync()


BUG = Bug(
    title="Threads tell the other CTA of what they wrote by an arrival whose release is for their own CTA",
    sources=(
        "https://github.com/NVIDIA/cutlass/issues/3643",
        "https://github.com/NVIDIA/cutlass/pull/3647",
        "https://github.com/Dao-AILab/quack/issues/63",
    ),
    says="The example asks for CTA scope in mbarrier_arrive on the leader's barrier, so that the peer's cp.async"
    " writes are not released for the cluster. Results were wrong in 29 of 200 runs. A gather kernel of "
    "another project too.",
    guess="The leader reads by threads here, and by the tensor core in the sources.",
    section="Morally strong operations, mbarrier.arrive (.scope)",
    ptx=Ptx(
        """
@%first mbarrier.init.shared::cta.b64 [%bar], 64; fence.mbarrier_init.release.cluster; SYNC
@%c0 bra LEADER;
mapa.shared::cluster.u32 %r10, %mine, 0; mapa.shared::cluster.u32 %r11, %bar, 0;
st.shared::cluster.b32 [%r10], %t;
mbarrier.arrive.release.cta.shared::cluster.b64 _, [%r11]; //-
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r11]; //+
bra END;
LEADER:
wait.acquire.cluster [%bar], 0;
ld.shared.b32 %r12, [%other]; st.global.b32 [%out], %r12;
END: SYNC
""".replace("SYNC", CLUSTER_SYNC),
        "relaxed-order",
        ctas=2,
        cluster=2,
    ),
    script=Script(Kernel, lambda: (torch.ones(1, 32), torch.zeros(1, 32)), "relaxed-wait"),
    sanitizer='synccheck: "Barrier error detected. Missing wait" (of the wait that is missing too), as published',
)
