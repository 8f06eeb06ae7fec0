"""A warpgroup refills a tile when its own wgmma is done; another warpgroup's may still read the tile."""

import tilus
import torch
from tilus import float16, float32, void_p

from zoo.bug import DESCRIPTORS, FILL, Bug, Ptx, Script


class Kernel(tilus.Script):
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired

    def __call__(self, a_ptr: void_p, b_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 8
        g_a = self.global_view(a_ptr, dtype=float16, shape=[128, 64])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[32, 64])
        g_d = self.global_view(d_ptr, dtype=float32, shape=[128, 32])
        s_a = self.shared_tensor(dtype=float16, shape=[2, 64, 64])
        s_b = self.shared_tensor(dtype=float16, shape=[32, 64])
        for half in range(2):
            self.store_shared(s_a[half], self.load_global(g_a, offsets=[64 * half, 0], shape=[64, 64]))
        self.store_shared(s_b, self.load_global(g_b, offsets=[0, 0], shape=[32, 64]))
        self.fence.proxy_async(space="shared")
        self.sync()
        with self.warp_group(0, 4):
            acc_0 = self.register_tensor(dtype=float32, shape=[64, 32], init=0.0)
            self.wgmma.fence()
            self.wgmma.mma(s_a[0], s_b.transpose(), acc_0)
            self.wgmma.commit_group()
            self.wgmma.wait_group(0)
            self.store_global(g_d, acc_0, offsets=[0, 0])
        with self.warp_group(4, 4):
            acc_1 = self.register_tensor(dtype=float32, shape=[64, 32], init=0.0)
            self.wgmma.fence()
            self.wgmma.mma(s_a[1], s_b.transpose(), acc_1)
            self.wgmma.commit_group()
            self.wgmma.wait_group(0)
            self.store_global(g_d, acc_1, offsets=[64, 0])
        if self.repaired:
            self.sync()
        with self.single_warp(0):
            self.store_shared(s_b, self.load_global(g_b, offsets=[0, 0], shape=[32, 64]))


BUG = Bug(
    title="A warpgroup waits for its own wgmma and refills the tile that another warpgroup's wgmma may still read",
    sources=("https://github.com/triton-lang/triton/issues/11047", "https://github.com/triton-lang/triton/pull/11050"),
    says="wgmma.wait_group speaks of the executing warps alone. Two warpgroups share operands; one goes on and "
    "copies the next tile over them. The repair puts a barrier of the CTA behind the wait.",
    guess="The source copies by cp.async; here the tile is stored.",
    section="wgmma.wait_group",
    ptx=Ptx(
        "setp.ge.u32 %p1, %t, 128; @%p1 bra FILLED;"
        + FILL
        + "FILLED: fence.proxy.async; bar.sync 0;"
        + DESCRIPTORS
        + """
mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %desc_a, %desc_b, 1, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
bar.sync 0; //+
@%w0 st.shared.b32 [%mine], 1;
""",
        "overwritten-in-flight",
        threads=256,
    ),
    script=Script(
        Kernel,
        lambda: (torch.ones(128, 64).half(), torch.ones(32, 64).half(), torch.zeros(128, 32)),
        "overwritten-in-flight",
        target="sm_90a",
    ),
)
