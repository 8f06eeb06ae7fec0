"""A multicast copy overwrites a buffer that the other CTA still reads, as a view hid it from the analysis."""

import tilus
import torch
from tilus import float32, int32, void_p

from zoo.bug import CLUSTER_SYNC, Bug, Ptx, Script

COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"


class Kernel(tilus.Script):
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 1
        rank: int32 = self.cluster.blockRank
        g_x = self.global_view(x_ptr, dtype=float32, shape=[2, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[4, 32])
        s = self.shared_tensor(dtype=float32, shape=[1, 32])
        full = self.mbarrier.alloc(counts=1)
        self.cluster.sync()
        for i in range(2):
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=128)
            if rank == 0:
                self.tma.global_to_shared(src=g_x, dst=s, offsets=[i, 0], mbarrier=full, multicast_mask=3)
            self.mbarrier.wait(full, phase=i)
            self.store_global(g_y, self.load_shared(s), offsets=[2 * i + rank, 0])
            self.fence.proxy_async(space="shared")
            if self.repaired:
                self.cluster.sync()
            else:
                self.sync()
        self.cluster.sync()


BUG = Bug(
    title="A multicast copy fills a buffer anew behind a barrier of the CTA; the other CTA of the cluster still "
    "reads it",
    sources=("https://github.com/triton-lang/triton/issues/11328", "https://github.com/triton-lang/triton/pull/11411"),
    says="The pass that inserts cluster barriers misses effects on views of a buffer, so a multicast copy into a"
    " view gets no cluster barrier before the bytes are used again. A reproducer with four CTAs fails in "
    "each of 1000 trials.",
    guess="Two CTAs, and the next copy as the second use.",
    section="cp.async.bulk (.multicast::cluster), barrier.cluster",
    ptx=Ptx(
        f"""
@%first mbarrier.init.shared::cta.b64 [%bar], 1; fence.mbarrier_init.release.cluster; {CLUSTER_SYNC}
.reg .b16 %h<2>; mov.b16 %h1, 3; mov.u32 %r10, 0;
TURN:
@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 256;
@%c1 bra LOADED; @!%first bra LOADED;
{COPY} [%tile], [%base], 256, [%bar], %h1;
LOADED:
wait [%bar], %r10;
ld.shared.b32 %r11, [%other]; st.global.b32 [%out+4096], %r11; fence.proxy.async;
bar.sync 0; //-
{CLUSTER_SYNC} //+
add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 2; @%p1 bra TURN;
{CLUSTER_SYNC}
""",
        "data-race",
        ctas=2,
        cluster=2,
    ),
    script=Script(Kernel, lambda: (torch.ones(2, 32), torch.zeros(4, 32)), "data-race"),
)
