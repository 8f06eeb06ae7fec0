"""A warp gives tensor memory back while others still load from it."""

import tilus
import torch
from tilus import float32, void_p

from zoo.bug import ALLOC, Bug, Ptx, Script


class Kernel(tilus.Script):
    def __init__(self, repaired: bool):
        super().__init__()
        self.repaired = repaired

    def __call__(self, y_ptr: void_p):
        self.attrs.blocks = 1
        self.attrs.warps = 4
        g_y = self.global_view(y_ptr, dtype=float32, shape=[128, 32])
        t = self.tcgen05.alloc(dtype=float32, shape=[128, 32])
        self.tcgen05.store(t, self.register_tensor(dtype=float32, shape=[128, 32], init=1.0))
        self.tcgen05.wait_store()
        r = self.tcgen05.load(t)
        self.tcgen05.wait_load()
        if self.repaired:
            self.sync()
        self.tcgen05.dealloc(t)
        self.store_global(g_y, r, offsets=[0, 0])


BUG = Bug(
    title="A warp gives tensor memory back with no barrier behind the other warps' loads from it",
    sources=(
        "https://github.com/triton-lang/triton/pull/7994",
        "https://github.com/facebookexperimental/triton/pull/487",
    ),
    says="Without a barrier of the CTA some warp may deallocate tensor memory that is in use, and another block "
    "overwrites it. The repair: bar.sync before the deallocation. The first source was read in the words of"
    " its cherry-pick.",
    guess="",
    section="tcgen05.dealloc",
    ptx=Ptx(
        ALLOC
        + """
tcgen05.st.sync.aligned.32x32b.x1.b32 [%lanes], {%t}; tcgen05.wait::st.sync.aligned;
tcgen05.ld.sync.aligned.32x32b.x1.b32 {%r10}, [%lanes]; tcgen05.wait::ld.sync.aligned;
tcgen05.fence::before_thread_sync; bar.sync 0; tcgen05.fence::after_thread_sync; //+
@%w0 tcgen05.dealloc.cta_group::1.sync.aligned.b32 %tmem, 64;
st.global.b32 [%out], %r10;
""",
        "dealloc-in-flight",
        threads=128,
        target="sm_100a",
    ),
    script=Script(Kernel, lambda: (torch.zeros(128, 32),), "dealloc-in-flight"),
)
