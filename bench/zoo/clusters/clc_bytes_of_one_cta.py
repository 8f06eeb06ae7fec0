"""One CTA alone announces the bytes of a response that comes to both."""

import tilus
import torch
from tilus import int32, uint32

from zoo.bug import CLUSTER_SYNC, Bug, Ptx, Script

ASK = "clusterlaunchcontrol.try_cancel.async.shared::cta.mbarrier::complete_tx::bytes.multicast::cluster::all.b128"


class Kernel(tilus.Script):
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired

    def __call__(self, rows: int32, y_ptr: ~int32):
        self.attrs.blocks = rows
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 1
        rank: int32 = self.cluster.blockRank
        g_y = self.global_view(y_ptr, dtype=int32, shape=[rows, 32])
        response = self.shared_tensor(dtype=int32, shape=[1, 4])
        full = self.mbarrier.alloc(counts=1)
        free = self.mbarrier.alloc(counts=64)
        self.cluster.sync()
        row: int32 = self.blockIdx.x
        phase: uint32 = 0
        while True:
            self.store_global(g_y, self.register_tensor(dtype=int32, shape=[1, 32], init=1), offsets=[row, 0])
            if rank == 0:
                self.mbarrier.wait(free, phase=phase ^ 1, scope="cluster")
                if self.repaired:
                    self.mbarrier.arrive_and_expect_tx_multicast(full, 16, multicast_mask=3)
                else:
                    with self.single_thread():
                        self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=16)
                self.clc.try_cancel(response[0], mbarrier=full, multicast=True)
            self.mbarrier.wait(full, phase=phase)
            is_valid, first = self.clc.query_response(response[0])
            self.fence.proxy_async(space="shared")
            self.mbarrier.arrive_and_expect_tx_remote(free, 0, target_rank=0, scope="cluster")
            phase = phase ^ 1
            if is_valid:
                row = first.x + rank
            else:
                break
        self.cluster.sync()


BUG = Bug(
    title="A multicast CLC response comes to both CTAs, and the first one alone announces its bytes",
    sources=(
        "https://github.com/facebookexperimental/triton/pull/1024",
        "https://github.com/facebookexperimental/triton/pull/908",
    ),
    says="try_cancel with multicast writes the response to each CTA and signals the mbarrier of each. CTA 0 "
    "alone expected bytes, so the waits of all odd CTAs never ended.",
    guess="",
    section="clusterlaunchcontrol.try_cancel (.multicast::cluster::all)",
    ptx=Ptx(
        f"""
@%first mbarrier.init.shared::cta.b64 [%bar], 1; fence.mbarrier_init.release.cluster; {CLUSTER_SYNC}
@!%first bra ASKED;
@%c0 mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 16; //-
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 16; //+
add.s32 %r12, %bar, 64;
@%c0 {ASK} [%r12], [%bar];
ASKED:
wait [%bar], 0;
{CLUSTER_SYNC}
""",
        "deadlock",
        ctas=4,
        cluster=2,
        target="sm_100a",
    ),
    script=Script(Kernel, lambda: (8, torch.zeros(8, 32, dtype=torch.int32)), "deadlock"),
)
