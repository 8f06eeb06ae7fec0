"""A pair allocates tensor memory before a CTA can know that the other one runs."""

import tilus
import torch
from tilus import float32, int32, void_p

from zoo.bug import CLUSTER_SYNC, Bug, Ptx, Script


class Kernel(tilus.Script):
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired

    def __call__(self, y_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 4
        rank: int32 = self.cluster.blockRank
        if self.repaired:
            self.cluster.sync()
        t = self.tcgen05.alloc(dtype=float32, shape=[128, 32], cta_group=2)
        self.cluster.sync()
        self.tcgen05.dealloc(t)
        self.cluster.sync()


BUG = Bug(
    title="A pair allocates tensor memory at the start, and nothing says that the other CTA has been launched",
    sources=("https://github.com/NVIDIA/cutlass/pull/3316", "https://github.com/triton-lang/triton/pull/10735"),
    says="The issuing warp has to make sure that the other CTA is launched. racecheck of CUDA 13.1 reports a "
    "hazard at the allocator of a tutorial. The repair in both projects: a cluster barrier before the "
    "allocation.",
    guess="",
    section="tcgen05.alloc (cta_group::2: the peer CTA is launched)",
    ptx=Ptx(
        f"""
{CLUSTER_SYNC} //+
@%w0 tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%bar+96], 64; bar.sync 0;
ld.shared.b32 %tmem, [%bar+96];
{CLUSTER_SYNC}
@%w0 tcgen05.dealloc.cta_group::2.sync.aligned.b32 %tmem, 64;
{CLUSTER_SYNC}
""",
        "(peer-not-started)",
        ctas=2,
        cluster=2,
        target="sm_100a",
    ),
    script=Script(Kernel, lambda: (torch.zeros(1),), "(peer-not-started)"),
    sanitizer="racecheck: a potential RAW hazard between the CTAs at the allocator, as published",
)
