"""A wgmma reads operands that cp.async wrote, without a proxy fence."""

import tilus
import torch
from tilus import float16, float32, void_p

from zoo.bug import DESCRIPTORS, Bug, Ptx, Script


class Kernel(tilus.Script):
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired

    def __call__(self, a_ptr: void_p, b_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=float16, shape=[64, 64])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[32, 64])
        g_d = self.global_view(d_ptr, dtype=float32, shape=[64, 32])
        s_a = self.shared_tensor(dtype=float16, shape=[64, 64])
        s_b = self.shared_tensor(dtype=float16, shape=[32, 64])
        self.copy_async(src=g_a, dst=s_a, offsets=[0, 0])
        self.copy_async(src=g_b, dst=s_b, offsets=[0, 0])
        self.copy_async_wait_all()
        if self.repaired:
            self.fence.proxy_async(space="shared")
        self.sync()
        acc = self.register_tensor(dtype=float32, shape=[64, 32], init=0.0)
        self.wgmma.fence()
        self.wgmma.mma(s_a, s_b.transpose(), acc)
        self.wgmma.commit_group()
        self.wgmma.wait_group(0)
        self.store_global(g_d, acc, offsets=[0, 0])


BUG = Bug(
    title="wgmma reads operands that cp.async copied, and no proxy fence comes in between",
    sources=("https://github.com/triton-lang/triton/pull/10537",),
    says="A release lacks the fence between the generic and the async proxy that operands by cp.async need; the "
    "change that inserts it was taken over.",
    guess="The product, and that the whole operand comes by cp.async.",
    section="Proxies, cp.async",
    ptx=Ptx(
        """
mul.wide.u32 %x1, %t, 64; add.s64 %x1, %x1, %base; mad.lo.s32 %r10, %t, 64, %tile;
cp.async.cg.shared.global [%r10], [%x1], 16; cp.async.cg.shared.global [%r10+16], [%x1+16], 16;
cp.async.cg.shared.global [%r10+32], [%x1+32], 16; cp.async.cg.shared.global [%r10+48], [%x1+48], 16;
cp.async.commit_group; cp.async.wait_group 0;
fence.proxy.async.shared::cta; //+
bar.sync 0;
"""
        + DESCRIPTORS
        + """
mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %desc_a, %desc_b, 1, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
st.global.f32 [%out], %f0;
""",
        "missing-proxy-fence",
        threads=128,
    ),
    script=Script(
        Kernel,
        lambda: (torch.ones(64, 64).half(), torch.ones(32, 64).half(), torch.zeros(64, 32)),
        "missing-proxy-fence",
        target="sm_90a",
    ),
)
