"""The first wgmma of a kernel has no wgmma.fence before it."""

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
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=float16, shape=[64, 64])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[32, 64])
        g_d = self.global_view(d_ptr, dtype=float32, shape=[64, 32])
        s_a = self.shared_tensor(dtype=float16, shape=[64, 64])
        s_b = self.shared_tensor(dtype=float16, shape=[32, 64])
        self.store_shared(s_a, self.load_global(g_a, offsets=[0, 0], shape=[64, 64]))
        self.store_shared(s_b, self.load_global(g_b, offsets=[0, 0], shape=[32, 64]))
        self.fence.proxy_async(space="shared")
        self.sync()
        acc = self.register_tensor(dtype=float32, shape=[64, 32], init=0.0)
        if self.repaired:
            self.wgmma.fence()
        self.wgmma.mma(s_a, s_b.transpose(), acc)
        self.wgmma.commit_group()
        self.wgmma.wait_group(0)
        self.store_global(g_d, acc, offsets=[0, 0])


BUG = Bug(
    title="A wgmma has no wgmma.fence between the writes of its registers and itself",
    sources=("https://github.com/NVIDIA/Fuser/pull/3680",),
    says="The generator did not put wgmma.fence in front of every group of wgmma; the change always does.",
    guess="That a kernel was wrong without it is not published.",
    section="wgmma.fence",
    ptx=Ptx(
        FILL
        + "fence.proxy.async; bar.sync 0;"
        + DESCRIPTORS
        + """
mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
wgmma.fence.sync.aligned; //+
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %desc_a, %desc_b, 1, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 0;
st.global.f32 [%out], %f0;
""",
        "missing-wgmma-fence",
        threads=128,
    ),
    script=Script(
        Kernel,
        lambda: (torch.ones(64, 64).half(), torch.ones(32, 64).half(), torch.zeros(64, 32)),
        "missing-wgmma-fence",
        target="sm_90a",
    ),
)
