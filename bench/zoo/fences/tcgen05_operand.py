"""A tcgen05.mma reads operands that threads wrote, without a proxy fence."""

import tilus
import torch
from tilus import float16, float32, void_p

from zoo.bug import ALLOC, COMMIT, FILL, FREE, MMA, TCGEN05, Bug, Ptx, Script


class Kernel(tilus.Script):
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired

    def __call__(self, a_ptr: void_p, b_ptr: void_p, d_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_a = self.global_view(a_ptr, dtype=float16, shape=[128, 64])
        g_b = self.global_view(b_ptr, dtype=float16, shape=[32, 64])
        g_d = self.global_view(d_ptr, dtype=float32, shape=[128, 32])
        s_a = self.shared_tensor(dtype=float16, shape=[128, 64])
        s_b = self.shared_tensor(dtype=float16, shape=[32, 64])
        self.store_shared(s_a, self.load_global(g_a, offsets=[0, 0], shape=[128, 64]))
        self.store_shared(s_b, self.load_global(g_b, offsets=[0, 0], shape=[32, 64]))
        done = self.mbarrier.alloc(counts=1)
        t_d = self.tcgen05.alloc(dtype=float32, shape=[128, 32])
        if self.repaired:
            self.fence.proxy_async(space="shared")
        self.sync()
        with self.single_warp(0):
            self.tcgen05.mma(s_a, s_b.transpose(), t_d, enable_input_d=False)
            self.tcgen05.commit(mbarrier=done)
        self.mbarrier.wait(done, phase=0)
        r_d = self.tcgen05.load(t_d)
        self.tcgen05.wait_load()
        self.store_global(g_d, r_d, offsets=[0, 0])
        self.sync()
        self.tcgen05.dealloc(t_d)


BUG = Bug(
    title="tcgen05.mma reads a tile that threads wrote, behind a barrier and a tcgen05 fence, and no proxy fence",
    sources=("https://github.com/sgl-project/sglang/pull/39124",),
    says="A widened tile is written through the generic proxy and read by tcgen05. __syncthreads meets the "
    "threads and does not order the proxies. Without the fence 86 of 100 runs on a B300 were wrong, with it"
    " none.",
    guess="The product is of another shape and type.",
    section="Proxies, tcgen05.mma",
    ptx=Ptx(
        "@%first mbarrier.init.shared::cta.b64 [%bar], 1;"
        + FILL
        + """
fence.proxy.async.shared::cta; //+
tcgen05.fence::before_thread_sync;
"""
        + ALLOC
        + TCGEN05
        + f"""
tcgen05.fence::after_thread_sync;
@%first {MMA}
@%first {COMMIT} [%bar];
wait [%bar], 0;
tcgen05.fence::after_thread_sync;
tcgen05.ld.sync.aligned.32x32b.x1.b32 {{%r10}}, [%lanes];
tcgen05.wait::ld.sync.aligned;
st.global.b32 [%out], %r10;
"""
        + FREE,
        "missing-proxy-fence",
        threads=128,
        target="sm_100a",
    ),
    script=Script(
        Kernel,
        lambda: (torch.ones(128, 64).half(), torch.ones(32, 64).half(), torch.zeros(128, 32)),
        "missing-proxy-fence",
    ),
)
