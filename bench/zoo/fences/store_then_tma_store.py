"""Threads fill a tile that TMA stores, without a proxy fence."""

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
        g_x = self.global_view(x_ptr, dtype=float32, shape=[1, 64])
        g_y = self.global_view(y_ptr, dtype=float32, shape=[1, 64])
        s = self.shared_tensor(dtype=float32, shape=[1, 64])
        self.store_shared(s, self.load_global(g_x, offsets=[0, 0], shape=[1, 64]))
        if self.repaired:
            self.fence.proxy_async(space="shared")
        self.sync()
        with self.single_warp(0):
            self.tma.shared_to_global(s, g_y, offsets=[0, 0])
            self.tma.commit_group()
            self.tma.wait_group(0)


BUG = Bug(
    title="Threads write a tile that TMA stores, with a barrier and without a proxy fence",
    sources=("https://github.com/triton-lang/triton/pull/9610", "https://github.com/triton-lang/triton/pull/10537"),
    says="The pass that inserts proxy fences did not insert one between st.shared and a TMA store.",
    guess="",
    section="Proxies, fence.proxy.async",
    ptx=Ptx(
        """
st.shared.b32 [%mine], %t;
fence.proxy.async.shared::cta; //+
bar.sync 0;
@%first cp.async.bulk.global.shared::cta.bulk_group [%base], [%tile], 256; @%first cp.async.bulk.commit_group;
@%first cp.async.bulk.wait_group 0;
""",
        "missing-proxy-fence",
    ),
    script=Script(Kernel, lambda: (torch.ones(1, 64), torch.zeros(1, 64)), "missing-proxy-fence"),
    consan='tells "Async shared-memory access is missing fence_async_shared" of this kind (its own tests)',
)
