"""A CTA of a pair gives tensor memory back before the other one has allocated it."""

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
        self.cluster.sync()
        t = self.tcgen05.alloc(dtype=float32, shape=[128, 32], cta_group=2)
        if self.repaired:
            self.cluster.sync()
        else:
            self.sync()
        self.tcgen05.dealloc(t)
        self.cluster.sync()


BUG = Bug(
    title="A CTA of a pair gives tensor memory back while the other CTA's tcgen05.alloc has not completed",
    sources=("https://github.com/NVIDIA/cutlass/issues/3435", "https://github.com/triton-lang/triton/pull/8874"),
    says="With the second CTA delayed before its alloc, each of 96 launches on eight B300s failed with an "
    "unspecified launch failure. A cluster barrier anywhere between alloc and dealloc removes it.",
    guess="The code that a checker should give: what it lacks is knowledge of the other CTA.",
    section="tcgen05.alloc, tcgen05.dealloc (cta_group::2)",
    ptx=Ptx(
        f"""
{CLUSTER_SYNC}
@%w0 tcgen05.alloc.cta_group::2.sync.aligned.shared::cta.b32 [%bar+96], 64; bar.sync 0;
ld.shared.b32 %tmem, [%bar+96];
bar.sync 0; //-
{CLUSTER_SYNC} //+
@%w0 tcgen05.dealloc.cta_group::2.sync.aligned.b32 %tmem, 64;
{CLUSTER_SYNC}
""",
        "dealloc-in-flight",
        ctas=2,
        cluster=2,
        target="sm_100a",
    ),
    script=Script(Kernel, lambda: (torch.zeros(1),), "dealloc-in-flight"),
)
