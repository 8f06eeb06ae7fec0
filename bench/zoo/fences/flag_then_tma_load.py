"""A CTA polls a flag, and TMA then loads what the flag tells of."""

import tilus
import torch
from tilus import float32, int32, void_p

from zoo.bug import Bug, Ptx, Script


class Kernel(tilus.Script):
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired

    def __call__(self, x_ptr: void_p, t_ptr: void_p, flag: ~int32, y_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.warps = 1
        g_x = self.global_view(x_ptr, dtype=float32, shape=[1, 32])
        g_t = self.global_view(t_ptr, dtype=float32, shape=[1, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[1, 32])
        s = self.shared_tensor(dtype=float32, shape=[1, 32])
        full = self.mbarrier.alloc(counts=1)
        self.sync()
        if self.blockIdx.x == 0:
            self.store_global(g_t, self.load_global(g_x, offsets=[0, 0], shape=[1, 32]), offsets=[0, 0])
            self.sync()
            self.release_semaphore(flag, value=1)
        else:
            self.lock_semaphore(flag, value=1)
            self.release_semaphore(flag, value=0)
            if self.repaired:
                self.fence.proxy_async(space="global")
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=128)
            self.tma.global_to_shared(src=g_t, dst=s, offsets=[0, 0], mbarrier=full)
            self.mbarrier.wait(full, phase=0)
            self.store_global(g_y, self.load_shared(s), offsets=[0, 0])


BUG = Bug(
    title="A thread learns by a flag that data are in global memory, and TMA loads them without a proxy fence",
    sources=(
        "https://github.com/deepseek-ai/DeepEP/pull/632",
        "https://github.com/deepseek-ai/DeepEP/issues/621",
        "https://github.com/deepseek-ai/DeepEP/pull/642",
    ),
    says="The receiver polls through the generic proxy and loads by TMA, which may see stale data; results of an"
    " NVL72 were wrong, and right with ordinary loads or with fence.proxy.async. A maintainer writes that "
    "the code does not strictly conform to the memory model.",
    guess="The sender is another CTA of the grid here, and another GPU in the source.",
    section="Proxies, fence.proxy.async",
    ptx=Ptx(
        """
@%first mbarrier.init.shared::cta.b64 [%bar], 1; bar.sync 0;
setp.ne.u32 %p1, %cta, 0; @%p1 bra RECEIVER;
mul.wide.u32 %x1, %t, 4; add.s64 %x1, %x1, %base; st.global.b32 [%x1], %t; bar.sync 0;
@%first st.release.gpu.global.b32 [%base+4096], 1;
bra END;
RECEIVER: @!%first bra END;
POLL: ld.acquire.gpu.global.b32 %r10, [%base+4096]; setp.eq.u32 %p2, %r10, 0; @%p2 bra POLL;
fence.proxy.async.global; //+
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 256;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%tile], [%base], 256, [%bar];
wait [%bar], 0;
END:
""",
        "missing-proxy-fence",
        ctas=2,
    ),
    script=Script(
        Kernel,
        lambda: (torch.ones(1, 32), torch.zeros(1, 32), torch.zeros(1, dtype=torch.int32), torch.zeros(1, 32)),
        "missing-proxy-fence",
    ),
)
