"""The leader of a pair multiplies when its own tile has come; nobody told it of the other CTA's."""

import tilus
import torch
from tilus import float16, float32, int32, void_p

from zoo.bug import PAIR, PAIR_COMMIT, PAIR_END, PAIR_MMA, Bug, Ptx, Script


class Kernel(tilus.Script):
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired

    def __call__(self, a_ptr: void_p, b_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 2
        self.attrs.cluster_blocks = 2
        self.attrs.warps = 4
        rank: int32 = self.cluster.blockRank
        g_a = self.global_view(a_ptr, dtype=float16, shape=[256, 32])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[32, 32])
        g_d = self.global_view(d_ptr, dtype=float32, shape=[256, 32])
        s_a = self.shared_tensor(dtype=float16, shape=[128, 32])
        s_b = self.shared_tensor(dtype=float16, shape=[16, 32])
        full = self.mbarrier.alloc(counts=1)
        told = self.mbarrier.alloc(counts=1)
        done = self.mbarrier.alloc(counts=1)
        self.cluster.sync()
        t_d = self.tcgen05.alloc(dtype=float32, shape=[128, 32], cta_group=2)
        with self.single_warp(0):
            with self.single_thread():
                self.mbarrier.arrive_and_expect_tx(full, transaction_bytes=s_a.nbytes + s_b.nbytes)
            self.tma.global_to_shared(src=g_a, dst=s_a, offsets=[128 * rank, 0], mbarrier=full)
            self.tma.global_to_shared(src=g_b, dst=s_b, offsets=[16 * rank, 0], mbarrier=full)
            self.mbarrier.wait(full, phase=0)
            if rank == 1:
                with self.single_thread():
                    self.mbarrier.arrive_and_expect_tx_remote(told, 0, target_rank=0, scope="cluster")
            else:
                if self.repaired:
                    self.mbarrier.wait(told, phase=0, scope="cluster")
                self.tcgen05.mma(s_a, s_b.transpose(), t_d, enable_input_d=False, cta_group=2)
                self.tcgen05.commit(done, cta_group=2, multicast_mask=3)
        self.mbarrier.wait(done, phase=0)
        r_d = self.tcgen05.load(t_d)
        self.tcgen05.wait_load()
        self.store_global(g_d, r_d, offsets=[128 * rank, 0])
        self.cluster.sync()
        self.tcgen05.dealloc(t_d)


BUG = Bug(
    title="The leader of a pair waits for its own TMA load alone; its product reads the other CTA's tile as well",
    sources=("https://github.com/NVIDIA/cutlass/issues/3643", "https://github.com/NVIDIA/cutlass/pull/3647"),
    says="Each CTA loads its half of the scales of B and counts it on its own mbarrier. The leader's MMA warp "
    "waits on the leader's barrier alone before it copies both halves: wrong results, and launch failures "
    "for larger K.",
    guess="The operands of a plain product here, and scales in the source.",
    section="Issue Granularity (cta_group::2), mbarrier: complete-tx operation",
    ptx=Ptx(
        "@%first mbarrier.init.shared::cta.b64 [%bar], 1; @%first mbarrier.init.shared::cta.b64 [%bar+8], 1;"
        + "@%first mbarrier.init.shared::cta.b64 [%bar+16], 1;"
        + PAIR
        + f"""
@!%first bra DONE;
mbarrier.arrive.expect_tx.shared::cta.b64 _, [%bar], 8192;
cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%tile], [%base], 8192, [%bar];
wait [%bar], 0;
@%c1 mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%peer_bar+16]; //+
@%c1 bra DONE;
wait.acquire.cluster [%bar+16], 0; //+
{PAIR_MMA}
{PAIR_COMMIT} [%bar+8], %h1;
DONE:
wait [%bar+8], 0;
"""
        + PAIR_END,
        "overwritten-in-flight",
        threads=128,
        ctas=2,
        cluster=2,
        target="sm_100a",
    ),
    script=Script(
        Kernel,
        lambda: (torch.ones(256, 32).half(), torch.ones(32, 32).half(), torch.zeros(256, 32)),
        "read-before-complete",
    ),
    sanitizer='synccheck: "Barrier error detected. Missing wait" at the load of the other CTA, as published',
)
