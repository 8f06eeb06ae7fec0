"""Lanes store a stage each by TMA, and the elected lane alone waits for the stores."""

import tilus
import torch
from tilus import float32, void_p

from zoo.bug import Bug, Ptx, Script


class Kernel(tilus.Script):
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.lane = 0 if repaired else 7

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 2
        g_x = self.global_view(x_ptr, dtype=float32, shape=[2, 64])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[2, 64])
        s = self.shared_tensor(dtype=float32, shape=[1, 64])
        for i in range(2):
            self.store_shared(s, self.load_global(g_x, offsets=[i, 0], shape=[1, 64]))
            self.fence.proxy_async(space="shared")
            self.sync()
            with self.single_warp(0):
                self.tma.shared_to_global(s, g_y, offsets=[i, 0])
                self.tma.commit_group()
                if self.repaired:
                    self.tma.wait_group(0)
                else:
                    with self.single_thread(7):
                        self.tma.wait_group(0)
            self.sync()
        with self.single_warp(0):
            self.tma.wait_group(0)


BUG = Bug(
    title="Four lanes store a stage each, and the elected lane alone waits before the stages are written again",
    sources=("https://github.com/deepseek-ai/DeepEP/issues/549", "https://github.com/deepseek-ai/DeepEP/pull/527"),
    says="Bulk groups belong to the thread that issues them: stores and waits under elect_one are all lane 0's. "
    "The proposed change lets each of the first lanes store and wait for its own stage.",
    guess="The source asks about concurrency. The fault shown here is what half of that change gives: the stores "
    "by four lanes, the wait still by the elected one.",
    section="cp.async.bulk.wait_group (the executing thread's groups)",
    ptx=Ptx(
        """
st.shared.b32 [%mine], %t; fence.proxy.async.shared::cta; bar.sync 0;
setp.lt.u32 %p1, %t, 4; mad.lo.s32 %r10, %t, 64, %tile; mul.wide.u32 %x1, %t, 64; add.s64 %x1, %x1, %base;
@%p1 cp.async.bulk.global.shared::cta.bulk_group [%x1], [%r10], 64; @%p1 cp.async.bulk.commit_group;
@%first cp.async.bulk.wait_group 0; //-
@%p1 cp.async.bulk.wait_group 0; //+
bar.sync 0;
st.shared.b32 [%mine], %lane;
@%p1 cp.async.bulk.wait_group 0;
""",
        "overwritten-in-flight",
    ),
    script=Script(Kernel, lambda: (torch.ones(2, 64), torch.zeros(2, 64)), "overwritten-in-flight"),
)
