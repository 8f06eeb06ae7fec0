"""A CTA relies on the response of cluster launch control for the order of its readers."""

import tilus
import torch
from tilus import int32

from zoo.bug import CLUSTER_SYNC, Bug, Ptx, Script

ASK = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128"


class Kernel(tilus.Script):
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired

    def __call__(self, rows: int32, x_ptr: ~int32, y_ptr: ~int32):
        self.attrs.blocks = rows
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 2
        rank: int32 = self.cluster.blockRank
        g_x = self.global_view(x_ptr, dtype=int32, shape=[1, 32])
        g_y = self.global_view(y_ptr, dtype=int32, shape=[rows, 32])
        response = self.shared_tensor(dtype=int32, shape=[1, 4])
        s = self.shared_tensor(dtype=int32, shape=[1, 32])
        answered = self.mbarrier.alloc(counts=1)
        read = self.mbarrier.alloc(counts=64)
        own = self.mbarrier.alloc(counts=32)
        ones = self.load_global(g_x, offsets=[0, 0], shape=[1, 32])
        with self.single_warp(0):
            self.store_shared(s, ones)
        self.cluster.sync()
        with self.single_warp(1):
            self.store_global(g_y, self.load_shared(s), offsets=[self.blockIdx.x, 0])
            self.mbarrier.arrive_and_expect_tx_remote(read, 0, target_rank=0, scope="cluster")
            self.mbarrier.arrive(own)
        with self.single_warp(0):
            if rank == 0:
                self.mbarrier.wait(read, phase=0, scope="cluster")
                self.mbarrier.arrive_and_expect_tx_multicast(answered, 16, multicast_mask=3)
                self.clc.try_cancel(response[0], mbarrier=answered, multicast=True)
            self.mbarrier.wait(answered, phase=0)
            if self.repaired:
                self.mbarrier.wait(own, phase=0)
            self.store_shared(s, ones)
        self.cluster.sync()


BUG = Bug(
    title="A CTA overwrites a slot because a multicast CLC response came, which is no news of its own readers",
    sources=("https://github.com/triton-lang/triton/pull/10926", "https://github.com/triton-lang/triton/pull/10863"),
    says="The readers of both CTAs arrive at CTA 0, which asks by try_cancel and multicasts the response. The "
    "wait for the response does not make the readers' loads visible to CTA 1, although nothing else could "
    "have come first.",
    guess="",
    section="clusterlaunchcontrol.try_cancel (weak writes of the async proxy), Causality Order",
    ptx=Ptx(
        f"""
@%first mbarrier.init.shared::cta.b64 [%bar], 1; @%first mbarrier.init.shared::cta.b64 [%bar+8], 64;
@%first mbarrier.init.shared::cta.b64 [%bar+16], 32;
st.shared.b32 [%mine], %t; fence.mbarrier_init.release.cluster; {CLUSTER_SYNC}
@!%w1 bra SCHEDULER;
ld.shared.b32 %r10, [%mine]; st.global.b32 [%out], %r10;
mapa.shared::cluster.u32 %r11, %bar, 0; mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r11+8];
mbarrier.arrive.shared::cta.b64 _, [%bar+16]; //+
bra END;
SCHEDULER:
@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 16;
@%c1 bra ASKED;
wait.acquire.cluster [%bar+8], 0;
add.s32 %r12, %bar, 64;
@%first {ASK} [%r12], [%bar];
ASKED:
wait [%bar], 0;
wait [%bar+16], 0; //+
st.shared.b32 [%other], %lane;
END: {CLUSTER_SYNC}
""",
        "data-race",
        ctas=4,
        cluster=2,
        target="sm_100a",
    ),
    script=Script(
        Kernel,
        lambda: (2, torch.ones(1, 32, dtype=torch.int32), torch.ones(2, 32, dtype=torch.int32)),
        "(relaxed-wait)",
    ),
    consan="reports the write as a race, as published",
)
