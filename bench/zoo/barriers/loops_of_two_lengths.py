"""Two CTAs of a cluster share stages and turn their loops a different number of times."""

import tilus
import torch
from tilus import float32, int32, void_p

from zoo.bug import CLUSTER_SYNC, Bug, Ptx, Script


class Kernel(tilus.Script):
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 1
        rank: int32 = self.cluster.blockRank
        g_x = self.global_view(x_ptr, dtype=float32, shape=[1, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[1, 32])
        met = self.mbarrier.alloc(counts=2)
        turns: int32 = 2 if self.repaired else 2 + rank
        self.cluster.sync()
        for i in range(turns):
            self.mbarrier.arrive_and_expect_tx_multicast(met, 0, multicast_mask=3)
            self.mbarrier.wait(met, phase=i % 2, scope="cluster")
        self.cluster.sync()


BUG = Bug(
    title="The CTAs of a pair that share stages work on groups with different K, and one waits for the other for ever",
    sources=("https://github.com/deepseek-ai/DeepGEMM/pull/429",),
    says="With 121 tiles a group and clusters of two, a pair has tiles of two groups, whose loops over K differ "
    "in length. They meet at mbarriers of both CTAs in each turn: a deadlock.",
    guess="Loops of two and three turns here.",
    section="Phase of the mbarrier object",
    ptx=Ptx(
        f"""
@%first mbarrier.init.shared::cta.b64 [%bar], 2; fence.mbarrier_init.release.cluster; {CLUSTER_SYNC}
@!%first bra END;
mov.u32 %r10, 0;
add.u32 %r11, %rank, 2; //-
mov.u32 %r11, 2; //+
TURN: and.b32 %r12, %r10, 1;
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%peer_bar]; mbarrier.arrive.shared::cta.b64 _, [%bar];
wait.acquire.cluster [%bar], %r12;
add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, %r11; @%p1 bra TURN;
END: {CLUSTER_SYNC}
""",
        "deadlock",
        ctas=2,
        cluster=2,
    ),
    script=Script(Kernel, lambda: (torch.ones(1, 32), torch.zeros(1, 32)), "deadlock"),
)
