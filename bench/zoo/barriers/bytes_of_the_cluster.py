"""A CTA announces the bytes of all CTAs of its cluster, of which a pair alone signals its mbarrier."""

import tilus
import torch
from tilus import float32, int32, void_p

from zoo.bug import CLUSTER_SYNC, Bug, Ptx, Script


class Kernel(tilus.Script):
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired
        self.bytes = 256 if repaired else 512

    def __call__(self, x_ptr: void_p, y_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 1
        rank: int32 = self.cluster.blockRank
        g_x = self.global_view(x_ptr, dtype=float32, shape=[2, 32])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[2, 32])
        s = self.shared_tensor(dtype=float32, shape=[2, 1, 32])
        full = self.mbarrier.alloc(counts=1)
        self.cluster.sync()
        with self.single_thread():
            self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=self.bytes)
        self.tma.global_to_shared(src=g_x, dst=s[rank], offsets=[rank, 0], mbarrier=full, multicast_mask=3)
        self.mbarrier.wait(full, phase=0)
        self.store_global(g_y, self.load_shared(s[rank]), offsets=[rank, 0])
        self.cluster.sync()


BUG = Bug(
    title="An mbarrier of a pair expects the bytes of all four CTAs of the cluster; two of them signal it",
    sources=("https://github.com/tile-ai/tilelang/issues/2644",),
    says="The announced bytes are multiplied by the size of the cluster. A load of a pair signals the first "
    "CTA's barrier for two CTAs, so a cluster of four waits for ever. Found by reading and compiling, not "
    "run by its author.",
    guess="Bulk copies signal the barrier here, one for each CTA of the pair; the cluster has two CTAs.",
    section="Tracking asynchronous operations by the mbarrier object (tx-count), mbarrier.expect_tx",
    ptx=Ptx(
        f"""
@%first mbarrier.init.shared::cta.b64 [%bar], 1; fence.mbarrier_init.release.cluster; {CLUSTER_SYNC}
@!%first bra END;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 1024; //-
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 512; //+
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%tile], [%base], 256, [%bar];
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%tile+256], [%base], 256, [%bar];
wait [%bar], 0;
END: {CLUSTER_SYNC}
""",
        "deadlock",
        ctas=2,
        cluster=2,
    ),
    script=Script(Kernel, lambda: (torch.ones(2, 32), torch.zeros(2, 32)), "deadlock"),
)
