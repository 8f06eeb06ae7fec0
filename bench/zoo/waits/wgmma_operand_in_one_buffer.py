"""One operand of a wgmma in flight lies in a single buffer, which the next tile overwrites."""

import tilus
import torch
from tilus import float16, float32, void_p

from zoo.bug import DESCRIPTORS, FILL, Bug, Ptx, Script


class Kernel(tilus.Script):
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.pending = 0 if repaired else 1

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
        full = self.mbarrier.alloc(counts=1)
        self.fence.proxy_async(space="shared")
        self.sync()
        acc = self.register_tensor(dtype=float32, shape=[64, 32], init=0.0)
        self.wgmma.fence()
        self.wgmma.mma(s_a, s_b.transpose(), acc)
        self.wgmma.commit_group()
        self.wgmma.wait_group(self.pending)
        self.sync()
        with self.single_warp(0):
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=s_b.nbytes)
            self.tma.global_to_shared(src=g_b, dst=s_b, offsets=[0, 0], mbarrier=full)
        self.mbarrier.wait(full, phase=0)
        self.wgmma.wait_group(0)
        self.store_global(g_d, acc, offsets=[0, 0])


BUG = Bug(
    title="A wgmma is left in flight although one of its operands has a single buffer, which the next copy overwrites",
    sources=("https://github.com/triton-lang/triton/pull/3106",),
    says="A dot may stay in flight only if both operands have several buffers; the pass looked at one. The "
    "shared memory was overwritten before the wait.",
    guess="The next tile comes by a bulk copy here.",
    section="wgmma.wait_group",
    ptx=Ptx(
        "@%first mbarrier.init.shared::cta.b64 [%bar], 1;"
        + FILL
        + "fence.proxy.async; bar.sync 0;"
        + DESCRIPTORS
        + """
mov.f32 %f0, 0f00000000; mov.f32 %f1, %f0; mov.f32 %f2, %f0; mov.f32 %f3, %f0;
wgmma.fence.sync.aligned;
wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16 {%f0, %f1, %f2, %f3}, %desc_a, %desc_b, 1, 1, 1, 0, 0;
wgmma.commit_group.sync.aligned;
wgmma.wait_group.sync.aligned 1; //-
wgmma.wait_group.sync.aligned 0; //+
bar.sync 0;
@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 256;
@%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%tile+4096], [%base], 256, [%bar];
wait [%bar], 0;
wgmma.wait_group.sync.aligned 0;
""",
        "overwritten-in-flight",
        threads=128,
    ),
    script=Script(
        Kernel,
        lambda: (torch.ones(64, 64).half(), torch.ones(32, 64).half(), torch.zeros(64, 32)),
        "overwritten-in-flight",
        target="sm_90a",
    ),
)
