"""A flag is released behind a wait that covers the reads of a TMA store alone."""

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
        if self.blockIdx.x == 0:
            self.store_shared(s, self.load_global(g_x, offsets=[0, 0], shape=[1, 32]))
            self.fence.proxy_async(space="shared")
            self.sync()
            self.tma.shared_to_global(s, g_t, offsets=[0, 0])
            self.tma.commit_group()
            self.tma.wait_group(0, read=not self.repaired)
            self.sync()
            self.release_semaphore(flag, value=1)
            self.tma.wait_group(0)
        else:
            self.lock_semaphore(flag, value=1)
            self.release_semaphore(flag, value=0)
            self.store_global(g_y, self.load_global(g_t, offsets=[0, 0], shape=[1, 32]), offsets=[0, 0])


BUG = Bug(
    title="A flag tells another CTA of a TMA store for which the thread has waited by `.read` alone",
    sources=("https://github.com/triton-lang/triton/pull/10415",),
    says="The wait behind a descriptor's store covered the reads of shared memory alone. An atomic with release "
    "behind it did not release the store, so that messages could not be passed.",
    guess="The reader here is another CTA of the same grid.",
    section="cp.async.bulk.wait_group (.read), Causality Order",
    ptx=Ptx(
        """
setp.ne.u32 %p1, %cta, 0; @%p1 bra READER;
st.shared.b32 [%mine], %t; fence.proxy.async.shared::cta; bar.sync 0;
@!%first bra END;
cp.async.bulk.global.shared::cta.bulk_group [%base], [%tile], 256; cp.async.bulk.commit_group;
cp.async.bulk.wait_group.read 0; //-
cp.async.bulk.wait_group 0; //+
st.release.gpu.global.b32 [%base+4096], 1;
cp.async.bulk.wait_group 0;
bra END;
READER:
POLL: ld.acquire.gpu.global.b32 %r10, [%base+4096]; setp.eq.u32 %p2, %r10, 0; @%p2 bra POLL;
mul.wide.u32 %x1, %t, 4; add.s64 %x1, %x1, %base; ld.global.b32 %r11, [%x1]; st.shared.b32 [%mine], %r11;
END:
""",
        "read-before-complete",
        ctas=2,
    ),
    script=Script(
        Kernel,
        lambda: (torch.ones(1, 32), torch.zeros(1, 32), torch.zeros(1, dtype=torch.int32), torch.zeros(1, 32)),
        "read-before-complete",
    ),
)
