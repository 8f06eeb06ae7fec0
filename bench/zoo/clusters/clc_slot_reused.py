"""The next CLC response is asked for while the other CTA still reads the last one."""

import tilus
import torch
from tilus import int32, uint32

from zoo.bug import CLUSTER_SYNC, Bug, Ptx, Script

ASK = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128"


class Kernel(tilus.Script):
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.readers = 64 if repaired else 32

    def __call__(self, rows: int32, y_ptr: ~int32):
        self.attrs.blocks = rows
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 1
        rank: int32 = self.cluster.blockRank
        g_y = self.global_view(y_ptr, dtype=int32, shape=[rows, 32])
        response = self.shared_tensor(dtype=int32, shape=[1, 4])
        full = self.mbarrier.alloc(counts=1)
        free = self.mbarrier.alloc(counts=self.readers)
        self.cluster.sync()
        row: int32 = self.blockIdx.x
        phase: uint32 = 0
        while True:
            self.store_global(g_y, self.register_tensor(dtype=int32, shape=[1, 32], init=1), offsets=[row, 0])
            if rank == 0:
                self.mbarrier.wait(free, phase=phase ^ 1, scope="cluster")
                self.mbarrier.arrive_and_expect_tx_multicast(full, 16, multicast_mask=3)
                self.clc.try_cancel(response[0], mbarrier=full, multicast=True)
            self.mbarrier.wait(full, phase=phase)
            is_valid, first = self.clc.query_response(response[0])
            self.fence.proxy_async(space="shared")
            if self.repaired or rank == 0:
                self.mbarrier.arrive_and_expect_tx_remote(free, 0, target_rank=0, scope="cluster")
            phase = phase ^ 1
            if is_valid:
                row = first.x + rank
            else:
                break
        self.cluster.sync()


BUG = Bug(
    title="The scheduler asks for the next CLC response when its own CTA has read the last one; the other CTA has not",
    sources=("https://github.com/triton-lang/triton/pull/10863",),
    says="The response is written into every CTA of the cluster. The barrier that frees its slot is waited for "
    "by the leader, for its own CTA. The repair: barriers of each CTA, and a cluster barrier before the "
    "next request.",
    guess="A slot of one stage; the repair here counts the readers of both CTAs on one mbarrier.",
    section="clusterlaunchcontrol.try_cancel (.multicast::cluster::all)",
    ptx=Ptx(
        f"""
@%first mbarrier.init.shared::cta.b64 [%bar], 1;
@%first mbarrier.init.shared::cta.b64 [%bar+8], 64; //-
@%first mbarrier.init.shared::cta.b64 [%bar+8], 128; //+
fence.mbarrier_init.release.cluster; {CLUSTER_SYNC}
mov.u32 %r10, 0;
mapa.shared::cluster.u32 %r11, %bar, 0; add.s32 %r12, %bar, 64;
ROUND:
@!%first bra ASKED;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 16;
@%c1 bra ASKED;
xor.b32 %r13, %r10, 1;
wait.acquire.cluster [%bar+8], %r13;
{ASK} [%r12], [%bar];
ASKED:
wait [%bar], %r10;
ld.shared.v4.b32 {{%r14, %r15, %r16, %r17}}, [%bar+64];
fence.proxy.async;
@%c0 mbarrier.arrive.shared::cta.b64 _, [%bar+8]; //-
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r11+8]; //+
add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 2; @%p1 bra ROUND;
{CLUSTER_SYNC}
""",
        "data-race",
        ctas=6,
        cluster=2,
        target="sm_100a",
    ),
    script=Script(Kernel, lambda: (8, torch.zeros(8, 32, dtype=torch.int32)), "data-race"),
    consan="has a regression of this kind, as published",
)
