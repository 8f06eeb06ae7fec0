"""The leader multicasts into memory that the other CTA's epilogue still uses."""

import tilus
import torch
from tilus import float32, int32, void_p

from zoo.bug import CLUSTER_SYNC, Bug, Ptx, Script

COPY = "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster"


class Kernel(tilus.Script):
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.users = 64 if repaired else 32

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 1
        rank: int32 = self.cluster.blockRank
        g_x = self.global_view(x_ptr, dtype=float32, shape=[2, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[2, 32])
        s = self.shared_tensor(dtype=float32, shape=[1, 32])
        full = self.mbarrier.alloc(counts=1)
        used = self.mbarrier.alloc(counts=self.users)
        self.cluster.sync()
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=128)
        self.store_shared(s, self.load_global(g_x, offsets=[rank, 0], shape=[1, 32]))
        self.fence.proxy_async(space="shared")
        if self.repaired or rank == 0:
            self.mbarrier.arrive_and_expect_tx_remote(used, 0, target_rank=0, scope="cluster")
        if rank == 0:
            self.mbarrier.wait(used, phase=0, scope="cluster")
            self.tma.global_to_shared(src=g_x, dst=s, offsets=[0, 0], mbarrier=full, multicast_mask=3)
        self.mbarrier.wait(full, phase=0)
        self.store_global(g_y, self.load_shared(s), offsets=[rank, 0])
        self.cluster.sync()


BUG = Bug(
    title="The leader multicasts the next tile when its own epilogue is done; the other CTA's epilogue still uses"
    " the memory",
    sources=("https://github.com/inclusionAI/humming/pull/56",),
    says="Stages and epilogue share memory. The leader waits for its own epilogue alone; with two output tiles "
    "and multicast, 5 to 18 % of the elements were wrong. The repair waits for the epilogues of both CTAs.",
    guess="Shapes, and that the epilogue only writes.",
    section="cp.async.bulk (.multicast::cluster)",
    ptx=Ptx(
        f"""
@%first mbarrier.init.shared::cta.b64 [%bar], 1;
@%first mbarrier.init.shared::cta.b64 [%bar+8], 64; //-
@%first mbarrier.init.shared::cta.b64 [%bar+8], 128; //+
fence.mbarrier_init.release.cluster; {CLUSTER_SYNC}
.reg .b16 %h<2>; mov.b16 %h1, 3; mapa.shared::cluster.u32 %r10, %bar, 0;
@%first mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 256;
st.shared.b32 [%mine], %t; fence.proxy.async;
@%c0 mbarrier.arrive.shared::cta.b64 _, [%bar+8]; //-
mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%r10+8]; //+
@!%first bra LOADED; @%c1 bra LOADED;
wait.acquire.cluster [%bar+8], 0;
{COPY} [%tile], [%base], 256, [%bar], %h1;
LOADED:
wait [%bar], 0;
ld.shared.b32 %r11, [%other]; st.global.b32 [%out], %r11;
{CLUSTER_SYNC}
""",
        "data-race",
        ctas=2,
        cluster=2,
    ),
    script=Script(Kernel, lambda: (torch.ones(2, 32), torch.zeros(2, 32)), "data-race"),
)
