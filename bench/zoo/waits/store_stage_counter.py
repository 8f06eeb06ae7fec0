"""The stage of an epilogue's tile comes from a counter that stays 0."""

import tilus
import torch
from tilus import float32, void_p

from zoo.bug import Bug, Ptx, Script


class Kernel(tilus.Script):
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g_x = self.global_view(x_ptr, dtype=float32, shape=[5, 64])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[5, 64])
        s = self.shared_tensor(dtype=float32, shape=[2, 1, 64])
        for i in range(5):
            stage = i % 2 if self.repaired else 0
            with self.single_warp(0):
                self.tma.wait_group(1, read=True)
            self.sync()
            self.store_shared(s[stage], self.load_global(g_x, offsets=[i, 0], shape=[1, 64]))
            self.fence.proxy_async(space="shared")
            self.sync()
            with self.single_warp(0):
                self.tma.shared_to_global(s[stage], g_y, offsets=[i, 0])
                self.tma.commit_group()
        with self.single_warp(0):
            self.tma.wait_group(0)


BUG = Bug(
    title="The epilogue chooses its stage by a counter that its warps never advance, so each tile takes stage 0 again",
    sources=("https://github.com/NVIDIA/cutlass/pull/3636",),
    says="The scheduler warp alone advances its count of tiles; the epilogue's own stays 0. Each tile begins at "
    "stage 0, which the last TMA store may still read. Long mainloops hide it, short ones show it.",
    guess="The number of subtiles and stages is ours: two stages and one subtile.",
    section="cp.async.bulk.wait_group",
    ptx=Ptx(
        """
mov.u32 %r10, 0; mov.u32 %r11, 0;
TILE:
and.b32 %r12, %r11, 1; mad.lo.s32 %r13, %r12, 4096, %mine; mad.lo.s32 %r14, %r12, 4096, %tile;
@%first cp.async.bulk.wait_group.read 1; bar.sync 0;
st.shared.b32 [%r13], %r10; fence.proxy.async.shared::cta; bar.sync 0;
mul.wide.u32 %x1, %r10, 256; add.s64 %x1, %x1, %base;
@%first cp.async.bulk.global.shared::cta.bulk_group [%x1], [%r14], 256; @%first cp.async.bulk.commit_group;
add.u32 %r11, %r11, 1; //+
add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 5; @%p1 bra TILE;
@%first cp.async.bulk.wait_group 0;
""",
        "overwritten-in-flight",
    ),
    script=Script(Kernel, lambda: (torch.ones(5, 64), torch.zeros(5, 64)), "overwritten-in-flight"),
)
