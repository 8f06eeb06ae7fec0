"""The last arrival of a scheduler's consumer goes to a CTA that may have returned."""

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
        told = self.mbarrier.alloc(counts=1)
        self.cluster.sync()
        if rank == 1 and not self.repaired:
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx_remote(told, 0, target_rank=0)


BUG = Bug(
    title="A consumer without more work still arrives at the first CTA's mbarrier, and that CTA may have returned",
    sources=(
        "https://github.com/facebookexperimental/triton/pull/1108",
        "https://github.com/sgl-project/sglang/pull/32954",
    ),
    says="CTA 1 reads that there is no more work, and still tells CTA 0 that it has read. CTA 0 does not wait "
    "for that, and may be gone. The repair skips the arrival; another project adds a barrier at the end.",
    guess="",
    section="mbarrier.arrive (shared::cluster)",
    ptx=Ptx(
        f"""
@%first mbarrier.init.shared::cta.b64 [%bar], 1; fence.mbarrier_init.release.cluster; {CLUSTER_SYNC}
setp.eq.u32 %p1, %t, 0; and.pred %p1, %p1, %c1;
@%p1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%peer_bar]; //-
""",
        "exit-before-peer",
        ctas=2,
        cluster=2,
    ),
    script=Script(Kernel, lambda: (torch.zeros(1),), "exit-before-peer"),
    sanitizer="synccheck found it, as published",
)
