"""The wait on a single mbarrier takes the parity of a ring of stages."""

import tilus
import torch
from tilus import float16, float32, void_p

from zoo.bug import ALLOC, COMMIT, FILL, FREE, MMA, TCGEN05, Bug, Ptx, Script


class Kernel(tilus.Script):
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired

    def __call__(self, a_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=float16, shape=[384, 32])
        g_d = self.global_view(d_ptr, dtype=float32, shape=[128, 128])
        s_a = self.shared_tensor(dtype=float16, shape=[128, 32])
        done = self.mbarrier.alloc(counts=1)
        t_d = self.tcgen05.alloc(dtype=float32, shape=[128, 128])
        self.sync()
        for i in range(3):
            self.store_shared(s_a, self.load_global(g_a, offsets=[128 * i, 0], shape=[128, 32]))
            self.fence.proxy_async(space="shared")
            self.sync()
            with self.single_warp(0):
                self.tcgen05.mma(s_a, s_a.transpose(), t_d, enable_input_d=i > 0)
                self.tcgen05.commit(mbarrier=done)
            self.mbarrier.wait(done, phase=i % 2 if self.repaired else i // 2 % 2)
        r_d = self.tcgen05.load(t_d)
        self.tcgen05.wait_load()
        self.store_global(g_d, r_d, offsets=[0, 0])
        self.sync()
        self.tcgen05.dealloc(t_d)


BUG = Bug(
    title="The wait for an MMA on one mbarrier takes the parity of a ring of stages, and passes on a phase that "
    "is over",
    sources=("https://github.com/tile-ai/tilelang/pull/3087",),
    says="Each wait got the parity (k / stages) % 2; an mbarrier of the user's own flips in every iteration. The"
    " wait returned at once, and copies overwrote a stage that the MMA still read: wrong from three stages "
    "on.",
    guess="The copy is a store of the threads here, with two stages and three iterations.",
    section="mbarrier.try_wait (parity)",
    ptx=Ptx(
        FILL
        + "@%first mbarrier.init.shared::cta.b64 [%bar], 1; fence.proxy.async;"
        + ALLOC
        + TCGEN05
        + f"""
mov.u32 %r10, 0;
STEP:
@%first {MMA}
@%first {COMMIT} [%bar];
shr.u32 %r11, %r10, 1; and.b32 %r11, %r11, 1; //-
and.b32 %r11, %r10, 1; //+
wait [%bar], %r11;
tcgen05.fence::after_thread_sync;
st.shared.b32 [%mine], %r10; fence.proxy.async.shared::cta;
tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync;
add.u32 %r10, %r10, 1; setp.lt.u32 %p1, %r10, 3; @%p1 bra STEP;
"""
        + FREE,
        "overwritten-in-flight",
        threads=128,
        target="sm_100a",
        orders=("eager", "late"),
    ),
    script=Script(Kernel, lambda: (torch.ones(384, 32).half(), torch.zeros(128, 128)), "wrong-phase"),
)
