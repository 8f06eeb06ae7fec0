"""TMA refills a stage that threads have read, without a proxy fence."""

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
        g_x = self.global_view(x_ptr, dtype=float32, shape=[2, 64])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[2, 64])
        s = self.shared_tensor(dtype=float32, shape=[1, 64])
        full = self.mbarrier.alloc(counts=1)
        self.sync()
        for i in range(2):
            with self.single_warp(0):
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=256)
                self.tma.global_to_shared(src=g_x, dst=s, offsets=[i, 0], mbarrier=full)
            self.mbarrier.wait(full, phase=i)
            self.store_global(g_y, self.load_shared(s), offsets=[i, 0])
            if self.repaired:
                self.fence.proxy_async(space="shared")
            self.sync()


BUG = Bug(
    title="TMA loads into a stage that threads have read, and no proxy fence orders their reads before it",
    sources=("https://github.com/deepseek-ai/DeepGEMM/pull/389", "https://github.com/deepseek-ai/DeepEP/pull/642"),
    says="Two stages are filled by TMA, read by a warp and filled again. The mbarrier makes the copy visible to "
    "the readers; their reads are not ordered before the next copy. The repair: fence.proxy.async by each "
    "lane.",
    guess="Most rings do without, and no GPU is known to us that then fails; so this is unpromised, not an error.",
    section="Proxies",
    ptx=Ptx(
        """
@%first mbarrier.init.shared::cta.b64 [%bar], 1; bar.sync 0;
@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 256;
@%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%tile], [%base], 256, [%bar];
wait [%bar], 0;
ld.shared.b32 %r10, [%mine];
fence.proxy.async.shared::cta; //+
bar.sync 0;
@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 256;
@%first cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%tile], [%base], 256, [%bar];
wait [%bar], 1;
st.global.b32 [%out], %r10;
""",
        "(missing-proxy-fence)",
    ),
    script=Script(Kernel, lambda: (torch.ones(2, 64), torch.zeros(2, 64)), "(missing-proxy-fence)"),
    consan="takes a read without a fence as an error, as published in triton#10668",
)
